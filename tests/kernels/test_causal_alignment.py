"""Alignment of the diagonal for Nq ≠ Nk: windows with either alignment against float64, dense and packed."""

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import judge, numbers
from reference_attention import seen
from test_varlen import packed, pairs_of

from iocourse.kernels import attention_with_lse, using
from iocourse.kernels.host.choices import WHOLE

WINDOWS = [(5, 9), (None, 4), (7, None)]
SMALL = dict.fromkeys(WHOLE, (16, 16))
ALIGNMENTS = ("upper_left", "lower_right")


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("n_q", "n_k"), [(20, 45), (45, 20)])
def test_windows(n_q, n_k, window, align):
    """Values and gradients of the fused pass; some queries have no visible keys."""
    q, do, k, v = numbers(n_q, torch.float32, *[(1, 2, n_q, 16)] * 2, *[(1, 1, n_k, 16)] * 2)
    (dlse,) = numbers(1, torch.float32, (1, 2, n_q))
    allowed = seen(n_q, n_k, False, window, align)
    assert not torch.equal(allowed, seen(n_q, n_k, False, window, *set(ALIGNMENTS) - {align}))
    with using(**SMALL):
        judge(lambda *x: attention_with_lse(*x, window=window, align=align), q, k, v, do, dlse, allowed)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_each_packed_sequence_has_its_own_diagonal(align, deterministic):
    lengths = ((9, 33), (30, 7), (0, 4), (12, 12))
    q, do, k, v = numbers(2, torch.float16, *[(1, 2, 51, 16)] * 2, *[(1, 1, 56, 16)] * 2)
    attend = packed(lengths, window=(6, 3), align=align, deterministic=deterministic)
    with using(**SMALL):
        judge(attend, q, k, v, do, None, pairs_of(lengths, False, (6, 3), align))


@pytest.mark.parametrize("causal", [True, "lower_right"])
def test_causal_says_or_is_told(causal):
    """With causal=True, `align` selects the alignment, also in combination with a window."""
    q, k, v = numbers(0, torch.float32, (1, 1, 20, 8), *[(1, 1, 33, 8)] * 2)
    with using(**SMALL):
        told = attention_with_lse(q, k, v, causal=causal, window=(5, None), align="lower_right")
        says = attention_with_lse(q, k, v, causal="lower_right", window=(5, None))
    assert torch.equal(told[0], says[0]) and torch.equal(told[1], says[1])
