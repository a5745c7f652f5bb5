"""Single kernels: their bytes add up to those of a pass, their names are those of the tile table; bad input
is named.

Words are held by `test_traffic` and `test_traffic_variants`, pass by pass, against real launches.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.costs.each_kernel import (
    KERNELS,
    SLICED,
    WHOLE,
    kernel_words,
    ledger_bytes,
    ledger_of,
    row_products,
)
from iocourse.costs.kernel_masks import Problem
from iocourse.costs.kernels import (
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
)

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
def test_bytes_of_a_pass_are_those_of_its_kernels(p, tile, itemsize):
    BM, BN, _ = tile
    forward, queries, keys, fused = (
        ledger_bytes(kernel_words(kernel, p, BM=BM, BN=BN), itemsize)
        for kernel in ("forward", "queries", "keys", "fused")
    )
    assert ledger_bytes(attention_forward(p, BM=BM, BN=BN), itemsize) == forward
    split = attention_split_backward(p, queries=(BM, BN), keys=(BM, BN))
    assert ledger_bytes(split, itemsize) == queries + keys
    products = ledger_bytes(row_products(p, False, BM, zeros=True), itemsize)
    assert ledger_bytes(attention_fused_backward(p, BM=BM, BN=BN), itemsize) == fused + products


def test_scores_and_sums_have_four_bytes_and_a_pattern_one():
    ledger = ledger_of({"Q": 1, "S": 10, "O_sum": 100, "entries": 1000, "patterns": 10_000}, {"P": 100_000})
    assert ledger_bytes(ledger, 2) == 2 + 4 * 1110 + 10_000 + 200_000


def test_the_kernels_are_those_of_the_tile_table():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from iocourse.kernels.host.tile_table import SlicedTiles, Tiles

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
