"""Latency of each explorer from key and pointer to pixels, in JupyterLab and Chromium.

The printed latencies are valid only on an idle machine: `pytest -n 0 tests/browser/test_explorer_latency.py`.
The assertions use CPU time per figure, of the kernel and of the page, which does not depend on the load.
"""

import json
import os
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
import skips
from explorer_page import ExplorerPage
from long_runs import many

from iocourse.course.explore.widgets.explorer import EXPLORERS, class_label

skips.unless_installed("anywidget")

PATIENCE = 0.25  # seconds of a core that a picture may take on average, of the kernel and of the page
KEYS = 8
SETTLED = 10_000  # milliseconds after which JupyterLab loads nothing more


class Hand(NamedTuple):
    """Input for one explorer: a slider for keys, a drag in pixels and steps, further sliders for keys."""

    slider: str  # its label
    by: tuple[float, float] | None = None
    steps: int = 12
    more: tuple[str, ...] = ()


HANDS = {  # explorers not listed: first slider, no drag
    "kernel_explorer": Hand("BN (keys)", (-100, -60), 2),  # to other tiles of the map
    "low_rank_explorer": Hand(
        "n (tokens)", (-80, 0), more=("degree g", "d (head dimension)", "B (bound on entries)")
    ),
    "lowrank_table": Hand("degree g"),
    "mask_painter": Hand("row", (150, -150), 6),
    "traffic_explorer": Hand(
        "M (words of fast memory)", (120, 0), more=("N (sequence length)", "d (head dimension)")
    ),
    "distributed_explorer": Hand(
        "P (ranks)", (120, 0), more=("N (sequence length)", "d (head dimension)", "H (heads)")
    ),
    "tile_tuner": Hand(
        "M (words of fast memory)", (60, 40), more=("N (sequence length)", "Br (rows per query block)")
    ),
}
# Which draw the most, and one that is dragged over many small areas.
MEASURED = many(["traffic_explorer", "mask_painter"], list(EXPLORERS))


def first_slider(made):
    """Return the name of the first visible slider."""
    return next(
        one.label for one in made.controls.values() if one.kind in ("slider", "player") and not one.hidden
    )


@pytest.fixture(scope="module", autouse=True)
def _settled(lab):
    lab.wait_for_timeout(SETTLED)


class Work:
    """CPU seconds of the kernel of the current notebook and of the page since `begin`."""

    def __init__(self, server, page):
        (session,) = json.loads(server.ask("api/sessions"))
        kernel = f"kernel-{session['kernel']['id']}.json".encode()
        (self.process,) = [one.parent for one in Path("/proc").glob("[0-9]*/cmdline") if kernel in _read(one)]
        self.metrics = page.context.new_cdp_session(page)
        self.metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def begin(self):
        self.began = self._taken()

    def each(self, pictures):
        """Return the CPU seconds of the kernel and of the page per figure."""
        return [(now - then) / pictures for then, now in zip(self.began, self._taken(), strict=True)]

    def _taken(self):
        fields = (self.process / "stat").read_text().rpartition(")")[2].split()
        told = self.metrics.send("Performance.getMetrics")["metrics"]
        (page,) = [one["value"] for one in told if one["name"] == "TaskDuration"]
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), page


def _read(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.fixture
def work(lab_server):
    """Return a function: page → CPU seconds of its kernel and of the page."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see what a kernel has taken")
    return lambda page: Work(lab_server, page)


@pytest.mark.parametrize("name", MEASURED)
def test_a_picture_follows_key_and_pointer(name, shown, work, capsys):
    made = EXPLORERS[name]()
    page = shown(name, f"explore.{name}()")
    hand = HANDS.get(name) or Hand(first_slider(made))
    explorer = ExplorerPage(page, class_label(type(made)))
    said, taken = [], work(page)
    for slider in (hand.slider, *hand.more):
        taken.begin()
        took = explorer.time_keys(slider, KEYS)
        kernel, drawn = taken.each(len(took))
        said.append(f"{slider} key to pixels {_told(took)}, {_each(kernel, drawn)}")
        assert len(took) == KEYS and kernel < PATIENCE and drawn < PATIENCE, said
    if hand.by:
        taken.begin()
        rate, took = explorer.time_drag(hand.by, hand.steps)
        kernel, drawn = taken.each(len(took))
        said.append(f"drag {rate:.0f} frames a second, {_told(took)}, {_each(kernel, drawn)}")
        assert kernel < PATIENCE and drawn < PATIENCE, said
    with capsys.disabled():
        print(f"\n{explorer.name}: {'; '.join(said)}, load {os.getloadavg()[0]:.1f}", end="")


def _each(kernel, page):
    return f"of a core {1000 * kernel:.0f} ms in the kernel and {1000 * page:.0f} in the page"


def _told(took):
    """Format median and maximum of milliseconds."""
    return f"{median(took):.0f} ms, at worst {max(took):.0f}"
