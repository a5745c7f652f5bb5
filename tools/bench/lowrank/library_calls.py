"""Our implementation for the benchmark: low-rank attention of one head, including all checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import iocourse.lowrank as lowrank
from iocourse.lowrank.options import Options
from iocourse.lowrank.per_head import head_forward
from iocourse.lowrank.polynomials import CLIP

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.monomials import Array


def options(causal: bool, d: int, threads: int) -> dict[str, Any]:
    """Return the options of our calls: unscaled scores and, if causal, the variance of keys of length 1."""
    known = {"key_variance": 1 / d} if causal else {}
    return {"scale": 1.0, "causal": causal, "threads": threads, **known}


class Ours:
    """Our calls for q, k, v, do (n, d), as tensors and as arrays in the same memory, at degree g."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, do: Tensor | None, g: int, threads: int = 1,
        causal: bool = False,
    ) -> None:  # fmt: skip
        """Store the inputs and options without computing anything."""
        self._tensors = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        self._arrays = [x.detach().numpy() for x in self._tensors]
        self._do = do
        self._options = {"degree": g, **options(causal, q.shape[1], threads)}

    def forward(self) -> Array:
        """Compute O from arrays."""
        found: Array = lowrank.attention(*self._arrays, **self._options)
        return found

    def backward(self) -> lowrank.Gradient:
        """Compute O, dQ, dK, dV from arrays."""
        assert self._do is not None
        q, k, v = self._arrays
        return lowrank.gradient(q, k, v, self._do.numpy(), **self._options)

    def torch_forward(self) -> Tensor:
        """Compute O from tensors."""
        found: Tensor = lowrank.attention(*(x.detach() for x in self._tensors), **self._options)
        return found

    def torch_backward(self) -> tuple[Tensor, ...]:
        """Compute dQ, dK, dV by autograd."""
        import torch

        o = lowrank.attention(*self._tensors, **self._options)
        found: tuple[Tensor, ...] = torch.autograd.grad(o, self._tensors, self._do)
        return found

    def their_operator(self) -> Array:
        """Compute the published operator with our polynomials, in two passes: row sums, then the output with
        V divided by them.

        In softmax a row's factor e^(q·μ + σ²/2) cancels; here one row's sum divides another row, so
        it does not.
        """
        q, k, v = self._arrays
        options = Options(**self._options)
        first = head_forward(q, k, v, options, options.degree)
        sums = first.found.den * _row_scale(q, first.approximation)
        second = head_forward(q, k, v / sums[:, None], options, options.degree)
        found: Array = second.found.O * sums[:, None]
        return found


def _row_scale(q: Array, s: Any) -> Array:
    """Return e^(q·μ + σ²/2) (n,), the factor that the approximation omits from each row."""
    x = s.queries(q)
    variance = np.minimum(((x @ s.covariance.astype(x.dtype)) * x).sum(1), CLIP)
    scale: Array = np.exp(x @ s.shift.astype(x.dtype) + variance / 2)
    return scale
