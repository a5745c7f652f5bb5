// Lower bounds in words, as in iocourse/bounds, in exact integer arithmetic: intermediate numbers exceed 2^300.
// N, d, M, R and T are BigInt here; `boundAt` takes and returns plain numbers.

const FREE_REGISTERS = 4; // of the machine; included in every bound
const SCALE = 2n ** 32n; // fixed-point steps per word, for square roots
const PARTS = 16n; // segment lengths are tried in sixteenths of the best one for large sizes

const least = (a, b) => (a < b ? a : b);
const most = (values) => values.reduce((a, b) => (a > b ? a : b));
const divisor = (a, b) => (b === 0n ? a : divisor(b, a % b));

/** Return ⌊√n⌋ by Newton's method, which decreases monotonically after the first step. */
export function isqrt(n) {
  if (n < 2n) return n;
  const guess = BigInt(Math.ceil(Math.sqrt(Number(n))));
  let root = (guess + n / guess) >> 1n;
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

// ---------------------------------------------------------------------- segments of T moves
/** Return ⌊products / F(R)⌋ with F of Theorem A. */
function segmentsA(products, R, d) {
  if (3n * d * d <= R) return (products * 16n * d) / (R + d * d) ** 2n;
  return segmentsB(products, R);
}

/** Return ⌊products / (R/3)^{3/2}⌋. */
const segmentsB = (products, R) => isqrt((27n * products ** 2n) / R ** 3n);

/** Return ⌊(products + √square) / F_b(R)⌋ for d = n/m, or one less if F_b was rounded up. */
function segmentsC(products, R, n, m = 1n, square = 0n) {
  const common = divisor(n, m);
  const unit = 16n * (n / common) * SCALE ** 4n;
  return (products * unit + isqrt(square * unit ** 2n)) / mostProducts(R, n / common, m / common);
}

const known = new Map();

/** Return an integer upper bound on 16n·SCALE⁴·F_b(R) for d = n/m; see iocourse/bounds/segments.py. */
function mostProducts(R, n, m) {
  const key = `${R} ${n} ${m}`;
  if (!known.has(key)) {
    if (known.size > 50_000) known.clear();
    const a = belowZero(R, n, m);
    const left = R * SCALE ** 2n - a * a;
    known.set(key, left * (m * left + 8n * n * SCALE * (a + 1n)));
  }
  return known.get(key);
}

/** Return the largest integer a with a/SCALE at or before the zero in (0, √R) of mu³ - 6nu² - mRu + 2nR. */
function belowZero(R, n, m) {
  const [square, cube] = [n * -6n * SCALE, 2n * n * R * SCALE ** 3n];
  const linear = m * R * SCALE ** 2n;
  const before = (u) => u >= 0n && ((m * u + square) * u - linear) * u + cube >= 0n;
  let low = BigInt(Math.floor(zero(Number(R), Number(n) / Number(m)) * Number(SCALE)));
  let high = low + 1n;
  for (let step = 1n; !before(low); step *= 2n) [low, high] = [low > step ? low - step : 0n, low];
  for (let step = 1n; before(high); step *= 2n) [low, high] = [high, high + step];
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (before(middle)) low = middle;
    else high = middle;
  }
  return low;
}

/** Return an approximation of that zero by bisection in floating point; integers then fix the last bits. */
function zero(R, d) {
  let [low, high] = [0, Math.sqrt(R)];
  for (let k = 0; k < 50; k += 1) {
    const u = (low + high) / 2;
    if (((u - 6 * d) * u - R) * u + 2 * d * R >= 0) low = u;
    else high = u;
  }
  return low;
}

/** Return the largest words(T) over the sixteenths of `near` from its half to its double; `near` is at least 5. */
function bestSegment(words, near) {
  const lengths = new Set();
  for (let k = PARTS / 2n; k <= 2n * PARTS; k += 1n) lengths.add((k * near) / PARTS);
  return most([...lengths].map(words));
}

// ---------------------------------------------------------------------- forward
function theoremA(N, d, M) {
  const T = M + least(M, d * d);
  return T * segmentsA(N * N * d, M + T, d);
}

