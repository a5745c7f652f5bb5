// Drawing of the tile tuner: the first scores with the tile in their corner and the largest tiles that fit; next to
// it traffic and footprint as bars.

import { line, marker, rect, text, widthOf } from "./lines.js";
import { told } from "./page.js";
import { boundOf, ledgerOf, roomOf, verdict, windowOf } from "./tiles_facts.js";

const [LEFT, TOP, WIDE] = [56, 46, 620];
const BEST = { marker: "diamond", colour: "var(--line-2)" };

/** Return the layout for a width: the square of scores, and the bars next to or below it. */
export function layoutOf(width) {
  const beside = width >= WIDE;
  const side = beside ? Math.min(360, 0.5 * width) : Math.min(width - LEFT - 16, 360);
  const bars = beside
    ? { left: LEFT + side + 36, top: TOP, width: width - LEFT - side - 44 }
    : { left: 8, top: TOP + side + 56, width: width - 16 };
  return { width, side, bars, height: Math.round(beside ? TOP + side + 40 : bars.top + 250) };
}

/** Return the layout with the number of rows and columns `shown` and the pixels per score, `scale`. */
export function frameOf(setting, layout, kept = null) {
  const { edge } = roomOf(setting);
  const shown = kept ?? windowOf(setting, edge);
  return { ...layout, edge, shown, scale: shown.map((count) => layout.side / count) };
}

/** Return the lower right corner of a tile in pixels. */
export const cornerOf = ({ scale: [down, across] }, Br, Bc) => [LEFT + Bc * across, TOP + Br * down];

/** Return the tile [Br, Bc] whose corner is nearest to a point in pixels. */
export function tileAt({ scale, shown }, x, y) {
  return [y - TOP, x - LEFT].map((pixels, k) => Math.min(Math.max(Math.round(pixels / scale[k]), 1), shown[k]));
}

export const drawing = (setting, frame) => square(setting, frame) + bars(setting, frame);

// ---------------------------------------------------------------------- the scores
function square(setting, frame) {
  const { N, Br, Bc, M } = setting;
  const { side, edge } = frame;
  const [[down, across], [rows, columns]] = [frame.scale, frame.shown.map(told)];
  const [x, y] = cornerOf(frame, Br, Bc);
  const fits = ledgerOf(setting).footprint <= M;
  const { best } = roomOf(setting);
  return [
    rect(LEFT, TOP, side, side, 'class="scores"'),
    fitting(frame, edge),
    ...[...borders(Br * down, side)].map((at) => line(LEFT, TOP + at, LEFT + side, TOP + at, 'class="grid"')),
    ...[...borders(Bc * across, side)].map((at) => line(LEFT + at, TOP, LEFT + at, TOP + side, 'class="grid"')),
    rect(LEFT, TOP, x - LEFT, y - TOP, `class="tile ${fits ? "fits" : "over"}"`),
    ...(fits ? [] : [crossed(x, y)]),
    rimOf(frame, edge),
    best ? marker(BEST, ...cornerOf(frame, ...best.pair)) : "",
    label(`${told(Br)} × ${told(Bc)}`, x, y, LEFT + side),
    text(6, 16, `first ${rows} × ${columns} of ${told(N)} × ${told(N)} scores`),
    text(LEFT + side, TOP - 8, `Bc ${columns} →`, 'text-anchor="end" class="quiet"'),
    text(LEFT - 8, TOP + 14, "Br ↓", 'text-anchor="end" class="quiet"'),
    text(LEFT - 8, TOP + side, rows, 'text-anchor="end" class="quiet"'),
    text(8, TOP + side + 20, best ? "dashed: largest tiles that fit; diamond: best tile" : "no tile fits in M"),
  ].join("");
}

/** Return the label with the tile size next to its corner. */
function label(size, x, y, right) {
  const width = 1.15 * widthOf(size) + 10;
  const left = x + 18 + width < right ? x + 18 : x - 18 - width;
  const words = text(left + width / 2, y + 18, size, 'class="strong" text-anchor="middle"');
  return rect(left, y + 4, width, 20, 'class="flag"') + words;
}

/** Yield the borders of the other tiles if they are at least 5 pixels apart. */
function* borders(step, side) {
  for (let at = step; step >= 5 && at < side; at += step) yield at;
}

/** Return the largest tiles that fit as a line in pixels, clipped to the square. */
function outline(frame, edge) {
  const corners = edge.map((pair) => cornerOf(frame, ...pair.map((size, k) => Math.min(size, frame.shown[k]))));
  return [[corners[0][0], TOP], ...corners, [LEFT, corners.at(-1)[1]]].map((at) => at.join()).join(" ");
}

const fitting = (frame, edge) =>
  edge.length ? `<polygon points="${LEFT},${TOP} ${outline(frame, edge)}" class="room"/>` : "";

/** Return the dashed line of the largest tiles, with a background where it crosses the tile. */
const rimOf = (frame, edge) =>
  edge.length
    ? ["rim-ground", "rim"].map((look) => `<polyline points="${outline(frame, edge)}" class="${look}"/>`).join("")
    : "";

/** Return the cross over a tile that does not fit, so colour is not the only difference. */
const crossed = (x, y) => line(LEFT, TOP, x, y, 'class="cross"') + line(LEFT, y, x, TOP, 'class="cross"');

// ---------------------------------------------------------------------- the bars
function bars(setting, { bars: { left, top, width } }) {
  const { total, footprint } = ledgerOf(setting);
  const [{ best }, least] = [roomOf(setting), boundOf(setting).words];
  const most = 4 * (best ? best.words : Math.max(least, total / 4));
  const rows = [["this tile", total, "fits"]];
  if (best) rows.push([`best tile for M, ${best.pair.map(told).join(" × ")}`, best.words, "other"]);
  rows.push(["lower bound", least, "dark"]);
  const room = Math.max(setting.M, footprint);
  const edge = left + (width * setting.M) / room;
  const below = top + 34 + 46 * rows.length;
  return [
    text(left, top + 4, "Memory traffic (words)", 'class="strong"'),
    ...rows.map((row, k) => bar(left, top + 28 + 46 * k, width, most, ...row)),
    text(left, below + 8, "Memory footprint (words)", 'class="strong"'),
    rect(left, below + 18, (width * footprint) / room, 18, `class="bar ${footprint > setting.M ? "over" : "fits"}"`),
    line(edge, below + 12, edge, below + 42, 'class="gap"'),
    text(left, below + 56, `${told(footprint)} of M = ${told(setting.M)} words`),
    text(left, below + 74, verdict(footprint, setting.M), footprint > setting.M ? 'class="strong"' : ""),
  ].join("");
}

/** Return a bar below its name and number; a bar that exceeds the width is drawn with a gap. */
function bar(left, top, width, most, name, value, kind) {
  const long = Math.min((width * value) / most, width);
  const torn = value > most ? rect(left + width - 16, top + 5, 5, 16, 'class="tear"') : "";
  return text(left, top, `${name}: ${told(value)}`) + rect(left, top + 5, long, 16, `class="bar ${kind}"`) + torn;
}
