"""What is known about the exercises of lesson 04: mistakes, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import RowStats, costs, exact, schedules
from iocourse.course.checking import OWN, RUNS

VALUES = "values equal exact attention"
ONE_BLOCK = "values are right where one block holds all keys"
LARGE = "scores of ±10,000 neither overflow nor vanish"
BLOCK_SIZE = "block size does not change the answer"
FITS = "fits in fast memory"
TIGHT = "fits in Br(2d + 2 + Bc) + Bc·d words, to the word"
LOADED = "every word of the input is loaded"
TOTAL = "no more words move than the closed form says"
K_PASSES, V_PASSES = "K is read ⌈N/Br⌉ times", "V is read ⌈N/Br⌉ times"
Q_PASSES, Q_ONCE = "Q is read ⌈N/Bc⌉ times", "Q is read once"
O_ONCE = "O is written once"

HELD_TOO = (  # a tile (Br, d) more than there is room for
    Mutant("product-as-a-tile", FITS, ("o.add_matmul(s, v)", "o += s @ v")),
    Mutant("scaled-queries-beside-the-queries", FITS, ("q *= d**-0.5", "q = q * d**-0.5")),
)
SKIPS_LAST_KEYS = (("m.blocks(N, Bc)", "list(m.blocks(N, Bc))[: N // Bc]"),)
SKIPS_LAST_QUERIES = (("m.blocks(N, Br)", "list(m.blocks(N, Br))[: N // Br]"),)
NO_SCALE = (("q *= d**-0.5", "pass"),)
NO_RESCALE = (("stats.update(s, o)", "stats.update(s)"),)
NO_MAXIMUM = (("stats.update(s, o)", "np.exp(s, out=s); stats.l[:] = stats.l + s.sum(axis=1)"),)


# ---------------------------------------------------------------------- cheats that fit every schedule
def zeros(m, Q, K, V, *, Br, Bc):
    O = m.new("O", Q.shape)
    for i in m.blocks(Q.shape[0], Br):
        with m.zeros(i, Q.shape[1]) as o:
            m.store(o, O, i)
    return O


def materialised(m, Q, K, V, *, Br, Bc):
    """The N x N answer: right values, all scores at once."""
    N, d = Q.shape
    O, rows = m.new("O", (N, d)), (0, N)
    q, k, v = m.load(Q, rows), m.load(K, rows), m.load(V, rows)
    q *= d**-0.5
    s = q @ k.T
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    m.store(s @ v, O, rows)
    return O


def scores_in_slow_memory(m, Q, K, V, *, Br, Bc):
    """Fits, and moves S out and in as naive attention does."""
    N, d = Q.shape
    S, O = m.new("S", (N, N)), m.new("O", (N, d))
    for i in m.blocks(N, Br):
        for j in m.blocks(N, Bc):
            with m.load(Q, i) as q, m.load(K, j) as k, q @ k.T as s:
                s *= d**-0.5
                m.store(s, S, i, j)
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:
            for j in m.blocks(N, Bc):
                with m.load(S, i, j) as s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def library_schedule_inside(m, Q, K, V, *, Br, Bc):
    return schedules.flash2(m, Q, K, V, Br=Br, Bc=Bc)


def taken_from_the_machine(m, Q, K, V, *, Br, Bc):
    return m.slow("O", exact.attention(m.take(Q), m.take(K), m.take(V)))


def values_of_a_slow_array(m, Q, K, V, *, Br, Bc):
    return np.exp(Q.data @ K.data.T) @ V.data


def slow_array_as_numpy(m, Q, K, V, *, Br, Bc):
    return np.asarray(Q)


def never_returns_a_slow_array(m, Q, K, V, *, Br, Bc):
    return 3.0


def fifty_loads(right):
    """`right`, with fifty loads of K that nobody needs."""

    def my_answer(m, Q, K, V, *, Br, Bc):
        for _ in range(50):
            for j in m.blocks(K.shape[0], 1):
                m.load(K, j).free()
        return right(m, Q, K, V, Br=Br, Bc=Bc)

    my_answer.__name__ = f"fifty_loads_then_{right.__name__}"
    return my_answer


def cheats(loads_once, right):
    """Cheats that every schedule of the lesson refuses; `loads_once` is its property about K."""
    return (
        (zeros, VALUES),
        (zeros, LOADED),
        (materialised, "fits"),
        (scores_in_slow_memory, TOTAL),
        (library_schedule_inside, OWN),
        (schedules.flash2, OWN),
        (schedules.flash2.body, OWN),
        (costs.flash2, OWN),
        (taken_from_the_machine, RUNS),
        (values_of_a_slow_array, RUNS),
        (slow_array_as_numpy, RUNS),
        (never_returns_a_slow_array, RUNS),
        (fifty_loads(right), loads_once),
        (fifty_loads(right), TOTAL),
    )


def named(pairs, fits, total=TOTAL):
    """The cheats of an exercise whose properties about room and about all words have these names."""
    names = {"fits": fits, TOTAL: total}
    return tuple((function, names.get(fails, fails)) for function, fails in pairs)


# ---------------------------------------------------------------------- right in one of the two orders
def queries_outside(m, Q, K, V, *, Br, Bc):
    """F2 with its tiles freed by hand."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        q, o, stats = m.load(Q, i), m.zeros(i, d), m.row_stats(i)
        for j in m.blocks(N, Bc):
            k, v = m.load(K, j), m.load(V, j)
            s = q @ k.T
            s *= d**-0.5
            stats.update(s, o)
            o.add_matmul(s, v)
            for tile in (k, v, s):
                tile.free()
        stats.normalise(o)
        m.store(o, O, i)
        for tile in (q, o, stats):
            tile.free()
    return O


