"""Almost-linear time: attention whose exponential is a polynomial, so that n × n is never formed.

`attention` and `gradient` compute it, `advise` says for given data whether it is worth using. Read in this
order: `monomials` (features of a row, one folder up), `polynomials` (which polynomial approximates exp, and
its error), `approximation` (that of one head), `numpy_backend` (forward and gradient, of all keys or causal),
`paper_gradient` (the paper's own form of the gradient), `error_certificates` (what is refused); then
`numba_backend` (the same passes compiled), `torch_backend` (for torch, with autograd) and
`per_head`, which chooses among the engines for NumPy arrays. `baselines` are other ways to linear time, for
comparison.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from .advice import Advice, advise
from .error_certificates import NotCertified, RankTooLarge
from .options import checked_options
from .per_head import backward_heads, forward_heads
from .polynomials import Polynomial, largest_error, polynomial, smallest_degree

__all__ = [
    "Advice",
    "Gradient",
    "NotCertified",
    "Polynomial",
    "RankTooLarge",
    "advise",
    "attention",
    "gradient",
    "largest_error",
    "polynomial",
    "smallest_degree",
]


class Gradient(NamedTuple):
    """O (…, n, d_v), dQ (…, n, d), dK (…, n_k, d), dV (…, n_k, d_v)."""

    O: Any
    dQ: Any
    dK: Any
    dV: Any


def attention(
    Q: Any, K: Any, V: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """softmax(scale · Q Kᵀ) V with a polynomial of this degree for the exponential: O (…, n, d_v).

    Q (…, n, d), K (…, n_k, d), V (…, n_k, d_v), NumPy arrays or torch tensors of float32 or float64, all of
    one type; a tensor's result takes part in autograd, its gradient as approximate as the result. Time grows
    with n · rank, rank = C(d + degree, degree); nothing of size n × n exists, and of size n × rank only a
    tile of tokens: memory is that of inputs, outputs and states of rank · (d_v + 1).

    polynomial: "hermite" (each row's own, fitted to the spread of its logits), "taylor", "chebyshev" or
    "minimax". radius: R of the interval of the last two, by default that of the data (in the engine
    "torch" of all heads together). scale: 1/√d where None. bound: no entry of Q and K may be larger.
    causal: row i sees the keys up to i, exactly within its tile; then statistics of the whole sequence are
    not used, so "hermite" needs key_variance, the variance of a key's entries. gradient_degree: the
    polynomial of the gradient, which is one degree less accurate than the result; by default the same.
    engine: "numpy", "numba" or "torch"; by default the fastest, and "numpy" for arrays too small to
    be worth compiling for. threads: for "numba".

    Raises ValueError for shapes that do not go together, entries that are not finite or larger than bound,
    causal with statistics; `RankTooLarge` where the features do not fit in memory; `NotCertified` where a
    denominator may not be positive. Nothing is returned then. Positive is not accurate: except with
    causal=True, a RuntimeWarning says where any polynomial of this degree is off by half in a tenth of the
    rows or more. A backward pass with create_graph=True raises RuntimeError. Source: 2408.13233;
    row-adaptive coefficients are the course's own.
    """
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    if _is_tensor(Q):
        from .torch_backend import attend

        return attend(Q, K, V, options)
    return forward_heads(Q, K, V, options)


def gradient(
    Q: Any, K: Any, V: Any, dO: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None,
) -> Gradient:  # fmt: skip
    """O and the gradient of Σ dO ∘ O by Q, K and V, in almost linear time; options as for `attention`.

    NumPy arrays; for torch tensors call `attention` and let autograd do it, which is this very computation.
    """
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    if _is_tensor(Q):
        raise TypeError("Q is a torch tensor: call attention(Q, K, V, …) and O.backward(dO)")
    return Gradient(*backward_heads(Q, K, V, dO, options))


def _is_tensor(X: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)
