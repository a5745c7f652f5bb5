"""Tests of the tile tuner: its numbers agree with costs and bounds for all values of its controls."""

import subprocess
import sys

import pytest
from figure_layout import check_layout
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import bounds, schedules
from iocourse.course.explore import TileTuner, tile_tuner, tile_tuner_picture
from iocourse.course.explore.draw.palette import SUM, TOO_MUCH, ramp
from iocourse.course.explore.draw.picture import Rect
from iocourse.course.explore.figures.tile_tuner import (
    GRID_X,
    GRID_Y,
    RIGHT_WIDTH,
    SIDE,
    plane_of,
    tile_tuner_headline,
)
from iocourse.course.explore.models.memory_states import totals
from iocourse.course.explore.models.schedule_selection import ROW_TILED
from iocourse.course.explore.models.tile_tuner import (
    MOVES,
    TileTunerState,
    all_tiles,
    best_tiles,
    bound_of,
    first_tiles,
    frontier,
    parts_of,
    play,
    tile_ledger,
)
from iocourse.course.explore.widgets.controls import size_slider
from tools.bench import widget_latency as bench

FORWARD = list(ROW_TILED)
sizes = st.integers(1, 40)
any_setting = st.builds(
    TileTunerState, N=sizes, d=st.integers(1, 9), M=st.integers(1, 900), Br=sizes, Bc=sizes,
    schedule=st.sampled_from(FORWARD), step=st.just(0),
)  # fmt: skip


# ---------------------------------------------------------------------- what it knows
@given(any_setting)
def test_words_and_footprint_are_the_closed_form(setting):
    ledger, (least, _) = tile_ledger(setting), bound_of(setting)
    assert least == bounds.lower_bound("forward", setting.N, setting.d, setting.M)[0]
    assert sum(parts_of(setting).values()) == ledger.peak
    picture = tile_tuner_picture(*setting)
    fits, ratio = ledger.peak <= setting.M, f"{ledger.total / least:.2f} times the lower bound"
    words = (picture.alt, picture.numbers, tile_tuner_headline(setting), picture.to_svg())
    assert all((ratio in text) == fits for text in words)
    assert all((f"but this tile needs M = {ledger.peak:,}" in text) != fits for text in words)
    assert fits or not any("times the lower bound" in text for text in words)
    for array, read, written in ledger.rows():
        assert f"{array} {read:,} {written:,}" in " ".join(picture.numbers.split())
    short = ledger.peak - setting.M
    assert ("does not fit" in picture.alt) == (short > 0)
    assert short <= 0 or f"does not fit, {short:,} word" in picture.alt


@given(any_setting, st.data())
@settings(max_examples=150)
def test_every_step_can_be_shown_and_says_what_is_in_fast_memory(setting, data):
    played = play(setting)
    assert 1 <= len(played.moves) == len(played.states) <= MOVES
    assert all(state.words == move.resident for move, state in zip(played.moves, played.states, strict=True))
    assert max(state.words for state in played.states) <= tile_ledger(setting).peak
    step = data.draw(st.integers(0, len(played.moves) - 1))
    picture = tile_tuner_picture(*setting._replace(step=step))
    assert f"Move {played.first + step + 1:,}: " in picture.alt
    for kind, words in totals(played.states[step]).items():
        assert f"{kind} {words:,}" in picture.alt
    check_layout(picture)


@given(any_setting)
def test_the_player_visits_tiles_of_scores_within_the_grid(setting):
    for step, rows, columns in play(setting).visited:
        assert 0 <= step < MOVES
        assert 0 <= rows[0] < rows[1] <= setting.N and 0 <= columns[0] < columns[1] <= setting.N


def test_only_tiles_visited_so_far_are_shaded():
    setting = TileTunerState(64, 8, 2000, 16, 16, "flash2")
    shade = ramp(0.35)
    for step in range(len(play(setting).moves)):
        picture = tile_tuner_picture(*setting._replace(step=step))
        shaded = sum(isinstance(e, Rect) and e.fill == shade for e in picture.elements)
        assert shaded == sum(began <= step for began, _, _ in play(setting).visited)
    assert shaded == 16


