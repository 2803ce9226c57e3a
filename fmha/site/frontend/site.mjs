// The static site's script: draws figures as they come into view, turns the pages of the lecture by key.
import { Chart } from "../../chart/frontend/drawing.mjs";

const NEAR = "500px"; // how far below the window a figure begins to be drawn
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Set();

/** Draw the figure whose data lies beside its node. */
function draw(node) {
  const chart = new Chart(node);
  drawn.add(chart);
  chart.update(node.parentElement.querySelector("script").textContent);
}

function watchFigures() {
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: NEAR });
  for (const node of document.querySelectorAll(".fmha-chart")) seen.observe(node);
  dark.addEventListener("change", () => { for (const chart of drawn) chart.draw(); });
}

/** Page Down reveals an answer first and then goes on, as in the app; Page Up goes back. */
function turn(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || !["PageDown", "PageUp"].includes(event.key)) return;
  const next = event.key === "PageDown";
  const answer = next && document.querySelector("details.reveal:not([open])");
  const link = document.querySelector(`a[rel=${next ? "next" : "prev"}]`);
  if (!answer && !link) return;
  event.preventDefault();
  if (answer) answer.open = true;
  else link.click();
}

/** What scrolls by itself, a long formula or a listing, is reached with the Tab key. */
function reachScrollers() {
  for (const box of document.querySelectorAll("math[display=block], pre, .scroll, .lecture-code")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

watchFigures();
reachScrollers();
addEventListener("resize", reachScrollers);
document.addEventListener("toggle", reachScrollers, true);
if (document.querySelector("a[rel=next], a[rel=prev]")) document.addEventListener("keydown", turn);
document.documentElement.dataset.ready = "true";
