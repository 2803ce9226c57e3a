// The SM in focus: what lies in its shared memory, with real numbers, and the formulas with the chosen row's numbers.
import { previousVisit } from "./frame.mjs";
import { WORD, levelMark, levelWord } from "./levels.mjs";
import { blit, bytes, hatch, number, panel, ramp, rgb, text } from "./paint.mjs";

export function drawFocus(g, L, data, frame, theme, pictures, ui) {
  const { focus: r, s, slots } = L, { meta } = data, f = frame.focus;
  panel(g, r, { fill: theme.panel, stroke: theme.colors.SMEM, width: 2 });
  const smem = meta.smem.reduce((sum, slot) => sum + slot.nbytes, 0), limit = meta.smem_limit;
  const who = f.event < 0 ? `SM ${ui.focus}: nothing to do` : `SM ${ui.focus} · ${headName(meta, f.h, ", ")}Q tile ${f.i}`;
  const visited = f.j >= 0 && f.busy ? ` · K/V tile ${f.j} of ${meta.Tc}${f.answer ? ` · ${WORD[f.answer]}` : ""}` : f.event >= 0 && !f.busy ? " · finished" : "";
  text(g, theme, who + visited, r.x + 12 * s, r.y + 15 * s, { size: 13.5 * s, bold: true, max: r.w * (L.isNarrow ? 0.6 : 0.64) });
  const room = `SMEM ${bytes(smem)} of ${bytes(limit)}`;
  text(g, theme, room, r.x + r.w - 12 * s, r.y + 15 * s, { size: 11 * s, align: "right", color: smem > limit ? theme.colors.warn : theme.muted, max: r.w * 0.36 });
  if (f.event < 0) return;
  for (const name of ["Q", "K", "V"]) operand(g, slots[name], name, data, f, theme, pictures, s);
  scores(g, slots.S, data, f, theme, pictures, ui, s);
  bars(g, slots.bars, data, f, theme, ui, s);
  accumulator(g, slots.O, data, f, theme, pictures, ui, s);
  formulas(g, slots.text, data, f, theme, ui, s, L.isNarrow);
}

/** "head 3, " where there are several heads, or one of a model; else nothing. */
export function headName(meta, h, after) {
  return meta.heads ? `head ${meta.heads[h]}${after}` : meta.problem.H > 1 ? `head ${h}${after}` : "";
}

const rowsOf = (meta, i) => Math.min(meta.Br, meta.problem.Nq - i * meta.Br);
const keysOf = (meta, j) => Math.min(meta.Bc, meta.problem.Nk - j * meta.Bc);

function caption(g, theme, r, words, color, s) {
  text(g, theme, words, r.x, r.y - 9 * s, { size: 11.5 * s, mono: true, bold: true, color, max: r.w + 6 * s, fit: true });
}

/** Qi, Kj or Vj: the first columns of its rows. Empty until the load is over. */
function operand(g, r, name, data, f, theme, pictures, s) {
  const { meta, a } = data, slot = f.resident[name], color = theme.colors[name];
  const short = name === "Q" ? "Qi" : `${name}j`, d = meta.problem.d;
  const columns = a[`${name}8`].shape[2], height = name === "Q" ? meta.Br : meta.Bc;
  caption(g, theme, slot ? { ...r, w: r.w - 16 * s } : r, `${short} ${height}×${d}`, color, s);
  if (slot?.answer) levelMark(g, theme, slot.answer, r.x + r.w - 4 * s, r.y - 9 * s, 9 * s); // where it came from
  const box = { ...r, h: Math.min(r.h, Math.max(r.w * 0.9 * (height / columns), 12)) };
  const isLoading = slot && slot.p < 1;
  panel(g, box, { stroke: isLoading ? theme.colors[slot.answer] : color, width: isLoading ? 2 : 1, radius: 3, dash: slot && !isLoading ? undefined : [3, 3] });
  if (isLoading && box.h > 16 * s) levelWord(g, theme, slot.answer, box.x + 6 * s, box.y + box.h / 2, Math.min(12 * s, box.w * 0.15), { color: theme.text, max: box.w - 24 * s });
  if (!slot || isLoading) return;
  const count = name === "Q" ? rowsOf(meta, slot.tile) : keysOf(meta, slot.tile);
  const N = a[`${name}8`].shape[1];
  const picture = pictures.pixels(`slot${name}`, `${data.id}|${f.h}|${slot.tile}|${theme.name}`, columns, height, (out) => {
    const lut = ramp(theme.panel, color), base = (f.h * N + slot.tile * height) * columns;
    for (let k = 0; k < height * columns; k++) out[k] = k < count * columns ? lut[a[`${name}8`][base + k]] : 0;
  });
  blit(g, picture, box, height, columns, theme.panel);
  // a running product lights up its operands
  if ((f.code === "S" && name !== "V") || (f.code.startsWith("O") && name === "V")) panel(g, box, { stroke: theme.text, width: 2, radius: 3 });
}

