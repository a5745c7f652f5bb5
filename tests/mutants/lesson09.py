"""What is known about the exercises of lesson 09: mistakes, other right answers, cheats."""

from math import inf, sqrt

import numpy as np
from harness import Mutant, Suite, called

from iocourse import costs, exact, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises import lesson09
from iocourse.explore.facts.memory_map import move
from iocourse.machine import probabilities

# ---------------------------------------------------------------------- 9.1
PAIR = "returns a sign and a number of words"
SIGN = "the sign is that of the schedule with the fewest words"
ONE_PASS = "where all fits, nobody makes less than one pass"
EVERYWHERE = "words of the best schedule, everywhere"


def best(sign):
    return f"words of {sign} where it is best"


def in_arrays(N, d, M, pass_):
    """Each form as a multiple of Nd, with numpy's maximum, as a list."""
    x, y, slices = np.sqrt(M), M / (N * d), np.maximum(1, d / np.sqrt(M))
    squares = N / d * (1 + slices)
    if pass_ == "forward":
        found = [("F5", 1 + 3 * np.maximum(1, N / x) + squares), ("F3", 2 + np.maximum(2, 4 / y))]
    else:
        found = [
            ("B5", 5 + 7 * np.maximum(1, N / x) + 3 * squares),
            ("B4", 8 + np.maximum(2, 6 / y) + np.maximum(2, 8 / y)),
            ("B3", 5 + np.maximum(4, 16 / y)),
        ]
    sign, times = min(found, key=lambda one: one[1])
    return [sign, times * N * d]


def with_ceilings_written_out(N, d, M, pass_):
    """The largest block that fits, at most the whole array, and plain quotients."""
    side = sqrt(M)
    tall, wide = min(side, N), min(side, d)
    n = N * d
    if pass_ == "forward":
        options = {
            "F3": 2 * n + 2 * n * N / min(N, M / d / 2),
            "F5": n + 3 * n * N / tall + N**2 * (1 + d / wide),
        }
    else:
        Bc, Br = min(N, M / d / 4), min(N, M / d / 3)
        options = {
            "B5": 5 * n + 7 * n * N / tall + 3 * N**2 * (1 + d / wide),
            "B3": 5 * n + 4 * n * N / Bc,
            "B4": 8 * n + 2 * n * N / Br + 2 * n * N / Bc,
        }
    least, sign = inf, ""
    for name, words in options.items():
        if words < least:
            least, sign = words, name
    return sign, least


SCHEDULES = {"F3": "flash_optimal", "F5": "small_cache", "B3": "fused_backward", "B4": "split_backward"}
SCHEDULES["B5"] = "small_cache_backward"


def counted_instead(N, d, M, pass_):
    """The library's choice of tiles."""
    words = {}
    for sign, name in SCHEDULES.items():
        s = schedules.get(name)
        if s.pass_ == pass_ and s.smallest_M(N, d) <= M:
            words[sign] = s.cost(N, d, **s.tiles(N, d, M)).total
    return min(words.items(), key=lambda item: item[1])


def counted_by_the_picture(N, d, M, pass_):
    words = {s: move(name, N, d, M).words for s, name in SCHEDULES.items() if s[0].lower() == pass_[0]}
    return min(words.items(), key=lambda item: item[1])


def library_best(N, d, M, pass_):
    choice = schedules.best(N, d, M, pass_)
    return choice.schedule.name, choice.cost.total


def regimes_alone(N, d, M, pass_):
    """Leading terms without the terms in Nd."""
    if pass_ == "forward":
        words = {"F3": 4 * (N * d) ** 2 / M, "F5": 4 * N**2 * d / sqrt(M) + N**2}
    else:
        words = {"B4": 14 * (N * d) ** 2 / M, "B5": 10 * N**2 * d / sqrt(M) + 3 * N**2}
    return min(words.items(), key=lambda item: item[1])


def always_rows(N, d, M, pass_):
    n, rows, columns = N * d, max(1, 3 * N * d / M), max(1, 4 * N * d / M)
    return ("F3", 2 * n + n * max(2, columns)) if pass_ == "forward" else ("B4", 2 * n * (4 + rows + columns))


def by_borders(N, d, M, pass_):
    """The sign from 0.69 d², 1.13 d² and ⅔ Nd, whatever N is."""
    n, side, columns = N * d, sqrt(M), max(1, 4 * N * d / M)
    squares, passes = N * N * (1 + max(1, d / side)), max(1, N / side)
    if pass_ == "forward":
        small = 0.69 * d * d > M
        return ("F5", n + 3 * n * passes + squares) if small else ("F3", 2 * n + n * max(2, columns))
    if 1.13 * d * d > M:
        return "B5", 5 * n + 7 * n * passes + 3 * squares
    rows = max(1, 3 * N * d / M)
    return ("B4", 2 * n * (4 + rows + columns)) if 2 * n / 3 > M else ("B3", n * (5 + 4 * columns))


