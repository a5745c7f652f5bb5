"""Single kernels: their bytes are those of the roofline, their names those of the tile table; bad input is
named.

Words are held by `test_traffic` and `test_traffic_variants`, pass by pass, against real launches.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.costs.each_kernel import (
    KERNELS,
    SLICED,
    WHOLE,
    added,
    kernel_words,
    ledger_bytes,
    ledger_of,
    row_products,
)
from iocourse.costs.pairs import Problem
from iocourse.gpu.roofline import tile_bytes

sides = st.integers(1, 40)
tiles = st.tuples(sides, sides, sides)
edges = st.one_of(st.none(), st.integers(-50, 50))


@st.composite
def problems(draw):
    """Any band, with or without groups of heads."""
    low, high = draw(edges), draw(edges)
    H_kv, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return Problem(draw(sides), draw(sides), draw(sides), low, high, draw(sides), H_kv * group, H_kv)


@given(problems(), tiles, st.sampled_from([2, 4]))
def test_bytes_are_those_of_the_roofline(p, tile, itemsize):
    named = {name: tile[:2] for name in WHOLE}
    for pass_, kernels in {"forward": ["forward"], "backward": ["queries", "keys"]}.items():
        ledgers = [kernel_words(kernel, p, BM=tile[0], BN=tile[1]) for kernel in kernels]
        wanted = tile_bytes(pass_, p, itemsize, named, deterministic=True)
        assert sum(ledger_bytes(ledger, itemsize) for ledger in ledgers) == wanted
    fused = added(
        row_products(p, False, tile[0], zeros=True), kernel_words("fused", p, BM=tile[0], BN=tile[1])
    )
    assert ledger_bytes(fused, itemsize) == tile_bytes("backward", p, itemsize, named)


def test_scores_and_sums_have_four_bytes_and_a_pattern_one():
    ledger = ledger_of({"Q": 1, "S": 10, "O_sum": 100, "entries": 1000, "patterns": 10_000}, {"P": 100_000})
    assert ledger_bytes(ledger, 2) == 2 + 4 * 1110 + 10_000 + 200_000


def test_the_kernels_are_those_of_the_tile_table():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from iocourse.kernels.host.tiles import SlicedTiles, Tiles

    assert (Tiles._fields, SlicedTiles._fields) == (WHOLE, SLICED)


@pytest.mark.parametrize(
    ("kernel", "BD", "message"),
    [
        ("flash", None, f"kernel is 'flash'; allowed: {', '.join(KERNELS)}"),
        ("forward", 16, "BD is 16 for forward; allowed: None, because its tiles are whole rows"),
        ("averages", None, "BD is None for averages; allowed: the columns of a slice"),
        ("averages", 0, "BD must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(kernel, BD, message):
    with pytest.raises(ValueError, match=message):
        kernel_words(kernel, Problem(8, 8, 8), BM=16, BN=16, BD=BD)
