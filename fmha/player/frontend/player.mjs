// The component: canvas, buttons, keyboard, pointer, and the conversation with Python. One Player per mount.
import { Controller, SPEEDS, keyAction } from "./controller.mjs";
import { decode, header } from "./decode.mjs";
import { draw } from "./draw.mjs";
import { drawRace, raceLayout } from "./draw_race.mjs";
import { formulaLines } from "./draw_focus.mjs";
import { bytesAt, focusAt, frameAt, raceAt, readAt, stillAt, visitEvent } from "./frame.mjs";
import { hit, layout, wantedHeight } from "./layout.mjs";
import { WORD } from "./levels.mjs";
import { Pictures, bytes } from "./paint.mjs";
import { SaveBox, filmOf } from "./save.mjs";
import { readTheme } from "./theme.mjs";

const CALM_MS = 500; // where motion is reduced, a picture stands at least so long
const SYNC_DELAY_MS = 70, SETTLE_MS = 450, HOLD_MS = 1500; // after a press elsewhere, a message could arrive at a page that is gone

const icon = (path) => `<svg viewBox="0 0 16 16"><path d="${path}"/></svg>`;
const PLAY = `${icon("M4 2.5 13 8l-9 5.5z")} Play`, PAUSE = `${icon("M4 3h3v10H4zM9 3h3v10H9z")} Pause`;

class Player {
  constructor(root) {
    this.root = root;
    this.box = root.querySelector(".fmha-player");
    this.canvas = root.querySelector("canvas");
    this.g = this.canvas.getContext("2d");
    this.controller = new Controller();
    this.pictures = new Pictures((w, h) => Object.assign(document.createElement("canvas"), { width: w, height: h }));
    this.seen = -1; // controller.changed of the last picture
    this.drawn = 0;
    this.paintedAt = 0;
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.holdUntil = 0;
    this.syncHz = 0; // how often Python is told while playing; 0: only when it stops
    this.syncedAt = 0;
    this.stop = new AbortController();
    this.saveBox = new SaveBox(this, root.querySelector("dialog.save"), this.stop.signal);
    this.listen();
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(this.box);
    this.last = performance.now();
    this.raf = requestAnimationFrame((now) => this.frame(now));
  }

  /** Called by Streamlit at mount and for new data or a new theme. */
  update(component) {
    this.component = component;
    const raw = component.data;
    const head = header(raw);
    if (head !== this.head || raw.length !== this.rawLength) {
      this.head = head;
      this.rawLength = raw.length;
      const data = decode(raw);
      data.id = `${data.meta.schedule}${this.drawn}${raw.length}`;
      this.pictures.clear();
      if (this.controller.setData(data)) this.sync(SETTLE_MS); // the chosen event has another number now
      this.newData = true;
      this.payloadBytes = raw.length;
      this.asked = null;
    }
    this.theme = readTheme(this.canvas, this.controller.data.meta.palette);
    this.fit();
    if (this.newData && this.L) this.paint(); // now, not in the next frame: what follows on the page may block for long
    if (!this.controller.state.playing) this.describe(); // the numbers of another worker may just have come
    this.showControls();
  }

