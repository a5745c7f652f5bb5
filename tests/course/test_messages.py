"""Tests of reports on frequent mistakes: a wrong type of result, and the factor 1/√d."""

import numpy as np
import pytest

from iocourse.course.checking import OTHER_FORM, RUNS, failed_properties, judge, read_first, report
from iocourse.course.exercise import FORM, KEEPS_INPUTS, RETURNS, STORES, NotReached, exercises, find
from iocourse.course.properties import single, whole, wrong_factor, wrong_scale
from iocourse.exact import attention
from tests.mutation.references import build, exercise_source, sources_of
from tools.build.notebook_execution import cannot_run


def reference(exercise_id, *edit):
    """Return the solved function with one replacement in its source."""
    source = exercise_source(exercise_id, solved=True)
    assert not edit or edit[0] in source
    return build(exercise_id, source.replace(*edit) if edit else source)


# ------------------------------------------------------------------ an answer of the wrong form
@pytest.mark.parametrize("exercise_id", ["4D", "7D", "9A", "9B", "17D", "6A", "15B"])
def test_a_wrong_form_is_told_once_and_the_rest_is_not_reached(exercise_id):
    exercise = find(exercise_id)
    first, *others = judge(exercise, lambda *given: 0, 3)
    assert first[1] and not isinstance(first[1], NotReached)
    assert [complaint for _, complaint in others] == [OTHER_FORM] * (len(exercise.properties) - 1)
    assert all(isinstance(complaint, NotReached) for _, complaint in others)


def test_a_report_lists_what_was_not_reached_and_sends_nobody_there():
    exercise = find("4D")
    said = report(exercise, judge(exercise, lambda *given: 0, 3), 3).splitlines()
    assert said[1].startswith("  FAILS  returns two positive integers: expected a tile (Br, Bc), got ")
    assert said[2:4] == [
        f"  not reached  the tile fits in M words: {OTHER_FORM}",
        f"  not reached  no tile that fits moves fewer words: {OTHER_FORM}",
    ]
    assert not any(line.startswith("Read ") for line in said)


def test_what_is_not_reached_and_what_fails_beside_a_wrong_form_is_told():
    def first_piece(pieces):
        return next(pieces)

    said = dict(judge(find("3B"), first_piece, 3))["memory use does not grow with the length of the row"]
    assert isinstance(said, NotReached) and said == "your function ends before it has read every piece"
    text = report(find("16A"), judge(find("16A"), lambda *given: 0, 3), 3)
    assert "  FAILS  the work grows linearly with the number of tokens: " in text
    assert 'Read "p x is correct" first' in text  # the form, before what follows from it


def test_different_forms_in_different_properties_are_told_one_after_the_other():
    exercise = find("17A")
    one, *others = judge(exercise, lambda *given: (None, None, None), 3)
    assert "returned None" in one[1] and others[0][1] == OTHER_FORM


# ------------------------------------------------------------------ what ran to its end
@pytest.mark.parametrize("exercise_id", list(exercises()))
def test_an_answer_that_ran_to_its_end_is_not_said_to_raise(exercise_id):
    if reason := cannot_run(sources_of(find(exercise_id).lesson)[0].read_text(encoding="utf-8")):
        pytest.skip(reason)
    for value in (None, 0.5):
        failed = failed_properties(judge(find(exercise_id), lambda *given, value=value, **named: value, 0))
        assert failed and RUNS not in failed


def nothing_stored(m, Q, K, V, **tiles):
    return m.new("O", Q.shape)


@pytest.mark.parametrize(
    ("exercise_id", "answer", "lacks", "seen"),
    [
        (
            "0A",
            lambda Nq, Nk, d: 23296.0,
            FORM,
            "expected an integer number of words, got the float 23296.0 (",
        ),
        ("0A", lambda Nq, Nk, d: None, RETURNS, "your function returned None; does it print"),
        ("1A", lambda S: None, RETURNS, "your function returned None; does it end with a return?"),
        ("4A", lambda m, Q, K, V, **tiles: None, RETURNS, "the schedule returned NoneType; it must return"),
        ("4A", nothing_stored, STORES, "some of its words were never stored ("),
        ("6A", lambda *given: given[0].fill(0.0), KEEPS_INPUTS, "your function modifies "),
        ("17A", lambda layers, errors: layers.reverse(), KEEPS_INPUTS, "your function modifies layers"),
        ("19B", lambda lengths, P: lengths.sort(), KEEPS_INPUTS, "your function modifies lengths"),
    ],
)
def test_what_an_answer_lacks_has_a_name_of_its_own(exercise_id, answer, lacks, seen):
    ((name, said),) = judge(find(exercise_id), answer, 0)
    assert name == lacks and seen in said and "Error" not in said


# ------------------------------------------------------------------ the scale, on a whole result
def complaint_of(exercise_id, name, *edit):
    return dict(judge(find(exercise_id), reference(exercise_id, *edit), 0))[name]


@pytest.mark.parametrize(
    ("exercise_id", "name", "old", "new", "factor"),
    [
        ("1D", "dQ equals the exact gradient", "dS @ K", "dS @ K * Q.shape[1] ** 0.5", "√d"),
        ("6A", "ds is the tile's part of dS", "D[:, None])", "D[:, None]) / np.sqrt(q.shape[1])", "1/√d"),
        ("6B", "dQ is exact", "s *= d**-0.5", "pass", "√d"),
        ("7A", "the tile holds the scores of query block i and key block j", "q *= d**-0.5", "pass", "√d"),
        ("9C", "dQ is exact", "dq *= d**-0.5", "pass", "√d"),
        ("9C", "dK is exact", "m.store(dk, dK, j)", "dk *= d**-0.5; m.store(dk, dK, j)", "1/√d"),
        ("9D", "dS is exact", "m.store(s, dS, i, j)", "s *= d**-0.5; m.store(s, dS, i, j)", "1/√d"),
        ("9D", "dK is exact", "m.store(dk, dK, j)", "dk *= d**-0.5; m.store(dk, dK, j)", "1/√d"),
    ],
)
def test_a_scale_forgotten_or_used_twice_is_named(exercise_id, name, old, new, factor):
    assert f"; every entry is {factor} times the expected value (" in complaint_of(
        exercise_id, name, old, new
    )


