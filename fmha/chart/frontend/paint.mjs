// Painting a finished figure in the page's colours. Pure functions, no DOM: tested by node.

/** Is this background dark? Takes #rgb, #rrggbb or rgb(...). */
export function isDark(color) {
  const parts = channels(color);
  if (!parts) return false;
  const [r, g, b] = parts;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 128;
}

/** [red, green, blue] of a CSS colour, null where it is written in a way that is not read here. */
export function channels(color) {
  const text = String(color).trim();
  let match = /^#([0-9a-f]{3})$/i.exec(text);
  if (match) return [...match[1]].map((c) => parseInt(c + c, 16));
  match = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})(?:[0-9a-f]{2})?$/i.exec(text);
  if (match) return match.slice(1, 4).map((c) => parseInt(c, 16));
  match = /^rgba?\(\s*(\d+)[,\s]+(\d+)[,\s]+(\d+)/.exec(text);
  return match ? match.slice(1, 4).map(Number) : null;
}

/** Every role colour of `value` (strings anywhere inside it) exchanged by `swaps`: light colour -> dark colour. */
export function swapped(value, swaps) {
  const table = new Map();
  for (const [from, to] of Object.entries(swaps)) table.set(channels(from).join(), { to, rgb: channels(to) });
  const visit = (item) => {
    if (typeof item === 'string') {
      if (item[0] !== '#' && !item.startsWith('rgb')) return item;
      const parts = channels(item);
      const entry = parts && table.get(parts.join());
      if (!entry) return item;
      const alpha = /^rgba\(.*,\s*([\d.]+)\s*\)$/.exec(item);
      return alpha ? `rgba(${entry.rgb.join()},${alpha[1]})` : entry.to;
    }
    if (Array.isArray(item)) return item.map(visit);
    if (item && typeof item === 'object' && item.constructor === Object) {
      return Object.fromEntries(Object.entries(item).map(([k, v]) => [k, visit(v)]));
    }
    return item;
  };
  return visit(value);
}

const axisNames = (layout) => Object.keys(layout).filter((k) => /^[xyz]axis\d*$/.test(k));

/** The figure with the page's text, grid and ground colours, and on a dark page with the dark role colours. */
export function painted(figure, swaps, look, dark) {
  const { data, layout } = dark ? swapped(figure, swaps) : structuredClone(figure);
  const grid = dark ? 'rgba(200,210,225,0.18)' : 'rgba(60,72,90,0.16)';
  const line = dark ? 'rgba(200,210,225,0.45)' : 'rgba(60,72,90,0.45)';
  const clear = 'rgba(0,0,0,0)';
  layout.paper_bgcolor = clear;
  layout.plot_bgcolor = clear;
  layout.font = { ...layout.font, color: look.text, family: look.font };
  layout.hoverlabel = {
    ...layout.hoverlabel,
    bgcolor: look.panel,
    bordercolor: look.border,
    font: { ...layout.hoverlabel?.font, color: look.text, family: look.font },
  };
  layout.legend = { ...layout.legend, bgcolor: clear };
  // An axis that only the template names has to be repainted too.
  for (const name of new Set(['xaxis', 'yaxis', ...axisNames(layout)])) {
    layout[name] = { gridcolor: grid, zerolinecolor: line, linecolor: line, ...layout[name] };
  }
  return { data, layout };
}

/**
 * The same figure for a narrow column: smaller lettering, a title in lines that fit, and what the figure itself wants
 * there: layout.meta.narrow holds properties of annotations and shapes by index, and of axes.
 */
export function narrowed(figure, width) {
  const layout = { ...figure.layout };
  const own = layout.meta?.narrow ?? {};
  for (const kind of ['annotations', 'shapes']) {
    if (!own[kind]) continue;
    layout[kind] = layout[kind].map((one, index) => {
      const mine = own[kind][index] ?? {};
      return { ...one, ...mine, ...(mine.font && { font: { ...one.font, ...mine.font } }) };
    });
  }
  for (const name of axisNames(own)) layout[name] = { ...layout[name], ...own[name] };
  const size = 12;
  layout.font = { ...layout.font, size };
  for (const name of axisNames(layout)) {
    const title = typeof layout[name].title === 'string' ? { text: layout[name].title } : layout[name].title;
    layout[name] = {
      ...layout[name],
      tickfont: { ...layout[name].tickfont, size: size - 1 },
      title: { ...title, font: { ...title?.font, size } },
    };
  }
  layout.legend = { ...layout.legend, font: { ...layout.legend?.font, size: size - 1 } };
  const title = typeof layout.title === 'string' ? { text: layout.title } : layout.title;
  if (title?.text) {
    const text = wrapped(title.text, Math.max(16, Math.floor(width / 7.5)));
    const lines = text.split('<br>').length;
    // The title hangs from the top edge, and the margin holds its lines and those of a legend below it.
    layout.title = {
      ...title,
      text,
      font: { ...title.font, size: size + 2 },
      yref: 'container',
      y: 1,
      yanchor: 'top',
      pad: { ...title.pad, t: 6 },
    };
    layout.margin = { ...layout.margin, t: 14 + 19 * lines + 19 * legendRows(figure, width) };
  }
  return { data: figure.data, layout };
}

/** About how many rows a horizontal legend above the plot will take; 0 where it stands elsewhere or is off. */
export function legendRows(figure, width) {
  const { layout, data } = figure;
  const names = data.filter((t) => t.showlegend !== false && t.name).map((t) => String(t.name));
  if (layout.showlegend === false || (names.length < 2 && !layout.showlegend)) return 0;
  const legend = { ...layout.template?.layout?.legend, ...layout.legend };
  if (legend.orientation !== 'h' || (legend.y ?? 0) < 0.9) return 0;
  const needs = names.map((name) => 46 + 6 * name.length);
  const room = width - 60;
  if (needs.reduce((sum, need) => sum + need, 0) <= room) return 1;
  return Math.ceil(names.length / Math.max(1, Math.floor(room / Math.max(...needs)))); // in columns of one width
}

/** By how many pixels the rows of a legend reach into the title above it; 0 where they do not, or one is missing. */
export function legendInTitle(node) {
  const [title, legend] = ['.gtitle', '.legend'].map((name) => node.querySelector(name)?.getBoundingClientRect());
  return title && legend ? Math.max(0, Math.ceil(title.bottom + 2 - legend.top)) : 0;
}

/** Text broken at spaces into lines of at most `columns` characters, joined by <br>. Tags are left alone. */
export function wrapped(text, columns) {
  if (/<(?!br\s*\/?>)/i.test(text)) return text;
  return text
    .split(/<br\s*\/?>/i)
    .map((line) => {
      const lines = [''];
      for (const word of line.split(' ')) {
        const last = lines[lines.length - 1];
        if (last && last.length + 1 + word.length > columns) lines.push(word);
        else lines[lines.length - 1] = last ? `${last} ${word}` : word;
      }
      return lines.join('<br>');
    })
    .join('<br>');
}
