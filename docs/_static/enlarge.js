// On a narrow screen a picture is shown whole, and its letters become small. A button below it shows the picture
// in its own size, to be moved about, and shows it whole again.

const SMALL = 0.8; // of its own width: what is shown narrower gets a button

/** The width in pixels that a picture is made for. */
const ownWidth = (img) => parseFloat(img.style.width) || Number(img.getAttribute("width")) || img.naturalWidth;

function enlargeable(img) {
  const frame = document.createElement("div");
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "enlarge", hidden: true });
  img.before(frame);
  frame.append(img);
  frame.after(button);
  const turn = (on) => {
    frame.className = on ? "enlargeable large" : "enlargeable";
    frame.style.setProperty("--own-width", `${ownWidth(img)}px`);
    on ? frame.setAttribute("tabindex", "0") : frame.removeAttribute("tabindex"); // arrow keys move it
    button.setAttribute("aria-pressed", on);
    button.textContent = on ? "show the whole picture" : "enlarge the picture";
  };
  const look = () => {
    const wide = frame.clientWidth >= SMALL * ownWidth(img);
    if (wide) turn(false);
    button.hidden = wide;
  };
  button.addEventListener("click", () => turn(button.getAttribute("aria-pressed") !== "true"));
  turn(false);
  new ResizeObserver(look).observe(frame);
  if (!img.complete) img.addEventListener("load", look, { once: true });
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("article img").forEach(enlargeable));