def keys_outside_by_range(m, Q, K, V, *, Br, Bc):
    """Plain ranges, loads into the tile's own place, arithmetic of online softmax written out."""
    N, d = Q.shape
    O, top, total = m.new("O", (N, d)), m.new("top", (N,)), m.new("total", (N,))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        n = rows[1] - rows[0]
        with m.zeros(n, d) as o, m.full(n, value=-1e300) as t, m.zeros(n) as l:
            m.store(o, O, rows)
            m.store(t, top, rows)
            m.store(l, total, rows)
    for start in range(0, N, Bc):
        keys = (start, min(start + Bc, N))
        k, v = m.load(K, keys), m.load(V, keys)
        for first in range(0, N, Br):
            one_visit(m, Q, O, top, total, k, v, (first, min(first + Br, N)))
        k.free()
        v.free()
    return O


def one_visit(m, Q, O, top, total, k, v, rows):
    q, o, t, l = m.load(Q, rows), m.load(O, rows), m.load(top, rows), m.load(total, rows)
    s = q @ k.T
    s /= np.sqrt(q.shape[1])
    new = s.max(axis=1)
    np.maximum(new, t, out=new)
    t -= new
    np.exp(t, out=t)  # the factor
    l *= t
    o *= l[:, None]
    s -= new[:, None]
    np.exp(s, out=s)
    l += s.sum(axis=1)
    o.add_matmul(s, v)
    o /= l[:, None]
    m.store(o, O, rows)
    m.store(new, top, rows)
    m.store(l, total, rows)


