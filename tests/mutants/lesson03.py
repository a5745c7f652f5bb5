"""Lesson 03: online softmax. Mistakes students make, other right answers, cheats."""

import itertools

import numpy as np
from harness import Mutant, Suite, called

from iocourse import exact
from iocourse.course.checking import OWN, RUNS

LARGE = "scores of ±10,000 neither overflow nor vanish"
CUT = "the cut into pieces does not change the answer"
ONCE = "each piece is visited once"
KEPT = "what is kept does not grow with the row"

# ---------------------------------------------------------------------- 3A maximum and sum
MAXIMUM = "m is the largest score of the whole row"
SUM = "l is the sum of e^(s - m) over the whole row"
OLD_SUM = "np.exp(m - m_new) * l"
NEW_TERMS = "np.exp(s - m_new).sum()"
LOOP = "for s in pieces:"
RUNNING_MUTANTS = (
    Mutant("dropped rescale", SUM, (OLD_SUM, "l")),
    Mutant("dropped rescale shows in the cut", CUT, (OLD_SUM, "l")),
    Mutant("factor upside down", SUM, ("np.exp(m - m_new)", "np.exp(m_new - max(m, -700))")),
    Mutant("new terms in the old unit", SUM, (NEW_TERMS, "np.exp(s - max(m, s[0])).sum()")),
    Mutant("each piece in its own unit", SUM, (NEW_TERMS, "np.exp(s - s.max()).sum()")),
    Mutant("maximum of the last piece only", MAXIMUM, ("max(m, s.max())", "s.max()")),
    Mutant("last score for the maximum", MAXIMUM, ("s.max()", "s[-1]")),
    Mutant("largest size for the maximum", MAXIMUM, ("s.max()", "np.abs(s).max()")),
    Mutant("maximum starts at 0", MAXIMUM, ("m, l = -np.inf", "m, l = 0.0")),
    Mutant("maximum starts at 0 and vanishes", LARGE, ("m, l = -np.inf", "m, l = 0.0")),
    Mutant(
        "sum starts at 1",
        SUM,
        ("-np.inf, 0.0", "-1e30, 1.0"),
        (OLD_SUM, "(l if m < -1e29 else " + OLD_SUM + ")"),
    ),
    Mutant(
        "no maximum in the sum",
        LARGE,
        (OLD_SUM, "l"),
        (NEW_TERMS, "np.exp(s).sum()"),
        ("return m, l", "return m, l * np.exp(-m)"),
    ),
    Mutant("scores clipped", LARGE, (NEW_TERMS, "np.exp(np.clip(s, -700, 700) - m_new).sum()")),
    Mutant("log-sum-exp in place of l", SUM, ("return m, l", "return m, m + np.log(l)")),
    Mutant("a little added", SUM, ("return m, l", "return m, l + 1e-6")),
    Mutant("old maximum not forgotten", MAXIMUM, ("        m = m_new\n", "")),
    Mutant(
        "sum only where the maximum rises", SUM, ("        l = ", "        if m_new > m:\n            l = ")
    ),
    Mutant(
        "last ragged piece left out",
        CUT,
        (LOOP, f"size = 0\n    {LOOP}\n        size = max(size, len(s))\n        if len(s) < size: break"),
    ),
    Mutant("first piece only", MAXIMUM, ("        m = m_new\n", "        m = m_new\n        break\n")),
    Mutant("single precision", SUM, (NEW_TERMS, "np.exp((s - m_new).astype(np.float32)).sum()")),
    Mutant(
        "second pass",
        ONCE,
        (OLD_SUM, "l"),
        (NEW_TERMS, "0.0"),
        ("return m, l", "return m, sum(np.exp(s - m).sum() for s in pieces)"),
    ),
    Mutant("maximum starts at -10,000", LARGE, ("m, l = -np.inf", "m, l = -1e4")),
    Mutant("maximum starts at -100", LARGE, ("m, l = -np.inf", "m, l = -100.0")),
    Mutant("maximum starts at -100,000", LARGE, ("m, l = -np.inf", "m, l = -1e5")),
    Mutant("maximum starts at -10⁹", LARGE, ("m, l = -np.inf", "m, l = -1e9")),
    Mutant("complex numbers", SUM, ("return m, l", "return m, l + 1j")),
    Mutant("text", MAXIMUM, ("return m, l", "return str(m), l")),
    Mutant("all pieces kept", KEPT, (LOOP, "for s in list(pieces):")),
)


