"""`attention_varlen` against float64: sequences of any lengths, none of which sees another."""

from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import gradients, judge, numbers, same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from iocourse.kernels import attention, attention_varlen, attention_varlen_with_lse, using
from iocourse.kernels.host.choices import WHOLE

SMALL = {"forward": (16, 32), "fused": (32, 16), "queries": (16, 16), "keys": (32, 16)}
Lengths = tuple[tuple[int, int], ...]


class Configuration(NamedTuple):
    """One call; lengths are (queries, keys) of each sequence."""

    dtype: torch.dtype
    heads: tuple[int, int]
    lengths: Lengths
    d: int
    causal: Any = False
    window: Any = None
    scale: float | None = None
    deterministic: bool = False
    dlse: bool = False
    longest: bool = False
    tiles: tuple[tuple[int, int], ...] = ((16, 32), (32, 16), (16, 16), (32, 16))
    seed: int = 0


def starts(lengths: Lengths, side: int) -> Tensor:
    """cu of one side."""
    return torch.tensor([0, *accumulate(pair[side] for pair in lengths)], dtype=torch.int32)


def pairs_of(lengths: Lengths, *options: Any) -> Tensor:
    """Return the visible pairs of all rows, (queries, keys): blocks on the diagonal."""
    return torch.block_diag(*(reference_attention.seen(*pair, *options).float() for pair in lengths)).bool()


