"""Tests of lesson 14: its rules fail without timing, its table, and one line for each wrong input."""

import copy
from contextlib import suppress
from statistics import fmean

import numpy as np
import pytest
from lesson_source import Lesson, execute

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson14_tuning as exercises
from iocourse.course.made_up_device import made_up
from iocourse.course.tuning import (
    SETTINGS,
    TooManyCalls,
    chance_of_best,
    scores_of,
    stopwatch_of,
    times_of,
    untimed,
)
from iocourse.errors import UsageError
from iocourse.gpu.timed_tiles import tables
from tests.mutation.references import build, exercise_source

LESSON = Lesson("14_tuning")
ROW = {"kernel": "draft", "d": 64, "causal": False, "BM": 64, "BN": 64, "warps": 4, "stages": 3, "score": 1.0}


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


def remaining(rows):
    kept = [row for row in rows if row["stages"] == 3 and row["rows_per_warpgroup"] >= 64]
    return [row for row in kept if row["warpgroups_per_sm"] >= 2]


def test_pruning_keeps_the_best_row_of_each_table():
    left = {group: [len(remaining(rows)) for rows in found] for group, found in GROUPS.items()}
    assert [sum(some) for some in left.values()] == [30, 16, 24]
    for rows in (rows for found in GROUPS.values() for rows in found):
        assert min(times_of(remaining(rows))) == min(times_of(rows))


def test_on_the_forward_pass_pruned_rules_and_two_timings_miss_the_limit_and_three_do_not():
    found = GROUPS["the library's forward pass"]
    limit = 1 + exercises.SHARE * (fmean(chance_of_best(rows, 3) for rows in found) - 1)
    pruned = [remaining(rows) for rows in found]
    for rule in RULES.values():
        assert fmean(exercises.on_trial(rows, rule)[0] for rows in pruned) > limit
    two, three = (fmean(chance_of_best(rows, k) for rows in pruned) for k in (2, 3))
    assert three < limit < two


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
    for function in (times_of, stopwatch_of, lambda rows: chance_of_best(rows, 1)):
        with pytest.raises(UsageError, match=said):
            function(rows)


def test_the_stopwatch_refuses_a_fourth_call_and_other_rows():
    rows = [ROW | {"stages": k, "ms": k + 1.0} for k in range(5)]
    watch = stopwatch_of(rows)
    assert [watch(untimed(rows[k])) for k in (2, 0, 4)] == [3.0, 1.0, 5.0]
    with pytest.raises(TooManyCalls, match="can be called 3 times per table, this is call 4"):
        watch(rows[0])
    for other in (None, {"BM": 64}, (64, 64, 4, 3), np.ones(2), ROW | {"stages": [3]}, ROW | {"stages": 9}):
        with pytest.raises(UsageError, match=r"^row must be a row of the table, got .*$") as error:
            stopwatch_of(rows)(other)
        assert "\n" not in str(error.value)


def test_a_stopwatch_has_no_attribute_that_gives_a_time_or_the_number_of_calls():
    watch = stopwatch_of([ROW | {"ms": 1.0}])
    assert not [name for name in dir(watch) if not name.startswith("__")]
    assert copy.deepcopy(watch) is watch  # a copy counts the same calls


def three_of_the_pruned(rows, stopwatch):
    return min(remaining(rows)[:3], key=stopwatch)


def caught(rows, stopwatch):
    with suppress(TooManyCalls):
        for row in rows:
            stopwatch(row)
    return rows[0]


@pytest.mark.parametrize("answer", [caught, lambda rows, stopwatch: min(rows[:4], key=stopwatch)])
def test_the_check_names_the_fourth_call_and_nothing_else(answer):
    verdicts = judge(find("14G"), answer, 0)
    assert verdicts == [(exercises.FEW_CALLS, "expected at most 3 calls, got call 4 (the draft)")]


def test_a_row_with_further_entries_is_a_row_of_the_table():
    def marked(rows, stopwatch):
        kept = remaining(rows)[:3]
        for row in kept:
            row["time"] = stopwatch(row)
        return min(kept, key=lambda row: row["time"])

    assert not failed("14G", marked)


@pytest.mark.parametrize("function", [lambda rows: stopwatch_of(rows), lambda rows: tables("tiles")])
def test_records_and_a_second_stopwatch_are_refused_by_name(function):
    said = failed("14G", lambda rows, stopwatch: function(rows))
    assert "solves the exercise" in said["is your own work"]
    assert "stopwatch_of" in said["is your own work"] or "tables" in said["is your own work"]


def test_times_remembered_from_earlier_calls_do_not_help_on_made_up_tables():
    known = {}

    def remembers(rows, stopwatch):
        new = [row for row in rows if tuple(row[name] for name in SETTINGS) not in known]
        kept = [row for row in new if row["stages"] == 3 and row["rows_per_warpgroup"] >= 64]
        for row in kept[:3]:
            known[tuple(row[name] for name in SETTINGS)] = stopwatch(row)
        return min(rows, key=lambda row: known.get(tuple(row[name] for name in SETTINGS), np.inf))

    assert list(failed("14G", remembers)) == [f"{exercises.BETTER} {exercises.MADE_UP}"]


