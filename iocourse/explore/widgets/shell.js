/* The shell of every explorer: native controls around a picture that Python draws.
   What it shows is the trait "page"; what it sends is said in explorer.py. */

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, -1], ArrowDown: [1, 1] };
const PAUSE = 700; // milliseconds without a change, before the live region says what came of it

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/* Each kind of control: its element, and `show`, which takes what Python says of it. `ask` sends the name of a
   new value; `idle` is whether nothing is on its way. */
const KINDS = {
  slider(first, ask) {
    let texts = first.texts;
    const input = h("input", { type: "range", min: 0, step: 1, "aria-label": first.label });
    const value = h("span", { class: "value", "aria-hidden": "true" });
    const say = () => {
      value.textContent = texts[input.value];
      input.setAttribute("aria-valuetext", texts[input.value]);
    };
    const go = at => {
      input.value = at;
      say();
      ask(texts[input.value]);
    };
    input.addEventListener("input", () => go(input.value));
    const element = h("label", { class: "slider" }, h("span", {}, first.label), value, input);
    const show = control => {
      texts = control.texts;
      input.max = texts.length - 1;
      input.value = control.at;
      input.disabled = control.disabled;
      say();
    };
    return { element, show, input, go, by: steps => go(Number(input.value) + steps) };
  },

  player(first, ask, idle, signal) {
    const slider = KINDS.slider(first, ask);
    const at = () => Number(slider.input.value), last = () => Number(slider.input.max);
    const play = h("button", { "aria-label": `play the ${first.label}s` });
    let timer = null;
    const turn = on => {
      clearInterval(timer);
      timer = on ? setInterval(step, first.interval) : null;
      play.setAttribute("aria-pressed", on);
      play.textContent = on ? "❚❚ playing" : "▶ play";
    };
    const step = () => {
      if (at() >= last()) turn(false);
      else if (idle()) slider.go(at() + 1);
    };
    const by = (name, label, steps) => {
      const made = h("button", { "aria-label": `one ${first.label} ${name}` }, label);
      made.addEventListener("click", () => (turn(false), slider.go(at() + steps)));
      return made;
    };
    play.addEventListener("click", () => {
      if (timer === null && at() >= last()) slider.go(0);
      turn(timer === null);
    });
    signal.addEventListener("abort", () => turn(false));
    turn(false);
    const buttons = h("span", { class: "buttons" }, play, by("back", "◀ back", -1), by("forward", "forward ▶", 1));
    return { element: h("div", { class: "player" }, buttons, slider.element), show: slider.show };
  },

  choice(first, ask) {
    const group = `${first.name} ${Math.random()}`; // radio buttons of two widgets are strangers
    const inputs = first.texts.map(text => {
      const input = h("input", { type: "radio", name: group });
      input.addEventListener("change", () => ask(text));
      return input;
    });
    const labels = inputs.map((input, k) => h("label", {}, input, first.texts[k]));
    const element = h("fieldset", { class: "choice", role: "radiogroup" }, h("legend", {}, first.label), ...labels);
    const show = control => {
      element.disabled = control.disabled;
      inputs[control.at].checked = true;
    };
    return { element, show };
  },

  list(first, ask) {
    const select = h("select");
    select.addEventListener("change", () => ask(select.value));
    const show = control => {
      if (Array.from(select.options, one => one.value).join("\n") !== control.texts.join("\n"))
        select.replaceChildren(...control.texts.map(text => h("option", { value: text }, text)));
      select.disabled = control.disabled;
      select.selectedIndex = control.at;
    };
    return { element: h("label", { class: "list" }, h("span", {}, first.label), select), show };
  },

  tick(first, ask) {
    const input = h("input", { type: "checkbox" }), label = h("span");
    input.addEventListener("change", () => ask(first.texts[Number(input.checked)]));
    const show = control => {
      input.disabled = control.disabled;
      input.checked = control.at === 1;
      label.textContent = control.label;
    };
    return { element: h("label", { class: "tick" }, input, label), show };
  },

  button(first, ask) {
    const element = h("button", { title: first.hint });
    element.addEventListener("click", () => ask());
    const show = control => {
      element.disabled = control.disabled;
      element.textContent = control.label;
    };
    return { element, show };
  },
};

/* One message on its way at a time; of several that wait for the same control, the newest;
   of moves too, with the places that the pointer has passed. */
function wire(model) {
  const queue = [], me = Math.random().toString(36).slice(2);
  let sent = null, count = 0;
  const next = () => {
    if (sent || !queue.length) return;
    sent = { turn: `${me} ${++count}`, ...queue.shift() };
    model.send(sent);
  };
  const takes = (old, event) =>
    old && old.do === event.do && old.name === event.name && (event.do === "set" || event.do === "move");
  return {
    tell(event) {
      const old = takes(queue.at(-1), event) ? queue.pop() : null;
      queue.push(event.do === "move" && old ? { ...event, passed: [...old.passed, [old.x, old.y]] } : event);
      next();
    },
    answered(turn) {
      if (sent?.turn === turn) sent = null;
      next();
    },
    idle: () => sent === null && queue.length === 0,
    moving: name => [sent, ...queue].some(event => event?.do === "set" && event.name === name),
  };
}

