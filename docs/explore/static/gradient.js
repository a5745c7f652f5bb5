// The schedules of the gradient with respect to X, in the format of forward.js: closed forms of
// iocourse/costs/forms/input_gradient.py, and the selection of tile sizes.

import { bestPair, ceilDiv, floor, largest, ledger, max, min } from "./parts.js";

/** Return the tiles of Q = A1·X, H = A3·Y and dX = A1ᵀdQ. */
function sidesTiles(N, d, M) {
  const words = (Bn, Bm) => N * ceilDiv(d, Bn) + d * ceilDiv(N, Bm);
  const [Bn, Bm] = bestPair(words, d, (Bn) => min(N, floor((M - Bn) / (Bn + 1))));
  return { Bm, Bn, Bg: largest((b) => b * b + 2 * b <= M, d) };
}

/** Return the words read by these three products. */
function sidesRead(N, d, { Bm, Bn, Bg }) {
  const [panel, square, last] = [N * d * ceilDiv(d, Bn), d * d * ceilDiv(N, Bm), N * d * ceilDiv(d, Bg)];
  return { A1: panel + last, A3: panel, X: square, Y: square, dQ: last };
}

/** Return the footprint of the three products. */
function sidesRoom(N, d, { Bm, Bn, Bg }) {
  const [m, n, g] = [min(Bm, N), min(Bn, d), min(Bg, d)];
  return max(m * n + m + n, g * g + 2 * g);
}

const written = (N, d) => ({ Q: N * d, H: N * d, dO: N * d, dQ: N * d, LSE: N, dX: d * d });

const gradient = {
  title: "gradient",
  tileNames: ["Bm", "Bn", "Bf", "Bq", "Bg"],
  tiles: (N, d, M) => ({
    ...sidesTiles(N, d, M),
    Bf: min(N, floor((M - d) / (2 * d + 3))),
    Bq: min(N, floor((M - 2 * d) / (3 * d + 3))),
  }),
  cost(N, d, tiles) {
    const [f, q] = [min(tiles.Bf, N), min(tiles.Bq, N)];
    const met = N * d * (ceilDiv(N, tiles.Bf) + ceilDiv(N, tiles.Bq));
    return ledger(
      { ...sidesRead(N, d, tiles), Q: 2 * N * d, A2: met, H: met, E: N * d, dO: N * d, LSE: N, D: N },
      { ...written(N, d), D: N },
      max(sidesRoom(N, d, tiles), f * (2 * d + 3) + d, q * (3 * d + 3) + 2 * d),
    );
  },
};

const gradient_small_cache = {
  title: "gradient_small_cache",
  tileNames: ["B"],
  tiles(N, d, M) {
    return { B: largest((B) => gradient_small_cache.cost(N, d, { B }).footprint <= M, max(N, d)) };
  },
  cost(N, d, { B }) {
    const [b, e, strips] = [min(B, N), min(B, d), ceilDiv(d, B)];
    const [panel, square, side] = [N * d * ceilDiv(N, B), d * d * ceilDiv(N, B), N * d * strips];
    return ledger(
      {
        A1: 2 * side,
        A3: side,
        X: square,
        Y: square,
        Q: panel,
        A2: 2 * panel,
        H: 2 * panel,
        S: N * N * (2 * strips + 1),
        E: N * d,
        dO: panel,
        LSE: N,
        D: N,
        dQ: side,
      },
      { ...written(N, d), S: 2 * N * N, D: N },
      max(b * b + 4 * b, b * e + 3 * b + e, e * e + 2 * e),
    );
  },
};

