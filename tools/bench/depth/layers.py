"""Growth of the error of approximate attention with the number of layers, with two fitted laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from iocourse.console import table, with_progress_bar
from tools.bench import Row, grouped

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.lowrank.transformer import Attend, Transformer

WHAT = ("output", "dX", "parameters", "W_QK")
GOAL = {"layers": 12, "degree": 4, "parameters": 1e-4}


class Sizes(NamedTuple):
    """Sizes of the measurement: transformers with each number of layers, seed and degree."""

    layers: Sequence[int] = (1, 2, 4, 8, 12)
    degrees: Sequence[int] = (2, 3, 4)
    seeds: Sequence[int] = (0, 1, 2)
    n: int = 1024
    heads: int = 8
    d: int = 8
    vocabulary: int = 64


QUICK = Sizes(layers=(1, 2, 4), degrees=(2, 4), seeds=(0,), n=192)


def measured(sizes: Sizes) -> Row:
    """Measure the errors of every transformer at every degree, and fit their growth.

    Errors are relative to exact attention, in the Euclidean norm, in float64: of the output, and of the
    gradients with respect to the first layer's input (dX), all parameters, and all W_Q and W_K. Weights are
    PyTorch's initial ones, tokens and targets are random, the loss is cross-entropy, without a mask. The
    gradient is computed at the degree of the result, and at one degree more.
    """
    rows = [
        row
        for layers, seed in with_progress_bar(list(product(sizes.layers, sizes.seeds)), "transformers")
        for row in _errors(sizes, layers, seed)
    ]
    return {"sizes": sizes._asdict(), "rows": rows, "growth": growth(rows)}


def _errors(sizes: Sizes, layers: int, seed: int) -> Iterator[Row]:
    import torch

    from iocourse.lowrank.transformer import Shape, exactly, low_rank, transformer

    shape = Shape(sizes.vocabulary, sizes.n, layers, sizes.heads, sizes.d)
    model = transformer(shape, exactly(causal=False), seed).double()
    source = torch.Generator().manual_seed(seed)
    tokens, wanted = torch.randint(sizes.vocabulary, (2, 1, sizes.n), generator=source)
    exact = _vectors(model, exactly(causal=False), tokens, wanted)
    for degree, more in product(sizes.degrees, (0, 1)):
        attend = low_rank(degree, causal=False, gradient_degree=degree + more)
        found = _vectors(model, attend, tokens, wanted)
        errors = {name: float((found[name] - x).norm() / x.norm()) for name, x in exact.items()}
        about = {"layers": layers, "degree": degree, "gradient_degree": degree + more, "seed": seed}
        yield about | {name: float(f"{error:.3e}") for name, error in errors.items()}


def _vectors(model: Transformer, attend: Attend, tokens: Tensor, wanted: Tensor) -> dict[str, Tensor]:
    """Return the output and the gradients, each as one vector."""
    import torch

    from iocourse.lowrank.character_model import loss_of

    model.attend = attend
    model.zero_grad()
    x = model.embed(tokens).detach().requires_grad_()
    out = model.from_stream(x)
    loss_of(out, wanted).backward()
    grads = {name: p.grad.flatten() for name, p in model.named_parameters() if p.grad is not None}
    attended = [grad for name, grad in grads.items() if ".W_Q." in name or ".W_K." in name]
    found = (out.detach(), x.grad, torch.cat(list(grads.values())), torch.cat(attended))
    return dict(zip(WHAT, found, strict=True))


def growth(rows: Sequence[Row]) -> list[Row]:
    """Fit the laws error ~ mᵃ and error ~ e^(b m) for each error, degree and gradient degree; m: layers.

    The exponent a and the rate b are fitted by least squares of the logarithms, over all seeds. off_power and
    off_exponential: root mean square deviation from the two laws, as a factor minus 1.
    """
    return [
        {"what": what, "degree": degree, "gradient_degree": of_gradient} | _laws(some, what)
        for (degree, of_gradient), some in grouped(rows, ("degree", "gradient_degree")).items()
        for what in WHAT
    ]


def _laws(rows: Sequence[Row], what: str) -> dict[str, float]:
    heights = np.array([log(row[what]) for row in rows])
    exponent, off_power = _line([log(row["layers"]) for row in rows], heights)
    rate, off_exponential = _line([row["layers"] for row in rows], heights)
    found = {"exponent": exponent, "off_power": off_power, "rate": rate, "off_exponential": off_exponential}
    return {name: round(value, 3) for name, value in found.items()}


def _line(places: Sequence[float], heights: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the slope of the fitted line, and e to the root mean square distance from it, minus 1."""
    slope, start = np.polyfit(places, heights, 1)
    off = heights - slope * np.array(places) - start
    return float(slope), float(np.expm1(np.sqrt((off**2).mean())))


def mean_errors(rows: Sequence[Row], what: str, degree: int, more: int = 0) -> dict[int, float]:
    """Return the root mean square of one error over seeds, by number of layers."""
    some = [row for row in rows if (row["degree"], row["gradient_degree"]) == (degree, degree + more)]
    return {
        layers: float(np.sqrt(np.mean([row[what] ** 2 for row in here])))
        for (layers,), here in grouped(some, ("layers",)).items()
    }


def verdict(rows: Sequence[Row]) -> Row:
    """Return the goal and the largest error over seeds; `reached` is None if it was not measured."""
    at = [row for row in rows if row["layers"] == GOAL["layers"] and row["degree"] == GOAL["degree"]]
    plain = [row["parameters"] for row in at if row["gradient_degree"] == row["degree"]]
    reached = max(plain, default=None)
    what = "12 layers, g = 4: error of the gradient by all parameters"
    return {"what": what, "reached": reached, "goal": GOAL["parameters"]}


def show(result: Row) -> str:
    """Format one line per error, degree and gradient degree: the errors by layers, and the exponent."""
    rows, layers = result["rows"], result["sizes"]["layers"]
    said = "relative error against exact attention, root mean square over seeds, by number of layers m"
    lines = [["", "degree", "gradient", *map(str, layers), "~ m^"]]
    for law in result["growth"]:
        what, degree, of_gradient = law["what"], law["degree"], law["gradient_degree"]
        if what == "output" and of_gradient > degree:
            continue  # the output does not depend on the gradient's degree
        errors = mean_errors(rows, what, degree, of_gradient - degree)
        cells = (f"{errors[m]:.1e}" for m in layers)
        lines.append([what, str(degree), str(of_gradient), *cells, f"{law['exponent']:.2f}"])
    return f"{said}\n{table(lines)}"
