"""Tests of the rule of points, on made-up exercises, and of answers that do nothing, which earn none."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course.checking import RUNS, judge
from iocourse.course.exercise import Case, Exercise, NotReached, Property, exercises, run_schedule
from iocourse.course.points import RULE, Points, how_paid, points_of
from tests.mutation.references import INTERPRETED

HOLDS, FAILS, MISSED = None, "wrong", NotReached("A is never read")
VERDICTS = (HOLDS, FAILS, MISSED)


# ------------------------------------------------------------------ made-up exercises
def made(properties, importance=4):
    return Exercise("99.1", "", "f", 1, importance, 1, ("", "", ""), lambda rng: [Case("", {})], properties)


def named(letter, count, **marks):
    return tuple(Property(f"{letter}{n}", lambda trials: None, **marks) for n in range(count))


@dataclass(frozen=True)
class Made:
    """A made-up exercise with a verdict on each property."""

    exercise: Exercise
    verdicts: tuple

    def points(self, **changed):
        """Return the share of the points, with other verdicts on the properties with these names."""
        verdicts = [(name, changed.get(name, said)) for name, said in self.verdicts]
        return points_of(self.exercise, verdicts).total / self.exercise.importance

    def names(self, *, traffic):
        return [one.name for one in self.exercise.properties if one.traffic == traffic]


def any_of(properties, verdicts=VERDICTS):
    said = st.tuples(*(st.sampled_from(verdicts) for _ in properties))
    names = [one.name for one in properties]
    return st.builds(
        lambda order, importance, said: Made(
            made(tuple(properties[n] for n in order), importance), tuple(zip(names, said, strict=True))
        ),
        st.permutations(range(len(properties))),
        st.integers(1, 5),
        said,
    )


def sizes(*least):
    return st.tuples(*(st.integers(low, low + 4) for low in least))


BOTH = sizes(1, 0, 1).flatmap(  # ordinary exercises with values and traffic
    lambda n: any_of(named("v", n[0]) + named("i", n[1], idle=True) + named("t", n[2], traffic=True))
)
REPAIRS = sizes(1, 0, 1).flatmap(
    lambda n: any_of(
        named("i", n[0], idle=True)
        + named("g", n[1], traffic=True, idle=True)
        + named("t", n[2], traffic=True)
    )
)
VALUES = sizes(0, 1).flatmap(lambda n: any_of(named("v", n[0]) + named("i", n[1], idle=True)))
TRAFFIC = sizes(0, 1).flatmap(
    lambda n: any_of(named("g", n[0], traffic=True, idle=True) + named("t", n[1], traffic=True))
)
ANY = st.one_of(BOTH, REPAIRS, VALUES, TRAFFIC)


@given(ANY)
def test_points_are_those_of_values_and_traffic_and_lie_within_their_maxima(one):
    points = points_of(one.exercise, one.verdicts)
    assert points.total == points.values + (points.traffic or 0.0)
    assert points.values_of + points.traffic_of == one.exercise.importance
    assert 0 <= points.values <= points.values_of and 0 <= (points.traffic or 0) <= points.traffic_of
    assert (points.traffic is None) == (not one.names(traffic=True)) == (points.traffic_of == 0)


@given(ANY)
def test_all_points_are_paid_exactly_if_all_properties_hold(one):
    all_hold = all(said is HOLDS for _, said in one.verdicts)
    assert (one.points() == pytest.approx(1)) == all_hold
    assert one.points(**dict.fromkeys(dict(one.verdicts), HOLDS)) == pytest.approx(1)


@given(ANY, st.sampled_from([FAILS, MISSED]))
def test_nothing_holds_and_nothing_is_paid(one, said):
    assert one.points(**dict.fromkeys(dict(one.verdicts), said)) == 0


@given(ANY)
def test_one_more_property_that_holds_never_lowers_the_points(one):
    for name, _ in one.verdicts:
        assert one.points(**{name: HOLDS}) >= one.points() - 1e-12


@given(ANY)
def test_not_reached_is_worth_at_least_as_much_as_failed(one):
    """A word too many is a fault; a word that was not moved is not. Neither earns anything itself."""
    for name, _ in one.verdicts:
        missed, failed = one.points(**{name: MISSED}), one.points(**{name: FAILS})
        assert failed <= missed <= one.points(**{name: HOLDS}) + 1e-12
        if name not in one.names(traffic=True):
            assert missed == failed


@given(st.one_of(BOTH, VALUES))
def test_each_property_of_the_values_that_holds_earns_something(one):
    for name in one.names(traffic=False):
        assert one.points(**{name: HOLDS}) > one.points(**{name: FAILS})


@given(st.one_of(BOTH, REPAIRS, TRAFFIC))
def test_each_property_of_traffic_earns_something_except_what_a_schedule_to_repair_has(one):
    given_ones = (
        [name for name in one.names(traffic=True) if name[0] == "g"] if one.names(traffic=False) else []
    )
    for name in one.names(traffic=True):
        earns = one.points(**{name: HOLDS}) > one.points(**{name: MISSED})
        assert earns == (name not in given_ones)


@given(BOTH)
def test_right_values_with_a_fault_of_traffic_earn_at_most_three_fifths(one):
    right = one.points(**dict.fromkeys(one.names(traffic=False), HOLDS))
    if FAILS in (said for name, said in one.verdicts if name in one.names(traffic=True)):
        assert 0.5 <= right <= 0.6
    else:
        assert right >= 0.5


@given(st.one_of(BOTH, REPAIRS))
def test_exact_traffic_without_any_right_value_earns_half(one):
    verdicts = dict.fromkeys(one.names(traffic=False), FAILS) | dict.fromkeys(one.names(traffic=True), HOLDS)
    assert one.points(**verdicts) == pytest.approx(0.5)


@given(REPAIRS)
def test_a_schedule_to_repair_earns_in_proportion_to_its_repairs(one):
    right = dict.fromkeys(one.names(traffic=False), HOLDS)
    has = dict.fromkeys((name for name, _ in one.verdicts if name[0] == "g"), HOLDS)
    repairs = {name: said for name, said in one.verdicts if name[0] == "t"}
    done = sum(said is HOLDS for said in repairs.values()) / len(repairs)
    assert one.points(**right, **has) == pytest.approx(done)
    assert one.points(**right, **has, **dict.fromkeys(repairs, FAILS)) == 0
    for name in has:  # what it had is damaged
        assert one.points(**(right | has | {name: FAILS})) == pytest.approx(0.6 * done)


# ------------------------------------------------------------------ the same in numbers
OF_FOUR = made(named("v", 2) + named("i", 2, idle=True))
WITH_TRAFFIC = made(named("v", 1) + named("i", 1, idle=True) + named("t", 4, traffic=True))
TO_REPAIR = made(
    named("i", 1, idle=True) + named("g", 2, traffic=True, idle=True) + named("t", 2, traffic=True)
)
IDLE_ONLY = made(named("i", 2, idle=True))  # no value tells more than another: half until all hold


@pytest.mark.parametrize(
    ("exercise", "fails", "missed", "values", "traffic"),
    [
        (OF_FOUR, "", "", 4, None),
        (OF_FOUR, "v0", "", 2, None),
        (OF_FOUR, "i0", "", 3, None),
        (OF_FOUR, "v0 i0", "", 1.5, None),
        (OF_FOUR, "i0 i1", "", 2, None),
        (OF_FOUR, "v0 v1", "", 1, None),
        (OF_FOUR, "v0 v1", "i0 i1", 0, None),
        (WITH_TRAFFIC, "", "", 2, 2),
        (WITH_TRAFFIC, "v0", "", 0.5, 2),
        (WITH_TRAFFIC, "v0", "t0", 0.5, 1.5),
        (WITH_TRAFFIC, "t0", "", 2, 0.3),
        (WITH_TRAFFIC, "t0 t1 t2 t3", "", 2, 0),
        (WITH_TRAFFIC, "v0", "i0 t0 t1 t2 t3", 0, 0),
        (TO_REPAIR, "t0 t1", "", 0, 0),
        (TO_REPAIR, "t0", "", 1, 1),
        (TO_REPAIR, "i0", "", 0, 2),
        (TO_REPAIR, "g0 t0", "", 1, 0.2),
        (TO_REPAIR, "t0", "g0", 1, 1),
        (IDLE_ONLY, "", "", 4, None),
        (IDLE_ONLY, "i0", "", 1, None),
    ],
)
def test_the_rule_in_numbers(exercise, fails, missed, values, traffic):
    said = dict.fromkeys(fails.split(), FAILS) | dict.fromkeys(missed.split(), MISSED)
    points = points_of(exercise, [(one.name, said.get(one.name)) for one in exercise.properties])
    assert (points.values, points.traffic) == pytest.approx((values, traffic))


def test_what_does_not_run_is_worth_nothing():
    assert points_of(OF_FOUR, [(RUNS, "not written yet")]).total == 0
    assert points_of(WITH_TRAFFIC, [(RUNS, "not written yet")]).total == 0


def test_points_are_shown_by_half():
    assert str(Points(2.5, 0.25, 2.5, 2.5)) == "values 2.5 of 2.5, traffic 0.25 of 2.5"
    assert str(Points(1 / 3, None, 5.0, 0.0)) == "values 0.333 of 5"
    assert str(Points(0.0, 0.0, 2.0, 2.0)) == "values 0 of 2, traffic 0 of 2"


def test_the_rule_states_the_shares_in_words():
    assert "each carry half" in RULE and "earn a fifth" in RULE and "earns half of its part until" in RULE


def test_feedback_lists_which_properties_are_about_traffic_and_which_count_half():
    telling, idle, words = named("v", 2), named("i", 1, idle=True), named("t", 2, traffic=True)
    half = 'Properties that wrong values can have too: "i0".'
    assert how_paid(made(telling + idle + words)) == f'Properties of the traffic: "t0"; "t1". {half}'
    assert how_paid(made(telling + idle)) == half and how_paid(made(telling)) == ""
    given = named("g", 1, traffic=True, idle=True)
    repair = how_paid(made(idle + words + given))
    assert repair.startswith('The repairs are: "t0"; "t1". They earn') and "g0" not in repair


# ------------------------------------------------------------------ answers that do nothing
NUMPY = [one for one in exercises().values() if one.lesson[:2] not in INTERPRETED]
OUTPUTS = ("Y", "C", "G", "L", "O", "dS", "dQ", "dK", "dV", "D")
RNG = np.random.default_rng()
# Functions of the input that are not recognised as doing nothing, with the reason.
EARNS = {
    ("15A", "the first input"): "features of degree 1 are those of each row alone",
    ("3C", "the first input"): "a merge that drops its second part does not modify its inputs",
}


def parts_of(case):
    return case.expected if isinstance(case.expected, tuple) else (case.expected,)


def like(case, made):
    """Return a part per expected result, in the same container."""
    return tuple(made) if isinstance(case.expected, tuple) else made[0]


def always(value):
    return lambda case, *given: value


def not_written(case, *given):
    raise NotImplementedError


def full_of(number):
    """Return this number in the expected shapes; 1 becomes True for each of several rows."""

    def answer(case, *given):
        shapes = map(np.shape, parts_of(case))
        return like(case, [np.full(shape, float(number)) if shape else number for shape in shapes])

    return answer


def random_numbers(case, *given):
    return like(case, [RNG.standard_normal(np.shape(part))[()] for part in parts_of(case)])


def first_input(case, *given):
    return next((one for one in given if isinstance(one, np.ndarray)), given[0])


def moved(change):
    """Return, for each expected result, an input of as many entries after a change."""

    def answer(case, *given):
        arrays = [one for one in given if isinstance(one, np.ndarray) and one.dtype.kind == "f"]
        same = [next((x for x in arrays if x.size == np.size(want)), None) for want in parts_of(case)]
        if any(x is None for x in same):
            raise NotImplementedError
        made = (change(x).reshape(np.shape(want)) for x, want in zip(same, parts_of(case), strict=True))
        return like(case, [x.copy() for x in made])

    return answer


class Earlier:
    """Return the expected shapes filled with the sum of the inputs of the call before."""

    def __init__(self):
        self.sum = 0.0

    def __call__(self, case, *given):
        value = full_of(self.sum)(case)
        self.sum = sum(float(x.sum()) for x in given if isinstance(x, np.ndarray) and x.dtype.kind == "f")
        return value


def stored(fill, *, loads):
    """Return a schedule that stores what `fill` returns, after it has loaded every row if `loads`."""

    def schedule(case, machine, *arrays):
        for array in arrays if loads else ():
            for row in machine.blocks(array.shape[0], 1):
                machine.load(array, row).free()
        sizes = {name: words for name, words in case.budget.sizes.items() if name in OUTPUTS}
        made = []
        for part in parts_of(case):
            name = next(one for one, words in sizes.items() if words == part.size)
            del sizes[name]
            made.append(machine.new(name, part.shape))
            for row in machine.blocks(len(part), 1):
                with machine.zeros(row, *part.shape[1:]) as tile:
                    tile += fill()
                    machine.store(tile, made[-1], row)
        return like(case, made)

    return schedule


def copied(order):
    """Return a schedule that loads all and stores the rows of an input of the same shape in another order."""

    def schedule(case, machine, *arrays):
        for array in arrays:
            for row in machine.blocks(array.shape[0], 1):
                machine.load(array, row).free()
        made = []
        for name, part in zip(OUTPUTS, parts_of(case), strict=False):
            source = next((array for array in arrays if array.shape == part.shape), None)
            if source is None:
                raise NotImplementedError
            made.append(machine.new(f"{name}_", part.shape))
            for n in range(len(part)):
                at = order(n, len(part))
                with machine.load(source, (at, at + 1)) as tile:
                    machine.store(tile, made[-1], (n, n + 1))
        return like(case, made)

    return schedule


FUNCTIONS = {
    "return 0": always(0),
    "return None": always(None),  # and pass
    "the empty starter": not_written,
    "return (1, 1)": always((1, 1)),
    "return []": always([]),
    "return ()": always(()),
    "an empty array": always(np.empty(0)),
    "zeros": full_of(0),
    "ones": full_of(1),
    "NaN": full_of(np.nan),
    "a huge constant": full_of(1e300),
    "random numbers": random_numbers,
    "the first input": first_input,
    "an input, scaled": moved(lambda x: -3.0 * x),
    "an input, transposed": moved(np.transpose),
    "an input, reversed": moved(lambda x: x[::-1]),
    "the sum of the call before": Earlier(),
}
SCHEDULES = {
    f"{'all loaded, ' if loads else ''}{name}": stored(fill, loads=loads)
    for loads in (False, True)
    for name, fill in {
        "zeros": float,
        "NaN": lambda: np.nan,
        "a huge constant": lambda: 1e300,
        "random numbers": RNG.standard_normal,
    }.items()
} | {"rows copied": copied(lambda n, N: n), "rows reversed": copied(lambda n, N: N - 1 - n)}


def verdicts_on(exercise, cases, does):
    def run_case(student, case):
        def idler(*given, **named):
            return does(case, *given, *(one for one in named.values() if hasattr(one, "shape")))

        return exercise.run_case(idler, case)

    def idler():
        """Placeholder for an object that the exercise passes to the function."""

    return judge(replace(exercise, run_case=run_case, cases=lambda rng: cases), idler, 1)


@pytest.mark.parametrize("exercise", NUMPY, ids=lambda one: one.id)
def test_an_answer_that_does_nothing_is_worth_nothing(exercise):
    cases = exercise.cases(np.random.default_rng(1))
    schedules = SCHEDULES if exercise.run_case is run_schedule else {}
    found = {name: verdicts_on(exercise, cases, does) for name, does in (FUNCTIONS | schedules).items()}
    points = {name: points_of(exercise, verdicts).total for name, verdicts in found.items()}
    earned = {name for name, one in points.items() if one}
    assert earned == {name for id, name in EARNS if id == exercise.id}, points
    ran = [name for name in schedules if not name.startswith("rows ")]
    assert all(len(found[name]) == len(exercise.properties) for name in ran)  # they ran
