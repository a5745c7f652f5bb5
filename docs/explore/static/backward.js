// The dense schedules of the backward pass, in the format of forward.js: closed forms of
// iocourse/costs/forms/backward.py without a mask, and the selection of tile sizes.

import { bestPair, ceilDiv, floor, ledger, max, min } from "./parts.js";

/** Return the best tile, rows x Bd, of an (N, d) product over N that leaves space for a column and a row. */
function outputTile(N, d, M, rows) {
  const words = (Bd, r) => N * ceilDiv(d, Bd) + d * ceilDiv(N, r);
  const [Bd, r] = bestPair(words, d, (Bd) => min(N, floor((M - Bd) / (Bd + 1))));
  return { [rows]: r, Bd };
}

/** Return the best tile of an N x N array; `columns` gives the largest width for a number of rows. */
function squareTile(N, columns) {
  return bestPair((rows, wide) => ceilDiv(N, rows) + ceilDiv(N, wide), N, columns);
}

const standard_backward = {
  title: "B0 standard_backward",
  givenWeights: true,
  tileNames: ["Br", "Bd", "Bc", "Bm", "Bn"],
  tiles(N, d, M) {
    const [Bm, Bn] = squareTile(N, (Bm) => min(N, floor((M - Bm) / (Bm + 1))));
    return { ...outputTile(N, d, M, "Br"), Bc: min(N, floor((M - 1) / 2)), Bm, Bn };
  },
  cost(N, d, { Br, Bd, Bc, Bm, Bn }) {
    const [r, e, c, m, n] = [min(Br, N), min(Bd, d), min(Bc, N), min(Bm, N), min(Bn, N)];
    const [square, panel] = [N * N * ceilDiv(d, Bd), N * d * ceilDiv(N, Br)];
    return ledger(
      {
        P: square + 2 * N * N,
        dO: panel + N * d * ceilDiv(N, Bn),
        V: N * d * ceilDiv(N, Bm),
        dP: 2 * N * N,
        dS: 2 * square,
        K: panel,
        Q: panel,
      },
      { dP: N * N, dS: N * N, dQ: N * d, dK: N * d, dV: N * d },
      max(m * n + m + n, 2 * c + 1, r * e + r + e),
    );
  },
};

const flash1_backward = {
  title: "B1 flash1_backward",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: 1, Bc: min(N, floor((M - 4 * d - 2) / (4 * d + 1))) }),
  cost(N, d, { Br, Bc }) {
    const [r, c, met] = [min(Br, N), min(Bc, N), N * ceilDiv(N, Bc)];
    return ledger(
      {
        Q: d * met,
        O: d * met,
        dO: d * met,
        dQ: d * met,
        maxima: met,
        sums: met,
        K: N * d,
        V: N * d,
      },
      { dQ: N * d + d * met, dK: 2 * N * d, dV: 2 * N * d },
      4 * c * d + r * (4 * d + 2 + c),
    );
  },
};

/** K_j, V_j, dK_j and dV_j are resident; a block of rows takes `rowWords` per row in addition to its scores. */
function columnsStay(N, d, { Br, Bc }, rowWords) {
  const [r, c, met] = [min(Br, N), min(Bc, N), N * ceilDiv(N, Bc)];
  return ledger(
    {
      O: N * d,
      dO: N * d + d * met,
      Q: d * met,
      LSE: met,
      D: met,
      dQ: d * (met - N),
      K: N * d,
      V: N * d,
    },
    { D: N, dQ: d * met, dK: N * d, dV: N * d },
    max(4 * c * d + r * (rowWords + c), r * (2 * d + 1)),
  );
}

const flash2_backward = {
  title: "B2 flash2_backward",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: 1, Bc: min(N, floor((M - 3 * d - 2) / (4 * d + 1))) }),
  cost: (N, d, tiles) => columnsStay(N, d, tiles, 3 * d + 2),
};

const fused_backward = {
  title: "B3 fused_backward",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({ Br: 1, Bc: min(N, floor((M - 2 * d - 2) / (4 * d + 1))) }),
  cost: (N, d, tiles) => columnsStay(N, d, tiles, 2 * d + 2),
};

const split_backward = {
  title: "B4 split_backward",
  tileNames: ["Br1", "Bc1", "Br2", "Bc2"],
  tiles: (N, d, M) => ({
    Br1: min(N, floor((M - 2 * d) / (3 * d + 3))),
    Bc1: 1,
    Br2: 1,
    Bc2: min(N, floor((M - 2 * d - 2) / (4 * d + 1))),
  }),
  cost(N, d, { Br1, Bc1, Br2, Bc2 }) {
    const [r1, c1, r2, c2] = [min(Br1, N), min(Bc1, N), min(Br2, N), min(Bc2, N)];
    const [rows, columns] = [N * ceilDiv(N, Br1), N * ceilDiv(N, Bc2)];
    return ledger(
      {
        Q: N * d + d * columns,
        dO: N * d + d * columns,
        O: N * d,
        LSE: N + columns,
        D: columns,
        K: d * rows + N * d,
        V: d * rows + N * d,
      },
      { D: N, dQ: N * d, dK: N * d, dV: N * d },
      max(r1 * (3 * d + 2 + c1) + 2 * c1 * d, 4 * c2 * d + r2 * (2 * d + 2 + c2)),
    );
  },
};

