import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, keyAction } from "../../fmha/player/frontend/controller.mjs";
import { eventAt } from "../../fmha/player/frontend/frame.mjs";
import { payload } from "./helpers.mjs";

function opened(settings) {
  const c = new Controller();
  c.setData(payload(settings));
  return c;
}
const key = (name, more = {}) => keyAction({ key: name, ...more });

test("keys", () => {
  assert.deepEqual(key(" "), ["play"]);
  assert.deepEqual(key("ArrowRight"), ["phase", 1]);
  assert.deepEqual(key("ArrowLeft", { shiftKey: true }), ["tile", -1]);
  assert.deepEqual([key("Home"), key("End"), key("+"), key("-"), key("f"), key("?"), key("ArrowDown")],
    [["home"], ["end"], ["speed", 1], ["speed", -1], ["fullscreen"], ["help"], ["worker", 1]]);
  assert.equal(key("a"), null);
  assert.equal(key("f", { ctrlKey: true }), null);
});

test("a step there and a step back is where one was", () => {
  const c = opened({ start: [20, 0, 0, false] }), before = c.chosen().event;
  for (const action of ["phase", "tile"]) {
    c.act(action, 1);
    assert.notEqual(c.chosen().event, before);
    c.act(action, -1);
    if (action === "phase") assert.equal(c.chosen().event, before);
  }
});

test("sliding, stepping and playing to one event choose the same event", () => {
  const c = opened({ start: [0, 0, 0, false] });
  for (let k = 0; k < 9; k++) c.act("phase", 1);
  const { event, t } = c.chosen();
  c.act("home");
  c.act("seek", t);
  assert.equal(c.chosen().event, event);
  c.act("home");
  c.act("play");
  while (c.state.t < t) c.tick(1 / 60);
  assert.equal(eventAt(c.data.flash, 0, c.state.t).event >= event, true);
});

test("play, loop and the end", () => {
  const c = opened({});
  c.act("end");
  c.act("play");
  assert.equal(c.state.t, 0); // at the end, play begins anew
  for (let k = 0; k < 1e5 && c.state.playing; k++) c.tick(0.1);
  assert.equal(c.state.t, c.data.end);
  c.act("loop");
  c.act("play");
  for (let k = 0; k < 3000; k++) c.tick(0.1);
  assert.equal(c.state.playing, true);
});

test("an untouched player starts at time 0 although it opens later", () => {
  const c = opened({ start: [30, 2, 0, true] });
  assert.ok(c.state.t > 0);
  assert.equal(c.state.row, 2);
  c.act("play");
  assert.equal(c.state.t, 0);
});

test("new data keeps the place: by time in the same schedule, by share in another", () => {
  const c = opened({ start: [30, 0, 0, false] }), t = c.state.t, share = t / c.data.end;
  assert.equal(c.setData(payload({ focus: 1 })), false);
  assert.equal(c.state.t, t);
  assert.equal(c.setData(payload({ N: 64 })), true);
  assert.ok(Math.abs(c.state.t / c.data.end - share) < 1e-6);
});

test("an untouched player opens anew on new data and has nothing to tell", () => {
  const c = opened({ start: [12, 0, 0, true] });
  assert.equal(c.setData(payload({ N: 64, start: [30, 0, 0, true] })), false);
  assert.equal(c.chosen().event, 30);
});

test("what is selected shrinks with the data", () => {
  const c = opened({ Br: 8, Bc: 8, sms: 4 });
  c.act("focus", 3);
  c.act("row", 7);
  c.act("column", 7);
  c.setData(payload({ N: 2, Br: 2, Bc: 1, sms: 1 }));
  assert.deepEqual([c.state.focus, c.state.row, c.state.column], [0, 1, 0]);
});

test("a click on a tile goes to the SM that computes it; on a skipped one nowhere", () => {
  const c = opened({ causal: "bottom-right" });
  c.act("visit", { h: 0, i: 3, j: 2 });
  const { flash } = c.data, { event, sm } = c.chosen();
  assert.deepEqual([flash.i[event], flash.j[event], flash.sm[flash.blockOf[event]]], [3, 2, sm]);
  assert.equal(c.act("visit", { h: 0, i: 0, j: 5 }), false);
});

test("unknown actions and values do nothing", () => {
  const c = opened({}), before = JSON.stringify(c.state);
  c.act("toString");
  c.act("nonsense", 3);
  c.act("setSpeed", 1e9);
  assert.equal(JSON.stringify(c.state), before);
  assert.equal(new Controller().act("play"), false);
});
