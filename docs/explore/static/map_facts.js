// Data of the traffic map: traffic of each schedule at each M, lower bounds, borders of the regimes, and the
// setting in an address: {N, d, M, pass, schedules, bounds}. Nothing is drawn here.

import { BOUNDS, USUAL, bestBound, boundAt } from "./bounds.js";
import { boundStroke, strokeOf } from "./lines.js";
import { nameFrom, namesFrom, sizeFrom, times, told } from "./page.js";
import { PASSES, move, moves, schedule, smallestM } from "./schedules.js";

export const SIZES = {
  N: { label: "N (sequence length)", low: 1, high: 2 ** 16, perOctave: 2, start: 4096 },
  d: { label: "d (head dimension)", low: 1, high: 2 ** 8, perOctave: 2, start: 64 },
  M: { label: "M (words of fast memory)", low: 4, high: 2 ** 27, perOctave: 8, start: 16384 },
};

/** Borders in units of d² at which the best sequence of passes changes, and the leading terms of each. */
export const REGIMES = {
  forward: {
    borders: [1 / 4, 1 / 2, 1],
    words: ["4N²d/√M + N²", "1.5N²d²/M + 3N²", "2N²d²/M + 2N²", "4N²d²/M"],
    least: "4Nd",
  },
  backward: {
    borders: [1 / 4, 1 / 2, 4 / 3, 5 / 2],
    words: ["10N²d/√M + 3N²", "4N²d²/M + 7N²", "5N²d²/M + 5N²", "9N²d²/M + 2N²", "14N²d²/M"],
    least: "7Nd",
  },
  gradient: {
    borders: [1 / 4, 1 / 2, 1, 3 / 2],
    words: ["8N²d/√M + 3N²", "3N²d²/M + 7N²", "4N²d²/M + 5N²", "7N²d²/M + 2N²", "10N²d²/M"],
    least: "4Nd + 3d²",
  },
};

/** Return the schedules and bounds of a pass that can be selected, in the order of the library. */
export const offered = (pass) => ({
  schedules: Object.keys(PASSES[pass]).map((name, k) => ({
    name,
    label: schedule(name).title,
    stroke: strokeOf(k),
  })),
  bounds: BOUNDS[pass].map(({ id, label }, k) => ({ name: id, label, stroke: boundStroke(k) })),
});

/** Return the initial selection: all schedules, and the bounds whose maximum is the lower bound. */
export const usual = (pass) => ({ schedules: Object.keys(PASSES[pass]), bounds: USUAL[pass] });

/** Return the powers of √2 from low to high, and both ends. */
export function memories(low, high) {
  const found = new Set([low, high]);
  const last = Math.floor(2 * Math.log2(high));
  for (let k = Math.ceil(2 * Math.log2(low)); k <= last; k += 1) found.add(Math.round(2 ** (k / 2)));
  return [...found].sort((a, b) => a - b);
}

/** Return the first and the last M of the map. */
export const rangeOf = ({ N, d, M }) => [SIZES.M.low, Math.max(8 * N * d, M)];

/** Return the lines of a setting, schedules before bounds: [{name, label, stroke, points: [[M, words], ...]}]. */
export function linesOf({ N, d, pass, schedules, bounds }, [low, high]) {
  const at = memories(low, high);
  const known = offered(pass);
  const floor = bestBound(pass, N, d, high).words / 2; // smaller bounds are not drawn
  const moved = (name) => at.map((M) => [M, move(name, N, d, M)?.total ?? 0]);
  const least = (id) => at.map((M) => [M, boundAt(pass, id, N, d, M)]);
  const drawn = (each, pointsOf, from) => ({
    ...each,
    points: pointsOf(each.name).filter(([, words]) => words >= from),
  });
  return [
    ...known.schedules.filter(({ name }) => schedules.includes(name)).map((each) => drawn(each, moved, 1)),
    ...known.bounds.filter(({ name }) => bounds.includes(name)).map((each) => drawn(each, least, floor)),
  ].filter(({ points }) => points.length > 0);
}

/** Return the regimes from low to high: [{name, words, start, stop}]; below the smallest tile nothing fits. */
export function regimesOf({ N, d, pass, schedules }, [low, high]) {
  const { borders, words, least } = REGIMES[pass];
  const smallest = Math.min(...schedules.map((name) => smallestM(name, N, d)));
  const named = [
    ["nothing fits", "", Number.isFinite(smallest) ? smallest : low],
    ["blocked products", words[0], borders[0] * d * d],
    ["N × N stored", "", borders.at(-1) * d * d],
    ["row blocks", words.at(-1), N * d],
    ["compulsory", least, high],
  ];
  const found = [];
  let start = low;
  for (const [name, leading, end] of named) {
    const stop = Math.min(Math.max(end, start), high);
    if (start < stop) found.push({ name, words: leading, start, stop });
    start = stop;
  }
  return found;
}