const small_cache_backward = {
  title: "B5 small_cache_backward",
  tileNames: ["Br", "Bc", "Bm", "Bd"],
  tiles(N, d, M) {
    const [Br, Bc] = squareTile(N, (Br) => min(N, floor((M - 2 * Br) / (Br + 1))));
    return { Br, Bc, ...outputTile(N, d, M, "Bm") };
  },
  cost(N, d, { Br, Bc, Bm, Bd }) {
    const [r, c, m, e] = [min(Br, N), min(Bc, N), min(Bm, N), min(Bd, d)];
    const [left, right] = [N * d * ceilDiv(N, Bc), N * d * ceilDiv(N, Br)];
    const [square, panel] = [N * N * ceilDiv(d, Bd), N * d * ceilDiv(N, Bm)];
    return ledger(
      {
        O: N * d,
        dO: N * d + left + panel,
        Q: left + panel,
        K: right + panel,
        V: right,
        LSE: N,
        D: N,
        P: N * N + square,
        dS: 2 * square,
      },
      { D: N, P: N * N, dS: N * N, dV: N * d, dQ: N * d, dK: N * d },
      max(r * c + 2 * r + c, m * e + m + e, 3 * r),
    );
  },
};

/** Return the words of D that are written: 0 if there is only one block of columns. */
const storedD = (N, columns) => (columns > 1 ? N : 0);

const score_gradients_stored = {
  title: "B6 score_gradients_stored",
  tileNames: ["Br", "Bc"],
  tiles: (N, d, M) => ({
    Br: min(N, floor((M - d) / (d + 1))),
    Bc: min(N, floor((M - 2 * d - 2) / (4 * d + 1))),
  }),
  cost(N, d, { Br, Bc }) {
    const [r, c, columns] = [min(Br, N), min(Bc, N), ceilDiv(N, Bc)];
    return ledger(
      {
        O: N * d,
        dO: N * d * columns,
        Q: N * d * columns,
        K: N * d + N * d * ceilDiv(N, Br),
        V: N * d,
        LSE: N * columns,
        D: N * (columns - 1),
        dS: N * N,
      },
      { D: storedD(N, columns), dS: N * N, dQ: N * d, dK: N * d, dV: N * d },
      max(c * (4 * d + 1) + 2 * d + 2, r * (d + 1) + d),
    );
  },
};

const weights_stored = {
  title: "B7 weights_stored",
  tileNames: ["Bk", "Bv", "Bo", "Bd"],
  tiles: (N, d, M) => ({
    Bk: min(N, floor((M - d - 1) / (d + 1))),
    Bv: min(N, floor((M - d - 1) / (2 * d + 1))),
    ...outputTile(N, d, M, "Bo"),
  }),
  cost(N, d, { Bk, Bv, Bo, Bd }) {
    const [k, v, o, e] = [min(Bk, N), min(Bv, N), min(Bo, N), min(Bd, d)];
    const [keys, values, panel] = [ceilDiv(N, Bk), ceilDiv(N, Bv), N * d * ceilDiv(N, Bo)];
    return ledger(
      {
        K: N * d + panel,
        Q: N * d * keys + panel,
        LSE: N * keys,
        V: N * d,
        O: N * d,
        dO: N * d * values,
        D: N * (values - 1),
        P: N * N + 2 * N * N * ceilDiv(d, Bd),
      },
      { P: 2 * N * N, D: storedD(N, values), dV: N * d, dQ: N * d, dK: N * d },
      max(k * (d + 1) + d + 1, v * (2 * d + 1) + d + 1, o * e + o + e),
    );
  },
};

const weights_precomputed = {
  title: "weights_precomputed",
  givenWeights: true,
  tileNames: ["Bv", "Bo", "Bd"],
  tiles: (N, d, M) => ({
    Bv: min(N, floor((M - d - 1) / (2 * d + 1))),
    ...outputTile(N, d, M, "Bo"),
  }),
  cost(N, d, { Bv, Bo, Bd }) {
    const [v, o, e] = [min(Bv, N), min(Bo, N), min(Bd, d)];
    const [values, panel] = [ceilDiv(N, Bv), N * d * ceilDiv(N, Bo)];
    return ledger(
      {
        P: N * N,
        V: N * d,
        O: N * d,
        dO: N * d * values,
        D: N * (values - 1),
        dS: 2 * N * N * ceilDiv(d, Bd),
        K: panel,
        Q: panel,
      },
      { dS: N * N, D: storedD(N, values), dV: N * d, dQ: N * d, dK: N * d },
      max(v * (2 * d + 1) + d + 1, o * e + o + e),
    );
  },
};

const small_cache_precomputed = {
  title: "small_cache_precomputed",
  givenWeights: true,
  tileNames: ["Br", "Bc", "Bm", "Bd"],
  tiles(N, d, M) {
    const [Br, Bc] = squareTile(N, (Br) => {
      const wide = floor((M - 2 * Br) / (Br + 1));
      return wide >= Br ? min(N, wide) : 0; // a tile with Br > Bc needs less memory when transposed
    });
    return { Br, Bc, ...outputTile(N, d, M, "Bm") };
  },
  cost(N, d, { Br, Bc, Bm, Bd }) {
    const [r, c, m, e] = [min(Br, N), min(Bc, N), min(Bm, N), min(Bd, d)];
    const [square, panel] = [N * N * ceilDiv(d, Bd), N * d * ceilDiv(N, Bm)];
    return ledger(
      {
        Q: panel,
        K: panel,
        V: N * d * ceilDiv(N, Br),
        O: N * d,
        dO: N * d * ceilDiv(N, Bc) + panel,
        P: N * N + square,
        dS: 2 * square,
      },
      { dS: N * N, dV: N * d, dQ: N * d, dK: N * d },
      max(r * c + 2 * r + max(r, c), m * e + m + e),
    );
  },
};

/** In the order of the library. */
export const BACKWARD = {
  standard_backward,
  flash1_backward,
  flash2_backward,
  fused_backward,
  split_backward,
  small_cache_backward,
  score_gradients_stored,
  weights_stored,
  weights_precomputed,
  small_cache_precomputed,
};
