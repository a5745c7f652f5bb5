"""How long the tile tuner's kernel takes from a slider's new value to the new picture."""

from __future__ import annotations

import time
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any

from iocourse.bench import circumstances
from iocourse.explore import TileTuner, tile_tuner
from iocourse.explore.trace import dry_trace
from iocourse.explore.tuning import footprint_parts, playback

NAME = "explore"
HELP = "tile tuner: milliseconds from a slider's value to the SVG, N = 1024"
LIMIT_MS = 100  # slider to picture, the course's own aim; the browser's share comes on top
REPEATS = 60

VALUES = {
    "N": (1024, 768, 512, 1024, 1536, 2048),
    "d": (64, 48, 32, 96, 64, 128),
    "M": (16384, 20480, 24576, 28672, 12288, 8192),
    "Br": (32, 40, 48, 56, 64, 28),
    "Bc": (32, 40, 48, 56, 64, 28),
    "step": (1, 2, 50, 51, 300, 301),
}


def run(quick: bool) -> dict[str, Any]:
    """Milliseconds per control, from setting its value until the SVG and the words are set.

    Traces are forgotten before each change, so every one is timed as if its setting were new; the drawing
    again of a setting seen before is timed apart.
    """
    repeats = 12 if quick else REPEATS
    timed = {}
    for schedule in ("flash2", "flash1"):
        tuner = tile_tuner(schedule=schedule)
        if not isinstance(tuner, TileTuner):
            raise RuntimeError("IOCOURSE_WIDGETS=0 leaves no sliders to time; unset it")
        timed[schedule] = {
            name: {"new": _timed(tuner, name, repeats, True), "seen": _timed(tuner, name, repeats, False)}
            for name in VALUES
        }
    facts = circumstances("ipywidgets", "numpy")
    return {"subject": NAME, **facts, "repeats": repeats, "limit_ms": LIMIT_MS, "controls": timed}


def _timed(tuner: TileTuner, name: str, repeats: int, forget: bool) -> dict[str, float]:
    control = tuner.controls[name]
    before, took = control.value, []
    for value in islice(cycle(VALUES[name]), repeats + len(VALUES[name])):
        if forget:
            for cached in (dry_trace, playback, footprint_parts):
                cached.cache_clear()
        if value == control.value:
            continue
        start = time.perf_counter()
        control.value = value
        took.append(1000 * (time.perf_counter() - start))
    control.value = before
    return {"median_ms": round(median(took), 2), "p90_ms": round(quantiles(took, n=10)[8], 2)}


def show(result: dict[str, Any]) -> str:
    """One line for each control, the slowest named last."""
    lines = [f"{'':<8} {'control':<8} {'new: median':>14} {'p90':>8} {'seen: median':>14} {'p90':>8}   ms"]
    for schedule, controls in result["controls"].items():
        for name, one in controls.items():
            new, seen = one["new"], one["seen"]
            lines.append(
                f"{schedule:<8} {name:<8} {new['median_ms']:>14.2f} {new['p90_ms']:>8.2f} "
                f"{seen['median_ms']:>14.2f} {seen['p90_ms']:>8.2f}"
            )
    slowest = max(one["new"]["median_ms"] for c in result["controls"].values() for one in c.values())
    return "\n".join([*lines, f"slowest median {slowest:.1f} ms of {result['limit_ms']} ms allowed"])