def scores_one_by_one(pieces):
    m, l = float("-inf"), 0.0
    for piece in pieces:
        for s in piece:
            if s > m:
                l, m = l * np.exp(m - s) + 1.0, s
            else:
                l += np.exp(s - m)
    return m, l


def by_log_sum_exp(pieces):
    """Carries m and L in place of m and l."""
    first = next(pieces)
    m, L = first.max(), np.logaddexp.reduce(first)
    for s in pieces:
        m, L = np.maximum(m, s.max()), np.logaddexp(L, np.logaddexp.reduce(s))
    return m, np.exp(L - m)


def as_an_array(pieces):
    return np.array(scores_one_by_one(pieces))


def concatenated(pieces):
    s = np.concatenate(list(pieces))
    return s.max(), np.exp(s - s.max()).sum()


def teed(pieces):
    first, second = itertools.tee(pieces)
    m = max(s.max() for s in first)
    return m, sum(np.exp(s - m).sum() for s in second)


def pairs_of_all_pieces(pieces):
    """Maximum and sum of each piece in a list, and one merge at the end."""
    pairs = [(s.max(), np.exp(s - s.max()).sum()) for s in pieces]
    m = max(top for top, _ in pairs)
    return m, sum(np.exp(top - m) * total for top, total in pairs)


def as_floats(pieces):
    s = [float(x) for piece in pieces for x in piece]
    return max(s), sum(np.exp(x - max(s)) for x in s[:50])


