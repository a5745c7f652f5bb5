// What the closed forms share. All numbers are whole and exact: with N up to 65,536 and d up to 256 no sum of
// words reaches 2^47, and a JavaScript number is exact up to 2^53.

export const { min, max, floor } = Math;
export const ceilDiv = (a, b) => Math.ceil(a / b);

const sum = (words) => Object.values(words).reduce((total, each) => total + each, 0);

/** Words read and written by array, their sum, and the words of fast memory that the schedule needs. */
export function ledger(reads, writes, footprint) {
  return { reads, writes, footprint, total: sum(reads) + sum(writes) };
}

const known = new Map();

/** The smallest size for each value of ⌈extent/size⌉, from large to small: about 2√extent of them. */
export function distinctSizes(extent) {
  if (!known.has(extent)) {
    const found = [];
    for (let size = extent; size >= 1; size = found.at(-1) - 1) {
      found.push(ceilDiv(extent, ceilDiv(extent, size)));
    }
    known.set(extent, found);
  }
  return known.get(extent);
}

/** [a, b] with the least cost(a, b): a over the sizes worth trying, b = partner(a) ≥ 1; of equals the first. */
export function bestPair(cost, extent, partner) {
  let best = null;
  let least = Infinity;
  for (const a of distinctSizes(extent)) {
    const b = partner(a);
    const words = b >= 1 ? cost(a, b) : Infinity;
    if (words < least) [best, least] = [[a, b], words];
  }
  return best;
}

/** The largest size up to `most` that fits, 0 where none does; a size below one that fits, fits too. */
export function largest(fits, most) {
  let low = 0;
  let high = most;
  while (low < high) {
    const middle = ceilDiv(low + high, 2);
    [low, high] = fits(middle) ? [middle, high] : [low, middle - 1];
  }
  return low;
}
