// The player's state and what may change it. No canvas, no Streamlit: tested in node.
import { advance, eventAt, neighbour, neighbourVisit, settle, visitEvent } from "./frame.mjs";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32];
const PHASE_SECONDS = 0.4, RUN_SECONDS = 24;

/** One state object and one mutator (`act`). `changed` counts up with every change of what is to be seen. */
export class Controller {
  constructor() {
    this.state = { t: 0, playing: false, speed: 1, loop: false, focus: 0, row: 0, column: 0, isUntouched: true };
    this.data = null;
    this.changed = 0;
  }

  /** New data: the position stays, by time where the schedule is the same, else by the share of the run. An
   * untouched player opens anew. Returns whether the place now has another number in Python. */
  setData(data) {
    const old = this.data, s = this.state;
    this.data = data;
    const same = old && old.meta.schedule === data.meta.schedule;
    if (!old) s.focus = data.meta.focus;
    if (s.isUntouched) Object.assign(s, opening(data));
    else if (!same) s.t = old.end > 0 ? (s.t / old.end) * data.end : 0;
    s.t = Math.min(s.t, data.end);
    s.focus = Math.min(s.focus, data.meta.sms - 1);
    s.row = Math.min(s.row, data.meta.Br - 1);
    s.column = Math.min(s.column, data.meta.Bc - 1);
    this.changed++;
    return old !== null && !same && !s.isUntouched;
  }

  /** The only way to change anything: act(name, argument). Unknown names and actions without data do nothing. */
  act(name, argument) {
    if (!this.data || !Object.hasOwn(ACTIONS, name)) return false;
    const before = JSON.stringify(this.state);
    ACTIONS[name](this.state, this.data, argument);
    if (!VIEW_ONLY.has(name)) this.state.isUntouched = false;
    const changed = JSON.stringify(this.state) !== before;
    if (changed) this.changed++;
    return changed;
  }

  /** Play on for `seconds` of wall time. Returns whether the end was reached. */
  tick(seconds) {
    const { state: s, data } = this;
    if (!s.playing || !data) return false;
    s.t = advance(data, s.focus, s.t, seconds * s.speed, pace(data));
    this.changed++;
    if (s.t < data.end) return false;
    if (s.loop) s.t = 0; else s.playing = false;
    return !s.loop;
  }

  /** What Python is told: the event of the SM in focus (a row of the event table), and what is selected. */
  chosen() {
    const { state: s, data } = this, { event, before } = eventAt(data.flash, s.focus, s.t);
    return { event: event >= 0 ? event : before, t: s.t, sm: s.focus, row: s.row, col: s.column, schedule: data.meta.schedule };
  }
}

/** The rhythm of playing: seconds on screen of a phase, and of a whole run where phases do not count. */
export function pace(data) {
  return { phaseSeconds: PHASE_SECONDS, runSeconds: RUN_SECONDS, race: data.meta.race };
}

/** Where a fresh player stands: {t, row, column, isUntouched}. Untouched, pressing play begins at time 0. */
function opening({ meta, flash }) {
  const [event, row, column, isUntouched] = meta.start ?? [0, 0, 0, true];
  return { t: settle(flash, Math.min(event, flash.count - 1)), row, column, isUntouched };
}

const VIEW_ONLY = new Set(["speed", "setSpeed", "loop"]);

const clampTo = (v, high) => Math.min(high, Math.max(0, v));

function goTo(s, data, event) {
  s.playing = false;
  if (event >= 0) s.t = settle(data.flash, event);
}

const ACTIONS = {
  play(s, data) {
    s.playing = !s.playing;
    if (s.playing && (s.isUntouched || s.t >= data.end)) s.t = 0;
  },
  pause(s) { s.playing = false; },
  phase(s, data, direction) {
    const event = neighbour(data.flash, s.focus, s.t, direction);
    goTo(s, data, event);
    if (event < 0) s.t = direction > 0 ? data.end : 0;
  },
  tile(s, data, direction) {
    const event = neighbourVisit(data, s.focus, s.t, direction);
    goTo(s, data, event);
    if (event < 0) s.t = direction > 0 ? data.end : 0;
  },
  worker(s, data, direction) {
    const { sms } = data.meta;
    do s.focus = (s.focus + direction + sms) % sms; while (!data.flash.bySm[s.focus].length); // idle SMs have no worker
  },
  focus(s, data, sm) { s.focus = clampTo(sm, data.meta.sms - 1); },
  home(s) { s.t = 0; s.playing = false; },
  end(s, data) { s.t = data.end; s.playing = false; },
  seek(s, data, t) { s.t = clampTo(t, data.end); s.playing = false; },
  speed(s, data, direction) {
    s.speed = SPEEDS[clampTo(SPEEDS.indexOf(s.speed) + direction, SPEEDS.length - 1)];
  },
  setSpeed(s, data, speed) { if (SPEEDS.includes(speed)) s.speed = speed; },
  loop(s) { s.loop = !s.loop; },
  row(s, data, row) { s.row = clampTo(row, data.meta.Br - 1); },
  column(s, data, column) { s.column = clampTo(column, data.meta.Bc - 1); },
  /** Go to the moment at which tile (h, i, j) is computed, on the SM that computes it. Skipped tiles do nothing. */
  visit(s, data, { h, i, j }) {
    const event = visitEvent(data, h, i, j);
    if (event < 0) return;
    s.focus = data.flash.sm[data.flash.blockOf[event]];
    goTo(s, data, event);
  },
};

/** Keyboard: key name -> [action, argument]; with shift the longer step. */
export function keyAction(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const steps = event.shiftKey ? "tile" : "phase";
  switch (event.key) {
    case " ": return ["play"];
    case "ArrowRight": return [steps, 1];
    case "ArrowLeft": return [steps, -1];
    case "ArrowDown": return ["worker", 1];
    case "ArrowUp": return ["worker", -1];
    case "Home": return ["home"];
    case "End": return ["end"];
    case "+": case "=": return ["speed", 1];
    case "-": case "_": return ["speed", -1];
    case "l": case "L": return ["loop"];
    case "f": case "F": return ["fullscreen"];
    case "s": case "S": return ["save"];
    case "?": return ["help"];
    default: return null;
  }
}
