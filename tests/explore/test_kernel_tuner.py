"""Tests of the kernel tuner: traffic from the closed form, resources from the record, never invented."""

import re
from types import SimpleNamespace

import pytest
from figure_examples import compiled, compiled_keys, kernel_record, refused
from figure_layout import check_layout, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs
from iocourse.costs.kernels import KERNELS, SLICED, WHOLE, KernelProblem, kernel_words, ledger_bytes
from iocourse.course.explore import kernel_tuner, kernel_tuner_picture
from iocourse.course.explore.draw.palette import SUM, VERMILION
from iocourse.course.explore.draw.picture import Rect
from iocourse.course.explore.models.kernel_tuner import (
    TILES,
    KernelTunerState,
    best_tile,
    launch_words,
    nearest,
    record_rows,
    rows_of_tile,
    share_of_capacity,
    shipped_tile,
    tiles_held,
    verdict,
)
from iocourse.data.records import load_record
from iocourse.gpu import CHIPS

powers = st.sampled_from([16, 32, 64, 128, 256])


@st.composite
def any_setting(draw):
    kernel = draw(st.sampled_from(KERNELS))
    return KernelTunerState(
        draw(st.sampled_from(list(CHIPS))), draw(st.integers(1, 1024)), draw(st.sampled_from([2, 4])), kernel,
        draw(powers), draw(powers), draw(powers) if kernel in SLICED else None,
        draw(st.integers(1, 16)), draw(st.integers(1, 3000)), draw(st.booleans()),
    )  # fmt: skip


def picture(setting, record=None):
    """Return the figure of a state."""
    *tile, N, causal = setting
    return kernel_tuner_picture(*tile, N=N, causal=causal, record=record)


# ---------------------------------------------------------------------- words and footprint
@given(any_setting(), st.sampled_from([None, {}]))
@settings(max_examples=60)
def test_words_are_the_closed_form_with_a_record_or_without(s, record):
    problem = KernelProblem(s.N, s.N, s.d, high=0 if s.causal else None)
    ledger = kernel_words(s.kernel, problem, BM=s.BM, BN=s.BN, BD=s.BD)
    drawn = picture(s, record)
    megabytes = f"{ledger_bytes(ledger, s.itemsize) / 2**20:,.1f} MiB"
    assert f"it moves {ledger.total:,} words, {megabytes}" in drawn.alt
    numbers = " ".join(drawn.numbers.split())
    for array, read, written in ledger.rows():
        assert f"{array} {read:,} {written:,}" in numbers
    assert ("no recorded run yet" in drawn.text) == (record == {})
    check_layout(drawn)


@given(powers, powers, st.integers(1, 300))
def test_the_forward_kernel_holds_what_the_emulators_flash2_holds(BM, BN, d):
    footprint = costs.flash2(4096, d, Br=BM, Bc=BN).peak
    assert sum(tile.words for tile in tiles_held("forward", BM, BN, d, 2).values()) == footprint


def test_a_kernel_that_cuts_d_holds_scores_and_slices():
    tiles = tiles_held("sliced_forward", 64, 32, 16, 2)
    assert {name: tile.words for name, tile in tiles.items()} == {
        "O": 64 * 16, "V": 32 * 16, "scores": 64 * 32, "row statistics": 2 * 64,
    }  # fmt: skip
    assert tiles["V"].bytes == 2 * 32 * 16 and tiles["O"].bytes == 4 * 64 * 16


def test_every_kernel_has_tiles():
    assert tuple(TILES) == KERNELS


def test_what_does_not_fit_the_chip_is_hatched_and_said():
    over = kernel_tuner_picture(75, 512, 4, "fused", 64, 64)
    words = sum(tile.words for tile in tiles_held("fused", 64, 64, 512, 4).values())
    assert re.search(rf"{words:,} words, [\d.,]+ KB of 320 KB: [\d.,]+ KB too many", over.alt)
    assert any(isinstance(e, Rect) and e.hatch == "x" and e.ink == VERMILION for e in over.elements)


# ---------------------------------------------------------------------- recorded resources
def test_a_recorded_tile_has_the_numbers_of_its_row():
    row = compiled(registers=200, spill_bytes=504, shared_bytes=300 * 1024, warps=8, stages=3)
    drawn = kernel_tuner_picture(90, 64, 2, "forward", 64, 64, warps=8, record=kernel_record(row))
    assert "3 stages: 200 registers per thread, 504 bytes spilled, 300 KB shared" in drawn.alt
    shown = set(texts(drawn))
    assert {"200 of 255", "51,200 of 65,536", "504 bytes per thread", "300 of 227 KB"} <= shown


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "fits"),
        ({"spill_bytes": 8}, "spills"),
        ({"shared_bytes": 227 * 1024 + 1}, "too large"),
        ({"shared_bytes": 227 * 1024}, "fits"),
    ],
)
def test_a_tile_fits_where_nothing_spills_and_shared_memory_is_enough(facts, said):
    assert verdict(compiled(**facts)) == said
    drawn = kernel_tuner_picture(
        90, 64, 2, "forward", 64, 64, warps=4, record=kernel_record(compiled(**facts))
    )
    assert texts(drawn).count(said) == 1
    assert f", {said}" in drawn.numbers
    assert ("1 fits: 64 × 64" in drawn.alt) == (said == "fits")


