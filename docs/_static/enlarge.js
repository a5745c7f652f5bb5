// On a narrow screen a picture is scaled down, and its letters become small. A tap on it, or the button below it,
// shows the picture in full size with scrolling, or scales it down again. A tap scrolls to the tapped place.

const SMALL = 0.8; // fraction of the full width; a picture shown narrower gets a button

/** Return the full width of a picture in pixels. */
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
    on ? frame.setAttribute("tabindex", "0") : frame.removeAttribute("tabindex"); // arrow keys scroll it
    button.setAttribute("aria-pressed", on);
    button.textContent = on ? "show the whole picture" : "enlarge the picture";
  };
  const look = () => {
    const wide = frame.clientWidth >= SMALL * ownWidth(img);
    if (wide) turn(false);
    button.hidden = wide;
    img.style.cursor = wide ? "" : "zoom-in";
  };
  button.addEventListener("click", () => turn(button.getAttribute("aria-pressed") !== "true"));
  img.addEventListener("click", (tap) => {
    const across = tap.offsetX / img.clientWidth;
    if (button.hidden) return;
    button.click();
    frame.scrollLeft = across * img.clientWidth - frame.clientWidth / 2;
  });
  turn(false);
  new ResizeObserver(look).observe(frame);
  if (!img.complete) img.addEventListener("load", look, { once: true });
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("article img").forEach(enlargeable));
