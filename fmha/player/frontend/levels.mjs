// Who answers a load, as it is shown everywhere: a colour, a mark and a word each, so that no colour stands alone.
import { text } from "./paint.mjs";

export const WORD = { L2: "L2 hit", HBM: "from HBM" };

/** The mark of an answer at (x, y): a disc for a hit in L2, a diamond for HBM. `size` is its height. */
export function levelMark(g, theme, answer, x, y, size) {
  g.beginPath();
  if (answer === "L2") {
    g.arc(x, y, size / 2, 0, 2 * Math.PI);
  } else {
    const half = size * 0.6;
    g.moveTo(x, y - half);
    g.lineTo(x + half, y);
    g.lineTo(x, y + half);
    g.lineTo(x - half, y);
    g.closePath();
  }
  g.fillStyle = theme.colors[answer];
  g.fill();
  g.lineWidth = 1;
  g.strokeStyle = theme.bg;
  g.stroke();
}

/** Mark and word, beginning at x. Returns the width. */
export function levelWord(g, theme, answer, x, y, size, options = {}) {
  levelMark(g, theme, answer, x + size * 0.5, y, size * 0.85);
  text(g, theme, options.word ?? WORD[answer], x + size * 1.25, y, { size, color: theme.muted, ...options });
  return size * 1.25 + g.measureText(options.word ?? WORD[answer]).width;
}
