// Shared code of both explorers: labelled controls, a figure with a handle, a status line, the address.

/** Format an integer with thousands separators: 16,384. */
export const told = (number) => number.toLocaleString("en");

/** Format a ratio to the lower bound: "1.06 times", "425 times". */
export const times = (ratio) => `${ratio < 100 ? ratio.toFixed(2) : told(Math.round(ratio))} times`;

/** Escape text for markup. */
export const escaped = (text) =>
  text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

/** Return an element with attributes and children (elements or text). */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---------------------------------------------------------------------- controls
/** Return integers from low to high, `perOctave` of them between a number and its double. */
export function positions(low, high, perOctave) {
  const found = new Set();
  for (let power = low; power <= high; power *= 2) {
    for (let k = 0; k < perOctave; k += 1) found.add(power + Math.floor((power * k) / perOctave));
  }
  return [...found].filter((value) => value <= high).sort((a, b) => a - b);
}

/** Return the index of the last value at or below `value`. */
const before = (values, value) => Math.max(0, values.findLastIndex((each) => each <= value));

/** Return the position `by` steps from a value, which need not be a position itself. */
export function stepped(values, value, by) {
  const at = before(values, value) + (by < 0 && !values.includes(value) ? 1 : 0);
  return values[Math.min(Math.max(at + by, 0), values.length - 1)];
}

/** Return a labelled range input with its number, for {low, high, perOctave, label}. */
function sizeRange(name, { low, high, perOctave, label }, changed) {
  const values = positions(low, high, perOctave);
  const input = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, name });
  const number = make("output", { "aria-hidden": "true" });
  input.addEventListener("input", () => changed(values[input.valueAsNumber]));
  const show = (value, top = high) => {
    input.max = before(values, top);
    input.value = before(values, value);
    input.setAttribute("aria-valuetext", told(value));
    number.textContent = told(value);
  };
  return { element: make("label", { class: "size" }, make("span", {}, label), input, number), show };
}

/** Return a range for each of these sizes, as [name, range]; `changed` receives {name: value}. */
export const sizeRanges = (sizes, changed) =>
  Object.entries(sizes).map(([name, size]) => [name, sizeRange(name, size, (to) => changed({ [name]: to }))]);

/** Return a group of radio buttons for a few values. */
export function radios(name, values, changed) {
  const group = make("fieldset", { class: "choice" }, make("legend", {}, name));
  const inputs = {};
  for (const value of values) {
    const input = make("input", { type: "radio", name, value });
    input.addEventListener("change", () => changed(value));
    inputs[value] = input;
    group.append(make("label", {}, input, value));
  }
  return { element: group, show: (value) => (inputs[value].checked = true) };
}

/** Return a button. */
export function button(label, pressed) {
  const element = make("button", { type: "button" }, label);
  element.addEventListener("click", pressed);
  return element;
}

// ---------------------------------------------------------------------- picture
let pictures = 0;

/** Return an SVG figure with title and description, and a handle in front of it that acts as a slider. */
export function picture(handleName, shape) {
  pictures += 1;
  const [title, desc] = [`picture-${pictures}-title`, `picture-${pictures}-desc`];
  const element = make("div", { class: "picture" });
  element.innerHTML =
    `<svg role="img" aria-labelledby="${title}" aria-describedby="${desc}">` +
    `<title id="${title}"></title><desc id="${desc}"></desc><g></g><g></g></svg>`;
  const handle = make("div", { class: `handle ${shape}`, role: "slider", tabindex: "0", "aria-label": handleName });
  element.append(handle);
  const svg = element.firstChild;
  const [titleOf, descOf, back, front] = svg.children;
  return { element, handle, svg, titleOf, descOf, back, front };
}

/** Set title and description of the figure, its alternative text. */
export function describe({ titleOf, descOf }, title, description) {
  titleOf.textContent = title;
  descOf.textContent = description;
}

/** Set the ARIA attributes of a handle: value, limits, and value as text. */
export function spoken(handle, value, low, high, words) {
  const said = { valuenow: value, valuemin: low, valuemax: high, valuetext: words };
  for (const [name, each] of Object.entries(said)) handle.setAttribute(`aria-${name}`, each);
}

/** Set the size of the figure in pixels. */
export function sized({ svg }, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
}

/**
 * Handle pointer events of a figure. Mouse and pen act anywhere; a finger drags only the handle or taps, so that
 * the page can still be scrolled. `moved` receives pixels of the figure.
 */
export function draggable({ element, handle }, moved, ended) {
  const at = (event) => {
    const box = element.getBoundingClientRect();
    moved(event.clientX - box.left, event.clientY - box.top);
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || (event.pointerType === "touch" && event.target !== handle)) return;
    event.preventDefault();
    element.setPointerCapture(event.pointerId);
    handle.focus({ preventScroll: true });
    at(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (element.hasPointerCapture(event.pointerId)) at(event);
  });
  element.addEventListener("lostpointercapture", ended);
  element.addEventListener("click", (event) => {
    if (event.pointerType !== "touch") return;
    at(event);
    ended();
  });
}

/** Call `drawn` when the width of the element changes. */
export function onWidth(element, drawn) {
  let width = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    drawn();
  }).observe(element);
}

// ---------------------------------------------------------------------- the address
/** Return the parameters after # in the address; empty for an anchor of the page. */
export function asked() {
  const hash = location.hash.slice(1);
  return new URLSearchParams(hash.includes("=") ? hash : "");
}

const shortened = (text) => (text.length > 24 ? `${text.slice(0, 24)}…` : text);

/** Parse a text as an integer, clamped to low … high; add a remark if it was changed. */
export function sizeFrom(text, name, { low, high, start }, remarks) {
  if (text === null) return start;
  const number = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
  const size = Number.isNaN(number) ? start : Math.min(Math.max(number, low), high);
  if (size !== number) {
    remarks.push(
      `${name} must be an integer from ${told(low)} to ${told(high)}, got ${shortened(text)}; ` +
        `${told(size)} is used.`,
    );
  }
  return size;
}

/** Return `text` if it is one of `names`, otherwise `otherwise` with a remark. */
export function nameFrom(text, what, names, remarks, otherwise = names[0]) {
  if (text === null || names.includes(text)) return text ?? otherwise;
  remarks.push(`Unknown ${what} ${shortened(text)}; ${otherwise} is used.`);
  return otherwise;
}

/** Return the known names of a comma-separated list, with a remark for each unknown one. */
export function namesFrom(text, what, names, remarks, otherwise) {
  if (text === null) return otherwise;
  const wanted = text.split(",").filter((name) => name !== "");
  for (const name of wanted.filter((each) => !names.includes(each))) {
    remarks.push(`Unknown ${what} ${shortened(name)}.`);
  }
  return names.filter((name) => wanted.includes(name));
}

let waiting = 0;

/** Write the setting to the address shortly after the last change, because browsers limit the rate. */
export function remember(setting) {
  clearTimeout(waiting);
  const hash = `#${new URLSearchParams(setting)}`;
  waiting = setTimeout(() => history.replaceState(null, "", hash), 250);
}
