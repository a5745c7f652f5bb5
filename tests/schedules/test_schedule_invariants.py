"""Invariants of all schedules: the traffic equals the closed form, and the values equal exact attention.

The tests run over the registry, so they also cover schedules that are added later.
"""

import math
import random

import numpy as np
import pytest
from long_runs import many

from iocourse import costs, exact, masks
from iocourse.machine import FastMemoryFull, run
from iocourse.monomials import rank_of
from iocourse.schedules import REGISTRY, matmul, matmul_tiles, saved_for_backward

SHAPES = many(100, 1000)  # on the dry machine, for each schedule
SHAPES_WITH_VALUES = many(25, 200)
MEMORIES = many(60, 300)
MASKED = 12  # the largest N of a masked run

every_schedule = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))


def upto(rng, extent):
    """Return an int from 1 to `extent`; both ends are more frequent than the others."""
    more = 1 + extent // 4
    return min(max(rng.randint(1 - more, extent + more), 1), extent)


def some_mask(rng, N):
    """Return a random mask for N positions of any kind, including empty rows."""
    kind = rng.choice(["causal", "window", "tiles", "tiles", "causal tiles"])
    if kind == "causal":
        return masks.Causal(N)
    if kind == "window":
        return masks.Window(N, upto(rng, N + 2) - 1)
    Br, Bc = (max(-(-N // 6), upto(rng, N + 2)) for _ in range(2))  # at most 6 x 6 tiles
    chances = np.random.default_rng(rng.randint(0, 10**6))
    tiles = chances.random((-(-N // Br), -(-N // Bc))) < rng.choice([0.2, 0.5, 0.9])
    return masks.BlockMask(N, tiles, Br, Bc, causal=kind == "causal tiles", allow_empty=True)


def problem(rng, schedule, N, d):
    """Return random (settings that define the problem, their mask) for these N and d.

    Degrees are even, so that no row sum is near 0, and ranks small enough to run.
    """
    if "g" in schedule.needs:
        return {"g": rng.choice([2, 4] if d <= 4 else [2])}, None
    if "w" in schedule.needs:
        w = upto(rng, N + 2) - 1
        return {"w": w}, masks.Window(N, w)
    mask = some_mask(rng, N)
    return {"mask": mask}, mask


def sizes(rng, schedule, N, d):
    """(N, d, settings, mask) with ragged edges, tiles larger than N, N = 1 and d = 1 among them.

    Every block of a masked run is visited, dry or not, so N stays small there.
    """
    masked = bool(schedule.needs) or ("mask" in schedule.options and rng.random() < 0.5)
    n = upto(rng, min(N, MASKED) if masked and "g" not in schedule.needs else N)
    h = upto(rng, d)
    settings = {name: upto(rng, n + 5) for name in schedule.tile_names}
    if "lse" in schedule.options and rng.random() < 0.5:
        settings["lse"] = True
    told, mask = problem(rng, schedule, n, h) if masked else ({}, None)
    return n, h, settings | told, mask


def fewer_tiles(d, settings):
    """The settings with at most 10 tiles of features: those of rank 10 still come one by one. Every row
    passes each of them; the dry law, which counts equal ones at once, has as many as there are.
    """
    if "g" not in settings:
        return settings
    return settings | {"rc": max(settings["rc"], -(-rank_of(d, settings["g"]) // 10))}


def hold(law, draw, examples):
    """Check `law` on `examples` different draws of `draw(rng)`, the smallest first, and report a failing one.

    Does not use Hypothesis, which needs as much time for an example as its dry run.
    """
    rng, found = random.Random(0), {}
    while len(found) < examples:
        example = draw(rng)
        found[repr(example)] = example
    for example in sorted(found.values(), key=weight):
        try:
            law(*example)
        except BaseException:
            print(f"the smallest of {examples} that fails: {example}")
            raise


def weight(example):
    """Return the size of an example: the product of its sizes."""
    return math.prod(size for size in example if isinstance(size, int) and size > 0)


def inputs(schedule, N, d, mask, seed=0, factor=1.0, settings=None):
    """Return random inputs and the expected outputs; `factor` makes queries large or small."""
    drawn = schedule.drawn(np.random.default_rng(seed), N, d, mask, settings or {})
    drawn = drawn if factor == 1.0 else scaled(schedule, drawn, mask, factor)
    return {name: drawn[name] for name in schedule.operands}, schedule.expected(drawn, mask, settings)


def scaled(schedule, drawn, mask, factor):
    first = "A1" if "A1" in drawn else "Q"
    drawn = drawn | {first: factor * drawn[first]}
    if schedule.pass_ == "backward":
        drawn |= saved_for_backward(drawn["Q"], drawn["K"], drawn["V"], mask)
    return drawn


def dry_law(schedule):
    """A dry run moves the words of the closed form, and fits in its footprint exactly."""

    def law(N, d, settings, mask):
        form = schedule.cost(N, d, **settings)
        counts = (*form.reads.values(), *form.writes.values(), *form.sizes.values(), form.peak, form.total)
        assert {type(words) for words in counts} == {int}
        ledger = run(schedule, M=form.peak, dry=True, **schedule.shapes(N, d, **settings), **settings).ledger
        assert ledger == form, ledger - form
        if (N + d) % 3 == 0:  # the next law tries it too
            with pytest.raises(FastMemoryFull):
                run(schedule, M=form.peak - 1, dry=True, **schedule.shapes(N, d, **settings), **settings)

    return law


@every_schedule
def test_a_dry_run_moves_what_the_closed_form_says_and_fits_its_footprint_exactly(schedule):
    hold(dry_law(schedule), lambda rng: sizes(rng, schedule, 90, 20), SHAPES)


@pytest.mark.quick
@every_schedule
def test_the_dry_law_on_a_few_shapes(schedule):
    hold(dry_law(schedule), lambda rng: sizes(rng, schedule, 30, 12), 25)


@every_schedule
def test_a_run_has_exact_values_and_the_same_ledger_as_every_dry_run(schedule):
    def law(N, d, settings, mask, seed, factor):
        arrays, expected = inputs(schedule, N, d, mask, seed, factor if schedule.safe else 1.0, settings)
        form = schedule.cost(N, d, **settings)
        done = run(schedule, M=form.peak, **arrays, **settings)
        shapes = schedule.shapes(N, d, **settings)
        dry = run(schedule, M=form.peak, dry=True, **shapes, **settings)
        unrolled = run(schedule, M=form.peak, dry=True, unroll=True, **shapes, **settings)
        assert done.ledger == form, done.ledger - form
        assert dry.ledger == done.ledger == unrolled.ledger
        assert unrolled.ledger.moves == done.ledger.moves
        leaves_lse = schedule.approximates is None and "LSE" in schedule.problem.outputs
        unasked = leaves_lse and not settings.get("lse")
        assert len(done.outputs) == len(expected) - unasked  # the row statistics
        assert_values(schedule, done, arrays, expected)
        with pytest.raises(FastMemoryFull):
            run(schedule, M=form.peak - 1, trace=False, **arrays, **settings)

    def draw(rng):
        N, d, settings, mask = sizes(rng, schedule, 9, 4)
        return N, d, fewer_tiles(d, settings), mask, rng.randint(0, 10**6), rng.choice([1.0, 1.0, 1e-3, 30.0])

    hold(law, draw, SHAPES_WITH_VALUES)


TAKE_MASKS = [s for s in REGISTRY.values() if "mask" in (*s.needs, *s.options)]


@pytest.mark.parametrize("schedule", TAKE_MASKS, ids=lambda s: s.name)
def test_a_short_block_is_at_the_end_where_it_costs_less(schedule, monkeypatch):
    """Under masks whose rows grow or shrink: exact values, and no fewer words with all at one end."""
    for N, b in ((7, 6), (11, 4), (12, 5)):
        tiles = dict.fromkeys(schedule.tile_names, b)
        rows = np.triu(np.ones((N, N), dtype=bool))
        for mask in (masks.Causal(N), masks.causal(N, 2), masks.BlockMask(N, rows, 1)):
            settings = {**tiles, "mask": mask}
            arrays, expected = inputs(schedule, N, 3, mask)
            form = schedule.cost(N, 3, **settings)
            for dry in (False, True):
                given = schedule.shapes(N, 3, **settings) if dry else arrays
                done = run(schedule, M=form.peak, dry=dry, **given, **settings)
                assert done.ledger == form, done.ledger - form
                if not dry:
                    assert_values(schedule, done, arrays, expected)
            with monkeypatch.context() as forced:
                for end in (False, True):
                    forced.setattr(type(mask), "short_first", lambda *_, columns=False, end=end: end)
                    assert form.total <= schedule.cost(N, 3, **settings).total


def assert_values(schedule, done, arrays, expected):
    """Each output within rounding of what is exact: relative to the scores, the values and the result."""
    size = max(np.abs(a[np.isfinite(a)]).max(initial=0) for a in arrays.values())
    for got, want in zip(done.outputs, expected, strict=False):
        hidden = np.isneginf(want)
        assert (np.isneginf(got) == hidden).all()
        scale = (1 + size) ** 2 * (1 + np.abs(want[~hidden]).max(initial=0))
        assert np.abs(got[~hidden] - want[~hidden]).max(initial=0) < 1e-13 * scale


@every_schedule
def test_the_chosen_tiles_fit_and_one_word_below_the_smallest_M_none_does(schedule):
    def law(N, d, spare, problem):
        least = schedule.smallest_M(N, d, **problem)
        M = least + spare
        tiles = schedule.tiles(N, d, M, **problem)
        form = schedule.cost(N, d, **tiles, **problem)
        assert form.peak <= M and min(tiles.values(), default=1) >= 1
        assert isinstance(schedule.note(N, d, M, **schedule.needed(problem)), str)
        with pytest.raises(ValueError, match=rf"M = {least - 1:,} .* It needs at least M = {least:,}$"):
            schedule.tiles(N, d, least - 1, **problem)

    hold(law, lambda rng: memories(rng, schedule), MEMORIES)


def memories(rng, schedule):
    """Return random (N, d, words above the smallest M, settings with the mask)."""
    spare = rng.randint(0, rng.choice([0, 50, 10**5]))
    masked = bool(schedule.needs) or ("mask" in schedule.options and rng.random() < 0.5)
    N, d = upto(rng, 40 if masked else 5000), upto(rng, 256)
    return N, d, spare, problem(rng, schedule, N, d)[0] if masked else {}


@pytest.mark.parametrize("schedule", [s for s in REGISTRY.values() if s.safe], ids=lambda s: s.name)
def test_hostile_logits_stay_finite(schedule):
    N, d, M = 13, 4, 200
    problem = {"mask": {"mask": masks.Causal(N)}, "w": {"w": 3}, "g": {"g": 2}}.get(
        "".join(schedule.needs), {}
    )
    mask = masks.Window(N, 3) if "w" in problem else problem.get("mask")
    arrays, expected = inputs(schedule, N, d, mask, seed=1, factor=1e4, settings=problem)
    tiles = schedule.tiles(N, d, M, **problem)
    assert_values(schedule, run(schedule, M=M, **arrays, **tiles, **problem), arrays, expected)


COUNTED = [
    pytest.param(schedule, problem, id=f"{schedule.name}{problem or ''}")
    for schedule in REGISTRY.values()
    for problem in ({}, {"g": 2}, {"w": 0}, {"w": 1}, {"w": 20})
    if schedule.needs == tuple(problem)
]


@pytest.mark.parametrize(("schedule", "problem"), COUNTED)
def test_counting_does_not_get_slower_with_N(schedule, problem):
    """A dry run makes as many moves for a million queries as for a thousand, and counts them all."""
    tiles, moves = dict.fromkeys(schedule.tile_names, 3), []
    for N in (1000, 10**6):
        pieces, form = [], schedule.cost(N, 4, **tiles, **problem)
        shapes = schedule.shapes(N, 4, **problem)
        done = run(schedule, M=form.peak, dry=True, watch=pieces.append, **shapes, **tiles, **problem)
        assert done.ledger == form and sum(pieces) == form.total
        moves.append(len(pieces))
    assert moves[0] == moves[1] < 2000


# ---- the matrix product ----------------------------------------------------------------------------------


def product_sizes(rng, extent, tile):
    """(m, n, k, bm, bn): sides up to `extent`, sides of tiles up to `tile`."""
    return tuple(upto(rng, most) for most in (extent, extent, extent, tile, tile))


def test_matmul_moves_what_its_closed_form_says():
    def law(m, n, k, bm, bn):
        form = costs.matmul(m, n, k, bm=bm, bn=bn)
        given = {"dry": True, "A": (m, k), "B": (k, n), "bm": bm, "bn": bn}
        ledger = run(matmul, M=form.peak, **given).ledger
        assert ledger == form, ledger - form
        with pytest.raises(FastMemoryFull):
            run(matmul, M=form.peak - 1, **given)

    hold(law, lambda rng: product_sizes(rng, 90, 95), SHAPES)


def test_matmul_has_exact_values_and_the_same_ledger_as_every_dry_run():
    def law(m, n, k, bm, bn, seed):
        rng = np.random.default_rng(seed)
        A, B = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        form = costs.matmul(m, n, k, bm=bm, bn=bn)
        done = run(matmul, M=form.peak, A=A, B=B, bm=bm, bn=bn)
        unrolled = run(matmul, M=form.peak, dry=True, unroll=True, A=A.shape, B=B.shape, bm=bm, bn=bn)
        assert done.ledger == form == unrolled.ledger
        assert unrolled.ledger.moves == done.ledger.moves
        assert exact.max_abs_error(done.O, A @ B) < 1e-12
        with pytest.raises(FastMemoryFull):
            run(matmul, M=form.peak - 1, A=A, B=B, bm=bm, bn=bn)

    hold(law, lambda rng: (*product_sizes(rng, 12, 14), rng.randint(0, 10**6)), SHAPES_WITH_VALUES)


def test_the_chosen_product_tiles_fit_and_no_other_pair_of_sides_is_cheaper():
    def law(m, n, k, M):
        tiles = matmul_tiles(m, n, k, M)
        assert costs.matmul(m, n, k, **tiles).peak <= M
        best = min(
            costs.matmul(m, n, k, bm=bm, bn=bn).total
            for bn in range(1, n + 1)
            if (bm := min(m, (M - bn) // (bn + 1))) >= 1
        )
        assert costs.matmul(m, n, k, **tiles).total == best

    hold(law, lambda rng: (*[upto(rng, 40) for _ in range(3)], rng.randint(3, 2000)), SHAPES_WITH_VALUES)


def test_matmul_names_the_smallest_M():
    assert matmul_tiles(9, 9, 9, 3) == {"bm": 1, "bn": 1}
    with pytest.raises(ValueError, match=r"M = 2 .* It needs at least M = 3"):
        matmul_tiles(9, 9, 9, 2)
