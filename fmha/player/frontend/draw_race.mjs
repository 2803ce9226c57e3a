// The race: naive attention's three kernels beside flash, same inputs, same SMs, same clock, both meters ticking.
import { drawMeters } from "./draw.mjs";
import { headName } from "./draw_focus.mjs";
import { lanes, phaseColor, playhead, timeText, waveWords } from "./draw_timeline.mjs";
import { bytes, hatch, mix, pack, panel, text } from "./paint.mjs";

const KERNELS = ["S = Q Kᵀ · scale", "P = softmax S", "O = P V"];

/** Two boxes side by side (or one above the other), each with what lies in HBM and what the SMs do. */
export function raceLayout(width, height, { meta }) {
  const isNarrow = width < 720, s = isNarrow ? 0.92 : Math.min(1.7, Math.max(0.82, Math.min(width / 1180, height / 560))), gap = 12 * s;
  const meters = { x: 0, y: 0, w: width, h: isNarrow ? 94 : 56 * s };
  const timelineH = isNarrow ? 158 : Math.min(height * 0.33, 60 * s + Math.max(70 * s, meta.sms * 9));
  const top = meters.h + gap * 0.6, bottom = height - timelineH - gap;
  const boxes = isNarrow
    ? [{ x: 0, y: top, w: width, h: (bottom - top - gap) / 2 }, { x: 0, y: top + (bottom - top + gap) / 2, w: width, h: (bottom - top - gap) / 2 }]
    : [{ x: 0, y: top, w: (width - gap) / 2, h: bottom - top }, { x: (width + gap) / 2, y: top, w: (width - gap) / 2, h: bottom - top }];
  const timeline = { x: 0, y: height - timelineH, w: width, h: timelineH };
  const label = isNarrow ? 40 : 52 * s;
  const track = { x: label, y: timeline.y + 34 * s, w: width - label - 8 * s, h: timelineH - 38 * s };
  return { race: true, s, W: width, H: height, isNarrow, meters, boxes, timeline, track, benches: [], shelves: {}, matrix: { x: 0, y: 0, w: 0, h: 0 } };
}

export function drawRace(g, L, data, frame, theme, pictures) {
  g.fillStyle = theme.bg;
  g.fillRect(0, 0, L.W, L.H);
  drawMeters(g, L, data, frame, theme);
  lane(g, L.boxes[0], L, data, frame, theme, pictures, "naive");
  lane(g, L.boxes[1], L, data, frame, theme, pictures, "flash");
  timelines(g, L, data, frame, theme, pictures);
}

