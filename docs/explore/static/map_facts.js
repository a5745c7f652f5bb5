// What the map of words against memory knows: who moves how many words at each M, the lower bounds, where a
// regime ends, and the setting that an address asks for: {N, d, M, pass, schedules, bounds}. Nothing draws here.

import { BOUNDS, USUAL, bestBound, boundAt } from "./bounds.js";
import { boundStroke, strokeOf } from "./lines.js";
import { nameFrom, namesFrom, sizeFrom, times, told } from "./page.js";
import { PASSES, move, moves, schedule, smallestM } from "./schedules.js";

export const SIZES = {
  N: { label: "N (rows)", low: 1, high: 2 ** 16, perOctave: 2, start: 4096 },
  d: { label: "d (columns)", low: 1, high: 2 ** 8, perOctave: 2, start: 64 },
  M: { label: "M (words)", low: 4, high: 2 ** 27, perOctave: 8, start: 16384 },
};

/** Where one sequence of sweeps becomes cheaper than another, in units of d², and what each then moves. */
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

/** The schedules and bounds of a pass, in the order of the course: what can be ticked. */
export const offered = (pass) => ({
  schedules: Object.keys(PASSES[pass]).map((name, k) => ({
    name,
    label: schedule(name).title,
    stroke: strokeOf(k),
  })),
  bounds: BOUNDS[pass].map(({ id, label }, k) => ({ name: id, label, stroke: boundStroke(k) })),
});

/** What is ticked at the start: all schedules, and the bounds whose largest is the lower bound. */
export const usual = (pass) => ({ schedules: Object.keys(PASSES[pass]), bounds: USUAL[pass] });

/** Powers of √2 from low to high, and both ends. */
export function memories(low, high) {
  const found = new Set([low, high]);
  const last = Math.floor(2 * Math.log2(high));
  for (let k = Math.ceil(2 * Math.log2(low)); k <= last; k += 1) found.add(Math.round(2 ** (k / 2)));
  return [...found].sort((a, b) => a - b);
}

/** The first and the last M of the map. */
export const rangeOf = ({ N, d, M }) => [SIZES.M.low, Math.max(8 * N * d, M)];

/** The lines of a setting, schedules before bounds: [{name, label, stroke, points: [[M, words], ...]}]. */
export function linesOf({ N, d, pass, schedules, bounds }, [low, high]) {
  const at = memories(low, high);
  const known = offered(pass);
  const floor = bestBound(pass, N, d, high).words / 2; // below it a bound says too little to be drawn
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

/** Regimes from low to high: [{name, words, start, stop}]; below the smallest tile nothing fits. */
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

/** Who moves the fewest words from where to where, [{name, start, stop}]; of equals the one that did before. */
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

/** The M above `low` at which `later` moves fewer words than `earlier`, and from which on to `high`, where it does,
 *  `earlier` never moves fewer. Before it the two may take turns. */
function overtakes(later, earlier, N, d, low, high) {
  const turns = ahead(earlier, later, N, d, low + 1, high - 1, true);
  return ahead(later, earlier, N, d, (turns ?? low) + 1, high - 1, false) ?? high;
}

/** The first or the last M from low to high at which `one` moves fewer words than `other`: by halving, but where
 *  `one` at the end of a stretch moves as many as `other` at its start, it is nowhere ahead in it. */
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

/** What holds at M: what the schedules that fit move, the fewest words first, and the bound {words, title}. */
export const atM = ({ N, d, M, pass, schedules }) => ({
  ranked: moves(schedules, N, d, M),
  bound: bestBound(pass, N, d, M),
});

const LISTED = new Intl.ListFormat("en");

/** The same in a sentence. */
export function headline(setting) {
  const { ranked, bound } = atM(setting);
  const least = `the lower bound of ${told(bound.words)} words (${bound.title})`;
  const at = `M = ${told(setting.M)}`;
  if (ranked.length === 0) return `${at}: no schedule that is ticked fits; ${least} stands alone.`;
  const [best, ...others] = ranked;
  const equal = others.filter(({ name, total }) => total === best.total && !schedule(name).givenWeights);
  const names = LISTED.format([best, ...equal].map(({ name }) => schedule(name).title));
  const moved = `${names} ${equal.length ? "move" : "moves"} the fewest words, ${told(best.total)}`;
  return `${at}: ${moved}, ${times(best.total / bound.words)} ${least}.`;
}

/** What the row of a schedule says at M: words, times the lower bound, tiles. */
export function scheduleRow({ N, d, M, pass }, name) {
  const found = move(name, N, d, M);
  if (!found) return ["does not fit", "", `needs M = ${told(smallestM(name, N, d))}`];
  const tiles = Object.entries(found.tiles).map(([tile, size]) => `${tile}\u00a0=\u00a0${told(size)}`);
  return [told(found.total), (found.total / bestBound(pass, N, d, M).words).toFixed(2), tiles.join(", ")];
}

/** What the row of a bound says at M. */
export function boundRow({ N, d, M, pass }, id) {
  const words = boundAt(pass, id, N, d, M);
  if (words === 0) return ["says nothing", "", ""];
  const share = words / bestBound(pass, N, d, M).words;
  return [told(words), share < 0.01 ? "< 0.01" : share.toFixed(2), ""];
}

/** The setting that an address asks for, and remarks on what it could not have. */
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

/** What the address says of a setting; ticks only where they are not the usual ones. */
export function addressOf({ N, d, M, pass, ...ticks }) {
  const others = Object.entries(ticks).filter(([kind, names]) => `${names}` !== `${usual(pass)[kind]}`);
  return { N, d, M, pass, ...Object.fromEntries(others.map(([kind, names]) => [kind, `${names}`])) };
}
