"""NumPy integers are accepted like Python ints everywhere. They never overflow; results are plain ints."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs, masks, run
from iocourse.bounds import BOUNDS, OutsideRegime, lower_bound
from iocourse.bounds import products_per_segment as F
from iocourse.costs import kernel_masks, kernels
from iocourse.ledger import Ledger
from iocourse.machine import Machine
from iocourse.monomials import plan, rank_of
from iocourse.schedules import PASSES, REGISTRY, against_bound, best, break_even_length, flash2

WIDTHS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
every_schedule = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
logs = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 15), st.floats(0, 1))


@st.composite
def both(draw, values):
    """Strategy: an integer as a Python int, and in a NumPy type that is wide enough."""
    value = draw(values)
    holding = [width for width in WIDTHS if value <= np.iinfo(width).max]
    return value, draw(st.sampled_from(holding))(value)


def plain(ledger):
    """Return True if every number in a ledger is a Python int."""
    counts = (ledger.reads, ledger.writes, ledger.atomics, ledger.sizes)
    found = [*(words for part in counts for words in part.values()), ledger.peak, ledger.total]
    return {type(words) for words in found} == {int}


def problems(schedule, N, draw):
    """Return the required arguments of a schedule as Python and as NumPy numbers."""
    if "mask" in schedule.needs:
        return {"mask": masks.Window(N, 3)}, {"mask": masks.Window(np.int64(N), np.int8(3))}
    told = {name: draw(both(st.integers(1, 3))) for name in schedule.needs}
    return ({name: pair[k] for name, pair in told.items()} for k in range(2))


@every_schedule
@settings(max_examples=15)
@given(data=st.data())
def test_a_closed_form_is_that_of_pythons_integers(schedule, data):
    (N, n), (d, e) = (
        data.draw(both(logs.map(lambda N: min(N, 500) if schedule.needs else N))),
        data.draw(both(logs)),
    )
    tiles = {name: data.draw(both(logs)) for name in schedule.tile_names}
    ours, theirs = problems(schedule, N, data.draw)
    form = schedule.cost(N, d, **{name: pair[0] for name, pair in tiles.items()}, **ours)
    again = schedule.cost(n, e, **{name: pair[1] for name, pair in tiles.items()}, **theirs)
    assert again == form and plain(again) and again.to_json() == form.to_json()
    assert schedule.cost_form(n, e, **{name: pair[1] for name, pair in tiles.items()}, **theirs) == form
    M, m = form.peak, np.uint64(form.peak)
    picked = schedule.tiles(n, e, m, **theirs)
    assert picked == schedule.tiles(N, d, M, **ours) and {type(b) for b in picked.values()} <= {int}
    counted = schedule.count(n, e, m, **theirs)
    assert counted == schedule.count(N, d, M, **ours) and plain(counted)
    near = against_bound(schedule, n, e, m, **theirs)
    assert (
        near == against_bound(schedule, N, d, M, **ours) and [type(size) for size in near[1:4]] == [int] * 3
    )


@every_schedule
def test_a_run_is_that_of_pythons_integers(schedule):
    told = {"mask": {"mask": masks.Causal(6)}, "w": {"w": np.int8(2)}, "g": {"g": np.uint8(2)}}
    told = told.get("".join(schedule.needs), {})
    tiles = dict.fromkeys(schedule.tile_names, np.int8(3))
    shapes = {
        name: tuple(np.int16(n) for n in shape) for name, shape in schedule.shapes(6, 4, **told).items()
    }
    done = run(schedule, M=np.int16(9999), dry=True, **shapes, **tiles, **told)
    assert done.ledger == schedule.cost(6, 4, **tiles, **told) and plain(done.ledger)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=list(BOUNDS))
@settings(max_examples=12)
@given(data=st.data())
def test_a_bound_is_that_of_pythons_integers(bound, data):
    asked = inspect.signature(bound.evaluate).parameters
    sizes = {name: data.draw(both(logs)) for name in asked if name != "T" or data.draw(st.booleans())}
    try:
        words = bound.evaluate(**{name: pair[0] for name, pair in sizes.items()})
    except OutsideRegime:
        return
    again = bound.evaluate(**{name: pair[1] for name, pair in sizes.items()})
    assert again == words and type(again) is type(words)


@settings(max_examples=25)
@given(both(logs), both(logs), both(logs), st.sampled_from(list(PASSES)))
def test_the_best_bound_and_the_best_schedule(N, d, M, pass_):
    asked = list(zip(N, d, M, strict=True))
    ours, theirs = (lower_bound(pass_, *sizes) for sizes in asked)
    assert theirs == ours and type(theirs[0]) is int
    try:
        ours = best(*asked[0], pass_)
    except ValueError as error:
        with pytest.raises(ValueError) as said:
            best(*asked[1], pass_)
        assert str(said.value) == str(error)
        return
    assert best(*asked[1], pass_) == ours


@settings(max_examples=50)
@given(both(st.integers(1, 300)), both(st.integers(1, 60)))
def test_masks_and_monomials(N, B):
    for n, b in zip(N, B, strict=True):
        assert [masks.causal(n, b).nnz, masks.sliding_window(n, b, b).nnz, masks.strided(n, b, b).nnz] == [
            masks.causal(N[0], B[0]).nnz,
            masks.sliding_window(N[0], B[0], B[0]).nnz,
            masks.strided(N[0], B[0], B[0]).nnz,
        ]
        assert rank_of(n, np.int8(3)) == rank_of(N[0], 3) and type(rank_of(n, np.int8(3))) is int
        assert masks.covering_blocks(np.ones((4, 4), bool), b) == masks.covering_blocks(
            np.ones((4, 4), bool), B[0]
        )
        assert costs.ceil_div(n, b) == -(-N[0] // B[0]) and type(costs.ceil_div(n, b)) is int
        assert {type(size) for size in costs.distinct_sizes(n)} == {int}
    assert plan(np.int8(3), np.int8(2)).rank == 10


def test_the_sizes_that_overflowed():
    form = flash2.cost(np.int32(32768), np.int32(64), Br=np.int32(64), Bc=np.int32(64))
    assert form.total == flash2.cost(32768, 64, Br=64, Bc=64).total == 2151677952
    for N in np.logspace(10, 34, 5, base=2).astype(int):
        assert Ledger.from_json(flash2.cost(N, 64, Br=N, Bc=1).to_json()) == flash2.cost(
            int(N), 64, Br=int(N), Bc=1
        )
    assert break_even_length(np.int8(100), np.int8(2), np.int16(20000)) == break_even_length(100, 2, 20000)
    assert F(np.int32(2**30), np.int8(64)) == F(2**30, 64)


def test_a_ledger_of_numpys_integers():
    large = Ledger(
        reads={"Q": np.int32(2**31 - 1), "K": np.int32(1)},
        peak=np.int8(5),
        itemsizes={"Q": np.int8(4), "K": 4},
    )
    assert large.total == 2**31 and large.bytes == 2**33
    assert Ledger.from_json(large.to_json()) == large


def test_kernels_count_in_pythons_integers():
    sizes = {"Nq": 2**15, "Nk": 2**15, "d": 64, "B": 64, "H": 8, "H_kv": 8}
    ours, theirs = (
        kernels.KernelProblem(**sizes),
        kernels.KernelProblem(**{k: np.int32(v) for k, v in sizes.items()}),
    )
    wanted = kernels.attention_forward(ours, BM=128, BN=64)
    assert (
        kernels.attention_forward(theirs, BM=np.uint8(128), BN=np.int8(64)) == wanted and wanted.total > 2**32
    )
    packed = {"Nq": 9, "Nk": 9, "d": 2, "lengths": ((4, 4), (5, 5))}
    assert kernels.attention_forward(
        kernel_masks.PackedSequences(**packed | {"Nq": np.int8(9)}), BM=np.int8(4), BN=4
    ) == (kernels.attention_forward(kernel_masks.PackedSequences(**packed), BM=4, BN=4))
    parts = (kernels.attention_decode(one, parts=n) for one, n in ((theirs, np.int8(3)), (ours, 3)))
    assert next(parts) == next(parts)


def test_a_machines_blocks_and_tiles():
    m = Machine(np.int16(300))
    (block,) = m.blocks((np.int8(3), np.int8(9)), np.int8(100))
    assert [type(part) for part in block[:2]] == [int, int]
    with m.zeros(block, np.int8(50)) as tile:
        assert tile.size == m.used == 300 and type(m.used) is int