function lane(g, r, L, data, frame, theme, pictures, who) {
  const { meta } = data, { s } = L, isNaive = who === "naive", role = isNaive ? "naive" : meta.order;
  const end = isNaive ? meta.end.naive : meta.end.flash, isDone = frame.t >= end;
  panel(g, r, { fill: theme.panel, stroke: theme.colors[role], width: 2 });
  const title = isNaive ? "naive: three kernels" : `flash: one kernel, ${meta.order}`;
  text(g, theme, title, r.x + 12 * s, r.y + 16 * s, { size: 14 * s, bold: true, max: r.w * 0.5 });
  const now = isDone ? `finished at ${timeText(end)}` : isNaive ? `kernel ${frame.kernel + 1} of 3:  ${KERNELS[frame.kernel]}` : meta.order === "kv-outer" ? "a K/V tile stays, Q tiles pass" : "a Q tile stays, K/V tiles pass";
  text(g, theme, now, r.x + r.w - 12 * s, r.y + 16 * s, { size: 12 * s, align: "right", mono: true, color: isDone ? theme.colors.ok : theme.text, max: r.w * 0.5, fit: true });
  const smsH = 46 * s, body = { x: r.x + 12 * s, y: r.y + 34 * s, w: r.w - 24 * s, h: r.h - 46 * s - smsH };
  const n = 2, shelfW = Math.min(body.w * 0.2, 90 * s), side = Math.min((body.w - shelfW - 20 * s * n) / n, body.h - 40 * s);
  shelf(g, { x: body.x, y: body.y + 18 * s, w: shelfW, h: body.h - 40 * s }, data, frame, theme, s, isNaive);
  text(g, theme, "in HBM", body.x, body.y + 6 * s, { size: 11 * s, color: theme.muted });
  ["S", "P"].forEach((name, k) => {
    const x = body.x + shelfW + 20 * s + k * (side + 20 * s), box = { x, y: body.y + 18 * s, w: side, h: side };
    if (isNaive) {
      const done = frame.naiveDone[name].count / frame.naiveDone[name].tiles.length || 0;
      text(g, theme, `${name} in HBM: ${bytes(done * meta.problem.H * meta.problem.Nq * meta.problem.Nk * meta.problem.itemsize)}`, x, body.y + 6 * s, { size: 11.5 * s, bold: true, color: theme.colors.S, max: side + 14 * s });
      matrix(g, box, data, theme, pictures, name, frame.naiveDone[name].tiles, frame.naiveDone[name].count);
      panel(g, box, { stroke: theme.colors.S, width: 2, radius: 2 });
    } else {
      text(g, theme, `${name}: tiles only, 0 B in HBM`, x, body.y + 6 * s, { size: 11.5 * s, bold: true, color: theme.colors.S, max: side + 14 * s });
      matrix(g, box, data, theme, pictures, "ghost" + name, data.visits.order, frame.doneVisits, frame, true);
      panel(g, box, { stroke: theme.colors.S, radius: 2, dash: [5, 4] });
    }
  });
  const drawn = meta.problem.H > 1 ? ` (drawn: ${headName(meta, 0, "")} of ${meta.problem.H}; bytes: all)` : "";
  const held = (isNaive ? "S and P are written, read back, and kept" : "each tile is used in shared memory and forgotten") + drawn;
  text(g, theme, held, body.x + shelfW + 20 * s, body.y + Math.min(side, body.h - 40 * s) + 34 * s, { size: 11.5 * s, color: theme.muted, max: body.w - shelfW - 24 * s });
  sms(g, { x: r.x + 12 * s, y: r.y + r.h - smsH - 4 * s, w: r.w - 24 * s, h: smsH }, isNaive ? frame.naive : frame.sms, theme, s);
}

/** Q, K, V, O as four thin columns; O fills as it is stored. */
function shelf(g, r, data, frame, theme, s, isNaive) {
  const { meta } = data, w = r.w / 4;
  ["Q", "K", "V", "O"].forEach((name, c) => {
    const box = { x: r.x + c * w + 1, y: r.y + 14 * s, w: w - 3, h: r.h - 16 * s };
    text(g, theme, name, box.x + box.w / 2, r.y + 4 * s, { size: 11 * s, bold: true, align: "center", color: theme.colors[name] });
    panel(g, box, { stroke: theme.colors[name], radius: 3, fill: name === "O" ? undefined : mix(theme.panel, theme.colors[name], 0.7) });
    if (name !== "O") return;
    const stored = isNaive ? frame.naiveDone.O.tiles.slice(0, frame.naiveDone.O.count) : null, total = meta.problem.H * meta.Tr;
    let count = 0;
    if (stored) count = stored.length;
    else for (const t of data.visits.storedAt) if (t <= frame.t) count++;
    panel(g, { ...box, h: (box.h * count) / total }, { fill: mix(theme.panel, theme.colors.O, 0.7), radius: 3 });
  });
}

