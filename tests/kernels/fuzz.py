"""Random cases of attention, with an error bound for each element of each result: the first-order effect of
the roundings of its terms.

Scores are sums of d products in float32; P, dS and O are rounded to the type of the products' inputs; sums of
products are float32; each result is rounded at the end. Every rounding counts as a full half unit, and
roundings do not cancel.
"""

import math
import random
from itertools import accumulate
from typing import Any, NamedTuple

import reference_attention
import torch
from torch import Tensor

from iocourse.kernels import (
    attention_varlen_with_lse,
    attention_with_lse,
    tiled_mask,
    using,
)
from iocourse.kernels.host.choices import SLICED, WHOLE

SINGLE = 2.0**-24  # half a unit of float32
TINY = 2.0**-126  # what is smaller in float32 may be 0
# Half a unit, and half the smallest number, of what tensors are rounded to.
UNITS = {torch.float16: (2.0**-11, 2.0**-25), torch.bfloat16: (2.0**-8, TINY), torch.float32: (SINGLE, TINY)}
FLOATS = 8  # roundings of a number on its way: units of log 2, the exponential, the rescaling, the quotient


class Case(NamedTuple):
    """One call of `attention_with_lse`, or with `lengths` (queries, keys) of `attention_varlen_with_lse`."""

    seed: int
    dtype: torch.dtype
    batches: int
    heads: tuple[int, int]
    sizes: tuple[int, int]
    d: int
    layouts: tuple[str, ...]
    size: float
    lengths: tuple[tuple[int, int], ...] | None
    blocks: Tensor | None
    tiles: dict[str, tuple[int, ...]]
    options: dict[str, Any]


def drawn(seed: int) -> Case:
    """The case of a seed: tiny shapes in tiles as tiny, so that every kind of tile and border comes up."""
    dice = random.Random(seed)
    group, kv_heads = dice.choice([1, 1, 2, 3]), dice.choice([1, 1, 2])
    n_q, n_k = (dice.choice([1, dice.randint(2, 40), 16, 32]) for _ in range(2))
    d = dice.choice([1, dice.randint(2, 24), 16, 32])
    kind = dice.choice(["band", "band", "band", "slices", "blocks", "packed", "packed"])
    options: dict[str, Any] = {
        "scale": dice.choice([None, None, 0.7, -0.3, 0]),
        "deterministic": dice.choice([None, False, True]),
    }
    lengths = blocks = None
    if kind == "packed":
        lengths = tuple((dice.randint(0, 20), dice.randint(0, 20)) for _ in range(dice.randint(1, 3)))
        n_q, n_k = (max(1, sum(pair[side] for pair in lengths)) for side in (0, 1))
        longest = tuple(max(pair[side] for pair in lengths) for side in (0, 1))
        short = any(sum(pair[side] for pair in lengths) == 0 for side in (0, 1))
        options["longest"] = longest if short else dice.choice([None, longest])
    if kind == "slices":
        options["tile_d"] = dice.choice(["fused", "materialised"])
    if kind == "blocks":
        generator = torch.Generator().manual_seed(seed)
        n_q, n_k = max(n_q, 17), max(n_k, 17)  # blocks of 16 and of no other size
        shape = -(-n_q // 16), -(-n_k // 16)
        blocks = torch.rand(shape, generator=generator) < 0.6
    else:
        side = limit_of(dice)
        options |= {
            "causal": dice.choice([False, True, "upper_left", "lower_right"]),
            "window": dice.choice([None, None, (side(), side())]),
        }
        if options["causal"] in (False, True):
            options["align"] = dice.choice([None, "upper_left", "lower_right"])
    names = [*WHOLE, *SLICED]
    tiles = {name: tuple(dice.choice([16, 32]) for _ in range(2)) for name in names}
    tiles |= {name: (*tiles[name], 16) for name in SLICED}
    return Case(
        seed, dice.choice([torch.float32, torch.float16, torch.float16, torch.bfloat16]),
        1 if lengths else dice.choice([1, 1, 2]), (group * kv_heads, kv_heads), (n_q, n_k), d,
        tuple(dice.choice(list(LAYOUTS)) for _ in range(4)), dice.choice([0.3, 1.0, 1.0, 3.0]),
        lengths, blocks, tiles, options,
    )  # fmt: skip


def limit_of(dice: random.Random) -> Any:
    """Draws a limit of a window."""
    return lambda: dice.choice([None, -1, 0, dice.randint(1, 30), 2**31 - 1])


LAYOUTS = {
    "plain": lambda x: x.contiguous(),
    "rows first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "columns first": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every other row": lambda x: torch.stack([x, x + 1], 3).flatten(2, 3)[:, :, ::2],
    "one for all heads": lambda x: x[:, :1].expand_as(x),
}


def tensors(case: Case) -> list[Tensor]:
    """q, k, v, dO in their layouts, and dLSE; all are numbers of the case's type."""
    generator = torch.Generator().manual_seed(case.seed)
    (H, H_kv), (n_q, n_k) = case.heads, case.sizes
    made = []
    for heads, rows, layout in zip((H, H_kv, H_kv, H), (n_q, n_k, n_k, n_q), case.layouts, strict=True):
        x = torch.randn((case.batches, heads, rows, case.d), generator=generator) * case.size
        made.append(LAYOUTS[layout](x.to(case.dtype)))
    return [*made, torch.randn((case.batches, H, n_q), generator=generator)]


def allowed_of(case: Case) -> Tensor:
    """Return the visible pairs (n_q, n_k), derived only from `attention`'s docstring."""
    band = [case.options.get(name) for name in ("causal", "window", "align")]
    if case.blocks is not None:
        whole = case.blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)
        return whole[: case.sizes[0], : case.sizes[1]]
    if case.lengths is None:
        return reference_attention.seen(*case.sizes, *band)
    whole = torch.zeros(case.sizes, dtype=torch.bool)
    i = j = 0
    for n_q, n_k in case.lengths:
        whole[i : i + n_q, j : j + n_k] = reference_attention.seen(n_q, n_k, *band)
        i, j = i + n_q, j + n_k
    return whole