/** Sij: scores while they are scores, weights from "P = exp(S - m_new)" on. */
function scores(g, r, data, f, theme, pictures, ui, s) {
  const { meta, a } = data, { Br, Bc } = meta, color = theme.colors.S;
  const slot = f.resident.S, isWeight = f.code === "P" || f.code.startsWith("O") || (f.visit < 0 && slot);
  const name = !slot || !isWeight ? "Sij = Qi Kjᵀ scale" : "Pij = exp(Sij − m_new)";
  caption(g, theme, r, name, color, s);
  panel(g, r, { stroke: color, radius: 3, dash: f.visit >= 0 ? undefined : [3, 3] });
  if (!slot || slot.i !== f.i) return; // the scores of another Q tile (kv-outer) are no longer of interest
  const stale = f.visit < 0, j = slot.tile, rows = rowsOf(meta, f.i), keys = keysOf(meta, j);
  g.globalAlpha = stale ? 0.35 : 1;
  if (f.exact < 0) {
    const [pr, pc] = meta.picture, base = ((f.h * meta.Tr + f.i) * meta.Tc + j) * pr * pc;
    const picture = pictures.pixels("Spooled", `${data.id}|${base}|${theme.name}`, pc, pr, (out) => {
      const lut = ramp(theme.panel, color);
      for (let k = 0; k < pr * pc; k++) out[k] = a.S8[base + k] ? lut[a.S8[base + k]] : 0;
    });
    blit(g, picture, r, pr, pc, theme.panel);
  } else {
    const values = isWeight ? a.xP : a.xS, base = (f.exact * meta.Tc + j) * Br * Bc;
    const low = isWeight ? 0 : meta.S_low, span = isWeight ? 1 : meta.S_high - meta.S_low || 1;
    // scores appear row by row while they are computed
    const shown = f.code === "S" && !stale ? Math.ceil(f.p * rows) : rows;
    const picture = pictures.pixels("S", `${data.id}|${base}|${isWeight}|${shown}|${theme.name}`, Bc, Br, (out) => {
      const lut = ramp(theme.panel, color);
      for (let k = 0; k < Br * Bc; k++) {
        const v = values[base + k], c = k % Bc, row = Math.floor(k / Bc);
        out[k] = row < shown && c < keys && Number.isFinite(v) ? lut[Math.round(Math.max(0, Math.min(1, (v - low) / span)) * 255)] : 0;
      }
    });
    blit(g, picture, r, Br, Bc, theme.panel);
    cellNumbers(g, r, { values, base, Br, Bc, rows: shown, keys, low, span, isWeight, S: a.xS }, theme, s);
  }
  g.globalAlpha = 1;
  const row = Math.min(ui.row, rows - 1), ch = r.h / Br;
  if (!stale) panel(g, { x: r.x - 1, y: r.y + row * ch - 1, w: r.w + 2, h: ch + 2 }, { stroke: theme.text, width: 2, radius: 3 });
}

function cellNumbers(g, r, { values, base, Br, Bc, rows, keys, low, span, isWeight, S }, theme, s) {
  const cw = r.w / Bc, ch = r.h / Br, size = Math.min(12.5 * s, cw * 0.36, ch * 0.62);
  for (let k = 0; k < Br; k++) for (let c = 0; c < Bc; c++) {
    const box = { x: r.x + c * cw, y: r.y + k * ch, w: cw, h: ch };
    if (k < rows && c < keys && S[base + k * Bc + c] === -Infinity) {
      if (Math.min(cw, ch) > 4) hatch(g, box, theme.muted, 5);
      continue;
    }
    if (size < 7.5 || k >= rows || c >= keys) continue;
    const v = values[base + k * Bc + c], u = (v - low) / span;
    text(g, theme, inCell(v, isWeight ? 2 : 1), box.x + cw / 2, box.y + ch / 2 + 0.5, { size, align: "center", mono: true, color: u > 0.55 ? theme.onColor : theme.text });
  }
}

