// A figure in a node of the page, drawn by Plotly in the page's colours and changed in place. Knows nothing of who asks.
import { painted, narrowed, legendInTitle, isDark } from './paint.mjs';
import { Menu } from './menu.mjs';

const NARROW = 520; // pixels; below that the lettering is made smaller
const PORTABLE = 'Arial, Helvetica, sans-serif'; // a saved picture has no other fonts at hand: it is laid out with these
const CONFIG = { displayModeBar: false, displaylogo: false, responsive: false };

let library; // one download, however many charts
function plotly(url) {
  library ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve(window.Plotly);
    let script = document.getElementById('fmha-plotly'); // the server may have put it into the page already
    if (!script) {
      script = Object.assign(document.createElement('script'), { id: 'fmha-plotly', src: url });
      document.head.append(script);
    }
    script.addEventListener('load', () => resolve(window.Plotly));
    script.addEventListener('error', () => {
      library = undefined; // the next change tries again
      script.remove();
      reject(new Error('the chart library could not be loaded'));
    });
  });
  return library;
}

let queue = Promise.resolve();

/** One new chart a frame: resolves when the charts that asked before have been drawn and shown. */
function myTurn() {
  const turn = queue;
  queue = turn.then(() => new Promise((resolve) => setTimeout(resolve, 20)));
  return turn;
}

const BEHIND_MS = 50;

/** A little after the next picture of the page: drawing a chart blocks for longer than a frame lasts. */
function later() {
  return new Promise((resolve) => {
    const spare = setTimeout(resolve, 250); // a hidden page has no next picture
    requestAnimationFrame(() =>
      setTimeout(() => {
        clearTimeout(spare);
        resolve();
      }, BEHIND_MS),
    );
  });
}

export class Chart {
  constructor(node) {
    this.node = node;
    this.swaps = JSON.parse(node.dataset.swaps);
    this.text = null; // the message drawn last
    this.look = null; // the colours and width class that it was drawn with
    this.turn = 0;
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(node);
    this.menu = new Menu(node.parentElement.querySelector('.fmha-save'), () => this.shown());
  }

  /** What is to be saved: the figure as drawn, on the page's ground; its words; and as it was sent, for its numbers. */
  shown() {
    const { data, layout, _fullLayout: full } = this.node;
    const ground = this.currentLook().ground;
    return {
      figure: { data, layout: { ...layout, font: { ...layout.font, family: PORTABLE }, paper_bgcolor: ground, plot_bgcolor: ground } },
      sent: JSON.parse(this.text).figure,
      size: { width: full.width, height: full.height },
      plotly: window.Plotly,
    };
  }

  update(bytes) {
    this.pending = typeof bytes === 'string' ? bytes : new TextDecoder().decode(bytes);
    return this.draw();
  }

  currentLook() {
    const style = getComputedStyle(this.node);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      text: of('--st-text-color'),
      ground: of('--st-background-color'),
      panel: of('--st-secondary-background-color'),
      border: of('--st-border-color'),
      font: of('--st-font'),
      narrow: this.node.clientWidth < NARROW,
      width: this.node.clientWidth,
    };
  }

  async draw() {
    const turn = ++this.turn;
    const look = this.currentLook();
    const lookKey = JSON.stringify({ ...look, width: look.narrow ? look.width : 0 });
    if (this.pending === this.text && lookKey === this.look) return;
    const message = JSON.parse(this.pending);
    this.node.setAttribute('aria-label', message.alt);
    this.node.style.height = `${message.height}px`; // before the library is there: nothing jumps
    let lib;
    try {
      lib = await plotly(this.node.dataset.plotly);
    } catch (error) {
      this.node.innerHTML = '';
      const note = document.createElement('div');
      note.className = 'failed';
      note.textContent = `${error.message}. ${message.alt}`;
      this.node.append(note);
      return;
    }
    if (this.text === null) await myTurn(); // a page of charts: the first is seen while the next is drawn
    else await later(); // a change: the player's new picture goes first
    if (turn !== this.turn || this.gone) return; // a newer figure is on its way
    let figure = painted(message.figure, this.swaps, look, isDark(look.ground));
    if (look.narrow) figure = narrowed(figure, look.width);
    figure.layout.height = message.height;
    figure.layout.width = this.node.clientWidth || undefined;
    figure.layout.autosize = false;
    figure.layout.uirevision ??= 'keep';
    this.text = this.pending;
    this.look = lookKey;
    await lib.react(this.node, figure.data, figure.layout, CONFIG);
    const over = look.narrow ? legendInTitle(this.node) : 0; // its rows were more than could be foreseen
    if (over) await lib.relayout(this.node, { 'margin.t': this.node._fullLayout._size.t + over });
    if (message.picks) this.listen();
    this.menu.show();
    this.node.dataset.drawn = String(Number(this.node.dataset.drawn ?? 0) + 1);
  }

  /** Tell Python which cell is clicked. Once: the node keeps its listeners from figure to figure. */
  listen() {
    if (this.listening) return;
    this.listening = true;
    this.node.classList.add('picks');
    this.node.on('plotly_click', (event) => {
      const point = event.points?.[0];
      if (point) this.tell?.('pick', { x: point.x, y: point.y });
    });
  }

  resized() {
    if (this.frame || this.text === null) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const width = this.node.clientWidth;
      if (this.gone || !width || !window.Plotly || !this.node._fullLayout) return;
      if (width === this.node._fullLayout.width) return;
      const narrow = width < NARROW;
      if (narrow || narrow !== JSON.parse(this.look).narrow) this.draw();
      else window.Plotly.relayout(this.node, { width });
    });
  }

  destroy() {
    this.gone = true;
    this.menu.destroy();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    if (window.Plotly && this.node._fullLayout) window.Plotly.purge(this.node);
  }
}