/** The N x N tiles that are done, of the first head. */
function matrix(g, r, data, theme, pictures, name, order, count, frame, faint = false) {
  const { meta } = data, { Tr, Tc } = meta, stride = Tr * Tc;
  const picture = pictures.layer(`race-${name}`, `${data.id}|${count}|${theme.name}`, Tc, Tr, (p, entry) => {
    const base = `${data.id}|${theme.name}`;
    if (entry.base !== base || entry.count > count) {
      entry.base = base;
      entry.count = 0;
      entry.image = p.createImageData(Tc, Tr);
      new Uint32Array(entry.image.data.buffer).fill(pack(theme.well));
    }
    const out = new Uint32Array(entry.image.data.buffer), full = mix(theme.panel, theme.colors.S, faint ? 0.22 : 0.85);
    const color = pack(full);
    for (let k = entry.count; k < count; k++) if (order[k] < stride) out[order[k]] = color;
    entry.count = count;
    p.putImageData(entry.image, 0, 0);
  });
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, r.x, r.y, r.w, r.h);
  if (!faint) return;
  for (const sm of frame.sms) {
    if (!sm.busy || sm.i < 0 || sm.j < 0 || sm.h > 0) continue;
    g.fillStyle = theme.colors.S;
    g.fillRect(r.x + (sm.j * r.w) / Tc, r.y + (sm.i * r.h) / Tr, Math.max(1, r.w / Tc), Math.max(1, r.h / Tr));
  }
}

/** One small square an SM: the colour of its phase, hatched when it waits. */
function sms(g, r, list, theme, s) {
  const perRow = Math.min(list.length, 32), rows = Math.ceil(list.length / perRow), w = r.w / perRow, h = (r.h - 14 * s) / rows;
  text(g, theme, `${list.filter((x) => x.busy).length} of ${list.length} SMs busy`, r.x, r.y + 5 * s, { size: 11 * s, color: theme.muted });
  list.forEach((sm, n) => {
    const box = { x: r.x + (n % perRow) * w + 1, y: r.y + 14 * s + Math.floor(n / perRow) * h + 1, w: w - 2, h: h - 2 };
    panel(g, box, { fill: sm.busy ? phaseColor(sm.phase, theme) : theme.well, radius: 3 });
    if (!sm.busy) hatch(g, box, theme.border, 6);
    if (sm.answer === "HBM") panel(g, { ...box, y: box.y + box.h * 0.78, h: box.h * 0.22 }, { fill: theme.colors.HBM, radius: 2 });
    if (sm.busy && w > 44 * s && h > 16 * s) text(g, theme, `${sm.phase.load ? "load " : sm.phase.store ? "store " : ""}${sm.phase.tensor}`, box.x + box.w / 2, box.y + box.h / 2, { size: 10 * s, align: "center", color: theme.onColor, max: box.w - 2 });
  });
}

function timelines(g, L, data, frame, theme, pictures) {
  const { s, track, timeline } = L, words = 18 * s, half = (track.h - words) / 2;
  const upper = { ...track, h: half }, lower = { ...track, y: track.y + half + words, h: half };
  text(g, theme, "SMs × time", timeline.x, timeline.y + 9 * s, { size: 11.5 * s, color: theme.muted });
  text(g, theme, `${timeText(frame.t)} of ${timeText(data.end)}`, track.x + track.w, timeline.y + 9 * s, { size: 11.5 * s, align: "right", mono: true, color: theme.muted });
  lanes(g, upper, data, data.naive, "naive", theme, pictures, { key: data.id, scale: data.end, pixels: L.pixels });
  lanes(g, lower, data, data.flash, "flash", theme, pictures, { key: data.id + "r", scale: data.end, pixels: L.pixels });
  text(g, theme, "naive", track.x - 6 * s, upper.y + half / 2, { size: 11.5 * s, align: "right", bold: true, color: theme.colors.naive });
  text(g, theme, "flash", track.x - 6 * s, lower.y + half / 2, { size: 11.5 * s, align: "right", bold: true, color: theme.colors[data.meta.order] });
  playhead(g, track, timeline.y + 28 * s, data, frame.t, theme);
  waveWords(g, upper, upper.y - 9 * s, data, "naive", data.end, theme, s);
  waveWords(g, lower, lower.y - 9 * s, data, "flash", data.end, theme, s);
}
