"""The mask painter: words and tiles are those of the masks and closed forms, and no row is left empty."""

import numpy as np
import pytest
from figure_layout import check_layout
from hypothesis import given
from hypothesis import strategies as st

from iocourse import bounds, costs, masks
from iocourse.explore import MaskPainter, Picture, block_mask, mask_painter
from iocourse.explore.draw.picture import Poly, Rect
from iocourse.explore.figures.block_mask import SEEN, is_half, sparse
from iocourse.explore.widgets.mask_painter import PRESETS, SYMBOLS


@st.composite
def block_masks(draw):
    """A mask of at most 9 x 9 tiles, ragged and causal ones too, in which some rows may be empty."""
    N, Br, Bc = draw(st.integers(1, 40)), draw(st.integers(5, 50)), draw(st.integers(5, 50))
    shape = (costs.ceil_div(N, Br), costs.ceil_div(N, Bc))
    tiles = np.array(
        draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    )
    return masks.BlockMask(N, tiles.reshape(shape), Br, Bc, causal=draw(st.booleans()), allow_empty=True)


# ---------------------------------------------------------------------- the figure
@given(block_masks(), st.integers(1, 9))
def test_words_are_those_of_the_closed_forms(mask, d):
    picture, s = block_mask(mask, d), sparse(mask, d)
    ledger = costs.block_sparse(mask.N, d, mask=mask, Br=mask.Br, Bc=1)
    least, _ = bounds.lower_bound("forward", mask.N, d, ledger.peak, mask=mask)
    assert (s.ledger.total, s.M, s.least) == (ledger.total, ledger.peak, least)
    for words in (ledger.total, costs.flash_optimal(mask.N, d, Br=mask.Br).total, least):
        assert f"{words:,}" in picture.numbers and f"{words:,}" in picture.alt
    assert f"{mask.nnz:,} of {mask.N**2:,} pairs seen" in picture.numbers
    check_layout(picture)


@given(block_masks())
def test_the_area_that_is_drawn_is_the_share_of_pairs(mask):
    """To within the diagonal, which counts whole pairs in a causal mask and half of each in the picture."""
    picture, side = block_mask(mask, 4), 320.0
    area = sum(
        e.width * e.height for e in picture.elements if isinstance(e, Rect) and e.fill == SEEN and e.x < 400
    )
    area += sum(_area(e.points) for e in picture.elements if isinstance(e, Poly) and e.points[0][0] < 400)
    drawn, on_the_diagonal = area / side**2 * mask.N**2, mask.N / 2 if mask.causal else 0
    assert mask.nnz - on_the_diagonal - 1e-6 <= drawn <= mask.nnz + 1e-6


def _area(points):
    pairs = zip(points, [*points[1:], points[0]], strict=True)
    return abs(sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in pairs)) / 2


def test_only_tiles_on_the_diagonal_of_a_causal_mask_are_half_seen():
    mask = masks.causal(64, 8)
    assert [(i, j) for i in range(8) for j in range(8) if mask.tiles[i, j] and is_half(mask, i, j)] == [
        (k, k) for k in range(8)
    ]
    assert not is_half(masks.strided(64, 8, 2), 3, 3)


def test_with_M_the_schedule_picks_its_blocks():
    mask = masks.causal(256, 32)
    s = sparse(mask, 16, 500)
    assert s.Br == costs_of_tiles(mask, 16, 500) and s.ledger.peak <= 500
    assert "footprint" in block_mask(mask, 16, 500).numbers
    with pytest.raises(ValueError, match="M = 20 is too small for block_sparse"):
        block_mask(mask, 16, 20)


def costs_of_tiles(mask, d, M):
    """The number of rows with the fewest words of all that fit, by trying each."""
    ledgers = {Br: costs.block_sparse(mask.N, d, mask=mask, Br=Br, Bc=1) for Br in range(1, mask.N + 1)}
    fitting = {Br: ledger.total for Br, ledger in ledgers.items() if ledger.peak <= M}
    least = min(fitting.values())
    return next(Br for Br in sorted(fitting) if fitting[Br] == least)