def the_checks_own_envelope(N, d, M, pass_):
    words = lesson09.envelope(N, d, M, pass_)
    return min(words.items(), key=lambda item: item[1])


ENVELOPE = Suite(
    id="9.1",
    mutants=(
        Mutant("F3-without-O", best("F3"), ("blocks(N, M / (2 * d))", "blocks(N, M / d)")),
        Mutant("F3-Q-and-O-forgotten", best("F3"), ('"F3": 2 * N * d + 2', '"F3": 2')),
        Mutant("F5-side-M", best("F5"), ("side = M**0.5", "side = M")),
        Mutant("F5-half-a-side", best("F5"), ("side = M**0.5", "side = M**0.5 / 2")),
        Mutant("F5-scores-written-only", best("F5"), ("+ N * N * (1 + blocks(d, side))", "+ N * N")),
        Mutant("B3-rows-for-columns", best("B3"), ("+ 4 * N * d * columns", "+ 4 * N * d * rows")),
        Mutant("B3-as-if-two-stay", best("B3"), ("blocks(N, M / (4 * d))", "blocks(N, M / (2 * d))")),
        Mutant("B4-one-size-for-both", best("B4"), ("blocks(N, M / (3 * d))", "blocks(N, M / (4 * d))")),
        Mutant("B4-one-sweep", best("B4"), ("(rows + columns)", "columns")),
        Mutant("B5-as-F5", best("B5"), ("7 * N * d * blocks(N, side)", "3 * N * d * blocks(N, side)")),
        Mutant("less-than-a-pass", ONE_PASS, ("return max(1, length / size)", "return length / size")),
        Mutant("less-than-a-slice", EVERYWHERE, ("blocks(d, side)", "d / side")),
        Mutant("F5-less-than-a-pass", EVERYWHERE, ("3 * N * d * blocks(N, side)", "3 * N * d * N / side")),
        Mutant("B5-less-than-a-pass", EVERYWHERE, ("7 * N * d * blocks(N, side)", "7 * N * d * N / side")),
        Mutant("rounded-up", EVERYWHERE, ("max(1, length / size)", "-(-length // size)")),
        Mutant("the-largest", SIGN, ("return min(words", "return max(words")),
        Mutant("passes-exchanged", SIGN, ('pass_ == "forward"', 'pass_ == "backward"')),
        Mutant("sign-alone", PAIR, ("key=lambda item: item[1])", "key=lambda item: item[1])[0]")),
        Mutant("words-alone", PAIR, ("key=lambda item: item[1])", "key=lambda item: item[1])[1]")),
    ),
    right=(in_arrays, with_ceilings_written_out),
    cheats=(
        (counted_instead, OWN),
        (counted_by_the_picture, OWN),
        (library_best, OWN),
        (schedules.best, OWN),
        (lesson09.envelope, OWN),
        (regimes_alone, EVERYWHERE),
        (called("name_alone", lambda N, d, M, pass_: "F3"), PAIR),
        (always_rows, SIGN),
        (by_borders, SIGN),
        (the_checks_own_envelope, OWN),
    ),
)

# ---------------------------------------------------------------------- 9.2
WHOLE, ENOUGH, NO_MORE = (
    "returns a whole number of at least 1",
    "with so much memory F3 moves at most W words",
    "and with less it would move more",
)


def halving(N, d, W):
    """The smallest Br by bisection, and its footprint from the closed form."""
    low, high = 0, N
    while high - low > 1:
        Br = (low + high) // 2
        low, high = (low, Br) if costs.flash_optimal(N, d, Br=Br, Bc=1).total <= W else (Br, high)
    return np.int64(costs.flash_optimal(N, d, Br=high, Bc=1).peak)


