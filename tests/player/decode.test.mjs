import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, endOf, header, nbytesOf } from "../../fmha/player/frontend/decode.mjs";
import { bytesAt } from "../../fmha/player/frontend/frame.mjs";
import { bytesOf, payload } from "./helpers.mjs";

test("the header tells new data from old without decoding", () => {
  assert.equal(header(bytesOf()), header(bytesOf()));
  assert.notEqual(header(bytesOf()), header(bytesOf({ causal: "bottom-right" })));
});

test("an unaligned view decodes like an aligned one", () => {
  const whole = bytesOf(), shifted = new Uint8Array(whole.length + 3);
  shifted.set(whole, 3);
  const data = decode(shifted.subarray(3));
  assert.deepEqual([...data.flash.t0], [...payload().flash.t0]);
});

test("meters end at the totals that Python counted", () => {
  for (const settings of [{}, { causal: "bottom-right" }, { order: "kv-outer" }, { N: 30, H: 2 }]) {
    const data = payload(settings);
    assert.equal(data.flashMeter.total, data.meta.total.flash);
    assert.equal(data.naiveMeter.total, data.meta.total.naive);
  }
});

test("bytes of the events add up to the meter, initialisation apart", () => {
  const data = payload({ order: "kv-outer" });
  let sum = 0;
  for (let e = 0; e < data.flash.count; e++) {
    const phase = data.meta.phases[data.flash.phase[e]];
    if ((phase.load || phase.store) && !phase.code.startsWith("init_")) sum += nbytesOf(data.flash, e);
  }
  assert.equal(sum, data.meta.total.flash);
});

test("an SM's blocks follow one another and events fill them without a gap", () => {
  const { flash } = payload({ N: 64, Br: 4 });
  for (const blocks of flash.bySm) {
    for (let k = 1; k < blocks.length; k++) assert.ok(flash.t0[flash.first[blocks[k]]] >= flash.blockEnd[blocks[k - 1]] - 1e-9);
  }
  for (let e = 0; e < flash.count; e++) assert.ok(endOf(flash, e) >= flash.t0[e]);
});

test("every visible tile is a visit, every skipped one is not", () => {
  const data = payload({ causal: "bottom-right", N: 30 }), { kinds } = data.a;
  kinds.forEach((kind, tile) => {
    assert.equal(data.visits.score[tile] >= 0, kind !== 0);
    assert.equal(Number.isFinite(data.visits.doneAt[tile]), kind !== 0);
  });
  assert.equal(data.visits.order.length, kinds.filter((k) => k).length);
});

test("at the end everything has arrived and everything is stored, also in a race", () => {
  const settings = [{}, { sms: 4 }, { causal: "top-left" }, { N: 64, d: 16 }, { order: "kv-outer" }, { input: "worked", N: 4, d: 4, Br: 2, Bc: 2 },
    { input: "sentence", N: 16, d: 32, Br: 8, Bc: 8 }, { N: 128, Br: 8, Bc: 8, sms: 16 }];
  for (const s of settings) {
    const data = payload({ race: true, ...s });
    assert.equal(bytesAt(data.flashMeter, data.meta.end.flash), data.meta.total.flash, JSON.stringify(s));
    assert.equal(bytesAt(data.naiveMeter, data.end), data.meta.total.naive, JSON.stringify(s));
    for (const t of data.visits.storedAt) assert.ok(t <= data.meta.end.flash);
  }
});
