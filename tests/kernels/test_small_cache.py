"""`attention` with d in slices, fused and with its scores written out, against float64: d from 1 to 1024."""

from typing import Any, NamedTuple

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import gradients, judge, numbers, same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host.choices import SLICED

# The kernels load uninitialised scores of empty tiles, compute exp2(score - LSE) and discard it. NumPy warns
# if such a score is infinite or large.
pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered in subtract:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp2:RuntimeWarning"),
]

WAYS = ("fused", "materialised")
SMALL = dict.fromkeys(SLICED, (32, 16, 16))


class Configuration(NamedTuple):
    """One call, and the tiles of its kernels."""

    way: str
    dtype: torch.dtype
    B: int
    heads: tuple[int, int]
    n_q: int
    n_k: int
    d: int
    causal: Any = False
    window: Any = None
    scale: float | None = None
    dlse: bool = False
    deterministic: bool = False
    tiles: tuple[tuple[int, int], ...] = ((32, 16),) * len(SLICED)
    slices: int = 4
    seed: int = 0


def slice_of(c: Configuration) -> int:
    """The power of two that cuts d into at most about `slices` slices; 16 at least."""
    return max(16, 1 << (-(-c.d // c.slices) - 1).bit_length())


sizes = st.one_of(st.integers(1, 20), st.integers(33, 75))
sides = st.sampled_from([None, 0, 5, 17])
configurations = st.builds(
    Configuration,
    way=st.sampled_from(WAYS),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    B=st.sampled_from([1, 1, 2]),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    n_q=sizes,
    n_k=sizes,
    d=st.one_of(st.integers(1, 80), st.integers(257, 1024), st.sampled_from([1, 320, 512, 1023, 1024])),
    causal=st.sampled_from([False, True, "lower_right"]),
    window=st.one_of(st.none(), st.tuples(sides, sides)),
    scale=st.sampled_from([None, None, 0.05, -0.03, 0.0]),
    dlse=st.booleans(),
    deterministic=st.booleans(),
    tiles=st.tuples(*[st.tuples(st.sampled_from([16, 32, 64]), st.sampled_from([16, 32, 64]))] * len(SLICED)),
    slices=st.sampled_from([1, 2, 3, 5]),
    seed=st.integers(0, 2**31),
)


@settings(max_examples=16)
@given(configurations)
@example(Configuration("fused", torch.float32, 1, (2, 1), 70, 40, 300, "lower_right", (9, None), dlse=True))
@example(Configuration("materialised", torch.float32, 1, (2, 1), 70, 40, 9, "lower_right", (9, 1), dlse=True))
@example(Configuration("fused", torch.bfloat16, 1, (1, 1), 40, 60, 1024, True))
@example(Configuration("materialised", torch.float16, 2, (1, 1), 40, 60, 513, True))
@example(Configuration("fused", torch.float16, 1, (2, 2), 33, 1, 1, window=(3, 0)))
def test_twice_the_error_of_same_precision_pytorch(c: Configuration):
    H, H_kv = c.heads
    q, do, k, v = numbers(c.seed, c.dtype, *[(c.B, H, c.n_q, c.d)] * 2, *[(c.B, H_kv, c.n_k, c.d)] * 2)
    (dlse,) = numbers(c.seed + 1, torch.float32, (c.B, H, c.n_q)) if c.dlse else (None,)
    options = {"causal": c.causal, "window": c.window, "scale": c.scale, "deterministic": c.deterministic}
    chosen = {name: (*tile, slice_of(c)) for name, tile in zip(SLICED, c.tiles, strict=True)}
    with using(**chosen):
        judge(
            lambda *x: attention_with_lse(*x, tile_d=c.way, **options),
            q, k, v, do, dlse, reference_attention.seen(c.n_q, c.n_k, c.causal, c.window), c.scale,
        )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_query_and_no_key(way: str):
    for n_q, n_k in ((5, 0), (0, 5)):
        q = torch.randn(1, 2, n_q, 20, requires_grad=True)
        k, v = (torch.randn(1, 1, n_k, 20, requires_grad=True) for _ in range(2))
        o, lse = attention_with_lse(q, k, v, tile_d=way)
        o.sum().backward()
        assert not o.any() and lse.isneginf().all() and lse.shape == (1, 2, n_q)
        assert all(x.grad.shape == x.shape and not x.grad.any() for x in (q, k, v))


@pytest.mark.parametrize("way", WAYS)
def test_bit_equal_over_repeats_asked_or_not(way: str):
    """No atomic additions: the order of every sum is fixed, heads of a group among them."""
    runs = []
    for deterministic in (False, True):
        q, do, k, v = (
            x.clone().requires_grad_()
            for x in numbers(0, torch.float16, *[(1, 2, 40, 40)] * 2, *[(1, 1, 50, 40)] * 2)
        )
        with using(**SMALL):
            o = attention(q, k, v, causal="lower_right", tile_d=way, deterministic=deterministic)
            runs.append(gradients(o, [q, k, v], do))
    assert same_bits(*runs)


@pytest.mark.parametrize("way", WAYS)
def test_strides_change_no_bit(way: str):
    q, k, v, do = numbers(0, torch.float32, *[(1, 2, 24, 20)] * 4)

    def everything(layout: Any) -> tuple[Tensor, ...]:
        leaves = [layout(x).detach().requires_grad_() for x in (q, k, v)]
        with using(**SMALL):
            return gradients(attention(*leaves, causal=True, tile_d=way), leaves, layout(do))

    plain = everything(lambda x: x)
    assert same_bits(plain, everything(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)))
    assert same_bits(plain, everything(lambda x: torch.cat((x, x), 3)[..., :20]))
    assert same_bits(plain, everything(lambda x: x.mT.contiguous().mT))


def test_a_head_too_large_for_whole_rows_takes_the_fused_slices():
    q, k, v, do = numbers(0, torch.float32, *[(1, 1, 40, 300)] * 4)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with using(**dict.fromkeys(SLICED, (32, 16, 64))):
        found = gradients(attention(*leaves, causal=True), leaves, do)
        assert same_bits(found, gradients(attention(*leaves, causal=True, tile_d="fused"), leaves, do))


@pytest.mark.parametrize("way", ["fused", "materialised"])
def test_keys_that_no_head_of_queries_asks_have_no_gradient(way):
    q, k = torch.zeros(1, 0, 20, 16), torch.randn(1, 1, 20, 16).requires_grad_()
    (dk,) = torch.autograd.grad(attention(q, k, k, tile_d=way).sum(), k)
    assert not dk.any()
