// What the picture shows at time t. Pure: the same data, time and focus give the same frame, however t was reached.
import { endOf } from "./decode.mjs";

/** Number of values <= t in a rising array. */
export function countUntil(values, t) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= t) low = middle + 1; else high = middle;
  }
  return low;
}

/** Bytes that have arrived by time t. */
export function bytesAt(meter, t) {
  const k = countUntil(meter.t, t);
  return k ? meter.sum[k - 1] : 0;
}

/** Of these, the bytes that were loaded, and the ones that came from HBM: {loaded, hbm}. */
export function readAt(meter, t) {
  const k = countUntil(meter.t, t);
  return k ? { loaded: meter.loaded[k - 1], hbm: meter.hbm[k - 1] } : { loaded: 0, hbm: 0 };
}

/** Who answers event e: "HBM" or "L2" for a load, null otherwise. */
export function answerOf(data, track, e) {
  return !data.meta.phases[track.phase[e]].load ? null : track.fromHbm[e] ? "HBM" : "L2";
}

/** The event that SM `sm` executes at time t, or -1; `before` is the last one that it has finished (or -1). */
export function eventAt(track, sm, t) {
  const blocks = track.bySm[sm] ?? [];
  let low = 0, high = blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.t0[track.first[blocks[middle]]] <= t) low = middle + 1; else high = middle;
  }
  if (!low) return { event: -1, before: -1, block: -1 };
  const block = blocks[low - 1], from = track.first[block];
  const stop = block + 1 < track.blocks ? track.first[block + 1] : track.count;
  if (t >= track.blockEnd[block]) return { event: -1, before: stop - 1, block };
  let a = from, b = stop;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (track.t0[middle] <= t) a = middle + 1; else b = middle;
  }
  return { event: a - 1, before: a - 2 >= from ? a - 2 : -1, block };
}

/** The moment that stands for t where nothing may move: the end of what SM `sm` is doing. */
export function stillAt(data, sm, t) {
  const { event } = eventAt(data.flash, sm, t);
  return event >= 0 ? settle(data.flash, event) : t;
}

/** How far an event has come at time t, 0 to 1. */
function progress(track, e, t) {
  const t0 = track.t0[e], t1 = endOf(track, e);
  return t1 > t0 ? Math.min(1, Math.max(0, (t - t0) / (t1 - t0))) : 1;
}

/** What one SM is doing: {sm, block, h, event, phase, answer, i, j, p, busy}. j is -1 where there is no K/V tile. */
function smAt(data, track, sm, t) {
  const { event, before, block } = eventAt(track, sm, t);
  const busy = event >= 0, e = busy ? event : before;
  if (e < 0) return { sm, block: -1, busy: false, event: -1, phase: null, answer: null, i: -1, j: -1, p: 0, h: 0 };
  const j = track.j[e], i = track.i[e];
  return {
    sm, block, busy, event: e, phase: data.meta.phases[track.phase[e]], p: busy ? progress(track, e, t) : 1,
    answer: busy ? answerOf(data, track, e) : null, i: i === track.noTile ? -1 : i, j: j === track.noTile ? -1 : j, h: track.head[block],
  };
}

const AFTER_SCORES = new Set(["m", "P", "O", "O_norm"]);

/**
 * The state of the worker in focus at its event: which tiles are resident, how far the visit has come, and the rows.
 * `exact` is the Q tile's place among those whose real numbers Python has sent, or -1.
 */
export function focusAt(data, sm, t) {
  const now = smAt(data, data.flash, sm, t);
  const { meta, flash } = data;
  if (now.event < 0) return { ...now, code: "", exact: -1, visit: -1, last: -1, line: -1, resident: {} };
  const code = now.phase.code, inVisit = now.j >= 0 && (code === "S" || AFTER_SCORES.has(code));
  const isOver = code === "normalize" || code.startsWith("store_");
  return {
    ...now, code, resident: residentAt(data, now), exact: data.exactTile.get(now.h * meta.Tr + now.i) ?? -1,
    visit: inVisit ? now.j : -1, // the visit whose scores are in shared memory and being worked on
    last: now.j < 0 ? -1 : isOver ? now.j : previousVisit(data, now), // the visit whose results the rows hold
    line: meta.lines.findIndex((line) => line.phases.includes(flash.phase[now.event])),
  };
}

