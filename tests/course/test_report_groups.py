"""Tests of a report that groups its failures: one fault reads as one, and nothing is left out."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course.checking import OTHER_FORM, failed_properties, judge, read_first, report
from iocourse.course.exercise import (
    Better,
    Case,
    Exercise,
    FirstCause,
    NotReached,
    Property,
    WrongEverywhere,
    WrongForm,
)
from iocourse.course.properties import LARGE, as_traffic, idle, values, values_in

APART = "with it, and not tested apart"  # of values; of words: "and with it"
WITH_IT = tuple(f"         {words}: " for words in (APART, "and with it"))
MARKS = st.fixed_dictionaries({"general": st.booleans(), "idle": st.booleans(), "traffic": st.booleans()})
SAID = st.sampled_from(
    [None, "wrong", WrongEverywhere("wrong"), WrongForm("no form"), FirstCause("cause"), NotReached("unseen")]
)


def made(properties, cases=()):
    return Exercise("99.1", "Made up", "f", 1, 4, 1, ("", "", ""), lambda rng: list(cases), tuple(properties))


def marked(drawn):
    return [Property(f"property {n}", lambda trials: None, **marks) for n, (marks, _) in enumerate(drawn)]


@given(st.lists(st.tuples(MARKS, SAID), min_size=1, max_size=7))
def test_every_property_is_named_once_under_its_verdict(drawn):
    asked = made(
        Property(f"property {n}", lambda trials: None, **marks) for n, (marks, _) in enumerate(drawn)
    )
    verdicts = [(f"property {n}", said) for n, (_, said) in enumerate(drawn)]
    failed = failed_properties(verdicts)
    title, *lines, last = report(asked, verdicts, 5).splitlines()
    assert title == "99.1 Made up"
    assert last == ('Not solved yet. Same inputs again: seed=5. Stuck? hint("99.1")' if failed else "Solved.")
    read = [line for line in lines if line.startswith("Read ")]
    shown = [line for line in lines if line.startswith("  FAILS  ")]
    with_it = [line for line in lines if line.startswith(WITH_IT)]
    named = [line.split(": ")[0].removeprefix("  FAILS  ") for line in shown]
    named += [name for line in with_it for name in line.split(": ", 1)[1].split("; ")]
    assert sorted(named) == sorted(failed)
    assert len(read) == (len(shown) > 1)
    if read:
        first = read_first(asked, failed)
        assert read[0] == f'Read "{first}" first: the others may fail for the same reason.'
    kept = [f"  holds  {name}" for name, said in verdicts if said is None]
    unseen = [f"  not reached  {name}: {said}" for name, said in verdicts if isinstance(said, NotReached)]
    assert sorted(lines) == sorted([*kept, *unseen, *shown, *with_it, *read])


@given(st.lists(st.tuples(MARKS, SAID), min_size=1, max_size=7))
def test_values_are_grouped_with_values_and_words_with_words(drawn):
    asked = made(
        Property(f"property {n}", lambda trials: None, **marks) for n, (marks, _) in enumerate(drawn)
    )
    marks = {f"property {n}": mark for n, (mark, _) in enumerate(drawn)}
    lines = report(asked, [(f"property {n}", said) for n, (_, said) in enumerate(drawn)], 5).splitlines()
    for above, line in pairwise(lines):
        if line.startswith(WITH_IT):
            head = marks[above.split(": ")[0].removeprefix("  FAILS  ")]
            below = [marks[name] for name in line.split(": ", 1)[1].split("; ")]
            assert all(one["traffic"] == head["traffic"] for one in below)
            if head["traffic"]:
                assert not head["general"] and all(one["general"] for one in below)


# ------------------------------------------------------------------ in words
def lines_of(said, **marks):
    """Return the lines of the failures of properties a, b, …; `marks` has the marked ones."""
    asked = made(
        Property(
            name,
            lambda trials: None,
            traffic=name in marks.get("traffic", ""),
            general=name in marks.get("general", ""),
            idle=name in marks.get("idle", ""),
            echo=name in marks.get("echo", ""),
        )
        for name in said
    )
    lines = report(asked, list(said.items()), 5).splitlines()[1:-1]
    return [line.strip() for line in lines if not line.startswith(("  holds", "  not reached"))]


WRONG = {"a": "1", "b": "2", "c": "3"}
READ_A = 'Read "a" first: the others may fail for the same reason.'
READ_C = 'Read "c" first: the others may fail for the same reason.'
READ_B = 'Read "b" first: the others may fail for the same reason.'


@pytest.mark.parametrize(
    ("said", "marks", "lines"),
    [
        (WRONG, {}, ["FAILS  a: 1", f"{APART}: b; c"]),  # no value is right
        (WRONG | {"d": None}, {}, ["FAILS  a: 1", "FAILS  b: 2", "FAILS  c: 3", READ_A]),
        (WRONG | {"d": None}, {"idle": "d"}, ["FAILS  a: 1", f"{APART}: b; c"]),
        (WRONG | {"d": None}, {"traffic": "d"}, ["FAILS  a: 1", f"{APART}: b; c"]),
        (WRONG, {"general": "a"}, ["FAILS  b: 2", f"{APART}: a; c"]),
        (WRONG | {"b": FirstCause("2"), "d": None}, {}, ["FAILS  b: 2", f"{APART}: a; c"]),
        ({"a": "1", "d": None}, {}, ["FAILS  a: 1"]),
        (WRONG | {"d": None}, {"traffic": "abc", "general": "c"},
         ["FAILS  a: 1", "and with it: c", "FAILS  b: 2", READ_A]),
        (WRONG, {"traffic": "bc", "general": "c"}, ["FAILS  a: 1", "FAILS  b: 2", "and with it: c", READ_A]),
        (WRONG | {"a": None}, {"traffic": "bc", "general": "c"}, ["FAILS  b: 2", "and with it: c"]),
        (WRONG | {"a": None}, {"traffic": "bc"}, ["FAILS  b: 2", "FAILS  c: 3", READ_B]),
        (WRONG | {"a": None}, {"traffic": "bc", "general": "bc"}, ["FAILS  b: 2", "FAILS  c: 3", READ_B]),
        (WRONG | {"b": NotReached("2")}, {"traffic": "bc"}, ["FAILS  a: 1", "FAILS  c: 3", READ_A]),
    ],
)  # fmt: skip
def test_which_failures_are_one(said, marks, lines):
    assert lines_of(said, **marks) == lines


@pytest.mark.parametrize(
    ("said", "marks", "followers", "read"),
    [
        # a vague property follows one that is not
        (WRONG | {"d": None}, {"general": "b"}, ["b"], [READ_A]),
        (WRONG | {"d": None}, {"echo": "b"}, ["b"], [READ_A]),
        ({"a": "1", "b": "2", "d": None}, {"general": "ab"}, [], [READ_A]),
        ({"a": "1", "b": "2", "d": None}, {"echo": "ab"}, [], [READ_A]),
        # values that are wrong in every case are read before their echoes, other wrong values are not
        (WRONG | {"c": WrongEverywhere("3"), "d": None}, {"echo": "ab"}, ["a; b"], []),
        (WRONG | {"d": None}, {"echo": "ab"}, [], [READ_A]),
        # a wrong form comes before a first cause
        (WRONG | {"b": FirstCause("2"), "c": WrongForm("3"), "d": None}, {}, [], [READ_C]),
    ],
)
def test_which_failures_are_vague(said, marks, followers, read):
    lines = lines_of(said, **marks)
    assert [line.split(": ", 1)[1] for line in lines if "with it" in line] == followers
    assert [line for line in lines if line.startswith("Read ")] == read


# ------------------------------------------------------------------ the first cause, found by the judge
def cases():
    ones = np.ones((2, 2))
    return [
        Case("plain", {"x": ones}, ones),
        Case("large", {"x": 2 * ones}, 2 * ones, tags=frozenset({LARGE})),
        Case("large", {"x": 3 * ones}, 3 * ones, tags=frozenset({LARGE})),
    ]


def needs_a_large_case(trials):
    return None if next(trial for trial in trials if trial.case.has(LARGE)).value[0, 0] == 2 else "wrong"


FINITE = values_in(f"{LARGE} do not overflow", LARGE)
ASKED = (values(), FINITE)


def says(name, said):
    """Return the property with this verdict, which is raised if it is an error."""

    def verdict(trials):
        if isinstance(said, BaseException):
            raise said
        return said

    return Property(name, verdict)


def said_on(asked, function):
    return dict(judge(made(asked, cases()), function, 0))


def overflows(x):
    return x if x.max() < 2 else x * np.nan


def test_a_fault_of_one_kind_of_cases_that_explains_all_is_the_first_cause():
    said = said_on(ASKED, overflows)
    assert isinstance(said[FINITE.name], FirstCause) and not isinstance(said[ASKED[0].name], FirstCause)
    text = report(made(ASKED, cases()), list(said.items()), 5)
    assert f"  FAILS  {FINITE.name}: " in text and f"{APART}: {ASKED[0].name}" in text


def test_a_property_that_holds_is_no_first_cause():
    same = replace(says("has the shape of x", None), tag=LARGE)
    said = said_on((same, *ASKED), overflows)
    assert said[same.name] is None and isinstance(said[FINITE.name], FirstCause)


def test_a_fault_of_traffic_hides_no_first_cause():
    said = said_on((*ASKED, as_traffic(Property("few words", lambda trials: "many"))), overflows)
    assert isinstance(said[FINITE.name], FirstCause) and not isinstance(said["few words"], FirstCause)


@pytest.mark.parametrize(
    ("asked", "function"),
    [
        (ASKED, lambda x: 5 * x),  # ordinary cases are wrong too
        ((FINITE, idle(values_in("also", ""))), lambda x: x * x - 1),
        ((FINITE,), overflows),  # nothing else to explain
        ((FINITE, as_traffic(Property("few words", lambda trials: "many"))), overflows),  # not a value
        ((FINITE, Property("needs a large case", needs_a_large_case)), overflows),  # cannot be tested alone
        ((values_in("all", ""), values()), overflows),  # no kind of cases
    ],
)
def test_no_first_cause(asked, function):
    said = said_on(asked, function)
    assert any(said.values()) and not any(isinstance(one, FirstCause) for one in said.values())


def test_a_kind_that_every_case_has_explains_nothing():
    large = [case for case in cases() if case.has(LARGE)]
    said = dict(judge(made(ASKED, large), overflows, 0))
    assert all(said.values()) and not any(isinstance(one, FirstCause) for one in said.values())


def test_the_report_of_a_right_answer_has_no_groups():
    assert report(made(ASKED, cases()), judge(made(ASKED, cases()), lambda x: x.copy(), 0), 5) == (
        f"99.1 Made up\n  holds  {ASKED[0].name}\n  holds  {FINITE.name}\nSolved."
    )


# ------------------------------------------------------------------ a wrong form, and a remark
def test_only_the_first_property_that_needs_the_form_fails():
    form = WrongForm("got a dict")
    asked = (says("a", None), says("b", form), says("c", "wrong"), says("d", form), says("e", None))
    said = said_on(asked, lambda x: x)
    assert said == {"a": None, "b": form, "c": "wrong", "d": OTHER_FORM, "e": None}
    assert isinstance(said["b"], WrongForm) and isinstance(said["d"], NotReached)


@pytest.mark.parametrize("error", [SystemExit(2), TypeError("no number")])
def test_a_result_that_cannot_be_tested_has_a_wrong_form(error):
    said = said_on((says("a", error),), lambda x: x)["a"]
    assert isinstance(said, WrongForm) and said.startswith("the result cannot be tested: ")


def test_a_remark_is_shown_only_if_nothing_fails():
    better, wrong = says("b", Better("fewer words")), says("c", "wrong")
    asked = made((better,), cases())
    assert "  holds  b: fewer words" in report(asked, judge(asked, lambda x: x, 0), 5).splitlines()
    asked = made((better, wrong), cases())
    assert "  holds  b" in report(asked, judge(asked, lambda x: x, 0), 5).splitlines()
