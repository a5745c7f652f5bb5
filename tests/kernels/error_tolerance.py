"""The rule for every way to compute attention: at most twice the error of same-precision PyTorch, and the
rounding of the result besides; nothing at all where nothing is seen.
"""

from typing import Any

import reference_attention
import torch
from torch import Tensor


def numbers(seed: int, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Normal numbers of these shapes, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def judge(
    attend: Any, q: Tensor, k: Tensor, v: Tensor, do: Tensor, dlse: Tensor | None, allowed: Tensor,
    scale: float | None = None,
) -> reference_attention.Results:  # fmt: skip
    """Compare the results and gradients of `attend(q, k, v)` with float64.

    allowed: (n_q, n_k), or with leading batches and heads. Everything else is (B, H, N, d).
    """
    got = reference_attention.results(attend, q, k, v, do, dlse)
    wide = (x.double() for x in (q, k, v))
    want = reference_attention.results(
        lambda *x: reference_attention.exact(*x, allowed, scale), *wide, do, dlse
    )
    ordinary = reference_attention.results(
        lambda *x: reference_attention.eager(*x, allowed, scale), q, k, v, do, dlse
    )
    bounds = reference_attention.bounds(ordinary, want, q, k, v, do, dlse, allowed, scale)
    nothing_where_nothing_is_seen(got, allowed)
    for name, one, exactly, bound in zip(got._fields, got, want, bounds, strict=True):
        assert one.dtype == (torch.float32 if name == "lse" else q.dtype)
        assert reference_attention.error(one, exactly) <= bound, name
    return got


def nothing_where_nothing_is_seen(got: reference_attention.Results, allowed: Tensor) -> None:
    """A query without keys has O = 0, LSE = -∞ and no gradient, a key without queries none; never NaN."""
    B, H, n_q, _ = got.o.shape
    seen = allowed.expand(B, H, n_q, got.dk.shape[2])
    blind = ~seen.any(-1)  # (B, H, n_q)
    unseen = ~seen.any(2).unflatten(1, (got.dk.shape[1], -1)).any(2)  # (B, H_kv, n_k)
    assert not any(one.isnan().any() for one in got)
    assert torch.equal(got.lse.isneginf(), blind) and not got.lse.isposinf().any()
    for rows in (got.o[blind], got.dq[blind], got.dk[unseen], got.dv[unseen]):
        assert not rows.any()


def gradients(o: Tensor, leaves: list[Tensor], do: Tensor) -> tuple[Tensor, ...]:
    """O and the gradients of <O, dO>."""
    return o.detach(), *torch.autograd.grad(o, leaves, do)


def same_bits(one: Any, other: Any) -> bool:
    """Return True if two sets of results are equal bit by bit."""
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