def test_the_player_skips_a_long_start_without_scores():
    played = play(TileTunerState(1024, 64, 16_384, 8, 32, "flash1"))
    assert played.first > MOVES and len(played.moves) == MOVES
    assert played.visited and played.visited[0][0] == 1


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("M", [2, 9, 30, 64, 200])
@pytest.mark.parametrize(("N", "d"), [(13, 3), (1, 1), (8, 4)])
def test_best_tiles_move_the_fewest_words_there_are(name, N, d, M):
    schedule = schedules.get(name)
    pairs = [(Br, Bc) for Br in range(1, N + 1) for Bc in range(1, N + 1)]
    ledgers = {p: schedule.cost(N, d, **all_tiles(schedule, N, d, M, *p)) for p in pairs}
    fitting = [ledger.total for ledger in ledgers.values() if ledger.peak <= M]
    best = best_tiles(name, N, d, M)
    assert (best is None) == (not fitting)
    if best is not None:
        assert ledgers[best].peak <= M and ledgers[best].total == min(fitting)


@given(any_setting)
def test_it_starts_from_tiles_that_fit_where_any_do(setting):
    Br, Bc = first_tiles(setting.schedule, setting.N, setting.d, setting.M)
    if schedules.get(setting.schedule).smallest_M(setting.N, setting.d) <= setting.M:
        assert tile_ledger(setting._replace(Br=Br, Bc=Bc)).peak <= setting.M


def test_what_does_not_fit_is_hatched_and_said():
    over = tile_tuner_picture(1024, 64, 16_384, 64, 64, "flash2")
    assert any(
        isinstance(e, Rect) and e.hatch == TOO_MUCH.hatch and e.ink == TOO_MUCH.colour for e in over.elements
    )
    assert "20,608 words: does not fit, 4,224 words over M" in over.to_svg()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"N": 0}, ValueError, "N must be at least 1, got 0"),
        ({"M": 0}, ValueError, "M must be at least 1, got 0"),
        ({"Br": -1}, ValueError, "Br must be at least 1, got -1"),
        ({"d": 2.5}, TypeError, "d must be an integer of at least "),
        ({"schedule": "flash3"}, ValueError, "'flash3'; expected one of naive, flash2, flash1"),
        ({"schedule": "small_cache"}, ValueError, "'small_cache'; expected one of naive, flash2"),
    ],
)
def test_bad_input_is_named(change, error, text):
    with pytest.raises(error, match=text):
        tile_tuner_picture(**{"N": 8, "d": 2, "M": 99, "Br": 2, "Bc": 2, "schedule": "flash2"} | change)
    with pytest.raises(error, match=text):
        tile_tuner(**{"N": 8, "d": 2, "M": 99, "schedule": "flash2"} | change)


@pytest.mark.parametrize("step", [-1, 400, 10**9])
def test_a_step_beyond_the_moves_is_refused(step):
    with pytest.raises(ValueError, match=f"step must be from 0 to 399 for these sizes, got {step}"):
        tile_tuner_picture(1024, 64, 16_384, 32, 32, "flash2", step)


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def tuner():
    """Return a new widget."""
    return tile_tuner()


def test_words_beside_the_picture_are_those_of_its_setting(tuner):
    for name, value in (("N", 2048), ("d", 96), ("M", 8192), ("Br", 64), ("Bc", 16), ("schedule", "flash1")):
        tuner.set(name, value)
        assert f"<b>Traffic {tile_ledger(tuner.state).total:,} words</b>" in tuner.words


def test_it_offers_the_schedules_it_can_draw(tuner):
    assert list(tuner.controls["schedule"].options) == FORWARD
    assert {"naive", "flash1", "flash2", "flash_optimal"} <= set(FORWARD)
    assert not {"square_tiling", "small_cache", "small_cache_fused"} & set(FORWARD)


def test_it_starts_as_documented(tuner):
    assert (
        repr(tuner) == "explore.tile_tuner(N=1024, d=64, M=16384, Br=32, Bc=32, schedule='flash2')  # step=4"
    )
    assert repr(tile_tuner(16, 4, 100, "naive", Br=3, Bc=5)).startswith(
        "explore.tile_tuner(N=16, d=4, M=100, Br=3, Bc=5"
    )


def test_it_starts_where_a_tile_of_scores_is_at_work(tuner):
    state = play(tuner.state).states[tuner.value("step")]
    assert state.rows == (0, 32) and state.columns == (0, 32)
    before = play(tuner.state).states[: tuner.value("step")]
    assert not [one for one in before if one.rows and one.columns]


def test_sliders_have_sensible_values():
    assert list(size_slider("N", "N", 1, 16, 2).offered.values()) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert list(size_slider("M", "M", 16, 40, 4).offered.values()) == [16, 20, 24, 28, 32, 40]


