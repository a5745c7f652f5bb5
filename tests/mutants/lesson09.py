"""What is known about the exercises of lesson 09: mistakes, other right answers, cheats."""

from heapq import heappop, heappush
from itertools import count
from math import inf, sqrt

import numpy as np
from harness import Mutant, Suite, called

from iocourse import exact, schedules
from iocourse import sweeps as search
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises import lesson09
from iocourse.explore.models.memory_regimes import move
from iocourse.machine import probabilities

# ---------------------------------------------------------------------- 9A
SEQUENCE = "returns words and a list of sweeps"
LEADS = "the sweeps lead from the first state to the goal"
OWN_WORDS = "the words are those of the sweeps"
FEWEST = "no sequence moves fewer words"


def every_sequence(sweeps, x, state, goal):
    """All sequences written out one sweep at a time, then the cheapest."""
    open_ends, whole = [(state, [])], []
    while open_ends:
        at, path = open_ends.pop()
        if at == goal:
            whole.append(path)
        else:
            open_ends += [(sweep[3], [*path, sweep]) for sweep in sweeps[at]]
    words = [sum(len(r.split()) * len(t.split()) * x * x + n for r, t, n, _ in path) for path in whole]
    least = int(np.argmin(words))
    return words[least], tuple(whole[least])


def dijkstra(sweeps, x, state, goal):
    settled, waiting = set(), [(0.0, 0, state, [])]
    for number in count(1):
        words, _, at, path = heappop(waiting)
        if at == goal:
            return np.float64(words), path
        if at not in settled:
            settled.add(at)
            for k, sweep in enumerate(sweeps[at]):
                r, t = (1 + names.count(" ") for names in sweep[:2])
                far = words + r * t * x**2 + sweep[2]
                heappush(waiting, (far, 100 * number + k, sweep[3], [*path, sweep]))


def first_that_leads_there(sweeps, x, state, goal):
    words, path = 0, []
    while state != goal:
        path.append(sweeps[state][0])
        words += lesson09.words_of(path[-1], x)
        state = path[-1][3]
    return words, path


def from_the_inputs(sweeps, x, state, goal):
    return every_sequence(sweeps, x, "inputs", goal)


def library_search(sweeps, x, state, goal):
    return search.min_cost("forward", x).cost, []


def the_checks_own_search(sweeps, x, state, goal):
    return lesson09.cheapest(sweeps, x, state, goal), []


GREEDY = (
    ("found.append((words + rest, [sweep, *path]))", "found.append((words, words + rest, [sweep, *path]))"),
    ("return min(found, key=lambda one: one[0])", "return min(found, key=lambda one: one[0])[1:]"),
)
SEARCH = Suite(
    id="9A",
    mutants=(
        Mutant("sum-for-product", OWN_WORDS, ("len(stays.split()) * len", "len(stays.split()) + len")),
        Mutant("x-not-squared", OWN_WORDS, ("x**2", "x")),
        Mutant("matrices-forgotten", OWN_WORDS, (" + matrices", "")),
        Mutant("matrices-squared-too", OWN_WORDS, ("x**2 + matrices", "(x**2 + matrices)")),
        Mutant("sums-pass-once", OWN_WORDS, ("len(passes.split())", "len(set(passes.split()))")),
        Mutant("letters-counted", OWN_WORDS, ("len(stays.split())", "len(stays)")),
        Mutant("greedy", FEWEST, *GREEDY),
        Mutant("goal-by-heart", RUNS, ("state == goal", 'state == "outputs"')),
        Mutant(
            "goal-only-after-a-sweep",
            RUNS,
            ("    if state == goal:\n        return 0, []\n", ""),
            ("my_cheapest(sweeps, x, after, goal)", "(0, []) if after == goal else {}"),
            ("{}", "my_cheapest(sweeps, x, after, goal)"),
        ),
        Mutant("fewest-sweeps", FEWEST, ("key=lambda one: one[0]", "key=lambda one: len(one[1])")),
        Mutant("the-dearest", FEWEST, ("return min(", "return max(")),
        Mutant("first-sweep-lost", LEADS, ("[sweep, *path]", "path")),
        Mutant("backwards", LEADS, ("[sweep, *path]", "[*path, sweep]")),
        Mutant("rest-forgotten", OWN_WORDS, ("words + rest", "words")),
        Mutant(
            "words-alone",
            SEQUENCE,
            ("key=lambda one: one[0])", "key=lambda one: one[0])[0]"),
            ("return 0, []", "return 0"),
            ("rest, path =", "rest ="),
            ("[sweep, *path]", "0"),
        ),
    ),
    right=(every_sequence, dijkstra),
    cheats=(
        (first_that_leads_there, FEWEST),
        (from_the_inputs, RUNS),
        (library_search, OWN),
        (the_checks_own_search, OWN),
        (called("names_alone", lambda sweeps, x, state, goal: ["F3"]), SEQUENCE),
        (
            called("f3_always", lambda sweeps, x, state, goal: (4 * x**2, [lesson09.FORWARD["inputs"][0]])),
            LEADS,
        ),
    ),
)

