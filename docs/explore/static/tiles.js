// Tile tuner: drag the corner of a tile of scores, and see its traffic and whether it fits.

import * as page from "./page.js";
import { told } from "./page.js";
import { ROW_TILED, schedule } from "./schedules.js";
import * as facts from "./tiles_facts.js";
import { cornerOf, drawing, frameOf, layoutOf, tileAt } from "./tiles_picture.js";

const KEYS = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
const FAR = 16; // steps of an arrow key with Shift

/** Explorer in an element of the page. */
class TileTuner {
  constructor(root) {
    this.status = page.make("p", { role: "status", class: "said" });
    this.view = page.picture("corner of the tile: up and down change Br, left and right Bc", "corner");
    this.ranges = page.sizeRanges(facts.SIZES, (part) => this.change(part));
    this.schedules = page.radios("schedule", ROW_TILED, (name) => this.change({ schedule: name }));
    this.best = page.button("Best tile for M", () => this.moveToBest());
    this.table = page.make("table", { class: "numbers" });
    const sizes = page.make("div", { class: "sizes" }, ...this.ranges.map(([, { element }]) => element), this.best);
    root.replaceChildren(this.schedules.element, sizes, this.status, this.view.element, this.table);
    this.listen();
    this.readAddress();
  }

  listen() {
    page.draggable(this.view, (x, y) => this.drag(x, y), () => this.dropped());
    page.onWidth(this.view.element, () => this.show());
    this.view.handle.addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("hashchange", () => page.asked().size && this.readAddress());
  }

  readAddress() {
    [this.setting, this.remarks] = facts.settingFrom(page.asked());
    this.show();
  }

  change(part, remarks = []) {
    this.setting = facts.cut({ ...this.setting, ...part });
    this.remarks = remarks;
    this.show();
    page.remember(this.setting);
  }

  moveToBest() {
    const { best } = facts.roomOf(this.setting);
    if (!best) return this.change({}, [facts.noneFits(this.setting)]);
    const [Br, Bc] = best.pair;
    return this.change({ Br, Bc });
  }

  pressed(event) {
    const { Br, Bc } = this.setting;
    const by = KEYS[event.key];
    if (!by && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    if (event.key === "End") return this.moveToBest();
    if (event.key === "Home") return this.change({ Br: 1, Bc: 1 });
    const far = event.shiftKey ? FAR : 1;
    return this.change({ Br: Math.max(1, Br + far * by[0]), Bc: Math.max(1, Bc + far * by[1]) });
  }

  /** Drag the corner; the shown part of the scores is fixed during a drag. */
  drag(x, y) {
    this.shown ??= this.frame.shown;
    const [Br, Bc] = tileAt(this.frame, x, y);
    this.change({ Br, Bc });
  }

  dropped() {
    this.shown = null;
    this.show();
  }

  // -------------------------------------------------------------------- what is shown
  show() {
    const { N, Br, Bc } = this.setting;
    this.draw();
    this.fillTable();
    for (const [name, range] of this.ranges) range.show(this.setting[name], name[0] === "B" ? N : undefined);
    this.schedules.show(this.setting.schedule);
    const said = facts.headline(this.setting);
    this.status.textContent = [...this.remarks, said].join(" ");
    page.spoken(this.view.handle, Br, 1, N, `Br ${told(Br)}, Bc ${told(Bc)}`);
    page.describe(this.view, `Tiles of ${schedule(this.setting.schedule).title}, ${this.sizes()}`, this.told(said));
  }

  sizes() {
    const { N, d, M } = this.setting;
    return `N = ${told(N)}, d = ${told(d)}, M = ${told(M)}`;
  }

  told(said) {
    const { best } = facts.roomOf(this.setting);
    const tiles = best ? `The best tile for M is Br = ${told(best.pair[0])}, Bc = ${told(best.pair[1])}` : "No tile fits";
    const words = best ? `, with a traffic of ${told(best.words)} words` : "";
    return `The first scores with a tile in their corner, and a dashed line for the largest tiles that fit. ${said} ${tiles}${words}.`;
  }

  draw() {
    const layout = layoutOf(this.view.element.clientWidth);
    this.frame = frameOf(this.setting, layout, this.shown);
    page.sized(this.view, layout.width, layout.height);
    this.view.front.innerHTML = drawing(this.setting, this.frame);
    const [x, y] = cornerOf(this.frame, this.setting.Br, this.setting.Bc);
    Object.assign(this.view.handle.style, { left: `${x}px`, top: `${y}px` });
  }

  fillTable() {
    const rows = facts.wordsByArray(this.setting).map(([name, ...numbers]) => {
      const cells = numbers.map((number) => page.make("td", {}, number));
      return page.make("tr", {}, page.make("th", { scope: "row" }, name), ...cells);
    });
    const total = told(facts.ledgerOf(this.setting).total);
    const heads = ["array", "words read", "words written", "reads per word"];
    const head = page.make("tr", {}, ...heads.map((name) => page.make("th", { scope: "col" }, name)));
    this.table.replaceChildren(
      page.make("caption", {}, `${schedule(this.setting.schedule).title}, ${this.sizes()}: traffic ${total} words`),
      page.make("thead", {}, head),
      page.make("tbody", {}, ...rows),
    );
  }
}

const root = document.getElementById("tiles");
if (root) new TileTuner(root);
