"""Tests of the mask painter: traffic and tiles agree with masks and closed forms; no row becomes empty."""

from itertools import pairwise

import numpy as np
import pytest
from figure_layout import check_layout, texts
from hypothesis import given
from hypothesis import strategies as st

from iocourse import bounds, costs, masks
from iocourse.course.explore import MaskPainter, block_mask, mask_painter
from iocourse.course.explore.draw.picture import Poly, Rect
from iocourse.course.explore.figures.block_mask import GRID_AT, SEEN, is_half, sparse
from iocourse.course.explore.widgets.mask_painter import PARAMETERS, PRESETS, between


@st.composite
def block_masks(draw):
    """Draw a mask of at most 9 x 9 tiles, also ragged, causal, or with empty rows."""
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
    assert f"{mask.nnz:,} of {mask.N**2:,} pairs visible" in picture.numbers
    check_layout(picture)


@given(block_masks())
def test_the_area_that_is_drawn_is_the_share_of_pairs(mask):
    """Exact except on the diagonal of a causal mask, where the figure shows half of each pair."""
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
    """Return the number of rows with the least traffic that fits, by trying all."""
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
    (
        lambda: block_mask(masks.causal(8, 4), 4, cursor=(2, 0)),
        ValueError,
        r"cursor must be from \(0, 0\) to \(1, 1\), got \(2, 0\)",
    ),
    (lambda: mask_painter(N=0), ValueError, "N must be at least 1"),
    (
        lambda: mask_painter(N=1000, B=10),
        ValueError,
        "B must be at least 63 for N = 1000 .*, got 10, which gives 100 x 100 tiles",
    ),
    (
        lambda: mask_painter(preset="zigzag"),
        ValueError,
        "unknown preset 'zigzag'; expected one of causal, window",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_bad_input_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ---------------------------------------------------------------------- the explorer
@pytest.fixture
def painter():
    """Return a new explorer of 6 x 6 tiles with a thinner last row and column."""
    return mask_painter(N=90, B=16, d=8)


def place(painter, tile):
    """Return a point in the tile (row, column); outside the grid for an index after the last."""
    left, top, side, _ = GRID_AT
    N, B, _ = painter.state
    row, column = (min((at + 0.5) * B, N - 1 if at * B < N else N + B) * side / N for at in tile)
    return left + column, top + row


def stroke(painter, *tiles):
    """Press the pointer on the first tile, move it over the others, and release it on the last."""
    for kind, tile in zip(["down", *["move"] * (len(tiles) - 1)], tiles, strict=True):
        painter.touched(kind, *place(painter, tile))
    painter.touched("up", *place(painter, tiles[-1]))


def check_shown(painter):
    """Assert that figure, controls and text show the mask and its closed-form traffic."""
    row, column = painter.cursor
    half, seen = is_half(painter.mask, row, column), bool(painter.mask.tiles[row, column])
    state = ("visible up to the query" if half else "visible") if seen else "empty"
    assert f"<b>Tile {row}, {column}: {state}." in painter.words
    assert painter.value("seen") == seen and painter.value("causal") == painter.mask.causal
    assert painter.controls["seen"].label == f"tile {row}, {column} is visible"
    assert painter.svg == painter.shown().picture.to_svg()
    N, B, d = painter.state
    total = costs.block_sparse(N, d, mask=painter.mask, Br=B, Bc=1).total
    assert f"Traffic {total:,} words" in painter.page()["spoken"] and f">{total:,}<" in painter.svg


def test_a_click_and_the_keys_toggle_a_tile(painter):
    stroke(painter, (4, 1))
    assert not painter.mask.tiles[4, 1] and painter.cursor == (4, 1)
    check_shown(painter)
    stroke(painter, (4, 1))
    assert painter.mask.tiles[4, 1]
    painter.set("row", 5)
    painter.set("column", 2)
    assert painter.page()["spoken"].startswith("Tile 5, 2: visible. ")
    painter.set("seen", False)
    assert not painter.mask.tiles[5, 2]
    assert painter.page()["spoken"].startswith("Tile 5, 2: empty. ")
    painter.set("seen", True)
    assert painter.mask.tiles[5, 2]
    check_shown(painter)


def test_the_arrow_keys_on_the_box_move_the_sliders_that_choose_the_tile(painter):
    assert painter.controls["seen"].steers == ("column", "row")  # across, and down
    assert [painter.controls[name].kind for name in ("column", "row")] == ["slider", "slider"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5), st.booleans())
