"""Lower bounds across ranks: equal to their formulas, below exhaustive search; the largest is chosen."""

from itertools import product
from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import bounds as two_memories
from iocourse.bounds import STATUSES, OutsideRegime
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.distributed.bounds import BOUNDS, lower_bound
from iocourse.distributed.time_model import COMPARED, claimed_words, cluster, compare_schedules, least_words

sizes = st.integers(1, 2**20)
ranks = st.integers(1, 300)


# ---------------------------------------------------------------------- every formula, by its id
def at_first(N, d, P):
    return (4 * N * d / P + d * d) ** 2 / (16 * d)


def heads(N, d, P, H):
    f = at_first(N, d, P)
    return H * (N * N * d / P - f) * (4 * N * d - d * d - 4 * N * d / P) / (N * N * d - f)


def few_heads(N, d, P, H):
    needed = H * N * N * d / P - (H - 1) * at_first(N, d, P)
    return 4 * sqrt(d * max(0, needed)) - 4 * N * d / P - d * d


FORMULAS = {
    "network": lambda N, d, P: 4 * N * d / sqrt(P) - 4 * N * d / P - d * d,
    "network_heads": heads,
    "network_few_heads": few_heads,
    "network_memory": lambda N, d, P, M: 4 * (N * d) ** 2 / (P * (M + d * d)) - (M + d * d) - N * d / P,
    "network_sharp": lambda N, d, P: min(4 * N * d / sqrt(P), 3 * (N * N * d / P) ** (2 / 3)) - 4 * N * d / P,
    "network_backward": lambda N, d, P: 4 * sqrt(3 / P) * N * d - 7 * N * d / P - 4 * d * d,
    "network_memory_backward": lambda N, d, P, M: (
        12 * (N * d) ** 2 / (P * (M + 4 * d * d)) - (M + 4 * d * d) - 3 * N * d / P
    ),
}
SIZES = [
    dict(N=4096, d=64, P=16, H=16, M=2**18),
    dict(N=131072, d=128, P=64, H=8, M=2**22),
    dict(N=1024, d=128, P=8, H=40, M=2**19),
    dict(N=64, d=128, P=4, H=3, M=2**15),
    dict(N=16, d=1, P=16, H=2, M=7),
    dict(N=2**20, d=64, P=64, H=2, M=2**22),
]


@pytest.mark.parametrize("id", BOUNDS)
def test_every_bound_is_its_formula(id):
    formula, said = FORMULAS[id], 0
    for known in SIZES:
        asked = {name: known[name] for name in formula.__code__.co_varnames[: formula.__code__.co_argcount]}
        try:
            words = BOUNDS[id](**asked)
        except OutsideRegime:
            continue
        value = max(0, formula(**asked))
        assert isinstance(words, int) and value - 2 <= words <= value * (1 + 1e-12)
        said += words > 0
    assert said


def test_every_bound_says_what_it_is():
    assert set(FORMULAS) == set(BOUNDS) and not set(BOUNDS) & set(two_memories.BOUNDS)
    for id, bound in BOUNDS.items():
        assert bound.id == id and bound.status in STATUSES and bound.in_words
        assert bound.title and bound.source and bound.regime and bound.formula.startswith("W ")
        assert "distinct arrays" in bound.holds_for and "no copy" in bound.holds_for
        assert "for some rank" in bound.not_about and "across ranks" in bound.passes[0]
        claimed = "checked by a second reader" in bound.source
        assert claimed == (bound.status == "claimed") == (bound.schedules == "")  # no table relies on it


@pytest.mark.parametrize("id", BOUNDS)
def test_a_check_does_not_get_its_bound_from_here(id):
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        BOUNDS[id](1, 1, 1)


# ---------------------------------------------------------------------- exhaustive search
def subsets(own, N, d):
    """Return all choices of words of one array, Boolean (choices, N, d): the rank's rows plus any others."""
    free = [(i, c) for i in range(N) if i not in own for c in range(d)]
    chosen = np.zeros((2 ** len(free), N, d), bool)
    chosen[:, sorted(own)] = True
    for bit, (i, c) in enumerate(free):
        chosen[:, i, c] = np.arange(2 ** len(free)) >> bit & 1
    return chosen


def fewest_words(N, d, own, arrays, each, needed):
    """Return the fewest words, beyond the rows it owns, with which a rank can form `needed` products.

    `each(words)` returns, for the words of `arrays`, the products of each pair without and with a word of the
    pair present: two arrays (N, N). The pairs that gain most from such a word get one, for one word each.
    """
    choices, fewest = subsets(own, N, d), N * N * d * 9
    for words in product(choices, repeat=len(arrays)):
        there = dict(zip(arrays, words, strict=True))
        moved = sum(int(one.sum()) for one in words) - len(arrays) * len(own) * d
        if moved >= fewest:
            continue
        made, at_hand = each(there)
        gains = sorted((at_hand - made).ravel().tolist(), reverse=True)
        missing = needed - int(made.sum())
        while missing > 0 and gains and gains[0] > 0:
            missing, moved = missing - gains.pop(0), moved + 1
        fewest = min(fewest, moved) if missing <= 0 else fewest
    return fewest


