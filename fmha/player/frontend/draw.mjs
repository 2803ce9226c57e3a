// The tiles view: meters, HBM shelf, L2, the SM in focus, the other benches, the ghost matrix, the pseudocode.
// Draws a frame (frame.mjs) into a canvas context; keeps nothing but off-screen pictures of what it drew before.
import { nbytesOf } from "./decode.mjs";
import { drawFocus, headName } from "./draw_focus.mjs";
import { drawL2 } from "./draw_l2.mjs";
import { drawTimeline } from "./draw_timeline.mjs";
import { drawTravel } from "./draw_travel.mjs";
import { shelfTile } from "./layout.mjs";
import { WORD, levelMark, levelWord } from "./levels.mjs";
import { bytes, hatch, mix, pack, panel, ramp, text } from "./paint.mjs";

/** One picture. `pictures` is the cache; the result does not depend on what is in it. */
export function draw(g, L, data, frame, theme, pictures, ui) {
  g.fillStyle = theme.bg;
  g.fillRect(0, 0, L.W, L.H);
  drawMeters(g, L, data, frame, theme);
  drawHbm(g, L, data, frame, theme, pictures);
  drawL2(g, L, data, frame, theme);
  drawGhost(g, L, data, frame, theme, pictures, ui);
  drawBenches(g, L, data, frame, theme, pictures, ui);
  drawFocus(g, L, data, frame, theme, pictures, ui);
  drawCode(g, L, data, frame, theme);
  drawTimeline(g, L.track, L, data, data.flash, "flash", frame, theme, pictures, ui);
  drawTravel(g, L, data, frame, theme);
}

/** Both byte meters on one scale, where each ends, and what that means in words. */
export function drawMeters(g, L, data, frame, theme) {
  const { meta } = data, { s, meters: r } = L, most = Math.max(meta.total.flash, meta.total.naive);
  const labelW = L.isNarrow ? 62 : 118 * s, valueW = L.isNarrow ? 78 : 222 * s, wordsW = L.isNarrow ? 0 : r.w * 0.31;
  const x = r.x + labelW, w = r.w - labelW - valueW - wordsW, h = 15 * s;
  const name = meta.order;
  const title = "Requested from beyond the SM";
  text(g, theme, title, r.x, r.y + 7 * s, { size: 11.5 * s, color: theme.muted });
  if (!L.isNarrow) levelWord(g, theme, "HBM", r.x + g.measureText(title).width + 14 * s, r.y + 7 * s, 11.5 * s, { word: "of these from HBM, where L2 did not hold them" });
  const { read } = frame.meters;
  const rows = [["naive", "naive", frame.meters.naive, meta.total.naive, read.naive.hbm], [L.isNarrow ? "flash" : `flash, ${name}`, name, frame.meters.flash, meta.total.flash, read.flash.hbm]];
  rows.forEach(([label, role, now, total, hbm], k) => {
    const y = r.y + (18 + 20 * k) * s;
    text(g, theme, label, r.x, y + h / 2, { size: 12.5 * s, bold: true });
    panel(g, { x, y, w, h }, { fill: theme.well, radius: 4 });
    panel(g, { x, y, w: (w * now) / most, h }, { fill: theme.colors[role], radius: 4 });
    if (role === "naive") hatch(g, { x, y, w: (w * now) / most, h }, theme.bg, 7);
    const part = { x, y: y + h * 0.6, w: (w * hbm) / most, h: h * 0.4 };
    g.fillStyle = theme.bg;
    if (hbm) g.fillRect(part.x, part.y - 1, part.w + 1, part.h + 1);
    g.fillStyle = theme.colors.HBM;
    g.fillRect(part.x, part.y, part.w, part.h);
    if (hbm) levelMark(g, theme, "HBM", part.x + part.w, part.y + part.h / 2, 8 * s);
    g.fillStyle = theme.text;
    g.fillRect(x + (w * total) / most - 1, y - 2 * s, 2, h + 4 * s);
    text(g, theme, bytes(now), x + w + 8 * s, y + h / 2, { size: 12.5 * s, bold: true, mono: true });
    if (!L.isNarrow) levelWord(g, theme, "HBM", x + w + 92 * s, y + h / 2, 12 * s, { word: `${bytes(hbm)} from HBM`, color: theme.text });
  });
  const ratio = meta.total.naive / meta.total.flash;
  const words = ratio >= 1.005 ? `flash requests ${ratioText(ratio)} less` : ratio > 0.995 ? "both request the same" : `here flash requests ${ratioText(1 / ratio)} more`;
  const ends = `one clock; in the end naive ${bytes(meta.total.naive)}, flash ${bytes(meta.total.flash)}, floor ${bytes(meta.total.floor)}`;
  if (L.isNarrow) {
    text(g, theme, `${words} in the end`, r.x, r.y + 66, { size: 12, bold: true, max: r.w });
    levelWord(g, theme, "HBM", r.x, r.y + 83, 11.5, { word: `from HBM: naive ${bytes(read.naive.hbm)}, flash ${bytes(read.flash.hbm)}`, max: r.w - 20, color: theme.text });
  } else {
    text(g, theme, words, r.x + r.w - wordsW + 14 * s, r.y + 25 * s, { size: 17 * s, bold: true, max: wordsW - 14 * s });
    text(g, theme, ends, r.x + r.w - wordsW + 14 * s, r.y + 46 * s, { size: 11.5 * s, color: theme.muted, max: wordsW - 14 * s });
  }
}