const largeA = (N, d, M) => (4n * N ** 2n * d ** 2n) / (M + d * d) - (M + d * d);
const smallA = (N, d, M) => isqrt((4n * (N * N * d) ** 2n) / M) - 2n * M;

const theoremB = (N, d, M) =>
  bestSegment((T) => T * segmentsB(2n * N * N * d, M + T) - N * N, 2n * M);

const lineB = (N, d, M) => isqrt((16n * (N * N * d) ** 2n) / M) - 2n * M - N * N;

const primeB = (N, d, M) =>
  bestSegment((T) => T * segmentsC(2n * N * N * d, M + T, d) - N * N, M + least(M, 4n * d * d));

function primeLineB(N, d, M) {
  const root = isqrt(M * SCALE ** 2n) + 1n;
  return (64n * (N * d) ** 2n * SCALE) / (16n * d * root + 9n * M * SCALE) - 2n * M - N * N;
}

const rowsA = (N, d, M) => (4n * (N * d) ** 2n) / (M + 2n * d);
const sahaYe = (N, d, M) => N ** 2n * d ** 2n / (4n * (M + d * d)) - M;
const sahaYeSmall = (N, d, M) => isqrt((4n * (N * N * d) ** 2n) / M) - 2n * M - N * N;

// ---------------------------------------------------------------------- backward
const theoremC = (N, d, M) =>
  bestSegment((T) => T * segmentsC(3n * N * N * d, M + T, d), M + least(M, 4n * d * d));

const lineC = (N, d, M) => (12n * N ** 2n * d ** 2n) / (M + 4n * d * d) - (M + 4n * d * d);

function smallC(N, d, M) {
  const square = 2n * (N * N * d) ** 2n;
  const words = (T) => T * segmentsC(2n * N * N * d, M + T, d, 1n, square) - N * N;
  return bestSegment(words, M + least(M, 4n * d * d));
}

function primeC(N, d, M) {
  const square = (27n * (N * N * d) ** 2n) / 4n;
  const words = (T) => T * segmentsC(2n * N * N * d, M + T, 4n * d, 9n, square) - 2n * N * N;
  return bestSegment(words, M + least(M, (64n * d * d) / 81n));
}

function primeLineC(N, d, M) {
  const root = isqrt(M * SCALE ** 2n) + 1n;
  const products = 64n * (N * d) ** 2n * (4n * SCALE + isqrt(27n * SCALE ** 2n));
  return products / (64n * d * root + 81n * M * SCALE) - 2n * M - 2n * N * N;
}

function secondC(N, d, M) {
  const depth = isqrt((4n * d * d * SCALE ** 2n) / 27n); // 2d/3√3, rounded down
  const words = (T) => T * segmentsC(4n * N * N * d, M + T, depth, SCALE) - N * N;
  return bestSegment(words, M + least(M, (16n * d * d) / 27n));
}

function secondLineC(N, d, M) {
  const root = isqrt(M * SCALE ** 2n) + 1n;
  const steep = isqrt(3n * (27n * M * SCALE) ** 2n) + 1n; // 27√3·M
  return (256n * (N * d) ** 2n * SCALE) / (32n * d * root + steep) - 2n * M - N * N;
}

const theoremE = (N, d, M) => (14n * (N * d) ** 2n) / (M + 2n * d) - 3n * N * d;

/** Return the best bound over segment lengths T from 1 on in steps of an eighth, at least 0. */
function primeE(N, d, M) {
  const longest = (14n * N * d) / 3n - M;
  const found = [0n];
  for (let T = 1n, last = false; !last; T += 1n + T / 8n) {
    const R = M + T;
    const kept = isqrt((196n * d * d * R ** 3n * SCALE ** 2n) / 27n) + 1n; // 14d·F, rounded up
    const left = (14n * (N * d) ** 2n - 3n * N * d * R) * SCALE - kept;
    found.push((left * T) / (R * T * SCALE + kept));
    last = T >= longest;
  }
  return most(found);
}

