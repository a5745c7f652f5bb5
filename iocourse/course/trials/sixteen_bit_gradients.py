"""Inputs in float16 for kernels of the backward pass, and the error that rounding to float16 allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import Property, Trial, WrongForm
from ..properties import format_apart, only_where, several
from .sixteen_bit_inputs import SINGLE, SMALLEST_HALF, TYPES

Array = NDArray[Any]
HALF = "float16"  # a tag, and the name of the type
EXACT_O = "O exact in float16"  # a tag: P and O of this case are float16 numbers
U = TYPES[HALF]
ORDER_TOLERANCE = 2.0**-7  # of `any_order`; a program that reads another one's words is wrong by far more
IN_SINGLE = ("LSE", "D")  # one word per row: float32 also for 16-bit inputs


def half_inputs(rng: np.random.Generator, H: int, N: int, d: int, *, large: float = 1.0) -> dict[str, Array]:
    """Return random Q, K, V and dO (H, N, d) in float16; scores grow with `large`."""
    Q, K, V, dO = rng.standard_normal((4, H, N, d)).astype(np.float16)
    return {"Q": (Q * np.float16(large)), "K": K, "V": V, "dO": dO}


def with_exact_O(rng: np.random.Generator, H: int, N: int, d: int) -> dict[str, Array]:
    """Return inputs with Q = 0, so every weight is 1/N, and with rows of V whose mean is a float16 number.

    N is a power of two. The entries of V are near 1500 and differ by a few units along a column. So D is a
    sum of large products, and the differences dP - D are small: a D with 16 bits is wrong in their first
    digits, while neither O nor P are rounded.
    """
    inputs = half_inputs(rng, H, N, d)
    mean = rng.integers(1025, 2040, size=(H, 1, d))
    apart = rng.integers(1, 5, size=(H, N // 2, d))
    V = mean + np.concatenate([apart, -apart], axis=1)
    return inputs | {"Q": np.zeros_like(inputs["Q"]), "V": V.astype(np.float16)}


def allowed_gradient_errors(
    inputs: Mapping[str, Array], *, causal: bool, exact_O: bool = False
) -> dict[str, Array]:
    """Return the largest error that rounding to float16 allows in each entry of O, D, dQ, dK and dV.

    A number x that is rounded once is wrong by u |x|, u = 2^-11, or by 2^-25 below 2^-14. Rounded once are
    each factor P and dS of a product of tiles, and each entry of a result. All else is computed in float32.
    There scores and the log-sum-exp make P wrong by `single` = `SINGLE` · max(1, max |S|) of its size. So the
    errors are, with Σ over keys (for dK and dV over queries),

        O    u (Σ P |V| + |O|) + 2 single Σ P |V|     as in a forward pass; 0 if `exact_O`
        D    SINGLE Σ |dO| |O| + Σ |dO| (error of O)  Σ over columns
        dS   u |dS| + P (error of D) + single P (|dP| + |D|)
        dQ   scale Σ (error of dS) |K| + u |dQ|       dK likewise, with |Q|
        dV   Σ (u P + 2 single P) |dO| + u |dV|       without u P if `exact_O`

    and 2^-25 for each rounded number. If O or D is an input, O has no error. No kernel that rounds only there
    exceeds this, whatever the order of its sums. The reference comes close to it only for a key of one
    query, where rounding P and rounding dV can have the same sign.
    """
    names = ("Q", "K", "V", "dO")
    rounded_O = not (exact_O or "O" in inputs or "D" in inputs)
    per_head = zip(*(inputs[name].astype(np.float64) for name in names), strict=True)
    heads = [_of_head(q, k, v, do, causal, not exact_O, rounded_O) for q, k, v, do in per_head]
    return {name: np.stack([head[name] for head in heads]) for name in heads[0]}


def _of_head(
    q: Array, k: Array, v: Array, do: Array, causal: bool, rounded_P: bool, rounded_O: bool
) -> dict[str, Array]:
    scale, least, S = q.shape[1] ** -0.5, SMALLEST_HALF, exact.scores(q, k)
    seen = np.tri(len(q)) if causal else np.ones(S.shape)
    single = SINGLE * np.maximum(1.0, (abs(S) * seen).max(axis=1, keepdims=True))
    P = exact.softmax(np.where(seen > 0, S, -np.inf))
    O, dP = P @ v, do @ v.T
    D = (do * O).sum(axis=1, keepdims=True)
    dS = P * (dP - D)
    of_P = rounded_P * (U * P + least * seen)
    of_O = rounded_O * (of_P @ abs(v) + U * abs(O) + least + 2 * single * (P @ abs(v)))
    of_D = (abs(do) * (SINGLE * abs(O) + of_O)).sum(axis=1, keepdims=True)
    of_dS = U * abs(dS) + least * seen + P * (of_D + single * (abs(dP) + abs(D)))
    return {
        "O": of_O + least,
        "D": of_D[:, 0],
        "dQ": scale * of_dS @ abs(k) + U * abs(scale * dS @ k) + least,
        "dK": scale * of_dS.T @ abs(q) + U * abs(scale * dS.T @ q) + least,
        "dV": (of_P + 2 * single * P).T @ abs(do) + U * abs(P.T @ do) + least,
    }


def within_rounding(name: str, results: Sequence[str], causal: str = "causal") -> Property:
    """Return the property that float16 results are wrong by at most `allowed_gradient_errors`.

    Args:
        name: the name of the property.
        results: names of the results.
        causal: name of the input that is True for a causal mask; a case without it has no mask.
    """

    def judge(trial: Trial) -> str | None:
        case = trial.case
        found = several(trial.value, len(results))
        if found is None or any(part is None for part in found):
            return WrongForm(f"expected {len(results)} results: {', '.join(results)}")
        if narrow := getattr(trial, "wrong_type", "") or _too_wide(trial):
            return narrow
        given = {name: x for name, x in case.inputs.items() if isinstance(x, np.ndarray)}
        allowed = allowed_gradient_errors(
            given, causal=bool(case.inputs.get(causal)), exact_O=case.has(EXACT_O)
        )
        sayings = (_wrong(trial, k, result, found[k], allowed[result]) for k, result in enumerate(results))
        return next(filter(None, sayings), None)

    return replace(only_where(name, HALF, judge), echo=True)


def _too_wide(trial: Trial) -> str:
    """Return which input reaches a kernel in float32, or which product has float32 factors, or ""."""
    for launch in getattr(trial, "launches", ()):
        for name, kind in launch.signature.items():
            if name in ("Q", "K", "V", "dO") and kind == "*fp32":
                return f"{name} reaches {launch.kernel.fn.__name__} in float32, expected {HALF}"
    line = getattr(trial, "wide", "")
    return line and f"`{line}` multiplies float32 factors, expected {HALF}: cast those, as in ds.to(k.dtype)"


def _wrong(trial: Trial, k: int, result: str, got: Any, allowed: Array) -> str | None:
    """Return a message if result number k has another shape or type, or an entry with too large an error."""
    got, want = np.asarray(got), trial.case.expected[k]
    if got.shape != want.shape:
        return WrongForm(f"{result} has shape {got.shape}, expected {want.shape}")
    kind = "float32" if result in IN_SINGLE else HALF
    if trial.returned is not None and (own := str(trial.returned[1][k].dtype)) != kind:
        return f"{result} is {own}, expected {kind} for inputs in {HALF}"
    wrong = ~(abs(got - want) <= allowed)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    mine, right = format_apart(float(got[where]), float(want[where]))
    return (
        f"{int(wrong.sum())} of {wrong.size} entries of {result} differ by more than rounding allows, first "
        f"at {list(where)}: got {mine}, expected {right}, allowed error {allowed[where]:.2g}"
        f"{'; compute it in float32' if result in IN_SINGLE else ''}"
    )