/** The K/V tile that this Q tile visited last before tile j (-1: none). */
export function previousVisit({ meta, visits }, { h, i, j }) {
  const base = (h * meta.Tr + i) * meta.Tc;
  if (i < 0) return -1;
  for (let k = j - 1; k >= 0; k--) if (visits.score[base + k] >= 0) return k;
  return -1;
}

/** Which tiles lie in the worker's shared memory: slot -> {tile, p, answer} with p < 1 while it is being loaded. */
function residentAt(data, now) {
  const { flash, meta } = data;
  const slots = {}, from = flash.first[now.block];
  for (let e = now.event; e >= from; e--) {
    const phase = meta.phases[flash.phase[e]], p = e === now.event ? now.p : 1;
    if (phase.load && "QKV".includes(phase.tensor)) {
      slots[phase.tensor] ??= { tile: phase.tensor === "Q" ? flash.i[e] : flash.j[e], p, answer: answerOf(data, flash, e) };
    } else if (phase.code === "S") {
      slots.S ??= { tile: flash.j[e], i: flash.i[e], p };
    }
    if (slots.K && slots.V && slots.S) {
      if (slots.Q) break;
      if (meta.order === "q-outer") e = from + 1; // Q was loaded by the block's first event
    }
  }
  return slots;
}

/** Everything that moves, at time t, for the tiles view. */
export function frameAt(data, t, ui) {
  const sms = [];
  for (let s = 0; s < data.meta.sms; s++) sms.push(smAt(data, data.flash, s, t));
  return {
    t, sms, focus: focusAt(data, ui.focus, t), meters: metersAt(data, t),
    doneVisits: countUntilBy(data.visits.order, data.visits.doneAt, t),
  };
}

/** Everything that moves, at time t, for the race. */
export function raceAt(data, t, ui) {
  const frame = frameAt(data, t, ui);
  frame.naive = [];
  for (let s = 0; s < data.meta.sms; s++) frame.naive.push(smAt(data, data.naive, s, t));
  frame.kernel = Math.max(0, ...frame.naive.map((n) => (n.event < 0 ? 0 : kernelOf(data, n))));
  frame.naiveDone = naiveDone(data, t);
  return frame;
}

function kernelOf(data, n) {
  return { load_Q: 0, load_K: 0, S: 0, store_S: 0, load_S: 1, softmax: 1, store_P: 1 }[n.phase.code] ?? 2;
}

/** How many S and P tiles (of all heads) naive attention has stored: they are stored in rising time. */
function naiveDone(data, t) {
  data.naiveStores ??= { S: stores(data, "store_S"), P: stores(data, "store_P"), O: stores(data, "store_O") };
  const out = {};
  for (const [name, { times, tiles }] of Object.entries(data.naiveStores)) out[name] = { count: countUntil(times, t), tiles };
  return out;
}

function stores(data, code) {
  const { naive, meta } = data, list = [];
  for (let e = 0; e < naive.count; e++) {
    if (meta.phases[naive.phase[e]].code !== code) continue;
    const h = naive.head[naive.blockOf[e]];
    list.push([endOf(naive, e), (h * meta.Tr + naive.i[e]) * meta.Tc + (code === "store_O" ? 0 : naive.j[e])]);
  }
  list.sort((x, y) => x[0] - y[0]);
  return { times: Float64Array.from(list, (x) => x[0]), tiles: Uint32Array.from(list, (x) => x[1]) };
}

