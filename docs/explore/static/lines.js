// Lines on two logarithmic axes: scales, ticks, markers, and end labels without overlap.
// Lines differ in colour, dash and marker, so colour is never the only difference.

import { escaped, told } from "./page.js";

const STROKES = [
  { dash: "", marker: "circle" },
  { dash: "9 4", marker: "square" },
  { dash: "3 3", marker: "triangle" },
  { dash: "12 3 3 3", marker: "diamond" },
  { dash: "6 2", marker: "cross" },
  { dash: "2 4", marker: "plus" },
  { dash: "14 5", marker: "star" },
];
const BOUND_DASHES = ["2 3", "", "12 3", "7 2 2 2", "2 2", "5 2", "8 3", "5 2 1 2", "14 3 2 3 2 3", "10 5", "1 4"];
const MARKERS = {
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
  square: "M-3.5-3.5h7v7h-7z",
  triangle: "M0-4.5L4.5 3.5H-4.5z",
  diamond: "M0-5L4.5 0L0 5L-4.5 0z",
  cross: "M-4-4L4 4M4-4L-4 4",
  plus: "M0-5V5M-5 0H5",
  star: "M0-5V5M-4.3-2.5L4.3 2.5M4.3-2.5L-4.3 2.5",
};

/** Return the stroke of the k-th schedule; after the last, colours repeat with another dash and marker. */
export function strokeOf(k) {
  const place = k % STROKES.length;
  const again = Math.floor(k / STROKES.length);
  return { ...STROKES[(place + again) % STROKES.length], colour: `var(--line-${place})` };
}

/** Return the stroke of the k-th bound, without a marker to distinguish it from schedules. */
export const boundStroke = (k) => ({ dash: BOUND_DASHES[k], marker: "", colour: "var(--bound)" });

/** Return a logarithmic function from values to pixels; its method `back` maps pixels to values. */
export function scale(low, high, start, stop) {
  const octaves = Math.log2(high / low);
  const at = (value) => start + ((stop - start) * Math.log2(value / low)) / octaves;
  at.back = (pixel) => low * 2 ** ((octaves * (pixel - start)) / (stop - start));
  return Object.assign(at, { low, high, start, stop });
}

export const line = (x1, y1, x2, y2, look) =>
  `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" ${look}/>`;
export const text = (x, y, words, look = "") => `<text x="${x}" y="${y}" ${look}>${escaped(words)}</text>`;
export const rect = (x, y, width, height, look) =>
  `<rect x="${x}" y="${y}" width="${Math.max(0, width)}" height="${Math.max(0, height)}" ${look}/>`;

/** Estimate the width of a text in small print, in pixels. */
export const widthOf = (words) => 6.4 * words.length;

export function marker({ marker: shape, colour }, x, y) {
  if (!shape) return "";
  const open = ["cross", "plus", "star"].includes(shape);
  const look = open ? `fill="none" stroke="${colour}" stroke-width="1.8"` : `fill="${colour}"`;
  return `<path d="${MARKERS[shape]}" transform="translate(${x} ${y})" ${look}/>`;
}

/** Return a line through points [x, y] in pixels, with a marker at every `every`-th point. */
export function curve(name, stroke, points, every = 6) {
  const path = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const marks = points.filter((_, k) => k % every === 0).map(([x, y]) => marker(stroke, x, y));
  return (
    `<g data-line="${escaped(name)}"><polyline points="${path}" fill="none" stroke="${stroke.colour}" ` +
    `stroke-width="2" stroke-dasharray="${stroke.dash}"/>${marks.join("")}</g>`
  );
}

/** Return a short piece of a line with its marker, for a table row. */
export const sample = (stroke) =>
  `<svg class="sample" width="34" height="12" aria-hidden="true">` +
  `<line x1="0" y1="6" x2="34" y2="6" stroke="${stroke.colour}" stroke-width="2" ` +
  `stroke-dasharray="${stroke.dash}"/>${marker(stroke, 17, 6)}</svg>`;

/** Return axes with ticks: powers of two on x, powers of ten on y. */
export function axes(x, y) {
  const octaves = Math.ceil((60 * Math.log2(x.high / x.low)) / (x.stop - x.start)) || 1;
  const drawn = [];
  let free = 0; // right end of the last label
  for (let power = Math.ceil(Math.log2(x.low)); 2 ** power <= x.high; power += octaves) {
    const at = x(2 ** power);
    drawn.push(line(at, y.start, at, y.start + 5, 'class="axis"'));
    const wide = widthOf(told(2 ** power));
    const middle = Math.min(at, x.stop + 10 - wide / 2);
    if (middle - wide / 2 < free) continue;
    free = middle + wide / 2 + 6;
    drawn.push(text(middle, y.start + 18, told(2 ** power), 'text-anchor="middle"'));
  }
  for (let power = Math.ceil(Math.log10(y.low)); 10 ** power <= y.high; power += 1) {
    const at = y(10 ** power);
    drawn.push(line(x.start, at, x.stop, at, 'class="grid"'));
    drawn.push(text(x.start - 6, at + 4, power < 5 ? told(10 ** power) : tenTo(power), 'text-anchor="end"'));
  }
  drawn.push(line(x.start, y.start, x.stop, y.start, 'class="axis"'));
  drawn.push(line(x.start, y.stop, x.start, y.start, 'class="axis"'));
  return drawn.join("");
}

const tenTo = (power) => `10${[...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;

/** Return labels to the right of the last points [{label, stroke, end: [x, y]}], connected to their lines. */
export function endLabels(lines, x, top, bottom, gap = 14) {
  const sorted = lines.toSorted((a, b) => a.end[1] - b.end[1]);
  let free = top;
  const heights = sorted.map(({ end }) => (free = Math.max(free, end[1]) + gap) - gap);
  let floor = bottom;
  for (let k = heights.length - 1; k >= 0; k -= 1) {
    heights[k] = Math.min(heights[k], floor);
    floor = heights[k] - gap;
  }
  return sorted
    .map(({ label, stroke, end }, k) => {
      const tie = line(end[0], end[1], x, heights[k], `stroke="${stroke.colour}" stroke-width="1"`);
      return tie + marker(stroke, x + 6, heights[k]) + text(x + 14, heights[k] + 4, label);
    })
    .join("");
}