# ---------------------------------------------------------------------- 3B the output
MEAN = "o is the softmax-weighted mean of the values"
RESCALED = "a new maximum rescales the sum and the output"
FALLING = "a piece without a new maximum keeps the old unit"
MASKED = "a masked piece adds nothing, wherever it comes"
EMPTY = "a row that is masked throughout gives zeros"
SHIFT = "m_new if m_new > -np.inf else 0.0"
RETURN = "o / l if l > 0 else o"
PAIRS = "for s, v in pieces:"
ATTENTION_MUTANTS = (
    Mutant("dropped rescale of o", RESCALED, ("factor * o", "o")),
    Mutant("dropped rescale of l", RESCALED, ("factor * l", "l")),
    Mutant("dropped rescale of both", RESCALED, ("factor * l", "l"), ("factor * o", "o")),
    Mutant("factor upside down", RESCALED, ("np.exp(m - shift)", "np.exp(shift - max(m, -700.0))")),
    Mutant("maximum of the values", LARGE, ("s.max()", "v.max()")),
    Mutant(
        "maximum of the piece only",
        FALLING,
        ("max(m, s.max())", "s.max()"),
        ("np.exp(m - shift)", "min(1.0, np.exp(m - shift))"),
    ),
    Mutant("maximum starts at 0", LARGE, ("-np.inf, 0.0, 0.0", "0.0, 0.0, 0.0")),
    Mutant("maximum starts at -10,000", LARGE, ("-np.inf, 0.0, 0.0", "-1e4, 0.0, 0.0")),
    Mutant("maximum starts at -100", LARGE, ("-np.inf, 0.0, 0.0", "-100.0, 0.0, 0.0")),
    Mutant("maximum starts at -100,000", LARGE, ("-np.inf, 0.0, 0.0", "-1e5, 0.0, 0.0")),
    Mutant(
        "piece skipped whose ends are masked",
        MASKED,
        (PAIRS, PAIRS + "\n        if s[0] == s[-1] == -np.inf: continue"),
    ),
    Mutant("complex numbers", MEAN, ("o / l if", "o / l + 1j * o if")),
    Mutant("no maximum", LARGE, (f"shift = {SHIFT}", "shift = 0.0"), ("np.exp(m - shift)", "1.0")),
    Mutant("0 carried on as the maximum", MASKED, ("m = m_new\n", "m = shift\n")),
    Mutant("no remedy for masks", MASKED, (SHIFT, "m_new")),
    Mutant("no remedy for masks, row masked throughout", EMPTY, (SHIFT, "m_new"), ("l > 0", "not l == 0")),
    Mutant("masked throughout divided", EMPTY, (RETURN, "o / l")),
    Mutant("masked throughout averaged", EMPTY, (RETURN, "o / l if l > 0 else v.mean(axis=0)")),
    Mutant("masked scores weigh a little", MASKED, ("s.max()", "(s := np.maximum(s, -9)).max()")),
    Mutant("not divided", MEAN, (RETURN, "o")),
    Mutant("divided by the length", MEAN, (f"return {RETURN}", "return o / len(o)")),
    Mutant(
        "divided in each step",
        MEAN,
        ("o = factor * o + p @ v", "o = (factor * o + p @ v) / max(l, 1e-300)"),
        (RETURN, "o"),
    ),
    Mutant(
        "average of the pieces' outputs",
        CUT,
        ("factor * o + p @ v", "o + p @ v / max(p.sum(), 1e-300)"),
        ("factor * l + p.sum()", "l + 1"),
    ),
    Mutant(
        "largest score only",
        MEAN,
        ("p = np.exp(m - shift), np.exp(s - shift)", "p = float(m == shift), (s == shift) * 1.0"),
    ),
    Mutant("weights in the old unit", RESCALED, ("np.exp(s - shift)", "np.exp(s - max(m, s.min(), -1e5))")),
    Mutant(
        "last ragged piece left out",
        CUT,
        (PAIRS, f"size = 0\n    {PAIRS}\n        size = max(size, len(s))\n        if len(s) < size: break"),
    ),
    Mutant(
        "masked piece skipped with the rest",
        MASKED,
        (PAIRS, PAIRS + "\n        if s.max() == -np.inf: break"),
    ),
    Mutant("all pieces kept", KEPT, (PAIRS, "for s, v in list(pieces):")),
    Mutant("a little added to the sum", MEAN, (RETURN, "o / (l + 1e-6)")),
)


def finite_start(pieces):
    """A start far below every score in place of -inf needs no special case."""
    m, l, o = -1e300, 0.0, 0.0
    for s, v in pieces:
        top = max(m, s.max())
        l, o = l * np.exp(m - top), o * np.exp(m - top)
        for weight, value in zip(np.exp(s - top), v, strict=True):
            l, o, m = l + weight, o + weight * value, top
    return np.zeros(v.shape[1]) if l == 0 else o / l


def divided_all_along(pieces):
    """FlashAttention-1's way: the output stays normalised, and is un-normalised in each step."""
    m, l, o = -np.inf, 0.0, None
    for s, v in pieces:
        o = np.zeros(v.shape[1]) if o is None else o
        seen = s > -np.inf
        if not seen.any():
            continue
        m_new = max(m, s[seen].max())
        p = np.exp(s[seen] - m_new)
        l_new = l * np.exp(m - m_new) + p.sum()
        o = (l * np.exp(m - m_new) * o + p @ v[seen]) / l_new
        m, l = m_new, l_new
    return o


def two_loops(pieces):
    pieces = list(pieces)
    m = max(s.max() for s, v in pieces)
    shift = m if m > -np.inf else 0.0
    l = sum(np.exp(s - shift).sum() for s, v in pieces)
    o = sum(np.exp(s - shift) @ v for s, v in pieces)
    return o / l if l > 0 else o


def second_loop_over_the_iterator(pieces):
    m = max(s.max() for s, v in pieces)
    l, o = 0.0, 0.0
    for s, v in pieces:
        l, o = l + np.exp(s - m).sum(), o + np.exp(s - m) @ v
    return o / l


