// Schedules by pass, and the traffic of each with M words of fast memory and the tiles it selects.

import { BACKWARD } from "./backward.js";
import { FORWARD } from "./forward.js";
import { GRADIENT } from "./gradient.js";
import { ceilDiv, distinctSizes, largest } from "./parts.js";

export const PASSES = { forward: FORWARD, backward: BACKWARD, gradient: GRADIENT };
const ALL = { ...FORWARD, ...BACKWARD, ...GRADIENT };

/** Return the schedule of this name. */
export const schedule = (name) => ALL[name];

/** Return the smallest M in which a tile of the schedule fits. */
export function smallestM(name, N, d) {
  return ALL[name].cost(N, d, ones(ALL[name].tileNames)).footprint;
}

const ones = (names) => Object.fromEntries(names.map((name) => [name, 1]));

const known = new Map();

/** Return {name, tiles, total, footprint} of a schedule for M, or null if no tile fits. */
export function move(name, N, d, M) {
  const key = `${name} ${N} ${d} ${M}`;
  if (known.size > 20_000) known.clear();
  if (!known.has(key)) known.set(key, smallestM(name, N, d) > M ? null : moved(name, N, d, M));
  return known.get(key);
}

function moved(name, N, d, M) {
  const tiles = ALL[name].tiles(N, d, M);
  const { total, footprint } = ALL[name].cost(N, d, tiles);
  return { name, tiles, total, footprint };
}

const order = (a, b) =>
  Boolean(ALL[a.name].givenWeights) - Boolean(ALL[b.name].givenWeights) ||
  a.total - b.total ||
  a.footprint - b.footprint;

/** Return the traffic of each schedule that fits in M, the least first; those with P as input are last. */
export function moves(names, N, d, M) {
  const found = names.map((name) => move(name, N, d, M));
  return found.filter((each) => each !== null).sort(order);
}

// ---------------------------------------------------------------------- tiles of the tile tuner
/** True if Br x Bc tiles of scores use complete rows of Q and K (the footprint grows with d). */
const rowTiled = (name) =>
  ["Br", "Bc"].every((tile) => FORWARD[name].tileNames.includes(tile)) &&
  smallestM(name, 1, 2) > smallestM(name, 1, 1);

/** Schedules of the tile tuner. */
export const ROW_TILED = Object.keys(FORWARD).filter(rowTiled);

/** Return the closed form for Br and Bc; other tile sizes as the schedule selects them for M, or 1. */
export function tuned(name, N, d, M, Br, Bc) {
  const { cost, tileNames, tiles } = ALL[name];
  const others = tileNames.length === 2 ? {} : smallestM(name, N, d) <= M ? tiles(N, d, M) : ones(tileNames);
  return cost(N, d, { ...others, Br, Bc });
}

/** Return the largest Bc that fits together with Br, or 0. */
export function widest(name, N, d, M, Br) {
  return largest((Bc) => tuned(name, N, d, M, Br, Bc).footprint <= M, N);
}

/** Return [Br, Bc] with the least traffic that fits in M, among these the fewest tiles; null if none fits. */
export function bestTiles(name, N, d, M) {
  let best = null;
  for (const Br of distinctSizes(N)) {
    const Bc = widest(name, N, d, M, Br);
    if (Bc === 0) continue;
    const rank = [tuned(name, N, d, M, Br, Bc).total, ceilDiv(N, Br) * ceilDiv(N, Bc)];
    if (!best || rank[0] < best.rank[0] || (rank[0] === best.rank[0] && rank[1] < best.rank[1])) {
      best = { rank, pair: [Br, Bc] };
    }
  }
  return best && best.pair;
}