REFUSED = [
    (
        lambda: block_mask(masks.Causal(8), 4),
        TypeError,
        "mask must be a BlockMask of iocourse.masks, got Causal",
    ),
    (lambda: block_mask(masks.causal(8, 4), 0), ValueError, "d must be at least 1"),
    (lambda: block_mask(masks.causal(8, 4), 4, cursor=(2, 0)), ValueError, r"tiles are \(0, 0\) to \(1, 1\)"),
    (lambda: mask_painter(N=0), ValueError, "N must be at least 1"),
    (lambda: mask_painter(N=1000, B=10), ValueError, "100 x 100 tiles; .* B must be at least 63"),
    (lambda: mask_painter(preset="zigzag"), ValueError, "preset 'zigzag'; there are causal, window"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_bad_input_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def painter():
    """A fresh widget of 6 x 6 tiles, the last row and column thinner."""
    return mask_painter(N=90, B=16, d=8)


def check_shown(painter):
    """Buttons, words and picture all show the mask."""
    for (row, column), cell in painter.cells.items():
        half = is_half(painter.mask, row, column)
        state = ("seen up to the query" if half else "seen") if painter.mask.tiles[row, column] else "hidden"
        assert cell.description == SYMBOLS[state]
        assert cell.style is painter._looks[bool(painter.mask.tiles[row, column])]
    assert painter.view.value == painter.picture.to_svg()
    total = costs.block_sparse(
        painter.setting.N, painter.setting.d, mask=painter.mask, Br=painter.setting.B, Bc=1
    ).total
    assert f"<b>{total:,} words moved" in painter.words.value
    assert painter.controls["causal"].value == painter.mask.causal


def test_a_click_and_the_button_toggle_a_tile(painter):
    painter.cells[4, 1].click()
    assert not painter.mask.tiles[4, 1] and painter.cursor == (4, 1)
    assert "Tile 4, 1: hidden." in painter.words.value
    check_shown(painter)
    painter.controls["row"].value, painter.controls["column"].value = 5, 2
    assert "Tile 5, 2: seen." in painter.words.value
    painter.controls["toggle"].click()
    assert not painter.mask.tiles[5, 2]
    painter.controls["toggle"].click()
    assert painter.mask.tiles[5, 2]
    check_shown(painter)


def test_the_last_tile_of_a_row_stays(painter):
    before = painter.mask
    painter.cells[0, 0].click()
    assert painter.mask == before
    assert "Row 0 must keep a tile: queries 0 to 15 would see no key." in painter.words.value
    painter.cells[0, 3].click()
    assert "holds later keys only" in painter.words.value and painter.mask == before
    painter.controls["causal"].value = False
    painter.cells[5, 0].click()
    for column in range(1, 5):
        painter.toggle(5, column)
    painter.toggle(5, 5)
    assert painter.mask.tiles[5].sum() == 1
    assert "Row 5 must keep a tile: queries 80 to 89 would see no key." in painter.words.value
    check_shown(painter)


def test_hiding_later_keys_may_not_empty_a_row(painter):
    painter.controls["causal"].value = False
    painter.cells[0, 3].click()
    painter.cells[0, 0].click()
    assert painter.mask.tiles[0].tolist() == [False, False, False, True, False, False]
    painter.controls["causal"].value = True
    assert "Row 0 must keep a tile" in painter.words.value and not painter.mask.causal
    check_shown(painter)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_the_masks_of_the_library(painter, name):
    painter.controls["preset"].value = "dense" if name == "causal" else "causal"
    painter.controls["preset"].value = name
    assert (
        painter.mask
        == {
            "causal": masks.causal(90, 16),
            "window": masks.sliding_window(90, 16, 1),
            "bigbird": masks.bigbird(90, 16, 1, 1, 2),
            "strided": masks.strided(90, 16, 4),
            "random": masks.random(90, 16, 0.2),
            "dense": masks.BlockMask(90, np.ones((6, 6), bool), 16),
        }[name]
    )
    check_shown(painter)
    used = {
        key
        for key in ("w", "g", "r", "s", "percent", "seed")
        if painter.controls[key].layout.display != "none"
    }
    assert used == set(PRESETS[name].parameters)


@pytest.mark.parametrize(("name", "parameter", "expected"), [
    ("window", {"w": 3}, masks.sliding_window(90, 16, 3)),
    ("bigbird", {"g": 2, "seed": 5}, masks.bigbird(90, 16, 2, 1, 2, seed=5)),
    ("strided", {"s": 1}, masks.strided(90, 16, 1)),
    ("random", {"percent": 60, "seed": 1}, masks.random(90, 16, 0.6, seed=1)),
])  # fmt: skip
def test_parameters_change_the_mask(painter, name, parameter, expected):
    painter.controls["preset"].value = name
    for key, value in parameter.items():
        painter.controls[key].value = value
    assert painter.mask == expected
    check_shown(painter)


def test_undo_goes_back_and_clear_keeps_the_diagonal(painter):
    start = painter.mask
    painter.toggle(3, 1)
    second = painter.mask
    painter.controls["preset"].value = "dense"
    painter.controls["clear"].click()
    assert painter.mask == masks.BlockMask(90, np.eye(6, dtype=bool), 16)
    painter.controls["undo"].click()
    painter.controls["undo"].click()
    assert painter.mask == second
    painter.controls["undo"].click()
    assert painter.mask == start and "Undone." in painter.words.value
    painter.controls["undo"].click()
    assert "There is nothing to undo." in painter.words.value
    check_shown(painter)


def test_it_starts_as_documented():
    assert isinstance(mask_painter(), MaskPainter)
    assert repr(mask_painter()) == "MaskPainter(N=1024, B=64, d=64): 136 tiles seen"


def test_without_widgets_it_is_the_picture(monkeypatch):
    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    assert isinstance(mask_painter(), Picture)
    assert mask_painter(512, 32, 16, "bigbird") == block_mask(masks.bigbird(512, 32, 1, 1, 2), 16)
