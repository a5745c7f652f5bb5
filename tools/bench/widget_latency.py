"""Latency of the widgets in the kernel, from a control's new value to the new figure."""

from __future__ import annotations

import time
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any

from iocourse.console import table
from iocourse.course.explore import (
    kernel_explorer,
    low_rank_explorer,
    mask_painter,
    pebble_player,
    tile_tuner,
    traffic_explorer,
    tuning_table,
)
from iocourse.course.explore.draw import graph_layout as layers
from iocourse.course.explore.models import lowrank_explorer as low_rank_facts
from iocourse.course.explore.models import memory_regimes
from iocourse.course.explore.models.memory_states import dry_trace
from iocourse.course.explore.models.tile_tuner import footprint_parts, playback
from iocourse.course.explore.widgets.explorer import widgets_disabled
from iocourse.course.explore.widgets.pebble_player import OPTIMUM, OWN, PRESETS
from iocourse.data.records import run_metadata
from iocourse.lowrank import polynomials

NAME = "explore"
HELP = "widgets: milliseconds from a control's value to the SVG"
LIMIT_MS = 100  # control to figure, the course's goal, without the browser's time
REPEATS, QUICK = 60, 2

TUNER = {
    "N": (1024, 768, 512, 1024, 1536, 2048),
    "d": (64, 48, 32, 96, 64, 128),
    "M": (16384, 20480, 24576, 28672, 12288, 8192),
    "Br": (32, 40, 48, 56, 64, 28),
    "Bc": (32, 40, 48, 56, 64, 28),
    "step": (1, 2, 50, 51, 300, 301),
}
MAP = {
    "N": (65536, 49152, 32768, 24576),
    "d": (64, 128, 192, 256),
    "M": (16384, 20480, 2**20, 512),
    "pass": ("forward", "backward", "gradient"),
}
PAINTER = {
    "preset": ("causal", "bigbird", "dense", "random", "strided", "window"),
    "row": (0, 1, 7, 15),
    "column": (0, 3, 9, 15),
}
PLAYER = {"step": (1, 2, 14, 15), "mode": (OWN, OPTIMUM), "preset": tuple(PRESETS)}  # bench pebbling: search
KERNEL = {
    "arch": (75, 89, 100, 90),
    "kernel": ("fused", "queries", "keys", "draft", "forward"),
    "d": (64, 128, 256, 512),
    "BM": (16, 32, 64, 128),
    "BN": (16, 32, 64, 128),
    "warps": (2, 4, 8, 16),
    "stages": (1, 2, 3, 4),
    "N": (1024, 4096, 32768, 65536),
}
TUNING = {
    "table": ("draft, d = 128", "keys, d = 64", "forward, d = 128, causal", "draft, d = 64"),
    "column": ("registers", "stall_clocks", "blocks", "words"),
    "rows": (0, 32, 64, 128),
}
LOW_RANK = {
    "data": ("head 0.2", "Gaussian", "head 5.0", "head 2.9"),
    "polynomial": ("taylor", "chebyshev", "minimax", "hermite"),
    "degree": (1, 4, 7, 12),
    "d": (4, 12, 32, 128),
    "n": (1024, 32_768, 2**20, 2**22),
    "M": (1024, 8192, 2**17, 2**20),
    "B": (0.25, 0.5, 1.0, 4.0),
    "sigma": (0.1, 0.3, 1.0, 3.0),
}
CACHES = (
    dry_trace, playback, footprint_parts, *memory_regimes.CACHES, *layers.CACHES,
    *low_rank_facts.CACHES, polynomials.polynomial,
)  # fmt: skip

Times = dict[str, dict[str, dict[str, float]]]


def run(quick: bool) -> dict[str, Any]:
    """Measure milliseconds per control, from setting its value until the SVG and the text are set.

    "new": the caches are cleared before each change, as for a setting not used before. "seen": they are not.
    """
    if widgets_disabled():
        raise RuntimeError("IOCOURSE_WIDGETS=0 disables the sliders to time. Unset it")
    changes = QUICK if quick else REPEATS
    timed: dict[str, Times] = {
        "tile tuner, flash2": _widget(tile_tuner(schedule="flash2"), TUNER, changes),
        "tile tuner, flash1": _widget(tile_tuner(schedule="flash1"), TUNER, changes),
        "traffic explorer": _widget(traffic_explorer(N=65536), MAP, changes),
        "mask painter": _widget(mask_painter(), PAINTER, changes),
        "kernel explorer": _widget(kernel_explorer(), KERNEL, changes),
        "tuning table": _widget(tuning_table(), TUNING, changes),
        "low-rank explorer": _widget(low_rank_explorer(degree=7, sigma=0.5), LOW_RANK, changes),
        "pebble player": _widget(pebble_player(), PLAYER, changes),
    }
    facts = run_metadata("ipywidgets", "numpy")
    return {"subject": NAME, **facts, "repeats": changes, "limit_ms": LIMIT_MS, "controls": timed}


def _widget(widget: Any, values: dict[str, tuple[Any, ...]], changes: int) -> Times:
    return {
        name: {
            "new": _timed(widget, name, given, changes, forget=True),
            "seen": _timed(widget, name, given, changes, forget=False),
        }
        for name, given in values.items()
    }


def _timed(
    widget: Any, name: str, values: tuple[Any, ...], changes: int, *, forget: bool
) -> dict[str, float]:
    control = widget.controls[name]
    before, took = control.value, []
    for value in islice(cycle(values), changes + 1):  # the first may be the current value
        if forget:
            for kept in CACHES:
                kept.cache_clear()
        if value == control.value:
            continue
        start = time.perf_counter()
        widget.set(name, value)
        took.append(1000 * (time.perf_counter() - start))
    widget.set(name, before)
    return {"median_ms": round(median(took), 2), "p90_ms": round(quantiles(took, n=10)[8], 2)}


def show(result: dict[str, Any]) -> str:
    """Format the record as a table with one line per control, and the slowest median."""
    lines = [["ms", "control", "new: median", "p90", "seen: median", "p90"]]
    for widget, controls in result["controls"].items():
        for name, one in controls.items():
            times = (one[kind][figure] for kind in ("new", "seen") for figure in ("median_ms", "p90_ms"))
            lines.append([widget, name, *(f"{ms:.2f}" for ms in times)])
    slowest = max(one["new"]["median_ms"] for c in result["controls"].values() for one in c.values())
    return f"{table(lines, left=2)}\nslowest median {slowest:.1f} ms of {result['limit_ms']} ms allowed"
