"""Attention of all keys and its gradient: a span of one head, written for d coordinates and m columns.

Each function adds to a state or fills rows of arrays given to it, and says in `guard` what its checks need.
Keys are worked on in tiles of C tokens, whose sums stay in registers; queries in panels of u vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from .guarding import Extents, Watch
from .room import Room
from .rows import column_of, columns_of, put_column, put_columns
from .steps import Features, RegisterBlocking, Steps
from .writer import Numbers, Vector, Word

MEAN = ("numbers", "word", "word", "numbers", "numbers")
KEYS = ("numbers", "numbers", "numbers", "numbers", "word", "word", "numbers", "words", "numbers")
FINISH = ("numbers", "numbers", "number", "words")
QUERIES = ("numbers",) * 5 + ("word", "word", "number", "numbers", "words", "numbers")
JUDGE = ("numbers", "numbers", "number")
ATTEND = ("numbers",) * 6 + ("word", "word", "number", "number", "number", "words", "numbers")
QUERIES_BACK = ("numbers",) * 8 + ("word", "word", "number", "numbers", "words", "numbers")
KEYS_BACK = ("numbers",) * 6 + ("word", "word", "numbers", "words", "numbers")
PULL = ("numbers",) * 14 + ("word", "word", "number", "words", "numbers")
BLOCK = 64  # groups of rows, a lane each, whose sums are taken before they are added to the others


def mean(s: RegisterBlocking) -> None:
    """shift (d,) = the mean of rows start … stop - 1 of K (n, d)."""
    p, d = s.p, s.d
    K, start, stop, shift, work = p.begin("mean", MEAN)
    rows, whole = K + start * d, (stop - start) // p.lanes
    for i in range(d):
        work.put(i * p.lanes, p.vector(0.0))
    with p.loop(0, whole, BLOCK) as block:

        def turn(group: Word, sums: list[Vector]) -> list[Vector]:
            return [x + rows.vector((group * d + i) * p.lanes) for i, x in enumerate(sums)]

        sums = p.fold(block, whole.least(block + BLOCK), 1, turn, p.zeros(d))
        for i, x in enumerate(sums):
            work.put(i * p.lanes, work.vector(i * p.lanes) + x)
    share = p.builder.fdiv(p.number(1.0), p.as_number(stop - start))
    for i in range(d):
        shift.put_number(i, p.number(0.0))
    for A, first, after in (
        (work, p.word(0), p.word(d * p.lanes)),
        (rows, whole * d * p.lanes, (stop - start) * d),
    ):
        with p.loop(first, after) as at:
            scaled = p.builder.fmul(A.number(at), share)
            shift.put_number(at % d, p.builder.fadd(shift.number(at % d), scaled))
    p.end()


def take_values(s: RegisterBlocking, W: Numbers, values: list[Vector], inside: Vector) -> None:
    """W (m, lanes) = [values, 1], 0 in lanes that are not inside."""
    for c, v in enumerate(values):
        W.put(c * s.p.lanes, v * inside)
    W.put((s.m - 1) * s.p.lanes, inside)


def keys(s: RegisterBlocking) -> None:
    """T (rank, m) += Σ ψ(k - shift) [v, 1]ᵀ over the span; guard: the extent of V."""
    p, d, m = s.p, s.d, s.m
    T, guard, K, V, start, stop, shift, plan, work = p.begin("keys", KEYS)
    steps, room, C = Steps(plan), Room(work), Steps(plan).tile
    F, W, scratch = Features(room.take(s.held(steps) * C), C), room.take(C * m), room.take(C * m)
    extents = Extents(p, room.take(2 * (m - 1) * p.lanes), m - 1)
    s.ones(F, C)
    with p.loop(start, stop, C) as at:
        tokens = ((stop - at).least(C) + (p.lanes - 1)) // p.lanes * p.lanes
        with p.loop(0, tokens, p.lanes) as t:
            for i, k in enumerate(columns_of(p, K, d, at + t, stop - 1)):
                F.at(i + 1, t).put(0, k - shift.spread(i))
            values = columns_of(p, V, m - 1, at + t, stop - 1)
            extents.see(values)
            take_values(s, W + t * m, values, p.first_lanes(stop - at - t))
        with p.loop(0, tokens, s.tokens) as t:
            s.fill(F, t, steps)
        s.add_products(T, F, F.after(1), W, scratch, tokens, steps)
    extents.say(guard)
    p.end()


def finish(s: RegisterBlocking) -> None:
    """T ∘ weights in place; before, the covariance of the centred keys is read off its last column.

    share: 1 / keys; 0 where no covariance is asked for.
    """
    p, d, m = s.p, s.d, s.m
    T, covariance, share, plan = p.begin("finish", FINISH)
    b, steps = p.builder, Steps(plan)
    with p.when(b.fcmp_ordered(">", share, p.number(0.0))):
        at = steps.start(2)
        means = [b.fmul(T.number((1 + i) * m + m - 1), share) for i in range(d)]
        for i in range(d):
            for j in range(i, d):
                second = b.fmul(T.number(at * m + (m - 1)), share)
                found = b.fsub(second, b.fmul(means[i], means[j]))
                covariance.put_number(i * d + j, found)
                covariance.put_number(j * d + i, found)
                at = at + 1
    with p.loop(0, steps.rank()) as a:
        weight = steps.weights.number(a)
        for c in range(m):
            T.put_number(a * m + c, b.fmul(T.number(a * m + c), weight))
    p.end()


def take_queries(
    s: RegisterBlocking, X: Features, t: Word | int, Q: Numbers, first: Word, last: Word, factor: Vector
) -> None:
    """The coordinates of a vector of queries, times the scale of the scores, to X (d rows)."""
    for i, q in enumerate(columns_of(s.p, Q, s.d, first, last)):
        X.at(i, t).put(0, q * factor)


def queries(s: RegisterBlocking) -> None:
    """O and den of the span, from the weighted state T; guard: their extents."""
    p, m, u = s.p, s.m, s.u
    O, den, guard, T, Q, start, stop, factor, covariance, plan, work = p.begin("queries", QUERIES)
    steps, room, scale = Steps(plan), Room(work), p.spread(factor)
    F = Features(room.take(s.held(steps) * s.tokens), s.tokens)
    E = Features(room.take((steps.g // 2 + 1) * s.tokens), s.tokens)
    extents, watch = Extents(p, room.take(2 * m * p.lanes), m), Watch(p, room.take(p.lanes))
    s.ones(F, s.tokens)
    with p.loop(start, stop, s.tokens) as at:
        for i in range(u):
            take_queries(s, F.after(1), i * p.lanes, Q, at + i * p.lanes, stop - 1, scale)
        s.fill(F, 0, steps)
        s.series(E, 0, s.half_variances(F, 0, covariance), steps)
        N = s.sums(T, m, F, 0, E, 0, steps, m)
        for i in range(u):
            put_outputs(s, O, den, at + i * p.lanes, stop, N[i::u], extents, watch)
    extents.say(guard)
    watch.say(guard + 2 * m)
    p.end()


def judge(s: RegisterBlocking) -> None:
    """1 where outputs have no denominator below `least`, are finite, and are within the values, else 0.

    values (2 (m - 1),), outputs (2 m + 1,): what passes said of them, as `error_certificates.within` looks at
    it.
    """
    p, m = s.p, s.m
    values, outputs, least = p.begin("judge", JUDGE)
    b, half, little = p.builder, p.number(0.5), p.number(1e-3)
    fine = b.fcmp_ordered("==", outputs.number(2 * m), p.number(0.0))
    fine = b.and_(fine, b.fcmp_ordered(">=", outputs.number(m - 1), least))
    fine = b.and_(fine, b.fcmp_ordered(">", outputs.number(2 * m - 1), p.number(-inf)))
    for c in range(m - 1):
        low, high = values.number(c), b.fneg(values.number(m - 1 + c))
        sizes = b.fadd(*(p.size_of(x) for x in (low, high)))
        room = b.fadd(b.fmul(b.fsub(high, low), half), b.fmul(sizes, little))
        fine = b.and_(fine, b.fcmp_ordered(">=", outputs.number(c), b.fsub(low, room)))
        fine = b.and_(fine, b.fcmp_ordered("<=", b.fneg(outputs.number(m + c)), b.fadd(high, room)))
    p.end(p.truth(fine))


@dataclass(frozen=True)
class ForwardBuffers:
    """What a forward pass holds, one after the other: the state T, extents of V, the keys' mean and their
    covariance, extents of O and den with 0 where O is finite.
    """

    T: Numbers
    values: Numbers
    shift: Numbers
    covariance: Numbers
    outputs: Numbers

    @classmethod
    def at(cls, s: RegisterBlocking, memory: Numbers, steps: Steps) -> ForwardBuffers:
        """In that memory."""
        room, m, d = Room(memory), s.m, s.d
        return cls(*(room.take(many) for many in (steps.rank() * m, 2 * m - 2, d, d * d, 2 * m + 1)))


def write_dense_forward(s: RegisterBlocking) -> None:
    """The whole of a head: O and den; hands back what `judge` says. share: as for `finish`."""
    p = s.p
    O, den, memory, Q, K, V, n, n_k, factor, share, least, plan, work = p.begin("attend", ATTEND)
    held = ForwardBuffers.at(s, memory, Steps(plan))
    p.invoke("mean", K, 0, n_k, held.shift, work)
    p.invoke("keys", held.T, held.values, K, V, 0, n_k, held.shift, plan, work)
    p.invoke("finish", held.T, held.covariance, share, plan)
    p.invoke("queries", O, den, held.outputs, held.T, Q, 0, n, factor, held.covariance, plan, work)
    p.end(p.invoke("judge", held.values, held.outputs, least))


def put_outputs(
    s: RegisterBlocking, O: Numbers, den: Numbers, first: Word, stop: Word, N: list[Vector], extents: Extents,
    watch: Watch,
) -> None:  # fmt: skip
    """A vector of rows of O = N / den, and den, the last of N."""
    over = s.p.vector(1.0) / N[-1]
    rows = [x * over for x in N[:-1]]
    extents.see([*rows, N[-1]])
    watch.see(rows)
    put_column(s.p, den, first, stop, N[-1])
    put_columns(s.p, O, first, stop, rows)


def take_gradient(
    s: RegisterBlocking, G: Numbers, O: Numbers, den: Numbers, dO: Numbers, first: Word, stop: Word,
    size: Watch,
) -> None:  # fmt: skip
    """G (m, lanes) = [dO, -Σ dO ∘ O] / den, 0 beyond the span."""
    p = s.p
    inside = p.first_lanes(stop - first)
    over = inside / column_of(p, den, first, stop - 1)
    values, below = columns_of(p, dO, s.m - 1, first, stop - 1), p.vector(0.0)
    size.add([x.size() * inside for x in values])
    for c, (g, o) in enumerate(zip(values, columns_of(p, O, s.m - 1, first, stop - 1), strict=True)):
        G.put(c * p.lanes, g * over)
        below = below.plus(g, o)
    G.put((s.m - 1) * p.lanes, -(below * over))


def panel_of(s: RegisterBlocking, W: Numbers, columns: int) -> list[Vector]:
    """So many columns of u vectors, column by column, from u times (m, lanes)."""
    return [W.vector((i * s.m + c) * s.p.lanes) for c in range(columns) for i in range(s.u)]


def queries_back(s: RegisterBlocking) -> None:
    """dQ of the span from the weighted state T; U += Σ φ(q) [dO, -Σ dO ∘ O]ᵀ / den; guard: spoilt, Σ |dO|."""
    p, d, m = s.p, s.d, s.m
    found = p.begin("queries_back", QUERIES_BACK)
    dQ, guard, U, T, Q, O, den, dO, start, stop, factor, covariance, plan, work = found
    steps, room, scale, C = Steps(plan), Room(work), p.spread(factor), Steps(plan).tile
    F, E = Features(room.take(s.held(steps) * C), C), Features(room.take((steps.g // 2 + 1) * C), C)
    D, X = (Features(room.take(many * s.tokens), s.tokens) for many in (s.held(steps), p.word(d)))
    G, scratch = room.take(C * m), room.take(C * m)
    kept = Features(
        room.take(C * d), C
    )  # the coordinates, where the features are multiplied with their factors
    watch, size = Watch(p, room.take(p.lanes)), Watch(p, room.take(p.lanes))
    with p.loop(start, stop, C) as at:
        tokens = ((stop - at).least(C) + (s.tokens - 1)) // s.tokens * s.tokens
        s.ones(F, tokens)
        with p.loop(0, tokens, p.lanes) as t:
            take_queries(s, kept, t, Q, at + t, stop - 1, scale)
            for i in range(d):
                F.at(i + 1, t).put(0, kept.at(i, t).vector())
            take_gradient(s, G + t * m, O, den, dO, at + t, stop, size)
        with p.loop(0, tokens, s.tokens) as t:
            s.fill(F, t, steps)
            s.series(E, t, s.half_variances(F, t, covariance), steps)
            s.pull(T, m, panel_of(s, G + t * m, m), F, t, D, X, E, t, steps)
            s.times_series(F, E, t, steps)
            for i in range(s.u):
                rows = [X.at(c, i * p.lanes).vector() * scale for c in range(d)]
                watch.see(rows)
                put_columns(p, dQ, at + t + i * p.lanes, stop, rows)
        s.add_products(U, F, kept, G, scratch, tokens, steps)
    watch.say(guard)
    size.say(guard + 1)
    p.end()


def keys_back(s: RegisterBlocking) -> None:
    """dK and dV of the span, from the weighted state U; guard: spoilt, Σ |dV|."""
    p, d, m, u = s.p, s.d, s.m, s.u
    dK, dV, guard, U, K, V, start, stop, shift, plan, work = p.begin("keys_back", KEYS_BACK)
    steps, room = Steps(plan), Room(work)
    F, D = (Features(room.take(s.held(steps) * s.tokens), s.tokens) for _ in range(2))
    X, W = Features(room.take(d * s.tokens), s.tokens), room.take(m * s.tokens)
    watch, size = Watch(p, room.take(p.lanes)), Watch(p, room.take(p.lanes))
    s.ones(F, s.tokens)
    with p.loop(start, stop, s.tokens) as at:
        for i in range(u):
            first = at + i * p.lanes
            for c, k in enumerate(columns_of(p, K, d, first, stop - 1)):
                F.at(c + 1, i * p.lanes).put(0, k - shift.spread(c))
            take_values(
                s, W + i * m * p.lanes, columns_of(p, V, m - 1, first, stop - 1), p.first_lanes(stop - first)
            )
        s.fill(F, 0, steps)
        N = s.sums(U, m, F, 0, None, 0, steps, m - 1)
        for i in range(u):
            first, rows = at + i * p.lanes, N[i::u]
            watch.see(rows)
            size.add([x.size() * p.first_lanes(stop - first) for x in rows])
            put_columns(p, dV, first, stop, rows)
        s.pull(U, m, panel_of(s, W, m - 1), F, 0, D, X, None, 0, steps)
        for i in range(u):
            rows = [X.at(c, i * p.lanes).vector() for c in range(d)]
            watch.see(rows)
            put_columns(p, dK, at + i * p.lanes, stop, rows)
    watch.say(guard)
    size.say(guard + 1)
    p.end()


def pull(s: RegisterBlocking) -> None:
    """The whole gradient of a head; guard (4,): what both passes say. U: room for its state, all 0."""
    p = s.p
    found = p.begin("pull", PULL)
    dQ, dK, dV, guard, U, T, Q, K, V, O, den, dO, covariance, shift, n, n_k, factor, plan, work = found
    p.invoke("queries_back", dQ, guard, U, T, Q, O, den, dO, 0, n, factor, covariance, plan, work)
    p.invoke("finish", U, covariance, p.number(0.0), plan)
    p.invoke("keys_back", dK, dV, guard + 2, U, K, V, 0, n_k, shift, plan, work)
    p.end()
