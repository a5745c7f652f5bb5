"""The launches that low-rank attention makes on one architecture: what resource reports are about."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels.host.launches import Launch, written_down
from ...monomials import plan
from .launched import low_rank_backward, low_rank_forward
from .launched_causal import causal_low_rank_backward, causal_low_rank_forward

SIZES = ((12, 2), (12, 3))  # d = dv and degree, as `python -m tools.bench lowrank` times them
N, HEADS = 4096, 2


class Written(NamedTuple):
    """One kernel to compile: rows of a tile (of `sum` and `before`: spans) by features of a block."""

    arch: int
    d: int
    g: int
    bytes: int
    kernel: str
    causal: bool
    rows: int
    features: int
    warps: int


def launches(arch: int, d: int, g: int, width: int) -> dict[Written, Launch]:
    """Every kernel of both passes, for all keys and causal, as launched for N = 4096 with each query's σ².

    Args:
        arch: 90, say.
        d: columns of Q, K and V.
        g: the degree.
        width: bytes of a number of these: 2, bfloat16 (float16 on sm_75), or 4.
    """
    half = torch.float16 if arch == 75 else torch.bfloat16
    p, dtype = plan(d, g), half if width == 2 else torch.float32
    q, k, v, do = (torch.empty(1, HEADS, N, d, dtype=dtype) for _ in range(4))
    setting = p, torch.empty(p.rank), torch.empty(1, HEADS, N)
    shift = torch.empty(1, HEADS, d)
    made: dict[Written, Launch] = {}
    with written_down(arch) as written:
        kept = low_rank_forward(q, k, v, *setting, shift=shift)
        low_rank_backward(q, k, v, *kept, do, *setting, shift=shift)
        both = len(written)
        o, den = causal_low_rank_forward(q, k, v, *setting)
        causal_low_rank_backward(q, k, v, o, den, do, *setting)
        for at, one in enumerate(written):
            name = one.kernel.fn.__name__.removesuffix("_kernel")
            if "TILE" in one.constants:
                rows, features = one.constants["TILE"][:2]
            else:
                rows, features = one.constants["SPANS"], one.constants["BR"]
            size = rows, features, one.constants["num_warps"]
            made[Written(arch, d, g, width, name, at >= both, *size)] = one
    return made
