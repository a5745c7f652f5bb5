"""Tiles that the kernels visit, compared with a count of pairs: none is missing, none is empty, and every
partial tile is masked.
"""

import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iocourse.kernels.host.checks import band_of
from iocourse.kernels.jit_helpers import Lengths, keys_of, queries_of


@triton.jit
def borders_kernel(
    out, n_q, n_k, low, high, BM: tl.constexpr, BN: tl.constexpr, MASK: tl.constexpr, BY_KEYS: tl.constexpr
):  # fmt: skip
    """Four borders of each program's loop, (tiles, 4) int32."""
    tile = tl.program_id(0)
    lengths = Lengths(n_q, n_k, low, high)
    if BY_KEYS:
        borders = queries_of(tile * BN, lengths, BM, BN, MASK)
    else:
        borders = keys_of(tile * BM, lengths, BM, BN, MASK)
    for part in tl.static_range(4):
        tl.store(out + tile * 4 + part, borders[part])


def borders(n_q, n_k, band, BM, BN, *, by_keys):
    tiles = -(-n_k // BN) if by_keys else -(-n_q // BM)
    out = torch.full((tiles, 4), -1, dtype=torch.int32)
    borders_kernel[(tiles,)](
        out, n_q, n_k, band.low or 0, band.high or 0, BM=BM, BN=BN, MASK=band.limits, BY_KEYS=by_keys
    )  # fmt: skip
    return out.tolist()


sizes = st.one_of(st.integers(1, 20), st.integers(1, 100))
sides = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 110))
blocks = st.sampled_from([16, 32, 64])  # of two sizes, so that either may be the larger
questions = {
    "n_q": sizes,
    "n_k": sizes,
    "causal": st.sampled_from([False, True, "lower_right"]),
    "window": st.one_of(st.none(), st.tuples(sides, sides)),
    "BM": blocks,
    "BN": blocks,
}


def check_tile(visited, begin, whole, masked_again, end, step, needed):
    """One program's loop over `step` columns at a time. `needed` (columns, rows): which pairs count for
    it."""
    assert 0 <= begin <= whole <= masked_again <= end
    assert begin % step == whole % step == masked_again % step == end % step == 0
    for at in range(0, visited, step):
        pairs = needed[at : at + step]
        if begin <= at < end:
            assert pairs.any(), "a tile is visited that sees nothing"
        else:
            assert not pairs.any(), "a pair is lost"


@settings(max_examples=400)
@given(**questions)
@example(n_q=100, n_k=64, causal=False, window=(14, 15), BM=16, BN=16)  # one short of a tile
@example(n_q=100, n_k=64, causal=False, window=(15, 14), BM=16, BN=16)
def test_keys_of_a_tile_of_queries(n_q, n_k, causal, window, BM, BN):
    band = band_of(causal, window, n_q, n_k)
    allowed = reference_attention.seen(n_q, n_k, causal, window)
    for tile, (begin, whole, again, end) in enumerate(borders(n_q, n_k, band, BM, BN, by_keys=False)):
        rows = allowed[tile * BM : (tile + 1) * BM]  # rows past the last query need no keys
        check_tile(-(-n_k // BN) * BN, begin, whole, again, end, BN, rows.T)
        assert end <= -(-n_k // BN) * BN
        for at in range(whole, again, BN):
            assert at + BN <= n_k and rows[:, at : at + BN].all(), "a tile needs the mask it does not get"
        # Loops that are not compiled in have nothing to do.
        assert band.low is not None or begin == whole
        assert band.low is not None or band.high is not None or n_k % BN or again == end


@settings(max_examples=400)
@given(**questions)
@example(n_q=100, n_k=64, causal=False, window=(14, 15), BM=16, BN=16)  # one short of a tile
@example(n_q=100, n_k=64, causal=False, window=(15, 14), BM=16, BN=16)
def test_queries_of_a_tile_of_keys(n_q, n_k, causal, window, BM, BN):
    band = band_of(causal, window, n_q, n_k)
    allowed = reference_attention.seen(n_q, n_k, causal, window)
    for tile, (begin, whole, again, end) in enumerate(borders(n_q, n_k, band, BM, BN, by_keys=True)):
        columns = allowed[:, tile * BN : (tile + 1) * BN]
        check_tile(-(-n_q // BM) * BM, begin, whole, again, end, BM, columns)
        for at in range(whole, again, BM):
            # Queries past the last one weigh exactly nothing, and need no mask; keys past the last one do.
            assert (tile + 1) * BN <= n_k and columns[at : at + BM].all(), (
                "a tile needs the mask it does not get"
            )
        assert band.high is not None or n_k % BN or begin == whole
        assert band.low is not None or again == end


@settings(max_examples=200)
@given(sizes, sizes, st.sampled_from(reference_attention.ALIGNED), questions["window"])
def test_a_band_says_what_causal_and_window_and_align_say(n_q, n_k, aligned, window):
    causal, align = aligned
    low, high = band_of(causal, window, n_q, n_k, align)
    distance = torch.arange(n_k)[None, :] - torch.arange(n_q)[:, None]
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    seen = seen if low is None else seen & (distance >= low)
    seen = seen if high is None else seen & (distance <= high)
    assert torch.equal(seen, reference_attention.seen(n_q, n_k, causal, window, align))
    # A limit that masks no pair becomes None, and the kernel then has no loop for it.
    assert low is None or (distance < low).any()
    assert high is None or (distance > high).any()