def test_a_stroke_paints_the_lines_between_its_places_and_is_one_step_of_undo(tiles, clear):
    painter = mask_painter(N=90, B=16, d=8, preset="dense")
    if clear:
        painter.press("clear")
    before, shows = painter.mask, not painter.mask.tiles[tiles[0]]
    stroke(painter, *tiles)
    lines = {tile for ends in zip(tiles, [*tiles[1:], tiles[-1]], strict=True) for tile in between(*ends)}
    changed = {tuple(at) for at in np.argwhere(painter.mask.tiles != before.tiles).tolist()}
    assert set(tiles) <= lines and changed <= lines
    kept = {tile for tile in lines if painter.mask.tiles[tile] != shows}
    assert all(not shows and painter.mask.tiles[row].sum() == 1 for row, _ in kept), "the last of its row"
    check_shown(painter)
    painter.press("undo")
    assert painter.mask == (
        before if changed or not clear else masks.BlockMask(90, np.ones((6, 6), bool), 16)
    )


def test_what_the_pointer_passed_meanwhile_is_painted_and_drawn_once(painter, monkeypatch):
    widget, places = painter.widget, [place(painter, tile) for tile in ((3, 0), (5, 0), (5, 2))]
    drawn, draw = [], painter._draw
    monkeypatch.setattr(painter, "_draw", lambda: drawn.append(draw()))
    wide, high = painter.picture.width, painter.picture.height
    shares = [[x / wide, y / high] for x, y in places]
    painter._heard(widget, {"turn": "me 1", "do": "down", "passed": shares[:1]}, [])
    painter._heard(widget, {"turn": "me 2", "do": "move", "passed": shares[1:]}, [])
    assert len(drawn) == 2
    hidden = np.argwhere(~painter.mask.tiles[:, :3]).tolist()
    assert hidden == [[0, 1], [0, 2], [1, 2], [3, 0], [4, 0], [5, 0], [5, 1], [5, 2]]


@given(*[st.tuples(st.integers(-9, 20), st.integers(-9, 20))] * 2)
def test_a_line_goes_from_neighbour_to_neighbour(start, end):
    line = list(between(start, end))
    assert line[0] == start and line[-1] == end and len(set(line)) == len(line)
    for one, following in pairwise(line):
        assert max(abs(a - b) for a, b in zip(one, following, strict=True)) == 1


def test_a_stroke_may_leave_the_grid_and_one_beside_it_paints_nothing(painter):
    stroke(painter, (4, 2), (9, 2), (9, 0), (5, 0))
    assert np.argwhere(~masks.BlockMask(90, painter.mask.tiles, 16).tiles[4:, :4]).tolist() == [
        [0, 2], [1, 0], [1, 2],
    ]  # fmt: skip
    before = painter.page()
    stroke(painter, (7, 7), (3, 1))
    painter.touched("move", *place(painter, (3, 1)))
    assert painter.page() == before


def test_a_pointer_that_is_taken_away_paints_nothing_on_its_way(painter):
    painter.touched("down", *place(painter, (5, 3)))
    painted = painter.mask
    painter.touched("up", 0, 0)  # the position that browsers report for a cancelled pointer
    assert painter.mask == painted and painter.cursor == (5, 3)
    painter.touched("move", *place(painter, (5, 5)))
    assert painter.mask == painted


def test_the_last_tile_of_a_row_stays(painter):
    before = painter.mask
    stroke(painter, (0, 0))
    assert painter.mask == before
    assert "Row 0 must keep a tile, because queries 0 to 15 would attend to no key." in painter.words
    stroke(painter, (0, 3))
    assert "Tile 0, 3 contains only later keys" in painter.words and painter.mask == before
    painter.press("undo")
    assert "Nothing to undo." in painter.words, "a refused stroke is not a step"
    painter.set("causal", False)
    stroke(painter, (5, 0), (5, 5))
    assert painter.mask.tiles[5].tolist() == [False] * 5 + [True]
    assert "Row 5 must keep a tile, because queries 80 to 89 would attend to no key." in painter.words
    painter.set("seen", False)
    assert painter.value("seen") is True
    check_shown(painter)


