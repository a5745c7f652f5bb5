"""Depth and training with low-rank attention: errors over layers, loss curves, and heads of a real model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iocourse.console import DASH
from iocourse.data.records import record_source, run_metadata
from iocourse.doctor import install_command
from iocourse.errors import UsageError
from tools.bench import Row, verdict
from tools.bench.depth import layers, real_heads, training

NAME = "depth"
HELP = "low-rank attention in deep models: error over layers, training, real heads (CPU, needs torch)"


def run(quick: bool) -> Row:
    """Measure layers, training and heads on one thread with fixed seeds, and return the record.

    Args:
        quick: fewer layers, 12 training steps, shorter sequences; goals are then not judged.

    Raises:
        UsageError: torch is missing.
    """
    with _one_thread():
        depths = layers.measured(layers.QUICK if quick else layers.Sizes())
        trained = training.measured(training.QUICK if quick else training.Sizes())
    goals = [layers.verdict(depths["rows"]), training.verdict(trained)]
    return {
        "subject": NAME,
        **run_metadata("numpy", "torch", "numba"),
        "quick": quick,
        "threads": 1,
        "layers": depths,
        "training": trained,
        "heads": real_heads.measured(),
        "goals": [goal | {"verdict": _verdict(goal)} for goal in goals],
    }


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
        "\n".join(_goal(goal) for goal in result["goals"]),
        f"{record_source(result)}, {result['threads']} thread",
    ]
    return "\n\n".join(parts)


def _goal(goal: Row) -> str:
    reached = DASH if goal["reached"] is None else f"{goal['reached']:.2g}"
    by = f" ({goal['by']})" if goal.get("by") else ""
    return f"{goal['what']}: {reached}{by}, goal {goal['goal']:g}: {goal['verdict']}"
