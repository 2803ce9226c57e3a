// SMs x time: who did what when. Painted once per run and width; the playhead and the veil over the future move.
import { endOf } from "./decode.mjs";
import { hatch, mix, pack, panel, text } from "./paint.mjs";

const ROWS = 3; // rows of pixels that a lane is painted with; the lowest one says what came from HBM

/**
 * Draw the lanes of one track into rectangle r. `scale` is the time at the right edge.
 * There can be tens of thousands of events: each lane is a few rows of pixels, painted once and stretched.
 */
export function lanes(g, r, data, track, name, theme, pictures, { key, scale, pixels }) {
  const w = Math.max(1, Math.round(r.w * pixels)), h = Math.max(1, Math.round(r.h * pixels));
  const picture = pictures.layer(`lanes-${name}-all`, `${key}|${w}x${h}|${theme.name}`, w, h, (p) => {
    p.setTransform(pixels, 0, 0, pixels, -r.x * pixels, -r.y * pixels);
    p.clearRect(r.x, r.y, r.w, r.h);
    paintLanes(p, r, data, track, name, theme, pictures, { key, scale, w });
    idleTimes(p, r, data, track, scale, theme);
    waveEdges(p, r, data.meta.waves[name], scale, theme);
  });
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, r.x, r.y, r.w, r.h);
}

/** The colour of that edge: HBM's, nearer to the text's so that it stands out against every tensor's colour. */
function hbmEdge(theme) {
  return mix(theme.colors.HBM, theme.text, 0.6);
}

/** Events as coloured stretches; a strong edge below those that came from HBM. */
function paintLanes(g, r, data, track, name, theme, pictures, { key, scale, w }) {
  const { sms } = data.meta;
  const picture = pictures.pixels(`lanes-${name}`, `${key}|${w}|${theme.name}`, w, sms * ROWS, (out) => {
    const colors = data.meta.phases.map((phase) => pack(phaseColor(phase, theme))), edge = pack(theme.text), hbm = pack(hbmEdge(theme)), k = w / scale;
    const fill = (sm, row, color, from, to) => out.fill(color, (sm * ROWS + row) * w + from, (sm * ROWS + row) * w + to);
    for (let sm = 0; sm < sms; sm++) for (const b of track.bySm[sm]) {
      const stop = b + 1 < track.blocks ? track.first[b + 1] : track.count;
      for (let e = track.first[b]; e < stop; e++) {
        const x0 = Math.round(track.t0[e] * k), x1 = Math.min(w, Math.round(endOf(track, e) * k));
        if (x1 <= x0) continue;
        for (let row = 0; row < ROWS - 1; row++) fill(sm, row, colors[track.phase[e]], x0, x1);
        fill(sm, ROWS - 1, track.fromHbm[e] ? hbm : colors[track.phase[e]], x0, x1);
      }
      const last = Math.round(track.blockEnd[b] * k); // where one worker ends and the next begins
      if (track.bySm[sm].length > 1 && last < w) for (let row = 0; row < ROWS; row++) out[(sm * ROWS + row) * w + last] = edge;
    }
  });
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, r.x, r.y, r.w, r.h);
  const lane = r.h / sms;
  if (lane <= 5) return;
  g.fillStyle = theme.bg;
  for (let sm = 1; sm < sms; sm++) g.fillRect(r.x, r.y + sm * lane - 0.5, r.w, 1);
}

/** When an SM has nothing to do: [[from, to], ...], up to `end`. */
export function idleOf(track, sm, end) {
  const out = [], least = end * 1e-9;
  let at = 0;
  for (const b of track.bySm[sm]) {
    if (track.t0[track.first[b]] > at + least) out.push([at, track.t0[track.first[b]]]);
    at = Math.max(at, track.blockEnd[b]);
  }
  if (end > at + least) out.push([at, end]);
  return out;
}

/** Idle SMs are hatched, and named where there is room; neighbours that idle over the same time are one area. */
function idleTimes(g, r, data, track, scale, theme) {
  const { sms } = data.meta, lane = r.h / sms, k = r.w / scale, areas = new Map();
  for (let sm = 0; sm < sms; sm++) for (const [from, to] of idleOf(track, sm, track.end)) {
    const id = `${from} ${to}`, open = areas.get(id);
    if (open && open.last === sm - 1) open.last = sm;
    else {
      if (open) areas.set(`${id} ${open.first}`, open);
      areas.set(id, { from, to, first: sm, last: sm });
    }
  }
  for (const { from, to, first, last } of areas.values()) {
    const box = { x: r.x + from * k, y: r.y + first * lane, w: (to - from) * k, h: (last - first + 1) * lane };
    if (box.w < 1.5) continue;
    hatch(g, box, theme.border, 6);
    const size = Math.min(11, box.h * 0.8);
    if (size < 7) continue;
    g.font = `${size}px ${theme.font}`;
    const words = "idle", wide = g.measureText(words).width + 8;
    if (box.w < wide + 4) continue;
    g.fillStyle = theme.bg;
    g.fillRect(box.x + box.w / 2 - wide / 2, box.y + box.h / 2 - size * 0.65, wide, size * 1.3);
    text(g, theme, words, box.x + box.w / 2, box.y + box.h / 2, { size, align: "center", color: theme.muted });
  }
}

