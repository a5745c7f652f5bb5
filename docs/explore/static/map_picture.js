// Drawing of the traffic map: regimes, axes and lines in the back, the state at M in front.

import { axes, curve, endLabels, line, marker, rect, scale, text, widthOf } from "./lines.js";
import { atM, offered, regimesOf } from "./map_facts.js";
import { times } from "./page.js";

export const TOP = 26;
const [LEFT, BOTTOM] = [52, 44];
const [HEAD, FOOT] = [44, 28]; // in the chart: for the names of regimes, and for the best schedules
const WIDE = 640; // minimum width for end labels

/** Return the scales {x, y, labels} of a figure of this width and height around the lines. */
export function frameOf(lines, level, [low, high], width, height) {
  const words = [level, ...lines.flatMap(({ points }) => points.map(([, each]) => each))];
  const labels = width >= WIDE;
  const room = labels ? 36 + Math.max(0, ...lines.map(({ label }) => widthOf(label))) : 12;
  const [least, most] = [Math.min(...words) / 1.4, Math.max(...words) * 1.4];
  const below = (most / least) ** (FOOT / (height - BOTTOM - FOOT - TOP - HEAD));
  const y = scale(least / below, most, height - BOTTOM, TOP + HEAD);
  return { x: scale(low, high, LEFT, width - room), y, labels };
}

/** Return everything that does not change with M. */
export function behind(frame, lines, reigns, setting) {
  const { x, y, labels } = frame;
  const drawn = lines.map((each) => ({ ...each, at: each.points.map(([M, words]) => [x(M), y(words)]) }));
  const ends = drawn.map(({ label, stroke, at }) => ({ label, stroke, end: at.at(-1) }));
  return [
    ...regimesOf(setting, [x.low, x.high]).map((regime) => band(frame, regime)),
    forbidden(frame, lines.filter(({ stroke }) => !stroke.marker)),
    axes(x, y),
    text(6, 14, "words moved"),
    text((x.start + x.stop) / 2, y.start + 38, "fast memory M (words)", 'text-anchor="middle"'),
    ...drawn.map(({ name, stroke, at }) => curve(name, stroke, at)),
    ...reigns.map((reign) => reigning(frame, setting, reign)),
    labels ? endLabels(ends, x.stop + 16, TOP + 8, y.start) : "",
  ].join("");
}

/** Return the area below the highest of the drawn bounds, which no schedule reaches. */
function forbidden({ x, y }, bounds) {
  const highest = new Map();
  for (const [M, words] of bounds.flatMap(({ points }) => points)) {
    highest.set(M, Math.max(words, highest.get(M) ?? 0));
  }
  const rim = [...highest].sort(([a], [b]) => a - b).map(([M, words]) => [x(M), y(words)]);
  if (rim.length < 2) return "";
  const corners = [...rim, [rim.at(-1)[0], y.start], [rim[0][0], y.start]];
  return `<polygon points="${corners.map((at) => at.join()).join(" ")}" class="forbidden"/>`;
}

/** Return a shaded regime, with its name and leading terms if they fit. */
function band({ x, y }, { name, words, start, stop }) {
  const [left, right] = [x(start), x(stop)];
  const room = (said) => said && 1.15 * widthOf(said) < right - left;
  const lines = room(name) ? [name, words].filter(room) : [];
  const said = lines.map((each, k) =>
    text((left + right) / 2, TOP + 16 + 17 * k, each, `text-anchor="middle" class="regime-${k}"`),
  );
  return rect(left, TOP, right - left, y.start - TOP, `class="regime" data-regime="${name}"`) + said.join("");
}

/** Return the strip of the best schedule at the bottom of the chart, with its marker and as much of its name as fits. */
function reigning({ x, y }, { pass }, { name, start, stop }) {
  const [left, right] = [x(start), x(stop)];
  const { label, stroke } = offered(pass).schedules.find((each) => each.name === name);
  const letter = label.includes(" ") ? label.split(" ")[0] : "";
  const names = [`least traffic: ${label}`, label, letter, ""];
  const said = names.find((each) => widthOf(each) + 24 < right - left) ?? "";
  const from = (left + right - widthOf(said)) / 2;
  const box = rect(left, y.start - 22, right - left, 18, `class="reign" data-reign="${name}"`);
  if (right - left < 14) return box;
  return box + marker(stroke, said ? from - 4 : from, y.start - 13) + text(from + 6, y.start - 9, said);
}

/** Return the line at M, and the ratio of the best schedule to the lower bound. */
export function inFront({ x, y }, setting) {
  const { ranked, bound } = atM(setting);
  const at = x(setting.M);
  const upright = line(at, TOP + HEAD - 6, at, y.start, 'class="at"');
  if (ranked.length === 0) return upright;
  const [best] = ranked;
  const [above, below] = [y(best.total), y(bound.words)];
  return [
    upright,
    line(at, above, at, below, 'class="gap"'),
    line(at - 8, below, at + 8, below, 'class="gap"'),
    `<circle cx="${at}" cy="${above}" r="7" class="best"/>`,
    flag(x, at, above, times(best.total / bound.words)),
  ].join("");
}

/** Return a label above a point, to its right if there is space. */
function flag(x, at, height, said) {
  const width = 1.15 * widthOf(said) + 10;
  const left = at + 12 + width < x.stop ? at + 12 : at - 12 - width;
  const words = text(left + width / 2, height - 14, said, 'class="strong" text-anchor="middle"');
  return rect(left, height - 28, width, 20, 'class="flag"') + words;
}
