import assert from "node:assert/strict";
import { test } from "node:test";
import { pace } from "../../fmha/player/frontend/controller.mjs";
import { filmTimes } from "../../fmha/player/frontend/film.mjs";
import { eventAt } from "../../fmha/player/frontend/frame.mjs";
import { fileName } from "../../fmha/player/frontend/save.mjs";
import { payload } from "./helpers.mjs";

test("a film runs from the start to the end, forwards, whatever the run", () => {
  for (const settings of [{}, { order: "kv-outer" }, { N: 64, Br: 1, Bc: 1, sms: 1 }, { N: 1, d: 1, Br: 1, Bc: 1, sms: 1 }]) {
    const data = payload(settings);
    for (const film of [{ seconds: 6, fps: 10 }, { seconds: 1, fps: 30 }]) {
      const times = filmTimes(data, 0, pace(data), film);
      assert.equal(times.length, film.seconds * film.fps);
      assert.equal(times[0], 0);
      assert.equal(times.at(-1), data.end);
      for (let k = 1; k < times.length; k++) assert.ok(times[k] >= times[k - 1]);
    }
  }
});

test("phases of the worker in focus take equally long, short or not", () => {
  const data = payload({ race: false }), times = filmTimes(data, 0, pace(data), { seconds: 60, fps: 30 }), frames = new Map();
  for (const t of times) {
    const { event } = eventAt(data.flash, 0, t);
    if (event >= 0) frames.set(event, (frames.get(event) ?? 0) + 1);
  }
  const counts = [...frames.values()].slice(1, -1);
  assert.ok(counts.length > 20);
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 2, String(counts));
});

test("a file's name says what was run", () => {
  const { meta } = payload({ causal: "bottom-right", N: 30, race: false });
  assert.match(fileName({ meta }, "gif"), /^fmha-q-outer-N30-d\d+-Br\d+-Bc\d+-causal\.gif$/);
});
