// Starts the player of a file that stands alone: unpack the payload in the page, hand it to the player, follow the theme.
import { mount } from "../../player/frontend/player.mjs";

async function start() {
  const stage = document.getElementById("stage");
  try {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser cannot unpack it; one from 2023 or later can");
    const data = await unpacked(document.getElementById("payload").textContent);
    const component = { data, parentElement: stage, setStateValue() {} };
    mount(component);
    // The player takes its colours when it gets data; the page's change with the system's.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => mount(component));
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    stage.textContent = `The player could not start: ${error.message}.`;
    document.documentElement.dataset.ready = "failed";
  }
}

/** Base64 of zlib's format as bytes. */
async function unpacked(text) {
  const packed = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

start();
