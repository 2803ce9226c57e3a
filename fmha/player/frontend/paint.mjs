// Drawing helpers: text, panels, colour mixing, and heat maps that are painted once and then copied.

/** "#rrggbb" -> [r, g, b]. */
export function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

/** "#rrggbb" or "rgb(r,g,b)" as 0xAABBGGRR, the way ImageData keeps it. */
export function pack(color) {
  const [r, g, b] = color.startsWith("#") ? rgb(color) : color.match(/\d+/g).map(Number);
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

/** A colour between two, u from 0 to 1, as "rgb(...)". */
export function mix(from, to, u) {
  const a = rgb(from), b = rgb(to);
  return `rgb(${a.map((x, k) => Math.round(x + (b[k] - x) * u)).join(",")})`;
}

export function text(g, theme, string, x, y, { size = 13, color, align = "left", bold = false, mono = false, max, fit = false } = {}) {
  g.font = `${bold ? "600 " : ""}${size}px ${mono ? theme.mono : theme.font}`;
  g.fillStyle = color ?? theme.text;
  g.textAlign = align;
  g.textBaseline = "middle";
  const width = max ? g.measureText(string).width : 0;
  if (fit && width > max) {
    g.font = g.font.replace(/[\d.]+px/, `${(size * max) / width}px`);
  } else if (max && width > max) {
    let cut = string;
    while (cut.length > 1 && g.measureText(cut + "…").width > max) cut = cut.slice(0, -1);
    string = cut + "…";
  }
  g.fillText(string, x, y);
}

export function panel(g, r, { fill, stroke, width = 1, radius = 8, dash } = {}) {
  g.beginPath();
  g.roundRect(r.x, r.y, r.w, r.h, Math.min(radius, r.w / 2, r.h / 2));
  if (fill) {
    g.fillStyle = fill;
    g.fill();
  }
  if (stroke) {
    g.setLineDash(dash ?? []);
    g.lineWidth = width;
    g.strokeStyle = stroke;
    g.stroke();
    g.setLineDash([]);
  }
}

export function hatch(g, r, color, step = 6) {
  g.save();
  g.beginPath();
  g.rect(r.x, r.y, r.w, r.h);
  g.clip();
  g.beginPath();
  for (let d = -r.h; d < r.w; d += step) {
    g.moveTo(r.x + d, r.y + r.h);
    g.lineTo(r.x + d + r.h, r.y);
  }
  g.lineWidth = 1;
  g.strokeStyle = color;
  g.stroke();
  g.restore();
}

/**
 * Off-screen pictures by name, repainted only when their key changes. `make(w, h)` creates a canvas.
 * `pixels(name, key, w, h, paint)` calls paint(Uint32Array of 0xAABBGGRR); `layer(name, key, w, h, paint)` paint(g).
 */
export class Pictures {
  constructor(make) {
    this.make = make;
    this.store = new Map();
  }
  get(name, w, h) {
    let entry = this.store.get(name);
    if (!entry || entry.canvas.width !== w || entry.canvas.height !== h) {
      entry = { canvas: this.make(w, h), key: null };
      this.store.set(name, entry);
    }
    return entry;
  }
  pixels(name, key, w, h, paint) {
    const entry = this.get(name, w, h);
    if (entry.key !== key) {
      entry.key = key;
      const g = entry.canvas.getContext("2d"), image = g.createImageData(w, h);
      paint(new Uint32Array(image.data.buffer));
      g.putImageData(image, 0, 0);
    }
    return entry.canvas;
  }
  layer(name, key, w, h, paint) {
    const entry = this.get(name, w, h);
    if (entry.key !== key) {
      const fresh = entry.key === null;
      entry.key = key;
      paint(entry.canvas.getContext("2d"), entry, fresh);
    }
    return entry.canvas;
  }
  clear() {
    this.store.clear();
  }
}

const ramps = new Map();

/** 256 colours from nearly the ground to the full colour, packed for ImageData. */
export function ramp(ground, color) {
  const name = ground + color;
  if (!ramps.has(name)) {
    const a = rgb(ground), b = rgb(color), out = new Uint32Array(256);
    for (let k = 0; k < 256; k++) {
      const u = 0.1 + 0.9 * (k / 255), [r, gr, bl] = a.map((x, c) => Math.round(x + (b[c] - x) * u));
      out[k] = 0xff000000 | (bl << 16) | (gr << 8) | r;
    }
    ramps.set(name, out);
  }
  return ramps.get(name);
}

/** Copy a small picture large, cell by cell, and rule it where the cells are large enough. */
export function blit(g, picture, r, rows, cols, ground) {
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, r.x, r.y, r.w, r.h);
  const cw = r.w / cols, ch = r.h / rows;
  if (Math.min(cw, ch) < 5) return;
  g.beginPath();
  for (let c = 1; c < cols; c++) {
    g.moveTo(r.x + c * cw, r.y);
    g.lineTo(r.x + c * cw, r.y + r.h);
  }
  for (let k = 1; k < rows; k++) {
    g.moveTo(r.x, r.y + k * ch);
    g.lineTo(r.x + r.w, r.y + k * ch);
  }
  g.lineWidth = 1;
  g.strokeStyle = ground;
  g.stroke();
}

/** Bytes in binary units, three digits. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0, v = n;
  while (v >= 1023.5 && k < 4) {
    v /= 1024;
    k++;
  }
  return `${k === 0 ? v.toFixed(0) : v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2)} ${units[k]}`;
}

/** A number with `digits` decimals; infinities as signs; very large or small ones in powers of ten. */
export function number(v, digits = 2) {
  if (v === Infinity) return "∞";
  if (v === -Infinity) return "−∞";
  if (Number.isNaN(v)) return "–";
  if (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 0.5 * 10 ** -digits)) return v.toExponential(1).replace("-", "−");
  return v.toFixed(digits).replace("-", "−");
}
