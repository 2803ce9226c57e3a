// The numbers of a figure as CSV, as `fmha.export.figure_csv` writes them. Pure, no DOM: tested against it.

const EXTRA = ['z', 'error_x', 'error_y', 'base', 'text'];
const ARRAYS = {
  f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, i2: Int16Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array,
};

/** One row for each point or cell of each trace of {data, layout}, with a heading. */
export function figureCsv({ data, layout }) {
  const traces = data.map((trace) => ({ trace, points: pointsOf(trace) })).filter(({ points }) => points.length);
  const used = EXTRA.filter((name) => traces.some(({ points }) => points.some((point) => cell(point[name]))));
  let [x, y] = ['x', 'y'].map((axis) => heading(axis, traces, layout));
  if (x === y) [x, y] = ['x', 'y'];
  const names = layout.meta?.z; // of a heat map whose values stand for words
  const rows = [['series', x, y, ...used]];
  for (const { trace, points } of traces) {
    const name = plain(trace.name ?? '');
    for (const point of points) {
      const shown = names && 'z' in point ? { ...point, z: names[point.z] } : point;
      rows.push([name, ...['x', 'y', ...used].map((column) => cell(shown[column]))]);
    }
  }
  return rows.map((row) => row.map(quoted).join(',') + '\n').join('');
}

function pointsOf(trace) {
  const z = grid(trace.z);
  const xs = list(trace.x);
  const ys = list(trace.y);
  const points = [];
  if (z) {
    const words = grid(trace.text);
    z.forEach((row, r) =>
      row.forEach((value, c) => {
        const point = { x: at(trace, 'x', xs, c), y: at(trace, 'y', ys, r), z: value };
        if (words) point.text = words[r][c];
        points.push(point);
      }),
    );
    return points.filter((point) => cell(point.z));
  }
  const columns = { x: xs, y: ys, base: list(trace.base), text: list(trace.text) };
  for (const name of ['error_x', 'error_y']) columns[name] = list(trace[name]?.array);
  for (let k = 0; k < Math.max(xs?.length ?? 0, ys?.length ?? 0); k++) {
    const point = { x: xs ? null : k, y: ys ? null : k };
    for (const [name, column] of Object.entries(columns)) if (column && k < column.length) point[name] = column[k];
    points.push(point);
  }
  return points.filter((point) => cell(point.x) && cell(point.y));
}

/** The place of column or row k of a heat map: listed, evenly spaced, or its number. */
function at(trace, axis, places, k) {
  if (places && k < places.length) return places[k];
  return (trace[`${axis}0`] ?? 0) + k * (trace[`d${axis}`] || 1);
}

/** A column of numbers or words; null where there is none. */
function list(value) {
  const found = decoded(value);
  if (!Array.isArray(found)) return null;
  if (found.length === 2 && found.every(Array.isArray)) {
    return found[0].slice(0, found[1].length).map((a, k) => `${cell(a)} / ${cell(found[1][k])}`); // two levels of names
  }
  return found;
}

function grid(value) {
  const found = decoded(value);
  return Array.isArray(found) && Array.isArray(found[0]) ? found : null;
}

/** Lists, also from Plotly's form for arrays: {dtype, bdata (base64), shape}. */
function decoded(value) {
  if (value?.bdata !== undefined) {
    const bytes = Uint8Array.from(atob(value.bdata), (c) => c.charCodeAt(0));
    const flat = Array.from(new ARRAYS[value.dtype](bytes.buffer));
    const [rows, columns] = String(value.shape ?? '').split(',').map(Number);
    if (!columns) return flat;
    return Array.from({ length: rows }, (_, r) => flat.slice(r * columns, (r + 1) * columns));
  }
  if (Array.isArray(value)) return value.map((item) => (item?.bdata === undefined ? item : decoded(item)));
  return value;
}

/** The title that all traces' axes have in common, else the axis' letter. */
function heading(axis, traces, layout) {
  const titles = new Set();
  for (const { trace } of traces) {
    const title = layout[`${axis}axis${(trace[`${axis}axis`] || axis).slice(1)}`]?.title ?? '';
    titles.add(plain(typeof title === 'string' ? title : (title.text ?? '')));
  }
  const [only] = titles;
  return titles.size === 1 && only ? only : axis;
}

/** Text without tags, on one line. */
function plain(text) {
  const bare = String(text).replace(/<[^>]*>/g, ' ').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
  return bare.replace(/[ \t\r\n]+/g, ' ').replace(/^ +| +$/g, '');
}

/** A number in the shortest form that gives it back, written as Python does. */
function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'number') return plain(value);
  if (!Number.isFinite(value)) return '';
  const size = Math.abs(value);
  if (size && (size >= 1e16 || size < 1e-4)) return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  return String(value);
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
