"""Causal attention and its gradient: exact within a tile of TILE tokens, the state of other tiles outside.

Sums over the tokens of a tile are too short to be taken lane by lane: here the lanes are columns, [v, 1] of a
token stands in one register (or two), and each feature is one number times it. States are (rank, wide), wide
the columns rounded up, and have their weights in them already. Within a tile a lane is a query, or a key, and
the others of the tile pass by.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .dense import panel_of, put_outputs, take_gradient, take_queries, take_values
from .guarding import Extents, Watch
from .room import Room
from .rows import columns_of, pieces, put_columns, put_turned
from .steps import Features, RegisterBlocking, Steps
from .writer import Numbers, Vector, Word

TILE = 64
AT_ONCE = 8  # sums over a tile that are taken together where there are 32 registers
LARGEST, SMALLEST = 88.8, -87.0  # of exponents: 2^128 is infinite in float32, 2^-126 the least normal number

FORWARD = (*("numbers",) * 7, "word", "number", "numbers", "number", "words", "numbers")
QUERIES_BACK = (*("numbers",) * 9, "word", "number", "numbers", "words", "numbers")
KEYS_BACK = (*("numbers",) * 10, "word", "number", "numbers", "words", "numbers")


def exponential(s: RegisterBlocking, x: Vector) -> Vector:
    """exp lane by lane: 2ᵏ by its bits, times a series for the rest; no number stays no number."""
    p = s.p
    x = x.least(p.vector(LARGEST)).largest(p.vector(SMALLEST))
    k = p.call("llvm.floor", p.vector(0.5).plus(x, p.vector(1.4426950408889634)))
    rest = x.plus(k, p.vector(-0.693145751953125)).plus(k, p.vector(-1.4286068203094172e-06))
    found = p.vector(1 / 5040)
    for part in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1, 1):
        found = p.vector(part).plus(found, rest)
    return found * p.power_of_2(k)


def state_columns(s: RegisterBlocking) -> int:
    """Columns of a state, in whole registers."""
    return -(-s.m // s.p.lanes) * s.p.lanes


def dot(s: RegisterBlocking, columns: Sequence[Vector], row: Numbers) -> Vector:
    """Σ columns[i] · row[i], in two sums."""
    sums = [s.p.vector(0.0), s.p.vector(0.0)]
    for i, x in enumerate(columns):
        sums[i % 2] = sums[i % 2].plus(x, row.spread(i))
    return sums[0] + sums[1]


def column_vectors(X: Features, many: int, t: Word) -> list[Vector]:
    """`many` rows of X, a vector of tokens from t on."""
    return [X.at(i, t).vector() for i in range(many)]


def copied(s: RegisterBlocking, F: Features, X: Features, t: Word) -> None:
    """A panel of coordinates, to features 1 … d of the panel F."""
    for i in range(s.d):
        s.put_several(F.at(i + 1, 0), s.several(X.at(i, t)))


def clear(s: RegisterBlocking, A: Numbers, many: Word | int) -> None:
    """Zeros."""
    with s.p.loop(0, many, s.p.lanes) as at:
        A.put(at, s.p.vector(0.0))


def value_rows(s: RegisterBlocking, rows: Numbers, V: Numbers, at: Word, tokens: Word) -> None:
    """rows (TILE, wide) = [v, 1] of the tokens from `at` on, 0 after them; lanes beyond the columns stay."""
    p, dv, across = s.p, s.m - 1, state_columns(s)
    with p.loop(0, tokens) as t:
        for first, width in pieces(dv, p.lanes):
            rows.put(t * across + first, V.vector((at + t) * dv + first, width))
        rows.put_number(t * across + dv, p.number(1.0))
    with p.loop(tokens * across, TILE * across, p.lanes) as i:
        rows.put(i, p.vector(0.0))


def add_tile(
    s: RegisterBlocking,
    T: Numbers,
    F: Features,
    X: Features,
    rows: Numbers,
    scratch: Numbers,
    steps: Steps,
) -> None:
    """T (rank, wide) += weights ∘ (all features of the tile times its rows (TILE, wide))."""
    p, across, weights = s.p, state_columns(s), steps.weights
    _add_features(s, T, weights, F, steps.base, rows)
    if s.holds_short:
        first, many = steps.short(), steps.rank() - steps.short()
        _add_features(s, T + first * across, weights + first, F.after(steps.base), many, rows)
    with p.loop(steps.low, steps.long if s.holds_short else steps.all) as step:
        first, many, axis, source = steps.step(step)
        with p.loop(0, TILE) as t:
            x = X.at(axis, t).spread()
            for c in range(0, across, p.lanes):
                scratch.put(t * across + c, rows.vector(t * across + c) * x)
        _add_features(s, T + first * across, weights + first, F.after(source), many, scratch)


def _add_features(
    s: RegisterBlocking, T: Numbers, weights: Numbers, F: Features, many: Word, rows: Numbers
) -> None:
    """The same of features 0 … many - 1."""
    if s.holds_short:  # more of them: written once
        kinds = ("numbers", "numbers", "numbers", "word", "word", "numbers")
        given = (T, weights, F.numbers, s.p.word(F.stride), many, rows)
        s.p.routine("add features", kinds, partial(_features_added, s), *given)
    else:
        _features_added(s, T, weights, F.numbers, s.p.word(F.stride), many, rows)


def _features_added(
    s: RegisterBlocking,
    T: Numbers,
    weights: Numbers,
    columns: Numbers,
    stride: Word,
    many: Word,
    rows: Numbers,
) -> None:
    F = Features(columns, stride)
    p, across = s.p, state_columns(s)
    vectors = across // p.lanes
    size = (AT_ONCE if p.processor.registers == 32 else 15 - vectors) // vectors
    whole = many // size * size

    def turn(a: Word, features: int, tokens: int, t: Word, sums: list[Vector]) -> list[Vector]:
        found = list(sums)
        for j in range(tokens):
            row = [rows.vector((t + j) * across + c * p.lanes) for c in range(vectors)]
            for i in range(features):
                f = F.at(a + i, t + j).spread()
                for c in range(vectors):
                    at = (j * features + i) * vectors + c
                    found[at] = found[at].plus(f, row[c])
        return found

    for features, tokens, start, stop in ((size, 1, p.word(0), whole), (1, 4, whole, many)):
        with p.loop(start, stop, features) as a:
            each = partial(turn, a, features, tokens)
            sums = p.fold(0, TILE, tokens, each, p.zeros(features * tokens * vectors))
            for i in range(features * vectors):
                parts = sums[i :: features * vectors]
                total = (parts[0] + parts[1]) + (parts[2] + parts[3]) if tokens == 4 else parts[0]
                at = T + (a * across + i * p.lanes)
                at.put(0, at.vector().plus(total, weights.spread(a + i // vectors)))


def take_keys(
    s: RegisterBlocking, X: Features, t: Word | int, K: Numbers, first: Word, last: Word, watch: Watch
) -> None:
    """Coordinates of a vector of keys to X (d rows); a clipped exponent would not show an infinite one."""
    found = columns_of(s.p, K, s.d, first, last)
    watch.see(found)
    for i, k in enumerate(found):
        X.at(i, t).put(0, k)


def true_scale(s: RegisterBlocking, halves: Sequence[Vector]) -> list[Vector]:
    """e^(σ²/2)."""
    return [exponential(s, -h) for h in halves]


class CausalTile:
    """What queries need of a tile, and what is kept of it: features, coordinates, [v, 1] of its tokens."""

    def __init__(self, s: RegisterBlocking, steps: Steps, room: Room) -> None:
        """Take room for it."""
        self.s, self.steps, across = s, steps, state_columns(s)
        self.queries = Features(room.take(s.held(steps) * s.tokens), s.tokens)  # of a panel
        self.series = Features(room.take((steps.g // 2 + 1) * s.tokens), s.tokens)
        self.keys = Features(room.take(s.held(steps) * TILE), TILE)
        self.X = Features(room.take(s.d * TILE), TILE)  # coordinates of queries, times the scale
        self.rows, self.scratch = room.take(TILE * across), room.take(TILE * across)
        s.ones(self.queries, s.tokens)
        s.ones(self.keys, TILE)
        clear(s, self.rows, TILE * across)

    def take(
        self, Q: Numbers, K: Numbers, V: Numbers, at: Word, n: Word, scale: Vector, watch: Watch
    ) -> Word:
        """The tokens from `at` on; how many there are."""
        tokens = (n - at).least(TILE)
        with self.s.p.loop(0, TILE, self.s.p.lanes) as t:
            take_keys(self.s, self.keys.after(1), t, K, at + t, n - 1, watch)
            take_queries(self.s, self.X, t, Q, at + t, n - 1, scale)
        value_rows(self.s, self.rows, V, at, tokens)
        return tokens

    def panel(self, t: Word, covariance: Numbers) -> list[Vector]:
        """The features and the series of the queries from t on; e^(σ²/2)."""
        s = self.s
        copied(s, self.queries, self.X, t)
        s.fill(self.queries, 0, self.steps)
        halves = s.half_variances(self.queries, 0, covariance)
        s.series(self.series, 0, halves, self.steps)
        return true_scale(s, halves)

    def keep(self, T: Numbers) -> None:
        """Add its keys to the state."""
        s, A = self.s, self.keys
        with s.p.loop(0, TILE, s.tokens) as t:
            s.fill(A, t, self.steps)
        add_tile(s, T, A, A.after(1), self.rows, self.scratch, self.steps)


def write_causal_forward(s: RegisterBlocking) -> None:
    """O and den of one head; guard: their extents, 0 where O and K are finite, extents of V. Hands back what
    `judge` says.
    """
    p, d, m, u = s.p, s.d, s.m, s.u
    found = p.begin("causal_forward", FORWARD)
    O, den, guard, T, Q, K, V, n, factor, covariance, least, plan, work = found
    steps, room, scale, across = Steps(plan), Room(work), p.spread(factor), state_columns(s)
    tile, N = CausalTile(s, steps, room), Features(room.take(m * TILE), TILE)
    extents, values = Extents(p, room.take(2 * m * p.lanes), m), Extents(p, room.take(2 * m * p.lanes), m - 1)
    watch = Watch(p, room.take(p.lanes))
    with p.loop(0, n, TILE) as at:
        tokens = tile.take(Q, K, V, at, n, scale, watch)
        with p.loop(0, TILE, p.lanes) as t:
            values.see(columns_of(p, V, m - 1, at + t, n - 1))
        with p.loop(0, tokens, s.tokens) as t:
            sizes = tile.panel(t, covariance)
            far = s.sums(T, across, tile.queries, 0, tile.series, 0, steps, m)
            for c in range(m):
                s.put_several(N.at(c, t), [x * y for x, y in zip(far[c * u : c * u + u], sizes, strict=True)])
        with p.loop(0, tokens, p.lanes) as t:
            near = _near_outputs(s, K + at * d, tile.X, tile.rows, tokens, t, column_vectors(N, m, t))
            put_outputs(s, O, den, at + t, n, near, extents, watch)
        tile.keep(T)
    extents.say(guard)
    watch.say(guard + 2 * m)
    values.say(guard + (2 * m + 1))
    p.end(p.invoke("judge", guard + (2 * m + 1), guard, least))


def _near_outputs(
    s: RegisterBlocking, K: Numbers, X: Features, rows: Numbers, tokens: Word, t: Word, far: list[Vector]
) -> list[Vector]:
    """far + exp(scores) times the rows of the keys that a vector of queries from t on see in their tile."""
    p, across = s.p, state_columns(s)
    q = column_vectors(X, s.d, t)

    def weighted(key: Word, e: Vector, near: list[Vector]) -> list[Vector]:
        return [x.plus(e, (rows + key * across).spread(c)) for c, x in enumerate(near)]

    def before(key: Word, near: list[Vector]) -> list[Vector]:
        return weighted(key, exponential(s, dot(s, q, K + key * s.d)), near)

    def among(key: Word, near: list[Vector]) -> list[Vector]:
        seen = p.vector(1.0) - p.first_lanes(key - t)
        return weighted(key, exponential(s, dot(s, q, K + key * s.d)) * seen, near)

    return p.fold(t, (t + p.lanes).least(tokens), 1, among, p.fold(0, t, 1, before, far))


def queries_back(s: RegisterBlocking) -> None:
    """dQ of one head, in the order of its tokens, with the state T of keys before; guard: spoilt, Σ |dO|."""
    p, d, m = s.p, s.d, s.m
    found = p.begin("causal_queries_back", QUERIES_BACK)
    dQ, guard, T, O, den, dO, Q, K, V, n, factor, covariance, plan, work = found
    steps, room, scale, across = Steps(plan), Room(work), p.spread(factor), state_columns(s)
    tile = CausalTile(s, steps, room)
    D, P = (Features(room.take(many * s.tokens), s.tokens) for many in (s.held(steps), p.word(d)))
    DX, G = Features(room.take(d * TILE), TILE), room.take(m * TILE)
    watch, size = Watch(p, room.take(p.lanes)), Watch(p, room.take(p.lanes))
    with p.loop(0, n, TILE) as at:
        tokens = tile.take(Q, K, V, at, n, scale, watch)
        with p.loop(0, TILE, p.lanes) as t:
            take_gradient(s, G + t * m, O, den, dO, at + t, n, size)
        with p.loop(0, tokens, s.tokens) as t:
            sizes = tile.panel(t, covariance) * m
            W = [x * y for x, y in zip(panel_of(s, G + t * m, m), sizes, strict=True)]
            s.pull(T, across, W, tile.queries, 0, D, P, tile.series, 0, steps)
            for i in range(d):
                s.put_several(DX.at(i, t), s.several(P.at(i, 0)))
        with p.loop(0, tokens, p.lanes) as t:
            far = column_vectors(DX, d, t)
            near = _near_queries(s, K + at * d, tile.X, G + t * m, tile.rows, tokens, t, far)
            near = [x * scale for x in near]
            watch.see(near)
            put_columns(p, dQ, at + t, n, near)
        tile.keep(T)
    watch.say(guard)
    size.say(guard + 1)
    p.end()


def _near_queries(
    s: RegisterBlocking,
    K: Numbers,
    X: Features,
    G: Numbers,
    rows: Numbers,
    tokens: Word,
    t: Word,
    far: list[Vector],
) -> list[Vector]:
    """far + the gradient of a vector of queries from t on by the keys they see in their tile."""
    p, across = s.p, state_columns(s)
    q, g = column_vectors(X, s.d, t), [G.vector(c * p.lanes) for c in range(s.m)]

    def change(key: Word) -> Vector:
        return exponential(s, dot(s, q, K + key * s.d)) * dot(s, g, rows + key * across)

    def weighted(key: Word, e: Vector, near: list[Vector]) -> list[Vector]:
        return [x.plus(e, (K + key * s.d).spread(i)) for i, x in enumerate(near)]

    def before(key: Word, near: list[Vector]) -> list[Vector]:
        return weighted(key, change(key), near)

    def among(key: Word, near: list[Vector]) -> list[Vector]:
        return weighted(key, change(key) * (p.vector(1.0) - p.first_lanes(key - t)), near)

    return p.fold(t, (t + p.lanes).least(tokens), 1, among, p.fold(0, t, 1, before, far))


def keys_back(s: RegisterBlocking) -> None:
    """dK and dV of one head, from its last tile on; U: the queries after a tile; guard: spoilt, Σ |dV|."""
    p, d, m, u = s.p, s.d, s.m, s.u
    found = p.begin("causal_keys_back", KEYS_BACK)
    dK, dV, guard, U, O, den, dO, Q, K, V, n, factor, covariance, plan, work = found
    steps, room, scale, across = Steps(plan), Room(work), p.spread(factor), state_columns(s)
    F, A = (Features(room.take(s.held(steps) * many), many) for many in (s.tokens, TILE))
    E = Features(room.take((steps.g // 2 + 1) * TILE), TILE)
    D, P = (Features(room.take(many * s.tokens), s.tokens) for many in (s.held(steps), p.word(d)))
    X, XQ, DX = (Features(room.take(d * TILE), TILE) for _ in range(3))
    W, G, N = room.take(m * TILE), room.take(m * TILE), Features(room.take(m * TILE), TILE)
    rows, scaled, scratch = (room.take(TILE * across) for _ in range(3))
    watch, size, unused = (Watch(p, room.take(p.lanes)) for _ in range(3))
    tiles = (n + (TILE - 1)) // TILE
    s.ones(F, s.tokens)
    clear(s, rows, TILE * across)
    clear(s, scaled, TILE * across)
    with p.loop(0, tiles) as tile:
        at = (tiles - 1 - tile) * TILE
        tokens = (n - at).least(TILE)
        with p.loop(0, TILE, p.lanes) as t:
            take_keys(s, X, t, K, at + t, n - 1, watch)
            take_values(s, W + t * m, columns_of(p, V, m - 1, at + t, n - 1), p.first_lanes(n - at - t))
            take_queries(s, XQ, t, Q, at + t, n - 1, scale)
            take_gradient(s, G + t * m, O, den, dO, at + t, n, unused)
            put_turned(p, rows + t * across, across, [(G + t * m).vector(c * p.lanes) for c in range(m)])
        with p.loop(0, tokens, s.tokens) as t:
            copied(s, F, X, t)
            s.fill(F, 0, steps)
            for i, x in enumerate(s.sums(U, across, F, 0, None, 0, steps, m - 1)):
                N.at(i // u, t + i % u * p.lanes).put(0, x)
            s.pull(U, across, panel_of(s, W + t * m, m - 1), F, 0, D, P, None, 0, steps)
            for i in range(d):
                s.put_several(DX.at(i, t), s.several(P.at(i, 0)))
        with p.loop(0, tokens, p.lanes) as t:
            far = column_vectors(DX, d, t) + column_vectors(N, m - 1, t)
            near = _near_keys(s, Q + at * d, X, W + t * m, rows, tokens, t, scale, far)
            watch.see(near)
            size.add([x.size() * p.first_lanes(n - at - t) for x in near[d:]])
            put_columns(p, dK, at + t, n, near[:d])
            put_columns(p, dV, at + t, n, near[d:])
        s.ones(A, TILE)
        with p.loop(0, TILE, s.tokens) as t:
            for i in range(d):
                s.put_several(A.at(i + 1, t), s.several(XQ.at(i, t)))
            s.fill(A, t, steps)
            halves = s.half_variances(A, t, covariance)
            s.series(E, t, halves, steps)
            s.times_series(A, E, t, steps)
            for i, size_of in enumerate(true_scale(s, halves)):
                block = G + (t + i * p.lanes) * m
                columns = [block.vector(c * p.lanes) * size_of for c in range(m)]
                put_turned(p, scaled + (t + i * p.lanes) * across, across, columns)
        add_tile(s, U, A, XQ, scaled, scratch, steps)
    watch.say(guard)
    size.say(guard + 1)
    p.end()


def _near_keys(
    s: RegisterBlocking, Q: Numbers, X: Features, W: Numbers, rows: Numbers, tokens: Word, t: Word,
    scale: Vector, far: list[Vector],
) -> list[Vector]:  # fmt: skip
    """far + the gradient of a vector of keys from t on and of their values, by the tile's queries."""
    p, across, d = s.p, state_columns(s), s.d
    w = [W.vector(c * p.lanes) for c in range(s.m)]
    k = [x * scale for x in column_vectors(X, d, t)]

    def turn(query: Word, e: Vector, near: list[Vector]) -> list[Vector]:
        q, g = Q + query * d, rows + query * across
        change = e * dot(s, w, g)
        found = [x.plus(change, q.spread(i)) for i, x in enumerate(near[:d])]
        return found + [x.plus(e, g.spread(c)) for c, x in enumerate(near[d:])]

    def among(query: Word, near: list[Vector]) -> list[Vector]:
        return turn(query, exponential(s, dot(s, k, Q + query * d)) * p.first_lanes(query - t + 1), near)

    def after(query: Word, near: list[Vector]) -> list[Vector]:
        return turn(query, exponential(s, dot(s, k, Q + query * d)), near)

    last = (t + p.lanes).least(tokens)
    near = p.fold(last, tokens, 1, after, p.fold(t, last, 1, among, p.zeros(d) + far[d:]))
    return [x.plus(y, scale) for x, y in zip(far[:d], near[:d], strict=True)] + near[d:]
