"""Reference implementation of attention and its gradients in float64 NumPy, with every matrix materialised.

Results of schedules, kernels and students are compared with these functions, so they follow the formulas line
by line and are not optimised.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .sizes import truth

__all__ = [
    "Array",
    "Gradients",
    "attention",
    "attention_backward",
    "check_products",
    "check_qkv",
    "grad_x",
    "log_sum_exp",
    "loss_x",
    "max_abs_error",
    "real_array",
    "real_numbers",
    "scores",
    "softmax",
    "softmax_backward",
]

Array = NDArray[np.float64]
TOO_LARGE = "products of Q and K overflow float64; scale Q or K down"


def real_array(name: str, value: ArrayLike, *, minus_inf: bool = False) -> Array:
    """Return `value` as float64 after checking that it is finite and floating-point.

    `minus_inf` accepts -inf in a vector, such as a row statistic of a query without a visible key.
    Raises TypeError or ValueError that names the argument.
    """
    array = _array(name, value)
    if array.dtype.kind != "f":
        raise TypeError(
            f"{name} must have a floating-point dtype, got {array.dtype}; pass {name}.astype(np.float64)"
        )
    allowed = np.isfinite(array) | (np.isneginf(array) & (minus_inf and array.ndim == 1))
    if not allowed.all():
        bad = int(array.size - allowed.sum())
        raise ValueError(f"{name} holds {bad} NaN or infinite value(s); every entry must be finite")
    return np.array(array, dtype=np.float64)


def _array(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: {error}") from None


def check_products(Q: Array, K: Array) -> None:
    """Raise ValueError if the product of a row of Q (Nq, d) and a row of K (Nk, d) overflows float64."""
    largest = [float(np.abs(X).max(initial=0.0)) for X in (Q, K)]
    if Q.shape[1] * largest[0] * largest[1] < np.inf:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        fine = np.isfinite(Q @ K.T).all()
    if not fine:
        raise ValueError(TOO_LARGE)


def check_qkv(Q: ArrayLike, K: ArrayLike, V: ArrayLike) -> tuple[Array, Array, Array]:
    """Return Q, K, V as float64 after checking that they are finite, floating-point, matching and not empty.

    Shapes: (..., Nq, d), (..., Nk, d), (..., Nk, dv). Raises TypeError or ValueError naming the argument.
    """
    q, k, v = real_array("Q", Q), real_array("K", K), real_array("V", V)
    for name, a in (("Q", q), ("K", k), ("V", v)):
        if a.ndim < 2:
            raise ValueError(f"{name} has shape {a.shape}; expected (..., N, d)")
        if 0 in a.shape:
            raise ValueError(f"{name} has shape {a.shape}; N and d must be at least 1")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"K has d = {k.shape[-1]} but Q has d = {q.shape[-1]}; the head dimensions must agree"
        )
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"V has {v.shape[-2]} rows but K has {k.shape[-2]}; each key needs one value row")
    for name, a in (("K", k), ("V", v)):
        if a.shape[:-2] != q.shape[:-2]:
            raise ValueError(
                f"{name} has leading axes {a.shape[:-2]} but Q has {q.shape[:-2]}; each head needs its own"
            )
    return q, k, v


def real_numbers(value: Any, name: str = "the answer") -> Array:
    """Return `value` as a float64 array; accepts floats, integers, Booleans and nested lists of them.

    Raises TypeError for complex numbers, text or other objects, even if NumPy could convert them, and
    ValueError for nested lists of unequal lengths. `name` is used in the message.
    """
    if value is None:
        raise TypeError(f"{name} is None; does the function end with a return?")
    try:
        array = np.asarray(value)
    except ValueError as error:
        if not isinstance(value, (tuple, list)):
            raise
        raise ValueError(f"{name} is {len(value)} results of unlike shapes, expected one array") from error
    if array.dtype.kind == "O" and array.size and all(isinstance(x, Real) for x in array.flat):
        return array.astype(np.float64)  # fractions, and integers beyond int64
    if array.dtype.kind not in "fiub":
        came = _NO_NUMBERS.get(array.dtype.kind, "no numbers")
        raise TypeError(f"{name} must hold real numbers, got {came} (dtype {array.dtype})")
    return np.asarray(array, dtype=np.float64)


_NO_NUMBERS = {"c": "complex numbers", "U": "text", "S": "bytes"}


def softmax(S: ArrayLike, axis: int = -1) -> Array:
    """Return exp(S) divided by its sum along `axis`, computed after subtracting the maximum.

    A slice of -inf only (every key masked) gives zeros, not NaN.
    Raises ValueError if S is empty or holds NaN or +inf.
    """
    s = _score_array("S", S)
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0.0, top))
    total = e.sum(axis=axis, keepdims=True)
    return np.asarray(np.divide(e, total, out=np.zeros_like(e), where=total > 0), dtype=np.float64)


def _score_array(name: str, value: ArrayLike) -> Array:
    """Return scores as float64. Raises ValueError if they are empty or hold NaN or +inf."""
    s = np.asarray(_array(name, value), dtype=np.float64)
    if s.ndim == 0 or 0 in s.shape:
        raise ValueError(f"{name} has shape {s.shape}; expected at least one score along each axis")
    if np.isnan(s).any() or np.isposinf(s).any():
        raise ValueError(f"{name} must hold finite numbers or -inf, got NaN or +inf")
    return s


def scores(
    Q: Array, K: Array, *, causal: bool = False, scale: float | None = None, mask: ArrayLike | None = None
) -> Array:
    """Return S = scale·QKᵀ + mask, shape (..., Nq, Nk); `scale` defaults to 1/√d.

    `causal` masks key j for query i if j > i (upper-left aligned). `mask` is additive, broadcast to S, and
    may hold -inf for a masked pair. Raises TypeError or ValueError naming the argument.
    """
    causal = truth("causal", causal)
    with np.errstate(over="ignore", invalid="ignore"):  # the next lines raise an error instead
        S = Q @ np.swapaxes(K, -1, -2) * _factor(scale, Q.shape[-1])  # (..., Nq, Nk)
    if not np.isfinite(S).all():
        raise ValueError(TOO_LARGE)
    if mask is not None:
        S = S + _additive_mask(mask, S.shape)
    if causal:
        S = np.where(np.tri(*S.shape[-2:]) > 0, S, -np.inf)
    return S


def _factor(scale: float | None, d: int) -> float:
    if scale is None:
        return float(d**-0.5)
    number = isinstance(scale, (int, float, np.integer, np.floating)) and not isinstance(scale, bool)
    if not number or not np.isfinite(scale):
        raise ValueError(f"scale must be a finite number or None for 1/√d, got {scale!r}")
    return float(scale)


def _additive_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Array:
    given = np.asarray(mask)
    if given.dtype.kind != "f":
        raise TypeError(
            f"mask must have a floating-point dtype, got {given.dtype}; it is added to the scores, so use "
            "0.0 to keep a pair and -inf to mask it"
        )
    if np.isnan(given).any() or np.isposinf(given).any():
        raise ValueError("mask must hold finite numbers or -inf, got NaN or +inf")
    try:
        return np.broadcast_to(given.astype(np.float64), shape)
    except ValueError:
        raise ValueError(f"mask has shape {given.shape}; it must broadcast to the scores' {shape}") from None


def attention(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: ArrayLike | None = None,
) -> Array:
    """Return O = softmax(scale·QKᵀ + mask) V in float64, shape (..., Nq, dv).

    Leading axes are heads and batches. A query whose keys are all masked gets a row of zeros, the empty sum;
    a kernel that skips all its tiles returns the same.
    Raises TypeError (integers) or ValueError (NaN, shapes) naming the argument.
    """
    q, k, v = check_qkv(Q, K, V)
    return softmax(scores(q, k, causal=causal, scale=scale, mask=mask)) @ v


def log_sum_exp(S: ArrayLike) -> Array:
    """Return log Σ_j exp(S_ij) along the last axis (natural logarithm); -inf for a row of -inf only."""
    s = _score_array("S", S)
    top = s.max(axis=-1)
    shift = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(s - shift[..., None]).sum(axis=-1)), dtype=np.float64)


class Gradients(NamedTuple):
    """Gradients of a loss with respect to Q, K and V, with the shapes of Q, K and V."""

    dQ: Array
    dK: Array
    dV: Array


def attention_backward(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    dO: ArrayLike,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: ArrayLike | None = None,
) -> Gradients:
    """Return dQ, dK, dV for the gradient dO of the loss with respect to O, dO of shape (..., Nq, dv).

    dV = PᵀdO, dP = dO Vᵀ, dS = P∘(dP - D) with D_i = Σ_j P_ij dP_ij, dQ = scale·dS K, dK = scale·dSᵀQ.
    Queries whose keys are all masked contribute 0. Raises TypeError or ValueError naming the argument.
    """
    q, k, v = check_qkv(Q, K, V)
    do = real_array("dO", dO)
    factor = _factor(scale, q.shape[-1])
    P = softmax(scores(q, k, causal=causal, scale=scale, mask=mask))  # (..., Nq, Nk)
    if do.shape != (*P.shape[:-1], v.shape[-1]):
        raise ValueError(f"dO must have the shape of O, {(*P.shape[:-1], v.shape[-1])}, got {do.shape}")
    dP = do @ np.swapaxes(v, -1, -2)  # (..., Nq, Nk)
    dS = softmax_backward(P, dP)  # (..., Nq, Nk)
    return Gradients(
        dQ=factor * dS @ k, dK=factor * np.swapaxes(dS, -1, -2) @ q, dV=np.swapaxes(P, -1, -2) @ do
    )


def softmax_backward(P: Array, dP: Array) -> Array:
    """Return dS = P∘(dP - rowsum(P∘dP)), shape (..., Nq, Nk): the vector–Jacobian product of softmax."""
    return np.asarray(P * (dP - (P * dP).sum(axis=-1, keepdims=True)), dtype=np.float64)


def _paper_inputs(named: dict[str, ArrayLike]) -> dict[str, Array]:
    arrays = {name: real_array(name, value) for name, value in named.items()}
    for name, a in arrays.items():
        if a.ndim != 2 or 0 in a.shape:
            raise ValueError(
                f"{name} has shape {a.shape}; expected a matrix with at least one row and column"
            )
    n, d = arrays["A1"].shape
    wanted = {"A2": (n, d), "A3": (n, d), "E": (n, d), "X": (d, d), "Y": (d, d)}
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{name} has shape {arrays[name].shape}; with A1 of shape {(n, d)} it must be {shape}"
            )
    return arrays


def loss_x(X: ArrayLike, A1: ArrayLike, A2: ArrayLike, A3: ArrayLike, Y: ArrayLike, E: ArrayLike) -> float:
    """Return L(X) = ½‖D(X)⁻¹ exp(A1 X A2ᵀ) A3 Y - E‖²; A1, A2, A3, E are (n, d), X and Y are (d, d).

    The attention loss of 2410.09397: standard attention with Q = A1X, K = A2, V = A3Y and scale 1.
    """
    a = _paper_inputs({"X": X, "A1": A1, "A2": A2, "A3": A3, "Y": Y, "E": E})
    O = softmax(a["A1"] @ a["X"] @ a["A2"].T) @ (a["A3"] @ a["Y"])  # (n, d)
    return float(0.5 * ((O - a["E"]) ** 2).sum())


def grad_x(X: ArrayLike, A1: ArrayLike, A2: ArrayLike, A3: ArrayLike, Y: ArrayLike, E: ArrayLike) -> Array:
    """Return dL/dX of `loss_x`, shape (d, d): A1ᵀ p A2 with p = f∘q - diag((f∘q)1) f (2410.09397)."""
    a = _paper_inputs({"X": X, "A1": A1, "A2": A2, "A3": A3, "Y": Y, "E": E})
    f = softmax(a["A1"] @ a["X"] @ a["A2"].T)  # (n, n)
    h = a["A3"] @ a["Y"]  # (n, d)
    q = (f @ h - a["E"]) @ h.T  # (n, n)
    p = softmax_backward(f, q)  # (n, n)
    return np.asarray(a["A1"].T @ p @ a["A2"], dtype=np.float64)


def max_abs_error(got: Any, want: Any) -> float:
    """Return max |got - want| as a float; inf if the shapes differ or `got` is not finite.

    Raises TypeError if one of them does not hold real numbers.
    """
    g, w = real_numbers(got, "got"), real_numbers(want, "want")
    if g.shape != w.shape or not np.isfinite(g).all():
        return float("inf")
    return float(np.abs(g - w).max(initial=0.0))
