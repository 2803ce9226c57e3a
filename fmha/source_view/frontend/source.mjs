// A source listing with a heat strip: drawn from a message that says everything; nothing is computed here.
//
// Streamlit calls the default export when the listing appears, and again when its data or the page's theme change. Rows
// are rebuilt then, and the place that one has scrolled to is kept. A click on a line, or the arrow keys and Enter, tell
// Python its number.

/** The element of one row of the message. Pure but for `document`. */
export function rowElement(doc, row, message) {
  const make = (tag, name, text) => {
    const node = doc.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const classes = ['row'];
  for (const [name, on] of Object.entries(rowState(row, message))) if (on) classes.push(name);
  const node = make('div', classes.join(' '));
  if (row.role) node.style.setProperty('--phase', message.colors[row.role]);
  const left = make('div', 'left');
  const heat = make('span', 'heat');
  if (row.share > 0) {
    const bar = make('i');
    bar.style.width = `${Math.max(100 * row.share, 1.5)}%`;
    heat.append(bar);
  }
  heat.append(make('span', '', row.value ?? ''));
  left.append(make('span', 'bar'), make('span', 'mark', markOf(row, message)), make('span', 'no', row.no ?? ''));
  if (message.strip) left.append(heat);
  const code = make('span', 'code');
  for (const [name, text] of row.code) code.append(name ? make('span', name, text) : text);
  node.append(left, code);
  if (row.no !== undefined) {
    node.dataset.line = row.no;
    node.id = `line-${row.no}`;
    node.setAttribute('role', 'option');
    node.setAttribute('aria-selected', String(row.no === message.chosen));
    if (row.title) node.title = row.title;
  }
  return node;
}

/** Which classes a row has. */
export function rowState(row, message) {
  return {
    title: Boolean(row.head),
    bad: Boolean(row.bad),
    now: row.no !== undefined && row.no === message.now,
    chosen: row.no !== undefined && row.no === message.chosen,
    instead: row.no === undefined,
    plain: !message.picks || !row.used,
  };
}

/** The sign in the margin: a fault, or where the step is. */
export function markOf(row, message) {
  if (row.bad) return '✖';
  return row.no !== undefined && row.no === message.now ? '▶' : '';
}

/** The next line that did something, from `line` in a direction; the line itself where there is none. */
export function nextUsed(rows, line, direction) {
  const used = rows.filter((r) => r.used).map((r) => r.no);
  const further = direction > 0 ? used.filter((n) => n > line) : used.filter((n) => n < line).reverse();
  return further[0] ?? line;
}

/** Is this background dark? Takes #rgb, #rrggbb or rgb(...). */
export function isDark(color) {
  const text = String(color).trim();
  let parts = /^#([0-9a-f]{3})$/i.exec(text) && [...text.slice(1)].map((c) => parseInt(c + c, 16));
  const six = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(text);
  if (!parts && six) parts = six.slice(1, 4).map((c) => parseInt(c, 16));
  const rgb = /^rgba?\(\s*(\d+)[,\s]+(\d+)[,\s]+(\d+)/.exec(text);
  if (!parts && rgb) parts = rgb.slice(1, 4).map(Number);
  return Boolean(parts) && 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] < 128;
}

class Listing {
  constructor(root) {
    this.root = root;
    this.list = root.querySelector('.list');
    this.phases = root.querySelector('.phases');
    this.list.addEventListener('click', (event) => {
      const row = event.target.closest('.row[data-line]:not(.plain)');
      if (row && !this.selecting()) this.pick(Number(row.dataset.line));
    });
    this.list.addEventListener('keydown', (event) => this.key(event));
  }

  /** Whether text is being marked, to be copied: that is no click. */
  selecting() {
    const selection = this.root.getRootNode().getSelection?.() ?? document.getSelection();
    return Boolean(selection && !selection.isCollapsed);
  }

  key(event) {
    if (!this.message?.picks) return;
    const direction = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const line = nextUsed(this.message.rows, this.message.chosen ?? 0, direction);
    if (line === this.message.chosen) return;
    this.message.chosen = line;
    for (const row of this.list.querySelectorAll('.row.chosen')) row.classList.remove('chosen');
    this.show(line);
    this.list.querySelector(`[data-line="${line}"]`).classList.add('chosen');
    clearTimeout(this.later);
    this.later = setTimeout(() => this.tell?.('line', line), 200); // keys come fast: the last one counts
  }

  pick(line) {
    if (!this.message?.picks) return;
    this.own = line;
    this.tell?.('line', line);
  }

  update(bytes) {
    const text = typeof bytes === 'string' ? bytes : new TextDecoder().decode(bytes);
    const dark = isDark(getComputedStyle(this.root).getPropertyValue('--st-background-color'));
    this.root.toggleAttribute('data-dark', dark);
    if (text === this.text && dark === this.dark) return;
    const before = this.message;
    this.text = text;
    this.dark = dark;
    const message = (this.message = JSON.parse(text));
    message.colors = message.palette[dark ? 'dark' : 'light'];
    const doc = this.root.ownerDocument;
    this.list.style.maxHeight = message.height ? `${message.height}px` : '';
    this.list.setAttribute('aria-label', message.alt);
    this.list.tabIndex = message.picks ? 0 : -1;
    this.root.style.setProperty('--heat', message.colors[message.strip?.role] ?? '');
    const place = [this.list.scrollTop, this.list.scrollLeft];
    this.list.replaceChildren(...this.head(doc, message), ...message.rows.map((row) => rowElement(doc, row, message)));
    [this.list.scrollTop, this.list.scrollLeft] = place;
    this.legend(doc, message);
    if (message.chosen) this.list.setAttribute('aria-activedescendant', `line-${message.chosen}`);
    this.wanted = undefined;
    if (message.now && message.now !== before?.now) this.wanted = message.now;
    if (message.chosen && message.chosen !== before?.chosen && message.chosen !== this.own) this.wanted = message.chosen;
    this.own = undefined;
    this.settle();
    this.root.dataset.drawn = String(Number(this.root.dataset.drawn ?? 0) + 1);
  }

  head(doc, message) {
    if (!message.strip) return [];
    const head = rowElement(doc, { code: [['', message.strip.hint]], value: message.strip.title }, message);
    head.className = 'head';
    return [head];
  }

  legend(doc, message) {
    this.phases.replaceChildren(
      ...message.phases.map((phase) => {
        const button = doc.createElement('button');
        button.textContent = phase.name;
        button.title = `lines ${phase.first} to ${phase.last}`;
        button.style.setProperty('--phase', message.colors[phase.role]);
        button.addEventListener('click', () => this.show(phase.first, true));
        return button;
      }),
    );
  }

  /** Bring the wanted line into view, once the style sheet is there: it may come after the first picture. */
  settle(tries = 300) {
    if (this.wanted === undefined) return;
    if (getComputedStyle(this.list).overflowY !== 'auto' || !this.list.clientHeight) {
      if (tries) requestAnimationFrame(() => this.settle(tries - 1));
      return;
    }
    this.show(this.wanted);
    this.wanted = undefined;
  }

  /** Bring a line into view, by moving the listing and never the page. */
  show(line, atTop = false) {
    const row = this.list.querySelector(`[data-line="${line}"]`);
    if (!row) return;
    const top = row.offsetTop;
    const head = this.list.querySelector('.head')?.offsetHeight ?? 0;
    const above = top - head < this.list.scrollTop;
    const below = top + row.offsetHeight > this.list.scrollTop + this.list.clientHeight;
    if (atTop) this.list.scrollTop = top - head;
    else if (above || below) this.list.scrollTop = top - this.list.clientHeight / 2;
  }
}

const listings = new WeakMap(); // parentElement -> Listing

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector('.fmha-source');
  let listing = listings.get(parentElement);
  if (!listing || listing.root !== root) {
    listing = new Listing(root);
    listings.set(parentElement, listing);
  }
  listing.tell = setTriggerValue;
  listing.update(data);
}
