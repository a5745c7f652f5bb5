// The dense schedules of the forward pass: `cost` is the closed form of iocourse/costs/forms/forward.py,
// `tiles` selects the tile sizes for M words. A test compares both with the library. r, c, e are tile sizes limited to the arrays.

import { bestPair, ceilDiv, floor, largest, ledger, max, min } from "./parts.js";

const naive = {
  title: "F0 naive",
  tileNames: ["Br", "Bc", "Bm", "Bn"],
  tiles(N, d, M) {
    const words = (Bn, Bm) => N * ceilDiv(d, Bn) + d * ceilDiv(N, Bm);
    const [Bn, Bm] = bestPair(words, d, (Bn) => min(N, floor((M - Bn) / (Bn + 1))));
    return { Br: min(N, floor((M - d) / (d + 1))), Bc: min(N, M - 2), Bm, Bn };
  },
  cost(N, d, { Br, Bc, Bm, Bn }) {
    const passes = Bc >= N ? 1 : 2;
    const [r, c, m, n] = [min(Br, N), min(Bc, N), min(Bm, N), min(Bn, d)];
    return ledger(
      {
        Q: N * d,
        K: N * d * ceilDiv(N, Br),
        S: passes * N * N,
        P: N * N * ceilDiv(d, Bn),
        V: N * d * ceilDiv(N, Bm),
      },
      { S: N * N, P: N * N, O: N * d },
      max(r * d + d + r, c + 2, m * n + m + n),
    );
  },
};

function rowBlocks(N, d, Br, footprint) {
  const passes = ceilDiv(N, Br);
  return ledger({ Q: N * d, K: N * d * passes, V: N * d * passes }, { O: N * d }, footprint);
}

const flash2 = {
  title: "F2 flash2",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: min(N, floor((M - 2 * d) / (2 * d + 3))), Bc: 1 }),
  cost(N, d, { Br, Bc }) {
    const [r, c] = [min(Br, N), min(Bc, N)];
    return rowBlocks(N, d, Br, r * (2 * d + 2 + c) + 2 * c * d);
  },
};

const flash1 = {
  title: "F1 flash1",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: 1, Bc: min(N, floor((M - 2 * d - 2) / (2 * d + 1))) }),
  cost(N, d, { Br, Bc }) {
    const passes = ceilDiv(N, Bc);
    const [r, c] = [min(Br, N), min(Bc, N)];
    return ledger(
      { Q: N * d * passes, O: N * d * passes, m: N * passes, l: N * passes, K: N * d, V: N * d },
      { O: N * d * (passes + 1), m: N * (passes + 1), l: N * (passes + 1) },
      2 * c * d + r * (2 * d + 2 + c),
    );
  },
};

const flash_optimal = {
  title: "F3 flash_optimal",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: min(N, floor((M - d) / (2 * d + 3))), Bc: 1 }),
  cost(N, d, { Br, Bc }) {
    const [r, c] = [min(Br, N), min(Bc, N)];
    return rowBlocks(N, d, Br, r * (2 * d + 2 + c) + c * d);
  },
};

const square_tiling = {
  title: "F4 square_tiling",
  tileNames: ["B"],
  tiles(N, d, M) {
    return { B: largest((B) => square_tiling.cost(N, d, { B }).footprint <= M, max(N, d)) };
  },
  cost(N, d, { B }) {
    const blocks = ceilDiv(N, B);
    const [b, e] = [min(B, N), min(B, d)];
    return ledger(
      {
        Q: N * d * blocks,
        K: N * d * blocks,
        A: N * N * ceilDiv(d, B),
        V: N * d * blocks,
        D: N,
      },
      { A: N * N, D: N, O: N * d },
      b * b + 2 * b * e + b,
    );
  },
};

