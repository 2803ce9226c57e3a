// The component: the bar, the keys, the pointer, and the talk between the lecture's window and the speaker's.
//
// Both windows are the same page. They talk over a BroadcastChannel: the lecture says where it is and what the notes
// are, the speaker's window shows it (as text, never as HTML) and says which way to go. So notes follow at once, also
// for a deck that only the lecture's window has.
import { Course, clock, keyName, zoomFor } from "./course.mjs";
import { Laser } from "./laser.mjs";

const CHANNEL = "fmha-lecture", START_PLAYING_MS = 8000, AGAIN_MS = 5000;

/** Names this window of the lecture, so that a speaker's window follows the one that opened it. */
function ownName() {
  const key = "fmha-lecture-window";
  const name = sessionStorage.getItem(key) ?? Math.random().toString(36).slice(2, 10);
  sessionStorage.setItem(key, name);
  return name;
}

class Presenter {
  constructor(root) {
    this.root = root;
    this.course = new Course();
    this.stop = new AbortController();
    this.laser = new Laser(this.stop.signal);
    this.channel = new BroadcastChannel(CHANNEL);
    this.channel.onmessage = ({ data }) => this.heard(data);
    this.name = ownName();
    this.follows = new URLSearchParams(location.search).get("_of"); // for the speaker's window
    this.listen();
    this.timer = setInterval(() => this.tick(), 500);
  }

  get isSpeaker() { return Boolean(this.data?.notes); }

  update(component) {
    this.component = component;
    const first = !this.data, before = this.data?.step;
    this.data = JSON.parse(new TextDecoder().decode(component.data));
    const session = this.course.session, current = this.course.hear(this.data);
    if (current && (first || before !== this.data.step)) this.arrived(first);
    this.show();
    if (this.isSpeaker) {
      if (first) this.say({ hello: true });
    } else if (current) this.tellSpeaker();
    // After a lost connection the first key only wakes a new session, which does not know it yet: it counts now.
    if (session !== null && session !== this.course.session && performance.now() - this.pressed?.at < AGAIN_MS) this.act(this.pressed.name);
  }