/** A number that must fit into a cell: never in powers of ten, and without a sign on zero. */
function inCell(v, digits) {
  return (Math.abs(v) < 0.5 * 10 ** -digits ? 0 : v).toFixed(digits).replace("-", "−");
}

/** The rows' m, l and alpha at this instant: what they were, what they become, and how far the phase is. */
export function rowState(data, f, row) {
  const { meta, a } = data, at = (j) => (f.exact * meta.Tc + j) * meta.Br + row;
  const before = f.last >= 0 ? { m: a.xm[at(f.last)], l: a.xl[at(f.last)] } : { m: -Infinity, l: 0 };
  if (f.visit < 0) return { ...before, alpha: f.last >= 0 ? a.xa[at(f.last)] : NaN, mOld: before.m, lOld: before.l, isNew: false };
  const next = { m: a.xm[at(f.visit)], l: a.xl[at(f.visit)], alpha: a.xa[at(f.visit)] };
  const code = f.code, rescaled = before.l * next.alpha, p = share(f);
  const m = code === "S" ? before.m : next.m;
  // during "P" l first shrinks by alpha, then grows by the row sum of P
  const l = code === "S" || code === "m" ? before.l : code !== "P" ? next.l : p < 0.5 ? lerp(before.l, rescaled, p * 2) : lerp(rescaled, next.l, p * 2 - 1);
  return { m, l, alpha: code === "S" ? NaN : next.alpha, mOld: before.m, lOld: before.l, next, isNew: next.m > before.m && code !== "S" };
}

const lerp = (x, y, u) => x + (y - x) * u;

/** How far a change within a phase has come; complete a little before the phase ends, where stepping stops. */
const share = (f) => Math.min(1, f.p / 0.98);

function bars(g, r, data, f, theme, ui, s) {
  const { meta } = data, rows = rowsOf(meta, f.i), h = r.h / meta.Br, columns = ["m", "l", "alpha"];
  const cw = r.w / 3, size = Math.min(12 * s, h * 0.56, cw * 0.2), withNumbers = size >= 7;
  columns.forEach((name, c) => text(g, theme, name, r.x + c * cw, r.y - 9 * s, { size: 12 * s, bold: true, mono: true, color: theme.colors[name] }));
  if (f.exact < 0) {
    text(g, theme, meta.alone ? "numbers not in this file" : "numbers follow …", r.x, r.y + 14 * s, { size: 11 * s, color: theme.muted, max: r.w });
    return;
  }
  const low = Math.min(0, meta.S_low), high = Math.max(meta.S_high, low + 1e-9);
  for (let row = 0; row < rows; row++) {
    const st = rowState(data, f, row), y = r.y + row * h, chosen = row === Math.min(ui.row, rows - 1);
    if (chosen) panel(g, { x: r.x - 4 * s, y, w: r.w + 6 * s, h }, { fill: theme.mark, radius: 3 });
    const unit = [Number.isFinite(st.m) ? 0.04 + (0.96 * (st.m - low)) / (high - low) : 0, st.l / meta.l_high, st.alpha];
    columns.forEach((name, c) => {
      const x = r.x + c * cw, barY = withNumbers ? y + h * 0.64 : y + h * 0.15, barH = Math.max(1.5, h * (withNumbers ? 0.27 : 0.7)), w = cw - 8 * s;
      if (withNumbers) {
        const words = name === "m" ? number(st.m) + (st.isNew ? " ▲" : "") : name === "l" ? number(st.l) : Number.isNaN(st.alpha) ? "–" : number(st.alpha, 3);
        text(g, theme, words, x, y + h * 0.33, { size, mono: true, color: name === "alpha" && st.alpha < 1 ? theme.colors.alpha : theme.text, bold: chosen || (name === "m" && st.isNew), max: cw - 2 });
      }
      panel(g, { x, y: barY, w, h: barH }, { fill: theme.well, radius: 2 });
      const u = Math.max(0, Math.min(1, unit[c] || 0));
      if (u > 0) panel(g, { x, y: barY, w: Math.max(1.5, w * u), h: barH }, { fill: theme.colors[name], radius: 2 });
    });
  }
}

