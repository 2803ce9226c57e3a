// On every page. What scrolls by itself, a long formula or a listing, can be reached with the Tab key, in every browser;
// and where there will be charts, the library that draws them is loaded while the page is still being made.
//
// Streamlit draws formulas and code, so the attribute is set from here, whenever the page has changed; where nothing
// scrolls any more it is taken away again.
const BOXES = '[data-testid=stMain] .katex-display, [data-testid=stMain] pre';
const MARK = 'fmhaScrolls';
const QUIET_MS = 120;

function scrolls(box) {
  const style = getComputedStyle(box);
  const can = (value) => value === 'auto' || value === 'scroll';
  return (
    (can(style.overflowX) && box.scrollWidth > box.clientWidth) ||
    (can(style.overflowY) && box.scrollHeight > box.clientHeight)
  );
}

export function look(root = document) {
  for (const box of root.querySelectorAll(BOXES)) {
    if (scrolls(box)) {
      if (!box.hasAttribute('tabindex')) {
        box.tabIndex = 0;
        box.dataset[MARK] = '';
      }
    } else if (MARK in box.dataset) {
      box.removeAttribute('tabindex');
      delete box.dataset[MARK];
    }
  }
}

/** Begin to load the library that draws charts (drawing.mjs looks for this script), before the first chart asks. */
export function loadAhead(url, page = document) {
  if (!url || page.getElementById('fmha-plotly')) return;
  const script = Object.assign(page.createElement('script'), { id: 'fmha-plotly', src: url, async: true });
  script.addEventListener('error', () => script.remove()); // the first chart tries again
  page.head.append(script);
}

export default function ({ data } = {}) {
  loadAhead(data?.ahead);
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => look(), QUIET_MS);
  };
  const main = document.querySelector('[data-testid=stMain]') ?? document.body;
  const changes = new MutationObserver(soon);
  changes.observe(main, { childList: true, subtree: true });
  window.addEventListener('resize', soon);
  soon();
  return () => {
    clearTimeout(timer);
    changes.disconnect();
    window.removeEventListener('resize', soon);
  };
}
