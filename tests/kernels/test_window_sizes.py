"""Windows of every size, far beyond 32 bits, dense and packed: a limit that masks no pair becomes None."""

import itertools

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import numbers
from long_runs import many
from test_varlen import pairs_of, starts

from iocourse.kernels import (
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    using,
)
from iocourse.kernels.host.checks import band_of, own_band
from iocourse.kernels.host.choices import SLICED, WHOLE

SMALL = dict.fromkeys(WHOLE, (16, 16)) | dict.fromkeys(SLICED, (16, 16, 16))
SIDES = (None, -1, 0, 5, 2**31 - 20, 2**31 - 1, 2**31, 2**32 + 3, 2**62)
ALIGNMENTS = ("upper_left", "lower_right")
TURNS = [*itertools.product(ALIGNMENTS, (False, True))]
LENGTHS = ((7, 11), (0, 2), (12, 6))  # 19 queries, 19 keys
SQUARE = tuple(itertools.product(SIDES, SIDES))
CASES = [
    (window, align, causal)
    for window in SQUARE
    for align in ALIGNMENTS
    for causal in (False, True)
    if any(side is not None and side > 5 for side in window)
]


def close(attend, allowed):
    """Values and gradients of a few float32 rows against float64."""
    q, do, k, v = numbers(3, torch.float32, *[(1, 1, 19, 4)] * 4)
    (dlse,) = numbers(4, torch.float32, (1, 1, 19))
    got = reference_attention.results(attend, q, k, v, do, dlse)
    doubles = [x.double() for x in (q, k, v, do, dlse)]
    want = reference_attention.results(lambda *x: reference_attention.exact(*x, allowed, None), *doubles)
    return max(reference_attention.error(*pair) for pair in zip(got, want, strict=True)) < 1e-5


def packed(**options):
    cu = [starts(LENGTHS, side) for side in (0, 1)]

    def attend(*leaves):
        o, lse = attention_varlen_with_lse(*(x[0].transpose(0, 1) for x in leaves), *cu, **options)
        return o.transpose(0, 1)[None], lse[None]

    return attend


def test_there_are_many_cases():
    assert len(CASES) >= 200


@pytest.mark.parametrize("way", ["dense", "packed"])
@pytest.mark.parametrize(("align", "causal"), TURNS)
def test_values_and_gradients(align, causal, way):
    """Alternate both backward passes and, dense, slices of d; each window is in one run of four."""
    here = [window for window, *other in CASES if other == [align, causal]]
    here = many(here[TURNS.index((align, causal)) :: len(TURNS)], here)
    wrong = []
    for at, window in enumerate(here):
        options = {"window": window, "align": align, "causal": causal, "deterministic": at % 2 == 0}
        with using(**SMALL):
            if way == "packed":
                allowed = pairs_of(LENGTHS, causal, window, align)
                right = close(packed(**options), allowed)
            else:
                options["tile_d"] = (None, "fused", "materialised", "never")[at % 4]
                allowed = reference_attention.seen(19, 19, causal, window, align)
                right = close(lambda *x: attention_with_lse(*x, **options), allowed)  # noqa: B023
        wrong += [] if right else [options]
    assert wrong == []


@pytest.mark.parametrize(("window", "align", "causal"), CASES[::5], ids=str)
def test_what_reaches_a_kernel_fits_32_bits(window, align, causal):
    """Not even a limit that is counted from the diagonal of a sequence leaves them."""
    for n_q, n_k in ((19, 19), (7, 30), (30, 7), (1, 1), (0, 4)):
        rows = max(n_q, n_k)
        packed_band, _ = own_band(causal, window, align, rows)
        for limit in (*band_of(causal, window, n_q, n_k, align), *packed_band):
            assert limit is None or abs(limit) <= n_q + n_k
        no_limit = tuple(None if side in (None, -1) or side > 30 else side for side in window)
        assert own_band(causal, no_limit, align, rows) == own_band(causal, window, align, rows)


def test_the_largest_limit_that_counts_is_kept():
    assert own_band(False, (18, 18), "lower_right", 19)[0] == (-18, 18)
    assert own_band(False, (19, 19), "lower_right", 19)[0] == (None, None)


def test_a_decode_step_has_no_window_and_says_so():
    x = torch.zeros(1, 1, 1, 8)
    with pytest.raises(TypeError, match="window is not an argument of decode; use: q, k, v, scale, parts"):
        decode(x, x, x, window=(2**31 - 1, 0))
