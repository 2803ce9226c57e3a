import assert from "node:assert/strict";
import { test } from "node:test";
import { endOf } from "../../fmha/player/frontend/decode.mjs";
import { advance, bytesAt, countUntil, eventAt, focusAt, frameAt, neighbour, neighbourVisit, raceAt, settle, stillAt, visitEvent } from "../../fmha/player/frontend/frame.mjs";
import { payload } from "./helpers.mjs";

const ui = { focus: 0, row: 0, column: 0 };
const every = (data, n = 97) => Array.from({ length: n }, (_, k) => (data.end * k) / (n - 1));

test("countUntil is the number of values up to and including t", () => {
  assert.deepEqual([-1, 0, 0.5, 1, 2, 9].map((t) => countUntil([0, 1, 1, 2], t)), [0, 1, 1, 3, 4, 4]);
  assert.equal(countUntil([], 1), 0);
});

test("the frame depends on time only, not on the way there", () => {
  const data = payload({ N: 30, H: 2, causal: "bottom-right", sms: 3 });
  const forward = every(data).map((t) => JSON.stringify(raceAt(data, t, ui)));
  const backward = every(data).reverse().map((t) => JSON.stringify(raceAt(data, t, ui))).reverse();
  assert.deepEqual(forward, backward);
});

test("the event at t is the one that begins last before t on that SM", () => {
  const data = payload({ N: 64, sms: 3 }), { flash } = data;
  for (const t of every(data)) for (let sm = 0; sm < 3; sm++) {
    const { event } = eventAt(flash, sm, t);
    let wanted = -1;
    for (let e = 0; e < flash.count; e++) {
      if (flash.sm[flash.blockOf[e]] === sm && flash.t0[e] <= t && t < endOf(flash, e)) wanted = e;
    }
    assert.equal(event, wanted);
  }
});

test("bytes never fall, start at 0 and end at the total", () => {
  const data = payload();
  let last = 0;
  for (const t of every(data)) {
    const now = bytesAt(data.flashMeter, t);
    assert.ok(now >= last);
    last = now;
  }
  assert.equal(bytesAt(data.flashMeter, -1), 0);
  assert.equal(bytesAt(data.flashMeter, data.meta.end.flash * 1.001), data.meta.total.flash);
});

test("stepping forward visits every event of the SM in order, and back again", () => {
  for (const settings of [{}, { order: "kv-outer" }, { N: 30, H: 2, causal: "bottom-right", sms: 3 },
    { N: 64, d: 128, Br: 1, Bc: 1, sms: 1, race: false }, { N: 32, d: 32, Br: 1, Bc: 1, sms: 1, order: "kv-outer" }]) {
    const data = payload(settings), { flash } = data;
    const wanted = flash.bySm[0].flatMap((b) => {
      const stop = b + 1 < flash.blocks ? flash.first[b + 1] : flash.count;
      return Array.from({ length: stop - flash.first[b] }, (_, k) => flash.first[b] + k);
    });
    const walk = (direction, from) => {
      const seen = [];
      for (let t = from; ;) {
        const e = neighbour(flash, 0, t, direction);
        if (e < 0) return seen;
        seen.push(e);
        t = settle(flash, e);
      }
    };
    assert.deepEqual(walk(1, -1), wanted);
    assert.deepEqual(walk(-1, data.end + 1), [...wanted].reverse());
  }
});

test("stepping by tile stops at the end of each visit", () => {
  const data = payload({ causal: "bottom-right" });
  const e = neighbourVisit(data, 0, 0, 1);
  assert.equal(data.meta.phases[data.flash.phase[e]].code, "O");
  assert.equal(neighbourVisit(data, 0, data.end, 1), -1);
});

test("visitEvent finds the scores of a tile and refuses a skipped one", () => {
  const data = payload({ causal: "bottom-right" });
  const e = visitEvent(data, 0, 3, 1);
  assert.deepEqual([data.flash.i[e], data.flash.j[e], data.meta.phases[data.flash.phase[e]].code], [3, 1, "S"]);
  assert.equal(visitEvent(data, 0, 0, 7), -1);
});