def in_units_of_arrays(N, d, W):
    whole_passes = min(N, W // (2 * N * d) - 1)
    rows, rest = divmod(N, whole_passes)
    return (rows + (rest > 0)) * (2 * d + 3) + d


def in_floats(N, d, W):
    passes = (W - 2 * N * d) // (2 * N * d)
    return int(np.ceil(N / passes)) * (2 * d + 3) + d


def every_Br(N, d, W):
    if N > 10**6:
        raise TimeoutError("this would take days")
    fits = (costs.flash_optimal(N, d, Br=Br, Bc=1) for Br in range(1, N + 1))
    return min(ledger.peak for ledger in fits if ledger.total <= W)


def library_tiles(N, d, W):
    M = 3 * d + 3
    while schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total > W:
        M += 1
    return M


MEMORY = Suite(
    id="9.2",
    mutants=(
        Mutant("statistics-forgotten", ENOUGH, ("2 * d + 3", "2 * d + 1")),
        Mutant("scores-forgotten", ENOUGH, ("2 * d + 3", "2 * d + 2")),
        Mutant("key-forgotten", ENOUGH, ("(2 * d + 3) + d", "(2 * d + 3)")),
        Mutant("rows-rounded-down", ENOUGH, ("-(-N // passes)", "N // passes")),
        Mutant("passes-rounded-up", ENOUGH, ("(W - 2 * N * d) //", "(W - 1) //")),
        Mutant("Q-and-O-for-free", ENOUGH, ("(W - 2 * N * d)", "W")),
        Mutant("Q-and-O-twice", NO_MORE, ("(W - 2 * N * d)", "max(2 * N * d, W - 4 * N * d)")),
        Mutant("one-row-more", NO_MORE, ("-(-N // passes)", "N // passes + 1")),
        Mutant("room-for-K-and-V", NO_MORE, ("(2 * d + 3) + d", "(2 * d + 3) + 2 * d")),
        Mutant("not-whole", WHOLE, ("-(-N // passes)", "N / passes")),
    ),
    right=(halving, in_units_of_arrays, in_floats),
    cheats=(
        (every_Br, RUNS),
        (called("leading_term", lambda N, d, W: 4 * N * N * d * d // W), ENOUGH),
        (called("for_one_pass", lambda N, d, W: N * (2 * d + 3) + d), NO_MORE),
        (library_tiles, OWN),
        (
            called("the_checks_own_rows", lambda N, d, W: lesson09._rows_needed(N, d, W) * (2 * d + 3) + d),
            OWN,
        ),
        (costs.flash_optimal, OWN),
    ),
)

# ---------------------------------------------------------------------- 9.3
LARGE = "scores of ±10,000 neither overflow nor vanish"
BLOCK_SIZE = "block size does not change the answer"
FITS = "fits in fast memory"
LOADED = "every word of the input is loaded"
TOTAL = "no more than 7Nd + N words move"


def D_from_dP(m, Q, K, V, dO, LSE, *, Br):
    """D as Σ_j p_ij dp_ij; queries counted by hand; dq begins at zero."""
    N, d = Q.shape
    out = {name: m.new(name, (N, d)) for name in ("dQ", "dK", "dV")}
    everything = (0, N)
    k, v = m.load(K, everything), m.load(V, everything)
    dk, dv = m.zeros(N, d), m.zeros(N, d)
    for start in range(0, N, Br):
        i = (start, min(start + Br, N))
        rows = i[1] - i[0]
        do, D = m.load(dO, i), m.zeros(rows)
        with m.load(Q, i) as q, m.load(LSE, i) as L:
            p = q @ k.T
            p *= d**-0.5
            probabilities(p, L)
            with do @ v.T as dp:
                D.add_row_products(p, dp)
            dv.add_product(p.T, do)
            p.times_product(do, v.T, less=D)
            p *= d**-0.5
            do.free()
            dk.add_product(p.T, q)
        with m.zeros(rows, d) as dq:
            dq.add_product(p, k)
            m.store(dq, out["dQ"], i)
        p.free()
        D.free()
    m.store(dk, out["dK"], everything)
    m.store(dv, out["dV"], everything)
    return out["dQ"], out["dK"], out["dV"]


def statistics_made_anew(m, Q, K, V, dO, LSE, *, Br):
    """The log-sum-exp is not even read: the rows of scores are all there."""
    N, d = Q.shape
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    for j in m.blocks(N, N):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):
                with m.load(Q, i) as q, m.load(dO, i) as do, m.row_stats(i) as stats:
                    q *= d**-0.5
                    with q @ k.T as s, m.zeros(i) as D:
                        stats.update(s)
                        stats.normalise(s)
                        with s @ v as o:
                            D.add_row_products(do, o)
                        dv.add_product(s.T, do)
                        s.times_product(do, v.T, less=D)
                        dk.add_product(s.T, q)
                        with s @ k as dq:
                            dq *= d**-0.5
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def output_stored_first(m, Q, K, V, dO, LSE, *, Br):
    """O goes to slow memory and D comes from there: B3 with a forward pass before it."""
    N, d = Q.shape
    D = m.new("D", (N,))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.load(LSE, i) as L:
            q *= d**-0.5
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    o.add_product(probabilities(s, L), v)
            with m.load(dO, i) as do, m.zeros(i) as D_i:
                D_i.add_row_products(do, o)
                m.store(D_i, D, i)
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    for j in m.blocks(N, N):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):
                with m.load(Q, i) as q, m.load(dO, i) as do, m.load(LSE, i) as L, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L)
                        dv.add_product(s.T, do)
                        s.times_product(do, v.T, less=D_i)
                        dk.add_product(s.T, q)
                        with s @ k as dq:
                            dq *= d**-0.5
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


