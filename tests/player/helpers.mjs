// A payload from real Python, and a canvas context that only records.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { decode } from "../../fmha/player/frontend/decode.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const cache = new Map();

/** Run tests/player/make_payload.py with these settings and decode what it prints. */
export function payload(settings = {}) {
  const text = JSON.stringify(settings);
  if (!cache.has(text)) {
    const python = process.env.FMHA_PYTHON ?? "python3";
    cache.set(text, execFileSync(python, ["tests/player/make_payload.py", text], { cwd: root, maxBuffer: 1 << 26 }));
  }
  const data = decode(new Uint8Array(cache.get(text)));
  data.id = text;
  return data;
}

export function bytesOf(settings = {}) {
  payload(settings);
  return new Uint8Array(cache.get(JSON.stringify(settings)));
}

/** A 2D context that writes down every call and every colour set; measureText is a rough width. */
export function fakeContext(log = []) {
  const state = { font: "10px x" };
  return new Proxy({ log }, {
    get(target, name) {
      if (name === "log") return log;
      if (name === "measureText") return (s) => ({ width: String(s).length * parseFloat(state.font.match(/([\d.]+)px/)?.[1] ?? 10) * 0.55 });
      if (name === "createImageData") return (w, h) => ({ data: new Uint8ClampedArray(w * h * 4), width: w, height: h });
      if (name in state) return state[name];
      return (...args) => {
        for (const a of args) if (typeof a === "number" && !Number.isFinite(a)) throw new Error(`${String(name)}(${args}) is not finite`);
        log.push([name, ...args.map((a) => (typeof a === "object" ? (a?.data ? hashOf(a.data) : a?.tag ?? "object") : a))]);
      };
    },
    set(target, name, value) {
      if (typeof value === "string" && /NaN|undefined/.test(value)) throw new Error(`${String(name)} = ${value}`);
      state[name] = value;
      log.push(["=", name, value]);
      return true;
    },
  });
}

function hashOf(data) {
  let h = 2166136261;
  for (const x of data) h = Math.imul(h ^ x, 16777619);
  return h >>> 0;
}

/** Canvases for the picture cache; what was drawn on them counts as part of the picture. */
export function fakeCanvas(w, h) {
  const canvas = { width: w, height: h, log: [] };
  canvas.context = fakeContext(canvas.log);
  canvas.getContext = () => canvas.context;
  Object.defineProperty(canvas, "tag", { get: () => `canvas ${w}x${h}` });
  return canvas;
}

export const theme = (data, dark = false) => ({
  name: dark ? "dark" : "light", isDark: dark, bg: "#ffffff", text: "#101010", panel: "#f8f8f8", well: "#e8e8e8",
  border: "#c0c0c0", muted: "#606060", mark: "#ffe0a0", onColor: "#ffffff", font: "sans", mono: "mono",
  colors: data.meta.palette[dark ? "dark" : "light"],
});
