"""Tests of the search over sequences of sweeps: its envelopes, its costs and `best` against closed forms."""

from itertools import combinations, product
from math import inf, sqrt

import pytest

from iocourse import schedules, sweeps
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked

LOW, HIGH = 0.05, 10.0

# The terms a·x² + b·x + c from small x to large, and x² where each gives way to the next.
ENVELOPES = {
    "forward": ([(4, 0, 0), (2, 0, 2), (1.5, 0, 3), (0, 4, 1)], [1, 2, 4]),
    "backward": ([(14, 0, 0), (9, 0, 2), (5, 0, 5), (4, 0, 7), (0, 10, 3)], [2 / 5, 3 / 4, 2, 4]),
    "given": ([(14, 0, 0), (4, 0, 4), (3, 0, 6), (0, 8, 2)], [2 / 5, 2, 4]),
    "gradient": ([(10, 0, 0), (7, 0, 2), (4, 0, 5), (3, 0, 7), (0, 8, 3)], [2 / 3, 1, 2, 4]),
    "tied": ([(2, 0, 0), (0, 4, 1)], [(1 + sqrt(1.5)) ** 2]),
}
SEQUENCES = {
    ("forward", 0.5): ["Q, O resident; K, V streamed; O done"],
    ("forward", 1.2): ["Q resident; K streamed; S written", "O resident; V streamed; S read; O done"],
    ("backward", 0.5): [
        "Q, dO, dQ resident; K, V streamed; dQ done",
        "K, V, dK, dV resident; Q, dO streamed; dK, dV done",
    ],
    ("backward", 0.8): [
        "K, V, dK, dV resident; Q, dO streamed; dS written; dK, dV done",
        "dQ resident; K streamed; dS read; dQ done",
    ],
    ("gradient", 0.9): [
        "Q, O resident; K, V streamed; O done",
        "dO resident; V streamed; dP written",
        "Q, dQ resident; K streamed; dP read; dQ done",
    ],
    ("forward", 3.0): [
        "in tiles; Q, K streamed; S written",
        "in tiles; O resident; V streamed; S read; O done",
    ],
}
ROWS, COLUMNS = {"Q", "O", "dO", "dQ"}, {"K", "V", "dK", "dV", "X"}


@pytest.mark.parametrize("pass_", ENVELOPES)
def test_the_envelope_has_these_terms_and_borders(pass_):
    pieces = sweeps.lower_envelope(pass_, LOW, HIGH)
    terms, borders = ENVELOPES[pass_]
    assert [piece[2:5] for piece in pieces] == terms
    assert [piece.x_to**2 for piece in pieces[:-1]] == pytest.approx(borders, rel=1e-9)
    assert [piece.x_from for piece in pieces[1:]] == [piece.x_to for piece in pieces[:-1]]
    assert (pieces[0].x_from, pieces[-1].x_to) == (LOW, HIGH)


@pytest.mark.parametrize("pass_", ENVELOPES)
def test_the_envelope_is_what_is_least_at_every_x(pass_):
    terms = [sweeps.Terms(*found) for found in ENVELOPES[pass_][0]]
    for step in range(101):
        x = LOW * (HIGH / LOW) ** (step / 100)
        found = sweeps.min_cost(pass_, x)
        assert found.cost == pytest.approx(min(one.at(x) for one in terms), rel=1e-11)
        assert found.cost == pytest.approx(found.terms.at(x), rel=1e-11)


def test_the_envelope_misses_nothing_between_distant_steps():
    assert [piece[2:5] for piece in sweeps.lower_envelope("backward", 1e-9, 1e9)] == ENVELOPES["backward"][0]


def test_a_border_at_the_end_is_no_piece():
    assert [piece[2:5] for piece in sweeps.lower_envelope("forward", 1.0, 1.2)] == [(2, 0, 2)]
    assert [piece[2:5] for piece in sweeps.lower_envelope("gradient", 0.9, 1.0)] == [(7, 0, 2)]


