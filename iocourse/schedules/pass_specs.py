"""Specifications of the passes of attention: shapes of their arrays, random inputs and exact results."""

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
    """Specification of one pass.

    Attributes:
        name: name of the pass.
        outputs: names of its outputs, in order.
        shapes: function of N and d that returns the shape of each possible input by name.
        draw: function that returns random inputs, given a generator, N, d and a mask or None.
        exact: function that returns the exact outputs, given the inputs and a mask or None.
        other_arrays: hint in the error for other arrays: the schedules that accept them.
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
    """Return a `draw` function: standard normal arrays of these shapes, for any mask."""
    return lambda rng, N, d, mask: {n: rng.standard_normal(shape) for n, shape in shapes(N, d).items()}


def _forward_shapes(N: int, d: int) -> dict[str, Shape]:
    return dict.fromkeys("QKV", (N, d))


def _exact_forward(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    """Return O and the log-sum-exp of each row."""
    S = exact.scores(a["Q"], a["K"], mask=_additive(mask))
    return exact.softmax(S) @ a["V"], exact.log_sum_exp(S)


def _backward_shapes(N: int, d: int) -> dict[str, Shape]:
    rows = dict.fromkeys(("Q", "K", "V", "O", "dO"), (N, d))
    return {**rows, **dict.fromkeys(("LSE", "maxima", "sums"), (N,)), "P": (N, N)}


def _draw_backward(rng: np.random.Generator, N: int, d: int, mask: Mask | None) -> Arrays:
    """Return random Q, K, V and dO, and the results of a forward pass that a backward pass may use."""
    arrays = {name: rng.standard_normal((N, d)) for name in ("Q", "K", "V", "dO")}
    return arrays | saved_for_backward(arrays["Q"], arrays["K"], arrays["V"], mask)


def saved_for_backward(Q: Array, K: Array, V: Array, mask: Mask | None = None) -> Arrays:
    """Return the results of a forward pass that backward schedules may read, by name.

    O (N, d), the weights P (N, N), and per row (N,) the log-sum-exp LSE, the maxima and the sums.
    """
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
    """Return O and LSE of attention with K = V = X."""
    return _exact_forward({"Q": a["Q"], "K": a["X"], "V": a["X"]}, mask)


def _gradient_shapes(N: int, d: int) -> dict[str, Shape]:
    return {**dict.fromkeys(("A1", "A2", "A3", "E"), (N, d)), **dict.fromkeys("XY", (d, d))}


def _exact_gradient(a: Mapping[str, Array], mask: Mask | None) -> Exact:
    return (exact.grad_x(a["X"], a["A1"], a["A2"], a["A3"], a["Y"], a["E"]),)


TIED = "it computes tied attention, where K = V = X; for separate K and V use flash_optimal"

PASSES = {
    made.name: made
    for made in (
        Pass("forward", ("O", "LSE"), _forward_shapes, _draw_all(_forward_shapes), _exact_forward),
        Pass("backward", ("dQ", "dK", "dV"), _backward_shapes, _draw_backward, _exact_backward),
        Pass("gradient", ("dX",), _gradient_shapes, _draw_all(_gradient_shapes), _exact_gradient),
        Pass("tied", ("O", "LSE"), _tied_shapes, _draw_all(_tied_shapes), _exact_tied, TIED),
    )
}
