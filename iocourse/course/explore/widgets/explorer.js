/* Front end of all explorers: native controls around a figure that Python draws.
   It renders the trait "page"; explorer.py documents the messages that it sends. */

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, -1], ArrowDown: [1, 1] };
const NARROW = 640, BESIDE = 820; // pixels: below, some figures are drawn in one column; from here on, controls are beside
const PAUSE = 700; // milliseconds without a change before the live region is updated

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/* An element for each kind of control, set to the option with index `at`. */
const KINDS = {
  slider: ({ label, texts, at, disabled }) =>
    h("label", { class: "slider" }, h("span", {}, label), h("span", { class: "value", "aria-hidden": true }, texts[at]),
      h("input", { type: "range", max: texts.length - 1, value: at, disabled, "aria-label": label, "aria-valuetext": texts[at] })),

  player(one) {
    const play = h("button", { "data-play": "yes", "aria-label": `play the ${one.label}s`, "aria-pressed": String(one.plays) });
    play.append(one.plays ? "❚❚ playing" : "▶ play");
    const by = (steps, name, text) => h("button", { "data-by": steps, "aria-label": `one ${one.label} ${name}` }, text);
    const buttons = h("span", { class: "buttons" }, play, by(-1, "back", "◀ back"), by(1, "forward", "forward ▶"));
    return h("div", { class: "player" }, buttons, KINDS.slider(one));
  },

  choice({ name, label, texts, at, disabled, widget }) {
    const input = k => h("input", { type: "radio", name: `${widget} ${name}`, value: k, checked: k === at && "" });
    const options = texts.map((text, k) => h("label", {}, input(k), text));
    return h("fieldset", { class: "choice", role: "radiogroup", disabled }, h("legend", {}, label), ...options);
  },

  list({ label, texts, at, disabled }) {
    const options = texts.map((text, k) => h("option", { value: k, selected: k === at && "" }, text));
    return h("label", { class: "list" }, h("span", {}, label), h("select", { disabled }, ...options));
  },

  tick: ({ label, at, disabled }) =>
    h("label", { class: "tick" }, h("input", { type: "checkbox", checked: at === 1 && "", disabled }), h("span", {}, label)),

  button: ({ label, hint, disabled }) => h("button", { title: hint, disabled }, label),
};

const percent = share => `${100 * share}%`;

/* All controls in order. A group gets a frame, which may be attached to a point of the figure. */
function panelOf(controls, picture) {
  const panel = h("div", { class: "panel" }), groups = { "": panel };
  const frame = ({ group, hangs }) => {
    const [x, y] = (hangs ?? []).map(percent), style = hangs && `left:${x};top:${y};transform:translateX(-${x})`;
    const made = h("fieldset", { "data-key": group, style, hidden: "" }, h("legend", {}, group));
    return (hangs ? picture : panel).appendChild(made);
  };
  for (const one of controls) {
    const made = KINDS[one.kind](one), group = (groups[one.group] ??= frame(one));
    made.dataset.key = one.name;
    made.hidden = one.hidden;
    group.hidden &&= one.hidden;
    group.append(made);
  }
  return panel;
}

const grab = ([x, y, width, height, cursor]) =>
  h("div", { class: "grab", style: `left:${percent(x)};top:${percent(y)};width:${percent(width)};height:${percent(height)};cursor:${cursor}` });

/* An element with the given inner HTML. */
const raw = (html, attributes) => Object.assign(h("div", attributes), { html });

/* Update an element to match another. Children with the same tag and key are reused, so they keep focus and drag. */
function morph(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (fresh.html !== undefined && fresh.html === old.html) return;
  if (fresh.html !== undefined) fresh.innerHTML = old.html = fresh.html;
  const drop = node => [node.nextSibling, node.remove()][0];
  let next = old.firstChild;
  for (const child of fresh.childNodes) {
    let one = next;
    while (one && (one.nodeName !== child.nodeName || one.dataset?.key !== child.dataset?.key)) one = one.nextSibling;
    while (one && one !== next) next = drop(next);
    one ??= old.insertBefore(child.cloneNode(false), next);
    if (child.nodeType === Node.ELEMENT_NODE) morph(one, child);
    else if (one.data !== child.data) one.data = child.data;
    next = one.nextSibling;
  }
  while (next) next = drop(next);
  if ("checked" in old) old.checked = fresh.checked;
  if ("value" in old && old.value !== fresh.value) old.value = fresh.value;
}

/* Queue of events for Python; only the first has been sent. A waiting event is replaced by a newer one for the
   same control; pointer moves are merged and keep all positions. */
function wire(model, widget) {
  const queue = [];
  let count = 0;
  const send = () => queue.length && model.send({ ...queue[0], turn: `${widget} ${++count}` });
  const replaces = (event, old) => old.do === event.do && old.name === event.name && ["set", "move"].includes(event.do);
  return {
    tell(event) {
      const old = queue.length > 1 && replaces(event, queue.at(-1)) ? queue.pop() : null;
      queue.push(old?.passed ? { ...event, passed: [...old.passed, ...event.passed] } : event);
      if (queue.length === 1) send();
    },
    answered: turn => turn === `${widget} ${count}` && queue.shift() && send(),
    idle: () => queue.length === 0,
    asked: name => queue.findLast(event => event.do === "set" && event.name === name)?.text,
  };
}

