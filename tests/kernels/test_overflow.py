"""Overflow of 32-bit integers in kernels: the small cases again, with Triton's assertion on sums, differences
and products, which the patched interpreter omits.
"""

from dataclasses import replace

import fuzz
import pytest
import skip_without_interpreter  # noqa: F401
import test_window_sizes
import torch
import triton
import triton.language as tl

from iocourse import kernels

# isort: split
from triton.runtime import interpreter

SAID = "int32 overflow detected"
BEYOND = [(2**31 - 1, 2**31 - 1), (2**31 - 20, None), (None, 2**31 - 1), (2**31, 2**62), (5, 2**31 - 1)]


@pytest.fixture
def sanitised(monkeypatch):
    """A debug build, in which each operation on 32-bit integers is repeated in 64 bits."""
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", replace(builder.options, debug=True, sanitize_overflow=True))


@triton.jit
def far_kernel(X, FAR, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(X + i, tl.load(X + i), mask=i + FAR > i)


@pytest.mark.parametrize("far", [2**31 - 8, 2**31 - 1])
def test_a_sum_that_wraps_is_seen(far, sanitised):
    with pytest.raises(interpreter.InterpreterError, match=SAID):
        far_kernel[(1,)](torch.zeros(16), far, N=16)


def test_without_it_the_sum_wraps_unseen():
    far_kernel[(1,)](torch.zeros(16), 2**31 - 8, N=16)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("seed", range(24))
def test_cases_drawn_by_chance(seed, sanitised):
    """Values too, as in `test_fuzz`: what is asserted must have run."""
    assert fuzz.worst(fuzz.drawn(seed)) <= 1


@pytest.mark.parametrize("align", test_window_sizes.ALIGNMENTS)
@pytest.mark.parametrize("window", BEYOND, ids=str)
def test_windows_that_hide_nothing(window, align, sanitised):
    q = torch.ones(19, 1, 4, requires_grad=True)
    cu = [test_window_sizes.starts(test_window_sizes.LENGTHS, side) for side in (0, 1)]
    with kernels.using(**test_window_sizes.SMALL):
        packed = kernels.attention_varlen(q, q, q, *cu, window=window, align=align)
        packed.sum().backward()
        x = torch.ones(1, 1, 19, 4, requires_grad=True)
        kernels.attention(x, x, x, window=window, align=align).sum().backward()
    assert packed.isfinite().all() and q.grad.isfinite().all() and x.grad.isfinite().all()


def test_decode(sanitised):
    q, k = torch.ones(1, 2, 1, 8), torch.ones(1, 1, 33, 8)
    assert torch.allclose(kernels.decode(q, k, k, parts=3)[0], q)
