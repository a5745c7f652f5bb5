"""Low-rank attention of torch tensors: autograd and torch.func, engines, and certificates of engine "torch".

Q, K, V, O, the denominators and a state of rank × (d_v + 1) numbers per head are saved for the backward pass.
On the CPU `per_head` computes one head after the other, on NumPy arrays that share the tensors' memory. On
other devices `torch_passes` computes all heads at once, and this module certifies its results.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..monomials import plan, rank_of
from . import error_certificates, per_head
from . import numba_backend as fast
from . import torch_passes as passes
from .numpy_backend import Forward, Gradients
from .options import Options, check_entries, check_shapes, head_approximation
from .statistics import FIRST, add_gradient, of_second_derivative, value_offset
from .torch_passes import BatchApproximation, BatchForward

EXACT_TYPES = (torch.float32, torch.float64)
SHORT_TYPES = (torch.float16, torch.bfloat16)
EXACT = "use exact attention: softmax(scale * Q @ K.mT) @ V in torch."


def attention_with_autograd(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> Tensor:
    """Return `lowrank.attention` of tensors, with autograd. Raises TypeError for other types."""
    exact, options = _checked_types(Q, K, V, options)
    O, *_ = _Attention.apply(*exact, options)
    found: Tensor = O.to(Q.dtype)
    return found


def attention_with_state(
    Q: Tensor, K: Tensor, V: Tensor, options: Options,
    T: Tensor | None, offset: Tensor, largest: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return O (…, n, d_v) of causal attention that continues a state, and T after the complete tiles of K.

    Args:
        Q: queries of the last n tokens, (…, n, d).
        K: keys from the incomplete tile of the state on, (…, n_k, d).
        V: their values, (…, n_k, d_v).
        options: with causal=True.
        T: sums over earlier complete tiles, without weights, (…, rank, d_v + 1); None if there are none.
        offset: the row (…, 1, d_v) that was taken off the values in T, see `value_offset`.
        largest: largest norm of an earlier key, (…, 1, 1); None if there is none.

    Raises:
        RuntimeError: if autograd would need the gradient, which is not computed through a state.
    """
    if torch.is_grad_enabled() and any(X.requires_grad for X in (Q, K, V)):
        raise RuntimeError(
            "attention with a state has no gradient, but Q, K or V requires grad. Pass detached tensors, or "
            "all tokens in one call without a state"
        )
    (q, k, v), options = _checked_types(Q, K, V, options)
    if options.engine != "torch":
        q, k, v = (X.detach().numpy() for X in (q, k, v))
        past = (X if X is None else X.numpy() for X in (T, offset, largest))
        O, T = map(torch.from_numpy, per_head.attention_with_state(q, k, v, options, *past))
        return O.to(Q.dtype), T
    with torch.no_grad(), torch.autocast(Q.device.type, enabled=False):
        _check_inputs(q, k, v, options)
        s = _approximation(k, options, options.degree)
        found = passes.causal_forward(q, k, v - offset, s, T)
        _certify(q, k, v - offset, found, s, options, T, largest)
        found.O.add_(offset)
        if T is None:
            _replace_first_tile(found.O, q, k, v, s)
    return found.O.to(Q.dtype), found.T