  /** Size of canvas and layout. */
  fit() {
    const { data } = this.controller;
    if (!data || !this.theme) return;
    if (!this.box.clientWidth) return; // taken off the page, or not laid out yet: there is nothing to draw on
    const width = Math.max(280, Math.round(this.box.clientWidth - parseFloat(getComputedStyle(this.box).paddingLeft) * 2));
    const isFull = document.fullscreenElement === this.root.host || this.box.matches(":fullscreen");
    const height = isFull ? Math.max(400, this.box.clientHeight - this.root.querySelector(".bar").offsetHeight - 32) : wantedHeight(width, data.meta.sms, data.meta.race);
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
      this.canvas.style.width = `${width}px`;
    }
    this.L = data.meta.race ? raceLayout(width, height, data) : layout(width, height, data);
    this.L.pixels = ratio;
    this.g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.seen = -1;
  }

  frame(now) {
    const seconds = Math.min(0.1, (now - this.last) / 1000);
    this.last = now;
    if (this.controller.tick(seconds)) {
      this.showControls();
      this.sync();
    }
    const rests = this.isCalm() && now - this.paintedAt < CALM_MS;
    if (this.controller.data && this.L && this.controller.changed !== this.seen && !rests) this.paint();
    this.raf = requestAnimationFrame((time) => this.frame(time));
  }

  /** Playing for a person who asked for less motion: picture after picture, and nothing travels. */
  isCalm() {
    return this.controller.state.playing && this.calm.matches;
  }

  paint() {
    const { data, state } = this.controller;
    this.seen = this.controller.changed;
    this.paintedAt = performance.now();
    const t = this.isCalm() ? stillAt(data, state.focus, state.t) : state.t;
    if (data.meta.race) drawRace(this.g, this.L, data, raceAt(data, t, state), this.theme, this.pictures);
    else draw(this.g, this.L, data, frameAt(data, t, state), this.theme, this.pictures, state);
    this.root.querySelector(".scrub").value = String(Math.round((state.t / data.end) * 10000));
    if (this.newData) {
      this.newData = false;
      this.drawn++;
    }
    if (state.playing && !data.meta.race) this.askForNumbers();
    if (state.playing && this.syncHz && this.last - this.syncedAt > 1000 / this.syncHz) {
      this.syncedAt = this.last;
      this.sync();
    }
  }

  /** While playing, the worker in focus may move on to a Q tile whose numbers have not been sent: ask once for them. */
  askForNumbers() {
    const { data, state } = this.controller, focus = focusAt(data, state.focus, state.t);
    const wanted = `${state.focus}|${focus.h}|${focus.i}`;
    if (focus.exact >= 0 || focus.event < 0 || focus.i < 0 || this.asked === wanted) return;
    this.asked = wanted;
    this.sync();
  }

  act(name, argument) {
    if (name === "fullscreen") return this.toggleFullscreen();
    if (name === "help") return this.toggleHelp();
    if (name === "save") return this.saveBox.toggle();
    const wasPlaying = this.controller.state.playing;
    this.controller.act(name, argument);
    this.showControls();
    if (name !== "play" || wasPlaying) this.sync();
    return undefined;
  }

  // --- Python ---------------------------------------------------------------------------------------------------

  /** Tell Python the chosen event, a moment later, and not while the person may be leaving the page. */
  sync(delay = SYNC_DELAY_MS) {
    clearTimeout(this.timer);
    const wait = Math.max(delay, this.holdUntil - performance.now());
    this.timer = setTimeout(() => {
      if (this.isDead || performance.now() < this.holdUntil) return this.isDead ? undefined : this.sync();
      const chosen = this.controller.chosen(), text = JSON.stringify(chosen);
      if (text !== this.told) {
        this.told = text;
        this.component.setStateValue("at", chosen);
      }
      this.describe();
      return undefined;
    }, wait);
  }

  /** The step in words, for screen readers. */
  describe() {
    const { data, state } = this.controller, f = focusAt(data, state.focus, state.t);
    const place = f.event < 0 ? `SM ${state.focus} is idle` : `SM ${state.focus}, Q tile ${f.i}${f.j >= 0 ? `, K/V tile ${f.j} of ${data.meta.Tc}` : ""}: ${f.phase.maths}${f.answer ? `, ${WORD[f.answer]}` : ""}`;
    const moved = `requested so far: flash ${bytes(bytesAt(data.flashMeter, state.t))}, naive ${bytes(bytesAt(data.naiveMeter, state.t))}; of these from HBM: flash ${bytes(readAt(data.flashMeter, state.t).hbm)}, naive ${bytes(readAt(data.naiveMeter, state.t).hbm)}`;
    const formulas = formulaLines(data, f, state).map((line) => line.text).join("; ");
    this.root.querySelector("[aria-live]").textContent = `${place}. ${formulas ? formulas + ". " : ""}${moved}.`;
    this.root.querySelector(".scrub").setAttribute("aria-valuetext", place);
  }

  // --- controls -------------------------------------------------------------------------------------------------

  showControls() {
    const { state } = this.controller, play = this.root.querySelector("[data-act=play]");
    play.innerHTML = state.playing ? PAUSE : PLAY;
    play.setAttribute("aria-pressed", String(state.playing));
    this.root.querySelector("[data-act=loop]").setAttribute("aria-pressed", String(state.loop));
    this.root.querySelector("select").value = String(state.speed);
  }

  listen() {
    const on = (target, type, handler, options = {}) => target.addEventListener(type, handler, { signal: this.stop.signal, ...options });
    for (const button of this.root.querySelectorAll("[data-act]")) {
      const argument = button.dataset.arg ? Number(button.dataset.arg) : undefined;
      on(button, "click", () => this.act(button.dataset.act, argument));
    }
    const select = this.root.querySelector("select");
    select.replaceChildren(...SPEEDS.map((x) => Object.assign(document.createElement("option"), { value: String(x), textContent: `${x}×` })));
    on(select, "change", () => this.act("setSpeed", Number(select.value)));
    const scrub = this.root.querySelector(".scrub");
    on(scrub, "input", () => this.controller.act("seek", (Number(scrub.value) / 10000) * this.controller.data.end) && this.showControls());
    on(scrub, "change", () => this.sync());
    on(this.box, "keydown", (event) => this.onKey(event));
    // With nothing else in focus, the keys that do not scroll upwards or downwards work without a click first.
    on(document, "keydown", (event) => {
      if (event.target === document.body && [" ", "ArrowLeft", "ArrowRight"].includes(event.key) && this.isInSight()) this.onKey(event);
    });
    on(this.canvas, "pointerdown", (event) => this.onDown(event));
    on(this.canvas, "pointermove", (event) => this.onMove(event));
    for (const type of ["pointerup", "pointercancel"]) on(this.canvas, type, () => this.onUp());
    on(document, "fullscreenchange", () => this.fit());
    const hold = (event) => {
      if (!event.composedPath().includes(this.box)) this.holdUntil = performance.now() + HOLD_MS;
    };
    on(document, "pointerdown", hold, { capture: true });
    on(document, "keydown", (event) => event.key === "Enter" && hold(event), { capture: true });
  }

  onKey(event) {
    const target = event.target; // on the slider the arrows step by phase: its own steps mean nothing here
    if (target.matches?.("select, dialog *") && !["f", "F", "s", "S", "?"].includes(event.key)) return;
    if (event.key === " " && target.matches?.("button")) return; // a focused button is pressed by space
    const action = keyAction(event);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    this.act(...action);
  }

  isInSight() {
    const r = this.canvas.getBoundingClientRect();
    return r.bottom > 0 && r.top < window.innerHeight;
  }

  point(event) {
    const r = this.canvas.getBoundingClientRect();
    return [((event.clientX - r.left) / r.width) * this.L.W, ((event.clientY - r.top) / r.height) * this.L.H];
  }

  onDown(event) {
    if (!this.L || event.button > 0) return;
    const found = hit(this.L, this.controller.data.meta, ...this.point(event));
    this.box.focus({ preventScroll: true });
    if (!found) return;
    if (found.kind === "time") {
      this.scrubbing = true;
      this.canvas.setPointerCapture(event.pointerId);
      if (found.sm >= 0 && !this.controller.data.meta.race) this.controller.act("focus", found.sm);
      this.seek(found.fraction);
    } else {
      this.choose(found);
    }
  }

  onMove(event) {
    if (!this.L || !this.controller.data) return;
    const [x, y] = this.point(event);
    if (this.scrubbing) this.seek((x - this.L.track.x) / this.L.track.w);
    else this.canvas.style.cursor = hit(this.L, this.controller.data.meta, x, y) ? "pointer" : "default";
  }

  onUp() {
    if (this.scrubbing) this.sync();
    this.scrubbing = false;
  }

  seek(fraction) {
    this.controller.act("seek", Math.min(1, Math.max(0, fraction)) * this.controller.data.end);
    this.showControls();
  }

  /** A click on a bench, a tile of the matrix or of a shelf, a score or a row. */
  choose(found) {
    const { data, state } = this.controller, f = focusAt(data, state.focus, state.t), h = f.h;
    if (found.kind === "bench") this.act("focus", found.sm);
    else if (found.kind === "cell") this.act("visit", { h, i: found.i, j: found.j });
    else if (found.kind === "row") this.act("row", found.row);
    else if (found.kind === "score") {
      this.controller.act("row", found.row);
      this.act("column", found.column);
    } else if ("KV".includes(found.name)) this.act("visit", { h, i: Math.max(0, f.i), j: found.tile });
    else for (let j = 0; j < data.meta.Tc; j++) { // a Q or O tile: its first visit
      if (visitEvent(data, h, found.tile, j) >= 0) return this.act("visit", { h, i: found.tile, j });
    }
    return undefined;
  }

  async toggleFullscreen() {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await this.box.requestFullscreen?.().catch(() => undefined); // refused without a gesture: nothing to do
  }

  toggleHelp() {
    const dialog = this.root.querySelector("dialog.help");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  destroy() {
    this.isDead = true;
    this.stop.abort();
    this.resize.disconnect();
    cancelAnimationFrame(this.raf);
    clearTimeout(this.timer);
  }

  // for measurements and tests
  play() { if (!this.controller.state.playing) this.act("play"); }
  pause() { this.act("pause"); }

  /** A file of what is shown: "png", "gif", "webm" or "mp4" as a Blob. */
  film(kind, options) { return filmOf(this, kind, options); }
}

const players = new WeakMap(); // parentElement -> Player: it outlives updates

/** Show `component.data` in `component.parentElement`, now or anew. Returns what takes the player away. */
export function mount(component) {
  const { parentElement } = component;
  let player = players.get(parentElement);
  if (!player || player.isDead) {
    player = new Player(parentElement);
    players.set(parentElement, player);
    window.__fmhaPlayer = player;
  }
  player.update(component);
  // On a busy machine Streamlit cleans up after a call while the next one is on its way: what counts is whether the
  // place is still on the page.
  return () => setTimeout(() => {
    if (parentElement.isConnected) return;
    player.destroy();
    players.delete(parentElement);
  }, 0);
}

export default mount;
