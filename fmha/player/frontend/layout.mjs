// Where everything goes, in CSS pixels. Pure: size and data in, rectangles out; also what lies under a pointer.

const rect = (x, y, w, h) => ({ x, y, w: Math.max(0, w), h: Math.max(0, h) });

/** Height the canvas wants at a given width. */
export function wantedHeight(width, sms, race) {
  if (width < 720) return race ? 792 : 1042;
  return Math.round(Math.min(900, Math.max(574, width * (race ? 0.51 : 0.56))) + Math.max(0, rowsShown(sms) - 16));
}

function rowsShown(sms) {
  return Math.min(64, sms);
}

/** Rectangles of the tiles view: {s: font scale, meters, hbm, l2, focus, benches[], ghost, code, timeline, ...}. */
export function layout(width, height, { meta }) {
  return width < 720 ? narrow(width, height, meta) : wide(width, height, meta);
}

function wide(W, H, meta) {
  const s = Math.min(1.8, Math.max(0.85, Math.min(W / 1130, H / 600))), gap = 12 * s;
  const meters = rect(2, 0, W - 4, 56 * s);
  const rows = rowsShown(meta.sms), timelineH = Math.min(H * 0.28, 40 * s + Math.max(44 * s, rows * Math.max(3, 5.2 * s)));
  const top = meters.h + gap * 0.6, bottom = H - timelineH - gap;
  const hbm = rect(1, top, W * 0.17, bottom - top), l2 = rect(hbm.w + gap, top, 62 * s, bottom - top);
  const smX = l2.x + l2.w + gap, rightW = W * 0.25, smW = W - smX - rightW - gap;
  const grid = benchGrid(meta.sms, smW, s), focusH = bottom - top - (grid.h ? grid.h + gap * 0.7 : 0);
  const focus = rect(smX, top, smW, focusH), right = smX + smW + gap;
  const side = Math.min(rightW - 26 * s, (bottom - top) * 0.52);
  const ghost = rect(right, top, rightW, side + 74 * s), codeY = ghost.y + ghost.h + gap * 0.5;
  return finish({
    s, W, H, isNarrow: false, meters, hbm, l2, focus, ghost,
    code: rect(right, codeY, rightW, bottom - codeY),
    benches: benches(meta.sms, rect(smX, top + focusH + gap * 0.7, smW, grid.h), grid),
    timeline: rect(0, H - timelineH, W, timelineH),
  }, meta);
}

function narrow(W, H, meta) {
  const s = 0.92, gap = 8;
  const meters = rect(0, 0, W, 94), hbm = rect(0, 102, W * 0.42, 250), l2 = rect(W * 0.42 + 6, 102, 52, 250);
  const ghost = rect(W * 0.42 + 66, 102, W * 0.58 - 66, 250);
  const grid = benchGrid(meta.sms, W, s), timelineH = 122;
  const code = rect(0, 360, W, 30), benchY = H - timelineH - gap - grid.h;
  const focus = rect(0, 398, W, benchY - gap - 398);
  return finish({
    s, W, H, isNarrow: true, meters, hbm, l2, focus, ghost, code,
    benches: benches(meta.sms, rect(0, benchY, W, grid.h), grid), timeline: rect(0, H - timelineH, W, timelineH),
  }, meta);
}

/** Columns and height of the row(s) of small benches. One SM needs none. */
function benchGrid(sms, width, s) {
  if (sms <= 1) return { rows: 0, cols: 0, h: 0 };
  const perRow = Math.max(4, Math.floor(width / (64 * s)));
  const rows = sms <= perRow ? 1 : sms <= 2 * perRow ? 2 : sms <= 40 ? 3 : 4;
  return { rows, cols: Math.ceil(sms / rows), h: (rows === 1 ? 82 : rows === 2 ? 104 : 124) * s };
}

function benches(sms, area, { rows, cols }) {
  const out = [];
  if (!rows) return out;
  const gap = cols > 12 ? 3 : 6, w = (area.w - gap * (cols - 1)) / cols, h = (area.h - gap * (rows - 1)) / rows;
  for (let n = 0; n < sms; n++) out.push(rect(area.x + (n % cols) * (w + gap), area.y + Math.floor(n / cols) * (h + gap), w, h));
  return out;
}