# ---------------------------------------------------------------------- 4A
def queries_outside_written_out(m, Q, K, V, *, Br, Bc):
    """Online softmax by hand, with the temporaries that the allowance is for."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        n = rows[1] - rows[0]
        with m.load(Q, rows) as q, m.zeros(n, d) as o, m.full(n, value=-1e300) as top, m.zeros(n) as total:
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v:
                    s = q @ k.T
                    s *= d**-0.5
                    new = np.maximum(top, s.max(axis=1))
                    p = s - new[:, None]
                    np.exp(p, out=p)
                    total *= np.exp(top - new)
                    o *= np.exp(top - new)[:, None]
                    total += p.sum(axis=1)
                    o.add_matmul(p, v)
                    top[:] = new
                    del s, p, new
            o /= total[:, None]
            m.store(o, O, rows)
    return O


FORWARD_MUTANTS = (
    Mutant("dropped-rescale", VALUES, *NO_RESCALE),
    Mutant("dropped-rescale-depends-on-tiles", BLOCK_SIZE, *NO_RESCALE),
    Mutant("missing-scale", VALUES, *NO_SCALE),
    Mutant("missing-scale-in-one-block", ONE_BLOCK, *NO_SCALE),
    Mutant("no-maximum", LARGE, *NO_MAXIMUM),
    Mutant("scale-by-d", VALUES, ("d**-0.5", "d**-1")),
    Mutant("scale-of-one-d", VALUES, ("d**-0.5", "8**-0.5")),
    Mutant("scaled-in-the-inner-loop", BLOCK_SIZE, ("stats.update", "q *= d**-0.5; stats.update")),
    Mutant(
        "normalised-in-the-inner-loop",
        VALUES,
        ("o.add_matmul(s, v)", "o.add_matmul(s, v); stats.normalise(o)"),
    ),
    Mutant("never-normalised", VALUES, ("stats.normalise(o)", "pass")),
    Mutant("last-keys-skipped", VALUES, *SKIPS_LAST_KEYS),
    Mutant("last-queries-skipped", RUNS, *SKIPS_LAST_QUERIES),
    Mutant("K-loaded-twice", K_PASSES, ("stats.update", "m.load(K, j).free(); stats.update")),
    Mutant("V-loaded-twice", V_PASSES, ("stats.update", "v = m.load(V, j, into=v); stats.update")),
    Mutant("Q-in-the-inner-loop", Q_ONCE, ("stats.update", "q = m.load(Q, i, into=q); stats.update")),
    Mutant(
        "O-stored-in-the-inner-loop", O_ONCE, ("o.add_matmul(s, v)", "o.add_matmul(s, v); m.store(o, O, i)")
    ),
    Mutant("values-for-keys", VALUES, ("m.load(V, j) as v", "m.load(K, j) as v")),
    Mutant("V-never-loaded", LOADED, ("m.load(V, j) as v", "m.load(K, j) as v")),
)

FLASH2 = Suite(
    id="4A",
    mutants=(
        *FORWARD_MUTANTS,
        *HELD_TOO,
        Mutant("all-keys-at-once", FITS, ("with m.load(K, j)", "with m.load(K, (0, N)), m.load(K, j)")),
    ),
    right=(queries_outside, queries_outside_written_out),
    cheats=(
        *named(cheats(K_PASSES, queries_outside), FITS),
        (keys_outside_by_range, TOTAL),
        (keys_outside_by_range, O_ONCE),
    ),
)


# ---------------------------------------------------------------------- 4B
def keys_outside_first_block_by_itself(m, Q, K, V, *, Br, Bc):
    """No first pass that stores zeros, and O undivided until the last block of keys: fewer words."""
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):
                q, o = m.load(Q, i), m.zeros(i, d) if j.first else m.load(O, i)
                stats = m.row_stats(i) if j.first else RowStats(m.load(maxima, i), m.load(sums, i))
                q *= d**-0.5
                with q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
                if j.last:
                    stats.normalise(o)
                m.store(o, O, i)
                m.store(stats.m, maxima, i)
                m.store(stats.l, sums, i)
                for tile in (q, o, stats):
                    tile.free()
    return O


def divided_at_every_visit(m, Q, K, V, *, Br, Bc, undone=True):
    """FlashAttention-1 to the letter: slow memory always holds the attention over the keys seen so far."""
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:
            m.store(o, O, i)
            m.store(stats.m, maxima, i)
            m.store(stats.l, sums, i)
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):
                with (
                    m.load(Q, i) as q,
                    m.load(O, i) as o,
                    RowStats(m.load(maxima, i), m.load(sums, i)) as stats,
                    q @ k.T as s,
                ):
                    s *= d**-0.5
                    if undone:
                        stats.unnormalise(o)
                    stats.update(s, o)
                    o.add_matmul(s, v)
                    stats.normalise(o)
                    m.store(o, O, i)
                    m.store(stats.m, maxima, i)
                    m.store(stats.l, sums, i)
    return O


def division_never_undone(m, Q, K, V, *, Br, Bc):
    return divided_at_every_visit(m, Q, K, V, Br=Br, Bc=Bc, undone=False)


FLASH1 = Suite(
    id="4B",
    mutants=(
        Mutant("dropped-rescale", VALUES, *NO_RESCALE),
        Mutant("dropped-rescale-depends-on-tiles", BLOCK_SIZE, *NO_RESCALE),
        Mutant("missing-scale", VALUES, *NO_SCALE),
        Mutant("scale-of-one-d", VALUES, ("d**-0.5", "8**-0.5")),
        Mutant("missing-scale-in-one-block", ONE_BLOCK, *NO_SCALE),
        Mutant("no-maximum", LARGE, *NO_MAXIMUM),
        Mutant("divided-at-every-visit", VALUES, ("if j.last", "if True")),
        Mutant("divided-at-every-visit-depends-on-tiles", BLOCK_SIZE, ("if j.last", "if True")),
        Mutant("divided-at-the-first-visit", VALUES, ("if j.last", "if j.first")),
        Mutant("never-divided", VALUES, ("stats.normalise(o)", "pass")),
        *HELD_TOO,
        Mutant("sums-not-stored", VALUES, ("m.store(stats.l, sums, i)\n    return", "pass\n    return")),
        Mutant("last-keys-skipped", VALUES, *SKIPS_LAST_KEYS),
        Mutant("last-queries-never-written", RUNS, *SKIPS_LAST_QUERIES),
        Mutant("O-has-no-first-value", RUNS, (" m.store(o, O, i)\n            m", " pass\n            m")),
        Mutant("K-in-the-inner-loop", "K is read once", ("q *= d", "k = m.load(K, j, into=k); q *= d")),
        Mutant("V-in-the-inner-loop", "V is read once", ("q *= d", "v = m.load(V, j, into=v); q *= d")),
        Mutant("Q-loaded-twice", Q_PASSES, ("q *= d", "q = m.load(Q, i, into=q); q *= d")),
        Mutant("O-stored-twice", "O is written ⌈N/Bc⌉ + 1 times", ("q *= d", "m.store(o, O, i); q *= d")),
        Mutant("O-loaded-twice", "O is read ⌈N/Bc⌉ times", ("q *= d", "o = m.load(O, i, into=o); q *= d")),
        Mutant("statistics-stored-twice", TOTAL, ("q *= d", "m.store(stats.m, maxima, i); q *= d")),
        Mutant("two-copies-of-the-keys", FITS, ("q *= d", "copy = m.load(K, (0, N)); q *= d")),
    ),
    right=(keys_outside_by_range, keys_outside_first_block_by_itself, divided_at_every_visit),
    cheats=(
        *named(cheats("K is read once", keys_outside_by_range), FITS),
        (schedules.flash1, OWN),
        (queries_outside, "K is read once"),
        (division_never_undone, VALUES),
        (division_never_undone, BLOCK_SIZE),
    ),
)


# ---------------------------------------------------------------------- 4C
def value_into_the_keys_place(m, Q, K, V, *, Br, Bc):
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            for j in m.blocks(N, Bc):
                k = m.load(K, j)
                s = q @ k.T
                s *= d**-0.5
                v = m.load(V, j, into=k)
                stats.update(s, o)
                o.add_matmul(s, v)
                v.free()
                s.free()
            stats.normalise(o)
            m.store(o, O, i)
    return O


def keys_freed_by_hand(m, Q, K, V, *, Br, Bc):
    """Plain ranges, free() everywhere, and the division written out."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        q = m.load(Q, rows)
        q /= np.sqrt(d)
        o, stats = m.zeros(rows[1] - rows[0], d), m.row_stats(rows[1] - rows[0])
        for first in range(0, N, Bc):
            keys = (first, min(first + Bc, N))
            k = m.load(K, keys)
            s = q @ k.T
            k.free()
            stats.update(s, o)
            v = m.load(V, keys)
            o.add_matmul(s, v)
            v.free()
            s.free()
        o /= stats.l[:, None]
        m.store(o, O, rows)
        q.free()
        o.free()
        stats.free()
    return O