def test_a_very_large_memory_needs_digits_too():
    assert sweeps.min_cost("backward", 1e-7).cost == pytest.approx(14e-14, rel=1e-11)


@pytest.mark.parametrize(("pass_", "x"), SEQUENCES)
def test_the_sweeps_can_be_read(pass_, x):
    assert [str(sweep) for sweep in sweeps.min_cost(pass_, x).sweeps] == SEQUENCES[pass_, x]


def test_a_result_prints_its_words_and_its_sweeps():
    first = "  Q resident; K streamed; S written"
    then = "  in two slices; O resident; V streamed; S read; O done"
    assert str(sweeps.min_cost("forward", 1.6)) == f"6.84 N²\n{first}\n{then}"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: sweeps.min_cost("sideways", 1.0),
            "pass_ must be one of forward, backward, given, gradient, tied, got 'sideways'",
        ),
        (lambda: sweeps.min_cost("forward", 0.0), "x must be a number above 0, got 0.0"),
        (lambda: sweeps.min_cost("forward", float("nan")), "x must be a number above 0, got nan"),
        (
            lambda: sweeps.lower_envelope("forward", 2.0, 1.0),
            "low must be below high, got low = 2.0 and high = 1.0",
        ),
        (lambda: sweeps.lower_envelope("forward", -1.0, 1.0), "low must be a number above 0, got -1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()


def test_it_steps_aside_while_a_check_runs():
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        sweeps.min_cost("forward", 1.0)
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        sweeps.lower_envelope("forward", 0.5, 2.0)


# ------------------------------------------------------------------ the rule, again and by other means


def all_moves(task):
    """Return every sweep from every reachable state."""
    start = sweeps.StoredMatrices(task.given, frozenset())
    found, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        for sweep, after in sweeps.transitions(task, state):
            yield state, sweep, after
            if after not in found:
                found.add(after)
                waiting.append(after)


def arrays_of(task, sweep):
    """Return the arrays needed for the outputs and matrices of a sweep, derived from the formulas."""
    makers = {made.matrix: {made.row, made.column} for made in task.products if not made.output}

    def behind(matrix):
        if matrix in sweep.read:
            return set()
        if matrix == "dS":
            return set().union(*(behind(factor) for factor in task.factors))
        return makers[matrix]

    used = [step for step in task.products if step.output in sweep.done and step.output]
    needed = set().union(*(behind(matrix) for matrix in sweep.written))
    return needed.union(*({step.row, step.column} | behind(step.matrix) for step in used))


@pytest.mark.parametrize("pass_", ENVELOPES)
def test_every_sweep_has_the_arrays_it_needs_each_on_its_side(pass_):
    task = sweeps.TASKS[pass_]
    for state, sweep, after in all_moves(task):
        here = {*sweep.stay, *sweep.passing}
        assert here >= arrays_of(task, sweep), sweep
        assert set(sweep.read) <= state.stored and set(sweep.written) == after.stored - state.stored
        assert set(sweep.done) == after.done - state.done
        if sweep.stay:
            sides = (ROWS, COLUMNS) if sweep.stay[0] in ROWS else (COLUMNS, ROWS)
            assert sides[0].issuperset(sweep.stay) and sides[1].issuperset(sweep.passing), sweep
        if pass_ == "gradient" and "dO" in here:
            assert "O" in state.done  # dO = O - E is there once O is


@pytest.mark.parametrize("pass_", ENVELOPES)
def test_every_sweep_costs_what_stays_times_what_passes(pass_):
    for _, sweep, _ in all_moves(sweeps.TASKS[pass_]):
        if not sweep.cut:
            t = sum(1 + (name in sweep.done) for name in sweep.passing)
            matrices = len(sweep.read) + len(sweep.written)
            assert sweep.terms == (len(sweep.stay) * t, 0, matrices)


@pytest.mark.parametrize("x", [0.5, 1.5, 2.0, 3.0])
def test_cutting_a_single_product_costs_what_its_tiles_cost(x):
    """With a x b tiles: N²/ab tiles to compute a matrix, Nd/ab to use one; a + b words per step, √M = 1."""
    found = {str(sweep): sweep for _, sweep, _ in all_moves(sweeps.TASKS["forward"])}
    make = found["in tiles; Q, K streamed; S written"]
    assert make.terms.at(x) == pytest.approx(x * (1 + 1) + 1)
    two = found["in two slices; O resident; V streamed; S read; O done"]
    assert two.terms.at(x) == pytest.approx(
        x * (2 / x + x / 2)
    )  # 2/x rows of x/2 words: a column of S, a row of V
    tiles = found["in tiles; O resident; V streamed; S read; O done"]
    assert tiles.terms.at(x) == pytest.approx(x * (1 + 1))
    assert (make.holds, two.holds, tiles.holds) == ((0, inf), (0, 2), (2, inf))


@pytest.mark.parametrize("pass_", ["forward", "tied", "given"])
@pytest.mark.parametrize("x", [0.3, 0.9, 1.1, 1.7, 2.5])
def test_no_sequence_of_three_sweeps_is_cheaper(pass_, x):
    """Enumerates all sequences without Dijkstra; in "given" the cheapest has up to four sweeps."""
    task = sweeps.TASKS[pass_]
    costs_ = {sweeps.StoredMatrices(task.given, frozenset()): 0.0}
    least = inf
    for _ in range(3):
        following = {}
        for state, words in costs_.items():
            for sweep, after in sweeps.transitions(task, state):
                if sweep.holds[0] <= x <= sweep.holds[1]:
                    following[after] = min(following.get(after, inf), words + sweep.terms.at(x))
        costs_ = following
        least = min([least, *(words for state, words in costs_.items() if state.done == task.outputs)])
    found = sweeps.min_cost(pass_, x)
    assert found.cost <= least + 1e-9
    if len(found.sweeps) <= 3:
        assert found.cost == pytest.approx(least)


# ------------------------------------------------------------------ the rule against closed forms

N, D = 2**24, 1024  # closed forms alone: what is of lower order is below 1 per cent

LEADING = {
    "flash_optimal": (4, (4, 0, 0)),  # M in units of d², and the terms
    "flash1": (4, (6, 0, 0)),
    "fused_backward": (4, (16, 0, 0)),
    "split_backward": (4, (14, 0, 0)),
    "gradient": (4, (10, 0, 0)),
    "gradient_dp_materialised": (1.2, (7, 0, 2)),
    "small_cache": (0.113, (0, 4, 1)),  # √M just above d/3: three slices
    "small_cache_backward": (0.113, (0, 10, 3)),
    "gradient_small_cache": (0.113, (0, 8, 3)),
}
# The schedule of each piece of an envelope.
NAMED = {
    "forward": {
        (4, 0, 0): "flash_optimal",
        (2, 0, 2): "scores_stored",
        (1.5, 0, 3): "scores_stored_tiled",
        (0, 4, 1): "small_cache",
    },
    "backward": {
        (14, 0, 0): "split_backward",
        (9, 0, 2): "score_gradients_stored",
        (5, 0, 5): "weights_stored",
        (4, 0, 7): "weights_stored",
        (0, 10, 3): "small_cache_backward",
    },
    "given": {
        (14, 0, 0): "split_backward",
        (4, 0, 4): "weights_precomputed",
        (3, 0, 6): "weights_precomputed",
        (0, 8, 2): "small_cache_precomputed",
    },
    "gradient": {
        (10, 0, 0): "gradient",
        (7, 0, 2): "gradient_dp_materialised",
        (4, 0, 5): "gradient_scores_materialised",
        (3, 0, 7): "gradient_scores_materialised",
        (0, 8, 3): "gradient_small_cache",
    },
}


@pytest.mark.parametrize("name", LEADING)
def test_the_rule_gives_the_leading_terms_of_closed_forms(name):
    squares, terms = LEADING[name]
    M = int(squares * D * D)
    leading = sweeps.Terms(*terms).at(D / sqrt(M))
    assert schedules.get(name).count(N, D, M).total / N**2 == pytest.approx(leading, rel=0.01)


def test_two_orders_that_are_not_the_best_are_among_the_sweeps():
    offered = {str(sweep): sweep.terms for _, sweep, _ in all_moves(sweeps.TASKS["forward"])}
    assert offered["K, V resident; Q, O streamed; O done"] == (6, 0, 0)  # flash1
    offered = {str(sweep): sweep.terms for _, sweep, _ in all_moves(sweeps.TASKS["backward"])}
    assert offered["K, V, dK, dV resident; Q, dO, dQ streamed; dQ, dK, dV done"] == (
        16,
        0,
        0,
    )  # fused_backward


# ------------------------------------------------------------------ best against the search


def least_of(found, n, d, M):
    """Return the words of the cheapest of these schedules that fits."""
    return min(one.cost(n, d, **one.tiles(n, d, M)).total for one in found if one.smallest_M(n, d) <= M)


def best_words(pass_, n, d, M):
    """Return the words of the best schedule of a streamed; for "given", also of schedules with P as an input.

    Excludes `gradient_reassociated`, which multiplies in another order than sweeps do and is cheaper than
    them from M = 13d² on.
    """
    if pass_ == "given":
        return least_of(schedules.of_pass("backward"), n, d, M)
    if pass_ == "gradient":
        return least_of([s for s in schedules.of_pass(pass_) if s.name != "gradient_reassociated"], n, d, M)
    return schedules.best(pass_, n, d, M).cost.total


def memories(d, steps):
    """Strategy: M from d²/4 to 64d² words."""
    return [int(d * d / 4 * 256 ** (step / steps)) for step in range(steps + 1)]


@pytest.mark.parametrize("pass_", NAMED)
def test_best_has_the_leading_cost_of_the_cheapest_sweeps(pass_):
    for M in memories(D, 48):
        ratio = best_words(pass_, N, D, M) / N**2 / sweeps.min_cost(pass_, D / sqrt(M)).cost
        assert 1 < ratio < 1.007, M


@pytest.mark.parametrize("pass_", NAMED)
@pytest.mark.parametrize("d", [64, 128, 256])
def test_best_is_the_schedules_of_the_envelope(pass_, d):
    """Never worse, and within 1 % of their cost if M is at most an eighth of an array."""
    named = [schedules.get(name) for name in dict.fromkeys(NAMED[pass_].values())]
    for n, M in product((2048, 4096, 8192, 16384, 32768, 65536), memories(d, 16)):
        best, theirs = best_words(pass_, n, d, M), least_of(named, n, d, M)
        assert best <= theirs, (n, M)
        if n * d >= 8 * M:
            assert theirs <= 1.01 * best, (n, M)


def test_each_piece_has_a_schedule():
    for pass_, names in NAMED.items():
        assert [tuple(piece[2:5]) for piece in sweeps.lower_envelope(pass_, LOW, HIGH)] == list(names)


# ------------------------------------------------------------------ a wider kind of sweep
# Sweeps of a wider kind change nothing: arrays of the staying side that come again with every tile.
#
# Some arrays of a block of rows stay, r of them. Others come slice by slice for each tile of b columns, `a`
# of # them (a sum counts twice). Where a product takes slices, a tile of scores must stay too, `held` of them
# at # once. So a row takes r·d + held·b words, and the sweep costs t·(r + held·b/d)·x² + a·d/b, which the
# best b # makes t·r·x² + 2·√(a·t·held)·x. With one product and r = 0 these are the tiles of `sweeps`.
#
# An independent search, written from the formulas. It counts slices that two products need only once, though
# they would often have to be streamed twice. Its costs are low estimates, and still none is cheaper.
MAKES = {"P": ("Q", "K"), "dP": ("dO", "V")}
SUMS = {"O": ("P", "O", "V"), "dQ": ("dS", "dQ", "K"), "dK": ("dS", "Q", "dK"), "dV": ("P", "dO", "dV")}
PASSES = {
    "forward": ({"O"}, set(), {"P"}),
    "backward": ({"dQ", "dK", "dV"}, set(), {"P", "dP", "dS"}),
    "given": ({"dQ", "dK", "dV"}, {"P"}, {"P", "dP", "dS"}),
    "gradient": ({"O", "dQ"}, set(), {"P", "dP", "dS"}),
}


def subsets(items):
    return [set(some) for n in range(len(items) + 1) for some in combinations(sorted(items), n)]


def held(made, done, again):
    """Return the matrices with a resident tile: those that slices compute or use; dS replaces dP."""
    sliced = {matrix for matrix in made & {*MAKES} if again.intersection(MAKES[matrix])}
    sliced |= {SUMS[out][0].replace("dS", "dP") for out in done if again.intersection(SUMS[out][1:])}
    return max(1, len(sliced))


def cost(made, read, written, done, x):
    """Return the least cost over both sides, slices of the width for sums, and sets of reloaded arrays."""
    used = [MAKES[matrix] for matrix in made & {*MAKES}] + [SUMS[out][1:] for out in done]
    rows, columns = ({pair[side] for pair in used} for side in (0, 1))
    moved, least = len(read) + len(written), inf
    for stay, passing in ((rows, columns), (columns, rows)):
        t = len(passing) + len(passing & done)
        if not made & {*MAKES}:
            slices = (len(stay) * t * x * x / k + k * len(read) + len(written) for k in range(1, 20))
            least = min(least, *slices)
        for again in subsets(stay):
            a = len(again) + len(again & done)
            whole = (len(stay) - len(again)) * t * x * x
            least = min(least, whole + 2 * sqrt(a * t * held(made, done, again)) * x + moved)
    return least


def steps(pass_, stored, done):
    """Yield the possible next steps: products computed, matrices read and written, outputs completed."""
    wanted, _, matrices = PASSES[pass_]
    for read, new in product(subsets(stored), subsets(wanted - done)):
        for made in subsets(matrices - read):
            at_hand = read | made
            if "dS" in made and not at_hand >= {"P", "dP"}:
                continue
            if pass_ == "gradient" and "dP" in made and "O" not in done:
                continue
            if any(SUMS[out][0] not in at_hand for out in new):
                continue
            for written in subsets(made - stored):
                if written or new:
                    yield made, read, written, new


def least(pass_, x):
    """Return the least words in units of N²: states in order of their contents, each with its least cost."""
    wanted, given, matrices = PASSES[pass_]
    words = {(frozenset(given), frozenset()): 0.0}
    for stored, done in sorted(product(subsets(matrices), subsets(wanted)), key=lambda s: sum(map(len, s))):
        here = words.get((frozenset(stored), frozenset(done)), inf)
        if here < inf:
            for made, read, written, new in steps(pass_, stored, done):
                after = frozenset(stored | written), frozenset(done | new)
                words[after] = min(words.get(after, inf), here + cost(made, read, written, new, x))
    return min(found for (_, done), found in words.items() if done == wanted)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("x", [0.2, 0.5, 0.63, 0.75, 0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 3.0, 6.0])
def test_arrays_that_come_again_with_every_tile_never_pay(pass_, x):
    assert least(pass_, x) == pytest.approx(sweeps.min_cost(pass_, x).cost, rel=1e-9)


def test_it_finds_what_the_wider_rule_offers():
    """Fused small tiles, 2√6·x: Q and a sum for O are reloaded with every tile, K and V are streamed."""
    assert cost({"P"}, set(), set(), {"O"}, 9.0) == pytest.approx(2 * sqrt(6) * 9)
    assert cost({"P"}, set(), {"P"}, set(), 9.0) == pytest.approx(2 * 9 + 1)