test("the worker in focus: resident tiles and the visit whose results hold", () => {
  const data = payload(), { flash, meta } = data;
  for (const b of flash.bySm[0]) for (let e = flash.first[b]; e < (b + 1 < flash.blocks ? flash.first[b + 1] : flash.count); e++) {
    const f = focusAt(data, 0, settle(flash, e)), code = meta.phases[flash.phase[e]].code;
    assert.equal(f.code, code);
    if (code === "load_K") assert.equal(f.last, f.j - 1);
    if (code === "S") assert.deepEqual([f.resident.K.tile, f.resident.V.tile, f.resident.Q.tile, f.visit, f.last], [f.j, f.j, f.i, f.j, f.j - 1]);
    if (code === "normalize" || code === "store_O") assert.deepEqual([f.visit, f.last], [-1, meta.Tc - 1]);
  }
});

test("playing reaches the end from anywhere, and never runs backwards", () => {
  for (const race of [false, true]) {
    const data = payload({ N: 64, causal: "bottom-right", race }), pace = { phaseSeconds: 0.4, runSeconds: 24, race };
    let t = 0, frames = 0;
    while (t < data.end && frames < 1e5) {
      const next = advance(data, 0, t, 1 / 60, pace);
      assert.ok(next > t, `stuck at ${t}`);
      t = next;
      frames++;
    }
    assert.equal(t, data.end);
  }
});

test("each phase of the SM in focus takes the same time on screen", () => {
  const data = payload(), pace = { phaseSeconds: 0.5, runSeconds: 24, race: false }, { flash } = data;
  let t = 0;
  for (let k = 0; k < 8; k++) {
    const next = advance(data, 0, t, 0.5, pace);
    assert.ok(Math.abs(next - endOf(flash, eventAt(flash, 0, t).event)) < 1e-6 * data.end);
    t = next + 1e-9 * data.end;
  }
});

test("naive stores all of S before any of P, and O last", () => {
  const data = payload();
  for (const t of every(data)) {
    const { S, P, O } = raceAt(data, t, ui).naiveDone;
    if (P.count) assert.equal(S.count, S.tiles.length);
    if (O.count) assert.equal(P.count, P.tiles.length);
  }
});

test("frames exist for 1-sized everything", () => {
  for (const settings of [{ N: 1, d: 1, Br: 1, Bc: 1, sms: 1 }, { N: 5, Br: 8, Bc: 8 }, { N: 3, Br: 1, Bc: 1, sms: 64 }]) {
    const data = payload(settings);
    for (const t of every(data, 31)) frameAt(data, t, ui);
  }
});

test("shared memory never shows the scores of another Q tile", () => {
  const data = payload({ order: "kv-outer", sms: 1 }), { flash } = data;
  for (let e = 0; e < flash.count; e++) {
    const f = focusAt(data, 0, settle(flash, e)), { S } = f.resident;
    if (S && f.visit >= 0) assert.deepEqual([S.i, S.tile], [f.i, f.j]);
    if (S && data.meta.phases[flash.phase[e]].code === "load_Q") assert.equal(S.i === f.i, data.meta.Tr === 1);
  }
});

test("where nothing may move, all moments of a phase show the same picture: its end", () => {
  const data = payload({ N: 64, sms: 3 }), { flash } = data;
  for (const t of every(data)) {
    const { event } = eventAt(flash, 1, t), still = stillAt(data, 1, t);
    if (event < 0) assert.equal(still, t);
    else {
      assert.equal(still, stillAt(data, 1, flash.t0[event]));
      assert.equal(eventAt(flash, 1, still).event, event);
      assert.ok(still >= t || endOf(flash, event) - still < 1e-3 * (endOf(flash, event) - flash.t0[event]) + 1e-9);
    }
  }
});
