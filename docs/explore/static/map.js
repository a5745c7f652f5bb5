// Traffic map: every dense schedule of a pass, its lower bounds and its regimes, at any M.

import { bestBound } from "./bounds.js";
import { sample } from "./lines.js";
import * as facts from "./map_facts.js";
import { TOP, behind, frameOf, inFront } from "./map_picture.js";
import * as page from "./page.js";
import { told } from "./page.js";

const { low, high, perOctave } = facts.SIZES.M;
const MEMORIES = page.positions(low, high, perOctave);
const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 8, PageDown: -8, Home: -999, End: 999 };

/** Return the table of a pass: a row with a check box per schedule and bound, which calls `ticked(kind, name, on)`. */
function tableOf(pass, ticked) {
  const caption = page.make("caption");
  const rows = {};
  const row = (kind, { name, label, stroke }) => {
    const tick = page.make("input", { type: "checkbox", name: kind, value: name, "aria-label": label }); // <wbr> is read as a space
    tick.addEventListener("change", () => ticked(kind, name, tick.checked));
    const head = page.make("label", {}, tick);
    head.insertAdjacentHTML("beforeend", `${sample(stroke)} <span>${label.replaceAll("_", "_<wbr>")}</span>`);
    const cells = [0, 1, 2].map(() => page.make("td"));
    const element = page.make("tr", { "data-row": name }, page.make("th", { scope: "row" }, head), ...cells);
    rows[name] = { kind, tick, cells, element };
    return element;
  };
  const heads = ["shown", "words", "ratio to bound", "tiles"].map((name) => page.make("th", { scope: "col" }, name));
  const bodies = Object.entries(facts.offered(pass)).map(([kind, each]) =>
    page.make("tbody", {}, ...each.map((one) => row(kind, one))),
  );
  const head = page.make("thead", {}, page.make("tr", {}, ...heads));
  return { element: page.make("table", { class: "numbers" }, caption, head, ...bodies), caption, rows };
}

/** Explorer in an element of the page. */
class MemoryMap {
  constructor(root) {
    this.status = page.make("p", { role: "status", class: "said" });
    this.view = page.picture("fast memory M in words", "upright");
    this.ranges = page.sizeRanges(facts.SIZES, (part) => this.change(part));
    this.passes = page.radios("pass", Object.keys(facts.REGIMES), (pass) =>
      this.change({ pass, ...facts.usual(pass) }),
    );
    this.place = page.make("div");
    const sizes = page.make("div", { class: "sizes" }, ...this.ranges.map(([, { element }]) => element));
    root.replaceChildren(this.passes.element, sizes, this.status, this.view.element, this.place);
    this.listen();
    this.readAddress();
  }

  listen() {
    const moved = (x) => this.drag(x);
    page.draggable(this.view, moved, () => this.dropped());
    page.onWidth(this.view.element, () => this.show(true));
    this.view.handle.addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("hashchange", () => page.asked().size && this.readAddress());
  }

  readAddress() {
    [this.setting, this.remarks] = facts.settingFrom(page.asked());
    this.show(true);
  }

  /** Apply a new value of a control and redraw what depends on it. */
  change(part) {
    Object.assign(this.setting, part);
    this.remarks = [];
    this.show(!("M" in part));
    page.remember(facts.addressOf(this.setting));
  }

  ticked(kind, name, on) {
    const names = facts.offered(this.setting.pass)[kind].map((each) => each.name);
    const wanted = (each) => (each === name ? on : this.setting[kind].includes(each));
    this.change({ [kind]: names.filter(wanted) });
  }

  pressed(event) {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    const [, last] = facts.rangeOf(this.setting);
    const within = MEMORIES.filter((M) => M <= last);
    this.change({ M: page.stepped(within, this.setting.M, KEYS[event.key]) });
  }

  /** Drag M; the axes are fixed during a drag. */
  drag(x) {
    const axis = this.frame.x;
    this.dragged ??= [axis.low, axis.high];
    const M = Math.round(axis.back(Math.min(Math.max(x, axis.start), axis.stop)));
    this.change({ M: Math.min(Math.max(M, axis.low), axis.high) });
  }

  dropped() {
    this.dragged = null;
    this.show(false);
  }

  // -------------------------------------------------------------------- what is shown
  show(all) {
    this.drawPicture(all);
    this.fillTable();
    for (const [name, range] of this.ranges) range.show(this.setting[name]);
    this.passes.show(this.setting.pass);
    const said = facts.headline(this.setting);
    this.status.textContent = [...this.remarks, said].join(" ");
    this.describe(said);
  }

  drawPicture(all) {
    const width = this.view.element.clientWidth;
    const range = this.dragged ?? facts.rangeOf(this.setting);
    if (all || this.frame?.x.high !== range[1]) this.drawBehind(range, width);
    this.view.front.innerHTML = inFront(this.frame, this.setting);
    const { x, y } = this.frame;
    const place = { left: `${x(this.setting.M)}px`, top: `${TOP}px`, height: `${y.start - TOP}px` };
    Object.assign(this.view.handle.style, place);
  }

  drawBehind(range, width) {
    const { N, d, pass } = this.setting;
    const height = Math.round(Math.min(Math.max(0.62 * width, 320), 480));
    this.lines = facts.linesOf(this.setting, range);
    this.reigns = facts.reignsOf(this.setting, range);
    this.frame = frameOf(this.lines, bestBound(pass, N, d, range[1]).words, range, width, height);
    page.sized(this.view, width, height);
    this.view.back.innerHTML = behind(this.frame, this.lines, this.reigns, this.setting);
  }

  fillTable() {
    const { N, d, M, pass } = this.setting;
    if (this.table?.pass !== pass) {
      this.table = { pass, ...tableOf(pass, (...tick) => this.ticked(...tick)) };
      this.place.replaceChildren(this.table.element);
    }
    this.table.caption.textContent = `At M = ${told(M)}, with N = ${told(N)} and d = ${told(d)}, ${pass} pass`;
    const [best] = facts.atM(this.setting).ranked;
    for (const [name, { kind, tick, cells, element }] of Object.entries(this.table.rows)) {
      tick.checked = this.setting[kind].includes(name);
      element.classList.toggle("fewest", name === best?.name);
      const row = kind === "bounds" ? facts.boundRow : facts.scheduleRow;
      const said = tick.checked ? row(this.setting, name) : ["", "", ""];
      cells.forEach((cell, k) => (cell.textContent = said[k]));
    }
  }

  describe(said) {
    const { N, d, M, pass } = this.setting;
    const { low: first, high: last } = this.frame.x;
    const areas = facts.regimesOf(this.setting, [first, last]);
    const regimes = areas.map(({ name, start, stop }) => `${name} from ${told(Math.round(start))} to ${told(Math.round(stop))}`);
    const reigns = this.reigns.map(({ name, start, stop }) => `${name} from ${told(start)} to ${told(stop)}`);
    const shown = this.lines.map(({ label }) => label).join(", ") || "no selected line";
    page.describe(
      this.view,
      `Traffic of a ${pass} pass, N = ${told(N)}, d = ${told(d)}`,
      `Traffic against M from ${told(first)} to ${told(last)} words on logarithmic axes, for ${shown}. ` +
        `Regimes: ${regimes.join("; ")}. Least traffic: ${reigns.join("; ") || "none fits"}. ${said}`,
    );
    page.spoken(this.view.handle, M, low, high, `${told(M)} words`);
  }
}

const root = document.getElementById("memory-map");
if (root) new MemoryMap(root);