/** A dashed line where a wave begins; a solid one where a kernel does. */
function waveEdges(g, r, waves, scale, theme) {
  const k = r.w / scale;
  let before = r.x;
  for (const { t, wave } of waves.begins) {
    const x = r.x + t * k;
    if (t <= 0 || (wave > 0 && x - before < 5)) continue; // too close to tell apart
    before = x;
    g.beginPath();
    g.moveTo(x, r.y);
    g.lineTo(x, r.y + r.h);
    g.setLineDash(wave > 0 ? [4, 3] : []);
    g.lineWidth = 3.5;
    g.strokeStyle = theme.bg;
    g.stroke();
    g.lineWidth = 1.5;
    g.strokeStyle = theme.text;
    g.stroke();
    g.setLineDash([]);
  }
}

/** The names of waves (or kernels) above the lanes, where they fit, and what is idle in all. */
export function waveWords(g, r, y, data, name, scale, theme, s) {
  const waves = data.meta.waves[name], { sms } = data.meta, several = waves.begins.some(({ kernel }) => kernel > 0);
  const k = r.w / scale, size = 10.5 * s, short = waves.last < sms && !several ? `${waves.count > 1 ? ", the last" : ""} on ${waves.last} of ${sms} SMs` : "";
  const count = several ? "3 kernels" : `${waves.count} wave${waves.count > 1 ? "s" : ""}`, idle = Math.round(100 * (1 - waves.busy));
  const all = `${count}${short}; SMs idle ${idle} % of the time`;
  g.font = `${size}px ${theme.font}`;
  const right = r.x + r.w - g.measureText(all).width - 12 * s;
  text(g, theme, all, r.x + r.w, y, { size, align: "right", color: theme.muted, max: r.w });
  let free = r.x;
  for (const { t, kernel, wave } of waves.begins) {
    const x = r.x + t * k, words = several ? `kernel ${kernel + 1}` : `wave ${wave + 1}`;
    if ((several && wave > 0) || (!several && waves.count < 2) || x < free) continue;
    g.font = `${size}px ${theme.font}`;
    const end = x + g.measureText(words).width + 4 * s;
    if (end > right) break;
    text(g, theme, words, x + 2 * s, y, { size, color: theme.muted });
    free = end + 4 * s;
  }
}

export function phaseColor(phase, theme) {
  if (phase.code === "m") return theme.colors.m;
  if (phase.code === "P" || phase.code === "softmax") return theme.colors.alpha;
  return theme.colors[phase.tensor] ?? theme.muted;
}

export function drawTimeline(g, r, L, data, track, name, frame, theme, pictures, ui) {
  const { s } = L, { meta } = data;
  text(g, theme, "SMs × time", L.timeline.x, L.timeline.y + 9 * s, { size: 11.5 * s, color: theme.muted });
  legend(g, L, theme);
  lanes(g, r, data, track, name, theme, pictures, { key: data.id, scale: data.end, pixels: L.pixels });
  const lane = r.h / meta.sms, every = Math.max(1, Math.ceil((11 * s) / lane));
  for (let sm = 0; sm < meta.sms; sm += every) {
    text(g, theme, `SM ${sm}`, r.x - 6 * s, r.y + (sm + 0.5) * lane, { size: 10 * s, align: "right", color: sm === ui.focus ? theme.text : theme.muted, bold: sm === ui.focus });
  }
  panel(g, { x: r.x - 2, y: r.y + ui.focus * lane - 0.5, w: r.w + 4, h: lane }, { stroke: theme.text, width: 1.2, radius: 2 });
  waveWords(g, r, L.timeline.y + 24 * s, data, name, data.end, theme, s);
  playhead(g, r, L.timeline.y + 28 * s, data, frame.t, theme);
  text(g, theme, timeText(frame.t) + " of " + timeText(data.end), r.x + r.w, L.timeline.y + 9 * s, { size: 11.5 * s, align: "right", mono: true, color: theme.muted });
}

export function playhead(g, r, top, data, t, theme) {
  const x = r.x + (t / data.end) * r.w;
  g.globalAlpha = 0.62;
  g.fillStyle = theme.bg;
  g.fillRect(x, r.y - 1, r.x + r.w - x, r.h + 2);
  g.globalAlpha = 1;
  g.fillStyle = theme.text;
  g.fillRect(x - 1, top, 2, r.y + r.h - top);
  g.beginPath();
  g.moveTo(x - 6, top - 2);
  g.lineTo(x + 6, top - 2);
  g.lineTo(x, top + 7);
  g.fill();
}

/** Simulated time, from microseconds. */
export function timeText(us) {
  return us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : us >= 1 ? `${us.toFixed(2)} µs` : `${(us * 1000).toFixed(0)} ns`;
}

function legend(g, L, theme) {
  if (L.isNarrow) return;
  const { s } = L, y = L.timeline.y + 9 * s;
  let x = L.track.x + 60 * s;
  for (const [word, role] of [["load Q", "Q"], ["load K", "K"], ["load V", "V"], ["scores", "S"], ["max", "m"], ["exp, sum", "alpha"], ["O", "O"]]) {
    panel(g, { x, y: y - 5 * s, w: 10 * s, h: 10 * s }, { fill: theme.colors[role], radius: 2 });
    text(g, theme, word, x + 14 * s, y, { size: 10.5 * s, color: theme.muted });
    x += 26 * s + g.measureText(word).width;
  }
  g.fillStyle = hbmEdge(theme);
  g.fillRect(x, y + 2 * s, 14 * s, 3 * s);
  text(g, theme, "edge below: from HBM", x + 18 * s, y, { size: 10.5 * s, color: theme.muted });
  x += 26 * s + g.measureText("edge below: from HBM").width;
  const idle = { x, y: y - 5 * s, w: 14 * s, h: 10 * s };
  panel(g, idle, { stroke: theme.border, radius: 2 });
  hatch(g, idle, theme.muted, 4);
  text(g, theme, "idle", x + 18 * s, y, { size: 10.5 * s, color: theme.muted });
}