const small_cache = {
  title: "F5 small_cache",
  tileNames: ["Br", "Bc", "Bd"],
  tiles(N, d, M) {
    const Bc = (Br) => min(N, floor((M - 3 * Br) / (Br + 1)));
    const Bd = (Br) => min(d, floor((M - 2 * Br) / (Br + 1)));
    const words = (Br, Bc) => d * ceilDiv(N, Bc) + 2 * d * ceilDiv(N, Br) + N * ceilDiv(d, Bd(Br));
    const [rows, columns] = bestPair(words, N, Bc);
    return { Br: rows, Bc: columns, Bd: Bd(rows) };
  },
  cost(N, d, { Br, Bc, Bd }) {
    const rowBlocks = ceilDiv(N, Br);
    const [r, c, e] = [min(Br, N), min(Bc, N), min(Bd, d)];
    return ledger(
      {
        Q: N * d * ceilDiv(N, Bc),
        K: N * d * rowBlocks,
        S: N * N * ceilDiv(d, Bd),
        V: N * d * rowBlocks,
      },
      { S: N * N, O: N * d },
      max(r * c + c + 3 * r, r * e + e + 2 * r),
    );
  },
};

const small_cache_fused = {
  title: "F6 small_cache_fused",
  tileNames: ["Br", "Bc"],
  tiles(N, d, M) {
    const words = (Br, Bc) => 3 * ceilDiv(N, Bc) + 2 * ceilDiv(N, Br);
    const [Br, Bc] = bestPair(words, N, (Br) => min(N, floor((M - 4 * Br) / (Br + 1))));
    return { Br, Bc };
  },
  cost(N, d, { Br, Bc }) {
    const [rowBlocks, passes] = [ceilDiv(N, Br), ceilDiv(N, Bc)];
    const [r, c] = [min(Br, N), min(Bc, N)];
    return ledger(
      {
        Q: N * d * passes,
        K: N * d * rowBlocks,
        V: N * d * rowBlocks,
        O: N * d * (passes - 1),
      },
      { O: N * d * passes },
      r * c + 4 * r + c,
    );
  },
};

const scores_stored = {
  title: "F7 scores_stored",
  tileNames: ["Br"],
  tiles: (N, d, M) => ({ Br: min(N, floor((M - d) / (d + 3))) }),
  cost(N, d, { Br }) {
    const rowBlocks = ceilDiv(N, Br);
    return ledger(
      { Q: N * d, K: N * d * rowBlocks, S: N * N, V: N * d * rowBlocks },
      { S: N * N, O: N * d },
      min(Br, N) * (d + 3) + d,
    );
  },
};

const scores_stored_tiled = {
  title: "F7d scores_stored_tiled",
  tileNames: ["Br", "Bo", "Bd"],
  tiles(N, d, M) {
    const words = (Bd, Bo) => N * ceilDiv(d, Bd) + d * ceilDiv(N, Bo);
    const [Bd, Bo] = bestPair(words, d, (Bd) => min(N, floor((M - Bd) / (Bd + 2))));
    return { ...scores_stored.tiles(N, d, M), Bo, Bd };
  },
  cost(N, d, { Br, Bo, Bd }) {
    const [r, o, e] = [min(Br, N), min(Bo, N), min(Bd, d)];
    return ledger(
      {
        Q: N * d,
        K: N * d * ceilDiv(N, Br),
        S: N * N * ceilDiv(d, Bd),
        V: N * d * ceilDiv(N, Bo),
        LSE: N,
      },
      { S: N * N, O: N * d, LSE: N },
      max(r * (d + 3) + d, o * e + 2 * o + e),
    );
  },
};

const resident_keys = {
  title: "F3c resident_keys",
  tileNames: ["Br", "places"],
  tiles(N, d, M) {
    const most = (Br) => {
      const room = M - Br * (2 * d + 3);
      return room >= 2 * N * d ? N + 1 : min(N, floor((room + d) / (2 * d)));
    };
    const rowsRead = (Br, places) => places - 1 + (N - places + 1) * ceilDiv(N, Br);
    const [Br, places] = bestPair(rowsRead, N, most);
    return { Br, places };
  },
  cost(N, d, { Br, places }) {
    const kept = min(places - 1, N);
    const keys = kept * d + (N - kept) * d * ceilDiv(N, Br);
    const footprint = 2 * kept * d + min(Br, N) * (2 * d + 3) + (kept < N ? d : 0);
    return ledger({ Q: N * d, K: keys, V: keys }, { O: N * d }, footprint);
  },
};

/** In the order of the library. */
export const FORWARD = {
  naive,
  flash2,
  flash1,
  flash_optimal,
  square_tiling,
  small_cache,
  scores_stored,
  scores_stored_tiled,
  small_cache_fused,
  resident_keys,
};