/** Return the ranges of M with the best schedule, [{name, start, stop}]; a tie keeps the previous one. */
export function reignsOf({ N, d, schedules }, [low, high]) {
  const found = [];
  for (const M of memories(low, high)) {
    const ranked = moves(schedules, N, d, M);
    const least = ranked.filter(({ total }) => total === ranked[0].total).map(({ name }) => name);
    const last = found.at(-1);
    if (least.length === 0) continue;
    if (!last) found.push({ name: least[0], start: M, stop: M });
    else if (least.includes(last.name)) last.stop = M;
    else {
      const start = overtakes(least[0], last.name, N, d, last.stop, M);
      last.stop = start - 1;
      found.push({ name: least[0], start, stop: M });
    }
  }
  return found;
}

/** Return the M above `low` at which `later` has less traffic than `earlier`, and from which on to `high` `earlier`
 *  never has less. Before it the two may alternate. */
function overtakes(later, earlier, N, d, low, high) {
  const turns = ahead(earlier, later, N, d, low + 1, high - 1, true);
  return ahead(later, earlier, N, d, (turns ?? low) + 1, high - 1, false) ?? high;
}

/** Return the first or the last M from low to high at which `one` has less traffic than `other`, by bisection. A
 *  part is skipped if `one` at its end moves at least as many words as `other` at its start. */
function ahead(one, other, N, d, low, high, last) {
  const words = (name, M) => move(name, N, d, M)?.total ?? Infinity;
  const stretches = low <= high ? [[low, high]] : [];
  while (stretches.length > 0) {
    const [start, stop] = stretches.pop();
    if (words(one, stop) >= words(other, start)) continue;
    if (start === stop) return start;
    const middle = Math.floor((start + stop) / 2);
    const halves = [[start, middle], [middle + 1, stop]];
    stretches.push(...(last ? halves : halves.reverse()));
  }
  return null;
}

/** Return the state at M: traffic of the schedules that fit, the least first, and the bound {words, title}. */
export const atM = ({ N, d, M, pass, schedules }) => ({
  ranked: moves(schedules, N, d, M),
  bound: bestBound(pass, N, d, M),
});

const LISTED = new Intl.ListFormat("en");

/** Return the state at M as a sentence. */
export function headline(setting) {
  const { ranked, bound } = atM(setting);
  const least = `the lower bound of ${told(bound.words)} words (${bound.title})`;
  const at = `M = ${told(setting.M)}`;
  if (ranked.length === 0) return `${at}: none of the selected schedules fits. The lower bound is ${told(bound.words)} words (${bound.title}).`;
  const [best, ...others] = ranked;
  const equal = others.filter(({ name, total }) => total === best.total && !schedule(name).givenWeights);
  const names = LISTED.format([best, ...equal].map(({ name }) => schedule(name).title));
  const moved = `${names} ${equal.length ? "have" : "has"} the least traffic, ${told(best.total)} words`;
  return `${at}: ${moved}, ${times(best.total / bound.words)} ${least}.`;
}

/** Return the table row of a schedule at M: words, ratio to the lower bound, tiles. */
export function scheduleRow({ N, d, M, pass }, name) {
  const found = move(name, N, d, M);
  if (!found) return ["does not fit", "", `needs M = ${told(smallestM(name, N, d))}`];
  const tiles = Object.entries(found.tiles).map(([tile, size]) => `${tile}\u00a0=\u00a0${told(size)}`);
  return [told(found.total), (found.total / bestBound(pass, N, d, M).words).toFixed(2), tiles.join(", ")];
}

/** Return the table row of a bound at M. */
export function boundRow({ N, d, M, pass }, id) {
  const words = boundAt(pass, id, N, d, M);
  if (words === 0) return ["outside regime", "", ""];
  const share = words / bestBound(pass, N, d, M).words;
  return [told(words), share < 0.01 ? "< 0.01" : share.toFixed(2), ""];
}

/** Return the setting of an address, and remarks on invalid values. */
export function settingFrom(params) {
  const remarks = [];
  const size = ([name, limits]) => [name, sizeFrom(params.get(name), name, limits, remarks)];
  const sizes = Object.fromEntries(Object.entries(SIZES).map(size));
  const pass = nameFrom(params.get("pass"), "pass", Object.keys(PASSES), remarks);
  const ids = BOUNDS[pass].map(({ id }) => id);
  const start = usual(pass);
  const schedules = namesFrom(params.get("schedules"), "schedule", start.schedules, remarks, start.schedules);
  const bounds = namesFrom(params.get("bounds"), "bound", ids, remarks, start.bounds);
  return [{ ...sizes, pass, schedules, bounds }, remarks];
}

/** Return the address parameters of a setting; selections only if they are not the default. */
export function addressOf({ N, d, M, pass, ...ticks }) {
  const others = Object.entries(ticks).filter(([kind, names]) => `${names}` !== `${usual(pass)[kind]}`);
  return { N, d, M, pass, ...Object.fromEntries(others.map(([kind, names]) => [kind, `${names}`])) };
}
