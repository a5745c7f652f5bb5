"""Tests of the figures of depth with made-up records: positions of errors and of reference lines."""

from math import exp, log, sqrt

import pytest
from fake_depth_record import depth_record, trained_record, training_record
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.palette import FOREST, RUST
from iocourse.course.explore.draw.picture import Poly


def dashed(picture, dash):
    return [e for e in picture.elements if isinstance(e, Poly) and e.dash == dash and len(e.points) > 2]


def test_numbers_are_root_mean_squares_over_seeds_beside_both_laws():
    record = depth_record((1, 4), (2,), (0, 1))
    lines = explore.depth_errors(record).numbers.splitlines()
    mean = 1e-2 * sqrt((1 + 1.1**2) / 2)
    assert f"{mean:.2e}" in lines[1] and f"{2 * mean:.2e}" in lines[2]
    assert lines[2].split()[-2:] == ["2.00", f"{exp(3):.1f}"]


def test_gradients_of_one_degree_more_are_left_out():
    record = depth_record()
    kept = [row for row in record["layers"]["rows"] if row["gradient_degree"] == row["degree"]]
    assert explore.depth_errors(record).numbers == explore.depth_errors(
        record | {"layers": {"rows": kept}}
    ).numbers  # fmt: skip


def test_the_laws_start_at_the_first_error_and_rise_as_they_say():
    picture = explore.depth_errors(depth_record((1, 4, 16), (4,), (0,)))
    (root,) = dashed(picture, (5, 4))
    (steep,) = dashed(picture, (2, 3))
    assert root.stroke == steep.stroke == RUST and root.points[0] == steep.points[0]
    per_factor = (root.points[0][1] - root.points[-1][1]) / log(4)  # √16
    (x0, y0), (x, y) = steep.points[0], steep.points[-1]
    across = (root.points[-1][0] - x0) / log(16)
    m = exp((x - x0) / across)
    assert (y0 - y) / per_factor == pytest.approx(m - 1, rel=1e-6)


def test_the_difference_that_is_told_is_the_largest():
    picture = explore.training_curves(training_record([("taylor", 4, 0.004)]))
    assert "taylor, g = 4: the largest difference is 0.004." in picture.alt
    assert "0.00400" in picture.numbers and "exact" in picture.numbers


def test_every_training_of_the_bound_is_labelled_and_no_other():
    record = training_record([("uniform", None, 0.1), ("minimax", 4, 0.01)])
    other = training_record([("hermite", 2, 0.01)], bound=None)["training"]["runs"]
    record["training"]["runs"] += other
    said = texts(explore.training_curves(record))
    assert {"exact", "uniform", "minimax, g = 4"} <= set(said) and "hermite, g = 2" not in said
    assert "hermite, g = 2" in texts(explore.training_curves(record, None))


def test_at_trained_weights_the_ratio_to_quadrature_and_the_means_over_seeds_are_printed():
    picture = explore.depth_errors(trained_record(), what="trained")
    assert "1.00 to 1.02 times the root of the sum" in picture.alt
    assert "in 36 cases" in picture.alt
    root = sqrt(1 + 4 + 9 + 16) * 201 * 1e-2  # four layers, step 200, degree 2
    (line,) = [x for x in picture.numbers.splitlines() if x.split()[:4] == ["free", "logits", "200", "2"]]
    assert line.split()[-2:] == [f"{root:.3g}", f"{root * sqrt((1 + 1.02**2) / 2):.3g}"]
    assert "2.3 to 2.3" in line  # σ


def test_the_layers_alone_are_drawn_at_one_degree_for_each_bound():
    picture = explore.depth_errors(
        trained_record(degrees=(2, 4, 6), seeds=(0,), steps=(0, 9)), what="trained"
    )
    assert "error of one layer alone, g = 4" in texts(picture)
    assert "free logits: from 0.0001 at 0.3 to 0.004 at 0.39" in picture.alt


def test_the_section_of_trained_weights_has_its_own_date_if_it_was_measured_alone():
    record = trained_record()
    assert "no date" in " ".join(texts(explore.depth_errors(record, what="trained")))
    record["trained_gradient"] |= {"date": "a later day", "versions": {}}
    assert "a later day" in texts(explore.depth_errors(record, what="trained"))


def test_without_a_record_the_picture_says_so():
    of_others = explore.depth_errors(depth_record(), what="trained")  # without that section
    for picture in (explore.depth_errors(None), explore.training_curves(None), of_others):
        said = "no recorded run yet: `python -m tools.bench depth` makes one"
        assert any(said in text for text in texts(picture))


def test_a_quick_run_and_a_live_one_are_called_so():
    record = depth_record()
    assert any("a quick run" in text for text in texts(explore.depth_errors(record | {"quick": True})))
    assert "measured just now" in texts(explore.depth_errors({"layers": record["layers"]}))


def test_what_is_not_there_is_refused_with_what_is():
    with pytest.raises(
        ValueError, match="what must be one of output, dX, parameters, W_QK, trained, got 'dY'"
    ):
        explore.depth_errors(depth_record(), what="dY")
    with pytest.raises(
        ValueError, match=r"bound must be one of \[2\.0\] \(recorded runs of exact attention\), got 3\.0"
    ):
        explore.training_curves(training_record([]), 3.0)


def test_a_label_of_degree_four_has_the_colour_of_its_line():
    picture = explore.depth_errors(depth_record((1, 2), (2, 3, 4), (0,)))
    assert dashed(picture, (2, 3))[0].stroke == FOREST  # the third degree's own