function metersAt(data, t) {
  const { flashMeter: flash, naiveMeter: naive } = data;
  return { flash: bytesAt(flash, t), naive: bytesAt(naive, t), read: { flash: readAt(flash, t), naive: readAt(naive, t) } };
}

function countUntilBy(order, key, t) {
  let low = 0, high = order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key[order[middle]] <= t) low = middle + 1; else high = middle;
  }
  return low;
}

// --- stepping ---------------------------------------------------------------------------------------------------

/** A time inside event e that shows its result: just before its end, and never at its very start. */
export function settle(track, e) {
  const t0 = track.t0[e], t1 = endOf(track, e);
  return t1 > t0 ? t0 + (t1 - t0) * 0.995 : t0;
}

/** The event of SM `sm` before (direction -1) or after (+1) the one at time t, across its blocks; -1 at the ends. */
export function neighbour(track, sm, t, direction) {
  const blocks = track.bySm[sm] ?? [], { event, before, block } = eventAt(track, sm, t);
  if (!blocks.length) return -1;
  if (block < 0) return direction > 0 ? track.first[blocks[0]] : -1;
  const stop = (b) => (b + 1 < track.blocks ? track.first[b + 1] : track.count);
  const at = blocks.indexOf(block);
  let e = event;
  if (event < 0) {
    if (direction < 0) return before;
    e = stop(block) - 1;
  }
  if (direction > 0) return e + 1 < stop(block) ? e + 1 : at + 1 < blocks.length ? track.first[blocks[at + 1]] : -1;
  return e - 1 >= track.first[block] ? e - 1 : at > 0 ? stop(blocks[at - 1]) - 1 : -1;
}

/** The event that ends the next (or previous) visit of SM `sm`: its "O = ..." phase; -1 at the ends. */
export function neighbourVisit(data, sm, t, direction) {
  const { flash, meta } = data;
  let time = t;
  for (let guard = 0; guard < flash.count; guard++) {
    const e = neighbour(flash, sm, time, direction);
    if (e < 0) return -1;
    const code = meta.phases[flash.phase[e]].code;
    if (code === "O" || code === "O_norm") return e;
    time = settle(flash, e);
  }
  return -1;
}

/** The event of the visit of tile (h, i, j) at which its scores exist; -1 where the mask skips the tile. */
export function visitEvent(data, h, i, j) {
  return data.visits.score[(h * data.meta.Tr + i) * data.meta.Tc + j];
}

/**
 * Simulated microseconds per second of playing, at time t. Every phase of the SM in focus takes `phaseSeconds` on
 * screen, long or short; where that SM is idle, and in a race, the whole run takes `runSeconds`.
 */
function rate(data, focus, t, { phaseSeconds, runSeconds, race }) {
  const even = data.end / runSeconds;
  if (race) return even;
  const { event } = eventAt(data.flash, focus, t);
  if (event < 0) return even;
  const duration = endOf(data.flash, event) - data.flash.t0[event];
  return Math.max(duration, data.end * 1e-7) / phaseSeconds;
}

/** Move t forward by `seconds` of playing; crosses phases at their own rates. Returns the new time, at most data.end. */
export function advance(data, focus, t, seconds, pace) {
  let left = seconds, now = t;
  for (let guard = 0; guard < 200 && left > 0 && now < data.end; guard++) {
    const r = rate(data, focus, now, pace);
    const { event } = eventAt(data.flash, focus, now);
    const stop = pace.race || event < 0 ? Infinity : endOf(data.flash, event);
    const need = (stop - now) / r;
    if (need > left || stop === Infinity) {
      now += left * r;
      left = 0;
    } else {
      left -= Math.max(need, 1e-6);
      now = nextAfter(stop, now);
    }
  }
  return Math.min(now, data.end);
}

/** A time that is not before `stop` and truly after `now`, whatever the rounding. */
function nextAfter(stop, now) {
  return stop > now ? stop : now + Math.max(Math.abs(now) * 1e-12, 1e-15);
}
