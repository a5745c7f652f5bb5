"""Low-rank attention of torch tensors as one autograd function: `attend`.

Q, K, V, O, the denominators and a state of rank × (d_v + 1) numbers per head are saved for the backward pass.
On the CPU `per_head` computes one head after the other. On other devices the same passes, written in torch at
the end of this file, compute all heads at once: Q (H, n, d), K (H, n_k, d), V (H, n_k, d_v). They hold the
features of one tile of tokens at a time; no n × rank array is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import factorial, inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..monomials import Plan, plan, rank_of
from . import error_certificates, per_head
from . import numba_backend as fast
from .numpy_backend import CAUSAL_TILE, slices
from .options import Options, check_shapes
from .per_head import Attended
from .polynomials import CLIP, Polynomial
from .statistics import FIRST, add_gradient, of_second_derivative, value_offset

EXACT_TYPES = (torch.float32, torch.float64)
SHORT_TYPES = (torch.float16, torch.bfloat16)
FEATURE_WORDS = 1 << 22  # words of one tile of features, over all heads
CPU_WORDS = 1 << 19  # the same on a CPU: several tiles fit in its cache


def attention_with_autograd(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> Tensor:
    """Return `lowrank.attention` of tensors, with autograd. Raises TypeError for other types."""
    for name, X in (("K", K), ("V", V)):
        if not isinstance(X, Tensor) or X.dtype != Q.dtype or X.device != Q.device:
            what = f"{X.dtype} on {X.device}" if isinstance(X, Tensor) else type(X).__name__
            raise TypeError(f"{name} must have the type and device of Q, {Q.dtype} on {Q.device}, got {what}")
    if Q.dtype in SHORT_TYPES:  # computed in float32
        return attention_with_autograd(Q.float(), K.float(), V.float(), options).to(Q.dtype)
    if Q.dtype not in EXACT_TYPES:
        allowed = "float32, float64, float16 or bfloat16"
        raise TypeError(f"Q must have dtype {allowed}, got {Q.dtype}")
    if options.threads is None:
        options = replace(options, threads=torch.get_num_threads())
    found: Tensor = _Attention.apply(Q.resolve_neg(), K.resolve_neg(), V.resolve_neg(), options)
    return found


def _engine(Q: Tensor, options: Options) -> str:
    """Return the engine for this tensor. Raises ValueError if the requested one needs the CPU."""
    if options.engine is None:
        return "numba" if Q.device.type == "cpu" and fast.installed() else "torch"
    if options.engine in ("numpy", "numba") and Q.device.type != "cpu":
        raise ValueError(f"engine={options.engine!r} needs tensors on the CPU, but Q is on {Q.device}")
    return options.engine


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, Q: Tensor, K: Tensor, V: Tensor, options: Options) -> Tensor:
        in_numpy = _engine(Q, options) in ("numba", "numpy")
        runner = _Heads(options) if in_numpy else _Batch(options)
        with torch.autocast(Q.device.type, enabled=False):
            O = runner.forward(Q, K, V)
        ctx.runner = runner
        ctx.save_for_backward(Q, K, V, O)  # O too, so that autograd sees it changed in place
        return O

    @staticmethod
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # otherwise the result would silently be treated as a constant
            raise RuntimeError(
                "the gradient of lowrank.attention was requested with create_graph=True, and it cannot be "
                "differentiated again. Pass create_graph=False; for second derivatives, as of a gradient "
                "penalty, use exact attention: softmax(scale * Q @ K.mT) @ V in torch."
            )
        with torch.autocast(dO.device.type, enabled=False):
            return (*ctx.runner.backward(*ctx.saved_tensors, dO.resolve_neg()), None)


class _Heads:
    """Passes on the CPU: one head after the other, on NumPy arrays that share the tensors' memory."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.was: list[Attended] = []

    def forward(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        q, k, v = (X.detach().numpy() for X in (Q, K, V))
        each, self.options = per_head.checked(q, k, v, self.options)
        self.was = [per_head.head_forward(*head, self.options, self.options.degree) for head in each]
        O = _joined([w.found.O for w in self.was], (*Q.shape[:-1], V.shape[-1]))
        nothing = np.empty((0, 0), q.dtype)  # O is stored only once
        self.was = [w._replace(found=w.found._replace(O=nothing)) for w in self.was]
        return O

    def backward(
        self, Q: Tensor, K: Tensor, V: Tensor, O: Tensor, dO: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        arrays = [X.detach().numpy().reshape(-1, *X.shape[-2:]) for X in (Q, K, V, O, dO)]
        found = []
        for q, k, v, o, g, was in zip(*arrays, self.was, strict=True):
            whole = was._replace(found=was.found._replace(O=o))
            found.append(per_head.head_backward(q, k, v, whole, g, self.options))
        each = zip(*found, strict=True)
        dQ, dK, dV = (_joined(list(x), like.shape) for x, like in zip(each, (Q, K, V), strict=True))
        return dQ, dK, dV


def _joined(arrays: list[Any], shape: tuple[int, ...]) -> Tensor:
    """Join one array per head to one tensor of this shape, without a copy if there is one head."""
    whole = arrays[0] if len(arrays) == 1 else np.stack(arrays)
    return torch.from_numpy(whole.reshape(shape))  # not a view in autograd: it may be changed in place


class _Batch:
    """Passes in torch on any device, for all heads at once."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def forward(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        q, k, v = self._checked(Q, K, V)
        found, self.approximation = self._at(q, k, v, self.options.degree)
        O = _in_shape(found.O, (*Q.shape[:-1], V.shape[-1]))
        self.found = found._replace(O=O.new_empty(0))  # O is stored only once
        return O

    def backward(
        self, Q: Tensor, K: Tensor, V: Tensor, O: Tensor, dO: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, o, g = (X.reshape(-1, *X.shape[-2:]) for X in (Q, K, V, O, dO))
        found, s = self.found._replace(O=o), self.approximation
        if self.options.gradient_degree not in (None, s.plan.g):
            found, s = self._at(q, k, v, self.options.gradient_degree or 0)
        offset = value_offset(v, self.options.causal)
        v, found = v - offset, found._replace(O=found.O - offset)
        if self.options.causal:  # made without the offset
            found.O[:, :FIRST] = _first_tile(q, k, v, s)
        back = causal_backward if self.options.causal else backward
        dQ, dK, dV = back(q, k, v, found, g, s)
        add_gradient(dQ, dK, q, k, g, found, self._two_degrees_lower(q, k, v, found, s), s)
        sizes = [torch.linalg.vector_norm(X, 1) for X in (dV, g)]
        fine = torch.stack([_finite(X) for X in (dQ, dK, dV)] + [sizes[0] <= 2 * sizes[1]]).all()
        if not bool(fine | ~_finite(g)):  # one transfer, so a GPU is synchronised once
            for name, X in (("dQ", dQ), ("dK", dK), ("dV", dV)):
                error_certificates.check_gradient(
                    s.polynomial, name, 0.0 if bool(X.isfinite().all()) else inf
                )
            error_certificates.check_gradient(s.polynomial, "dV", 0.0, (float(sizes[0]), float(sizes[1])))
        return dQ.view(Q.shape), dK.view(K.shape), dV.view(V.shape)

    def _checked(self, Q: Tensor, K: Tensor, V: Tensor) -> list[Tensor]:
        check_shapes(Q.shape, K.shape, V.shape, self.options.causal)
        q, k, v = (X.detach().reshape(-1, *X.shape[-2:]) for X in (Q, K, V))
        # None: the machine's main memory
        memory = torch.cuda.get_device_properties(Q.device).total_memory if Q.is_cuda else None
        for g in {self.options.degree, self.options.gradient_degree or self.options.degree}:
            error_certificates.check_rank(Q.shape[-1], g, V.shape[-1], len(q), Q.element_size(), memory)
        bound = inf if self.options.bound is None else self.options.bound
        sizes = torch.stack([_largest(X) for X in (q, k, v)])
        fine = sizes.isfinite().all() & (sizes[:2] <= bound).all()
        if not bool(fine):  # one transfer, so a GPU is synchronised once
            for name, X in (("Q", q), ("K", k), ("V", v)):
                for head in X.cpu().numpy():
                    error_certificates.check_finite(name, head)
                    error_certificates.check_bound(name, head, self.options.bound if name != "V" else None)
        return [q, k, v]

    def _at(self, q: Tensor, k: Tensor, v: Tensor, g: int) -> tuple[BatchForward, BatchApproximation]:
        """Return the certified result at degree g, and its approximation."""
        options, p = self.options, plan(q.shape[-1], g)
        factor = options.factor(q.shape[-1])
        shift = None if options.causal else k.mean(1, keepdim=True)
        made = options.make_polynomial(g)
        weights = _weights(p, made, k)
        covariance = self._covariance(k, shift) if made.per_row else None
        fitted = made.per_row and options.key_variance is None
        s = BatchApproximation(p, made, weights, factor, shift, covariance, fitted)
        attended = causal_forward if options.causal else forward
        offset = value_offset(v, options.causal)
        found = attended(q, k, v - offset, s)
        self._certify(q, k, v - offset, found, s)
        found.O.add_(offset)
        if options.causal:  # no row may depend on later tokens, and the offset is that of the first tile
            found.O[:, :FIRST] = _first_tile(q, k, v, s)
        return found, s

    def _two_degrees_lower(
        self, q: Tensor, k: Tensor, v: Tensor, f: BatchForward, s: BatchApproximation
    ) -> Tensor | None:
        """Return [N, den] (H, n, d_v + 1) of degree g - 2, as `per_head` does for one head."""
        if s.covariance is None or (s.plan.g == 1 and not self.options.causal):
            return None
        low = of_second_derivative(s)
        low = replace(low, weights=_weights(low.plan, low.polynomial, k))
        if not self.options.causal:
            return from_state(q, f.T[:, : rank_of(s.plan.d, s.plan.g - 2)], low)
        found = causal_forward(q, k, v, low)
        return _with_ones(found.O) * found.den[..., None]

    def _certify(self, q: Tensor, k: Tensor, v: Tensor, found: BatchForward, s: BatchApproximation) -> None:
        """Raise or warn if `error_certificates` does not certify the result; otherwise do nothing.

        A certified result synchronises a GPU once, but in causal attention with a polynomial that is not
        positive everywhere at least once per head.
        """
        causal, made, n_k = self.options.causal, s.polynomial, k.shape[1]
        within = error_certificates.within(_extent(found.O), _extent(v))
        accurate: Any = True
        if not causal:  # causal attention must not use statistics of the whole sequence
            variances = self._variances(q, k, s)
            accurate = error_certificates.is_accurate(variances.mean(1), s.plan.g).all()
        if made.positive_to == inf or not causal:
            least = error_certificates.POSITIVE if causal else n_k / 2
            if bool(((found.den >= least) & (found.den < inf)).all() & within & accurate):
                return
        counts: Any = np.arange(1, q.shape[1] + 1) if causal else n_k
        for x, y, den in zip(q, s.keys(k), found.den, strict=True):
            rows = partial(_on_cpu, x * s.factor, y)
            error_certificates.check_denominators(made, rows, den.cpu().numpy(), counts, centred=not causal)
        if not bool(within):
            error_certificates.refuse_output(made, bool(found.O.isfinite().all()))
        if not bool(accurate):
            error_certificates.warn_of_error(variances.cpu().numpy(), s.plan.g)

    def _variances(self, q: Tensor, k: Tensor, s: BatchApproximation) -> Tensor:
        """Return the variance of the logits of each row, (H, n)."""
        given = self.options.key_variance is not None or s.covariance is None
        covariance = key_covariance(k, s.shift) if given else s.covariance
        x = q * s.factor
        return ((x @ covariance) * x).sum(-1)

    def _covariance(self, keys: Tensor, shift: Tensor) -> Tensor:
        """Return the covariance of the keys, (H, d, d), or key_variance · I if that option is given."""
        if self.options.key_variance is None:
            return key_covariance(keys, shift)
        unit = torch.eye(keys.shape[-1], dtype=keys.dtype, device=keys.device)
        return (self.options.key_variance * unit).expand(len(keys), -1, -1)


def _in_shape(X: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return X in this shape and memory, but not as an autograd view, so that it may be changed in place."""
    X = X.contiguous()
    return X.new_empty(0).set_(X.untyped_storage(), X.storage_offset(), shape)


def _largest(X: Tensor) -> Tensor:
    """Return the largest absolute entry (NaN if one is NaN), without a temporary array of the size of X."""
    return torch.linalg.vector_norm(X, torch.inf)


def _finite(X: Tensor) -> Tensor:
    """Return True, as a tensor, if all entries are finite."""
    return _largest(X).isfinite()


def _extent(X: Tensor) -> Any:
    """Return the Extent of the columns of X (H, n, m) for every head, as tensors."""
    return error_certificates.Extent(X.amin(1), X.amax(1))


def _on_cpu(q: Tensor, k: Tensor) -> tuple[Any, Any]:
    return q.cpu().numpy(), k.cpu().numpy()


# ---- the passes in torch, for many heads at once and on any device


@dataclass(frozen=True)
class BatchApproximation:
    """`Approximation` for H heads: weights (rank, 1); shift (H, 1, d) and covariance (H, d, d), or None."""

    plan: Plan
    polynomial: Polynomial
    weights: Tensor
    factor: float
    shift: Tensor | None
    covariance: Tensor | None
    fitted: bool = False

    def keys(self, K: Tensor) -> Tensor:
        return K if self.shift is None else K - self.shift

    def times_row_factors(self, found: Tensor, x: Tensor, true_scale: bool = False) -> Tensor:
        """Multiply the features (H, rank, n) of x (H, n, d) in place by `Approximation.row_factors`."""
        if self.covariance is None:
            return found
        g, starts = self.plan.g, self.plan.starts
        variance = ((x @ self.covariance) * x).sum(-1).clamp(max=CLIP)  # (H, n)
        terms = [(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)]
        series = torch.stack(terms, 1).cumsum(1)  # (H, ⌊g/2⌋ + 1, n)
        if true_scale:
            series *= (variance / 2).exp()[:, None]
        for degree in range(g + 1 if true_scale else g - 1):  # of the others it is 1
            found[:, starts[degree] : starts[degree + 1]] *= series[:, None, (g - degree) // 2]
        return found


class BatchForward(NamedTuple):
    """Result of a forward pass: O (H, n, d_v), denominators den (H, n), state T (H, rank, d_v + 1)."""

    O: Tensor
    den: Tensor
    T: Tensor


def features(x: Tensor, p: Plan) -> Tensor:
    """Return the monomials of x (H, n, d): (H, rank, n)."""
    found = x.new_empty(len(x), p.rank, x.shape[1])
    found[:, 0] = 1
    found[:, 1 : p.d + 1] = x.mT
    for step in p.steps:
        source = found[:, step.source : step.source + step.last - step.first]
        torch.mul(source, x[:, None, :, step.axis], out=found[:, step.first : step.last])
    return found


def features_vjp(dfeatures: Tensor, found: Tensor, x: Tensor, p: Plan) -> Tensor:
    """Return the gradient of x (H, n, d) from that of its features, which is overwritten."""
    dx = torch.zeros_like(x)
    # A feature's gradient is complete when all features made from it have passed theirs on.
    for step in reversed(p.steps):
        source = slice(step.source, step.source + step.last - step.first)
        up = dfeatures[:, step.first : step.last]
        dx[:, :, step.axis] += (up * found[:, source]).sum(1)
        dfeatures[:, source] += up * x[:, None, :, step.axis]
    return dx + dfeatures[:, 1 : p.d + 1].mT


def _weights(p: Plan, made: Polynomial, like: Tensor) -> Tensor:
    """Return the weight of each monomial in the polynomial, (rank, 1)."""
    return torch.as_tensor(made.coefficients[p.degrees] * p.multiplicities).to(like)[:, None]


def _with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)


def _over_denominators(f: BatchForward, dO: Tensor, rows: slice) -> Tensor:
    """Return [dO, -δ] / den of these rows."""
    g = dO[:, rows]
    return torch.cat([g, -(g * f.O[:, rows]).sum(-1, keepdim=True)], -1) / f.den[:, rows, None]


def _room(Q: Tensor, V: Tensor, T: Tensor) -> BatchForward:
    """Return a BatchForward with uninitialised O and den, and the state T."""
    n = Q.shape[1]
    return BatchForward(V.new_empty(len(Q), n, V.shape[-1]), V.new_empty(len(Q), n), T)


def _divide(f: BatchForward, rows: slice, found: Tensor) -> None:
    """Store O and den of these rows in f, from their [N, den]."""
    f.den[:, rows] = found[..., -1]
    torch.div(found[..., :-1], found[..., -1:], out=f.O[:, rows])


def _tile(Q: Tensor, rank: int) -> int:
    words = FEATURE_WORDS if Q.is_cuda else CPU_WORDS
    return max(64, words // (len(Q) * rank))


def key_covariance(K: Tensor, shift: Tensor) -> Tensor:
    """Return the covariance (H, d, d) of the rows of K (H, n, d) about shift (H, 1, d), tile by tile."""
    n, d = K.shape[1:]
    tiles = (K[:, rows] - shift for rows in slices(n, _tile(K, d)))
    found: Tensor = sum(x.mT @ x for x in tiles) / n
    return found


def forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> BatchForward:
    """Return `numpy_backend.forward` of all heads."""
    tile = _tile(Q, s.plan.rank)
    T = Q.new_zeros(len(Q), s.plan.rank, V.shape[-1] + 1)
    for rows in slices(K.shape[1], tile):
        T += features(s.keys(K[:, rows]), s.plan) @ _with_ones(V[:, rows])
    T *= s.weights
    found = _room(Q, V, T)
    for rows in slices(Q.shape[1], tile):
        _divide(found, rows, from_state(Q[:, rows], T, s))
    return found


def from_state(Q: Tensor, T: Tensor, s: BatchApproximation) -> Tensor:
    """Return [N, den] (H, n, d_v + 1) from the weighted state T, which may have fewer features than s."""
    tiles = (Q[:, rows] * s.factor for rows in slices(Q.shape[1], _tile(Q, s.plan.rank)))
    found = [s.times_row_factors(features(x, s.plan), x)[:, : T.shape[1]].mT @ T for x in tiles]
    return torch.cat(found, 1)


def backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchApproximation
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dQ, dK, dV of all heads, as `numpy_backend.backward` does for one."""
    tile = _tile(Q, s.plan.rank)
    dQ, dK, dV = torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    U = torch.zeros_like(f.T)
    for rows in slices(Q.shape[1], tile):
        dQ[:, rows] = _queries_back(U, Q[:, rows] * s.factor, f.T, _over_denominators(f, dO, rows), s)
    U *= s.weights
    for rows in slices(K.shape[1], tile):
        dK[:, rows], dV[:, rows] = _keys_back(U, s.keys(K[:, rows]), V[:, rows], s)
    return dQ, dK, dV


def _queries_back(U: Tensor, x: Tensor, T: Tensor, g: Tensor, s: BatchApproximation) -> Tensor:
    """Return dQ of a tile of scaled queries x, from g = [dO, -δ] / den, and add the tile's contribution to U.

    At most two arrays of the size of the tile's features exist at a time.
    """
    phi = features(x, s.plan)
    dx = features_vjp(s.times_row_factors(T @ g.mT, x), phi, x, s.plan)
    U += s.times_row_factors(phi, x) @ g
    return dx * s.factor


def _keys_back(U: Tensor, x: Tensor, values: Tensor, s: BatchApproximation) -> tuple[Tensor, Tensor]:
    """Return dK and dV of a tile of shifted keys x."""
    psi = features(x, s.plan)
    return features_vjp(U @ _with_ones(values).mT, psi, x, s.plan), (psi.mT @ U)[..., :-1]


def _inside(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT).exp().tril()


def causal_forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> BatchForward:
    """Return `numpy_backend.causal_forward` of all heads."""
    T = Q.new_zeros(len(Q), s.plan.rank, V.shape[-1] + 1)
    found = _room(Q, V, T)
    for rows in slices(Q.shape[1], CAUSAL_TILE):
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        phi = s.times_row_factors(features(x, s.plan), x, true_scale=True)
        _divide(found, rows, phi.mT @ T + _inside(x, k) @ values)
        T += s.weights * (features(k, s.plan) @ values)
    return found


def _first_tile(Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> Tensor:
    """Return O of the first tile, which does not depend on the other tokens."""
    return causal_forward(Q[:, :FIRST], K[:, :FIRST], V[:, :FIRST], s).O


def causal_backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchApproximation
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dQ, dK, dV of all heads, as `numpy_backend.causal_backward` does for one."""
    dQ, dK, dV = torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    tiles = slices(Q.shape[1], CAUSAL_TILE)
    T, U = torch.zeros_like(f.T), torch.zeros_like(f.T)
    for rows in tiles:
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        g = _over_denominators(f, dO, rows)
        far = s.times_row_factors(T @ g.mT, x, true_scale=True)
        near = _inside(x, k) * (g @ values.mT)
        dQ[:, rows] = (features_vjp(far, features(x, s.plan), x, s.plan) + near @ k) * s.factor
        T += s.weights * (features(k, s.plan) @ values)
    for rows in reversed(tiles):
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        near, psi, g = _inside(x, k), features(k, s.plan), _over_denominators(f, dO, rows)
        dV[:, rows] = (psi.mT @ U + near.mT @ g)[..., :-1]
        dK[:, rows] = features_vjp(U @ values.mT, psi, k, s.plan) + (near * (g @ values.mT)).mT @ x
        phi = s.times_row_factors(features(x, s.plan), x, true_scale=True)
        U += s.weights * (phi @ g)
    return dQ, dK, dV