function ratioText(ratio) {
  return `${ratio >= 9.95 ? ratio.toFixed(0) : ratio.toFixed(1)}×`;
}

function drawHbm(g, L, data, frame, theme, pictures) {
  const { hbm: r, s } = L, { meta } = data, head = frame.focus.h;
  panel(g, r, { fill: theme.panel, stroke: theme.colors.HBM, width: 1.5 });
  text(g, theme, "HBM", r.x + 10 * s, r.y + 14 * s, { size: 13 * s, bold: true });
  const title = headName(meta, head, "") || "Q K V O";
  text(g, theme, title, r.x + r.w - 10 * s, r.y + 14 * s, { size: 11 * s, color: theme.muted, align: "right" });
  const stored = Array.from({ length: meta.Tr }, (_, i) => data.visits.storedAt[head * meta.Tr + i] <= frame.t);
  const key = `${data.id}|${head}|${theme.name}|${L.W}x${L.H}|${stored.map(Number).join("")}`, ratio = L.pixels;
  const shelves = pictures.layer("shelves", key, Math.round(r.w * ratio), Math.round(r.h * ratio), (p) => {
    p.setTransform(ratio, 0, 0, ratio, -r.x * ratio, -r.y * ratio);
    p.clearRect(r.x, r.y, r.w, r.h);
    drawShelves(p, L, stored, theme);
  });
  g.imageSmoothingEnabled = true;
  g.drawImage(shelves, r.x, r.y, r.w, r.h);
  outlineInUse(g, L, frame, theme);
  const moving = frame.focus.phase && (frame.focus.phase.load || frame.focus.phase.store) && frame.focus.busy ? frame.focus : null;
  const words = moving ? `${moving.phase.maths.replace(/([QKVO])i/, `$1${moving.i}`).replace(/([KV])j/, `$1${moving.j}`)}: ${bytes(nbytesOf(data.flash, moving.event))}${moving.answer ? `, ${WORD[moving.answer]}` : ""}` : "";
  text(g, theme, words, r.x + 10 * s, r.y + r.h - 12 * s, { size: 11 * s, max: r.w - 20 * s });
}

function drawShelves(g, L, isStored, theme) {
  const { hbm: r, s } = L;
  for (const [name, shelf] of Object.entries(L.shelves)) {
    text(g, theme, name, shelf.x + shelf.w / 2, r.y + 33 * s, { size: 13 * s, bold: true, align: "center", color: theme.colors[name] });
    for (let tile = 0; tile < shelf.tiles; tile++) {
      const box = shelfTile(L, name, tile);
      const stored = name !== "O" || isStored[tile];
      panel(g, box, { fill: stored ? mix(theme.panel, theme.colors[name], 0.78) : theme.panel, stroke: theme.colors[name], radius: box.h < 8 ? 1 : 4, width: box.h < 4 ? 0.5 : 1 });
      if (box.h >= 11 * s) {
        text(g, theme, name + tile, box.x + box.w / 2, box.y + box.h / 2 + 0.5, { size: Math.min(11.5 * s, box.h * 0.8), align: "center", color: stored ? theme.onColor : theme.text });
      }
    }
  }
}