def _checked_types(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> tuple[list[Tensor], Options]:
    """Return the tensors in the type that is computed in, and the options with engine and threads."""
    for name, X in (("K", K), ("V", V)):
        if not isinstance(X, Tensor) or X.dtype != Q.dtype or X.device != Q.device:
            what = f"{X.dtype} on {X.device}" if isinstance(X, Tensor) else type(X).__name__
            raise TypeError(f"{name} must have the type and device of Q, {Q.dtype} on {Q.device}, got {what}")
    if Q.dtype not in EXACT_TYPES + SHORT_TYPES:
        allowed = "float32, float64, float16 or bfloat16"
        raise TypeError(f"Q must have dtype {allowed}, got {Q.dtype}")
    check_shapes(Q.shape, K.shape, V.shape, options.causal)
    exact = [X.float() if X.dtype in SHORT_TYPES else X.resolve_neg() for X in (Q, K, V)]
    engine, threads = _engine(Q, options), options.threads or torch.get_num_threads()
    if options.engine is None and engine == "numba":
        work = max(Q.numel(), K.numel()) // Q.shape[-1] * rank_of(Q.shape[-1], options.degree)
        engine = "numpy" if work < per_head.SMALL else "numba"
    return exact, replace(options, engine=engine, threads=threads)


def _engine(Q: Tensor, options: Options) -> str:
    """Return the engine for this tensor. Raises ValueError if the requested one needs the CPU."""
    if options.engine is None:
        return "numba" if Q.device.type == "cpu" and fast.installed() else "torch"
    if options.engine in ("numpy", "numba") and Q.device.type != "cpu":
        raise ValueError(f"engine={options.engine!r} needs tensors on the CPU, but Q is on {Q.device}")
    return options.engine


# ---- autograd


class _Mapped(torch.autograd.Function):  # type: ignore[misc]
    """Function of tensors with leading axes and, last, the options: torch.vmap adds a leading axis."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        *tensors, options = inputs
        batched = [
            X.expand(info.batch_size, *X.shape) if axis is None else X.movedim(axis, 0)
            for X, axis in zip(tensors, in_dims, strict=False)
        ]
        return cls.apply(*batched, options), 0

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise RuntimeError(
            "lowrank.attention has no forward-mode derivative. Use reverse mode (torch.func.grad, vjp, "
            f"jacrev); for second derivatives {EXACT}"
        )


class _Attention(_Mapped):
    """O, den and T of Q, K, V; den and T are only for the backward pass."""

    @staticmethod
    def forward(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> tuple[Tensor, ...]:
        run = _forward if options.engine == "torch" else _forward_per_head
        with torch.autocast(Q.device.type, enabled=False):
            return run(Q, K, V, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.options = inputs
        ctx.save_for_backward(*tensors, *output)  # O too, so that autograd sees it changed in place
        ctx.mark_non_differentiable(*output[1:])
        # There create_graph is always True, and `_Gradient` refuses a second derivative.
        ctx.in_torch_func = torch._C._are_functorch_transforms_active()

    @staticmethod
    def backward(ctx: Any, dO: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not ctx.in_torch_func:
            _refuse_second_derivative()
        return (*_Gradient.apply(*ctx.saved_tensors, dO.resolve_neg(), ctx.options), None)


class _Gradient(_Mapped):
    """dQ, dK, dV of Q, K, V, O, den, T, dO."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        run: Any = _backward if inputs[-1].engine == "torch" else _backward_per_head
        with torch.autocast(inputs[0].device.type, enabled=False):
            return tuple(run(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        _refuse_second_derivative()


def _refuse_second_derivative() -> None:
    """Raise RuntimeError; otherwise the gradient would silently be treated as a constant."""
    raise RuntimeError(
        "the gradient of lowrank.attention was requested with create_graph=True, and it cannot be "
        "differentiated again. Pass create_graph=False; for second derivatives, as of a gradient penalty, "
        f"{EXACT}"
    )


# ---- engines "numpy" and "numba": one head after the other


def _forward_per_head(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> tuple[Tensor, ...]:
    q, k, v = (X.detach().numpy() for X in (Q, K, V))
    heads, options = per_head.checked(q, k, v, options)
    each = [per_head.head_forward(*head, options, options.degree).found for head in heads]
    return tuple(_joined(list(arrays), Q.shape[:-2]) for arrays in zip(*each, strict=True))


@per_head.quiet
def _backward_per_head(*inputs: Any) -> tuple[Tensor, ...]:
    *tensors, options = inputs
    lead, found = tensors[0].shape[:-2], []
    arrays = [X.detach().numpy() for X in tensors]
    for at in np.ndindex(*lead):
        q, k, v, o, den, T, g = (X[at] for X in arrays)
        s = head_approximation(k, options, options.degree, per_head.is_compiled(options))
        was = per_head.Attended(Forward(o, den, T), s, fine=True)
        found.append(per_head.head_backward(q, k, v, was, g, options))
    return tuple(_joined(list(arrays), lead) for arrays in zip(*found, strict=True))


def _joined(arrays: list[Any], lead: tuple[int, ...]) -> Tensor:
    """Join one array per head to one tensor, without a copy if there is one head."""
    whole = arrays[0] if len(arrays) == 1 else np.stack(arrays)
    return torch.from_numpy(whole.reshape(*lead, *arrays[0].shape))


# ---- engine "torch": all heads at once


def _forward(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> tuple[Tensor, ...]:
    _check_inputs(Q, K, V, options)
    return tuple(_attended(Q, K, V, options, options.degree)[0])


def _backward(
    Q: Tensor, K: Tensor, V: Tensor, O: Tensor, den: Tensor, T: Tensor, dO: Tensor, options: Options
) -> tuple[Tensor, ...]:
    g = options.gradient_degree or options.degree
    if g == options.degree:
        found, s = BatchForward(O, den, T), _approximation(K, options, g)
    else:  # the gradient is that of the polynomial of this degree
        found, s = _attended(Q, K, V, options, g)
    offset = value_offset(V, options.causal)
    V, found = V - offset, found._replace(O=found.O - offset)
    if options.causal:
        _replace_first_tile(found.O, Q, K, V, s)  # made without the offset
    back = passes.causal_backward if options.causal else passes.backward
    gradients = back(Q, K, V, found, dO, s)
    low = _two_degrees_lower(Q, K, V, found, s)
    add_gradient(gradients.dQ, gradients.dK, Q, K, dO, found, low, s)
    _certify_gradients(gradients, dO, s)
    return tuple(gradients)


def _check_inputs(Q: Tensor, K: Tensor, V: Tensor, options: Options) -> None:
    """Raise ValueError or RankTooLarge for inputs that are not valid, see `per_head.checked`."""
    # None: the machine's main memory
    memory = torch.cuda.get_device_properties(Q.device).total_memory if Q.is_cuda else None
    heads = Q.shape[:-2].numel()
    for g in {options.degree, options.gradient_degree or options.degree}:
        error_certificates.check_rank(Q.shape[-1], g, V.shape[-1], heads, Q.element_size(), memory)
    bound = inf if options.bound is None else options.bound
    sizes = torch.stack([_largest(X) for X in (Q, K, V)])
    if bool(sizes.isfinite().all() & (sizes[:2] <= bound).all()):  # one transfer: a GPU is synchronised once
        return
    for at in np.ndindex(*Q.shape[:-2]):
        q, k, v = (X[at].cpu().numpy() for X in (Q, K, V))
        check_entries(q, k, v, options)


def _approximation(K: Tensor, options: Options, g: int) -> BatchApproximation:
    """Return the approximation of degree g for keys K (…, n_k, d)."""
    d, made = K.shape[-1], options.make_polynomial(g)
    shift = None if options.causal else K.mean(-2, keepdim=True)
    covariance, fitted = None, made.per_row and options.key_variance is None
    if fitted:
        covariance = passes.key_covariance(K, shift)
    elif made.per_row:
        covariance = options.key_variance * torch.eye(d, dtype=K.dtype, device=K.device)
    p = plan(d, g)
    weights = passes.weights(p, made, K)
    return BatchApproximation(p, made, weights, options.factor(d), shift, covariance, fitted)


def _attended(
    Q: Tensor, K: Tensor, V: Tensor, options: Options, g: int
) -> tuple[BatchForward, BatchApproximation]:
    """Return the certified result at degree g, and its approximation."""
    s, offset = _approximation(K, options, g), value_offset(V, options.causal)
    attend = passes.causal_forward if options.causal else passes.forward
    found = attend(Q, K, V - offset, s)
    _certify(Q, K, V - offset, found, s, options)
    found.O.add_(offset)
    if options.causal:
        _replace_first_tile(found.O, Q, K, V, s)
    return found, s


def _replace_first_tile(O: Tensor, Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> None:
    """Compute the rows of O in the first tile of causal attention again, from V without an offset.

    No row may depend on later tokens, and the offset is that of all rows of the tile.
    """
    count = min(FIRST, K.shape[-2]) - (K.shape[-2] - Q.shape[-2])
    if count > 0:
        first = slice(FIRST)
        O[..., :count, :] = passes.causal_forward(Q[..., :count, :], K[..., first, :], V[..., first, :], s).O


def _two_degrees_lower(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, s: BatchApproximation
) -> Tensor | None:
    """Return [N, den] (…, n, d_v + 1) of degree g - 2, as `per_head` does for one head."""
    if s.covariance is None or (s.plan.g == 1 and not s.causal):
        return None
    low = of_second_derivative(s)
    low = replace(low, weights=passes.weights(low.plan, low.polynomial, K))
    if not s.causal:
        return passes.from_state(Q, f.T[..., : rank_of(s.plan.d, s.plan.g - 2), :], low)
    found = passes.causal_forward(Q, K, V, low)
    return passes.with_ones(found.O) * found.den[..., None]


# ---- certificates of engine "torch"


def _certify(
    Q: Tensor, K: Tensor, V: Tensor, found: BatchForward, s: BatchApproximation, options: Options,
    T: Tensor | None = None, largest: Tensor | None = None,
) -> None:  # fmt: skip
    """Raise or warn if `error_certificates` does not certify the result; otherwise do nothing.

    T, largest: of a state, see `attention_with_state`. A certified result synchronises a GPU once, but in
    causal attention with a polynomial that is not positive everywhere at least once per head.
    """
    causal, made, n, n_k = options.causal, s.polynomial, Q.shape[-2], K.shape[-2]
    # The range of the values in a state is not known.
    within = _finite(found.O) if T is not None else error_certificates.within(_extent(found.O), _extent(V))
    accurate: Any = True
    if not causal:  # causal attention must not use statistics of the whole sequence
        variances = _variances(Q, K, s)
        accurate = error_certificates.is_accurate(variances.mean(-1), s.plan.g).all()
    if made.positive_to == inf or not causal:
        least = error_certificates.POSITIVE if causal else n_k / 2
        if bool(((found.den >= least) & (found.den < inf)).all() & within & accurate):
            return
    keys = s.keys(K)
    for at in np.ndindex(*Q.shape[:-2]):
        rows = partial(_on_cpu, Q[at] * s.factor, keys[at], None if largest is None else largest[at])
        counts: Any = np.arange(n_k - n + 1, n_k + 1) if causal else n_k
        if T is not None:
            counts += int(T[at][0, -1])  # the first monomial is 1, so its sum is the number of keys
        error_certificates.check_denominators(
            made, rows, found.den[at].cpu().numpy(), counts, centred=not causal
        )
    if not bool(within):
        error_certificates.refuse_output(made, bool(found.O.isfinite().all()))
    if not bool(accurate):
        error_certificates.warn_of_error(variances.cpu().numpy(), s.plan.g)


def _on_cpu(x: Tensor, k: Tensor, largest: Tensor | None) -> tuple[Any, Any]:
    """Return queries and keys as arrays; in place of the keys of a state one of their largest norm."""
    q, keys = x.cpu().numpy(), k.cpu().numpy()
    return q, keys if largest is None else np.concatenate([keys, np.eye(1, q.shape[1]) * float(largest)])


def _variances(Q: Tensor, K: Tensor, s: BatchApproximation) -> Tensor:
    """Return the variance of the logits of each row, (…, n)."""
    covariance = s.covariance if s.fitted else passes.key_covariance(K, s.shift)
    x = Q * s.factor
    return ((x @ covariance) * x).sum(-1)


def _certify_gradients(found: Gradients, dO: Tensor, s: BatchApproximation) -> None:
    """Raise NotCertified for gradients that are not finite or too large, unless dO is not finite."""
    dV, given = (torch.linalg.vector_norm(X, 1) for X in (found.dV, dO))
    fine = torch.stack([*map(_finite, found), dV <= 2 * given]).all()
    if bool(fine | ~_finite(dO)):  # one transfer: a GPU is synchronised once
        return
    for name, X in zip(found._fields, found, strict=True):
        error_certificates.check_gradient(s.polynomial, name, 0.0 if bool(_finite(X)) else inf)
    error_certificates.check_gradient(s.polynomial, "dV", 0.0, (float(dV), float(given)))


def _largest(X: Tensor) -> Tensor:
    """Return the largest absolute entry (NaN if one is NaN), without a temporary array of the size of X."""
    return torch.linalg.vector_norm(X, inf)


def _finite(X: Tensor) -> Tensor:
    """Return True, as a tensor, if all entries are finite."""
    return _largest(X).isfinite()


def _extent(X: Tensor) -> Any:
    """Return the Extent of the columns of X (…, n, m) for every head, as tensors."""
    return error_certificates.Extent(X.amin(-2), X.amax(-2))
