"""How long each explorer takes from key and pointer to pixels, in JupyterLab and a real Chromium.

What is printed counts on a machine that does nothing else: `pytest -n 0 tests/browser/test_speed.py`.
"""

import os
from statistics import median
from typing import NamedTuple

import pytest
from explorer_page import ExplorerPage

from iocourse.explore.widgets.shell.explorer import EXPLORERS, Explorer, called

PATIENCE = 1000  # milliseconds that a median may take where other tests run beside
FEW = 2  # frames a second that are few even there
KEYS = 8
SETTLED = 10_000  # milliseconds after which JupyterLab loads nothing more


class Hand(NamedTuple):
    """A slider to be moved by key, how far the picture is dragged to and fro, in how many steps, and what
    else is moved by key, where that asks for other work than the slider.
    """

    slider: str  # its label
    by: tuple[float, float] | None = None
    steps: int = 12
    more: tuple[str, ...] = ()


HANDS = {  # of others: their first slider, and no drag
    "kernel_tuner": Hand("BN (keys)", (-150, -70), 2),  # to other tiles of the map
    "low_rank_explorer": Hand("n (tokens)", (-80, 0), more=("degree g", "d (columns)", "B (of entries)")),
    "lowrank_table": Hand("degree g"),
    "mask_painter": Hand("row", (150, -150), 6),
    "memory_explorer": Hand("M (words)", (120, 0), more=("N (rows)", "d (columns)")),
    "ranks_explorer": Hand("P (ranks)", (120, 0), more=("N (rows)", "d (columns)", "H (heads)")),
    "tile_tuner": Hand("M (words)", (60, 40), more=("N (rows)", "Br (rows of Q)")),
}
MADE = {name: made for name, make in EXPLORERS.items() if isinstance(made := make(), Explorer)}


def first_slider(made):
    """The name of the first slider in view."""
    return next(
        one.label for one in made.controls.values() if one.kind in ("slider", "player") and not one.hidden
    )


@pytest.fixture(scope="module", autouse=True)
def _settled(lab):
    lab.wait_for_timeout(SETTLED)


@pytest.mark.parametrize("name", MADE)
def test_a_picture_follows_key_and_pointer(name, shown, capsys):
    made, page = MADE[name], shown(name, f"explore.{name}()")
    hand = HANDS.get(name) or Hand(first_slider(made))
    explorer = ExplorerPage(page, called(type(made)))
    said = []
    for slider in (hand.slider, *hand.more):
        took = explorer.time_keys(slider, KEYS)
        said.append(f"{slider} key to pixels {_told(took)}")
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