/** Mark the tiles of Q, K, V that the worker in focus holds. */
function outlineInUse(g, L, frame, theme) {
  for (const name of ["Q", "K", "V"]) {
    const slot = frame.focus.resident[name];
    if (slot && slot.tile < L.shelves[name].tiles) panel(g, shelfTile(L, name, slot.tile), { stroke: theme.text, width: 2, radius: 4 });
  }
}

/** The N x N matrix that is never stored: which tiles are done, current, skipped by the mask. */
function drawGhost(g, L, data, frame, theme, pictures, ui) {
  const { ghost: r, matrix: m, s } = L, { meta, a } = data, H = frame.focus.h;
  const title = `S and P: ${meta.problem.Nq} × ${meta.problem.Nk}, never stored`;
  text(g, theme, title, r.x, r.y + 10 * s, { size: 12.5 * s, bold: true, max: r.w, fit: true });
  const stride = meta.Tr * meta.Tc, w = Math.max(1, Math.round(m.w)), h = Math.max(1, Math.round(m.h));
  const canvas = pictures.layer("ghost", `${data.id}|${H}|${w}x${h}|${theme.name}|${frame.doneVisits}`, w, h, (p, entry) => {
    // Only what has been finished since the last picture is painted, unless time ran backwards or the data changed.
    const base = `${data.id}|${H}|${theme.name}`;
    if (entry.base !== base || entry.count > frame.doneVisits) {
      entry.base = base;
      entry.count = 0;
      p.clearRect(0, 0, w, h);
      for (let tile = 0; tile < stride; tile++) ghostCell(p, tile, meta, w, h, a.kinds[tile], false, theme);
    }
    for (let k = entry.count; k < frame.doneVisits; k++) {
      const tile = data.visits.order[k];
      if (Math.floor(tile / stride) === H) ghostCell(p, tile % stride, meta, w, h, a.kinds[tile % stride], true, theme);
    }
    entry.count = frame.doneVisits;
  });
  g.imageSmoothingEnabled = false;
  g.drawImage(canvas, m.x, m.y, m.w, m.h);
  for (const sm of frame.sms) {
    if (!sm.busy || sm.h !== H || sm.j < 0 || sm.i < 0) continue;
    const box = { x: m.x + sm.j * m.cw + 0.5, y: m.y + sm.i * m.ch + 0.5, w: Math.max(1, m.cw - 1), h: Math.max(1, m.ch - 1) };
    g.fillStyle = theme.colors.S;
    g.fillRect(box.x, box.y, box.w, box.h);
    if (sm.sm === ui.focus) panel(g, { x: box.x - 1, y: box.y - 1, w: box.w + 2, h: box.h + 2 }, { stroke: theme.text, width: 2, radius: 2 });
  }
  panel(g, { x: m.x - 2, y: m.y - 2, w: m.w + 4, h: m.h + 4 }, { stroke: theme.colors.S, radius: 2, dash: [5, 4] });
  const every = Math.max(1, Math.ceil((16 * s) / m.ch));
  for (let i = 0; i < meta.Tr; i += every) text(g, theme, "Q" + i, m.x - 5 * s, m.y + (i + 0.5) * m.ch, { size: 10 * s, align: "right", color: theme.colors.Q });
  const everyK = Math.max(1, Math.ceil((24 * s) / m.cw));
  for (let j = 0; j < meta.Tc; j += everyK) text(g, theme, "K" + j, m.x + (j + 0.5) * m.cw, m.y + m.h + 11 * s, { size: 10 * s, align: "center", color: theme.colors.K });
  const legend = [["current", theme.colors.S], ["done, not kept", mix(theme.bg, theme.colors.S, 0.25)]];
  if (a.kinds.includes(PARTIAL)) legend.push(["partial", "corner"]);
  if (a.kinds.includes(SKIP)) legend.push(["skipped", null]);
  let x = r.x;
  const y = r.y + r.h - 8 * s;
  if (L.isNarrow) legend.shift(); // the current tile explains itself; what is left fits
  for (const [word, color] of legend) {
    const box = { x, y: y - 5 * s, w: 10 * s, h: 10 * s };
    if (color === "corner") {
      panel(g, box, { fill: mix(theme.bg, theme.colors.S, 0.25), stroke: theme.border, radius: 2 });
      corner(g, box.x, box.y, box.w, box.h, theme);
    } else if (color) {
      panel(g, box, { fill: color, radius: 2 });
    } else {
      panel(g, box, { stroke: theme.border, radius: 2 });
      hatch(g, box, theme.muted, 4);
    }
    text(g, theme, word, x + 14 * s, y, { size: 10.5 * s, color: theme.muted });
    x += 22 * s + g.measureText(word).width;
  }
}

