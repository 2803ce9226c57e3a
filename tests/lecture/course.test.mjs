import assert from "node:assert/strict";
import test from "node:test";
import { Course, clock, keyName, zoomFor } from "../../fmha/presenter/frontend/course.mjs";

const told = (more) => ({ step: 1, revealed: false, present: false, count: 4, questions: [2], told: 0, session: "a", ...more });

test("next reveals a question first, then goes on; back goes back", () => {
  const course = new Course();
  course.hear(told());
  const places = [];
  for (const name of ["next", "next", "next", "next", "next", "back", "back"]) {
    course.act(name);
    places.push(`${course.step}${course.revealed ? "!" : ""}`);
  }
  assert.deepEqual(places, ["2", "2!", "3", "4", "4", "3", "2"]);
});

test("keys that come faster than Python answers all count", () => {
  const course = new Course();
  course.hear(told());
  course.act("next");
  course.act("next");
  assert.equal(course.hear(told({ step: 2, told: 1 })), false, "that is older than what was asked for");
  assert.deepEqual([course.step, course.revealed], [2, true]);
  course.act("next");
  assert.equal(course.step, 3);
  assert.equal(course.hear(told({ step: 3, told: 3 })), true);
});

test("a new session after a lost connection is believed at once", () => {
  const course = new Course();
  course.hear(told());
  course.act("next");
  course.act("next");
  assert.equal(course.hear(told({ step: 2, session: "b" })), true);
  assert.deepEqual([course.step, course.revealed], [2, false]);
  assert.equal(course.act("next"), true);
});

test("what changes nothing is not told", () => {
  const course = new Course();
  course.hear(told());
  assert.equal(course.act("back"), false);
  assert.equal(course.act("reveal"), false);
  assert.equal(course.act("nonsense"), false);
  assert.equal(course.told, 0);
});

test("keys: clickers always, letters and arrows only when nothing has the focus, none while writing", () => {
  const key = (name, more = {}) => ({ key: name, ...more });
  assert.equal(keyName(key("PageDown"), false, false), "next");
  assert.equal(keyName(key("PageUp"), false, false), "back");
  assert.equal(keyName(key("PageDown"), true, true), null);
  assert.equal(keyName(key("ArrowRight"), false, true), "next");
  assert.equal(keyName(key("ArrowRight"), false, false), null);
  assert.equal(keyName(key("P"), false, true), "present");
  assert.equal(keyName(key("l"), false, false), null);
  assert.equal(keyName(key("r", { ctrlKey: true }), false, true), null);
  assert.equal(keyName(key(" "), false, true), null, "space plays the picture");
});

test("from 1024 x 768 to 4K the page is scaled to the window", () => {
  assert.equal(zoomFor(1280, 780), 1);
  assert.equal(zoomFor(1024, 768), 0.8);
  assert.ok(zoomFor(1920, 1080) > 1.3);
  assert.ok(zoomFor(3840, 2160) > 2.7);
});

test("the clock", () => {
  assert.equal(clock(65_000), "01:05");
  assert.equal(clock(3_600_000), "1:00:00");
});