def packed(lengths: Lengths, **options: Any) -> Any:
    """`attention_varlen_with_lse` for tensors (1, H, T, d), as the oracle has them."""
    cu = [starts(lengths, side) for side in (0, 1)]

    def attend(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        o, lse = attention_varlen_with_lse(*(x[0].transpose(0, 1) for x in leaves), *cu, **options)
        return o.transpose(0, 1)[None], lse[None]

    return attend


length = st.one_of(st.just(0), st.integers(1, 8), st.integers(9, 30))
sides = st.sampled_from([None, 0, 1, 7, 30])
configurations = st.builds(
    Configuration,
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    lengths=st.one_of(
        st.lists(st.tuples(length, length), min_size=1, max_size=3).map(tuple),
        st.just(((2, 0), (60, 45), (0, 3))),
    ),
    d=st.one_of(st.integers(1, 48), st.sampled_from([64, 100])),
    causal=st.sampled_from([False, True, "upper_left", "lower_right"]),
    window=st.one_of(st.none(), st.tuples(sides, sides)),
    scale=st.sampled_from([None, None, 0.3, -0.2]),
    deterministic=st.booleans(),
    dlse=st.booleans(),
    longest=st.booleans(),
    tiles=st.tuples(*[st.tuples(st.sampled_from([16, 32, 64]), st.sampled_from([16, 32, 64]))] * 4),
    seed=st.integers(0, 2**31),
).filter(lambda c: all(sum(pair[side] for pair in c.lengths) for side in (0, 1)))


@settings(max_examples=14)
@given(configurations)
@example(
    Configuration(torch.float32, (2, 1), ((5, 9), (0, 3), (33, 17), (4, 0)), 9, "lower_right", dlse=True)
)
@example(Configuration(torch.float16, (1, 1), ((20, 40), (17, 17)), 16, True, (7, None), deterministic=True))
@example(Configuration(torch.bfloat16, (2, 2), ((1, 0), (30, 50)), 40, "lower_right", (3, 1), longest=True))
@example(Configuration(torch.float16, (2, 2), ((9, 2),), 1, tiles=((16, 16),) * 4, seed=1))  # a lucky PyTorch
def test_twice_the_error_of_same_precision_pytorch(c: Configuration):
    H, H_kv = c.heads
    T_q, T_k = (sum(pair[side] for pair in c.lengths) for side in (0, 1))
    shapes = [(1, H, T_q, c.d)] * 2 + [(1, H_kv, T_k, c.d)] * 2
    q, do, k, v = numbers(c.seed, c.dtype, *shapes)
    (dlse,) = numbers(c.seed + 1, torch.float32, (1, H, T_q)) if c.dlse else (None,)
    longest = tuple(max(pair[side] for pair in c.lengths) for side in (0, 1)) if c.longest else None
    attend = packed(
        c.lengths, causal=c.causal, window=c.window, scale=c.scale, deterministic=c.deterministic,
        longest=longest,
    )  # fmt: skip
    with using(**dict(zip(WHOLE, c.tiles, strict=True))):
        judge(attend, q, k, v, do, dlse, pairs_of(c.lengths, c.causal, c.window), c.scale)


THREE: Lengths = ((20, 37), (35, 18), (0, 5), (9, 21))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy computes with the poison too
@pytest.mark.parametrize(
    ("poison", "options", "deterministic"),
    [
        (float("nan"), {}, False),
        (float("inf"), {}, True),
        (float("nan"), {"causal": "lower_right", "window": (9, None)}, True),
        (float("inf"), {"causal": "lower_right", "window": (9, None)}, False),
    ],
)
def test_nothing_leaks_from_a_neighbour(poison: float, options: Any, deterministic: bool):
    """Results and gradients of one sequence are bit-equal for any values in the others."""
    cu_q, cu_k = starts(THREE, 0), starts(THREE, 1)
    clean = numbers(0, torch.float32, *[(int(cu_q[-1]), 2, 16)] * 2, *[(int(cu_k[-1]), 1, 16)] * 2)

    def everything(q: Tensor, do: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with using(**SMALL):
            o, lse = attention_varlen_with_lse(*leaves, cu_q, cu_k, deterministic=deterministic, **options)
            return *gradients(o, leaves, do), lse.detach().T

    want = everything(*clean)
    for s in (0, 1, 3):
        rows, columns = (slice(int(cu[s]), int(cu[s + 1])) for cu in (cu_q, cu_k))
        mine = (rows, rows, columns, columns)
        poisoned = [torch.full_like(x, poison) for x in clean]
        for x, part, there in zip(poisoned, mine, clean, strict=True):
            x[part] = there[part]
        got = everything(*poisoned)
        for one, other, part in zip(got, want, (rows, rows, columns, columns, rows), strict=True):
            assert not one[part].isnan().any()
            # Atomic additions come in one order in the interpreter, so this holds for both ways.
            assert torch.equal(one[part], other[part])


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("options", [{"causal": True}, {"causal": "lower_right", "window": (5, 9)}], ids=str)
def test_each_sequence_as_if_it_were_alone(options: Any, deterministic: bool):
    cu_q, cu_k = starts(THREE, 0).tolist(), starts(THREE, 1).tolist()
    q, do, k, v = numbers(1, torch.float32, *[(cu_q[-1], 2, 24)] * 2, *[(cu_k[-1], 2, 24)] * 2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    cu = starts(THREE, 0), starts(THREE, 1)
    with using(**SMALL):
        together = gradients(
            attention_varlen(*leaves, *cu, deterministic=deterministic, **options), leaves, do
        )
        for s in (0, 1, 3):
            rows, columns = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
            parts = (rows, columns, columns)
            alone = [
                x[part].detach().transpose(0, 1)[None].requires_grad_()
                for x, part in zip(leaves, parts, strict=True)
            ]
            o = attention(*alone, deterministic=deterministic, **options)
            for one, x, part in zip(
                gradients(o, alone, do[rows].transpose(0, 1)[None]), together, (rows, *parts), strict=True
            ):
                torch.testing.assert_close(one[0].transpose(0, 1), x[part], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("lengths", [((0, 0), (0, 0)), ((3, 0), (2, 0)), ((0, 4),), ()], ids=str)
def test_nothing_to_see(lengths: Lengths, deterministic: bool):
    """No sequence, none with queries, or none with keys: rows of zeros, and gradients of zeros."""
    cu_q, cu_k = starts(lengths, 0), starts(lengths, 1)
    q = torch.randn(int(cu_q[-1]), 2, 8, requires_grad=True)
    k, v = (torch.randn(int(cu_k[-1]), 1, 8, requires_grad=True) for _ in range(2))
    o, lse = attention_varlen_with_lse(q, k, v, cu_q, cu_k, deterministic=deterministic)
    o.sum().backward()
    assert o.shape == q.shape and lse.shape == (2, len(q)) and lse.dtype == torch.float32
    assert not o.any() and lse.isneginf().all()
    for x in (q, k, v):
        assert x.grad.shape == x.shape and not x.grad.any()


def test_deterministic_is_bit_equal_over_repeats():
    runs = []
    cu = starts(THREE, 0), starts(THREE, 1)
    shapes = [(int(cu[0][-1]), 2, 16)] * 2 + [(int(cu[1][-1]), 1, 16)] * 2
    for _ in range(2):
        q, do, k, v = (x.clone().requires_grad_() for x in numbers(0, torch.float16, *shapes))
        with using(**SMALL):
            runs.append(gradients(attention_varlen(q, k, v, *cu, deterministic=True), [q, k, v], do))
    assert same_bits(*runs)


def test_strides_change_no_bit_and_the_result_is_laid_out_like_the_queries():
    cu = starts(THREE, 0)
    q, k, v, do = numbers(0, torch.float32, *[(int(cu[-1]), 2, 16)] * 4)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    wide = torch.stack([x.detach() for x in (q, k, v, do)], 1)  # as a projection leaves them, (T, 4, H, d)
    slices = [x.requires_grad_() for x in wide.unbind(1)[:3]]
    flipped = [x.detach().mT.contiguous().mT.requires_grad_() for x in (q, k, v)]
    every_second = torch.stack((cu, cu + 1), 1).flatten()[::2]
    assert not every_second.is_contiguous()
    with using(**SMALL):
        plain = attention_varlen(*leaves, cu, cu, deterministic=True)
        want = gradients(plain, leaves, do)
        sliced = attention_varlen(*slices, every_second, cu, deterministic=True)
        assert same_bits(want, gradients(sliced, slices, wide[:, 3]))
        assert same_bits(want, gradients(attention_varlen(*flipped, cu, cu, deterministic=True), flipped, do))
    assert plain.is_contiguous()