const gradient_reassociated = {
  title: "gradient_reassociated",
  tileNames: ["Bf", "Bq"],
  tiles: (N, d, M) => ({
    Bf: min(N, floor((M - 2 * d * d - 2 * d) / (2 * d + 3))),
    Bq: min(N, floor((M - 3 * d * d - 3 * d) / (2 * d + 3))),
  }),
  cost(N, d, { Bf, Bq }) {
    const met = N * d * (ceilDiv(N, Bf) + ceilDiv(N, Bq));
    return ledger(
      { X: d * d, Y: d * d, A1: 2 * N * d, A2: met, A3: met, E: N * d, dO: N * d, LSE: N, D: N },
      { dO: N * d, LSE: N, D: N, dX: d * d },
      2 * d * d + max(min(Bf, N) * (2 * d + 3) + 2 * d, d * d + min(Bq, N) * (2 * d + 3) + 3 * d),
    );
  },
};

const gradient_dp_materialised = {
  title: "gradient_dp_materialised",
  tileNames: ["Bm", "Bn", "Bf", "Bs", "Bq", "Bg"],
  tiles(N, d, M) {
    const twoStay = min(N, floor((M - d) / (2 * d + 3)));
    return { ...sidesTiles(N, d, M), Bf: twoStay, Bs: min(N, floor((M - d) / (d + 2))), Bq: twoStay };
  },
  cost(N, d, tiles) {
    const [f, s, q] = [tiles.Bf, tiles.Bs, tiles.Bq].map((rows) => ceilDiv(N, rows));
    const twoStay = max(min(tiles.Bf, N), min(tiles.Bq, N));
    return ledger(
      {
        ...sidesRead(N, d, tiles),
        Q: 2 * N * d,
        A2: N * d * (f + q),
        H: N * d * (f + s),
        E: N * d,
        dO: N * d,
        dP: N * N,
        LSE: N,
        D: N,
      },
      { ...written(N, d), dP: N * N, D: N },
      max(sidesRoom(N, d, tiles), twoStay * (2 * d + 3) + d, min(tiles.Bs, N) * (d + 2) + d),
    );
  },
};

const gradient_scores_materialised = {
  title: "gradient_scores_materialised",
  tileNames: ["Bm", "Bn", "Bs", "Bo", "Bd", "Bq", "Be", "Bg"],
  tiles(N, d, M) {
    const output = (Bd, Bo) => (N + 3) * ceilDiv(d, Bd) + d * ceilDiv(N, Bo);
    const [Bd, Bo] = bestPair(output, d, (Bd) => min(N, floor((M - Bd) / (Bd + 2))));
    const queries = (Be, Bq) => N * ceilDiv(d, Be) + d * ceilDiv(N, Bq);
    const [Be, Bq] = bestPair(queries, d, (Be) => min(N, floor((M - Be) / (Be + 1))));
    return { ...sidesTiles(N, d, M), Bs: min(N, floor((M - d) / (d + 3))), Bo, Bd, Bq, Be };
  },
  cost(N, d, tiles) {
    const { Bs, Bo, Bd, Bq, Be } = tiles;
    const [s, o, q, wide, narrow] = [min(Bs, N), min(Bo, N), min(Bq, N), min(Bd, d), min(Be, d)];
    const [strips, rows] = [ceilDiv(d, Bd), ceilDiv(N, Bs)];
    return ledger(
      {
        ...sidesRead(N, d, tiles),
        Q: N * d,
        A2: N * d * (rows + ceilDiv(N, Bq)),
        H: N * d * (ceilDiv(N, Bo) + rows),
        S: N * N * (strips + 1 + ceilDiv(d, Be)),
        E: N * d,
        dO: N * d,
        LSE: N * (strips + 1),
        D: N * strips,
      },
      { ...written(N, d), S: 2 * N * N, D: N * strips },
      max(sidesRoom(N, d, tiles), s * (d + 3) + d, o * wide + 2 * o + wide, q * narrow + q + narrow),
    );
  },
};

/** In the order of the library. */
export const GRADIENT = {
  gradient,
  gradient_small_cache,
  gradient_reassociated,
  gradient_dp_materialised,
  gradient_scores_materialised,
};