/** Oi after this instant: rescaled by alpha first, then P Vj is added; divided by l at the end. */
function accumulator(g, r, data, f, theme, pictures, ui, s) {
  const { meta, a } = data, color = theme.colors.O, rows = rowsOf(meta, f.i), normalizedKept = meta.order === "kv-outer";
  const isFinal = f.code === "normalize" || (f.code.startsWith("store_") && !normalizedKept) || (!f.busy && f.event >= 0 && !normalizedKept);
  const row = Math.min(ui.row, rows - 1);
  const factor = f.exact >= 0 && f.visit >= 0 ? rowFactor(data, f, row) : 1;
  const note = isFinal ? "divided by l" : f.code.startsWith("O") && factor < 1 ? `row ${f.i * meta.Br + row} × ${number(factor, 3)}` : `${meta.Br}×${meta.problem.d}`;
  caption(g, theme, r, `Oi ${note}`, color, s);
  panel(g, r, { stroke: color, radius: 3 });
  if (f.exact < 0) return;
  const columns = a.xF.shape[2], size = meta.Br * columns, plane = (j) => (f.exact * meta.Tc + j) * size;
  const scale = scaleOfO(data, f.exact);
  const valueAt = (k) => {
    const old = f.last >= 0 ? a.xO[plane(f.last) + k] : 0;
    if (isFinal) return a.xF[f.exact * size + k] * scale.final;
    if (f.code !== "O" && f.code !== "O_norm") return old * scale.running;
    const shrunk = old * rowFactor(data, f, Math.floor(k / columns)), next = a.xO[plane(f.visit) + k];
    const p = share(f);
    return (p < 0.5 ? lerp(old, shrunk, p * 2) : lerp(shrunk, next, p * 2 - 1)) * scale.running;
  };
  const stage = f.code.startsWith("O") ? Math.round(share(f) * 24) : 0;
  const key = `${data.id}|${f.exact}|${f.last}|${f.visit}|${f.code.startsWith("O")}|${isFinal}|${stage}|${theme.name}`;
  const picture = pictures.pixels("O", key, columns, meta.Br, (out) => {
    const lut = ramp(theme.panel, color), ground = rgb(theme.panel), empty = 0xff000000 | (ground[2] << 16) | (ground[1] << 8) | ground[0];
    for (let k = 0; k < size; k++) {
      const v = Math.floor(k / columns) < rows ? Math.abs(valueAt(k)) : 0;
      out[k] = v > 0 ? lut[Math.round(Math.min(1, v) * 255)] : empty;
    }
  });
  blit(g, picture, r, meta.Br, columns, theme.panel);
}

/** What the old O of a row is multiplied with: alpha, or alpha l / l_new where O is kept normalised (kv-outer). */
function rowFactor({ meta, a }, f, row) {
  const at = (j) => (f.exact * meta.Tc + j) * meta.Br + row, alpha = a.xa[at(f.visit)];
  if (meta.order !== "kv-outer") return alpha;
  const old = f.last >= 0 ? a.xl[at(f.last)] : 0, next = a.xl[at(f.visit)];
  return next > 0 ? (alpha * old) / next : 1;
}

/** Factors that bring the largest |O| of this Q tile to 1, for the accumulator and for the final rows. */
function scaleOfO(data, exact) {
  data.scaleO ??= new Map();
  if (!data.scaleO.has(exact)) {
    const largest = (array) => {
      const size = array.length / data.meta.exact.length;
      let most = 1e-30;
      for (let k = exact * size; k < (exact + 1) * size; k++) if (Math.abs(array[k]) > most) most = Math.abs(array[k]);
      return 1 / most;
    };
    data.scaleO.set(exact, { running: largest(data.a.xO), final: largest(data.a.xF) });
  }
  return data.scaleO.get(exact);
}