def forward_products(there):
    """Return the products p·v of each pair, from complete rows of Q and K, and with its score present."""
    met = there["O"].astype(int) @ there["V"].T.astype(int)
    return met * whole(there, "Q", "K"), met


def backward_products(there):
    """Return the products for dV, dQ and dK of each pair, from complete rows, and with its weight present."""
    met = {
        a + b: there[a].astype(int) @ there[b].T.astype(int)
        for a, b in (("dO", "dV"), ("dQ", "K"), ("Q", "dK"))
    }
    p = whole(there, "Q", "K")
    g = p * whole(there, "dO", "V")
    return met["dOdV"] * p + (met["dQK"] + met["QdK"]) * g, sum(met.values())


def whole(there, rows, columns):
    """Return (N, N), 1 where both rows of a pair (from `rows` and `columns`) are complete, otherwise 0."""
    return (there[rows].all(1)[:, None] & there[columns].all(1)[None]).astype(int)


@pytest.mark.parametrize(("N", "d", "P"), [(2, 1, 2), (3, 1, 3), (4, 1, 4), (4, 1, 2), (2, 2, 2), (4, 1, 3)])
def test_no_choice_of_words_forms_a_share_of_the_products_with_fewer(N, d, P):
    own, needed = set(range(ceil(N / P))), ceil(N * N * d / P)
    fewest = fewest_words(N, d, own, "QKVO", forward_products, needed)
    assert BOUNDS["network"](N, d, P) <= BOUNDS["network_sharp"](N, d, P) <= fewest


def test_what_trying_everything_finds_is_near_the_bound():
    found = [
        (fewest_words(N, 1, {0}, "QKVO", forward_products, N), BOUNDS["network_sharp"](N, 1, N))
        for N in (2, 3, 4)
    ]
    assert found == [(2, 0), (4, 2), (4, 3)]


@pytest.mark.parametrize(("N", "d", "P"), [(2, 1, 2), (3, 1, 3)])
def test_nor_in_the_backward_pass(N, d, P):
    own, needed = set(range(ceil(N / P))), ceil(3 * N * N * d / P)
    arrays = ("Q", "dO", "K", "V", "dQ", "dK", "dV")
    assert BOUNDS["network_backward"](N, d, P) <= fewest_words(N, d, own, arrays, backward_products, needed)


def test_heads_are_brought_whole_or_left():
    """Compare with the fewest words over all distributions over H heads, from the table of one head."""
    N, d, P = 3, 1, 3
    table = [
        fewest_words(N, d, {0}, "QKVO", forward_products, needed) for needed in range(1, N * N * d + 1)
    ]  # words for 1, 2, … products of one head
    for H in (1, 2, 3, 4, 6):
        fewest = {0: 0}  # products so far → words
        for _ in range(H):
            fewest = cheaper(fewest, [0, *table])
        needed = ceil(H * N * N * d / P)
        least = min(words for products, words in fewest.items() if products >= needed)
        assert BOUNDS["network_heads"](N, d, P, H) <= least
        assert H >= P or BOUNDS["network_few_heads"](N, d, P, H) <= least


def cheaper(fewest, table):
    """Return the fewest words per number of products after one more head."""
    after = {}
    for (so_far, words), (products, more) in product(fewest.items(), enumerate(table)):
        after[so_far + products] = min(after.get(so_far + products, 10**9), words + more)
    return after


# ---------------------------------------------------------------------- relations between the bounds
@given(sizes, st.integers(1, 256), ranks, st.booleans())
def test_the_claimed_one_is_never_below_the_proved_one(N, d, P, causal):
    proved, claimed = (BOUNDS[id](N, d, P, causal=causal) for id in ("network", "network_sharp"))
    assert proved <= claimed + 1


@given(sizes, st.integers(1, 256), ranks, st.integers(1, 64))
def test_a_mask_asks_for_less_and_one_rank_for_nothing(N, d, P, H):
    for id, bound in BOUNDS.items():
        more = {"network_heads": (H,), "network_few_heads": (1,)}.get(id, ())
        if "memory" in id or (id == "network_few_heads" and P == 1):
            continue
        assert bound(N, d, P, *more, causal=True) <= bound(N, d, P, *more)
        assert id == "network_few_heads" or bound(N, d, 1, *more) == 0