/* The pointer, in pixels of the picture, from where it takes hold of a grab until it lets go. */
function follow(picture, tell) {
  const send = kind => event => {
    const svg = picture.querySelector("svg"), box = svg?.getBoundingClientRect(), size = svg?.viewBox.baseVal;
    if (!box?.width) return;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top].map(at => (at * size.width) / box.width);
    tell({ do: kind, x, y, passed: [] });
  };
  const [down, move, up] = ["down", "move", "up"].map(send);
  const end = event => {
    if (!picture.style.cursor) return;
    picture.style.cursor = "";
    up(event);
  };
  picture.addEventListener("pointerdown", event => {
    if (event.button !== 0 || !event.target.classList.contains("grab")) return;
    event.preventDefault();
    picture.setPointerCapture(event.pointerId);
    picture.style.cursor = event.target.style.cursor;
    down(event);
  });
  picture.addEventListener("pointermove", event => picture.style.cursor && move(event));
  picture.addEventListener("pointerup", end);
  picture.addEventListener("pointercancel", end);
}

function grab([x, y, width, height, cursor], size) {
  const [left, right] = [x / size.width, width / size.width], [top, bottom] = [y / size.height, height / size.height];
  const place = `left:${100 * left}%;top:${100 * top}%;width:${100 * right}%;height:${100 * bottom}%`;
  const kind = Math.min(width, height) < 40 ? "grab handle" : "grab"; // what is small is shown
  return h("div", { class: kind, style: `${place};cursor:${cursor}` });
}

function render({ model, el }) {
  const ends = new AbortController(), { tell, answered, idle, moving } = wire(model);
  const words = h("div", { class: "words" }), svg = h("div"), grabs = h("div", { "aria-hidden": "true" });
  const picture = h("div", { class: "picture" }, svg, grabs), panel = h("div", { class: "panel" }, new Comment());
  const live = h("div", { class: "live", role: "status", "aria-live": "polite" });
  const root = h("div", { class: "iocourse-explorer", role: "group", "data-lm-suppress-shortcuts": "true" });
  root.append(words, h("div", { class: "stage" }, picture), panel, live);
  root.addEventListener("keydown", event => event.stopPropagation()); // a notebook has commands on its keys
  follow(picture, tell);
  el.append(root);

  const made = new Map(), groups = new Map();
  const frame = (name, last) => {
    if (!groups.has(name)) {
      const made = h("fieldset", {}, h("legend", {}, name)), home = new Comment(name);
      groups.set(name, Object.assign(made, { home }));
      last.after(made, home);
    }
    return groups.get(name);
  };
  const make = (control, last) => {
    const event = control.kind === "button" ? "press" : "set";
    const ask = text => tell({ do: event, name: control.name, text });
    const one = KINDS[control.kind](control, ask, idle, ends.signal);
    made.set(control.name, one);
    one.element.addEventListener("keydown", event => steer(event, control.steers));
    if (control.group) frame(control.group, last).append(one.element);
    else last.after(one.element);
  };
  const steer = (event, sliders) => {
    const [along, step] = ARROWS[event.key] ?? [];
    if (!(along in sliders)) return;
    event.preventDefault();
    made.get(sliders[along]).by(step);
  };
  const hang = (frame, at, size) => {
    if (!at !== (frame.parentNode === panel)) at ? picture.append(frame) : frame.home.before(frame);
    const [x, y] = at ? [(100 * at[0]) / size.width, (100 * at[1]) / size.height] : [];
    frame.style.cssText = at ? `left:${x}%;top:${y}%;transform:translateX(-${x}%)` : "";
  };
  const fill = (where, text) => {
    if (where.kept !== text) where.innerHTML = where.kept = text;
  };
  let speaking = null;
  const speak = text => {
    clearTimeout(speaking);
    speaking = setTimeout(() => (live.textContent = text), PAUSE);
  };

  const draw = first => {
    const page = model.get("page");
    answered(page.turn);
    root.setAttribute("aria-label", page.name);
    fill(words, page.words);
    if (page.below) panel.after(words);
    fill(svg, page.svg);
    const size = svg.firstElementChild?.viewBox?.baseVal;
    const places = size ? page.grabs.map(one => grab(one, size)) : [];
    if (grabs.innerHTML !== places.map(one => one.outerHTML).join("")) grabs.replaceChildren(...places);
    const stops = [...root.querySelectorAll("button, select, input")], at = stops.indexOf(document.activeElement);
    for (const [name, one] of made)
      if (!page.controls.some(control => control.name === name)) {
        one.element.remove();
        made.delete(name);
      }
    let last = panel.firstChild; // what the next control stands behind
    for (const control of page.controls) {
      if (!made.has(control.name)) make(control, last);
      const { element, show } = made.get(control.name);
      last = control.group ? groups.get(control.group).home : element;
      element.hidden = control.hidden;
      if (!moving(control.name)) show(control); // else the hand is further than Python
    }
    for (const [name, one] of groups) {
      one.hidden = !one.querySelector(":scope > :not(legend):not([hidden])");
      hang(one, page.frames[name], size);
    }
    if (at >= 0 && !stops[at].offsetParent) // what had the focus is gone: back to what is before it
      [...stops.slice(0, at).reverse(), ...stops].find(one => one.offsetParent)?.focus({ preventScroll: true });
    if (first !== true) speak(page.spoken);
  };
  model.on("change:page", draw);
  draw(true);
  return () => {
    model.off("change:page", draw);
    clearTimeout(speaking);
    ends.abort();
  };
}

export default { render };
