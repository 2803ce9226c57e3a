// Colours: roles from Python's palette, grounds and text from Streamlit's theme (CSS variables), light or dark.
import { mix, rgb } from "./paint.mjs";

/** The theme at an element: {name, bg, panel, well, border, text, muted, mark, onColor, font, mono, colors}. */
export function readTheme(element, palette) {
  const style = getComputedStyle(element), read = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return makeTheme(toHex(read("--st-background-color", "#ffffff")), toHex(read("--st-text-color", "#1f2430")), palette, {
    font: read("--st-font", "sans-serif"), mono: read("--st-code-font", "monospace"),
  });
}

/** A theme from its ground and text colour. */
export function makeTheme(bg, ink, palette, { font = "sans-serif", mono = "monospace" } = {}) {
  const [r, g, b] = rgb(bg), isDark = 0.299 * r + 0.587 * g + 0.114 * b < 128;
  const hex = (u) => toHex(mix(bg, ink, u));
  return {
    name: `${bg}${ink}`, isDark, bg, text: ink, panel: hex(isDark ? 0.05 : 0.025), well: hex(0.1), border: hex(0.22), muted: hex(0.68),
    mark: toHex(mix(bg, isDark ? "#f0c930" : "#e8b63a", isDark ? 0.3 : 0.42)), onColor: isDark ? "#10131a" : "#ffffff",
    font, mono, colors: { ...palette[isDark ? "dark" : "light"], P: palette[isDark ? "dark" : "light"].S },
  };
}

/** "rgb(…)", "rgba(…)", "#abc" or "#aabbcc" as "#aabbcc". */
export function toHex(color) {
  if (color.startsWith("#")) return color.length === 4 ? "#" + [...color.slice(1)].map((c) => c + c).join("") : color.slice(0, 7);
  const parts = color.match(/[\d.]+/g);
  return parts ? "#" + parts.slice(0, 3).map((p) => Math.round(+p).toString(16).padStart(2, "0")).join("") : "#ffffff";
}
