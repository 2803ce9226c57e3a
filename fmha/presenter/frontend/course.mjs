// Where a lecture stands, and what keys do. No DOM: tested in node.

/** One place: a step from 1, and whether its question has been answered. `told` counts what Python was told. */
export class Course {
  constructor() {
    this.step = 1;
    this.revealed = false;
    this.present = false;
    this.count = 1;
    this.questions = new Set();
    this.told = 0;
    this.session = null;
  }

  /** What Python says. While it has not yet heard the last of us, it is behind: keys count from where we are. */
  hear({ step, revealed, present, count, questions, told, session }) {
    this.count = count;
    this.questions = new Set(questions);
    if (session !== this.session) this.told = told; // a new one, after a lost connection: it knows of no message of ours
    this.session = session;
    if (told !== this.told) return false;
    Object.assign(this, { step, revealed, present });
    return true;
  }

  /** Any of "next", "back", "reveal", "present"; true if something changed. */
  act(name) {
    const before = JSON.stringify(this.place());
    if (name === "next") {
      if (this.questions.has(this.step) && !this.revealed) this.revealed = true;
      else if (this.step < this.count) Object.assign(this, { step: this.step + 1, revealed: false });
    } else if (name === "back" && this.step > 1) Object.assign(this, { step: this.step - 1, revealed: false });
    else if (name === "reveal" && this.questions.has(this.step)) this.revealed = true;
    else if (name === "present") this.present = !this.present;
    if (JSON.stringify(this.place()) === before) return false;
    this.told += 1;
    return true;
  }

  place() {
    return { step: this.step, revealed: this.revealed, present: this.present };
  }
}

const ALWAYS = { PageDown: "next", PageUp: "back" }; // what clickers send
const IDLE = { ArrowRight: "next", ArrowLeft: "back", p: "present", l: "laser", f: "full", n: "notes", r: "reveal" };

/** What a key does. `writing`: the focus is where text is typed; `idle`: nothing that takes keys has the focus. */
export function keyName({ key, ctrlKey, metaKey, altKey, shiftKey }, writing, idle) {
  if (ctrlKey || metaKey || altKey || writing) return null;
  if (Object.hasOwn(ALWAYS, key)) return shiftKey ? null : ALWAYS[key];
  const name = key.length === 1 ? key.toLowerCase() : key;
  return idle && Object.hasOwn(IDLE, name) && !(shiftKey && key.length > 1) ? IDLE[name] : null;
}

/** How much larger a page made for 1280 x 780 is drawn to fill the window, from 1024 x 768 to 4K. */
export function zoomFor(width, height) {
  return Math.round(Math.min(4, Math.max(0.5, Math.min(width / 1280, height / 780))) * 1000) / 1000;
}

/** Minutes and seconds, with hours where there are any. */
export function clock(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000)), two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  return `${hours ? `${hours}:` : ""}${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}
