// Films of the player: the pictures of a run at given times, drawn by the player's own code on a canvas of its own.
import { draw } from "./draw.mjs";
import { drawRace, raceLayout } from "./draw_race.mjs";
import { advance, frameAt, raceAt } from "./frame.mjs";
import { Gif, palette } from "./gif.mjs";
import { layout, wantedHeight } from "./layout.mjs";
import { Pictures } from "./paint.mjs";

const STILL_SECONDS = 1; // the last picture stays for a moment
const MARGIN = 12; // pixels around the picture
const SAMPLES = 9; // pictures from which a GIF's colours are chosen
const STEP_SECONDS = 8; // of playing, in one go: `advance` crosses a bounded number of phases

/**
 * Simulated times of the pictures of a film over the whole run: `seconds` long, `fps` a second, in the player's rhythm
 * (each phase of the SM in focus takes equally long). The first is 0, the last the run's end.
 */
export function filmTimes(data, focus, pace, { seconds, fps }) {
  const count = Math.max(2, Math.round(seconds * fps));
  const step = (from, playing) => {
    let t = from;
    for (let left = playing; left > 0 && t < data.end; left -= STEP_SECONDS) t = advance(data, focus, t, Math.min(left, STEP_SECONDS), pace);
    return t;
  };
  let whole = 0; // seconds that the run takes to play
  for (let t = 0; t < data.end;) {
    const next = step(t, STEP_SECONDS / 4);
    if (next <= t) break;
    t = next;
    whole += STEP_SECONDS / 4;
  }
  const times = [0];
  for (let k = 1; k < count; k++) times.push(step(times[k - 1], whole / (count - 1)));
  times[count - 1] = data.end;
  return times;
}

/** A canvas with the player's picture of any moment. `state` says what is in focus. */
export class Studio {
  constructor(data, state, theme, width) {
    const race = data.meta.race, inner = width - 2 * MARGIN;
    const height = 2 * Math.ceil((wantedHeight(inner, data.meta.sms, race) + 2 * MARGIN) / 2); // videos want it even
    Object.assign(this, { data, state, theme, width, height });
    this.canvas = makeCanvas(width, height);
    this.g = this.canvas.getContext("2d", { willReadFrequently: true });
    this.L = race ? raceLayout(inner, height - 2 * MARGIN, data) : layout(inner, height - 2 * MARGIN, data);
    this.L.pixels = 1;
    this.pictures = new Pictures(makeCanvas);
    this.g.fillStyle = theme.bg;
    this.g.fillRect(0, 0, width, height);
    this.g.translate(MARGIN, MARGIN);
  }
  draw(t) {
    const { data, state } = this;
    if (data.meta.race) drawRace(this.g, this.L, data, raceAt(data, t, state), this.theme, this.pictures);
    else draw(this.g, this.L, data, frameAt(data, t, state), this.theme, this.pictures, state);
  }
  pixels() {
    return new Uint32Array(this.g.getImageData(0, 0, this.width, this.height).data.buffer);
  }
}

const makeCanvas = (width, height) => Object.assign(document.createElement("canvas"), { width, height });

/** Let the page breathe; throws when the film is no longer wanted. */
async function pause(signal, milliseconds = 0) {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
  signal?.throwIfAborted();
}

/** The film as an animated GIF. */
export async function gifOf(studio, times, fps, { signal, progress } = {}) {
  const samples = [];
  for (let k = 0; k < SAMPLES; k++) {
    studio.draw(times[Math.round((k / (SAMPLES - 1)) * (times.length - 1))]);
    samples.push(studio.pixels());
  }
  const gif = new Gif(studio.width, studio.height, palette(samples));
  for (let k = 0; k < times.length; k++) {
    studio.draw(times[k]);
    gif.add(studio.pixels(), k + 1 < times.length ? Math.round(100 / fps) : 100 * STILL_SECONDS);
    progress?.((k + 1) / times.length);
    await pause(signal);
  }
  return new Blob([gif.bytes()], { type: "image/gif" });
}

/** After a picture has been taken: that happens some time after the page is drawn next, which a hidden page never is. */
async function filmed() {
  const drawn = new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  await Promise.race([drawn, pause(null, 500)]);
  await pause(null, 120);
}

const VIDEO = {
  webm: ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"],
  mp4: ["video/mp4;codecs=avc1.640028", "video/mp4;codecs=avc1.42E01F", "video/mp4;codecs=vp09.00.10.08", "video/mp4"],
};

/** The way in which this browser can write such a video ("webm" or "mp4"), or null. */
export function videoType(kind) {
  if (typeof MediaRecorder === "undefined") return null;
  return VIDEO[kind].find((type) => MediaRecorder.isTypeSupported(type)) ?? null;
}

/** The film as a video. A browser's recorder films in real time: it takes as long as it lasts. */
export async function videoOf(studio, times, fps, { kind = "webm", signal, progress } = {}) {
  const mimeType = videoType(kind);
  if (!mimeType) throw new Error(`this browser cannot write ${kind} videos`);
  const stream = studio.canvas.captureStream(0), [track] = stream.getVideoTracks();
  const recorder = new MediaRecorder(stream, { mimeType, videoBitsPerSecond: 8e6 }), chunks = [];
  const failed = new Promise((_, reject) => (recorder.onerror = (event) => reject(event.error ?? new Error("the recorder failed"))));
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.ondataavailable = (event) => event.data.size && chunks.push(event.data);
  const last = times[times.length - 1];
  studio.draw(times[0]);
  recorder.start();
  const begin = performance.now();
  const shot = (t) => {
    studio.draw(t); // also when it is the same picture again: only what is drawn is filmed
    track.requestFrame();
  };
  try {
    for (let k = 0; k < times.length;) {
      shot(times[k]);
      progress?.((k + 1) / times.length);
      const next = Math.max(k + 1, Math.ceil(((performance.now() - begin) / 1000) * fps)); // too slow: leave some out
      if (k + 1 < times.length) await Promise.race([pause(signal, begin + (1000 * Math.min(next, times.length - 1)) / fps - performance.now()), failed]);
      k = k + 1 < times.length ? Math.min(next, times.length - 1) : times.length;
    }
    for (let k = 0; k < 2; k++) { // a recorder may keep a picture only when the next one comes
      await pause(signal, (1000 * STILL_SECONDS) / 2);
      shot(last);
      await filmed();
    }
    recorder.stop();
    await Promise.race([stopped, failed]);
  } finally {
    track.stop();
  }
  return new Blob(chunks, { type: mimeType.split(";")[0] });
}

/** One picture as it is on a canvas. */
export function pngOf(canvas) {
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}