def test_the_button_finds_the_best_tiles(tuner):
    tuner.press("best")
    best = best_tiles("flash2", 1024, 64, 16_384)
    assert (tuner.state.Br, tuner.state.Bc) == best
    assert f"Least traffic for M = 16,384: Br = {best[0]}, Bc = {best[1]}." in tuner.words
    assert tuner.svg == tuner.shown().picture.to_svg()
    tuner.set("M", 8192)
    assert "Least traffic" not in tuner.words


def test_the_button_names_the_smallest_memory_where_nothing_fits(tuner):
    tuner.set("M", 64)
    tuner.press("best")
    assert tuner.state.Br == 32
    least = schedules.get("flash2").smallest_M(1024, 64)
    assert f"No tile of flash2 fits in M = 64. The minimum is M = {least:,}." in tuner.words


def test_the_best_tiles_may_lie_beyond_the_sliders():
    tuner = tile_tuner(2**16, 1, 2**20)
    assert max(tuner.controls["Br"].options.values()) < 2**16
    tuner.press("best")
    best = best_tiles("flash2", 2**16, 1, 2**20)
    assert (tuner.state.Br, tuner.state.Bc) == best and best[0] == 2**16
    assert f"Traffic {tile_ledger(tuner.state).total:,} words</b>, 1.00 times the lower bound" in tuner.words


def test_the_player_ends_where_the_moves_end(tuner):
    tuner.set("step", 399)
    tuner.set("N", 1)
    last = len(play(tuner.state).moves) - 1
    assert tuner.value("step") == max(tuner.controls["step"].options.values()) == last < 20
    tuner.set("N", 1024)
    assert max(tuner.controls["step"].options.values()) == MOVES - 1


def test_a_step_is_called_as_the_picture_calls_its_move():
    tuner = tile_tuner(1024, 64, 16_384, "flash1", 8, 32)  # begins late
    step = tuner.controls["step"].on_page(1, 1)
    called = step["texts"][step["at"]]
    assert f"Move {called}: " in tuner.svg and int(called.replace(",", "")) > MOVES


def test_who_steps_hears_the_move_and_who_changes_the_tile_whether_it_fits(tuner):
    tuner.set("step", 6)
    assert tuner.spoken == "Move 7: make Q[0:32] @ K[0:32].T, 1,024 words."
    assert f">{tuner.spoken.removesuffix('.')}<" in tuner.svg.replace("&#x27;", "'")
    tuner.set("M", 4096)
    assert "Traffic " in tuner.spoken and "does not fit, 5,184 words over M." in tuner.spoken
    tuner.set("step", 7)
    tuner.press("best")
    assert tuner.spoken.endswith(tuner.note) and "Least traffic for M = 4,096" in tuner.note
    tuner.set("step", 6)
    tuner.touched("down", *plane_of(tuner.state).corner(tuner.state))
    assert "Traffic " in tuner.spoken


def total_bar(picture):
    """Return the width of the bar of the total in pixels, read and written together."""
    return sum(one.width for one in picture.elements if isinstance(one, Rect) and one.fill == SUM)


TILES = (1024, 1), (256, 1), (512, 8)


@pytest.mark.parametrize("M", [64, 16_384, 2**18])  # nothing fits in 64 words
def test_the_bar_of_the_total_is_as_long_as_its_words(M):
    drawn = [tile_tuner_picture(1024, 64, M, *tile, "flash2") for tile in TILES]
    states = [TileTunerState(1024, 64, M, *tile, "flash2") for tile in TILES]
    words = [tile_ledger(s).total for s in states]
    scales = [total_bar(picture) / total for picture, total in zip(drawn, words, strict=True)]
    assert len(set(words)) == 3 and scales == pytest.approx([scales[0]] * 3)


def test_a_bar_that_is_too_long_is_cut_and_shows_it():
    whole, cut = (tile_tuner_picture(1024, 64, 16_384, Br, 1, "flash2") for Br in (128, 1))
    most = 0.36 * RIGHT_WIDTH
    assert total_bar(whole) < most and total_bar(cut) == pytest.approx(most)

    def gaps(picture):
        boxes = [one for one in picture.elements if isinstance(one, Rect)]
        return [one for one in boxes if (one.width, one.height) == (5, 20)]

    assert not gaps(whole) and len(gaps(cut)) == 3  # K, V and the total


def test_the_figure_does_not_move_when_a_remark_appears_or_disappears(tuner):
    lines = {tuner.words.count("<br>")}
    tuner.press("best")
    assert tuner.note
    lines.add(tuner.words.count("<br>"))
    tuner.touched("down", *plane_of(tuner.state).corner(tuner.state))
    tuner.touched("move", *plane_of(tuner.state).corner(tuner.state))
    assert not tuner.note
    assert lines == {tuner.words.count("<br>")} and tuner.words.endswith("&nbsp;</div>")