const SKIP = 0, PARTIAL = 1; // tile kinds, as in mask.py

/** One tile of the matrix: hatched where the mask skips it, with a dark corner where it hides a part of it. */
function ghostCell(p, tile, meta, w, h, kind, isDone, theme) {
  const i = Math.floor(tile / meta.Tc), j = tile % meta.Tc;
  const x = Math.round((j * w) / meta.Tc), y = Math.round((i * h) / meta.Tr);
  const cw = Math.round(((j + 1) * w) / meta.Tc) - x, ch = Math.round(((i + 1) * h) / meta.Tr) - y, gap = cw > 5 ? 1 : 0;
  p.fillStyle = isDone ? mix(theme.bg, theme.colors.S, 0.25) : kind === SKIP ? theme.well : theme.panel;
  p.fillRect(x, y, cw - gap, ch - gap);
  if (kind === PARTIAL && cw > 3) corner(p, x, y, cw - gap, ch - gap, theme);
  if (kind === SKIP && cw > 5) {
    p.strokeStyle = theme.border;
    p.beginPath();
    p.moveTo(x + 1, y + ch - 2);
    p.lineTo(x + cw - 2, y + 1);
    p.stroke();
  }
}

/** The upper right half of a cell, which a causal mask hides. */
function corner(p, x, y, w, h, theme) {
  p.fillStyle = theme.border;
  p.beginPath();
  p.moveTo(x + w * 0.35, y);
  p.lineTo(x + w, y);
  p.lineTo(x + w, y + h * 0.65);
  p.fill();
}