@pytest.mark.parametrize("seed", range(4))
def test_made_up_tables_need_a_timing_and_three_are_enough(seed):
    assert not failed("14G", three_of_the_pruned, seed)
    said = failed("14G", lambda rows, stopwatch: three_of_the_pruned(rows, lambda row: 0), seed)
    assert f"{exercises.BETTER} {exercises.MADE_UP}" in said


def test_the_effects_hold_in_a_made_up_table():
    for rows in GROUPS["the draft"]:
        made = exercises.made_up_table(np.random.default_rng(1), rows)
        pairs = lambda some, *factor: [  # noqa: E731
            x["ms"] / y["ms"] for x, y in exercises.pairs_of(some, *factor)
        ]
        narrow = [row for row in made if row["rows_per_warpgroup"] in (32, 64)]
        lost = [row for row in made if (row["stages"], row["warpgroups_per_sm"]) in {(3, 2), (4, 1)}]
        assert min(pairs(made, "stages", 2, 3, ("warpgroups_per_sm",))) > 1.05
        assert max(pairs(narrow, "warps", 4, 8, ("warpgroups_per_sm",)), default=0) < 0.75
        assert max(pairs(lost, "stages", 3, 4), default=0) < 0.7
        calm = [row for row in made if row["rows_per_warpgroup"] >= 64 and row["warpgroups_per_sm"] >= 2]
        fourth = pairs(calm, "stages", 3, 4)
        assert fourth and max(abs(one - 1) for one in fourth) < 0.03


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


@pytest.mark.parametrize("exercise", ["14E", "14A"])
def test_an_array_of_the_results_is_accepted(exercise):
    right = build(exercise, exercise_source(exercise, solved=True))
    assert not failed(exercise, lambda *given, **named: np.array(right(*given, **named)))


def test_14F_accepts_no_pairs_an_array_and_any_order():
    right = build("14F", exercise_source("14F", solved=True))
    assert not failed("14F", lambda *given: np.array(right(*given))[::-1])


# ---------------------------------------------------------------------- the made-up device
def test_the_true_time_is_that_of_a_lap_without_difficulties():
    right = build("14H", exercise_source("14H", solved=True))
    for host_ms in (0.001, 0.3, 0.5):
        device, launch = made_up(
            ms=0.02, cached=0.5, host_ms=host_ms, compile_ms=300, slow=1.4, disturbed=True
        )
        assert right(device, launch) == pytest.approx(0.02, rel=0.01)


def stopwatch_with(laps, flushes=20, warm_ups=25, result=np.median):
    def answer(device, launch):
        for _ in range(warm_ups):
            launch()
        found = []
        for _ in range(laps):
            for _ in range(flushes):
                device.flush()
            start = device.event()
            launch()
            found.append((start, device.event()))
        device.synchronize()
        return float(result([end.ms - start.ms for start, end in found]))

    return answer


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("laps", [1, 2, 3, 4, 5, 7, 9, 10])
def test_few_laps_always_fail(laps, seed):
    assert exercises.SENTENCES[exercises.LAPS] in failed("14H", stopwatch_with(laps), seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("laps", [11, 15, 20, 21, 25])
def test_eleven_laps_or_more_always_pass(laps, seed):
    assert not failed("14H", stopwatch_with(laps, flushes=11), seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("warm_ups", [0, 1, 5, 10])
def test_launches_without_enough_warm_ups_always_fail(warm_ups, seed):
    assert failed("14H", stopwatch_with(50 - warm_ups, warm_ups=warm_ups), seed)


def test_with_too_few_warm_ups_the_last_message_names_the_sum_of_slow_and_disturbed_laps():
    said = failed("14H", stopwatch_with(45, warm_ups=5))
    assert list(said) == [exercises.SENTENCES[exercises.ALL]]
    assert "slow and disturbed laps together half of your laps" in said[exercises.SENTENCES[exercises.ALL]]


def test_the_minimum_is_accepted_if_every_lap_starts_with_a_flush():
    assert not failed("14H", stopwatch_with(21, warm_ups=26, result=min))


def test_the_device_shows_neither_its_kernel_nor_its_launches():
    device, launch = made_up(ms=0.02)
    shown = {name for name in dir(device) if not name.startswith("_")}
    assert shown == {"now", "synchronize", "flush", "event", "count", "index"}  # those of a tuple, too
    assert not [name for name in dir(launch) if not name.startswith("__")]
    said = failed("14H", lambda device, launch: 0.02)
    assert any("the kernel is never launched" in one for one in said.values())


def test_a_made_up_device_repeats_itself():
    def laps():
        device, launch = made_up(seed=3, disturbed=True)
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
