"""Sweeps of a wider kind change nothing: arrays of the staying side that come again with every tile.

Some arrays of a block of rows stay, r of them. Others come slice by slice for each tile of b columns, `a` of
them (a sum counts twice). Where a product takes slices, a tile of scores must stay too, `held` of them at
once. So a row takes r·d + held·b words, and the sweep costs t·(r + held·b/d)·x² + a·d/b, which the best b
makes t·r·x² + 2·√(a·t·held)·x. With one product and r = 0 these are the tiles of `sweeps`.

The search is written here once more, from the formulas. Slices that two products need pass only once, though
they would often have to pass twice, so its costs are rather too low; and still it finds nothing cheaper.
"""

from itertools import combinations, product
from math import inf, sqrt

import pytest

from iocourse import sweeps

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
    """Matrices of which a tile stays: those that slices make or use; dS takes the place of dP."""
    sliced = {matrix for matrix in made & {*MAKES} if again.intersection(MAKES[matrix])}
    sliced |= {SUMS[out][0].replace("dS", "dP") for out in done if again.intersection(SUMS[out][1:])}
    return max(1, len(sliced))


def cost(made, read, written, done, x):
    """The least over both sides, slices of the width for sums alone, and which arrays come again."""
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
    """What may be made, read, written and done next."""
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
    """Words in units of N²: states in the order of what they hold, each with its cheapest way."""
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
    """Fused small tiles, 2√6·x: Q and a sum for O come again with every tile, K and V pass."""
    assert cost({"P"}, set(), set(), {"O"}, 9.0) == pytest.approx(2 * sqrt(6) * 9)
    assert cost({"P"}, set(), {"P"}, set(), 9.0) == pytest.approx(2 * 9 + 1)