def output_of_the_first_loop(pieces):
    """Looks for the maximum, and finds no pieces left to weigh."""
    m, o = -np.inf, 0.0
    for s, v in pieces:
        m, o = max(m, s.max()), 0.0 * v[0]
    for s, v in pieces:
        o = o + np.exp(s - m) @ v
    return o


def library_softmax(pieces):
    s, v = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return exact.softmax(s) @ v


# ---------------------------------------------------------------------- 3C merging
TWO = "two parts make the whole"
ORDER = "the order does not matter"
GROUPING = "the grouping does not matter"
IDENTITY = "the part (-inf, 0, 0) changes nothing"
FAR = "maxima 10,000 apart neither overflow nor vanish"
INPUTS = "the parts handed in stay as they were"
BOTH = "m = max(a[0], b[0])"
FACTORS = "np.exp(a[0] - shift), np.exp(b[0] - shift)"
EXCHANGED = "np.exp(b[0] - shift), np.exp(a[0] - shift)"
MERGE_SHIFT = "shift = m if m > -np.inf else 0.0"
MERGED = "factor_a * a[2] + factor_b * b[2]"
MERGE_MUTANTS = (
    Mutant("maximum of the first", ORDER, (BOTH, "m = a[0]")),
    Mutant("maximum of the first, far apart", FAR, (BOTH, "m = a[0]")),
    Mutant("smaller maximum", TWO, (BOTH, "m = min(a[0], b[0])")),
    Mutant("sum of the maxima", TWO, (BOTH, "m = a[0] + b[0]")),
    Mutant("no factors", TWO, (FACTORS, "1.0, 1.0")),
    Mutant("factors exchanged", TWO, (FACTORS, EXCHANGED)),
    Mutant("factors exchanged, empty part", IDENTITY, (FACTORS, EXCHANGED)),
    Mutant("only b rescaled", ORDER, (FACTORS, "1.0, np.exp(b[0] - shift)")),
    Mutant("o not rescaled", TWO, (MERGED, "a[2] + b[2]")),
    Mutant("l not rescaled", TWO, ("factor_a * a[1] + factor_b * b[1]", "a[1] + b[1]")),
    Mutant("no maximum", FAR, (FACTORS, "np.exp(a[0]) / np.exp(shift), np.exp(b[0]) / np.exp(shift)")),
    Mutant("0 for every maximum below 0", FAR, (MERGE_SHIFT, "shift = m if m > 0.0 else 0.0")),
    Mutant("0 for a maximum below -100", FAR, (MERGE_SHIFT, "shift = m if m > -100.0 else 0.0")),
    Mutant("0 for a maximum below -10,000", FAR, (MERGE_SHIFT, "shift = m if m > -10000.0 else 0.0")),
    Mutant("complex numbers", TWO, (MERGED, "(" + MERGED + ") * (1 + 0j)")),
    Mutant("no remedy for two empty parts", IDENTITY, (MERGE_SHIFT, "shift = m")),
    Mutant("mean of outputs", TWO, (MERGED, "(a[2] / max(a[1], 1e-300) + b[2] / max(b[1], 1e-300)) / 2")),
    Mutant(
        "output divided",
        GROUPING,
        (MERGED, "(factor_a * a[2] + factor_b * b[2]) / (factor_a * a[1] + factor_b * b[1] or 1.0)"),
    ),
    Mutant("empty part wins", IDENTITY, (BOTH, BOTH + "\n    if min(a[0], b[0]) == -np.inf: return a")),
    Mutant("a part 10 below dropped", TWO, (BOTH, "if a[0] - b[0] > 10: return a\n    " + BOTH)),
    Mutant(
        "a part 15 below dropped",
        GROUPING,
        (BOTH, "if abs(a[0] - b[0]) > 15: return max(a, b, key=max_of)\n    " + BOTH),
        ("def my_merge", "def max_of(part):\n    return part[0]\n\n\ndef my_merge"),
    ),
    Mutant("in place", INPUTS, (MERGED, "a[2].__imul__(factor_a).__iadd__(factor_b * b[2])")),
)