// ---------------------------------------------------------------------- gradient with respect to X
const compulsoryGradient = (N, d) => 4n * N * d + 3n * d * d;
const gradientForward = (N, d, M) => theoremA(N, d, M) - N * d;

// ---------------------------------------------------------------------- by pass
const from = (M, d) => M >= d * d;
const upTo = (M, d) => M <= d * d;
const always = () => true;

/** [id, label, title, words, regime in which it is stated], in the order of the course. */
const TABLE = {
  forward: [
    ["compulsory", "compulsory", "Compulsory traffic", (N, d) => 4n * N * d],
    ["A", "Theorem A", "Theorem A", theoremA],
    ["A_large", "Theorem A, large", "Theorem A, large fast memory", largeA, from],
    ["A_small", "Theorem A, small", "Theorem A, small fast memory", smallA, upTo],
    ["B", "Theorem B", "Theorem B", theoremB],
    ["B_line", "Theorem B, closed", "Theorem B, closed line", lineB],
    ["B'", "Theorem B'", "Theorem B'", primeB],
    ["B'_line", "Theorem B', closed", "Theorem B', closed line", primeLineB],
    ["A_rows", "Theorem A, whole", "Theorem A, whole rows", rowsA],
    ["saha_ye", "Saha and Ye, large", "Saha and Ye, large fast memory, constants kept", sahaYe, from],
    ["saha_ye_small", "Saha and Ye, small", "Saha and Ye, small fast memory, constants kept", sahaYeSmall, upTo],
  ],
  backward: [
    ["compulsory_backward", "compulsory", "Compulsory traffic, backward", (N, d) => 7n * N * d],
    ["C", "Theorem C", "Theorem C", theoremC],
    ["C_line", "Theorem C, closed", "Theorem C, closed line", lineC],
    ["C_small", "Theorem C, weighted", "Theorem C, weighted for small fast memory", smallC],
    ["C'", "Theorem C'", "Theorem C'", primeC],
    ["C'_line", "Theorem C', closed", "Theorem C', closed line", primeLineC],
    ["C''", "Theorem C''", "Theorem C''", secondC],
    ["C''_line", "Theorem C'', closed", "Theorem C'', closed line", secondLineC],
    ["E", "Theorem E", "Theorem E", theoremE],
    ["E'", "Theorem E'", "Theorem E'", primeE],
  ],
  gradient: [
    ["compulsory_gradient", "compulsory", "Compulsory traffic, gradient with respect to X", compulsoryGradient],
    ["gradient_forward", "gradient forward", "Forward part of the gradient with respect to X", gradientForward],
  ],
};

/** Pass -> its bounds, {id, label, title, words, stated}. */
export const BOUNDS = Object.fromEntries(
  Object.entries(TABLE).map(([pass, rows]) => [
    pass,
    rows.map(([id, label, title, words, stated = always]) => ({ id, label, title, words, stated })),
  ]),
);

/** The ids of the bounds whose maximum is the lower bound of a pass for all its schedules. */
export const USUAL = {
  forward: ["compulsory", "A", "B'"],
  backward: ["compulsory_backward", "C", "C_small", "C''"],
  gradient: ["compulsory_gradient", "gradient_forward"],
};

/** Return a bound in words for M words plus the free registers; 0 outside its regime. */
export function boundAt(pass, id, N, d, M) {
  const { words, stated } = BOUNDS[pass].find((bound) => bound.id === id);
  const sizes = [BigInt(N), BigInt(d), BigInt(M + FREE_REGISTERS)];
  if (!stated(sizes[2], sizes[1])) return 0;
  return Math.max(0, Number(words(...sizes)));
}

/** Return {words, title} of the largest usual bound of a pass, the first in a tie. */
export function bestBound(pass, N, d, M) {
  let best = { words: -1, title: "" };
  for (const id of USUAL[pass]) {
    const words = boundAt(pass, id, N, d, M);
    if (words > best.words) best = { words, title: BOUNDS[pass].find((bound) => bound.id === id).title };
  }
  return best;
}