# ---------------------------------------------------------------------- 9B
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
        found = [
            ("F5", 1 + 3 * np.maximum(1, N / x) + squares),
            ("F3", 2 + np.maximum(2, 4 / y)),
            ("F7", 2 + np.maximum(2, 2 / y) + 2 * N / d),
        ]
    else:
        found = [
            ("B5", 5 + 7 * np.maximum(1, N / x) + 3 * squares),
            ("B4", 8 + np.maximum(2, 6 / y) + np.maximum(2, 8 / y)),
            ("B3", 5 + np.maximum(4, 16 / y)),
            ("B7", 6 + 3 * np.maximum(1, 1 / y) + np.maximum(1, 2 / y) + 5 * N / d),
            ("B6", 6 + np.maximum(2, 8 / y) + np.maximum(1, 1 / y) + 2 * N / d),
        ]
    sign, times = min(found, key=lambda one: one[1])
    return [sign, times * N * d]


def with_ceilings_written_out(N, d, M, pass_):
    """The largest block that fits, at most the whole array, and plain quotients."""
    side = sqrt(M)
    tall, wide, single = min(side, N), min(side, d), min(N, M / d)
    n = N * d
    if pass_ == "forward":
        options = {
            "F3": 2 * n + 2 * n * N / min(N, M / d / 2),
            "F7": 2 * (n + n * N / single + N**2),
            "F5": n + 3 * n * N / tall + N**2 * (1 + d / wide),
        }
    else:
        Bc, Br = min(N, M / d / 4), min(N, M / d / 3)
        options = {
            "B6": 6 * n + 2 * n * N / Bc + n * N / single + 2 * N**2,
            "B7": 6 * n + 3 * n * N / single + n * N / min(N, M / d / 2) + 5 * N**2,
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
SCHEDULES |= {"F7": "scores_stored", "B5": "small_cache_backward", "B6": "score_gradients_stored"}
SCHEDULES["B7"] = "weights_stored"


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
    """Right words, and the sign from the borders in units of d², whatever N is."""
    words = in_arrays(N, d, M, pass_)[1]
    borders = (
        ((0.343, "F5"), (1, "F7")) if pass_ == "forward" else ((0.317, "B5"), (4 / 3, "B7"), (2.5, "B6"))
    )
    last = "F3" if pass_ == "forward" else "B4" if 2 * N * d / 3 > M else "B3"
    return next((sign for share, sign in borders if share * d * d > M), last), words


def the_checks_own_envelope(N, d, M, pass_):
    words = lesson09.envelope(N, d, M, pass_)
    return min(words.items(), key=lambda item: item[1])


ENVELOPE = Suite(
    id="9B",
    mutants=(
        Mutant("F3-without-O", best("F3"), ("+ 2 * N * d * two", "+ 2 * N * d * one")),
        Mutant("F3-Q-and-O-forgotten", best("F3"), ('"F3": 2 * N * d + 2', '"F3": 2')),
        Mutant("F5-side-M", best("F5"), ("side = M**0.5", "side = M")),
        Mutant("F5-whole-side", best("F5"), ("side = M**0.5", "side = int(M**0.5)")),
        Mutant("B5-whole-side", best("B5"), ("side = M**0.5", "side = int(M**0.5)")),
        Mutant(
            "whole-words",
            best("F5"),
            ("return min(words.items()", "return min(((sign, round(n)) for sign, n in words.items())"),
        ),
        Mutant("F5-half-a-side", best("F5"), ("side = M**0.5", "side = M**0.5 / 2")),
        Mutant("F5-scores-written-only", best("F5"), ("+ N * N * (1 + blocks(d, side))", "+ N * N")),
        Mutant("B3-rows-for-columns", best("B3"), ("+ 4 * N * d * four", "+ 4 * N * d * three")),
        Mutant("B3-as-if-two-stay", best("B3"), ("+ 4 * N * d * four", "+ 4 * N * d * two")),
        Mutant("B4-one-size-for-both", best("B4"), ("(three + four)", "(four + four)")),
        Mutant("B4-one-sweep", best("B4"), ("(three + four)", "four")),
        Mutant("B5-as-F5", best("B5"), ("7 * N * d * blocks(N, side)", "3 * N * d * blocks(N, side)")),
        Mutant("F7-as-F3", best("F7"), ("2 * N * d * one + 2", "2 * N * d * two + 2")),
        Mutant("F7-written-only", best("F7"), ("one + 2 * N * N", "one + N * N")),
        Mutant("B6-dQ-as-columns", best("B6"), ("four + N * d * one", "four + N * d * four")),
        Mutant("B6-dS-read-for-free", best("B6"), ("+ N * d * one + 2 * N * N", "+ N * d * one + N * N")),
        Mutant("B7-V-alone", best("B7"), ("+ N * d * two + 5", "+ N * d * one + 5")),
        Mutant("B7-four-matrices", best("B7"), ("5 * N * N", "4 * N * N")),
        Mutant("less-than-a-pass", ONE_PASS, ("return max(1, length / size)", "return length / size")),
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

# ---------------------------------------------------------------------- 9C
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
                D.add_row_dots(p, dp)
            dv.add_matmul(p.T, do)
            p.multiply_by_matmul(do, v.T, less=D)
            p *= d**-0.5
            do.free()
            dk.add_matmul(p.T, q)
        with m.zeros(rows, d) as dq:
            dq.add_matmul(p, k)
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
                            D.add_row_dots(do, o)
                        dv.add_matmul(s.T, do)
                        s.multiply_by_matmul(do, v.T, less=D)
                        dk.add_matmul(s.T, q)
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
                    o.add_matmul(probabilities(s, L), v)
            with m.load(dO, i) as do, m.zeros(i) as D_i:
                D_i.add_row_dots(do, o)
                m.store(D_i, D, i)
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    for j in m.blocks(N, N):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):
                with m.load(Q, i) as q, m.load(dO, i) as do, m.load(LSE, i) as L, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L)
                        dv.add_matmul(s.T, do)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
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
    id="9C",
    mutants=(
        Mutant("D-forgotten", "dQ is exact", ("D_i.add_row_dots(do, o)", "pass")),
        Mutant("D-from-o-alone", "dQ is exact", ("add_row_dots(do, o)", "add_row_dots(o, o)")),
        Mutant("o-from-keys", "dQ is exact", ("with s @ v as o", "with s @ k as o")),
        Mutant("q-unscaled", "dV is exact", (" q *= d**-0.5", " pass")),
        Mutant("scale-of-one-d", "dV is exact", ("d**-0.5", "10**-0.5")),
        Mutant("dq-unscaled", "dQ is exact", ("dq *= d**-0.5", "pass")),
        Mutant("dk-scaled-twice", "dK is exact", ("m.store(dk, dK, j)", "dk *= d**-0.5; m.store(dk, dK, j)")),
        Mutant(
            "dv-from-score-gradients",
            "dV is exact",
            ("dv.add_matmul(s.T, do)\n", "pass\n"),
            ("dk.add_matmul(s.T, q)", "dk.add_matmul(s.T, q); dv.add_matmul(s.T, do)"),
        ),
        Mutant(
            "dk-from-weights",
            "dK is exact",
            ("dk.add_matmul(s.T, q)\n", "pass\n"),
            ("dv.add_matmul(s.T, do)\n", "dv.add_matmul(s.T, do); dk.add_matmul(s.T, q)\n"),
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
            ("dk.add_matmul(s.T, q)", "dk.add_matmul(s.T, q); m.load(dO, i).free()"),
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
            ("D_i.add_row_dots(do, o)", "D_i.add_row_dots(do, o); m.store(D_i, D, i)"),
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

# ---------------------------------------------------------------------- 9D
B6_TOTAL = "no more words move than (9.4) says"


def gradients_apart(m, Q, K, V, dO, LSE, D, *, Bc):
    """Blocks counted by hand, dP in a row of its own, keys scaled in place of queries."""
    N, d = Q.shape
    dS, dK, dV = m.new("dS", (N, N)), m.new("dK", (N, d)), m.new("dV", (N, d))
    for first in range(0, N, Bc):
        j = (first, min(first + Bc, N))
        k, v = m.load(K, j), m.load(V, j)
        dk, dv = m.zeros(j[1] - j[0], d), m.zeros(j[1] - j[0], d)
        for row in range(N):
            i = (row, row + 1)
            q, do = m.load(Q, i), m.load(dO, i)
            with m.load(LSE, i) as L, m.load(D, i) as D_i:
                p = q @ k.T
                p *= d**-0.5
                probabilities(p, L)
                dv.add_matmul(p.T, do)
                with do @ v.T as dp:
                    dp -= D_i.reshape(1, 1)
                    p *= dp
            m.store(p, dS, i, j)
            p *= d**-0.5
            dk.add_matmul(p.T, q)
            for tile in (p, q, do):
                tile.free()
        m.store(dk, dK, j)
        m.store(dv, dV, j)
        for tile in (k, v, dk, dv):
            tile.free()
    return dS, dK, dV


def tiles_of_two_queries(m, Q, K, V, dO, LSE, D, *, Bc):
    """Right values, but more than one query at a time."""
    return keys_with(m, Q, K, V, dO, LSE, D, Bc=Bc, Br=2)


def keys_with(m, Q, K, V, dO, LSE, D, *, Bc, Br):
    N, d = Q.shape
    dS, dK, dV = m.new("dS", (N, N)), m.new("dK", (N, d)), m.new("dV", (N, d))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):
                with (
                    m.load(Q, i) as q,
                    m.load(dO, i) as do,
                    m.load(LSE, i) as L,
                    m.load(D, i) as D_i,
                ):
                    q *= d**-0.5
                    with q @ k.T as s:
                        dv.add_matmul(probabilities(s, L).T, do)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        m.store(s, dS, i, j)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dS, dK, dV


def one_row_later(m, Q, K, V, dO, LSE, D, *, Bc):
    """The library's own loop, whose rows are one query each."""
    return keys_with(m, Q, K, V, dO, LSE, D, Bc=Bc, Br=1)


def taken_with_scores(m, Q, K, V, dO, LSE, D, *, Bc):
    arrays = [m.take(array) for array in (Q, K, V, dO)]
    S = exact.scores(arrays[0], arrays[1])
    dS = exact.softmax(S) * (arrays[3] @ arrays[2].T - m.take(D)[:, None])
    _, dK, dV = exact.attention_backward(*arrays)
    return tuple(m.slow(name, part) for name, part in (("dS", dS), ("dK", dK), ("dV", dV)))


KEYS = Suite(
    id="9D",
    mutants=(
        Mutant("L-for-D", "dS is exact", ("less=D_i", "less=L_i")),
        Mutant("q-unscaled", "dS is exact", (" q *= d**-0.5", " pass")),
        Mutant("scale-of-one-d", "dS is exact", ("d**-0.5", "10**-0.5")),
        Mutant("dS-scaled", "dS is exact", ("m.store(s, dS, i, j)", "s *= d**-0.5; m.store(s, dS, i, j)")),
        Mutant(
            "weights-stored",
            "dS is exact",
            ("dv.add_matmul(s.T, do)\n", "dv.add_matmul(s.T, do); m.store(s, dS, i, j)\n"),
            ("m.store(s, dS, i, j)\n            m", "pass\n            m"),
        ),
        Mutant(
            "dv-from-score-gradients",
            "dV is exact",
            ("dv.add_matmul(s.T, do)\n", "pass\n"),
            ("dk.add_matmul(s.T, q)", "dk.add_matmul(s.T, q); dv.add_matmul(s.T, do)"),
        ),
        Mutant(
            "dk-from-weights",
            "dK is exact",
            ("dk.add_matmul(s.T, q)\n", "pass\n"),
            ("dv.add_matmul(s.T, do)\n", "dv.add_matmul(s.T, do); dk.add_matmul(s.T, q)\n"),
        ),
        Mutant("dk-scaled-twice", "dK is exact", ("m.store(dk, dK, j)", "dk *= d**-0.5; m.store(dk, dK, j)")),
        Mutant("ragged-block-skipped", RUNS, ("m.blocks(N, Bc)", "list(m.blocks(N, Bc))[: N // Bc]")),
        Mutant(
            "no-maximum",
            LARGE,
            ("probabilities(s, L_i)", "np.exp(s, out=s); stats = s.sum(axis=1); s /= stats.reshape(-1, 1)"),
        ),
        Mutant("all-queries-at-once", FITS, ("m.blocks(N, 1)", "m.blocks(N, N)")),
        Mutant(
            "dO-read-again",
            "dO is read ⌈N/Bc⌉ times",
            ("dk.add_matmul(s.T, q)", "dk.add_matmul(s.T, q); m.load(dO, i).free()"),
        ),
        Mutant(
            "dk-stored-after-each-query",
            "dK is written once",
            ("m.store(s, dS, i, j)", "m.store(s, dS, i, j); m.store(dk, dK, j)"),
        ),
        Mutant(
            "D-read-twice",
            B6_TOTAL,
            ("dk.add_matmul(s.T, q)", "dk.add_matmul(s.T, q); m.load(D, i).free()"),
        ),
        Mutant(
            "dS-stored-twice",
            "dS is written once",
            ("m.store(s, dS, i, j)", "m.store(s, dS, i, j); m.store(s, dS, i, j)"),
        ),
    ),
    right=(gradients_apart, one_row_later),
    cheats=(
        (tiles_of_two_queries, FITS),
        (schedules.score_gradients_stored, OWN),
        (lesson09.keys_sweep, OWN),
        (taken_with_scores, RUNS),
    ),
)

SUITES = (SEARCH, ENVELOPE, BACKWARD, KEYS)
