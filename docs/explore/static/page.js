// What both explorers share: controls with names, a picture with a handle, a status line, the address.

/** A whole number as the page says it: 16,384. */
export const told = (number) => number.toLocaleString("en");

/** How many times the bound: 1.06 ×, 425 ×. */
export const times = (ratio) => `${ratio < 100 ? ratio.toFixed(2) : told(Math.round(ratio))} ×`;

/** Text that is safe inside markup. */
export const escaped = (text) =>
  text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

/** An element with attributes and children; a child may be text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---------------------------------------------------------------------- controls
/** Whole numbers from low to high, `perOctave` of them evenly between a number and its double. */
export function positions(low, high, perOctave) {
  const found = new Set();
  for (let power = low; power <= high; power *= 2) {
    for (let k = 0; k < perOctave; k += 1) found.add(power + Math.floor((power * k) / perOctave));
  }
  return [...found].filter((value) => value <= high).sort((a, b) => a - b);
}

/** The last position at or below a value. */
const before = (values, value) => Math.max(0, values.findLastIndex((each) => each <= value));

/** The position `by` steps from a value, which need not be one itself. */
export function stepped(values, value, by) {
  const at = before(values, value) + (by < 0 && !values.includes(value) ? 1 : 0);
  return values[Math.min(Math.max(at + by, 0), values.length - 1)];
}

/** A range with its name and number, over sizes of {low, high, perOctave, label}. */
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

/** A range for each of these sizes, as [name, range]; `changed` is given {name: value}. */
export const sizeRanges = (sizes, changed) =>
  Object.entries(sizes).map(([name, size]) => [name, sizeRange(name, size, (to) => changed({ [name]: to }))]);

/** One of a few names as radio buttons in a group of that name. */
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

/** A button that does one thing. */
export function button(label, pressed) {
  const element = make("button", { type: "button" }, label);
  element.addEventListener("click", pressed);
  return element;
}

// ---------------------------------------------------------------------- picture
let pictures = 0;

/** A picture with title and description, and in front of it a handle that is a slider of its own. */
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

/** What the picture says to those who do not see it. */
export function describe({ titleOf, descOf }, title, description) {
  titleOf.textContent = title;
  descOf.textContent = description;
}

/** What a handle says: its value among low to high, and in words. */
export function spoken(handle, value, low, high, words) {
  const said = { valuenow: value, valuemin: low, valuemax: high, valuetext: words };
  for (const [name, each] of Object.entries(said)) handle.setAttribute(`aria-${name}`, each);
}

/** Give the picture its size in pixels. */
export function sized({ svg }, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
}

/**
 * Pointers on a picture: mouse and pen move what the handle stands for from anywhere, a finger drags the handle
 * and taps anywhere, so that a page still scrolls under a thumb. `moved` is given pixels of the picture.
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

/** Call `drawn` whenever the width of the element has changed. */
export function onWidth(element, drawn) {
  let width = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    drawn();
  }).observe(element);
}

// ---------------------------------------------------------------------- the address
/** What stands behind # in the address; nothing where that is an anchor of the page. */
export function asked() {
  const hash = location.hash.slice(1);
  return new URLSearchParams(hash.includes("=") ? hash : "");
}

const shortened = (text) => (text.length > 24 ? `${text.slice(0, 24)}…` : text);

/** Of a text the whole number from low to high next to it, and into `remarks` what had to be changed. */
export function sizeFrom(text, name, { low, high, start }, remarks) {
  if (text === null) return start;
  const number = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
  const size = Number.isNaN(number) ? start : Math.min(Math.max(number, low), high);
  if (size !== number) {
    remarks.push(
      `${name} = ${shortened(text)} is not a whole number from ${told(low)} to ${told(high)}: ` +
        `${told(size)} is shown.`,
    );
  }
  return size;
}

/** Of a text one of the names there are, else the first of them. */
export function nameFrom(text, what, names, remarks, otherwise = names[0]) {
  if (text === null || names.includes(text)) return text ?? otherwise;
  remarks.push(`There is no ${what} ${shortened(text)}: ${otherwise} is shown.`);
  return otherwise;
}

/** Of a list with commas the names there are. */
export function namesFrom(text, what, names, remarks, otherwise) {
  if (text === null) return otherwise;
  const wanted = text.split(",").filter((name) => name !== "");
  for (const name of wanted.filter((each) => !names.includes(each))) {
    remarks.push(`There is no ${what} ${shortened(name)}.`);
  }
  return names.filter((name) => wanted.includes(name));
}

let waiting = 0;

/** Put these into the address a moment after the last change: browsers limit how often one may. */
export function remember(setting) {
  clearTimeout(waiting);
  const hash = `#${new URLSearchParams(setting)}`;
  waiting = setTimeout(() => history.replaceState(null, "", hash), 250);
}
