"""Argument errors of `attention` and `using`: each names the argument, the expected value and the value
passed.
"""

import math

import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host import checks
from iocourse.kernels.host.checks import (
    LARGEST_HEAD,
    band_of,
    check_deterministic,
    check_scale,
    check_tensors,
)
from iocourse.kernels.host.choices import SLICED, WHOLE, table_architecture


def zeros(*shape, **options):
    return torch.zeros(*shape, **options)


Q = zeros(2, 4, 6, 8)
K = zeros(2, 2, 5, 8)
TYPES = "float16, bfloat16, float32"

# q, k, v; the type of the error, the argument it names, the value passed, the value expected
WRONG = [
    (Q.numpy(), K, K, TypeError, "q", "a ndarray", "a torch tensor (B, H, N, d)"),
    (Q, [1, 2], K, TypeError, "k", "a list", "a torch tensor (B, H, N, d)"),
    (Q, K, None, TypeError, "v", "a NoneType", "a torch tensor (B, H, N, d)"),
    (Q[0], K, K, ValueError, "q", "shape (4, 6, 8)", "four axes (B, H, N, d)"),
    (Q, K[None], K, ValueError, "k", "shape (1, 2, 2, 5, 8)", "four axes (B, H, N, d)"),
    (Q, K, zeros(()), ValueError, "v", "shape ()", "four axes (B, H, N, d)"),
    (Q.int(), K, K, TypeError, "q", "int32", TYPES),
    (Q.double(), K, K, TypeError, "q", "float64", TYPES),
    (Q, K.bool(), K, TypeError, "k", "bool", TYPES),
    (Q, K, K.cfloat(), TypeError, "v", "complex64", TYPES),
    (Q, K.half(), K, TypeError, "k", "float16", "the type of q, float32"),
    (Q, K, K.bfloat16(), TypeError, "v", "bfloat16", "the type of q, float32"),
    (Q, K.to("meta"), K, ValueError, "k", "meta", "on the device of q, cpu"),
    (Q, K, K.to("meta"), ValueError, "v", "meta", "on the device of q, cpu"),
    (
        zeros(1, 1, 5, 0),
        zeros(1, 1, 5, 0),
        zeros(1, 1, 5, 0),
        ValueError,
        "q",
        "d = 0",
        "head size d from 1 to 1024",
    ),
    (*[zeros(1, 1, 5, 1025)] * 3, ValueError, "q", "d = 1025", "head size d from 1 to 1024"),
    (Q, K, K[:, :, :4], ValueError, "v", "(2, 2, 4, 8)", "the shape of k, (2, 2, 5, 8)"),
    (Q, K, K[..., :4], ValueError, "v", "(2, 2, 5, 4)", "the shape of k, (2, 2, 5, 8)"),
    (Q, K[:1], K[:1], ValueError, "k", "1", "as many batches as q, 2"),
    (Q, K[..., :4], K[..., :4], ValueError, "k", "4", "the head size of q, 8"),
    (Q, *[zeros(2, 3, 5, 8)] * 2, ValueError, "k", "3", "a number of heads that divides that of q, 4"),
    (Q, *[zeros(2, 8, 5, 8)] * 2, ValueError, "k", "8", "a number of heads that divides that of q, 4"),
    (Q, *[zeros(2, 0, 5, 8)] * 2, ValueError, "k", "0", "a number of heads that divides that of q, 4"),
]


