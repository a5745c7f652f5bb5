"""Tests of `backward_tile`: words agree with the schedules, and invalid arguments are refused."""

import re

import pytest

from iocourse import costs
from iocourse.course import explore

N, d, Br, Bc = 96, 8, 4, 16
TILES = (N // Br) * (N // Bc)


def words(picture, does=""):
    """Return the arrays in the numbers of a figure with their words, filtered by their fate."""
    cells = [re.split(r"\s{2,}", line) for line in picture.numbers.splitlines()[1:]]
    return {name: int(count.replace(",", "")) for name, fate, count in cells if fate.startswith(does)}


def test_the_tile_of_the_fused_backward_has_its_footprint_and_what_it_moves():
    picture = explore.backward_tile("columns", d=d, Br=Br, Bc=Bc, title="B3")
    b3, room = costs.fused_backward(N, d, Br=Br, Bc=Bc), words(picture)
    assert sum(room.values()) - room["dQ"] == b3.peak  # dQ comes where dO was
    assert sum(words(picture, "resident").values()) == 4 * Bc * d
    moved = {name: TILES * count for name, count in words(picture, "streamed").items()}
    assert [moved["Q"], moved["L"], moved["D"]] == [b3.reads["Q"], b3.reads["LSE"], b3.reads["D"]]
    assert moved["dO"] == b3.reads["dO"] - N * d  # D is taken as given
    assert set(words(picture, "streamed, read and written")) == {"dQ"} and moved["dQ"] == b3.writes["dQ"]


def test_the_tile_of_the_first_pass_of_split_backward_has_its_footprint_and_what_it_moves():
    picture = explore.backward_tile("rows", gradients={"dQ"}, d=d, Br=Br, Bc=Bc)
    b4 = costs.split_backward(N, d, Br1=Br, Bc1=Bc, Br2=1, Bc2=1)
    assert sum(words(picture).values()) == b4.peak
    rows = {name: TILES * count for name, count in words(picture, "streamed, read").items()}
    assert rows == {name: b4.reads[name] - N * d for name in ("K", "V")}  # its second pass reads them once


def test_dV_alone_needs_neither_V_nor_D_nor_a_slope():
    picture = explore.backward_tile("columns", gradients={"dV"}, d=d, Br=Br, Bc=Bc)
    assert set(words(picture)) == {"Q", "dO", "L", "K", "dV", "S, P"}
    assert "dP" not in picture.alt and "dV += PᵀdO" in picture.alt


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stays": "keys"}, "stays must be 'rows' or 'columns', got 'keys'"),
        ({"gradients": ()}, r"gradients must be one or more of dQ, dK and dV, got \(\)"),
        ({"gradients": ["dS"]}, r"gradients must be one or more of dQ, dK and dV, got \['dS'\]"),
        ({"Br": 0}, "Br"),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        explore.backward_tile(**({"stays": "rows", "d": d, "Br": Br, "Bc": Bc} | given))
