"""No schedule may beat a lower bound of its class: every schedule against every bound of its pass."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import masks
from iocourse.bounds import BOUNDS, OutsideRegime, lower_bound
from iocourse.machine import FREE_REGISTERS
from iocourse.schedules import PASSES, REGISTRY

EXAMPLES = 300
LARGEST_MASKED = 96  # the closed form of a masked schedule visits every block
WITH_WORDS = [bound for bound in BOUNDS.values() if bound.in_words]

every_schedule = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
log_sizes = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 13), st.floats(0, 1))
small_sizes = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 6), st.floats(0, 1))


@st.composite
def some_mask(draw, N):
    """A mask for N positions: causal, a window, or tiles at random, with empty rows and columns."""
    kind = draw(st.sampled_from(["causal", "window", "tiles", "causal tiles"]))
    if kind == "causal":
        return masks.Causal(N)
    if kind == "window":
        return masks.Window(N, draw(st.integers(0, N)))
    side = draw(st.integers(1, N))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    tiles = rng.random((-(-N // side),) * 2) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    return masks.BlockMask(N, tiles, side, causal=kind == "causal tiles", allow_empty=True)


@st.composite
def problems(draw, schedule):
    """(N, d, what the schedule must be told, the mask it means or None)."""
    masked = bool(schedule.needs) or ("mask" in schedule.options and draw(st.booleans()))
    N, d = draw(log_sizes), draw(log_sizes)
    if not masked:
        return N, d, {}, None
    if "g" in schedule.needs:
        return N, d, {"g": draw(st.integers(1, 4))}, None
    if "w" in schedule.needs:
        w = draw(st.integers(0, N))
        return N, d, {"w": w}, masks.Window(N, w)
    N = min(N, LARGEST_MASKED)
    mask = draw(some_mask(N))
    return N, d, {"mask": mask}, mask


def bounds_at(pass_, N, d, M, mask, T):
    """(id, words) of every bound of the pass with a number, with the T it picks and with this one."""
    known = {"N": N, "d": d, "M": M}
    if mask is not None:
        known = {"d": d, "M": M, "nnz": mask.nnz}
        known |= {"rows": mask.nonempty_rows, "columns": mask.nonempty_columns}
    for bound in WITH_WORDS:
        names = set(inspect.signature(bound.evaluate).parameters)
        if pass_ not in bound.passes or not names - {"T"} <= set(known):
            continue
        sizes = {name: known[name] for name in names & set(known)}
        try:
            yield bound.id, bound(**sizes)
            if "T" in names:
                yield bound.id, bound(**sizes, T=T)
        except OutsideRegime:
            continue


def fitting(schedule, N, d, M, problem):
    """The closed form with the tiles the schedule picks for M."""
    return schedule.cost(N, d, **schedule.tiles(N, d, M, **problem), **problem)


@every_schedule
def test_no_schedule_beats_a_bound_of_its_class(schedule):
    tried, closest = 0, {}

    @settings(max_examples=EXAMPLES)
    @given(problems(schedule), st.lists(small_sizes | log_sizes, min_size=9, max_size=9), log_sizes)
    def attack(problem, drawn, T):
        nonlocal tried
        tried += 1
        N, d, told, mask = problem
        tiles = dict(zip(schedule.tile_names, drawn, strict=False))
        form = schedule.cost(N, d, **tiles, **told)
        # Its own footprint is the M at which a schedule looks best.
        for ledger in (form, fitting(schedule, N, d, form.peak, told)):
            M = ledger.peak
            approximate = schedule.stands_for is not None
            for id, words in bounds_at(schedule.pass_, N, d, M + FREE_REGISTERS, mask, T):
                if approximate and id != "compulsory":
                    continue
                assert ledger.total >= words, id
                closest[id] = max(closest.get(id, 0.0), words / max(1, ledger.total))
            for recompute in (True, False):  # none of ours forms a score twice within a forward pass
                best, _ = lower_bound(
                    schedule.pass_, N, d, M, mask=mask, recompute=recompute, approximate=approximate
                )
                assert ledger.total >= best

    attack()
    shown = ", ".join(f"{id} {share:.2f}" for id, share in closest.items())
    print(f"{schedule.name}: {tried} problems, each with drawn and with chosen tiles; bound/words {shown}")
    assert tried >= EXAMPLES
    assert any(share > 0.3 for share in closest.values())


def test_every_bound_with_a_number_is_attacked():
    attacked = set()
    for pass_ in PASSES:
        for mask in (None, masks.Causal(64)):
            for M in (16, 4096):
                attacked |= {id for id, _ in bounds_at(pass_, 64, 8, M, mask, 10)}
    assert attacked == {bound.id for bound in WITH_WORDS} - {"matmul"}
