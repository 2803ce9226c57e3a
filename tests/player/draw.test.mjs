import assert from "node:assert/strict";
import { test } from "node:test";
import { draw } from "../../fmha/player/frontend/draw.mjs";
import { formulaLines, rowState } from "../../fmha/player/frontend/draw_focus.mjs";
import { drawRace, raceLayout } from "../../fmha/player/frontend/draw_race.mjs";
import { focusAt, frameAt, raceAt, settle, visitEvent } from "../../fmha/player/frontend/frame.mjs";
import { hit, layout, shelfTile, wantedHeight } from "../../fmha/player/frontend/layout.mjs";
import { Pictures, bytes, number } from "../../fmha/player/frontend/paint.mjs";
import { makeTheme, toHex } from "../../fmha/player/frontend/theme.mjs";
import { fakeCanvas, fakeContext, payload, theme } from "./helpers.mjs";

const ui = { focus: 0, row: 0, column: 0 };

function picture(data, t, { width = 1100, race = false, pictures = new Pictures(fakeCanvas), dark = false, look = ui } = {}) {
  const g = fakeContext(), height = wantedHeight(width, data.meta.sms, race);
  const L = race ? raceLayout(width, height, data) : layout(width, height, data);
  L.pixels = 1;
  if (race) drawRace(g, L, data, raceAt(data, t, look), theme(data, dark), pictures);
  else draw(g, L, data, frameAt(data, t, look), theme(data, dark), pictures, look);
  return { log: g.log, pictures, words: g.log.filter((c) => c[0] === "fillText").map((c) => c[1]) };
}

test("every size, order and mask can be drawn at every time, wide, narrow and in a race", () => {
  const settings = [{}, { order: "kv-outer" }, { causal: "bottom-right", N: 30, H: 2, sms: 3 }, { N: 1, d: 1, Br: 1, Bc: 1, sms: 1 },
    { N: 64, Br: 1, Bc: 1, sms: 64 }, { N: 100, Br: 32, Bc: 24, sms: 16 }, { input: "sentence", N: 16, d: 32 }];
  for (const s of settings) {
    const data = payload(s), pictures = new Pictures(fakeCanvas);
    for (const width of [340, 700, 1000, 1900]) for (const race of [false, true]) {
      for (let k = 0; k <= 12; k++) picture(data, (data.end * k) / 12, { width, race, pictures });
    }
  }
});

test("the picture does not depend on what was drawn before", () => {
  const data = payload({ N: 30, causal: "bottom-right", sms: 3 }), t = data.end * 0.6, used = new Pictures(fakeCanvas);
  for (const k of [0.1, 0.9, 0.3, 1]) picture(data, data.end * k, { pictures: used });
  const first = picture(data, t, { pictures: used }).log, fresh = picture(data, t).log;
  assert.deepEqual(first, fresh);
});

test("the formulas hold with the numbers that they show", () => {
  const data = payload({ input: "rising" });
  for (const [i, j] of [[0, 0], [0, 5]]) {
    const t = settle(data.flash, visitEvent(data, 0, i, j) + 3), f = focusAt(data, 0, t);
    const lines = formulaLines(data, f, { row: 2, column: 1 }).map((line) => line.text.replaceAll("−", "-"));
    const value = (start) => lines.find((line) => line.startsWith(start));
    const [, a, b, m] = value("m_new").match(/max\((.+), (.+)\) = (.+)/).map((x) => Number(x.replace("∞", "Infinity")));
    assert.equal(Math.max(a, b), m);
    const [, alpha, lOld, sum, l] = value("l =").match(/l = (.+)·(.+) \+ (.+) = (.+)/).map(Number);
    assert.ok(Math.abs(alpha * lOld + sum - l) < 0.02 + 0.001 * lOld, value("l ="));
    const [, x, oOld, pv, o] = value("O[0]").match(/= (.+)·(.+) \+ (.+) = (.+)/).map(Number);
    assert.ok(Math.abs(x * oOld + pv - o) < 0.02, value("O[0]"));
    if (j) assert.ok(alpha < 1 && m > a);
  }
});

test("the state of a row moves from old to new within a visit and is the old one while its scores are computed", () => {
  const data = payload({ input: "rising" }), scores = visitEvent(data, 0, 0, 3);
  const at = (step) => rowState(data, focusAt(data, 0, settle(data.flash, scores + step)), 1);
  assert.equal(at(0).m, at(0).mOld);
  assert.ok(at(1).m > at(0).m && at(1).isNew);
  assert.equal(at(1).l, at(0).l);
  assert.equal(at(2).l, at(2).next.l); // stepping stops where the change is complete
  assert.equal(at(3).l, at(3).next.l);
});

