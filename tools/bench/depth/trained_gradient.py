"""Error of the gradient at trained weights, with one layer approximated at a time and with all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from iocourse.console import table, with_progress_bar, with_unit
from tools.bench import Row, grouped

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.lowrank.character_model import Characters
    from iocourse.lowrank.transformer import Attend, Transformer

# Causal "hermite" needs a fixed variance of the keys, but training changes it. "taylor" needs no statistics.
POLYNOMIAL = "taylor"


class Sizes(NamedTuple):
    """Sizes of the measurement: models with each bound and seed, after these steps of exact training."""

    bounds: Sequence[float | None] = (None, 2.0)
    seeds: Sequence[int] = (0, 1, 2)
    steps: Sequence[int] = (0, 60, 200)
    degrees: Sequence[int] = (2, 4, 6)
    n: int = 256
    batch: int = 2
    layers: int = 4
    heads: int = 8
    d: int = 8


QUICK = Sizes(seeds=(0,), steps=(0, 6), degrees=(2, 4), n=128, layers=2)


def measured(sizes: Sizes) -> Row:
    """Measure the gradient of every model at every step and degree.

    A model is trained with exact attention in float32. The gradient is measured in float64, on the batch of
    the next step. The seed sets the initial weights and the windows of text. Attention is that of
    `lowrank.attention`: causal, and exact between tokens of the same tile.

    Returns:
        `sizes`, `polynomial`, `text` (a digest) and `rows`. A row has, by layer: `sigma`, the standard
        deviation of the logits of a row; `alone`, the error of the gradient with respect to all parameters if
        only this layer is approximated; `by_layer`, the error of the gradient with respect to W_Q and W_K of
        this layer if all layers are. `together` and `cosine` compare the gradients with respect to all
        parameters if all layers are approximated. `root_of_squares` and `sum` combine `alone`; `loss` and
        `norm` of the gradient are exact. Errors are relative to the exact gradient, in the Euclidean norm.
    """
    from iocourse.lowrank.character_model import prose

    text = prose()
    models = with_progress_bar(list(product(sizes.bounds, sizes.seeds, sizes.steps)), "trained models")
    rows = [row for bound, seed, step in models for row in _rows(sizes, text, bound, seed, step)]
    return {"sizes": sizes._asdict(), "polynomial": POLYNOMIAL, "text": text.digest, "rows": rows}


def _rows(sizes: Sizes, text: Characters, bound: float | None, seed: int, step: int) -> Iterator[Row]:
    from iocourse.lowrank import character_model
    from iocourse.lowrank.transformer import Shape, exactly, low_rank, transformer

    exact = exactly()
    shape = Shape(len(text.alphabet), sizes.n, sizes.layers, sizes.heads, sizes.d, bound)
    model = transformer(shape, exact, seed)
    character_model.train(model, text, range(step), sizes.batch, seed)
    every_batch = character_model.batches(text.train, sizes.batch, sizes.n, seed)
    tokens, wanted = next(islice(every_batch, step, None))
    model.double()
    sigma: list[float] = []
    loss, want = gradient(model, [_watched(sigma)] * sizes.layers, tokens, wanted)
    norm = float(_joined(want).norm())
    about: Row = {"bound": bound, "seed": seed, "step": step, "loss": _digits(loss), "norm": _digits(norm)}
    about["sigma"] = _all(sigma)
    for degree in sizes.degrees:
        # The engine is named, because the fastest one depends on the installation.
        approximate = low_rank(degree, polynomial=POLYNOMIAL, engine="torch")
        _, found = gradient(model, [approximate] * sizes.layers, tokens, wanted)
        alone = []
        for at in range(sizes.layers):
            attend = [approximate if layer == at else exact for layer in range(sizes.layers)]
            alone.append(_error(_joined(gradient(model, attend, tokens, wanted)[1]), _joined(want)))
        yield about | {"degree": degree} | compared(found, want, alone)


def gradient(
    model: Transformer, attend: Sequence[Attend], tokens: Tensor, wanted: Tensor
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and its gradient with respect to each parameter, with `attend` of each layer."""
    import torch

    from iocourse.lowrank.character_model import loss_of

    model.attend = attend
    loss = loss_of(model(tokens), wanted)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return loss.item(), dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def compared(found: dict[str, Tensor], want: dict[str, Tensor], alone: Sequence[float]) -> Row:
    """Return the errors of a gradient, given those with one layer approximated, to three digits."""
    names = [(f"layers.{at}.W_Q.weight", f"layers.{at}.W_K.weight") for at in range(len(alone))]
    x, y = _joined(found), _joined(want)
    return {
        "together": _digits(_error(x, y)),
        "cosine": round(float(x @ y / (x.norm() * y.norm())), 5),
        "by_layer": _all(_error(_joined(found, some), _joined(want, some)) for some in names),
        "alone": _all(alone),
        "root_of_squares": _digits(hypot(*alone)),
        "sum": _digits(sum(alone)),
    }


