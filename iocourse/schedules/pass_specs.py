"""What a pass of attention takes in and must put out: shapes, random inputs, and the exact results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import exact
from ..exact import Array
from ..masks import Mask
from ..sizes import Shape

Arrays = dict[str, Array]
Exact = tuple[Array, ...]


Shapes = Callable[[int, int], dict[str, Shape]]
Draw = Callable[[np.random.Generator, int, int, Mask | None], Arrays]


@dataclass(frozen=True)
class Pass:
    """One pass, by name: what it may take in, with shapes for (N, d), and what it fills.

    `draw` makes random inputs, `exact` the right outputs for them; both take the mask, or None.
    `other_arrays` tells who comes with other arrays what this pass is about, and which schedules take theirs.
    """

    name: str
    outputs: tuple[str, ...]
    shapes: Shapes
    draw: Draw
    exact: Callable[[Mapping[str, Array], Mask | None], Exact]
    other_arrays: str = ""


def _additive(mask: Mask | None) -> Array | None:
    return None if mask is None else mask.additive()


def _draw_all(shapes: Shapes) -> Draw:
    """Every array of these shapes, of normal numbers; no mask changes them."""
    return lambda rng, N, d, mask: {n: rng.standard_normal(shape) for n, shape in shapes(N, d).items()}


def _forward_shapes(N: int, d: int) -> dict[str, Shape]:
    return dict.fromkeys("QKV", (N, d))


def _exact_forward(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    """O and the rows' log-sum-exp."""
    S = exact.scores(a["Q"], a["K"], mask=_additive(mask))
    return exact.softmax(S) @ a["V"], exact.log_sum_exp(S)


def _backward_shapes(N: int, d: int) -> dict[str, Shape]:
    rows = dict.fromkeys(("Q", "K", "V", "O", "dO"), (N, d))
    return {**rows, **dict.fromkeys(("LSE", "maxima", "sums"), (N,)), "P": (N, N)}


def _draw_backward(rng: np.random.Generator, N: int, d: int, mask: Mask | None) -> Arrays:
    """What a forward pass leaves behind, and dO: a schedule takes what it names."""
    arrays = {name: rng.standard_normal((N, d)) for name in ("Q", "K", "V", "dO")}
    return arrays | saved_for_backward(arrays["Q"], arrays["K"], arrays["V"], mask)


def saved_for_backward(Q: Array, K: Array, V: Array, mask: Mask | None = None) -> Arrays:
    """O, P (N, N), LSE, and the maximum and sum of each row, (N,): what backward schedules may read."""
    Q, K, V = exact.check_qkv(Q, K, V)
    S = exact.scores(Q, K, mask=_additive(mask))
    P, LSE, m = exact.softmax(S), exact.log_sum_exp(S), S.max(axis=1)
    l = np.exp(S - np.where(np.isneginf(m), 0.0, m)[:, None]).sum(axis=1)
    return {"O": P @ V, "P": P, "LSE": LSE, "maxima": m, "sums": l}


def _exact_backward(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    return exact.attention_backward(a["Q"], a["K"], a["V"], a["dO"], mask=_additive(mask))


def _tied_shapes(N: int, d: int) -> dict[str, Shape]:
    return dict.fromkeys("QX", (N, d))


def _exact_tied(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    """O and LSE of attention whose keys and values are both X."""
    return _exact_forward({"Q": a["Q"], "K": a["X"], "V": a["X"]}, mask)


def _gradient_shapes(N: int, d: int) -> dict[str, Shape]:
    return {**dict.fromkeys(("A1", "A2", "A3", "E"), (N, d)), **dict.fromkeys("XY", (d, d))}


def _exact_gradient(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    return (exact.grad_x(a["X"], a["A1"], a["A2"], a["A3"], a["Y"], a["E"]),)


TIED = "it is for tied attention, whose keys are its values: for two arrays K and V use flash_optimal"

PASSES = {
    made.name: made
    for made in (
        Pass("forward", ("O", "LSE"), _forward_shapes, _draw_all(_forward_shapes), _exact_forward),
        Pass("backward", ("dQ", "dK", "dV"), _backward_shapes, _draw_backward, _exact_backward),
        Pass("gradient", ("dX",), _gradient_shapes, _draw_all(_gradient_shapes), _exact_gradient),
        Pass("tied", ("O", "LSE"), _tied_shapes, _draw_all(_tied_shapes), _exact_tied, TIED),
    )
}
