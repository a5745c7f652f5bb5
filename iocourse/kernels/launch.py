"""One attention, forward and backward, from torch tensors to kernel launches: the way is chosen here."""

from __future__ import annotations

import torch
from torch import Tensor

from . import launch_scores, launch_small_cache, launch_whole, mode
from .layout import as_asked, readable
from .seen import Seen
from .way import checked, way_for

_FORWARD = {
    "whole": launch_whole.forward,
    "fused": launch_small_cache.forward,
    "materialised": launch_scores.forward,
}
_BACKWARD = {
    ("whole", False): launch_whole.fused,
    ("whole", True): launch_whole.split,
    # No atomic additions in these, so that the order of every sum is fixed anyway.
    **{("fused", fixed): launch_small_cache.backward for fixed in (False, True)},
    **{("materialised", fixed): launch_scores.backward for fixed in (False, True)},
}


def forward(
    q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, way: str = ""
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. way: "whole", "fused",
    "materialised", or "" for what suits the chip (see `way_for`).
    """
    fit_q, fit_k, fit_v = readable(q, k, v)
    chosen = checked(way or way_for("forward", fit_q, seen), "forward", fit_q, seen)
    with mode.on(q.device):
        o, lse = _FORWARD[chosen](fit_q, fit_k, fit_v, seen, scale)
    return as_asked(q, o), lse


def backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    seen: Seen, scale: float, deterministic: bool, way: str = "",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None) and what `forward` kept."""
    asked = q, k, v
    do, q, k, v, o = readable(do, q, k, v, o)
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    which = "split" if deterministic else "fused"
    chosen = checked(way or way_for(which, q, seen), which, q, seen)
    with mode.on(q.device):
        gradients = _BACKWARD[chosen, deterministic](q, k, v, o, do, lse.contiguous(), dlse, seen, scale)
    dq, dk, dv = (as_asked(x, got) for x, got in zip(asked, gradients, strict=True))
    return dq, dk, dv