def call(case: Case) -> Any:
    """attend(q, k, v) -> O and LSE, (B, H, N, …)."""
    if case.lengths is None:
        if case.blocks is None:
            return lambda *x: attention_with_lse(*x, **case.options)
        return lambda q, k, v: attention_with_lse(
            q, k, v, block_mask=tiled_mask(case.blocks, q, k), **case.options
        )
    cu = [
        torch.tensor([0, *accumulate(pair[side] for pair in case.lengths)], dtype=torch.int32)
        for side in (0, 1)
    ]

    def attend(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        o, lse = attention_varlen_with_lse(*(x[0].transpose(0, 1) for x in leaves), *cu, **case.options)
        return o.transpose(0, 1)[None], lse[None]

    return attend


def bounds(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, dlse: Tensor, allowed: Tensor, scale: float | None
) -> reference_attention.Results:
    """For every element of every result the most it may err, to first order; float64."""
    dtype, n, group = q.dtype, allowed.shape[1], q.shape[1] // k.shape[1]
    unit, least = last, smallest = UNITS[dtype]
    d, rows = q.shape[-1], group * allowed.shape[0]
    factor = abs(1 / math.sqrt(d) if scale is None else scale)
    o, lse = reference_attention.exact(q, k, v, allowed, scale)
    q, k, v, do, dlse = (x.double() for x in (q, k, v, do, dlse))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    there = allowed.double()
    s = q @ k.mT * (1 / math.sqrt(d) if scale is None else scale)
    p = torch.exp(s - lse.masked_fill(lse.isinf(), 0.0)[..., None]).masked_fill(~allowed, 0.0)
    finite = lse.masked_fill(lse.isinf(), 0.0).abs()

    # What an exponent may err, and so by what part of itself a weight may: its sum, and numbers of its size.
    terms = (q.abs() @ k.abs().mT) * factor
    of_s = SINGLE * ((d + 2) * terms + FLOATS * (s.abs() + finite[..., None] + 1))
    of_row = (p * of_s).sum(-1, keepdim=True) + (n + FLOATS) * SINGLE  # of the sum of a row's weights
    of_lse = of_row[..., 0] + FLOATS * SINGLE * (finite + 1)
    part = of_s + of_row + of_lse[..., None]
    # Weights are rounded relative to the running maximum, where they are at least as large as at the end.
    of_o = (p * (part + unit + (n + FLOATS) * SINGLE)) @ v.abs() + least * there @ v.abs()
    stored_o = of_o + last * o.abs() + smallest
    delta = (do * o).sum(-1) - dlse
    of_delta = (stored_o * do.abs()).sum(-1) + (d + 2) * SINGLE * ((do * o).abs().sum(-1) + dlse.abs())
    dp = do @ v.mT
    inner = dp - delta[..., None]
    of_inner = (d + 2) * SINGLE * (do.abs() @ v.abs().mT) + of_delta[..., None] + 2 * SINGLE * inner.abs()
    ds = p * inner
    of_ds = p * of_inner + ds.abs() * (part + unit + 2 * SINGLE) + least * there
    sums_q, sums_k = (n + FLOATS) * SINGLE, (rows + FLOATS) * SINGLE
    of_dq = factor * ((of_ds + sums_q * ds.abs()) @ k.abs())
    of_dk = factor * ((of_ds + sums_k * ds.abs()).mT @ q.abs())
    of_dv = (p * (part + unit + sums_k) + least * there).mT @ do.abs()
    of_dk, of_dv = (x.unflatten(1, (-1, group)).sum(2) for x in (of_dk, of_dv))
    return reference_attention.Results(of_o, of_lse, of_dq, of_dk, of_dv)


def worst(case: Case) -> float:
    """The largest error of an element as a part of its bound, over all results; NaN counts as infinite."""
    q, k, v, do, dlse = tensors(case)
    allowed, scale = allowed_of(case), case.options["scale"]
    with using(**case.tiles):
        got = reference_attention.results(call(case), q, k, v, do, dlse)
    doubles = (x.double() for x in (q, k, v, do, dlse))
    want = reference_attention.results(lambda *x: reference_attention.exact(*x, allowed, scale), *doubles)
    last, smallest = UNITS[case.dtype]
    found = 0.0
    for name, one, exactly, bound in zip(
        want._fields, got, want, bounds(q, k, v, do, dlse, allowed, scale), strict=True
    ):
        rounding = 0.0 if name == "lse" else last * exactly.abs().nan_to_num(posinf=0.0) + smallest
        off = torch.where(one.double() == exactly, 0.0, (one.double() - exactly).abs()).nan_to_num(
            nan=math.inf
        )
        found = max(found, float((off / (bound + rounding + 1e-300)).max()))
    return found
