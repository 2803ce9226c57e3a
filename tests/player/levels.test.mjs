// Who answers a load, waves and idle SMs: what is decoded, and what the picture says about it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { endOf, nbytesOf } from "../../fmha/player/frontend/decode.mjs";
import { draw } from "../../fmha/player/frontend/draw.mjs";
import { passesL2 } from "../../fmha/player/frontend/draw_l2.mjs";
import { drawRace, raceLayout } from "../../fmha/player/frontend/draw_race.mjs";
import { idleOf } from "../../fmha/player/frontend/draw_timeline.mjs";
import { answerOf, eventAt, focusAt, frameAt, raceAt, readAt, settle } from "../../fmha/player/frontend/frame.mjs";
import { layout, wantedHeight } from "../../fmha/player/frontend/layout.mjs";
import { Pictures } from "../../fmha/player/frontend/paint.mjs";
import { fakeCanvas, fakeContext, payload, theme } from "./helpers.mjs";

const ui = { focus: 0, row: 0, column: 0 };
const loads = (data) => Array.from({ length: data.flash.count }, (_, e) => e).filter((e) => data.meta.phases[data.flash.phase[e]].load);

function picture(data, t, { race = false, width = 1100 } = {}) {
  const g = fakeContext(), height = wantedHeight(width, data.meta.sms, race), pictures = new Pictures(fakeCanvas);
  const L = race ? raceLayout(width, height, data) : layout(width, height, data);
  L.pixels = 1;
  if (race) drawRace(g, L, data, raceAt(data, t, ui), theme(data), pictures);
  else draw(g, L, data, frameAt(data, t, ui), theme(data), pictures, ui);
  const lanes = [...pictures.store].filter(([name]) => name.endsWith("-all")).flatMap(([, entry]) => entry.canvas.log);
  const words = (log) => log.filter((c) => c[0] === "fillText").map((c) => c[1]);
  return { log: g.log, words: words(g.log), lanes: words(lanes) };
}

test("without L2 every load comes from HBM; where all fits, the first touch of a tile only", () => {
  const none = payload({ l2: 0 }), all = payload({ l2: 1 << 30 });
  assert.ok(loads(none).every((e) => answerOf(none, none.flash, e) === "HBM"));
  const seen = new Set();
  for (const e of loads(all).sort((x, y) => all.flash.t0[x] - all.flash.t0[y] || x - y)) {
    const name = all.meta.phases[all.flash.phase[e]].tensor, tile = name + (name === "Q" ? all.flash.i[e] : all.flash.j[e]);
    assert.equal(answerOf(all, all.flash, e), seen.has(tile) ? "L2" : "HBM", tile);
    seen.add(tile);
  }
});

test("an event that loads nothing has no answer", () => {
  const data = payload({ l2: 0 });
  for (let e = 0; e < data.flash.count; e++) {
    assert.equal(answerOf(data, data.flash, e) === null, !data.meta.phases[data.flash.phase[e]].load);
  }
});

test("bytes from HBM add up by the same flags, for both runs, and never exceed what was loaded", () => {
  for (const l2 of [0, 700, 4096, 1 << 30]) for (const order of ["q-outer", "kv-outer"]) {
    const data = payload({ l2, order });
    const sum = loads(data).filter((e) => data.flash.fromHbm[e]).reduce((n, e) => n + nbytesOf(data.flash, e), 0);
    assert.equal(readAt(data.flashMeter, data.end).hbm, sum);
    for (const [meter, name] of [[data.flashMeter, "flash"], [data.naiveMeter, "naive"]]) {
      assert.equal(readAt(meter, data.end).hbm, data.meta.l2.read[name]);
      let before = { loaded: 0, hbm: 0 };
      for (let k = 0; k <= 40; k++) {
        const now = readAt(meter, (data.end * k) / 40);
        assert.ok(now.hbm <= now.loaded && now.hbm >= before.hbm && now.loaded >= before.loaded);
        before = now;
      }
    }
    if (l2 === 0) assert.equal(readAt(data.flashMeter, data.end).hbm, readAt(data.flashMeter, data.end).loaded);
  }
});

test("the focus says who answers while it loads, and where resident tiles came from", () => {
  const data = payload({ l2: 0, sms: 1 });
  for (const e of loads(data)) {
    const f = focusAt(data, 0, settle(data.flash, e));
    assert.equal(f.answer, "HBM");
    assert.equal(f.resident[f.phase.tensor].answer, "HBM");
  }
  const end = focusAt(data, 0, data.end * 2);
  assert.equal(end.answer, null);
});