def test_another_mistake_is_not_taken_for_the_scale():
    said = complaint_of("9C", "dQ is exact", "D_i.add_row_dots(do, o)", "pass")
    assert "entries differ" in said and "times the expected value" not in said


@pytest.mark.parametrize(
    ("factor", "d", "seen"),
    [(2.0, 4, "√d"), (0.5, 4, "1/√d"), (1.0, 4, None), (2.0, 9, None), (2.0, 1, None), (-2.0, 4, None)],
)
def test_the_factor_is_that_of_the_width_of_the_queries(factor, d, seen):
    want = np.arange(1.0, 7.0).reshape(3, 2)
    for name in ("Q", "q"):
        said = wrong_factor(factor * want, want, {name: np.ones((3, d))})
        assert said == (seen and f"every entry is {seen} times the expected value")


@pytest.mark.parametrize("got", [None, "text", np.zeros(2), np.full((2, 2), np.nan), 1j * np.ones((2, 2))])
def test_what_is_no_such_array_is_not_compared(got):
    assert wrong_factor(got, np.ones((2, 2)), {"Q": np.ones((2, 4))}) is None
    assert wrong_factor(np.ones((2, 2)), np.ones((2, 2)), {}) is None


# ---------------------------------------------------------------------- which to read first
def advice_on(exercise_id, *edit):
    """Return the property to read first, for the solved function with one replacement."""
    exercise = find(exercise_id)
    verdicts = judge(exercise, reference(exercise_id, *edit), 0)
    return read_first(exercise, {name: said for name, said in verdicts if said})


@pytest.mark.parametrize("exercise_id", ["7B", "7C"])
def test_values_wrong_in_every_case_are_read_before_their_echoes(exercise_id):
    store = "m.store(s, S, (0, i.size), j)"
    advice = advice_on(exercise_id, store, f"stats.update(s); {store}; continue")
    assert advice == "values equal exact attention"


def test_values_wrong_in_some_cases_leave_it_to_the_property_that_says_which():
    assert (
        advice_on("4A", "stats.update(s, o)", "stats.update(s)")
        == "the result does not depend on the block size"
    )


# ---------------------------------------------------------------------- results: too many, exchanged, none
def first_complaint(exercise_id, answer):
    """Return the complaint of the first failed property."""
    return next(said for _, said in judge(find(exercise_id), answer, 0) if said)


def test_a_gradient_right_to_nine_digits_is_not_called_by_its_own_name():
    nearly = reference("1D", "return dQ, dK, dV", "return dQ + 1e-11, dK, dV")
    said = first_complaint("1D", nearly)
    assert "correct to 9 digits, like finite differences" in said and "got dQ" not in said


@pytest.mark.parametrize(
    ("exercise_id", "expected"), [("1A", "an array of numbers"), ("7E", "one array"), ("8A", "a number")]
)
def test_a_result_too_many_is_counted_and_not_called_inhomogeneous(exercise_id, expected):
    right = reference(exercise_id)
    said = first_complaint(exercise_id, lambda *given: (right(*given), 0))
    assert "2 results" in said and f"expected {expected}" in said and "inhomogeneous" not in said


def test_results_in_another_order_are_named():
    right = reference("6A")
    said = first_complaint("6A", lambda *given: right(*given)[::-1])
    assert said.startswith("got ds; return p, ds in this order")


def test_nothing_returned_is_asked_for():
    assert "does the function end with a return?" in first_complaint("7E", lambda *given: None)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda a, b: a[1] + b[1], "got float"),
        (lambda a, b: (a[2] + b[2], 0.0, 0.0), "m and l are numbers"),
    ],
)
def test_a_merge_of_another_form_is_refused_before_it_is_merged_on(made, said):
    assert said in first_complaint("3C", made)


def test_a_schedule_that_returns_too_much_is_told_what_came():
    right = reference("4A")
    said = first_complaint("4A", lambda m, Q, K, V, **tiles: (right(m, Q, K, V, **tiles), 0))
    assert "the schedule returned a tuple of SlowArray, int" in said


@pytest.mark.parametrize(
    ("power", "sign", "named"),
    [
        (0, 1, "1,"),
        (-1, 1, "1/5,"),
        (0.5, 1, "√5,"),
        (1, 1, "5,"),
        (-2, 1, "1/25,"),
        (-0.5, -1, "-1/√5,"),
        (0, 0, "0,"),
    ],
)
def test_each_likely_wrong_scale_is_named(power, sign, named):
    Q, K, V = np.random.default_rng(0).standard_normal((3, 7, 5))
    said = wrong_scale(Q, K, V, attention(Q, K, V, scale=sign * 5.0**power))
    assert said == f"QKᵀ is multiplied by {named} expected 1/√5 = 0.4472"
    assert wrong_scale(Q, K, V, attention(Q, K, V, scale=0.3)) is None


def test_a_number_in_an_array_without_axes_is_a_number():
    assert whole(np.array(3)) == whole(np.int64(3)) == 3 and type(whole(np.array(3))) is int
    assert isinstance(single(np.array(2.5)), np.floating) and single(np.array([2.5])).shape == (1,)
    assert whole(np.array([3])) is whole(np.array(2.5)) is whole(np.array(True)) is whole(np.array(0)) is None