/** Inner rectangles that drawing and hit testing share. */
function finish(L, meta) {
  const { s, hbm, ghost, timeline, focus } = L;
  L.shelves = {};
  const head = 44 * s, foot = 26 * s, columns = ["Q", "K", "V", "O"], cw = (hbm.w - 16 * s) / 4;
  columns.forEach((name, c) => {
    const tiles = name === "Q" || name === "O" ? meta.Tr : meta.Tc;
    const h = Math.min((hbm.h - head - foot) / tiles, 44 * s);
    L.shelves[name] = { x: hbm.x + 8 * s + c * cw, y: hbm.y + head, w: cw, h, tiles };
  });
  const g = 22 * s, available = Math.min(ghost.w - g - 4, ghost.h - 28 * s - 44 * s);
  // The matrix has its true shape, Nq x Nk; its tiles are as wide as Bc and as high as Br.
  const token = available / Math.max(meta.problem.Nq, meta.problem.Nk);
  const w = token * meta.problem.Nk, h = token * meta.problem.Nq;
  L.matrix = { x: ghost.x + g, y: ghost.y + 28 * s, w, h, cw: w / meta.Tc, ch: h / meta.Tr };
  const label = L.isNarrow ? 34 : 48 * s, axis = 34 * s; // a line for the legend, one for the waves
  L.track = rect(timeline.x + label, timeline.y + axis, timeline.w - label - 8 * s, timeline.h - axis - 4 * s);
  L.slots = slots(focus, s, meta, L.isNarrow);
  return L;
}

/** Shared-memory slots of the SM in focus: Qi, Kj, Vj to the left, Sij in the middle, bars and O to the right. */
function slots(f, s, meta, isNarrow) {
  const pad = 12 * s, top = f.y + 42 * s, bottom = f.y + f.h - 10 * s, height = bottom - top;
  const leftW = f.w * (isNarrow ? 0.2 : 0.19), midX = f.x + pad + leftW + pad;
  const cap = 19 * s, third = height / 3;
  const side = Math.min(f.w * (isNarrow ? 0.36 : 0.37), height * 0.75);
  const S = rect(midX, top + cap, side, Math.min(height * (isNarrow ? 0.46 : 0.56) - cap, side * Math.min(1.35, Math.max(0.55, meta.Br / meta.Bc))));
  const barsX = S.x + S.w + pad, bars = rect(barsX, S.y, f.x + f.w - pad - barsX, S.h);
  const oY = S.y + S.h + cap + 9 * s;
  const textW = f.x + f.w - pad - barsX;
  const O = rect(midX, oY, S.w, bottom - oY);
  const slot = (k) => rect(f.x + pad, top + k * third + cap, leftW, third - cap - 4 * s);
  if (isNarrow) { // the formulas get the width of two columns, below O
    const low = rect(O.x, O.y, O.w, height * 0.17), textY = low.y + low.h + 10;
    return { Q: slot(0), K: slot(1), V: slot(2), S, bars, O: low, text: rect(midX, textY, f.x + f.w - pad - midX, bottom - textY) };
  }
  return { Q: slot(0), K: slot(1), V: slot(2), S, bars, O, text: rect(barsX, S.y + S.h + 8 * s, textW, bottom - S.y - S.h - 8 * s) };
}

const inside = (r, x, y) => x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h;

/** What lies at (x, y): {kind, ...} or null. Kinds: time, bench, cell (ghost), shelf, score, row. */
export function hit(L, meta, x, y) {
  const grown = { x: L.track.x - 6, y: L.timeline.y, w: L.track.w + 12, h: L.timeline.h };
  if (inside(grown, x, y)) {
    const row = Math.floor(((y - L.track.y) / L.track.h) * meta.sms);
    return { kind: "time", fraction: Math.min(1, Math.max(0, (x - L.track.x) / L.track.w)),
      sm: row >= 0 && row < meta.sms ? row : -1 };
  }
  if (L.race) return null;
  const bench = L.benches.findIndex((r) => inside(r, x, y));
  if (bench >= 0) return { kind: "bench", sm: bench };
  if (inside(L.matrix, x, y)) {
    return { kind: "cell", i: Math.floor((y - L.matrix.y) / L.matrix.ch), j: Math.floor((x - L.matrix.x) / L.matrix.cw) };
  }
  for (const [name, shelf] of Object.entries(L.shelves)) {
    if (inside({ ...shelf, h: shelf.h * shelf.tiles }, x, y)) {
      return { kind: "shelf", name, tile: Math.min(shelf.tiles - 1, Math.floor((y - shelf.y) / shelf.h)) };
    }
  }
  const { S, bars } = L.slots;
  if (inside(S, x, y)) {
    return { kind: "score", row: Math.floor(((y - S.y) / S.h) * meta.Br), column: Math.floor(((x - S.x) / S.w) * meta.Bc) };
  }
  if (inside(bars, x, y)) return { kind: "row", row: Math.floor(((y - bars.y) / bars.h) * meta.Br) };
  return null;
}

/** The tile (or slot) rectangle from which, and to which, a tensor's tile travels. */
export function shelfTile(L, name, tile) {
  const shelf = L.shelves[name];
  return rect(shelf.x + 2, shelf.y + tile * shelf.h + 1, shelf.w - 4, Math.max(1, shelf.h - 2));
}
