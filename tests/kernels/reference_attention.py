"""Reference attention in plain PyTorch: exact, in float64, and as eager code computes it in q's type.

The error of the second is the standard: a kernel's error may be twice as large, plus the rounding of
its result (`bounds`).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Results(NamedTuple):
    """Results of one attention, forward and backward."""

    o: Tensor
    lse: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


# Every causal with every align that does not contradict it.
ALIGNED = [
    (causal, align)
    for causal in (False, True, "upper_left", "lower_right")
    for align in (None, "upper_left", "lower_right")
    if align is None or causal in (False, True, align)
]


def seen(n_q: int, n_k: int, causal: Any = False, window: Any = None, align: Any = None) -> Tensor:
    """Return the visible pairs (n_q, n_k), derived from `attention`'s docstring."""
    shift = n_k - n_q if "lower_right" in (causal, align) else 0
    own = torch.arange(n_q)[:, None] + shift  # a query's own key
    j = torch.arange(n_k)[None, :]
    allowed = j <= own if causal else torch.ones(n_q, n_k, dtype=torch.bool)
    left, right = window or (None, None)
    if left not in (None, -1):
        allowed = allowed & (j >= own - left)
    if right not in (None, -1):
        allowed = allowed & (j <= own + right)
    return allowed


def exact(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Return O and LSE in float64; 0 and -∞ for a query without visible keys. allowed: (n_q, n_k), or with
    leading batches and heads, 1 if shared.
    """
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = (q @ k.transpose(-1, -2) * factor).masked_fill(~allowed, -math.inf)
    blind = ~allowed.any(-1)  # (…, n_q)
    m = s.detach().amax(-1, keepdim=True).masked_fill(blind[..., None], 0.0)
    e = torch.exp(s - m)
    l = e.sum(-1, keepdim=True).masked_fill(blind[..., None], 1.0)
    lse = (m + torch.log(l)).squeeze(-1).masked_fill(blind, -math.inf)
    return e / l @ v, lse


def eager(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """O and LSE in the type of q, k and v, the factor applied to K instead of the scores."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = (q @ (k * factor).transpose(-1, -2)).masked_fill(~allowed, -math.inf)
    blind = ~allowed.any(-1)
    p = torch.softmax(s.masked_fill(blind[..., None], 0.0), -1).masked_fill(blind[..., None], 0.0)
    lse = torch.logsumexp(s.masked_fill(blind[..., None], 0.0), -1).masked_fill(blind, -math.inf)
    return p @ v, lse


def results(attend: Any, q: Tensor, k: Tensor, v: Tensor, do: Tensor, dlse: Tensor | None) -> Results:
    """O, LSE and the gradients of <O, dO> + <LSE, dLSE>; `attend(q, k, v)` gives O and LSE. dLSE None: not
    used."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o, lse = attend(*leaves)
    outputs, gradients = [o], [do.to(o.dtype)]
    if dlse is not None:
        outputs, gradients = [o, lse], [*gradients, dlse.to(lse.dtype)]
    return Results(o.detach(), lse.detach(), *torch.autograd.grad(outputs, leaves, gradients))


def error(got: Tensor, want: Tensor) -> float:
    """The largest absolute error; equal infinities differ by nothing, and NaN by infinity."""
    assert got.shape == want.shape
    if not got.numel():
        return 0.0
    difference = torch.where(got.double() == want.double(), 0.0, (got.double() - want.double()).abs())
    return float(difference.nan_to_num(nan=math.inf).max())


def rounding(want: Tensor, dtype: torch.dtype) -> float:
    """Return the change of the exact result if 0.3 is added and subtracted in this type (its rounding)."""
    there = want.to(dtype)
    return 2 * error(there + 0.3 - 0.3, there)


def bounds(
    pytorch: Results, want: Results, q: Tensor, k: Tensor, v: Tensor, do: Tensor, dlse: Tensor | None,
    allowed: Tensor, scale: float | None,
) -> list[float]:  # fmt: skip
    """Return the maximum error of each result: twice PyTorch's error in q's type, the rounding of the result,
    and a few roundings of float32.

    PyTorch's error may be small by chance: with one key it is 0 (P is exactly 1, and dP - D cancels), and
    with few numbers roundings may cancel. It therefore counts as at least the effect of independent
    roundings of every term of a sum: u · √(Σ terms²), u half a unit of the type.
    """
    sums, roots = terms(q, k, v, do, dlse, allowed, scale)
    found = []
    for name, ordinary, exactly, total, root in zip(Results._fields, pytorch, want, sums, roots, strict=True):
        dtype = torch.float32 if name == "lse" else q.dtype
        usual = max(error(ordinary, exactly), torch.finfo(dtype).eps / 2 * float(root))
        found.append(2 * usual + rounding(exactly, dtype) + 4 * 2.0**-24 * float(total))
    return found


def terms(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, dlse: Tensor | None, allowed: Tensor, scale: float | None
) -> tuple[Results, Results]:
    """For each result the largest Σ |term| of its sums, times the largest score where that is above 1, and
    the largest √(Σ term²); for LSE 1 in their place.

    Scores in units of log 2 are rounded at their own size, so that in float32 P errs by |s| · 2⁻²⁴. In 16
    bits P, dS and O are rounded, and with O the sum D = Σ O ∘ dO that every dS of its row takes off.
    """
    q, k, v, do = (x.double() for x in (q, k, v, do))
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, 1) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = (q @ keys.transpose(-1, -2) * factor).masked_fill(~allowed, 0.0)
    o, lse = exact(q, k, v, allowed, scale)
    p = torch.exp(s - lse.masked_fill(lse.isinf(), 0.0)[..., None]).masked_fill(~allowed, 0.0)
    given = torch.zeros_like(lse) if dlse is None else dlse.double()

    def largest(P: Tensor, dS: Tensor, power: int) -> Results:
        """Return Σ |term|^power, the maximum over the entries of each of O, dQ, dK and dV; 1 for LSE."""
        dS, Q, K, V, dO = (x.abs() ** power for x in (dS, q, keys, values, do))
        dk, dv = (x.transpose(-1, -2) @ y for x, y in ((dS, Q), (P**power, dO)))
        dk, dv = (x.unflatten(1, (-1, group)).sum(2).max() for x in (dk, dv))
        return Results((P**power @ V).max(), torch.ones(()), (dS @ K).max(), dk, dv)

    products = (do.abs() * (p @ values.abs())).sum(-1) + given.abs()
    all_of_it = p * (do.abs() @ values.abs().transpose(-1, -2) + products[..., None]) * abs(factor)
    sums = largest(p, all_of_it, 1)
    ds = p * (do @ values.transpose(-1, -2) - ((do * o).sum(-1) - given)[..., None])
    off = (ds**2 + p**2 * ((do * o) ** 2).sum(-1, keepdim=True)).sqrt() * abs(factor)
    roots = largest(p, off, 2)
    return Results(*(max(1.0, float(s.abs().max())) * x for x in sums)), Results(*(x.sqrt() for x in roots))
