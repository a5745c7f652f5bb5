"""Training with exact and with approximate attention from the same initial weights on the same batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from iocourse.console import table, with_progress_bar
from tools.bench import Row

if TYPE_CHECKING:
    from iocourse.lowrank.character_model import Characters
    from iocourse.lowrank.transformer import Attend, Shape

PHASE = 100  # steps
LAST = 100  # steps of the mean at the end
GOAL = {"bound": 2.0, "degree": 4, "difference": 5e-3, "steps": 400}
EXACT, UNIFORM = "exact", "uniform"


class Kind(NamedTuple):
    """One training: the bound on logits or None, the kind of attention, and its degree or None."""

    bound: float | None
    attention: str
    degree: int | None

    def __str__(self) -> str:
        return self.attention if self.degree is None else f"{self.attention}, g = {self.degree}"


class Sizes(NamedTuple):
    """Sizes of the training: a causal transformer of characters, trained with AdamW."""

    steps: int = 400
    n: int = 512
    batch: int = 2
    layers: int = 3
    heads: int = 8
    d: int = 8
    seed: int = 0
    bounds: Sequence[float | None] = (2.0, 4.0, None)
    degrees: Sequence[int] = (2, 4)


QUICK = Sizes(steps=12, n=128, bounds=(2.0, None))


def kinds(sizes: Sizes) -> list[Kind]:
    """Return the trainings: for each bound exact attention, then uniform weights, then the polynomials.

    Uniform weights ignore queries and keys, and show how much the loss depends on attention. Minimax is only
    used with a bound, because it needs a known interval.
    """
    return [
        Kind(bound, name, degree)
        for bound in sizes.bounds
        for name, degree in [
            (EXACT, None),
            (UNIFORM, None),
            *((name, degree) for degree in sizes.degrees for name in _polynomials(bound)),
        ]
    ]


def _polynomials(bound: float | None) -> list[str]:
    return ["taylor", "hermite"] + ([] if bound is None else ["minimax"])


def attention_of(kind: Kind, shape: Shape) -> Attend:
    """Return the attention function of a training."""
    from iocourse.lowrank.transformer import exactly, low_rank, uniformly

    if kind.degree is None:
        return uniformly if kind.attention == UNIFORM else exactly()
    options: dict[str, Row] = {
        "taylor": {},
        "hermite": {"key_variance": shape.key_variance},
        "minimax": {"radius": kind.bound},
    }
    return low_rank(kind.degree, polynomial=kind.attention, **options[kind.attention])


def measured(sizes: Sizes) -> Row:
    """Run every training and return losses, validation losses, largest logits, and the differences from exact
    training with the same bound.
    """
    from iocourse.lowrank.character_model import FILE, prose

    text = prose()
    every = kinds(sizes)
    ticks = with_progress_bar(range(sizes.steps * len(every)), "training steps")
    runs = [_trained(kind, sizes, text, ticks) for kind in every]
    about = {"file": FILE, "sha256": text.digest, "characters": len(text.train) + len(text.kept)}
    return {"sizes": sizes._asdict(), "text": about, "runs": compared(runs)}


def _trained(kind: Kind, sizes: Sizes, text: Characters, ticks: Iterator[int]) -> Row:
    from iocourse.lowrank import character_model
    from iocourse.lowrank.transformer import Shape, exactly, transformer

    shape = Shape(len(text.alphabet), sizes.n, sizes.layers, sizes.heads, sizes.d, kind.bound)
    model = transformer(shape, attention_of(kind, shape), sizes.seed)
    start = time.process_time()
    losses = character_model.train(model, text, islice(ticks, sizes.steps), sizes.batch, sizes.seed)
    seconds = time.process_time() - start
    return kind._asdict() | {
        "losses": [round(loss, 5) for loss in losses],
        "mean_at_the_end": round(sum(losses[-LAST:]) / len(losses[-LAST:]), 5),
        "validation_own": round(character_model.validation_loss(model, text), 5),
        "validation_exact": round(character_model.validation_loss(model, text, exactly()), 5),
        "largest_logit": round(character_model.largest_logit(model, text), 3),
        "cpu_seconds": round(seconds, 1),
    }


def compared(runs: Sequence[Row]) -> list[Row]:
    """Add `phases` to each run: the largest difference from the exact run of its bound, per 100 steps."""
    exact = {run["bound"]: run["losses"] for run in runs if run["attention"] == EXACT}
    return [run | {"phases": phases(run["losses"], exact[run["bound"]])} for run in runs]


def phases(losses: Sequence[float], exact: Sequence[float]) -> list[Row]:
    """Return the phases: `first` and `last` step, counted from 1, and the largest |loss - exact loss|."""
    off = [abs(a - b) for a, b in zip(losses, exact, strict=True)]
    return [
        {
            "first": at + 1,
            "last": min(at + PHASE, len(off)),
            "largest_difference": round(max(off[at : at + PHASE]), 5),
        }
        for at in range(0, len(off), PHASE)
    ]


def largest_difference(run: Row) -> float:
    """Return the largest difference of a run from the exact run of the same bound, over all steps."""
    differences: list[float] = [phase["largest_difference"] for phase in run["phases"]]
    return max(differences)


def verdict(result: Row) -> Row:
    """Return the goal, the closest polynomial and its difference; `reached` is None with too few steps."""
    of_goal = [
        run for run in result["runs"] if run["bound"] == GOAL["bound"] and run["degree"] == GOAL["degree"]
    ]
    enough = bool(of_goal) and result["sizes"]["steps"] >= GOAL["steps"]
    best = min(of_goal, key=largest_difference) if enough else None
    what = "400 steps, logits within ±2, g = 4: largest difference to the exact loss"
    reached = None if best is None else largest_difference(best)
    by = "" if best is None else best["attention"]
    return {"what": what, "reached": reached, "goal": GOAL["difference"], "by": by}


def show(result: Row) -> str:
    """Format the trainings, one line each."""
    sizes, runs = result["sizes"], result["runs"]
    spans = [f"{phase['first']}-{phase['last']}" for phase in runs[0]["phases"]]
    about = (
        f"training on {result['text']['characters']:,} characters: {sizes['layers']} layers, "
        f"{sizes['heads']} heads of d = {sizes['d']}, n = {sizes['n']}, batch {sizes['batch']}, one seed\n"
        "largest difference of the loss from the exact one, by steps; losses in nats per character"
    )
    heads = ["logits", "attention", *spans, "loss at end", "kept, own", "kept, exact", "max logit", "CPU s"]
    return f"{about}\n{table([heads, *map(_line, runs)], left=2)}"


def _line(run: Row) -> list[str]:
    logits = "free" if run["bound"] is None else f"±{run['bound']:g}"
    kind = str(Kind(run["bound"], run["attention"], run["degree"]))
    differences = [phase["largest_difference"] for phase in run["phases"]]
    losses = [run[key] for key in ("mean_at_the_end", "validation_own", "validation_exact")]
    about = [f"{run['largest_logit']:.2f}", f"{run['cpu_seconds']:.0f}"]
    return [logits, kind, *(f"{number:.4f}" for number in differences + losses), *about]
