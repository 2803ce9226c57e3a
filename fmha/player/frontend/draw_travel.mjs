// Tiles on their way: HBM -> L2 -> the SM's slot on a miss, L2 -> slot on a hit; a store ends in L2 if that has room.
import { passesL2 } from "./draw_l2.mjs";
import { shelfTile } from "./layout.mjs";
import { WORD, levelMark } from "./levels.mjs";
import { panel, text } from "./paint.mjs";

export function drawTravel(g, L, data, frame, theme) {
  const { s, l2, shelves } = L, { sm: chosen } = frame.focus;
  for (const sm of [...frame.sms].sort((a, b) => (a.sm === chosen) - (b.sm === chosen))) { // the one in focus on top
    if (!sm.busy || !(sm.phase.load || sm.phase.store)) continue;
    const name = sm.phase.tensor, tile = "KV".includes(name) ? sm.j : sm.i;
    if (!(name in shelves) || tile < 0 || sm.h !== frame.focus.h) continue;
    const focused = sm.sm === chosen, target = focused ? L.slots[name] : L.benches[sm.sm];
    if (!target) continue;
    const inL2 = { x: l2.x + 8 * s, y: l2.y + 60 * s + (tile / Math.max(1, shelves[name].tiles)) * (l2.h - 150 * s), w: l2.w - 16 * s, h: focused ? 22 * s : 8 };
    const end = focused ? target : { x: target.x + target.w / 2 - 4, y: target.y + target.h / 2 - 4, w: 8, h: 8 };
    const isWhole = sm.phase.store ? passesL2(data, sm.event) : sm.answer === "HBM";
    const way = isWhole ? [shelfTile(L, name, tile), inL2, end] : [inL2, end];
    const box = along(way, sm.phase.store ? 1 - sm.p : sm.p);
    if (focused) large(g, box, name + tile, sm, theme, s, L.W);
    else small(g, box, name, sm.answer, theme, frame.sms.length > 16 ? 10 : 14);
  }
}

/** The tile of the SM in focus: with its name, and a flag with the word and mark of who answers. */
function large(g, box, label, { phase, answer }, theme, s, W) {
  const level = answer ? theme.colors[answer] : theme.text;
  g.globalAlpha = 0.92;
  panel(g, box, { fill: theme.colors[phase.tensor], stroke: level, width: 3, radius: 4 });
  if (box.h > 12) text(g, theme, label, box.x + box.w / 2, box.y + box.h / 2, { size: 12 * s, bold: true, align: "center", color: theme.onColor });
  g.globalAlpha = 1;
  if (!answer) return;
  const size = 11 * s, w = (answer === "L2" ? 54 : 76) * s, h = 17 * s, x = Math.min(Math.max(2, box.x + box.w / 2 - w / 2), W - w - 2);
  const flag = { x, y: box.y + box.h + 2, w, h };
  panel(g, flag, { fill: theme.bg, stroke: level, width: 1.5, radius: 4 });
  levelMark(g, theme, answer, x + 10 * s, flag.y + h / 2, size * 0.85);
  text(g, theme, WORD[answer], x + 17 * s, flag.y + h / 2, { size, bold: true, max: w - 19 * s, fit: true });
}

/** Other SMs' tiles: a disc for a hit, a diamond for HBM, a square for a store; each in its tensor's colour. */
function small(g, box, name, answer, theme, size) {
  const x = box.x + box.w / 2, y = box.y + box.h / 2;
  if (answer) {
    levelMark(g, theme, answer, x, y, size);
    levelMark(g, { colors: { [answer]: theme.colors[name] }, bg: theme.colors[answer] }, answer, x, y, size * 0.57);
  } else {
    panel(g, box, { fill: theme.colors[name], radius: 2 });
  }
}

/** The rectangle at share p of a way through two or three rectangles. */
function along(way, p) {
  const at = p * (way.length - 1), k = Math.min(way.length - 2, Math.floor(at));
  return between(way[k], way[k + 1], at - k);
}

function between(a, b, u) {
  const e = u * u * (3 - 2 * u), lerp = (x, y) => x + (y - x) * e;
  return { x: lerp(a.x, b.x), y: lerp(a.y, b.y), w: lerp(a.w, b.w), h: lerp(a.h, b.h) };
}
