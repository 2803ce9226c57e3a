// One Plotly node per chart, updated in place with Plotly.react.
//
// Streamlit calls the default export when the chart appears, again whenever its data or the page's theme
// change, and the function that it returns when the chart leaves the page.
import { Chart } from './drawing.mjs';

const charts = new WeakMap(); // parentElement -> Chart

export default function ({ data, parentElement, setTriggerValue }) {
  const node = parentElement.querySelector('.fmha-chart');
  let chart = charts.get(parentElement);
  if (!chart || chart.node !== node) {
    chart?.destroy();
    chart = new Chart(node);
    charts.set(parentElement, chart);
  }
  chart.tell = setTriggerValue;
  chart.update(data);
  // On a busy machine Streamlit cleans up after a call while the next one is on its way: what counts is whether the
  // place is still on the page.
  return () =>
    setTimeout(() => {
      if (parentElement.isConnected) return;
      chart.destroy();
      charts.delete(parentElement);
    }, 0);
}