test("the words on the picture speak of what is selected", () => {
  const data = payload({ H: 2, sms: 8 }), { words } = picture(data, data.end * 0.3, { look: { ...ui, focus: 5 } });
  assert.ok(words.some((w) => w.startsWith("SM 5 · head 1, Q tile 1")), words.join("|"));
  const small = picture(payload({ d: 32 }), 0).words, large = picture(payload({ d: 2 }), 0).words;
  assert.ok(small.some((w) => w.includes("more") || w.includes("same")) && large.some((w) => w.includes("less")));
});

test("masked scores are never written as numbers", () => {
  const data = payload({ causal: "bottom-right" });
  for (let k = 0; k < 40; k++) for (const w of picture(data, (data.end * k) / 40).words) assert.ok(!/NaN|undefined|Infinity/.test(w), w);
});

test("what is drawn is what a pointer hits", () => {
  const data = payload({ sms: 8 }), { meta } = data, L = layout(1100, 600, data);
  const middle = (r) => [r.x + r.w / 2, r.y + r.h / 2];
  assert.deepEqual(hit(L, meta, ...middle(L.benches[6])), { kind: "bench", sm: 6 });
  for (const name of ["Q", "K", "V", "O"]) assert.deepEqual(hit(L, meta, ...middle(shelfTile(L, name, 2))), { kind: "shelf", name, tile: 2 });
  const { matrix: m } = L;
  assert.deepEqual(hit(L, meta, m.x + 4.5 * m.cw, m.y + 1.5 * m.ch), { kind: "cell", i: 1, j: 4 });
  const { S, bars } = L.slots;
  assert.deepEqual(hit(L, meta, S.x + S.w - 1, S.y + 1), { kind: "score", row: 0, column: meta.Bc - 1 });
  assert.equal(hit(L, meta, bars.x + 5, bars.y + bars.h - 1).row, meta.Br - 1);
  assert.ok(Math.abs(hit(L, meta, L.track.x + L.track.w / 2, L.track.y + 2).fraction - 0.5) < 1e-9);
  assert.equal(hit(L, meta, L.focus.x + 2, L.focus.y + 2), null);
});

test("nothing of the layout leaves the canvas or overlaps its neighbour", () => {
  for (const width of [340, 719, 720, 1000, 1280, 1900]) for (const sms of [1, 2, 16, 64]) {
    const data = payload({ sms }), height = wantedHeight(width, sms, false), L = layout(width, height, data);
    const parts = [L.meters, L.hbm, L.l2, L.focus, L.ghost, L.code, L.timeline, ...L.benches];
    for (const r of parts) {
      assert.ok(r.w > 0 && r.h > 0 && r.x >= 0 && r.y >= 0 && r.x + r.w <= width + 0.5 && r.y + r.h <= height + 0.5, `${width} ${sms} ${JSON.stringify(r)}`);
    }
    for (let a = 0; a < parts.length; a++) for (let b = a + 1; b < parts.length; b++) {
      const p = parts[a], q = parts[b];
      const apart = p.x + p.w <= q.x + 0.5 || q.x + q.w <= p.x + 0.5 || p.y + p.h <= q.y + 0.5 || q.y + q.h <= p.y + 0.5;
      assert.ok(apart, `${width} ${sms}: ${JSON.stringify(p)} ${JSON.stringify(q)}`);
    }
  }
});

test("numbers and bytes in words", () => {
  assert.deepEqual([0, 1, 1023, 1024, 397312, 5 * 2 ** 30].map(bytes), ["0 B", "1 B", "1023 B", "1.00 KiB", "388 KiB", "5.00 GiB"]);
  assert.deepEqual([number(-Infinity), number(1.005, 1), number(-0.5), number(1e-5), number(NaN)], ["−∞", "1.0", "−0.50", "1.0e−5", "–"]);
});

test("a theme follows ground and ink", () => {
  const { palette } = payload().meta;
  assert.equal(makeTheme("#ffffff", "#000000", palette).isDark, false);
  assert.equal(makeTheme("#101418", "#ffffff", palette).colors.Q, palette.dark.Q);
  assert.deepEqual(["rgb(1, 2, 255)", "#abc", "rgba(16,16,16,0.5)"].map(toHex), ["#0102ff", "#aabbcc", "#101010"]);
});