@given(sizes, st.integers(1, 256), st.integers(2, 300))
def test_one_head_on_many_ranks_is_the_bound_without_heads(N, d, P):
    assert abs(BOUNDS["network_few_heads"](N, d, P, 1) - BOUNDS["network"](N, d, P)) <= 1


@pytest.mark.parametrize("P", [4, 16, 64])
def test_constants_at_a_long_sequence(P):
    N, d, H = 2**24, 64, 128
    unit = N * d
    assert BOUNDS["network"](N, d, P) / unit == pytest.approx(4 / sqrt(P) - 4 / P, rel=1e-4)
    assert BOUNDS["network_backward"](N, d, P) / unit == pytest.approx(4 * sqrt(3 / P) - 7 / P, rel=1e-4)
    assert BOUNDS["network_heads"](N, d, P, H) / (H * unit) == pytest.approx(
        4 * (P - 1) / (P * (P + 1)), rel=1e-3
    )
    ring = 2 * (P - 1) / P
    assert ring / (BOUNDS["network"](N, d, P) / unit) == pytest.approx((sqrt(P) + 1) / 2, rel=1e-3)


@pytest.mark.parametrize("P", [4, 16, 64])
def test_a_causal_mask_has_half_of_the_pairs(P):
    N, d = 2**24, 64
    for id, products, arrays in (("network", 1, 4), ("network_sharp", 1, 4), ("network_backward", 3, 7)):
        constant = BOUNDS[id](N, d, P, causal=True) / (N * d)
        assert constant == pytest.approx(max(0, 4 * sqrt(products / (2 * P)) - arrays / P), rel=1e-3)


def test_where_a_share_is_as_good_as_a_whole_head_nothing_is_said():
    assert BOUNDS["network_heads"](2, 4, 2, 3) == 0


def test_a_rank_that_forgets_moves_more():
    N, d, P = 2**20, 64, 64
    share = 4 * N * d // P
    free, tight = BOUNDS["network"](N, d, P), BOUNDS["network_memory"](N, d, P, share)
    assert tight > 1.5 * free
    assert lower_bound("forward", N, d, P, M=share) == (tight, "network_memory")
    assert lower_bound("forward", N, d, P, M=N * d * 4) == (free, "network")
    with pytest.raises(OutsideRegime, match="network_memory is stated for M ≥ 4Nd/P"):
        lower_bound("forward", N, d, P, M=share - 1)


# ---------------------------------------------------------------------- the largest proved bound
@given(
    st.sampled_from(["forward", "backward"]),
    sizes,
    st.integers(1, 256),
    ranks,
    st.integers(1, 64),
    st.booleans(),
)
def test_the_best_is_the_largest_of_those_that_are_proved(pass_, N, d, P, H, causal):
    words, id = lower_bound(pass_, N, d, P, H=H, causal=causal)
    assert BOUNDS[id].status == "proved here" and BOUNDS[id].passes == (f"{pass_} across ranks",)
    alone = BOUNDS["network" if pass_ == "forward" else "network_backward"](N, d, P, causal=causal)
    together = BOUNDS["network_heads"](N, d, P, H, causal=causal) if pass_ == "forward" and H > 1 else 0
    assert words == max(alone, together)


@settings(max_examples=200)
@given(
    st.sampled_from(list(COMPARED)),
    st.integers(1, 4000),
    st.integers(1, 64),
    st.integers(1, 24),
    st.integers(1, 24),
)
def test_no_schedule_of_the_library_is_below_what_is_proved_or_claimed(pass_, N, d, P, H):
    least, causal = least_words(pass_, N, d, P, H)[0], pass_ == "causal"
    if pass_ != "backward":
        least = max(least, claimed_words(pass_, N, d, P, H), BOUNDS["network_sharp"](N, d, P, causal=causal))
    for entry in compare_schedules(pass_, N, d, P, cluster(), H=H):
        assert entry.words >= least, entry


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pass_": "sideways"}, "pass_ must be one of forward, backward, got 'sideways'"),
        ({"N": 0}, "N must be at least 1, got 0"),
        ({"d": 0}, "d must be at least 1, got 0"),
        ({"P": 0}, "P must be at least 1, got 0"),
        ({"H": 0}, "H must be at least 1, got 0"),
        ({"M": 0}, "M must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(change, said):
    asked = {"pass_": "forward", "N": 64, "d": 8, "P": 4} | change
    with pytest.raises(ValueError, match=said):
        lower_bound(**asked)


def test_causal_is_true_or_false():
    with pytest.raises(TypeError, match="causal must be True or False, got 'yes'"):
        lower_bound("forward", 64, 8, 4, causal="yes")