def test_a_refused_tile_says_so():
    row = refused(compiled()) | compiled_keys()
    drawn = kernel_tuner_picture(90, 64, 2, "forward", 64, 64, warps=4, record=kernel_record(row))
    assert "refused by the compiler" in drawn.alt
    assert "not recorded" not in drawn.to_svg()


def test_a_tile_nobody_compiled_is_not_recorded_and_the_nearest_is_named_as_another():
    record = kernel_record(
        compiled(BM=64, BN=64), compiled(BM=128, BN=128, registers=123), compiled(d=128, BM=128)
    )
    drawn = kernel_tuner_picture(90, 64, 2, "forward", 256, 128, warps=4, record=record)
    assert "Not recorded. The nearest recorded tile is 128 × 128, 4 warps: 123 registers" in drawn.alt
    gauges = [text for text in texts(drawn) if text == "not recorded"]
    assert len(gauges) == 4
    assert not any(re.search(r"\d of 255", text) for text in texts(drawn))


def test_the_nearest_tile_says_where_d_or_the_mask_differ():
    record = kernel_record(compiled(d=128, causal=False))
    said = kernel_tuner_picture(90, 64, 2, "forward", 64, 64, warps=4, record=record).alt
    assert "nearest recorded tile is 64 × 64, 4 warps, d = 128, no mask: 100 registers" in said


@pytest.mark.parametrize("change", [{"arch": 80}, {"bytes": 4}, {"kernel": "fused"}, {"pairs": "packed"}])
def test_rows_of_another_chip_type_kernel_or_mask_are_not_taken(change):
    record = kernel_record(compiled(**change))
    drawn = kernel_tuner_picture(90, 64, 2, "forward", 64, 64, warps=4, record=record)
    assert "100 registers" not in drawn.text


def test_a_tile_recorded_with_another_mask_is_not_this_one():
    record = kernel_record(compiled())
    s = KernelTunerState(90, 64, 2, "forward", 64, 64, None, 4, 4096, causal=False)
    drawn = picture(s, record)
    assert "Not recorded. The nearest recorded tile is 64 × 64, 4 warps, causal: 100 registers" in drawn.alt
    assert "Of 0 tiles recorded for d = 64, no mask, 0 fit" in drawn.alt
    assert "Recorded with triton" in picture(s._replace(causal=True), record).alt


def test_kernels_that_cut_d_take_their_row_for_any_d():
    record = kernel_record(compiled(kernel="sliced_forward", d=512, BD=32))
    for d in (64, 512, 1000):
        drawn = kernel_tuner_picture(90, d, 2, "sliced_forward", 64, 64, 32, warps=4, record=record)
        assert "Recorded with triton" in drawn.alt and "recorded for any d" in drawn.alt
    other = kernel_tuner_picture(90, 512, 2, "sliced_forward", 64, 64, 64, warps=4, record=record)
    assert "Not recorded. The nearest recorded tile is 64 × 64, slices of 32, 4 warps" in other.alt


def test_best_moves_the_fewest_words_of_the_tiles_that_fit():
    rows = [compiled(BM=64), compiled(BM=128, spill_bytes=4), compiled(BM=32), compiled(BM=256, d=128)]
    s = KernelTunerState(90, 64, 2, "forward", 16, 16, None, 4)
    assert best_tile(rows, s) == s.with_tile(64, 64, None, 4)
    assert best_tile(rows[1:2], s) is None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", list(CHIPS))