  /** A new step is on the page: to its top, and what should move begins to. */
  arrived(first) {
    if (!first) document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
    if (this.data.play && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.playWhenReady(performance.now());
  }

  playWhenReady(since, step = this.data.step) {
    const player = window.__fmhaPlayer;
    if (this.isDead || this.course.step !== step || performance.now() - since > START_PLAYING_MS) return;
    if (player && !player.isDead && player !== this.played && player.drawn > 0 && player.box.isConnected) {
      this.played = player;
      if (player.controller.state.isUntouched) player.play();
    } else requestAnimationFrame(() => this.playWhenReady(since, step));
  }

  // --- what can be asked for --------------------------------------------------------------------------------------

  act(name) {
    if (name === "laser") this.laser.toggle();
    else if (name === "full") this.toggleFullscreen();
    else if (name === "notes") this.root.querySelector("a[data-do=notes]").click();
    else if (name === "zero") this.began = Date.now();
    else if (this.isSpeaker && this.linked) this.say({ move: name });
    else this.move(name);
    this.show();
  }

  move(name) {
    this.pressed = { name, at: performance.now() };
    if (this.course.act(name)) this.component.setStateValue("at", { ...this.course.place(), told: this.course.told });
  }

  async toggleFullscreen() {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await document.documentElement.requestFullscreen?.().catch(() => undefined); // refused: nothing to do
  }

  listen() {
    const on = (target, type, handler, options = {}) => target.addEventListener(type, handler, { signal: this.stop.signal, ...options });
    on(window, "keydown", (event) => this.onKey(event), { capture: true });
    on(window, "resize", () => this.zoom());
    for (const button of this.root.querySelectorAll("button[data-do]")) on(button, "click", () => this.act(button.dataset.do));
  }

  onKey(event) {
    const target = event.composedPath()[0], isOurs = event.composedPath().includes(this.root);
    const writing = Boolean(target.matches?.("input:not([type=range]):not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable=true]"))
      || Boolean(document.querySelector("dialog[open], [role=dialog]"));
    const name = keyName(event, writing, target === document.body || target === document.documentElement || isOurs);
    if (!name) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.act(name);
  }

  // --- the other window -------------------------------------------------------------------------------------------

  say(message) { this.channel.postMessage({ ...message, from: this.name, to: this.isSpeaker ? this.follows : null }); }

  tellSpeaker() {
    const { step, count, revealed, title, said, answer, next } = this.data;
    this.say({ place: { step, count, revealed, title, said, answer, next } });
  }

  heard(message) {
    if (!this.data) return;
    if (this.isSpeaker) {
      if (!message.place || (this.follows && message.from !== this.follows)) return;
      this.linked = true;
      Object.assign(this.data, message.place);
      this.show();
    } else if (!message.to || message.to === this.name) {
      if (message.hello) this.tellSpeaker();
      else if (["next", "back", "reveal"].includes(message.move)) this.act(message.move);
    }
  }

  // --- what is seen -----------------------------------------------------------------------------------------------

  show() {
    const { course, data } = this, box = this.root.querySelector(".fmha-presenter");
    const at = this.isSpeaker && this.linked ? data : { ...data, ...course.place() };
    box.classList.toggle("presenting", at.present && !data.notes);
    this.root.querySelector(".bar").hidden = data.notes;
    this.root.querySelector(".bar").style.display = data.notes ? "none" : "";
    this.root.querySelector(".speaker").hidden = !data.notes;
    for (const place of this.root.querySelectorAll(".place")) place.textContent = `${at.step} / ${data.count}`;
    const asks = course.questions.has(course.step) && !course.revealed;
    for (const next of this.root.querySelectorAll("[data-do=next]")) {
      next.textContent = asks ? "Reveal" : "Next ›";
      next.disabled = !this.linked && !asks && course.step >= data.count;
    }
    for (const back of this.root.querySelectorAll("[data-do=back]")) back.disabled = !this.linked && course.step <= 1;
    this.root.querySelector("[data-do=present]").setAttribute("aria-pressed", String(course.present));
    this.root.querySelector("[data-do=laser]").setAttribute("aria-pressed", String(this.laser.on));
    const link = new URLSearchParams(location.search);
    link.delete("present");
    for (const [name, value] of [["step", course.step], ["notes", 1], ["_of", this.name]]) link.set(name, String(value));
    this.root.querySelector("a[data-do=notes]").href = `?${link}`;
    const told = `Step ${at.step} of ${data.count}: ${data.title}`;
    const live = this.root.querySelector(".out-of-sight");
    if (course.step === data.step && live.textContent !== told) live.textContent = told;
    if (data.notes) this.showSpeaker();
    this.zoom();
  }

  showSpeaker() {
    const { data } = this, put = (name, text) => { this.root.querySelector(`.speaker .${name}`).textContent = text; };
    put("title", data.title);
    put("said", data.said || "No notes for this step.");
    put("answer", data.answer ? `${data.revealed ? "Revealed" : "Not yet revealed"}: ${data.answer}` : "");
    put("next", data.next ? `Next: ${data.next}` : "This is the last step.");
    put("linked", this.linked ? "Follows the lecture's window; Page Down and Page Up move it." : "No lecture's window was found: open this page with its link Notes.");
    this.tick();
  }

  tick() {
    if (!this.isSpeaker) return;
    this.began ??= Date.now();
    this.root.querySelector(".clock").textContent = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.root.querySelector(".since").textContent = `${clock(Date.now() - this.began)} since the start`;
  }

  zoom() {
    const style = document.documentElement.style;
    if (this.course.present && !this.isSpeaker) style.setProperty("--fmha-zoom", String(zoomFor(window.innerWidth, window.innerHeight)));
    else style.removeProperty("--fmha-zoom");
  }

  destroy() {
    this.isDead = true;
    this.stop.abort();
    this.laser.destroy();
    this.channel.close();
    clearInterval(this.timer);
    document.documentElement.style.removeProperty("--fmha-zoom");
  }
}

const presenters = new WeakMap(); // parentElement -> Presenter: it outlives updates

export default function (component) {
  const { parentElement } = component;
  let presenter = presenters.get(parentElement);
  if (!presenter || presenter.isDead) {
    presenter = new Presenter(parentElement);
    presenters.set(parentElement, presenter);
    window.__fmhaPresenter = presenter; // for tests
  }
  presenter.update(component);
  // On a busy machine Streamlit cleans up after a call while the next one is on its way, and keys must not be lost
  // between the two: what counts is whether the place is still on the page.
  return () => setTimeout(() => {
    if (parentElement.isConnected) return;
    presenter.destroy();
    presenters.delete(parentElement);
  }, 0);
}