def complaint(kind, call, *args, **options):
    """Return the message of the error that the call raises, of exactly this type."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    assert type(caught.value) is kind
    return str(caught.value)


def names(message, argument, came, allowed):
    """Return True if a message has the form "ARGUMENT must … ALLOWED …, got … CAME"."""
    expected, got, rest = message.replace("; got ", ", got ").partition(", got ")
    return expected.startswith(f"{argument}must ") and allowed in expected and bool(got) and came in rest


@pytest.mark.parametrize(
    "q, k, v, kind, argument, came, allowed", WRONG, ids=[" ".join(row[4:6]) for row in WRONG]
)
def test_tensors(q, k, v, kind, argument, came, allowed):
    assert names(complaint(kind, attention, q, k, v), argument + " ", came, allowed)
    assert complaint(kind, attention_with_lse, q, k, v) == complaint(
        kind, check_tensors, q, k, v, LARGEST_HEAD
    )


def test_right_tensors_are_not_refused():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        check_tensors(Q.to(dtype), K.to(dtype), K.to(dtype), LARGEST_HEAD)
    check_tensors(zeros(1, 6, 1, 1024), zeros(1, 1, 9, 1024), zeros(1, 1, 9, 1024), LARGEST_HEAD)
    check_tensors(zeros(1, 0, 1, 1), zeros(1, 0, 9, 1), zeros(1, 0, 9, 1), LARGEST_HEAD)


@pytest.mark.parametrize(
    "scale", [math.nan, math.inf, 1e-50, -1e39, "0.5", True, 1j, torch.tensor(0.5), (1,)]
)
def test_scale(scale):
    message = complaint(ValueError, attention, Q, K, K, scale=scale)
    assert names(message, "scale ", repr(scale), "None for 1/√d, 0, or a number of magnitude 1e-30 to 1e+30")


def test_every_other_scale():
    assert check_scale(None, 64) == 1 / 8
    assert [check_scale(s, 64) for s in (0, 2, -0.5)] == [0.0, 2.0, -0.5]


@pytest.mark.parametrize("deterministic", [1, 0, "yes"])
def test_deterministic(deterministic):
    message = complaint(ValueError, attention, Q, K, K, deterministic=deterministic)
    assert names(message, "deterministic ", repr(deterministic), "None, True or False")
    assert check_deterministic(True) is True and check_deterministic(False) is False
    assert check_deterministic(None) is None


@pytest.mark.parametrize("causal", [None, 1, 0, "left", "UPPER_LEFT", "", [True]])
def test_causal(causal):
    message = complaint(ValueError, attention, Q, K, K, causal=causal)
    assert names(message, "causal ", repr(causal), "False, True, 'upper_left' or 'lower_right'")


def test_every_causal_that_is_allowed():
    assert band_of(False, None, 6, 8) == (None, None)
    assert band_of(True, None, 6, 8) == band_of("upper_left", None, 6, 8) == (None, 0)
    assert band_of("lower_right", None, 6, 8) == (None, 2)


@pytest.mark.parametrize("align", [True, 0, "left", "LOWER_RIGHT", "", ["lower_right"]])
def test_align(align):
    message = complaint(ValueError, attention, Q, K, K, align=align)
    assert names(message, "align ", repr(align), "None, 'upper_left' or 'lower_right'")


@pytest.mark.parametrize(
    ("causal", "align"), [("upper_left", "lower_right"), ("lower_right", "upper_left")], ids=str
)
def test_two_alignments(causal, align):
    message = complaint(ValueError, attention, Q, K, K, causal=causal, align=align)
    assert names(message, "align ", repr(align), f"name the same alignment as causal, {causal!r}")


def test_an_alignment_says_where_the_diagonal_lies():
    for causal, align in ((True, None), ("upper_left", None), (True, "upper_left"), ("upper_left",) * 2):
        assert band_of(causal, (1, 9), 6, 8, align) == (-1, 0)
    for causal, align in (("lower_right", None), (True, "lower_right"), ("lower_right",) * 2):
        assert band_of(causal, (1, 9), 6, 8, align) == (1, 2)
    for align, band in ((None, (-1, 3)), ("upper_left", (-1, 3)), ("lower_right", (1, 5))):
        assert band_of(False, (1, 3), 6, 8, align) == band
    assert band_of(False, None, 6, 8, "lower_right") == (None, None)


@pytest.mark.parametrize("window", [3, (3,), (1, 2, 3), "12", (-2, 3), (3, -2), (1.0, 2), (True, 2), {1, 2}])
def test_window(window):
    message = complaint(ValueError, attention, Q, K, K, window=window)
    assert names(
        message, "window ", repr(window), "a pair (left, right) of integers of at least 0, or None (or -1)"
    )


@pytest.mark.parametrize("tile", [64, (64,), (64, 32, 4, 1, 1), "64", None])
def test_tile_of_the_wrong_form(tile):
    with pytest.raises(ValueError) as caught, using(forward=tile):
        pass
    assert names(str(caught.value), "forward ", repr(tile), "(BM, BN), then optionally warps and stages")


@pytest.mark.parametrize(
    "part, tile", [("BM", (24, 32)), ("BN", (32, 8)), ("BM", (1, 32)), ("BN", (16, 100))]
)
def test_tile_of_the_wrong_size(part, tile):
    with pytest.raises(ValueError) as caught, using(keys=tile):
        pass
    size = tile[0] if part == "BM" else tile[1]
    assert names(str(caught.value), f"keys: {part} ", str(size), "16, 32, 64, 128, … (for tl.dot)")


@pytest.mark.parametrize(
    "part, tile", [("BM", (0, 32)), ("BN", (32, -16)), ("warps", (32, 32, 0)), ("BM", (3.5, 16))]
)
def test_tile_that_is_no_whole_number(part, tile):
    with pytest.raises((ValueError, TypeError), match=part), using(queries=tile):
        pass


def test_a_kernel_of_no_name():
    with pytest.raises(ValueError) as caught, using(forward=(32, 32), backwards=(32, 32)):
        pass
    every = ", ".join((*WHOLE, *SLICED, "matrix_bytes"))
    assert str(caught.value) == f"backwards is not an option of using; use one of: {every}"
    assert every.startswith("forward, fused, queries, keys, sliced_forward, ")


@pytest.mark.parametrize("tile", [(64, 32), (64, 32, 16, 4, 1, 1), 64])
def test_a_sliced_tile_of_the_wrong_form(tile):
    with pytest.raises(ValueError) as caught, using(averages=tile):
        pass
    assert names(str(caught.value), "averages ", repr(tile), "(BM, BN, BD), then optionally warps and stages")


def test_a_slice_of_the_wrong_size():
    with pytest.raises(ValueError) as caught, using(weights=(16, 16, 48)):
        pass
    assert str(caught.value) == "weights: BD must be 16, 32, 64, 128, … (for tl.dot), got 48"


def test_chips_without_rows_take_those_of_another_chip():
    assert [table_architecture(c) for c in (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)] == [
        75, 80, 89, 80, 89, 90, 100, 100, 89, 89,
    ]  # fmt: skip
    assert table_architecture(70) == 0


class Chip:
    """Replacement of torch.cuda's queries: one GPU with this name and compute capability."""

    def __init__(self, monkeypatch, name, capability, hip=None):
        monkeypatch.setattr(checks, "INTERPRETED", False)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
        monkeypatch.setattr(torch.version, "hip", hip)
        checks._check_chip_once.cache_clear()


