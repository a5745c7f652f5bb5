"""One training with exact and with approximate attention: the same first weights, the same batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from iocourse.console import steps, table
from tools.bench import Row

if TYPE_CHECKING:
    from iocourse.lowrank.character_model import Characters
    from iocourse.lowrank.transformer import Attend, Shape

PHASE = 100  # steps
LAST = 100  # steps a mean is taken over
GOAL = {"bound": 2.0, "degree": 4, "difference": 5e-3, "steps": 400}
EXACT, UNIFORM = "exact", "uniform"


class Kind(NamedTuple):
    """One training: the bound on logits or None, whose attention, and its degree (None for exact)."""

    bound: float | None
    attention: str
    degree: int | None

    def __str__(self) -> str:
        return self.attention if self.degree is None else f"{self.attention}, g = {self.degree}"


class Sizes(NamedTuple):
    """What is trained: a transformer of characters, causal, by AdamW."""

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
    """For each bound the exact training first, then uniform weights, then the polynomials.

    Uniform weights look at no query and no key: they show how much of the loss attention is about at all.
    Minimax needs an interval known beforehand, and only a bound gives one.
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
    """How this training attends."""
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
    """Every training one after the other: its losses, what it says on kept text, its largest logit.

    Each also with its differences from the exact training under the same bound.
    """
    from iocourse.lowrank.character_model import FILE, prose

    text = prose()
    every = kinds(sizes)
    ticks = steps(range(sizes.steps * len(every)), "training steps")
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
    """Each run with `phases`: the largest difference to the exact run of its bound, 100 steps at a time."""
    exact = {run["bound"]: run["losses"] for run in runs if run["attention"] == EXACT}
    return [run | {"phases": phases(run["losses"], exact[run["bound"]])} for run in runs]


def phases(losses: Sequence[float], exact: Sequence[float]) -> list[Row]:
    """`first` and `last` step of each phase, counted from 1, and the largest |loss - exact loss| in it."""
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
    """From the exact run of the same bound, over all steps."""
    differences: list[float] = [phase["largest_difference"] for phase in run["phases"]]
    return max(differences)


def verdict(result: Row) -> Row:
    """The goal, the polynomial that came closest, and how close; not judged where fewer steps were made."""
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
    """One line a training."""
    sizes, runs = result["sizes"], result["runs"]
    spans = [f"{phase['first']}-{phase['last']}" for phase in runs[0]["phases"]]
    about = (
        f"training on {result['text']['characters']:,} characters: {sizes['layers']} layers, "
        f"{sizes['heads']} heads of d = {sizes['d']}, n = {sizes['n']}, batch {sizes['batch']}, one seed\n"
        "largest difference of the loss to the exact one, by steps; losses in nats a character"
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
