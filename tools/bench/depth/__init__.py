"""Depth and training with low-rank attention: errors over layers, loss curves, heads of a real model, and the
gradient at trained weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from iocourse.console import DASH
from iocourse.data.records import load_record, record_source, run_metadata
from iocourse.doctor import install_command
from iocourse.errors import UsageError
from tools.bench import Row, verdict
from tools.bench.depth import layers, real_heads, trained_gradient, training

NAME = "depth"
HELP = "low-rank attention in deep models: errors over layers and in training, real heads (CPU, needs torch)"


SECTIONS: dict[str, Callable[[bool], Row]] = {
    "layers": lambda quick: layers.measured(layers.QUICK if quick else layers.Sizes()),
    "training": lambda quick: training.measured(training.QUICK if quick else training.Sizes()),
    "heads": lambda quick: real_heads.measured(),
    "trained_gradient": lambda quick: trained_gradient.measured(
        trained_gradient.QUICK if quick else trained_gradient.Sizes()
    ),
}


def run(quick: bool, only: Sequence[str] = ()) -> Row:
    """Measure the sections on one thread with fixed seeds, and return the record.

    Args:
        quick: fewer layers, few training steps, shorter sequences; goals are then not judged.
        only: measure only these sections, and keep the others of the shipped record. Each of them has its own
            date, cores, versions and commit, because the others were measured before.

    Raises:
        UsageError: torch is missing, `only` has an unknown section, or there is no record to add it to.
    """
    for name in only:
        if name not in SECTIONS:
            raise UsageError(f"--only must be one of {', '.join(SECTIONS)}; got {name!r}")
    if only and quick:
        raise UsageError("--quick cannot be used with --only, which renews sections of a whole run: omit one")
    made = run_metadata("numpy", "torch", "numba")
    record = load_record(NAME) if only else {"subject": NAME, **made, "quick": quick, "threads": 1}
    if record is None:
        raise UsageError("--only renews sections of a recorded run, and there is none: omit --only")
    with _one_thread():
        for name in only or SECTIONS:
            record[name] = (made if only else {}) | SECTIONS[name](quick)
    goals = [layers.verdict(record["layers"]["rows"]), training.verdict(record["training"])]
    return record | {"goals": [goal | {"verdict": _verdict(goal)} for goal in goals]}


@contextmanager
def _one_thread() -> Iterator[None]:
    try:
        import torch
    except ImportError:
        raise UsageError(f"torch is missing: {install_command.command('torch')}") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _verdict(goal: Row) -> str:
    if goal["reached"] is None:
        return "not judged: a quick run does not measure it"
    return verdict(goal["reached"], goal["goal"], less=True)


def show(result: Row) -> str:
    """Format errors over layers, trainings, heads, the goals, and the source of the measurement."""
    parts = [
        layers.show(result["layers"]),
        training.show(result["training"]),
        real_heads.show(result["heads"]),
        trained_gradient.show(result["trained_gradient"]),
        "\n".join(_goal(goal) for goal in result["goals"]),
        f"{record_source(result)}, {result['threads']} thread",
        *(f"{name}: {record_source(result[name])}" for name in SECTIONS if "date" in result[name]),
    ]
    return "\n\n".join(parts)


def _goal(goal: Row) -> str:
    reached = DASH if goal["reached"] is None else f"{goal['reached']:.2g}"
    by = f" ({goal['by']})" if goal.get("by") else ""
    return f"{goal['what']}: {reached}{by}, goal {goal['goal']:g}: {goal['verdict']}"