/** Formula lines for one row at this instant: [{text, phases}], with the row's real numbers. */
export function formulaLines(data, f, ui) {
  const { meta, a } = data;
  if (f.event < 0 || f.exact < 0 || f.i < 0) return [];
  const row = Math.min(ui.row, rowsOf(meta, f.i) - 1), R = f.i * meta.Br + row;
  const word = meta.tokens ? ` "${meta.tokens[R]}"` : "";
  const j = f.visit >= 0 ? f.visit : f.last;
  const lines = [{ text: `row ${R}${word}`, phases: [], isTitle: true }];
  if (j < 0) return [...lines, { text: "m = −∞, l = 0, O = 0", phases: ["load_Q", "init_O", "init_l", "init_m"] }];
  const at = (f.exact * meta.Tc + j) * meta.Br + row, column = Math.min(ui.column, keysOf(meta, j) - 1);
  const S = a.xS[((f.exact * meta.Tc + j) * meta.Br + row) * meta.Bc + column];
  const before = previousVisit(data, { h: f.h, i: f.i, j }), mOld = before >= 0 ? a.xm[(f.exact * meta.Tc + before) * meta.Br + row] : -Infinity;
  const lOld = before >= 0 ? a.xl[(f.exact * meta.Tc + before) * meta.Br + row] : 0;
  const key = j * meta.Bc + column, keyWord = meta.tokens ? ` "${meta.tokens[key]}"` : "";
  const n = number, alpha = a.xa[at], m = a.xm[at], l = a.xl[at];
  const columns = a.xF.shape[2], cell = (plane) => a.xO[((f.exact * meta.Tc + plane) * meta.Br + row) * columns];
  const oOld = before >= 0 ? cell(before) : 0, isKvOuter = meta.order === "kv-outer";
  const scale = meta.problem.scale, name = `S[${R},${key}${keyWord}]`;
  lines.push({ text: S === -Infinity ? `${name} = −∞ (masked)` : `${name} = ${n(scale, 3)}·${n(S / scale)} = ${n(S)}`, phases: ["S"] });
  lines.push({ text: `m_new = max(${n(mOld, 3)}, ${n(a.x_rowmax[at], 3)}) = ${n(m, 3)}`, phases: ["m"] });
  const exponent = `${n(mOld, 3)} − ${n(m, 3)}`;
  lines.push({ text: m === -Infinity ? "alpha = 1 (no key seen yet)" : mOld === -Infinity ? "alpha = exp(−∞) = 0 (first keys)" : `alpha = exp(${exponent}) = ${n(alpha, 3)}`, phases: ["m"] });
  lines.push({ text: `l = ${n(alpha, 3)}·${n(lOld)} + ${n(a.x_rowsum[at])} = ${n(l)}`, phases: ["P"] });
  if (isKvOuter) {
    lines.push({ text: `O[0] = (${n(alpha, 3)}·${n(lOld)}·${n(oOld)}`, phases: ["O_norm"] });
    lines.push({ text: `  + ${n(a.x_pv[at])}) / ${n(l)} = ${n(cell(j))}`, phases: ["O_norm"] });
  } else {
    lines.push({ text: `O[0] = ${n(alpha, 3)}·${n(oOld)} + ${n(a.x_pv[at])} = ${n(cell(j))}`, phases: ["O"] });
  }
  if (!isKvOuter && (f.code === "normalize" || f.code.startsWith("store_") || !f.busy)) {
    lines.push({ text: l > 0 ? `O[0] / l = ${n(cell(j))} / ${n(l)} = ${n(a.xF[(f.exact * meta.Br + row) * columns], 3)}` : "no key seen: O = 0", phases: ["normalize"] });
  }
  return f.visit < 0 ? lines : lines.filter((line) => line.isTitle || RANK[line.phases[0]] <= RANK[f.code]);
}

const RANK = { S: 0, m: 1, P: 2, O: 3, O_norm: 3 }; // within a visit only what has been computed is written

function formulas(g, r, data, f, theme, ui, s, isNarrow) {
  const lines = formulaLines(data, f, ui), step = Math.min(18 * s, r.h / Math.max(7, lines.length)), size = Math.min(isNarrow ? 10.5 : 12 * s, step * 0.74);
  lines.forEach((line, n) => {
    const y = r.y + (n + 0.5) * step, active = f.busy && line.phases.includes(f.code);
    if (active) panel(g, { x: r.x - 5 * s, y: y - step / 2 + 0.5, w: r.w + 9 * s, h: step - 1 }, { fill: theme.mark, radius: 3 });
    text(g, theme, line.text, r.x, y, { size, mono: !line.isTitle, bold: active || line.isTitle, color: active || line.isTitle ? theme.text : theme.muted, max: r.w + 4, fit: true });
  });
}