# ---------------------------------------------------------------------- the tile under the pointer
def test_the_corner_is_dragged_from_where_it_is_taken(tuner):
    plane = plane_of(tuner.state)
    x, y = plane.corner(tuner.state)
    rows = plane.rows / plane.side  # of a pixel
    tuner.touched("down", x + 5, y - 3)
    assert (tuner.value("Br"), tuner.value("Bc")) == (32, 32)
    tuner.touched("move", x + 25, y + 7)
    assert (tuner.value("Br"), tuner.value("Bc")) == (round(32 + 10 * rows), round(32 + 20 * rows))
    assert f"Traffic {tile_ledger(tuner.state).total:,} words" in tuner.words
    tuner.touched("up", x + 25, y + 7)
    tuner.touched("move", x + 90, y + 90)  # it is not grabbed any more
    assert tuner.value("Br") == round(32 + 10 * rows)


def test_the_tile_stays_within_the_scores(tuner):
    tuner.set("M", 2**18)  # too large for a lens
    tuner.touched("down", *plane_of(tuner.state).corner(tuner.state))
    tuner.touched("move", -500, 5000)
    assert (tuner.value("Br"), tuner.value("Bc")) == (1024, 1)


def test_tiles_that_fit_are_small_under_a_lens_and_large_without(tuner):
    small = plane_of(tuner.state)
    assert f"Detail: first {small.rows} × {small.rows}" in tuner.svg
    assert 2 * max(max(tile) for tile in frontier("flash2", 1024, 64, 16_384)) <= small.rows < 1024
    tuner.set("M", 2**18)
    assert "Detail: first" not in tuner.svg and plane_of(tuner.state).rows == 1024


@given(any_setting)
def test_the_line_of_what_fits_is_where_it_fits_no_longer(setting):
    N, d, M, _, _, name, _ = setting

    def fits(Br, Bc):
        return tile_ledger(setting._replace(Br=Br, Bc=Bc)).peak <= M

    line = frontier(name, N, d, M)
    assert bool(line) == fits(1, 1)
    for Br, Bc in line:
        assert fits(Br, Bc) and (Br == N or not fits(Br + 1, Bc))
    if line:
        assert line[0][1] == 1 and (line[-1][1] == N or not fits(1, line[-1][1] + 1))


@given(any_setting)
def test_the_place_of_a_corner_names_its_tile(setting):
    plane = plane_of(setting)
    in_view = min(setting.Br, plane.rows), min(setting.Bc, plane.rows)
    assert plane.tile_at(plane.corner(setting)) == in_view
    x, y = plane.corner(setting)
    assert GRID_X < x <= GRID_X + SIDE and GRID_Y < y <= GRID_Y + SIDE


# ---------------------------------------------------------------------- imports and speed
def _imported_after(code):
    said = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, check=True
    ).stdout.split()


def test_the_library_does_not_load_pictures():
    assert "iocourse.course.explore" not in _imported_after("import iocourse")


def test_a_live_picture_needs_neither_matplotlib_nor_widgets():
    code = (
        "from iocourse.course import explore; explore.tile_tuner_picture(64, 8, 999, 4, 4, 'flash2').to_svg()"
    )
    loaded = _imported_after(code)
    assert "matplotlib" not in loaded and "ipywidgets" not in loaded
    assert "matplotlib" not in _imported_after("from iocourse.course import explore; explore.tile_tuner()")


def test_the_benchmark_times_every_control():
    result = bench.run(quick=True)
    assert set(result["controls"]["tile tuner, flash2"]) == {"N", "d", "M", "Br", "Bc", "step"}
    assert set(result["controls"]["traffic explorer"]) == {"N", "d", "M", "pass"}
    assert set(result["controls"]["mask painter"]) == {"preset", "row", "column"}
    sizes = {"arch", "kernel", "d", "BM", "BN", "warps", "stages", "N"}
    assert set(result["controls"]["kernel explorer"]) == sizes
    assert set(result["controls"]["tuning table"]) == {"table", "column", "rows"}
    text = bench.show(result)
    assert "slowest median" in text and "traffic explorer" in text
    assert isinstance(tile_tuner(), TileTuner)


def test_the_benchmark_needs_widgets(monkeypatch):
    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    with pytest.raises(RuntimeError, match=r"disables the sliders to time\. Unset it"):
        bench.run(quick=True)
