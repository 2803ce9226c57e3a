// SMs x time: who did what when. Painted once per run and width; the playhead and the veil over the future move.
import { endOf } from "./decode.mjs";
import { pack, panel, text } from "./paint.mjs";

/**
 * Draw the lanes of one track into rectangle r. `scale` is the time at the right edge.
 * There can be tens of thousands of events: each lane is one row of pixels, painted once and stretched.
 */
export function lanes(g, r, data, track, name, theme, pictures, { key, scale, pixels }) {
  const w = Math.max(1, Math.round(r.w * pixels)), sms = data.meta.sms;
  const picture = pictures.pixels(`lanes-${name}`, `${key}|${w}|${theme.name}`, w, sms, (out) => {
    const colors = data.meta.phases.map((phase) => pack(phaseColor(phase, theme))), edge = pack(theme.text), k = w / scale;
    for (let sm = 0; sm < sms; sm++) for (const b of track.bySm[sm]) {
      const stop = b + 1 < track.blocks ? track.first[b + 1] : track.count;
      for (let e = track.first[b]; e < stop; e++) {
        const x0 = Math.round(track.t0[e] * k), x1 = Math.round(endOf(track, e) * k);
        out.fill(colors[track.phase[e]], sm * w + x0, sm * w + Math.min(w, Math.max(x1, x0 + (x1 > x0))));
      }
      const last = Math.round(track.blockEnd[b] * k); // where one worker ends and the next begins
      if (track.bySm[sm].length > 1 && last < w) out[sm * w + last] = edge;
    }
  });
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, r.x, r.y, r.w, r.h);
  const lane = r.h / sms;
  if (lane <= 5) return;
  g.fillStyle = theme.bg;
  for (let sm = 1; sm < sms; sm++) g.fillRect(r.x, r.y + sm * lane - 0.5, r.w, 1);
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
  playhead(g, r, L.timeline.y + 14 * s, data, frame.t, theme);
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
}