def smaller_into_larger(a, b):
    (m, l, o), (m_low, l_low, o_low) = (a, b) if a[0] >= b[0] else (b, a)
    if m_low == -np.inf:
        return m, l, o
    factor = np.exp(m_low - m)
    return m, l + factor * l_low, o + factor * o_low


def by_weights(a, b):
    """Works with the two log-sum-exps and divided outputs, and goes back to (m, l, o) at the end."""
    if a[1] == 0 or b[1] == 0:
        return b if a[1] == 0 else a
    m = np.maximum(a[0], b[0])
    La, Lb = a[0] + np.log(a[1]), b[0] + np.log(b[1])
    L = np.logaddexp(La, Lb)
    output = np.exp(La - L) * a[2] / a[1] + np.exp(Lb - L) * b[2] / b[1]
    return m, np.exp(L - m), np.exp(L - m) * output


def as_a_list(a, b):
    return list(smaller_into_larger(a, b))


def first_of_the_two(a, b):
    return a


# ---------------------------------------------------------------------- 3D on the machine
ROWS = "L is m + log l of every whole row"
TILES = "tile size does not change the answer"
FITS = "fits in fast memory"
READ_ONCE = "each score is read once"
WRITTEN = "one word is written for each row, and nothing else"
LOADED = "every word of the input is loaded"
UPDATE = "stats.update(s)"
COLUMNS = "m.blocks(n, Bc)"
OPEN = "with m.row_stats(i) as stats:  # 2·Br\n            for j in m.blocks(n, Bc):"
LSE_MUTANTS = (
    Mutant("maximum forgotten", ROWS, ("stats.lse()", "np.log(stats.l)")),
    Mutant("logarithm forgotten", ROWS, ("stats.lse()", "stats.m + stats.l")),
    Mutant("maximum only", ROWS, ("stats.lse()", "stats.m")),
    Mutant("last ragged block left out", TILES, (COLUMNS, "m.blocks(n // Bc * Bc or n, Bc)")),
    Mutant("square scores assumed", ROWS, (COLUMNS, "m.blocks(N, Bc)")),
    Mutant("square scores assumed, words missing", LOADED, (COLUMNS, "m.blocks(N, Bc)")),
    Mutant("whole rows", FITS, (COLUMNS, "m.blocks(n, n)")),
    Mutant("rows in blocks of columns", FITS, ("m.blocks(N, Br)", "m.blocks(N, Bc)")),
    Mutant("read twice", READ_ONCE, (UPDATE, UPDATE + "; m.load(S, i, j).free()")),
    Mutant("stored in each step", WRITTEN, (UPDATE, UPDATE + "; m.store(stats.m, L, i)")),
    Mutant(
        "sum without the maximum",
        LARGE,
        (UPDATE, "stats.l += np.exp(s).sum(axis=1)"),
        ("stats.lse()", "np.log(stats.l)"),
    ),
    Mutant(
        "statistics afresh for each piece",
        TILES,
        (OPEN, "for j in m.blocks(n, Bc):\n            with m.row_stats(i) as stats:"),
        ("            m.store", "                m.store"),
    ),
    Mutant(
        "a copy of the scores in slow memory",
        WRITTEN,
        ("    L = m.new", "    C = m.new('C', (N, n))\n    L = m.new"),
        (UPDATE, "m.store(s, C, i, j); " + UPDATE),
    ),
)


def own_tiles(m, S, *, Br, Bc, start=-np.inf):
    """Formula (3.2) on tiles, with its temporaries."""
    L = m.new("rows", (S.shape[0],))
    for i in m.blocks(S.shape[0], Br):
        top, total = m.full(i, value=start), m.zeros(i)
        for j in m.blocks(S.shape[1], Bc):
            s = m.load(S, i, j)
            new = np.maximum(top, s.max(axis=1))
            total *= np.exp(top - new)
            s -= new[:, None]
            total += np.exp(s).sum(axis=1)
            top = new
            del s, new
        total = np.log(total)
        total += top
        m.store(total, L, i)
    return L


def maximum_from_minus_100_000(m, S, *, Br, Bc):
    return own_tiles(m, S, Br=Br, Bc=Bc, start=-1e5)


