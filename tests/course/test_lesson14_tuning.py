"""Tests of lesson 14: its rules fail without timing, its table, and one line for each wrong input."""

from statistics import fmean

import numpy as np
import pytest
from lesson_source import Lesson, execute

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson14_tuning as exercises
from iocourse.course.made_up_device import made_up
from iocourse.course.tuning import (
    Stopwatch,
    TooManyCalls,
    chance_of_best,
    scores_of,
    times_of,
    untimed,
)
from iocourse.errors import UsageError
from iocourse.gpu.timed_tiles import tables
from tests.mutation.references import build, exercise_source

LESSON = Lesson("14_tuning")
ROW = {"BM": 64, "BN": 64, "warps": 4, "stages": 3, "score": 1.0}


def rules_of_the_lesson():
    """Return the rules that the lesson tries, as its cell defines them."""
    space = {"np": np}
    source = LESSON.code("RULES = {")
    execute(source.split("\n\n\ndef ")[0], "<rules>", space)
    return space["RULES"]


RULES = rules_of_the_lesson()
GROUPS = exercises.timed_groups()


def failed(exercise, function, seed=0):
    return {name: said for name, said in judge(find(exercise), function, seed) if said}


# ---------------------------------------------------------------------- rules without timing
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_without_timing_fails_on_a_group(rule):
    choose = lambda rows, stopwatch: min(rows, key=RULES[rule])  # noqa: E731
    assert any(exercises.BETTER in name for name in failed("14G", choose))


def test_no_rule_is_below_the_limit_even_if_its_ties_are_broken_best():
    for rule in RULES.values():
        beaten = []
        for found in GROUPS.values():
            limit = 1 + exercises.SHARE * (fmean(chance_of_best(rows, 3) for rows in found) - 1)
            best = []
            for rows in found:
                scores, times = scores_of(rows, rule), times_of(rows)
                chosen = [t for t, s in zip(times, scores, strict=True) if s == min(scores)]
                best.append(min(chosen) / min(times))
            beaten.append(fmean(best) <= limit)
        assert not all(beaten)


def test_one_tile_for_everything_fails_because_the_halves_do_not_offer_it():
    offered = {
        (row["BM"], row["BN"], row["warps"], row["stages"])
        for rows in GROUPS["its backward halves"]
        for row in rows
    }
    assert (64, 64, 4, 3) not in offered
    assert len(GROUPS["its backward halves"]) == 8


def test_regrets_of_the_rules_on_the_draft():
    found = {
        name: round(fmean(exercises.on_trial(rows, rule)[0] for rows in GROUPS["the draft"]), 2)
        for name, rule in RULES.items()
    }
    assert list(found.values()) == [2.06, 1.34, 1.11, 1.16, 1.26, 1.18]


# ---------------------------------------------------------------------- chance
def test_chance_of_best_is_the_mean_over_all_choices():
    from itertools import combinations

    rows = [ROW | {"stages": k, "ms": ms} for k, ms in enumerate((3.0, 1.5, 2.0, 1.0, 7.0))]
    for k in range(1, 6):
        every = [min(one) for one in combinations(times_of(rows), k)]
        assert chance_of_best(rows, k) == pytest.approx(fmean(every))
    with pytest.raises(UsageError, match="k must be an integer from 1 to 5, the number of rows, got 6"):
        chance_of_best(rows, 6)


# ---------------------------------------------------------------------- wrong input
@pytest.mark.parametrize("value", [None, float("nan"), "3", np.ones(3), True, [1]])
def test_a_rule_that_returns_no_number_gets_one_line(value):
    with pytest.raises(
        UsageError, match=r"^rule must return one number, got .* for 64 × 64, 4 warps, 3 stages$"
    ) as e:
        scores_of([ROW], lambda row: value)
    assert "\n" not in str(e.value)


def test_a_rule_does_not_get_the_times():
    with pytest.raises(KeyError, match="ms"):
        scores_of([ROW | {"ms": 1.0}], lambda row: row["ms"])


@pytest.mark.parametrize(("rows", "said"), [([], "got none"), ([ROW], "4 warps, 3 stages has None")])
def test_a_table_without_its_times_gets_one_line(rows, said):
    for function in (times_of, Stopwatch, lambda rows: chance_of_best(rows, 1)):
        with pytest.raises(UsageError, match=said):
            function(rows)


def test_the_stopwatch_refuses_a_fourth_call_and_other_rows():
    rows = [ROW | {"stages": k, "ms": k + 1.0} for k in range(5)]
    watch = Stopwatch(rows)
    assert [watch(untimed(rows[k])) for k in (2, 0, 4)] == [3.0, 1.0, 5.0]
    with pytest.raises(TooManyCalls, match="can be called 3 times per table, this is call 4"):
        watch(rows[0])
    for other in (None, {"BM": 64}, (64, 64, 4, 3), np.ones(2)):
        with pytest.raises(UsageError, match=r"^row must be a row of the table, got "):
            Stopwatch(rows)(other)


def test_the_check_names_the_fourth_call():
    said = failed("14G", lambda rows, stopwatch: min(rows[:4], key=stopwatch))
    assert "this is call 4" in said[exercises.FEW_CALLS]


def test_an_event_that_is_not_reached_gets_one_line():
    device, launch = made_up(ms=1.0)
    start = device.event()
    launch()
    end = device.event()
    with pytest.raises(UsageError, match=r"has not reached this event: call device.synchronize\(\) first"):
        _ = end.ms - start.ms
    said = failed("14H", lambda device, launch: device.event().ms + (launch() or device.event().ms))
    assert "device.synchronize()" in said["runs without an error"]


# ---------------------------------------------------------------------- results of another form
@pytest.mark.parametrize(
    ("exercise", "function"),
    [
        ("14E", lambda rows, rule: None),
        ("14E", lambda rows, rule: 1.0),
        ("14F", lambda *given: None),
        ("14F", lambda *given: "1.2"),
        ("14G", lambda rows, stopwatch: None),
        ("14G", lambda rows, stopwatch: 0),
        ("14H", lambda device, launch: None),
        ("14H", lambda device, launch: [1.0]),
        ("14H", lambda device, launch: float("nan")),
    ],
)
def test_another_form_fails_with_one_line_per_property(exercise, function):
    said = failed(exercise, function)
    assert said and all("\n" not in text for text in said.values())


def test_14F_accepts_no_pairs_an_array_and_any_order():
    right = build("14F", exercise_source("14F", solved=True))
    assert not failed("14F", lambda *given: np.array(right(*given))[::-1])


# ---------------------------------------------------------------------- the made-up device
def test_the_true_time_is_that_of_a_lap_without_difficulties():
    right = build("14H", exercise_source("14H", solved=True))
    for host_ms in (0.001, 0.3):
        device, launch = made_up(
            ms=0.02, cached=0.5, host_ms=host_ms, compile_ms=300, slow=1.4, disturbed=0.1
        )
        assert right(device, launch) == pytest.approx(0.02, rel=0.01)


def test_a_made_up_device_repeats_itself():
    def laps():
        device, launch = made_up(seed=3, disturbed=0.3)
        for _ in range(20):
            launch()
        device.synchronize()
        return device.now()

    assert laps() == laps()


def test_every_table_has_times_and_the_columns_of_the_lesson():
    for name in ("tiles", "tune"):
        for rows in tables(name).values():
            assert times_of(rows)
            assert all(
                {"stages", "rows_per_warpgroup", "warpgroups_per_sm", "blocks"} <= set(row) for row in rows
            )
