// Animated GIF (89a): a palette for all frames, only the changed rectangle of a frame, LZW. Pure: bytes in, bytes out.

const CLEAR_INDEX = 255; // the colour number that leaves a pixel as it was
const FREQUENT = 96, MOST_WEIGHED = 40000; // colours that are taken as they are; that may be taken at all

/**
 * The palette for pictures such as these (Uint32Arrays of 0xAABBGGRR): up to 255 of their colours, the frequent ones
 * first, then those that are far from all taken before. Returns {table: 768 bytes, indexOf(colour)}.
 */
export function palette(samples) {
  const count = new Map();
  for (const pixels of samples) for (const c of pixels) count.set(c & 0xffffff, (count.get(c & 0xffffff) ?? 0) + 1);
  const colors = [...count].sort((x, y) => y[1] - x[1] || x[0] - y[0]).map(([c]) => c);
  const taken = colors.slice(0, colors.length > CLEAR_INDEX ? FREQUENT : CLEAR_INDEX), rest = new Set(colors.slice(taken.length, MOST_WEIGHED));
  for (let apart = 40; apart >= 4 && taken.length < CLEAR_INDEX; apart /= 2) {
    for (const c of rest) {
      if (taken.length === CLEAR_INDEX) break;
      if (taken.every((other) => distance(c, other) >= apart * apart)) {
        taken.push(c);
        rest.delete(c);
      }
    }
  }
  const table = new Uint8Array(768);
  taken.forEach((c, k) => table.set([c & 255, (c >> 8) & 255, (c >> 16) & 255], 3 * k));
  const known = new Uint8Array(1 << 24), isKnown = new Uint8Array(1 << 21); // nearest colour, found once for each
  return {
    table,
    indexOf(c) {
      const color = c & 0xffffff;
      if (!((isKnown[color >> 3] >> (color & 7)) & 1)) {
        isKnown[color >> 3] |= 1 << (color & 7);
        let best = 0, least = Infinity;
        for (let k = 0; k < taken.length; k++) {
          const d = distance(color, taken[k]);
          if (d < least) [best, least] = [k, d];
        }
        known[color] = best;
      }
      return known[color];
    },
  };
}

function distance(a, b) {
  const r = (a & 255) - (b & 255), g = ((a >> 8) & 255) - ((b >> 8) & 255), bl = ((a >> 16) & 255) - ((b >> 16) & 255);
  return 2 * r * r + 4 * g * g + 3 * bl * bl; // the eye tells greens apart best
}

/** Writes frames of one size; `add(pixels, hundredths of a second)`, then `bytes()`. It plays again and again. */
export class Gif {
  constructor(width, height, colors) {
    Object.assign(this, { width, height, colors, before: null, chunks: [] });
    const head = [..."GIF89a"].map((c) => c.charCodeAt(0));
    head.push(...short(width), ...short(height), 0xf7, 0, 0);
    this.chunks.push(Uint8Array.from(head), colors.table);
    this.chunks.push(Uint8Array.from([0x21, 0xff, 11, ...[..."NETSCAPE2.0"].map((c) => c.charCodeAt(0)), 3, 1, 0, 0, 0]));
  }

  add(pixels, hundredths) {
    const { width, height, before } = this, index = new Uint8Array(width * height);
    for (let k = 0; k < index.length; k++) index[k] = this.colors.indexOf(pixels[k]);
    let [x0, y0, x1, y1] = [0, 0, width, height];
    if (before) {
      [x0, y0, x1, y1] = [width, height, 0, 0];
      for (let y = 0, k = 0; y < height; y++) for (let x = 0; x < width; x++, k++) if (index[k] !== before[k]) {
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x + 1);
        y0 = Math.min(y0, y);
        y1 = Math.max(y1, y + 1);
      }
      if (x1 <= x0) [x0, y0, x1, y1] = [0, 0, 1, 1]; // nothing changed: one pixel keeps the time
    }
    const part = new Uint8Array((x1 - x0) * (y1 - y0));
    for (let y = y0, n = 0; y < y1; y++) for (let x = x0; x < x1; x++, n++) {
      const k = y * width + x;
      part[n] = before && index[k] === before[k] ? CLEAR_INDEX : index[k];
    }
    const control = [0x21, 0xf9, 4, before ? 0x05 : 0x04, ...short(hundredths), CLEAR_INDEX, 0];
    const place = [0x2c, ...short(x0), ...short(y0), ...short(x1 - x0), ...short(y1 - y0), 0, 8];
    this.chunks.push(Uint8Array.from([...control, ...place]), lzw(part));
    this.before = index;
  }

  bytes() {
    return joined([...this.chunks, Uint8Array.of(0x3b)]);
  }
}

const short = (n) => [n & 255, (n >> 8) & 255];

/** Byte arrays one after the other. */
export function joined(chunks) {
  const out = new Uint8Array(chunks.reduce((sum, c) => sum + c.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    out.set(chunk, at);
    at += chunk.length;
  }
  return out;
}

/** Colour numbers (8 bits each) as GIF's LZW code, in blocks of at most 255 bytes. */
function lzw(index) {
  const CLEAR = 256, END = 257, MOST = 4096;
  const child = new Int16Array(MOST), next = new Int16Array(MOST), letter = new Uint8Array(MOST); // the words as a tree
  let size = 9, free = END + 1, bits = 0, held = 0, at = 0;
  const out = new Uint8Array(index.length * 2 + 64);
  const put = (code) => {
    bits |= code << held;
    held += size;
    while (held >= 8) {
      out[at++] = bits & 255;
      bits >>>= 8;
      held -= 8;
    }
  };
  const reset = () => {
    put(CLEAR);
    child.fill(-1);
    [size, free] = [9, END + 1];
  };
  reset();
  let word = index[0];
  for (let k = 1; k < index.length; k++) {
    const c = index[k];
    let found = child[word];
    while (found >= 0 && letter[found] !== c) found = next[found];
    if (found >= 0) {
      word = found;
      continue;
    }
    put(word);
    if (free === MOST) {
      reset();
    } else {
      if (free === 1 << size) size++;
      letter[free] = c;
      next[free] = child[word];
      child[word] = free++;
    }
    word = c;
  }
  put(word);
  if (free === 1 << size && size < 12) size++; // the reader has added a word by now, too
  put(END);
  if (held > 0) out[at++] = bits & 255;
  const blocks = [];
  for (let k = 0; k < at; k += 255) blocks.push(Uint8Array.of(Math.min(255, at - k)), out.subarray(k, Math.min(at, k + 255)));
  return joined([...blocks, Uint8Array.of(0)]);
}