def test_hiding_later_keys_may_not_empty_a_row(painter):
    painter.set("causal", False)
    stroke(painter, (0, 3))
    stroke(painter, (0, 0))
    assert painter.mask.tiles[0].tolist() == [False, False, False, True, False, False]
    painter.set("causal", True)
    assert "Row 0 must keep a tile" in painter.words and not painter.mask.causal
    check_shown(painter)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_the_masks_of_the_library(painter, name):
    painter.set("preset", "dense" if name == "causal" else "causal")
    painter.set("preset", name)
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
    in_view = {one.name for one in PARAMETERS if not painter.controls[one.name].hidden}
    assert in_view == set(PRESETS[name][1])


@pytest.mark.parametrize(("name", "parameter", "expected"), [
    ("window", {"w": 3}, masks.sliding_window(90, 16, 3)),
    ("window", {"w": 15}, masks.sliding_window(90, 16, 15)),
    ("bigbird", {"g": 2, "seed": 5}, masks.bigbird(90, 16, 2, 1, 2, seed=5)),
    ("strided", {"s": 1}, masks.strided(90, 16, 1)),
    ("random", {"p": 0.6, "seed": 1}, masks.random(90, 16, 0.6, seed=1)),
])  # fmt: skip
def test_parameters_change_the_mask(painter, name, parameter, expected):
    painter.set("preset", name)
    for key, value in parameter.items():
        painter.set(key, value)
    assert painter.mask == expected
    check_shown(painter)


def test_a_parameter_offers_what_its_preset_takes(painter):
    painter.set("preset", "bigbird")
    with pytest.raises(ValueError, match="w must be one of 0, 1, 2, 3, 4, got 5"):
        painter.set("w", 5)


def test_undo_goes_back_and_clear_keeps_the_diagonal(painter):
    start = painter.mask
    stroke(painter, (3, 1), (5, 1))
    second = painter.mask
    painter.set("preset", "dense")
    painter.press("clear")
    assert painter.mask == masks.BlockMask(90, np.eye(6, dtype=bool), 16)
    painter.press("undo")
    painter.press("undo")
    assert painter.mask == second
    painter.press("undo")
    assert painter.mask == start and "Undone." in painter.words
    painter.press("undo")
    assert "Nothing to undo." in painter.words
    check_shown(painter)


def test_it_starts_as_documented():
    assert isinstance(mask_painter(), MaskPainter)
    assert repr(mask_painter()) == "explore.mask_painter(N=1024, B=64, d=64)  # 136 tiles visible"
    assert "Drag over tiles" in mask_painter().words


def test_a_fact_is_drawn_once(painter):
    said = [text for text in texts(painter.picture) if "21 of 36 tiles visible" in text]
    assert len(said) == 1
    assert any(text == "21 of 36 tiles visible" for text in texts(block_mask(painter.mask, 8, title="Yours")))


def test_the_preset_shown_is_the_one_that_is_drawn():
    painter = mask_painter(preset="dense")
    stroke(painter, (0, 15))
    assert painter.mask.tiles.sum() == 255 and painter.value("preset") == "painted"
    assert all(painter.controls[name].hidden for name in ("w", "g", "r", "s", "p", "seed"))
    painter.press("undo")
    assert painter.value("preset") == "dense"
    painter.set("preset", "window")
    assert not painter.controls["w"].hidden
    assert "painted" not in painter.controls["preset"].options
    stroke(painter, (3, 3))
    tiles = painter.mask.tiles
    assert list(painter.controls["preset"].options) == [*PRESETS, "painted"]
    painter.set("preset", "painted")  # the current one: nothing changes
    assert (painter.mask.tiles == tiles).all() and painter.value("preset") == "painted"
