// Bytes from Python -> typed arrays, and the indexes that make "what happens at time t" a binary search.

const TYPES = { u1: Uint8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };

/** The header alone: cheap, to see whether new bytes are new data. */
export function header(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  return new TextDecoder().decode(bytes.subarray(4, 4 + length));
}

/** A packed payload (see packing.py) as {meta, arrays by name, flash, naive, ...}. */
export function decode(bytes) {
  const buffer = bytes.slice().buffer; // a copy: Streamlit's view is not aligned
  const length = new DataView(buffer).getUint32(0, true);
  const { meta, arrays } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const a = {};
  for (const [name, { type, shape, offset }] of Object.entries(arrays)) {
    a[name] = new TYPES[type](buffer, 4 + length + offset, shape.reduce((x, y) => x * y, 1));
    a[name].shape = shape;
  }
  // Times are whole ticks, the same for all tables: equal moments stay equal, and no phase loses its length.
  for (const name of Object.keys(a)) if (/_(t0|block_end|meter_t)$/.test(name)) a[name] = Float64Array.from(a[name], (x) => x * meta.tick);
  for (const name of Object.keys(meta.end)) meta.end[name] *= meta.tick;
  for (const waves of Object.values(meta.waves)) if (waves) waves.begins = waves.begins.map(([t, kernel, wave]) => ({ t: t * meta.tick, kernel, wave }));
  const data = { meta, a };
  data.flash = track(a, "f", meta.sms, meta.end.flash);
  data.naive = a.n_t0 ? track(a, "n", meta.sms, meta.end.naive) : null;
  data.flashMeter = meter(a, "f");
  data.naiveMeter = meter(a, "n");
  data.visits = visits(data);
  data.exactTile = new Map(meta.exact.map(([h, i], x) => [h * meta.Tr + i, x]));
  data.end = meta.race ? Math.max(meta.end.flash, meta.end.naive) : meta.end.flash;
  return data;
}

/** Events of one run, and for every SM its blocks in the order in which it runs them. */
function track(a, p, sms, end) {
  const first = a[p + "_block_first"], t0 = a[p + "_t0"], count = t0.length, blocks = first.length;
  const sm = a[p + "_block_sm"], bySm = Array.from({ length: sms }, () => []);
  for (let b = 0; b < blocks; b++) bySm[sm[b]].push(b);
  for (const list of bySm) list.sort((x, y) => t0[first[x]] - t0[first[y]]);
  const blockOf = new Uint32Array(count);
  for (let b = 0; b < blocks; b++) blockOf.fill(b, first[b], b + 1 < blocks ? first[b + 1] : count);
  const none = (array) => (array instanceof Uint8Array ? 255 : 65535);
  return {
    t0, count, blocks, first, bySm, blockOf, sm, end,
    blockEnd: a[p + "_block_end"], head: a[p + "_block_h"],
    fromHbm: bits(a[p + "_hbm"], count), // 1: a load that L2 could not answer
    phase: a[p + "_phase"], i: a[p + "_i"], j: a[p + "_j"],
    noTile: none(a[p + "_j"]), nbytesTable: a[p + "_nbytes_table"], nbytesIndex: a[p + "_nbytes"],
  };
}

/** Arrival times and running sums: all bytes, those that were loaded, and of these the ones from HBM. */
function meter(a, p) {
  const t = a[p + "_meter_t"], index = a[p + "_meter_nbytes"], table = a[p + "_meter_nbytes_table"], count = t.length;
  const isLoad = bits(a[p + "_meter_load"], count), isHbm = bits(a[p + "_meter_hbm"], count);
  const sum = new Float64Array(count), loaded = new Float64Array(count), hbm = new Float64Array(count);
  let total = 0, loads = 0, misses = 0;
  for (let k = 0; k < count; k++) {
    const nbytes = table[index[k]];
    sum[k] = total += nbytes;
    loaded[k] = loads += isLoad[k] ? nbytes : 0;
    hbm[k] = misses += isHbm[k] ? nbytes : 0;
  }
  return { t, sum, loaded, hbm, total };
}

/** Bits as NumPy packs them (the highest of a byte first), one a byte. */
function bits(packed, count) {
  const out = new Uint8Array(count);
  for (let k = 0; k < count; k++) out[k] = (packed[k >> 3] >> (7 - (k & 7))) & 1;
  return out;
}

/** Every visit of the flash run: its tile and the events it runs from and to; and when each tile is done. */
function visits({ meta, a, flash }) {
  const isScore = meta.phases.map((p) => p.code === "S");
  const isLast = meta.phases.map((p) => p.code === "O" || p.code === "O_norm");
  const { Tr, Tc } = meta, H = meta.problem.H;
  const doneAt = new Float64Array(H * Tr * Tc).fill(Infinity);
  const score = new Int32Array(H * Tr * Tc).fill(-1), storedAt = new Float64Array(H * Tr).fill(Infinity);
  const list = [];
  for (let e = 0; e < flash.count; e++) {
    const h = flash.head[flash.blockOf[e]], code = flash.phase[e];
    if (isScore[code]) {
      const tile = (h * Tr + flash.i[e]) * Tc + flash.j[e];
      score[tile] = e;
    } else if (isLast[code]) {
      const tile = (h * Tr + flash.i[e]) * Tc + flash.j[e];
      doneAt[tile] = endOf(flash, e);
      list.push(tile);
    } else if (meta.phases[code].code === "store_O") {
      storedAt[h * Tr + flash.i[e]] = endOf(flash, e); // kv-outer stores on every visit: the last one stays
    }
  }
  list.sort((x, y) => doneAt[x] - doneAt[y]);
  return { doneAt, score, storedAt, order: Uint32Array.from(list) };
}

/** End time of an event: the start of the next one, or the end of its block. */
export function endOf(track, e) {
  const b = track.blockOf[e];
  return e + 1 < track.count && track.blockOf[e + 1] === b ? track.t0[e + 1] : track.blockEnd[b];
}

/** Bytes of an event. */
export function nbytesOf(track, e) {
  return track.nbytesTable[track.nbytesIndex[e]];
}
