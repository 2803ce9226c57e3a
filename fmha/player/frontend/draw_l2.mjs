// The L2 cache: what passes through it now, who answers it, and how much of the loaded bytes it has answered so far.
import { nbytesOf } from "./decode.mjs";
import { WORD, levelMark, levelWord } from "./levels.mjs";
import { bytes, mix, panel, text } from "./paint.mjs";

/** Whether a store goes on to HBM at once: L2 has no room for a tile of that size. */
export function passesL2(data, event) {
  return nbytesOf(data.flash, event) > data.meta.l2.holds;
}

export function drawL2(g, L, data, frame, theme) {
  const { l2: r, s } = L, { holds } = data.meta.l2, middle = r.x + r.w / 2;
  panel(g, r, { fill: theme.panel, stroke: theme.colors.L2, width: 1.5 });
  text(g, theme, "L2", middle, r.y + 14 * s, { size: 13 * s, bold: true, align: "center" });
  text(g, theme, holds ? `holds ${bytes(holds)}` : "holds nothing", middle, r.y + 28 * s, { size: 10 * s, align: "center", color: theme.muted, max: r.w - 4, fit: true });
  const passing = [...tilesOnTheirWay(data, frame).values()];
  const step = 38 * s, top = r.y + 38 * s, fit = Math.max(1, Math.floor((r.h - 112 * s) / step));
  passing.slice(0, fit).forEach((item, k) => passingTile(g, { x: r.x + 4 * s, y: top + k * step, w: r.w - 8 * s, h: step - 5 * s }, item, theme, s));
  if (passing.length > fit) text(g, theme, `+${passing.length - fit}`, middle, top + fit * step + 4 * s, { size: 11 * s, align: "center", color: theme.muted });
  const { loaded, hbm } = frame.meters.read.flash, size = Math.min(10.5 * s, r.w * 0.19), low = r.y + r.h;
  text(g, theme, "hits so far", middle, low - 56 * s, { size: 10 * s, align: "center", color: theme.muted, max: r.w - 4, fit: true });
  text(g, theme, loaded ? `${Math.round((100 * (loaded - hbm)) / loaded)} %` : "–", middle, low - 42 * s, { size: 13 * s, bold: true, align: "center" });
  for (const [n, answer] of ["L2", "HBM"].entries()) levelWord(g, theme, answer, r.x + 4, low - (26 - 14 * n) * s, size, { max: r.w - 6 - size * 1.25, fit: true });
}

/** Tiles that SMs load or store at this moment, by tile and by who answers: {name, key, answer, count}. */
function tilesOnTheirWay(data, frame) {
  const found = new Map();
  for (const sm of frame.sms) {
    if (!sm.busy || !(sm.phase.load || sm.phase.store)) continue;
    const name = sm.phase.tensor, key = name + ("KV".includes(name) ? sm.j : sm.i), id = `${sm.h} ${key} ${sm.answer}`;
    found.set(id, { name, key, answer: sm.answer, count: (found.get(id)?.count ?? 0) + 1 });
  }
  return found;
}

/** A tile with its name and, below, the mark and word of who answers. */
function passingTile(g, r, { name, key, answer, count }, theme, s) {
  const upper = { ...r, h: r.h * 0.56 };
  panel(g, r, { fill: theme.panel, stroke: answer ? theme.colors[answer] : theme.border, width: answer ? 2 : 1, radius: 4 });
  panel(g, upper, { fill: mix(theme.panel, theme.colors[name] ?? theme.muted, 0.7), radius: 4 });
  text(g, theme, count > 1 ? `${key} ×${count}` : key, r.x + r.w / 2, upper.y + upper.h / 2, { size: 11 * s, align: "center", color: theme.onColor, max: r.w - 2 });
  const y = r.y + r.h * 0.79, size = Math.min(9.5 * s, r.w * 0.19);
  if (answer) {
    levelMark(g, theme, answer, r.x + size * 0.8, y, size * 0.85);
    text(g, theme, WORD[answer], r.x + size * 1.5, y, { size, max: r.w - size * 1.6, fit: true });
  } else {
    text(g, theme, "store", r.x + r.w / 2, y, { size, align: "center", color: theme.muted });
  }
}