def scores_kept_a_round_too_long(m, Q, K, V, *, Br, Bc):
    """Right but for one thing: the old scores are still there when the next ones are made."""
    N, d = Q.shape
    O, s = m.new("O", (N, d)), None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                k = m.load(K, j)
                s = q @ k.T
                v = m.load(V, j, into=k)
                stats.update(s, o)
                o.add_matmul(s, v)
                v.free()
            stats.normalise(o)
            m.store(o, O, i)
    return O


TOGETHER = (
    ("with m.load(K, j) as k:", "with m.load(K, j) as k, m.load(V, j) as v:"),
    ("s = q @ k.T ", "s = q @ k.T; kept = m.load(V, j) "),
    ("with s, m.load(V, j) as v:", "with s, kept as v:"),
)

FLASH_OPTIMAL = Suite(
    id="4C",
    mutants=(
        *FORWARD_MUTANTS,
        Mutant("K-and-V-together", TIGHT, *TOGETHER[1:]),
        Mutant("V-before-K", TIGHT, ("with m.load(K", "with m.load(V, j) as early, m.load(K")),
        Mutant("scores-not-freed", TIGHT, ("with s, m.load(V", "keep = s\n                with m.load(V")),
        Mutant("scores-copied", TIGHT, ("stats.update(s, o)", "s = s + 0.0; stats.update(s, o)")),
    ),
    right=(value_into_the_keys_place, keys_freed_by_hand),
    cheats=(
        *named(cheats(K_PASSES, value_into_the_keys_place), TIGHT),
        (queries_outside, TIGHT),
        (scores_kept_a_round_too_long, TIGHT),
        (schedules.flash_optimal, OWN),
    ),
)


# ---------------------------------------------------------------------- 4D
def by_search(N, d, M):
    """Try every Br, and the closed form on each."""
    fitting = [Br for Br in range(1, N + 1) if costs.flash_optimal(N, d, Br=Br, Bc=1).peak <= M]
    return [max(fitting), 1]