test("a hit and a miss differ in words, not in colour only, and only a miss comes out of HBM's shelf", () => {
  for (const [l2, word, other] of [[0, "from HBM", "L2 hit"], [1 << 30, "L2 hit", "from HBM"]]) {
    const data = payload({ l2, sms: 1, race: false }), { flash } = data;
    const e = loads(data).at(-1), early = flash.t0[e] + (endOf(flash, e) - flash.t0[e]) * 0.02;
    const { words, log } = picture(data, early);
    assert.ok(words.some((w) => w.startsWith("SM 0") && w.endsWith(word)), words.join("|"));
    assert.ok(words.some((w) => w.startsWith("load V") && w.endsWith(word)));
    const count = (w) => words.filter((x) => x === w).length;
    assert.ok(count(word) >= 4 && count(other) === 1, `${count(word)} ${count(other)}`); // the other one in the legend only
    // the travelling tile: at the start of a miss it lies on V's shelf, at the start of a hit in L2
    const L = layout(1100, wantedHeight(1100, 1, false), data), boxes = log.filter((c) => c[0] === "roundRect");
    const j = flash.j[e], shelf = { x: L.shelves.V.x + 2, y: L.shelves.V.y + j * L.shelves.V.h + 1 };
    const near = boxes.filter((c) => Math.hypot(c[1] - shelf.x, c[2] - shelf.y) < 3).length;
    assert.equal(near, l2 === 0 ? 2 : 1, "drawn on the shelf: the outline of what is in use, and the tile on its way");
  }
});

test("a store goes on to HBM only where L2 has no room for the tile", () => {
  for (const [l2, passes] of [[0, true], [255, true], [256, false]]) {
    const data = payload({ l2 }), { flash, meta } = data;
    const store = Array.from({ length: flash.count }, (_, e) => e).find((e) => meta.phases[flash.phase[e]].code === "store_O");
    assert.equal(nbytesOf(flash, store), 256);
    assert.equal(passesL2(data, store), passes);
  }
});

test("the picture tells how many loads were hits so far and what L2 holds", () => {
  const data = payload({ l2: 4096, sms: 1 }), { words } = picture(data, data.end);
  const { loaded, hbm } = readAt(data.flashMeter, data.end);
  assert.ok(words.includes(`${Math.round((100 * (loaded - hbm)) / loaded)} %`) && words.includes("holds 4.00 KiB"));
  assert.ok(picture(payload({ l2: 0 }), 0).words.includes("holds nothing"));
  assert.ok(words.filter((w) => / from HBM$/.test(w) && /\d/.test(w)).length === 2, "both meters say it");
  assert.ok(picture(data, data.end, { width: 380 }).words.some((w) => /^from HBM: naive .*, flash /.test(w)));
});

test("idle times are what lies between the blocks of an SM", () => {
  const data = payload({ N: 24, sms: 2 }), { flash } = data; // 3 blocks on 2 SMs
  const lone = flash.bySm.findIndex((blocks) => blocks.length === 1);
  assert.deepEqual(idleOf(flash, 1 - lone, flash.end), []);
  const [[from, to]] = idleOf(flash, lone, flash.end);
  assert.ok(Math.abs(to - flash.end) < 1e-9 && Math.abs(from - flash.end / 2) < flash.end * 0.01);
  assert.deepEqual(idleOf({ ...flash, bySm: [[]] }, 0, 7), [[0, 7]]);
  for (let k = 0; k < 40; k++) {
    const t = (flash.end * (k + 0.5)) / 40, isIdle = idleOf(flash, lone, flash.end).some(([a, b]) => t > a && t < b);
    assert.equal(isIdle, eventAt(flash, lone, t).event < 0);
  }
});

test("waves and idle SMs are named", () => {
  const { words, lanes } = picture(payload({ N: 24, sms: 2 }), 0);
  assert.ok(words.includes("wave 1") && words.includes("wave 2"), words.join("|"));
  assert.ok(words.includes("2 waves, the last on 1 of 2 SMs; SMs idle 25 % of the time"), words.join("|"));
  assert.ok(lanes.includes("idle"));
  assert.ok(picture(payload({ N: 8, sms: 2 }), 0).words.includes("1 wave on 1 of 2 SMs; SMs idle 50 % of the time"));
  const full = picture(payload({ sms: 2 }), 0);
  assert.ok(full.words.includes("2 waves; SMs idle 0 % of the time") && !full.lanes.includes("idle"), full.words.join("|"));
  const race = picture(payload({ N: 24, sms: 2 }), 0, { race: true }).words;
  assert.ok(["kernel 1", "kernel 2", "kernel 3", "wave 2"].every((w) => race.includes(w)), race.join("|"));
});
