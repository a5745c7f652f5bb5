// Schedules by pass, and what one moves in M words of fast memory with the tiles it picks.

import { BACKWARD } from "./backward.js";
import { FORWARD } from "./forward.js";
import { GRADIENT } from "./gradient.js";
import { ceilDiv, distinctSizes, largest } from "./parts.js";

export const PASSES = { forward: FORWARD, backward: BACKWARD, gradient: GRADIENT };
const ALL = { ...FORWARD, ...BACKWARD, ...GRADIENT };

/** The schedule of this name. */
export const schedule = (name) => ALL[name];

/** Words of fast memory below which no tile of the schedule fits. */
export function smallestM(name, N, d) {
  return ALL[name].cost(N, d, ones(ALL[name].tileNames)).footprint;
}

const ones = (names) => Object.fromEntries(names.map((name) => [name, 1]));

const known = new Map();

/** What a schedule moves in M words: {name, tiles, total, footprint}; null where no tile fits. */
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

/** What each schedule that fits moves at M, the fewest words first; one that is given P comes last. */
export function moves(names, N, d, M) {
  const found = names.map((name) => move(name, N, d, M));
  return found.filter((each) => each !== null).sort(order);
}

// ---------------------------------------------------------------------- tiles that a reader picks
/** Schedules whose tiles of Br x Bc scores are made of whole rows of Q and K: those of the tile tuner. */
export const ROW_TILED = ["naive", "flash2", "flash1", "flash_optimal"];

/** The closed form with Br and Bc as given, other tiles as the schedule picks them for M (else 1). */
export function tuned(name, N, d, M, Br, Bc) {
  const { cost, tileNames, tiles } = ALL[name];
  const others = tileNames.length === 2 ? {} : smallestM(name, N, d) <= M ? tiles(N, d, M) : ones(tileNames);
  return cost(N, d, { ...others, Br, Bc });
}

/** The largest Bc that fits beside Br, 0 where none does. */
export function widest(name, N, d, M, Br) {
  return largest((Bc) => tuned(name, N, d, M, Br, Bc).footprint <= M, N);
}

/** [Br, Bc] with the fewest words that fit M, and among those the fewest tiles; null where none fits. */
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