def fewest_blocks(N, d, M):
    """The smallest block that makes as few passes as the largest one does."""
    largest = min((M - d) // (2 * d + 3), N)
    passes = -(-N // largest)
    return np.int64(-(-N // passes)), 1


def cut_to_the_queries(N, d, M):
    """No more rows than there are queries."""
    return min(N, (M - d) // (2 * d + 3)), 1


def library_tiles(N, d, M):
    tiles = schedules.flash_optimal.tiles(N, d, M)
    return tiles["Br"], tiles["Bc"]


def library_choice(N, d, M):
    return tuple(schedules.flash_optimal.choose(N, d, M).values())


BEST, TILE_FITS, WHOLE = (
    "no tile that fits moves fewer words",
    "the tile fits in M words",
    "returns two whole numbers of at least 1",
)

TILES = Suite(
    id="4D",
    mutants=(
        Mutant("statistics-forgotten", TILE_FITS, ("2 * d + 3", "2 * d + 1")),
        Mutant("scores-forgotten", TILE_FITS, ("2 * d + 3", "2 * d + 2")),
        Mutant("key-forgotten", TILE_FITS, ("(M - d)", "M")),
        Mutant("rounded-up", TILE_FITS, ("(M - d) // (2 * d + 3)", "-(-(M - d) // (2 * d + 3))")),
        Mutant("room-for-K-and-V", BEST, ("(M - d)", "(M - 2 * d)")),
        Mutant("a-quarter-of-M", BEST, ("(M - d) // (2 * d + 3)", "max(1, M // (4 * d))")),
        Mutant(
            "Br-and-Bc-exchanged",
            BEST,
            ("return (M - d) // (2 * d + 3), 1", "return 1, (M - d) // (2 * d + 3)"),
        ),
        Mutant("not-whole", WHOLE, ("//", "/")),
    ),
    right=(by_search, fewest_blocks, cut_to_the_queries),
    cheats=(
        (library_tiles, OWN),
        (library_choice, OWN),
        (schedules.flash_optimal.tiles, OWN),
        (called("always_one", lambda N, d, M: (1, 1)), BEST),
        (called("always_64", lambda N, d, M: (64, 64)), TILE_FITS),
        (called("only_Br", lambda N, d, M: (M - d) // (2 * d + 3)), WHOLE),
        (called("float_rows", lambda N, d, M: ((M - d) / (2 * d + 3), 1)), WHOLE),
    ),
)


# ---------------------------------------------------------------------- 4E
def as_it_was_handed_out(m, Q, K, V, *, Br, Bc):
    """Q in the inner loop, scores and values kept into the next round."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:
            for j in m.blocks(N, Bc):
                with m.load(Q, i) as q, m.load(K, j) as k:
                    s = q @ k.T
                s *= d**-0.5
                v = m.load(V, j)
                stats.update(s, o)
                o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


RIGHT_ROOM, RIGHT_WORDS = "right values, in the footprint of (4.3)", "right values, with the words of (4.3)"
QUERIES_AGAIN = (", m.load(Q, i) as q:", ":"), ("with m.load(K", "with m.load(Q, i) as q, m.load(K")

REPAIRED = Suite(
    id="4E",
    mutants=(
        Mutant("Q-still-in-the-inner-loop", Q_ONCE, *QUERIES_AGAIN),
        Mutant("Q-still-in-the-inner-loop-moves-too-much", RIGHT_WORDS, *QUERIES_AGAIN),
        Mutant("scores-still-kept", RIGHT_ROOM, ("s.free()", "pass")),
        Mutant("values-still-kept", RIGHT_ROOM, ("v.free()", "pass")),
        Mutant("values-freed-too-early", RUNS, ("o.add_matmul(s, v)", "v.free(); o.add_matmul(s, v)")),
        Mutant("V-beside-K", RIGHT_ROOM, ("with m.load(K", "with m.load(V, j) as early, m.load(K")),
        Mutant("rescaling-lost", VALUES, *NO_RESCALE),
        Mutant("last-keys-skipped", VALUES, *SKIPS_LAST_KEYS),
    ),
    right=(value_into_the_keys_place, keys_freed_by_hand),
    cheats=(
        *named(cheats(K_PASSES, value_into_the_keys_place), RIGHT_ROOM, RIGHT_WORDS),
        (as_it_was_handed_out, Q_ONCE),
        (as_it_was_handed_out, RIGHT_ROOM),
        (as_it_was_handed_out, RIGHT_WORDS),
        (schedules.flash_optimal, OWN),
    ),
)

SUITES = (FLASH1, FLASH2, FLASH_OPTIMAL, TILES, REPAIRED)
