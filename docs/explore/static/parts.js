// Shared code of the closed forms. All numbers are exact integers: for N up to 65,536 and d up to 256 sums of words
// are below 2^47, and a JavaScript number is exact up to 2^53.

export const { min, max, floor } = Math;
export const ceilDiv = (a, b) => Math.ceil(a / b);

const sum = (words) => Object.values(words).reduce((total, each) => total + each, 0);

/** Return words read and written by array, their total, and the footprint. */
export function ledger(reads, writes, footprint) {
  return { reads, writes, footprint, total: sum(reads) + sum(writes) };
}

const known = new Map();

/** Return the smallest size for each value of ⌈extent/size⌉, from large to small: about 2√extent values. */
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

/** Return [a, b] with the least cost(a, b), the first in a tie: a over the distinct sizes, b = partner(a) ≥ 1. */
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

/** Return the largest size up to `most` that fits, or 0; `fits` must be monotone. */
export function largest(fits, most) {
  let low = 0;
  let high = most;
  while (low < high) {
    const middle = ceilDiv(low + high, 2);
    [low, high] = fits(middle) ? [middle, high] : [low, middle - 1];
  }
  return low;
}
