"""What single kernels move adds up to what a pass moves, for any sizes, band, heads and tiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.costs.each_kernel import KERNELS, SLICED, WHOLE, kernel_words, ledger_bytes
from iocourse.costs.kernels import (
    Problem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    ledger_of,
    row_products,
)
from iocourse.costs.sliced_kernels import scores_backward, scores_forward, sliced_backward, sliced_forward
from iocourse.gpu.roofline import tile_bytes
from iocourse.ledger import Ledger

sides = st.integers(1, 40)
tiles = st.tuples(sides, sides, sides)
edges = st.one_of(st.none(), st.integers(-50, 50))


@st.composite
def problems(draw):
    """Any band, with or without groups of heads."""
    low, high = draw(edges), draw(edges)
    H_kv, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return Problem(draw(sides), draw(sides), draw(sides), low, high, draw(sides), H_kv * group, H_kv)


def together(*ledgers):
    """The sum of ledgers, array by array; their atomics too."""

    def added(counts):
        names = dict.fromkeys(name for one in counts for name in one)
        return {name: sum(one.get(name, 0) for one in counts) for name in names}

    parts = [
        [one.reads for one in ledgers],
        [one.writes for one in ledgers],
        [one.atomics for one in ledgers],
    ]
    return Ledger(**dict(zip(("reads", "writes", "atomics"), map(added, parts), strict=True)))


def products_of(problem):
    """The kernel of D."""
    return ledger_of(row_products(problem, False), {"D": problem.queries})


@given(problems(), tiles)
def test_passes_of_one_kernel_are_that_kernel(p, tile):
    BM, BN, BD = tile
    assert kernel_words("forward", p, BM=BM, BN=BN) == attention_forward(p, BM=BM, BN=BN)
    sliced = kernel_words("sliced_forward", p, BM=BM, BN=BN, BD=BD)
    assert sliced == sliced_forward(p, BM=BM, BN=BN)


@given(problems(), tiles, tiles)
def test_backward_kernels_with_whole_rows_add_up(p, one, other):
    queries = kernel_words("queries", p, BM=one[0], BN=one[1])
    keys = kernel_words("keys", p, BM=other[0], BN=other[1])
    split = attention_split_backward(p, queries=one[:2], keys=other[:2])
    assert together(queries, keys) == split
    fused = kernel_words("fused", p, BM=one[0], BN=one[1])
    assert together(products_of(p), fused) == attention_fused_backward(p, BM=one[0], BN=one[1])


@given(problems(), tiles, tiles)
def test_backward_kernels_that_cut_d_add_up(p, one, other):
    queries = kernel_words("sliced_queries", p, BM=one[0], BN=one[1], BD=one[2])
    keys = kernel_words("sliced_keys", p, BM=other[0], BN=other[1], BD=other[2])
    assert together(products_of(p), queries, keys) == sliced_backward(p, queries=one[:2], keys=other[:2])


@given(problems(), tiles, tiles, tiles)
def test_kernels_that_write_scores_out_add_up(p, one, two, three):
    def words(kernel, tile):
        return kernel_words(kernel, p, BM=tile[0], BN=tile[1], BD=tile[2])

    forward = together(words("scores", one), words("averages", two))
    assert forward == scores_forward(p, scores=one[:2], averages=two)
    backward = [words("weights", one), words("query_gradients", two), words("key_gradients", three)]
    expected = scores_backward(p, weights=one[:2], query_gradients=two, key_gradients=three)
    assert together(products_of(p), *backward) == expected


@given(problems(), tiles, st.sampled_from([2, 4]))
def test_bytes_are_those_of_the_roofline(p, tile, itemsize):
    named = {name: tile[:2] for name in WHOLE}
    for pass_, kernels in {"forward": ["forward"], "backward": ["queries", "keys"]}.items():
        ledgers = [kernel_words(kernel, p, BM=tile[0], BN=tile[1]) for kernel in kernels]
        wanted = tile_bytes(pass_, p, itemsize, named, deterministic=True)
        assert sum(ledger_bytes(ledger, itemsize) for ledger in ledgers) == wanted
    fused = together(products_of(p), kernel_words("fused", p, BM=tile[0], BN=tile[1]))
    assert ledger_bytes(fused, itemsize) == tile_bytes("backward", p, itemsize, named)


def test_scores_and_sums_have_four_bytes_and_a_pattern_one():
    ledger = ledger_of({"Q": 1, "S": 10, "O_sum": 100, "entries": 1000, "patterns": 10_000}, {"P": 100_000})
    assert ledger_bytes(ledger, 2) == 2 + 4 * 1110 + 10_000 + 200_000


def test_the_kernels_are_those_of_the_tile_table():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from iocourse.kernels.tiles import SlicedTiles, Tiles

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
