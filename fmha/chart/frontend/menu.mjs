// The small menu of a chart: save it as PNG, SVG or CSV. Plain buttons in a <details>, so that keys work as they should.
import { figureCsv } from './csv.mjs';

const SHARP = 2; // pixels of a PNG for one on the page

export class Menu {
  /** `box`: the menu's element; `shown()`: {figure, sent, size, plotly} of the chart as it stands. */
  constructor(box, shown) {
    this.box = box;
    this.shown = shown;
    this.stop = new AbortController();
    const on = { signal: this.stop.signal };
    for (const button of box.querySelectorAll('button')) {
      button.addEventListener('click', () => this.save(button.dataset.kind), on);
    }
    box.addEventListener('keydown', (event) => event.key === 'Escape' && this.close(true), on);
    document.addEventListener('pointerdown', (event) => !box.contains(event.target) && this.close(false), on);
  }

  /** There is something to save. */
  show() {
    this.box.hidden = false;
    this.box.querySelector('summary').setAttribute('aria-label', `Save this chart: ${this.name()}`);
  }

  close(back) {
    if (!this.box.open) return;
    this.box.open = false;
    if (back) this.box.querySelector('summary').focus();
  }

  /** The chart's title in words. */
  name() {
    const title = this.shown().sent.layout.title;
    return ((typeof title === 'string' ? title : title?.text) ?? 'chart').replace(/<[^>]*>/g, ' ').trim();
  }

  async save(kind) {
    const { figure, sent, size, plotly } = this.shown();
    const file = `fmha-${this.name().toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 60) || 'chart'}`;
    if (kind === 'csv') offer(new Blob([figureCsv(sent)], { type: 'text/csv' }), `${file}.csv`);
    else await plotly.downloadImage(figure, { format: kind, filename: file, scale: kind === 'png' ? SHARP : 1, ...size });
    this.close(true);
  }

  destroy() {
    this.stop.abort();
  }
}

function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