@pytest.fixture(autouse=True)
def forget_chips():
    yield
    checks._check_chip_once.cache_clear()


def test_a_gpu_that_triton_no_longer_compiles_for(monkeypatch):
    Chip(monkeypatch, "Tesla V100", (7, 0))
    message = complaint(ValueError, checks._check_device, torch.device("cuda", 0))
    assert names(message, "q ", "Tesla V100 with 7.0", "on a GPU of compute capability 7.5 (T4) or later")
    assert "TRITON_INTERPRET=1" in message


def test_a_gpu_of_another_maker(monkeypatch):
    Chip(monkeypatch, "AMD Instinct MI300X", (9, 4), hip="6.2")
    message = complaint(ValueError, checks._check_device, torch.device("cuda", 0))
    assert names(message, "q ", "AMD Instinct MI300X", "an NVIDIA GPU")


def test_a_t4_is_slow_and_says_why_once(monkeypatch):
    Chip(monkeypatch, "Tesla T4", (7, 5))
    expected = r"Tesla T4.*7\.5.*correct but slow.*tensor cores only from 8\.0"
    with pytest.warns(UserWarning, match=expected) as caught:
        checks._check_device(torch.device("cuda", 0))
        checks._check_device(torch.device("cuda", 0))
    assert len(caught) == 1


@pytest.mark.filterwarnings("error")
def test_a_gpu_with_tensor_cores_is_taken(monkeypatch):
    Chip(monkeypatch, "NVIDIA H200", (9, 0))
    checks._check_device(torch.device("cuda", 0))


def test_cpu_tensors_where_kernels_are_compiled(monkeypatch):
    Chip(monkeypatch, "NVIDIA H200", (9, 0))
    message = complaint(ValueError, attention, Q, K, K)
    assert names(message, "q ", "on cpu", "a cuda tensor, because kernels are compiled for CUDA here")
    assert "TRITON_INTERPRET=1 before iocourse.kernels is imported" in message
