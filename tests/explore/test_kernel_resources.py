"""Tests of `kernel_resources`: spills, excess, missing tensor cores and refusals are marked and listed."""

import pytest
from figure_examples import compiled, refused, sweep
from figure_layout import check_layout

from iocourse.course import explore
from iocourse.course.explore.draw.palette import SKY, VERMILION, WRONG
from iocourse.course.explore.draw.picture import Rect, Text
from iocourse.data.records import load_record


def outlined(picture):
    """Return the bars marked as over the limit, except the one in the legend."""
    return [e for e in picture.elements if isinstance(e, Rect) and e.stroke == VERMILION][1:]


def marked(picture):
    return [e.text for e in picture.elements if isinstance(e, Text) and e.colour == WRONG]


def cells(picture):
    """Return the last columns of the table below the figure."""
    return [line.split("  ")[-1].strip() for line in picture.numbers.splitlines()]


def test_a_tile_that_fits_has_no_mark():
    picture = explore.kernel_resources([compiled()], d=64)
    assert not outlined(picture) and not marked(picture)
    assert cells(picture)[1] == "100, 0, 39, 4"
    assert "none spill; none need more than the chip's 227 KB" in picture.alt
    assert "1 of 1 use tensor cores" in picture.alt


def test_a_spilling_tile_is_marked_among_registers_and_spilled_bytes():
    picture = explore.kernel_resources([compiled(registers=255, spill_bytes=504)], d=64)
    assert len(outlined(picture)) == 2 and marked(picture) == ["255", "504"]
    assert "64 × 64 spills, up to 504 bytes" in picture.alt


def test_shared_memory_beyond_the_chip_is_marked_on_that_chip_only():
    rows = [compiled(arch=arch, shared_bytes=100 * 1024) for arch in (80, 89)]
    picture = explore.kernel_resources(rows, d=64)
    assert len(outlined(picture)) == 1 and marked(picture) == ["100"]
    assert "64 × 64 needs more than the chip's 99 KB" in picture.alt


def test_a_tile_without_tensor_cores_says_none():
    picture = explore.kernel_resources([compiled(arch=75, tensor_core=0)], d=64)
    assert marked(picture) == ["none"] and "0 of 1 use tensor cores" in picture.alt
    assert cells(picture)[1].endswith("*")


def test_a_refused_tile_says_so_with_its_reason():
    rows = [refused(compiled()), compiled(BN=128)]
    picture = explore.kernel_resources(rows, d=64)
    assert marked(picture) == ["refused"]
    assert "1 refused by the compiler" in picture.alt
    assert "H200 SXM, 64 × 64: PTXASError: made up" in picture.numbers


def test_of_several_numbers_of_warps_the_one_that_spills_least_is_shown():
    rows = [
        refused(compiled(warps=1)),
        compiled(warps=2, registers=90, spill_bytes=8),
        compiled(warps=4, registers=200),
        compiled(warps=8, registers=120),
    ]
    assert cells(explore.kernel_resources(rows, d=64))[1] == "120, 0, 39, 8"
    assert cells(explore.kernel_resources(rows, d=64, warps=4))[1] == "200, 0, 39, 4"
    assert cells(explore.kernel_resources(rows, d=64, warps=1))[1] == "refused"


def test_a_bar_is_as_high_as_its_share_of_the_registers():
    picture = explore.kernel_resources([compiled(registers=51), compiled(BN=128, registers=255)], d=64)
    heights = [e.height for e in picture.elements if isinstance(e, Rect) and e.fill == SKY and e.width == 19]
    assert heights[0] * 5 == pytest.approx(heights[2])


def test_a_tile_nobody_compiled_is_no_bar():
    rows = [compiled(BM=64, BN=16), compiled(BM=128, BN=32)]
    assert explore.kernel_resources(rows, d=64).numbers.count("not compiled") == 2


def test_every_chip_is_told_of_the_tile_that_cannot_be():
    picture = explore.kernel_resources(sweep(80), d=64)
    assert "a grey column without numbers marks BN = 1, because tl.dot needs at least 16" in picture.alt


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d": 65}, r"no entry for d = 65, warps = None; recorded \(d, warps\): \[\(64, 4\)\]"),
        ({"d": 64, "warps": 2}, "no entry for d = 64, warps = 2"),
        ({"d": 64, "chips": [80]}, "no entry for chips = 80"),
        ({"d": 64, "chips": [86]}, "arch must be one of 75, 80, 89, 90, 100; got 86"),
        ({"d": 64, "chips": []}, "chips must contain at least one"),
    ],
)
def test_what_rows_do_not_hold_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        explore.kernel_resources([compiled()], **given)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("warps", [None, 4])
def test_the_recorded_sweep_can_be_drawn(d, warps):
    record = load_record("resources")
    if record is None:
        pytest.skip("no recorded run of `python -m tools.bench resources` yet")
    check_layout(explore.kernel_resources(record["forward_by_tile"], d=d, warps=warps))