function drawBenches(g, L, data, frame, theme, pictures, ui) {
  const { meta } = data, { s } = L, [rows, cols] = meta.picture;
  L.benches.forEach((r, n) => {
    const sm = frame.sms[n], focused = n === ui.focus;
    const color = sm.busy ? theme.colors[sm.phase.tensor] ?? theme.colors.S : theme.border;
    const edge = sm.answer ? theme.colors[sm.answer] : sm.busy ? theme.colors.SMEM : theme.border;
    panel(g, r, { fill: theme.panel, stroke: focused ? theme.text : edge, width: focused ? 2.5 : sm.answer ? 2 : 1, radius: 6 });
    if (sm.event < 0) {
      if (r.w > 46 * s) text(g, theme, `SM ${n}: idle`, r.x + r.w / 2, r.y + r.h / 2, { size: 10.5 * s, align: "center", color: theme.muted, max: r.w - 4 });
      return;
    }
    const small = r.w < 58 * s || r.h < 50 * s, inner = small ? 3 : 5 * s, headH = small ? (r.h > 34 ? 12 * s : 0) : 15 * s;
    if (headH) {
      text(g, theme, small ? `${n}` : `SM ${n}`, r.x + inner, r.y + headH / 2 + 2, { size: 10 * s, color: theme.muted });
      if (sm.i >= 0) text(g, theme, `Q${sm.i}`, r.x + r.w - inner, r.y + headH / 2 + 2, { size: 10.5 * s, bold: true, align: "right", color: theme.colors.Q, max: r.w * 0.6 });
    }
    const barH = small ? 4 : 6 * s, bodyH = r.h - headH - barH * 2 - inner * 2, side = Math.max(4, Math.min(bodyH, (r.w - inner * 2) * (small ? 0.62 : 0.55)));
    const tile = (sm.h * meta.Tr + sm.i) * meta.Tc + sm.j, top = r.y + headH + 2;
    const shown = sm.j >= 0 && data.visits.score[tile] >= 0 && sm.i >= 0;
    if (shown) {
      const picture = pictures.pixels(`bench${n}`, `${data.id}|${tile}|${theme.name}`, cols, rows, (out) => {
        const lut = ramp(theme.panel, theme.colors.S), base = tile * rows * cols, well = pack(theme.well);
        for (let k = 0; k < rows * cols; k++) out[k] = data.a.S8[base + k] ? lut[data.a.S8[base + k]] : well;
      });
      const loading = sm.phase.load ? 0.35 : 1;
      g.globalAlpha = loading;
      g.imageSmoothingEnabled = false;
      g.drawImage(picture, r.x + inner, top, side, side);
      g.globalAlpha = 1;
      const bx = r.x + inner + side + 4, bw = r.x + r.w - inner - bx, bh = side / rows;
      if (bw > 3) for (let k = 0; k < rows; k++) {
        g.fillStyle = theme.colors.m;
        g.fillRect(bx, top + k * bh + 0.5, Math.max(1, (bw * data.a.m8[tile * rows + k]) / 255), Math.max(1, bh - 1.5));
      }
    }
    if (sm.answer && bodyH > 12) { // who answers what it is loading
      const y = top + Math.min(side, bodyH) / 2, size = 10.5 * s;
      if (small) levelMark(g, theme, sm.answer, r.x + r.w / 2, y, Math.min(12 * s, bodyH * 0.6));
      else {
        const w = Math.min(r.w - inner * 2, size * (sm.answer === "L2" ? 5 : 6.6));
        panel(g, { x: r.x + inner, y: y - size * 0.8, w, h: size * 1.6 }, { fill: theme.panel, radius: 4 });
        levelWord(g, theme, sm.answer, r.x + inner + 2, y, size, { color: theme.text, bold: true, max: w - size * 1.4, fit: true });
      }
    }
    // what it is doing, and how far its row of tiles has come
    g.fillStyle = color;
    g.fillRect(r.x + inner, r.y + r.h - inner - barH * 2 - 1, (r.w - inner * 2) * (sm.busy ? sm.p : 1), barH);
    g.fillStyle = theme.well;
    g.fillRect(r.x + inner, r.y + r.h - inner - barH + 1, r.w - inner * 2, barH);
    g.fillStyle = theme.colors.SMEM;
    g.fillRect(r.x + inner, r.y + r.h - inner - barH + 1, (r.w - inner * 2) * blockProgress(data, sm), barH);
  });
}

/** How much of its block an SM has done, in events. */
function blockProgress({ flash }, sm) {
  const first = flash.first[sm.block], stop = sm.block + 1 < flash.blocks ? flash.first[sm.block + 1] : flash.count;
  return sm.busy ? (sm.event - first + sm.p) / (stop - first) : 1;
}

/** The phases of the kernel, with the one that the SM in focus executes marked. */
function drawCode(g, L, data, frame, theme) {
  const { code: r, s } = L, { lines } = data.meta, now = frame.focus.busy ? frame.focus.line : -1;
  if (L.isNarrow) {
    panel(g, r, { fill: theme.mark, radius: 6 });
    text(g, theme, now >= 0 ? lines[now].text : "done", r.x + 10, r.y + r.h / 2, { size: 13, mono: true, bold: true, max: r.w - 20 });
    return;
  }
  panel(g, r, { stroke: theme.border, fill: theme.panel });
  const step = Math.min(22 * s, (r.h - 14 * s) / lines.length), size = Math.min(12 * s, step * 0.72);
  lines.forEach((line, n) => {
    const y = r.y + 7 * s + (n + 0.5) * step;
    if (n === now) panel(g, { x: r.x + 4 * s, y: y - step / 2 + 1, w: r.w - 8 * s, h: step - 2 }, { fill: theme.mark, radius: 4 });
    text(g, theme, line.text, r.x + (10 + 12 * line.indent) * s, y, { size, mono: true, bold: n === now, color: n === now ? theme.text : theme.muted, max: r.w - (14 + 12 * line.indent) * s, fit: true });
  });
}
