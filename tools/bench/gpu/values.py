"""Whether what is timed is also right: one head of every problem against float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tools.bench.gpu.problem import Pairs

RESULTS = ("O", "dQ", "dK", "dV")
BLOCK = 64  # rows; an error in a few of them must not drown in all the others
# Relative error of the worst block of rows, from which on a result is wrong and not rounded: ten times what
# PyTorch's own kernels show.
WRONG = {"float16": 0.02, "bfloat16": 0.05}


def exact_head(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, seen: Pairs | None = None, rows: int = 1024
) -> dict[str, Tensor]:
    """O, dQ, dK, dV of one head in float64, from q and dO (Nq, d), k and v (Nk, d), by torch's autograd.

    `seen` says which query sees which key; each must see one. None: all see all. `rows` queries at a time.
    """
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    i, j = (torch.arange(len(x), device=x.device) for x in (q, k))
    o = []
    for some in i.split(rows):
        scores = q.shape[1] ** -0.5 * q[some] @ k.T  # (rows, Nk)
        if seen is not None:
            scores = scores.masked_fill(~seen(some[:, None], j[None, :]), float("-inf"))
        o.append(torch.softmax(scores, 1) @ v)  # (rows, d)
        o[-1].backward(do[some].detach().double())  # adds to the gradients of q, k, v
    return dict(zip(RESULTS, (torch.cat(o).detach(), q.grad, k.grad, v.grad), strict=True))


def relative_error(x: Tensor, reference: Tensor) -> float:
    """‖x - reference‖ / ‖reference‖; x and reference (N, d)."""
    return float((x.detach().double() - reference).norm() / reference.norm())


def worst_block(x: Tensor, reference: Tensor) -> float:
    """The largest relative error of any BLOCK rows, NaN where there is one; x and reference (N, d).

    Rows that are nearly 0 count as a hundredth of the mean: a division by them would say nothing.
    """
    off = (x.detach().double() - reference).split(BLOCK)
    least = 0.01 * reference.norm() / len(reference) ** 0.5
    sizes = [torch.maximum(rows.norm(), least * len(rows) ** 0.5) for rows in reference.split(BLOCK)]
    return float(torch.stack([a.norm() / b for a, b in zip(off, sizes, strict=True)]).max())


def errors(found: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> tuple[dict[str, float], float]:
    """The relative error of each result of one head, and the worst block of any of them."""
    each = {name: relative_error(x, reference[name]) for name, x in found.items()}
    return each, float(torch.tensor([worst_block(x, reference[name]) for name, x in found.items()]).max())