def columns_from_the_right(m, S, *, Br, Bc):
    """Another order of the pieces and rows one by one."""
    N, n = S.shape
    L = m.new("L", (N,))
    for i in range(N):
        stats = m.row_stats(1)
        for start in range((n - 1) // Bc * Bc, -1, -Bc):
            with m.load(S, (i, i + 1), (start, min(n, start + Bc))) as s:
                stats.update(s)
        m.store(stats.lse(), L, (i, i + 1))
        stats.free()
    return L


def two_passes(m, S, *, Br, Bc):
    """First the maximum, then the sum."""
    N, n = S.shape
    L = m.new("L", (N,))
    for i in m.blocks(N, Br):
        with m.full(i, value=-np.inf) as top, m.zeros(i) as total:
            for j in m.blocks(n, Bc):
                with m.load(S, i, j) as s:
                    np.maximum(top, s.max(axis=1), out=top)
            for j in m.blocks(n, Bc):
                with m.load(S, i, j) as s:
                    s -= top[:, None]
                    np.exp(s, out=s)
                    total += s.sum(axis=1)
            np.log(total, out=total)
            total += top
            m.store(total, L, i)
    return L


def columns_outside(m, S, *, Br, Bc):
    """m and l of all rows go to slow memory and come back for each block of columns."""
    N, n = S.shape
    tops, sums, L = m.new("m", (N,)), m.new("l", (N,)), m.new("L", (N,))
    for j in m.blocks(n, Bc):
        for i in m.blocks(N, Br):
            with m.row_stats(i) as stats, m.load(S, i, j) as s:
                if not j.first:
                    with m.load(tops, i) as old:
                        stats.m[:] = old
                    with m.load(sums, i) as old:
                        stats.l[:] = old
                stats.update(s)
                m.store(stats.m, tops, i)
                m.store(stats.l, sums, i)
                if j.last:
                    m.store(stats.lse(), L, i)
    return L


def nothing_loaded(m, S, *, Br, Bc):
    L = m.new("L", (S.shape[0],))
    with m.full(S.shape[0], value=1.0) as ones:
        m.store(ones, L, slice(None))
    return L


SUITES = (
    Suite(
        "3A",
        mutants=RUNNING_MUTANTS,
        right=(scores_one_by_one, by_log_sum_exp, as_an_array),
        cheats=(
            (concatenated, KEPT),
            (teed, KEPT),
            (pairs_of_all_pieces, KEPT),
            (as_floats, KEPT),
            (called("indexed", lambda pieces: (pieces[0].max(), 1.0)), RUNS),
            (called("counted", lambda pieces: (0.0, float(len(pieces)))), RUNS),
        ),
    ),
    Suite(
        "3B",
        mutants=ATTENTION_MUTANTS,
        right=(finite_start, divided_all_along),
        cheats=(
            (two_loops, KEPT),
            (second_loop_over_the_iterator, RUNS),
            (output_of_the_first_loop, ONCE),
            (library_softmax, OWN),
        ),
    ),
    Suite(
        "3C",
        mutants=MERGE_MUTANTS,
        right=(smaller_into_larger, by_weights, as_a_list),
        cheats=(
            (first_of_the_two, TWO),
            (first_of_the_two, ORDER),
            (called("one_number", lambda a, b: a[1] + b[1]), RUNS),
        ),
    ),
    Suite(
        "3D",
        mutants=LSE_MUTANTS,
        right=(own_tiles, columns_from_the_right),
        cheats=(
            (two_passes, READ_ONCE),
            (columns_outside, WRITTEN),
            (nothing_loaded, LOADED),
            (maximum_from_minus_100_000, LARGE),
            (called("on_the_slow_array", lambda m, S, *, Br, Bc: exact.log_sum_exp(S)), OWN),
            (called("bare_array", lambda m, S, *, Br, Bc: np.zeros(S.shape[0])), RUNS),
            (called("scores_handed_back", lambda m, S, *, Br, Bc: S), ROWS),
        ),
    ),
)
