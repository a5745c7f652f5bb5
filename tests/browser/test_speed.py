"""How long each explorer takes from key and pointer to pixels, in JupyterLab and a real Chromium.

What is printed counts on a machine that does nothing else: `pytest -n 0 tests/browser/test_speed.py`.
"""

import os
from statistics import median
from typing import NamedTuple

import pytest
from explorer_page import ExplorerPage

from iocourse.explore.widgets.explorer import EXPLORERS, Explorer, called

PATIENCE = 400  # milliseconds that a median may take where other tests run beside
FEW = 4  # frames a second that are few even there
KEYS = 8


class Hand(NamedTuple):
    """A slider to be moved by key, and how far the picture is dragged to and fro, in how many steps."""

    slider: str
    by: tuple[float, float] | None = None
    steps: int = 12


HANDS = {
    "kernel_tuner": Hand("BN (keys)", (-150, -70), 2),  # to other tiles of the map
    "low_rank_explorer": Hand("n (tokens)", (-80, 0)),
    "lowrank_table": Hand("degree g"),
    "mask_painter": Hand("row", (150, -150), 6),
    "memory_explorer": Hand("M (words)", (120, 0)),
    "pebble_player": Hand("move"),
    "ranks_explorer": Hand("P (ranks)", (120, 0)),
    "roofline_explorer": Hand("N (rows)"),
    "tile_tuner": Hand("M (words)", (60, 40)),
    "two_memories": Hand("move"),
}


def test_every_explorer_is_timed():
    assert {name for name, make in EXPLORERS.items() if isinstance(make(), Explorer)} == set(HANDS)


@pytest.mark.parametrize("name", HANDS)
def test_a_picture_follows_key_and_pointer(name, shown, capsys):
    page, hand = shown(name, f"explore.{name}()"), HANDS[name]
    explorer = ExplorerPage(page, called(type(EXPLORERS[name]())))
    took = explorer.time_keys(hand.slider, KEYS)
    said = [f"key to pixels {_told(took)}"]
    assert len(took) == KEYS and median(took) < PATIENCE
    if hand.by:
        rate, took = explorer.time_drag(hand.by, hand.steps)
        said.append(f"drag {rate:.0f} frames a second, {_told(took)}")
        assert rate > FEW and median(took) < PATIENCE
    with capsys.disabled():
        print(f"\n{explorer.name}: {'; '.join(said)}, load {os.getloadavg()[0]:.1f}", end="")


def _told(took):
    """The middle and the worst of some milliseconds."""
    return f"{median(took):.0f} ms, at worst {max(took):.0f}"
