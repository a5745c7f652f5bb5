"""Tests of `mask_tiles`: counts and colours of full, partial and empty tiles against the pairs."""

import re

import numpy as np
import pytest

from iocourse import masks
from iocourse.course import explore
from iocourse.course.explore.draw.picture import Raster
from iocourse.course.explore.figures.mask_tiles import CUT, FILLS, HIDDEN_IN_CUT, NEVER, WHOLE, kinds_of

CASES = [
    (masks.Window(100, 20), 16, 16),
    (masks.Causal(100), 32, 8),
    (masks.random(90, 8, 0.2), 12, 7),
    (masks.Full(40), 9, 40),
]


def numbers(picture):
    """Return the table of a figure: kind of tile → (tiles, pairs, visible pairs)."""
    found = re.findall(r"^(full|partial|empty) +([\d,]+) +([\d,]+) +([\d,]+)$", picture.numbers, re.MULTILINE)
    return {kind: tuple(int(n.replace(",", "")) for n in counts) for kind, *counts in found}


@pytest.mark.parametrize(("mask", "Br", "Bc"), CASES)
def test_tiles_and_pairs_are_counted_one_by_one(mask, Br, Bc):
    counts = {"full": [0, 0, 0], "partial": [0, 0, 0], "empty": [0, 0, 0]}
    pairs = mask.pairs()
    for i in range(0, mask.N, Br):
        for j in range(0, mask.N, Bc):
            tile = pairs[i : i + Br, j : j + Bc]
            kind = "full" if tile.all() else "partial" if tile.any() else "empty"
            counts[kind] = [a + b for a, b in zip(counts[kind], (1, tile.size, int(tile.sum())), strict=True)]
    picture = explore.mask_tiles(mask, Br, Bc)
    assert numbers(picture) == {kind: tuple(row) for kind, row in counts.items()}
    hidden = counts["partial"][1] - counts["partial"][2]
    assert picture.numbers.endswith(f"computed and masked: {hidden:,} pairs")


@pytest.mark.parametrize(("mask", "Br", "Bc"), CASES)
def test_a_pixel_for_each_pair_in_the_colour_of_its_tile(mask, Br, Bc):
    (raster,) = (e for e in explore.mask_tiles(mask, Br, Bc).elements if isinstance(e, Raster))
    N, pairs = mask.N, mask.pairs()
    pixels = np.frombuffer(raster.pixels, np.uint8).reshape(N, N, 3)
    kinds = kinds_of(pairs, Br, Bc)
    for i, j in np.ndindex(N, N):
        kind = kinds[i // Br, j // Bc]
        want = HIDDEN_IN_CUT if kind == CUT and not pairs[i, j] else FILLS[kind].colour
        assert bytes(pixels[i, j]) == bytes.fromhex(want[1:])


def test_whole_cut_and_never():
    assert kinds_of(masks.Causal(4).pairs(), 2, 2).tolist() == [[CUT, NEVER], [WHOLE, CUT]]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((64, 8), TypeError, "mask must be one of iocourse.masks, got int"),
        (
            (masks.Causal(1025), 32),
            ValueError,
            r"mask must have at most 1,024 tokens to be drawn, got N = 1,025",
        ),
        (
            (masks.Causal(1000), 32, 15),
            ValueError,
            "Br = 32, Bc = 15 give 32 x 67 tiles; use at most 64 per side",
        ),
        ((masks.Causal(10), 0), ValueError, "Br must be"),
    ],
)
def test_what_cannot_be_drawn_is_named(arguments, error, said):
    with pytest.raises(error, match=said):
        explore.mask_tiles(*arguments)
