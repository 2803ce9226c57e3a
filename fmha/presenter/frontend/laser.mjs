// A red dot in place of the mouse pointer.

const SIZE = 22;

export class Laser {
  constructor(signal) {
    this.dot = document.createElement("div");
    this.dot.className = "fmha-laser";
    this.dot.setAttribute("aria-hidden", "true");
    Object.assign(this.dot.style, {
      position: "fixed", left: "0", top: "0", width: `${SIZE}px`, height: `${SIZE}px`, borderRadius: "50%", zIndex: "100000", display: "none",
      pointerEvents: "none", background: "#ff1e1e", border: "2px solid #ffffff", boxShadow: "0 0 14px 5px rgba(255,30,30,.65)", boxSizing: "border-box",
    });
    this.style = document.createElement("style");
    this.style.textContent = "* { cursor: none !important; }";
    document.body.append(this.dot);
    this.at = [-100, -100];
    document.addEventListener("pointermove", (event) => this.move(event.clientX, event.clientY), { signal, capture: true, passive: true });
  }

  get on() { return this.style.isConnected; }

  move(x, y) {
    this.at = [x, y];
    if (!this.on) return;
    const scale = Math.max(1, window.innerHeight / 900);
    this.dot.style.transform = `translate(${x - SIZE / 2}px, ${y - SIZE / 2}px) scale(${scale})`;
  }

  toggle() {
    if (this.on) this.style.remove();
    else document.head.append(this.style);
    this.dot.style.display = this.on ? "block" : "none";
    this.move(...this.at);
  }

  destroy() {
    this.style.remove();
    this.dot.remove();
  }
}
