// The box in which a picture or a film of the player is saved.
import { pace } from "./controller.mjs";
import { Studio, filmTimes, gifOf, pngOf, videoOf, videoType } from "./film.mjs";
import { bytes } from "./paint.mjs";

const FPS = { gif: 10, webm: 30, mp4: 30 };
const WIDTH = 1280;

/** A file of the run that the player shows: kind is png, gif, webm or mp4. Returns a Blob. */
export async function filmOf(player, kind, { seconds = 12, width = WIDTH, signal, progress } = {}) {
  const { data, state } = player.controller;
  const studio = new Studio(data, { ...state }, player.theme, width);
  if (kind === "png") {
    studio.draw(state.t);
    return pngOf(studio.canvas);
  }
  const fps = FPS[kind], times = filmTimes(data, state.focus, pace(data), { seconds, fps });
  return kind === "gif" ? gifOf(studio, times, fps, { signal, progress }) : videoOf(studio, times, fps, { kind, signal, progress });
}

/** A file name that says what was run. */
export function fileName({ meta }, kind) {
  const { problem: p } = meta;
  return `fmha-${meta.order}-N${p.Nq}-d${p.d}-Br${meta.Br}-Bc${meta.Bc}${p.causal ? "-causal" : ""}${meta.race ? "-race" : ""}.${kind}`;
}

/** Hand a blob to the person as a download. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob), link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

export class SaveBox {
  constructor(player, box, signal) {
    Object.assign(this, { player, box });
    this.said = box.querySelector("[role=status]");
    this.buttons = [...box.querySelectorAll("[data-save]")];
    for (const button of this.buttons) {
      const kind = button.dataset.save;
      button.hidden = ["webm", "mp4"].includes(kind) && !videoType(kind);
      button.addEventListener("click", () => this.save(kind), { signal });
    }
    box.addEventListener("close", () => this.work?.abort(), { signal });
    signal.addEventListener("abort", () => this.work?.abort());
  }

  toggle() {
    if (this.box.open) return this.box.close();
    this.said.textContent = "";
    this.player.act("pause");
    return this.box.showModal();
  }

  value(name) {
    return Number(this.box.querySelector(`[data-film=${name}]`).value);
  }

  async save(kind) {
    this.work = new AbortController();
    for (const button of this.buttons) button.disabled = true;
    try {
      this.said.textContent = kind === "png" ? "" : "Filming …";
      const progress = (share) => (this.said.textContent = `Filming … ${Math.round(100 * share)} %`);
      const blob = await filmOf(this.player, kind, { seconds: this.value("seconds"), width: this.value("width"), signal: this.work.signal, progress });
      const name = fileName(this.player.controller.data, kind);
      download(blob, name);
      this.said.textContent = `${name}, ${bytes(blob.size)}`;
    } catch (error) {
      this.said.textContent = error.name === "AbortError" ? "" : `It was not saved: ${error.message}.`;
    } finally {
      for (const button of this.buttons) button.disabled = false;
    }
  }
}
