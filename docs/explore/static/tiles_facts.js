// Data of the tile tuner for a setting {N, d, M, schedule, Br, Bc}: traffic, footprint, best tile, largest tiles
// that fit, and the setting in an address. Nothing is drawn here.

import { bestBound } from "./bounds.js";
import { nameFrom, sizeFrom, times, told } from "./page.js";
import { largest } from "./parts.js";
import { ROW_TILED, bestTiles, schedule, smallestM, tuned, widest } from "./schedules.js";

export const SIZES = {
  N: { label: "N (sequence length)", low: 1, high: 2 ** 16, perOctave: 2, start: 1024 },
  d: { label: "d (head dimension)", low: 1, high: 2 ** 8, perOctave: 2, start: 64 },
  M: { label: "M (words of fast memory)", low: 4, high: 2 ** 22, perOctave: 8, start: 16384 },
  Br: { label: "Br (rows per query block)", low: 1, high: 2 ** 16, perOctave: 8, start: 32 },
  Bc: { label: "Bc (rows per key block)", low: 1, high: 2 ** 16, perOctave: 8, start: 32 },
};

/** Return the closed form of a setting. */
export const ledgerOf = ({ schedule: name, N, d, M, Br, Bc }) => tuned(name, N, d, M, Br, Bc);

let known = { key: "" };

/** Return {edge, best} for M, see `frontier` and `best`. Cached until M or a size changes. */
export function roomOf({ schedule: name, N, d, M }) {
  const key = `${name} ${N} ${d} ${M}`;
  if (key !== known.key) known = { key, edge: frontier(name, N, d, M), best: best(name, N, d, M) };
  return known;
}

/** Return {pair: [Br, Bc], words} of the best tile for M, or null. */
function best(name, N, d, M) {
  const pair = bestTiles(name, N, d, M);
  return pair && { pair, words: tuned(name, N, d, M, ...pair).total };
}

/** Return the largest tiles that fit, [[Br, Bc], ...], at about sixty values of Br. */
function frontier(name, N, d, M) {
  const most = largest((Br) => tuned(name, N, d, M, Br, 1).footprint <= M, N);
  const rows = new Set([most]);
  for (let k = 0; k < 60; k += 1) rows.add(Math.max(1, Math.round((most * k) / 60)));
  const found = [...rows].filter((Br) => Br <= most).sort((a, b) => a - b);
  return most ? found.map((Br) => [Br, widest(name, N, d, M, Br)]) : [];
}

export const boundOf = ({ N, d, M }) => bestBound("forward", N, d, M);

/** Return the numbers of rows and columns shown: powers of two around tile and frontier, at most N. */
export function windowOf({ N, Br, Bc }, edge) {
  const around = (size, k) => Math.min(N, 2 ** Math.ceil(Math.log2(1.1 * Math.max(4, size, ...edge.map((at) => at[k])))));
  return [around(Br, 0), around(Bc, 1)];
}

/** Return "fits, … free" or "does not fit, … over M". */
export function verdict(footprint, M) {
  return footprint <= M
    ? `fits, ${told(M - footprint)} words free`
    : `does not fit, ${told(footprint - M)} words over M`;
}

/** Return the status line. A tile that does not fit has no ratio to the bound, which holds for runs with M words. */
export function headline(setting) {
  const { M, Br, Bc } = setting;
  const { total, footprint } = ledgerOf(setting);
  const { words, title } = boundOf(setting);
  const ratio = `${times(total / words)} the lower bound of ${told(words)} words (${title})`;
  return (
    `Br = ${told(Br)}, Bc = ${told(Bc)}: traffic ${told(total)} words, ` +
    `${footprint <= M ? ratio : `but this tile needs M = ${told(footprint)}`}. ` +
    `Footprint ${told(footprint)} of M = ${told(M)} words: ${verdict(footprint, M)}.`
  );
}

/** Return the remark of "Best tile" if no tile fits. */
export function noneFits({ schedule: name, N, d, M }) {
  const least = told(smallestM(name, N, d));
  return `No tile of ${schedule(name).title} fits in M = ${told(M)}. The minimum is M = ${least}.`;
}

/** Return the table rows: [array, words read, words written, number of reads of the array], and the totals. */
export function wordsByArray(setting) {
  const { N, d } = setting;
  const { reads, writes } = ledgerOf(setting);
  const sizes = { S: N * N, P: N * N, m: N, l: N };
  const names = ["Q", "K", "V", "O", "S", "P", "m", "l"].filter((name) => name in reads || name in writes);
  const rows = names.map((name) => {
    const [read, written] = [reads[name] ?? 0, writes[name] ?? 0];
    return [name, told(read), told(written), told(read / (sizes[name] ?? N * d))];
  });
  const sum = (words) => told(Object.values(words).reduce((a, b) => a + b, 0));
  return [...rows, ["total", sum(reads), sum(writes), ""]];
}

/** Return the setting with its tile limited to the scores. */
export const cut = (setting) => ({
  ...setting,
  Br: Math.min(setting.Br, setting.N),
  Bc: Math.min(setting.Bc, setting.N),
});

/** Return the setting of an address, and remarks on invalid values. */
export function settingFrom(params) {
  const remarks = [];
  const size = (name, limits) => sizeFrom(params.get(name), name, limits, remarks);
  const [N, d, M] = ["N", "d", "M"].map((name) => size(name, SIZES[name]));
  const tile = (name) => size(name, { low: 1, high: N, start: Math.min(SIZES[name].start, N) });
  const name = nameFrom(params.get("schedule"), "schedule", ROW_TILED, remarks, "flash2");
  return [{ N, d, M, schedule: name, Br: tile("Br"), Bc: tile("Bc") }, remarks];
}