def test_the_shipped_record_is_quoted_row_by_row(arch, kernel):
    record = load_record("resources")
    rows = record_rows(record or {})
    s = shipped_tile(rows, KernelTunerState(arch, 128, 2, kernel, 64, 64, None if kernel in WHOLE else 32))
    if s is None:
        pytest.skip("no recorded run of this kernel yet")
    (row, *_) = rows_of_tile(rows, s)
    assert nearest(rows, s) in rows_of_tile(rows, s)
    drawn = picture(s)
    assert f"{row['registers']} registers per thread" in drawn.alt
    assert f"{row['shared_bytes'] / 1024:.0f} KB shared" in drawn.alt
    check_layout(drawn)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"arch": 86}, ValueError, "arch must be one of 75, 80, 89, 90, 100; got 86"),
        ({"itemsize": 8}, ValueError, "itemsize must be 2 or 4 bytes, got 8"),
        ({"kernel": "flash"}, ValueError, "kernel must be one of forward, fused, .* got 'flash'"),
        ({"BD": 16}, ValueError, "BD must be None, .* for kernel forward; got 16"),
        ({"kernel": "scores"}, ValueError, "BD must be the columns of a slice, for kernel scores; got None"),
        ({"BM": 48}, ValueError, r"BM must be a power of two of at least 16 \(for tl.dot\), got 48"),
        ({"BN": 8}, ValueError, r"BN must be a power of two of at least 16 \(for tl.dot\), got 8"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"N": 2.5}, TypeError, "N must be an integer of at least 1"),
        ({"warps": 0}, ValueError, "warps must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(change, error, text):
    given = {"arch": 90, "d": 64, "itemsize": 2, "kernel": "forward", "BM": 64, "BN": 64} | change
    with pytest.raises(error, match=text):
        kernel_tuner_picture(**given)
    if change != {"kernel": "scores"}:  # the widget has a slice to start from
        with pytest.raises(error, match=text):
            kernel_tuner(**given)


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def tuner():
    """Return a new widget."""
    return kernel_tuner()


def test_words_beside_the_picture_are_those_of_its_setting(tuner):
    for name, value in (("kernel", "fused"), ("itemsize", 4), ("causal", False), ("BM", 32), ("N", 512)):
        tuner.set(name, value)
        assert f"<b>{launch_words(tuner.state).total:,} words moved</b>" in tuner.words


def test_slices_have_a_width_only_where_d_is_cut(tuner):
    assert tuner.controls["BD"].disabled and tuner.state.BD is None
    tuner.set("kernel", "sliced_forward")
    assert not tuner.controls["BD"].disabled
    tuner.set("BD", 16)
    assert tuner.state.BD == 16 and "slices of 16" in tuner.svg


def test_it_starts_from_the_tile_the_kernels_ship_with():
    record = load_record("resources")
    if record is None:
        pytest.skip("no recorded run of `python -m tools.bench resources` yet")
    row = next(
        row for row in record["shipped"]
        if (row["arch"], row["d"], row["bytes"], row["kernel"], row["causal"]) == (80, 64, 2, "fused", True)
    )  # fmt: skip
    setting = kernel_tuner(80, 64, 2, "fused").state
    assert (setting.BM, setting.BN, setting.warps) == (row["BM"], row["BN"], row["warps"])
    assert kernel_tuner(80, 64, 2, "fused", BN=256).state == setting._replace(BN=256)


def test_the_buttons_find_the_shipped_tile_and_the_best(tuner):
    shipped = tuner.state
    tuner.set("BM", 16)
    tuner.press("shipped")
    assert tuner.state == shipped
    assert f"Shipped tile of this kernel: {shipped.BM} × {shipped.BN}" in tuner.words
    tuner.press("best")
    rows = record_rows(load_record("resources"))
    assert tuner.state == best_tile(rows, shipped)
    assert "Least traffic of the recorded tiles that fit" in tuner.words
    assert tuner.svg == tuner.shown().picture.to_svg()
    tuner.set("N", 512)
    assert "Least traffic" not in tuner.words


def test_a_tile_is_chosen_in_the_map(tuner):
    (map_,) = tuner.grabs
    rows, columns = sorted({16, 32, 64, 128}), sorted({16, 32, 64, 128})
    cell = map_.width / len(columns), map_.height / len(rows)
    tuner.touched("down", map_.x + 0.5 * cell[0], map_.y + 1.5 * cell[1])
    assert (tuner.value("BM"), tuner.value("BN")) == (32, 16)
    tuner.touched("move", map_.x + 2.5 * cell[0], map_.y + 1.5 * cell[1])
    assert (tuner.value("BM"), tuner.value("BN")) == (32, 64)
    assert "32 × 64" in tuner.svg and f"{launch_words(tuner.state).total:,} words moved" in tuner.words
    tuner.touched("move", 1e6, -1e6)
    assert (tuner.value("BM"), tuner.value("BN")) == (16, 128)


def test_without_a_record_it_works_and_says_so(monkeypatch):
    monkeypatch.setattr("iocourse.course.explore.models.kernel_tuner._shipped_record", lambda: {})
    tuner = kernel_tuner(kernel="sliced_keys")
    assert tuner.state == KernelTunerState(90, 128, 2, "sliced_keys", 64, 64, 32, 8)
    assert "Resources: no recorded run yet." in tuner.svg
    for button in ("shipped", "best"):
        tuner.press(button)
        assert "No such tile is recorded" in tuner.words
    tuner.set("arch", 100)
    assert tuner.state.arch == 100 and "no recorded run yet" in tuner.svg


def test_tiles_that_fill_the_room_exactly_are_not_too_many():
    full = SimpleNamespace(tiles={}, held=2048, budget=2048)
    assert share_of_capacity(full) == "0 words, 2 KB of 2 KB"
    assert (
        share_of_capacity(SimpleNamespace(**vars(full) | {"held": 3072}))
        == "0 words, 3 KB of 2 KB: 1 KB too many"
    )


def test_the_bar_of_the_total_is_as_long_as_its_words():
    def drawn(BM, BN):
        picture = kernel_tuner_picture(90, 128, 2, "forward", BM, BN)
        bar = sum(one.width for one in picture.elements if isinstance(one, Rect) and one.fill == SUM)
        problem = KernelProblem(4096, 4096, 128, high=0)
        return bar, kernel_words("forward", problem, BM=BM, BN=BN).total

    (short, few), (long, many) = drawn(128, 64), drawn(64, 64)
    assert many > 1.9 * few and long / short == pytest.approx(many / few)