function render({ model, el }) {
  const root = h("div"), widget = Math.random().toString(36).slice(2); // separates the radio groups of two widgets
  const { tell, answered, idle, asked } = wire(model, widget);
  let width = 0, playing = null, held = false, height = 0, said = "", speaking = null;

  const controls = () =>
    model.get("page").controls.map(one => {
      const ahead = one.texts.indexOf(asked(one.name)); // newer than the value in Python
      return { ...one, at: ahead < 0 ? one.at : ahead, plays: playing !== null, widget };
    });
  const control = name => controls().find(one => one.name === name);
  const under = target => control(target.closest("[data-key]")?.dataset.key);

  const draw = () => {
    const page = model.get("page");
    const grabs = h("div", { "aria-hidden": "true" }, ...page.grabs.map(grab));
    const picture = h("div", { class: "picture" }, raw(page.svg), grabs);
    const parts = [h("div", { class: "stage" }, picture), panelOf(controls(), picture)];
    // During a drag the text keeps its height, so that the figure does not slide away under the pointer.
    parts.splice(page.below ? 2 : 0, 0, raw(page.words, { class: "words", style: held && `height:${height}px` }));
    const live = h("div", { class: "live", role: "status", "aria-live": "polite" }, said);
    const shape = control("narrow")?.at ? " narrow" : page.beside && width >= BESIDE ? " beside" : "";
    const named = { class: `iocourse-explorer${shape}`, role: "group", "aria-label": page.name, "data-lm-suppress-shortcuts": "true" };
    const stops = [...root.querySelectorAll("button, select, input")], at = stops.indexOf(document.activeElement);
    morph(root, h("div", { ...named, style: held && `cursor:${held}` }, ...parts, live));
    const seen = one => one.isConnected && !one.closest("[hidden]");
    if (at >= 0 && !seen(stops[at])) // the focused element is gone: focus the one before it
      [...stops.slice(0, at).reverse(), ...stops].find(seen)?.focus({ preventScroll: true });
  };

  const go = (one, at) => {
    tell({ do: "set", name: one.name, text: one.texts[Math.min(Math.max(at, 0), one.texts.length - 1)] });
    draw();
  };
  const step = name => {
    const one = control(name);
    if (one.at === one.texts.length - 1) play(null);
    else if (idle()) go(one, one.at + 1);
  };
  const play = one => {
    clearInterval(playing);
    playing = one && setInterval(step, one.interval, one.name);
    draw();
  };
  const point = (kind, event) => {
    const box = root.querySelector(".picture").getBoundingClientRect();
    tell({ do: kind, passed: [[(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]] });
  };
  const release = event => {
    if (held) point("up", event);
    held = false;
    draw();
  };
  const HEARD = {
    input: ({ target }) => go(under(target), Number(target.type === "checkbox" ? target.checked : target.value)),
    click({ target }) {
      const { by, play: plays } = target.closest("button")?.dataset ?? {}, one = under(target);
      if (one?.kind === "button") tell({ do: "press", name: one.name });
      if (by || (plays && !playing && one.at === one.texts.length - 1)) go(one, by ? one.at + Number(by) : 0);
      if (by || plays) play(plays && !playing ? one : null);
    },
    keydown(event) {
      event.stopPropagation(); // keys must not trigger notebook commands
      const [along, by] = ARROWS[event.key] ?? [], steered = control(under(event.target)?.steers[along]);
      if (!steered) return;
      event.preventDefault();
      go(steered, steered.at + by);
    },
    pointerdown(event) {
      if (event.button !== 0 || !event.target.classList.contains("grab")) return;
      event.preventDefault();
      root.setPointerCapture(event.pointerId);
      held = event.target.style.cursor;
      height = root.querySelector(".words").offsetHeight;
      point("down", event);
      draw();
    },
    pointermove: event => held && point("move", event),
    pointerup: release,
    pointercancel: release,
  };
  for (const [kind, listener] of Object.entries(HEARD)) root.addEventListener(kind, listener);
  el.append(root);

  // A figure that can be drawn in one column has a hidden control for it, which follows the width of the page.
  const fit = () => {
    const one = control("narrow");
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    if (one && width && Boolean(one.at) !== width < NARROW) go(one, Number(width < NARROW));
    else draw();
  };
  const watch = new ResizeObserver(fit);
  watch.observe(root);

  const change = () => {
    const { turn, spoken } = model.get("page");
    answered(turn);
    clearTimeout(speaking);
    speaking = setTimeout(() => (root.lastChild.textContent = said = spoken), PAUSE);
    draw();
  };
  model.on("change:page", change);
  draw();
  return () => {
    model.off("change:page", change);
    watch.disconnect();
    clearTimeout(speaking);
    clearInterval(playing);
  };
}

export default { render };