def all_pairs_at_once(m, Q, K, V, dO, LSE, *, Br):
    """One block of all queries, whatever Br is: N x N scores in fast memory."""
    return statistics_made_anew(m, Q, K, V, dO, LSE, Br=Q.shape[0])


def zeros(m, Q, K, V, dO, LSE, *, Br):
    N, d = Q.shape
    made = tuple(m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    for array in made:
        for i in m.blocks(N, Br):
            with m.zeros(i, d) as nothing:
                m.store(nothing, array, i)
    return made


def library_schedule_inside(m, Q, K, V, dO, LSE, *, Br):
    return schedules.fused_backward(m, Q, K, V, Q, dO, LSE, Br=Br, Bc=Q.shape[0])


def taken_from_the_machine(m, Q, K, V, dO, LSE, *, Br):
    got = exact.attention_backward(*(m.take(array) for array in (Q, K, V, dO)))
    return tuple(m.slow(name, part) for name, part in zip(("dQ", "dK", "dV"), got, strict=True))


SKIP_LAST = (("m.blocks(N, Br)", "list(m.blocks(N, Br))[: N // Br]"),)

BACKWARD = Suite(
    id="9.3",
    mutants=(
        Mutant("D-forgotten", "dQ is exact", ("D_i.add_row_products(do, o)", "pass")),
        Mutant("D-from-o-alone", "dQ is exact", ("add_row_products(do, o)", "add_row_products(o, o)")),
        Mutant("o-from-keys", "dQ is exact", ("with s @ v as o", "with s @ k as o")),
        Mutant("q-unscaled", "dV is exact", (" q *= d**-0.5", " pass")),
        Mutant("dq-unscaled", "dQ is exact", ("dq *= d**-0.5", "pass")),
        Mutant("dk-scaled-twice", "dK is exact", ("m.store(dk, dK, j)", "dk *= d**-0.5; m.store(dk, dK, j)")),
        Mutant(
            "dv-from-score-gradients",
            "dV is exact",
            ("dv.add_product(s.T, do)\n", "pass\n"),
            ("dk.add_product(s.T, q)", "dk.add_product(s.T, q); dv.add_product(s.T, do)"),
        ),
        Mutant(
            "dk-from-weights",
            "dK is exact",
            ("dk.add_product(s.T, q)\n", "pass\n"),
            ("dv.add_product(s.T, do)\n", "dv.add_product(s.T, do); dk.add_product(s.T, q)\n"),
        ),
        Mutant("ragged-block-skipped", RUNS, *SKIP_LAST),
        Mutant(
            "no-maximum",
            LARGE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); stats = s.sum(axis=1); s /= stats.reshape(-1, 1)"),
        ),
        Mutant(
            "dO-read-again",
            "dO is read once",
            ("dk.add_product(s.T, q)", "dk.add_product(s.T, q); m.load(dO, i).free()"),
        ),
        Mutant(
            "keys-read-for-each-block",
            "K is read once",
            (" q *= d**-0.5", " q *= d**-0.5; k = m.load(K, j, into=k)"),
        ),
        Mutant(
            "dk-stored-after-each-block",
            "dK is written once",
            ("m.store(dq, dQ, i)", "m.store(dq, dQ, i); m.store(dk, dK, j)"),
        ),
        Mutant(
            "D-through-slow-memory",
            TOTAL,
            ("for j in m.blocks(N, N)", "D = m.new('D', (N,))\n    for j in m.blocks(N, N)"),
            ("D_i.add_row_products(do, o)", "D_i.add_row_products(do, o); m.store(D_i, D, i)"),
        ),
        Mutant("all-queries-in-one-block", FITS, ("m.blocks(N, Br)", "m.blocks(N, N)")),
    ),
    right=(D_from_dP, statistics_made_anew),
    cheats=(
        (output_stored_first, TOTAL),
        (output_stored_first, "dO is read once"),
        (all_pairs_at_once, FITS),
        (zeros, "dQ is exact"),
        (zeros, LOADED),
        (library_schedule_inside, OWN),
        (schedules.fused_backward, OWN),
        (lesson09.whole_backward, OWN),
        (taken_from_the_machine, RUNS),
    ),
)

SUITES = (ENVELOPE, MEMORY, BACKWARD)