def _joined(gradients: dict[str, Tensor], names: Iterable[str] | None = None) -> Tensor:
    """Return the gradients with respect to these parameters, by default all, as one vector."""
    import torch

    return torch.cat([gradients[name].flatten() for name in names or gradients])


def _error(found: Tensor, want: Tensor) -> float:
    return float((found - want).norm() / want.norm())


def _watched(found: list[float]) -> Attend:
    """Return exact causal attention that appends the standard deviation of its logits to `found`."""
    from iocourse.lowrank.transformer import exactly

    exact = exactly()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found.append(logit_spread((q @ k.mT).detach()))
        return exact(q, k, v)

    return attend


def logit_spread(logits: Tensor) -> float:
    """Return the standard deviation of a row's visible logits (…, n, n), root mean square over rows."""
    import torch

    visible = torch.ones_like(logits).tril()
    counts = visible.sum(-1, keepdim=True)
    means = (logits * visible).sum(-1, keepdim=True) / counts
    variances = ((logits - means) ** 2 * visible).sum(-1, keepdim=True) / counts
    return float(variances.mean().sqrt())


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def _all(values: Iterable[float]) -> list[float]:
    return [_digits(value) for value in values]


def ratios(rows: Iterable[Row]) -> list[float]:
    """Return the ratios of `together` to `root_of_squares`: 1 if the layers' errors are orthogonal."""
    return [row["together"] / row["root_of_squares"] for row in rows]


def show(result: Row) -> str:
    """Format one line per bound, step and degree: root mean squares over seeds, and the range of ratios."""
    sizes = result["sizes"]
    about = (
        f"gradient at trained weights: {sizes['layers']} layers, {sizes['heads']} heads of d = {sizes['d']}, "
        f"n = {sizes['n']}, {with_unit(len(sizes['seeds']), 'seed')}, {result['polynomial']}\n"
        "error of the gradient by all parameters, relative to exact attention: of each layer alone, "
        "their sum, the root of their sum of squares, and all layers together"
    )
    lines = [["logits", "step", "degree", "σ", "alone", "sum", "root", "together", "together / root"]]
    for (bound, step, degree), rows in grouped(result["rows"], ("bound", "step", "degree")).items():
        logits = "free" if bound is None else f"±{bound:g}"
        of_layers = (" ".join(f"{x:.2g}" for x in _mean(rows, key)) for key in ("sigma", "alone"))
        of_all = (f"{_mean(rows, key):.2g}" for key in ("sum", "root_of_squares", "together"))
        found = ratios(rows)
        span = f"{min(found):.2f} to {max(found):.2f}"
        lines.append([logits, str(step), str(degree), *of_layers, *of_all, span])
    return f"{about}\n{table(lines)}"


def _mean(rows: Sequence[Row], key: str) -> Any:
    """Return the root mean square over rows of a number, or of each number of a list."""
    return np.sqrt(np.mean([np.square(row[key]) for row in rows], axis=0))
