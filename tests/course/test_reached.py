"""Tests of `reached`: results that were not computed from the inputs, on made-up functions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course.checking import judge
from iocourse.course.exercise import Better, Case, Exercise, NotReached, Property, Trial, run_function
from iocourse.course.points import points_of
from iocourse.course.properties import (
    as_traffic,
    every_input_loaded,
    fits_in_fast_memory,
    idle,
    reads_within,
    total_within,
    values,
    writes_within,
)
from iocourse.course.reached import Reached, few_words, reached
from iocourse.ledger import Ledger

SHAPES = ((1, 1), (3, 2), (4, 3))


def drawn(seed=0, shapes=SHAPES, expected=lambda A, B: A @ B.T, names="AB", tags=()):
    rng = np.random.default_rng(seed)
    found = []
    for shape in shapes:
        arrays = [rng.standard_normal(shape) for _ in names]
        inputs = dict(zip(names, arrays, strict=True)) | {"b": 2}
        found.append(Case(f"{shape}", inputs, expected(*arrays), tags=frozenset(tags)))
    return found


def made(cases, properties=()):
    return Exercise("99.1", "", "f", 1, 4, 1, ("", "", ""), lambda rng: cases, tuple(properties))


class Counted:
    """The function, which counts its calls; `fails` raises this error from the second series of calls on."""

    def __init__(self, function, cases, fails=None):
        self.function, self.calls, self.first, self.fails = function, 0, len(cases), fails

    def __call__(self, *inputs):
        self.calls += 1
        if self.fails and self.calls > self.first:
            raise self.fails
        return self.function(*inputs)


def seen(function, cases=None, fails=None):
    """Return what is reached, and the number of further calls."""
    cases = drawn() if cases is None else cases
    counted = Counted(function, cases, fails)
    trials = [run_function(counted, case) for case in cases]
    assert not any(trial.error for trial in trials)
    return reached(made(cases), counted, trials), counted.calls - len(cases)


# ------------------------------------------------------------------ what counts as no work
HANDED_BACK = "your function returns an input, scaled or in another order"
CONSTANT = "your function returns the same for every input"
NOT_FINITE = "every element of your result is NaN or infinite"
FAILS_LATER = "your function fails when it is called again with other numbers in its inputs"


@pytest.mark.parametrize(
    "function",
    [
        lambda A, B, b: A,
        lambda A, B, b: B,
        lambda A, B, b: -3.0 * A,
        lambda A, B, b: A.T.copy(),
        lambda A, B, b: 0.5 * A[::-1],
        lambda A, B, b: (A, 2 * B),
        lambda A, B, b: [B, B],
        lambda A, B, b: A.astype(np.float32),
    ],
)
def test_an_input_is_not_a_result(function):
    assert seen(function) == (Reached(HANDED_BACK), 0)


def test_whole_numbers_are_an_input_too():
    cases = [Case(str(n), {"counts": np.arange(n)}, n) for n in (4, 5)]
    assert seen(lambda counts: 2 * counts, cases) == (Reached(HANDED_BACK), 0)


def test_an_input_with_infinite_entries_is_an_input_too():
    for number in (-np.inf, np.nan):
        cases = drawn()
        for case in cases:
            case.inputs["A"][0, 0] = number
        assert seen(lambda A, B, b: 2.0 * A, cases)[0].nothing == HANDED_BACK
        assert seen(lambda A, B, b: A + B, cases)[0] == Reached()


def test_a_result_close_to_an_input_is_computed():
    assert seen(lambda A, B, b: A * (1 + 1e-3 * np.tanh(B)))[0] == Reached()


def test_a_zero_input_is_handed_back_only_as_zeros():
    zeros = drawn(shapes=((2, 2),))[0]
    zeros.inputs["A"][:] = 0.0
    assert seen(lambda A, B, b: A, [*drawn(), zeros])[0].nothing == HANDED_BACK
    assert seen(lambda A, B, b: A + 1.0 + B, [*drawn(), zeros])[0] == Reached()


def test_an_object_that_is_handed_back_is_an_input():
    given_ones = [Case(str(n), {"pieces": object(), "n": n}) for n in (5, 6)]
    trials = [run_function(lambda pieces, n: pieces, case) for case in given_ones]
    assert reached(made(given_ones), None, trials).nothing in (HANDED_BACK, CONSTANT)


def test_a_text_that_is_handed_back_is_an_input_and_None_is_not():
    words = [Case(kind, {"kind": kind, "mask": None}) for kind in ("rows", "columns")]
    assert seen(lambda kind, mask: kind, words) == (Reached(HANDED_BACK), 0)
    assert seen(lambda kind, mask: mask, words) == (Reached(CONSTANT), 0)


def test_an_input_beside_a_result_is_a_result():
    assert seen(lambda A, B, b: (A, A * B))[0] == Reached()


def test_the_same_entries_are_a_result_where_the_task_is_to_move_them():
    def transposed(A):
        return A.T

    cases = drawn(expected=transposed, names="A")
    assert seen(lambda A, b: A.T[::-1], cases)[0] == Reached()
    assert seen(lambda A, b: A, cases)[0].nothing == HANDED_BACK  # in its order, it was not moved
    assert seen(lambda A, b: A.reshape(A.T.shape), cases)[0].nothing == HANDED_BACK
    assert seen(lambda A, b: -A, cases)[0].nothing == HANDED_BACK
    only_once = drawn(expected=lambda A: A.T if len(A) == 3 else A + 1, names="A")
    assert seen(lambda A, b: A.T[::-1], only_once)[0].nothing == HANDED_BACK
    assert seen(lambda A, b: 0 * A, cases)[0].nothing == CONSTANT


def test_one_number_is_not_a_multiple_of_another():
    cases = drawn(shapes=((1, 1), (1, 1)), expected=lambda A, B: A + B)
    assert seen(lambda A, B, b: A + 2 * B, cases)[0] == Reached()
    assert seen(lambda A, B, b: A, cases)[0].nothing == HANDED_BACK


@pytest.mark.parametrize(
    "value",
    [0, 1.5, (1, 1), [], (), "flash2", np.empty(0), [0.0, (0.0, 0.0)], (np.inf, 1.0),
     np.array([np.inf, 1.0])],
)  # fmt: skip
def test_a_constant_is_not_a_result(value):
    assert seen(lambda A, B, b: value) == (Reached(CONSTANT), 0)


@pytest.mark.parametrize("number", [0.0, np.nan, np.inf, 1e300])
def test_a_constant_of_the_right_shape_is_not_a_result(number):
    why = CONSTANT if np.isfinite(number) else NOT_FINITE  # what is not finite is judged on smaller numbers
    assert seen(lambda A, B, b: np.full((len(A), len(B)), number))[0].nothing == why
    assert seen(lambda A, B, b: [number] * len(A))[0].nothing == why


def test_two_entries_are_enough_to_recognise_an_input():
    assert seen(lambda A, B, b: 2 * A, drawn(shapes=((1, 1), (1, 2))))[0].nothing == HANDED_BACK


def test_an_infinite_constant_without_arrays_of_real_numbers_is_a_constant():
    plain = [Case(str(n), {"N": n}, n * n) for n in (3, 4)]
    assert seen(lambda N: np.inf, plain) == (Reached(CONSTANT), 0)
    assert seen(lambda N: np.full(N, np.nan), plain) == (Reached(CONSTANT), 0)
    assert seen(lambda N: [np.zeros(N), np.zeros(N + 1)], plain) == (Reached(CONSTANT), 0)


def test_objects_that_differ_only_in_their_address_are_the_same_result():
    assert seen(lambda A, B, b: object())[0].nothing == CONSTANT


def test_equal_results_say_nothing_where_the_arrays_are_equal():
    one = drawn(shapes=((3, 2),))[0]
    cases = [Case(f"b={b}", one.inputs | {"b": b}, one.expected) for b in (1, 2, 3)]
    assert seen(lambda A, B, b: A @ B.T + 1, cases)[0] == Reached()


@pytest.mark.parametrize(("name", "function"), [("A", lambda A, B, b: A**2), ("B", lambda A, B, b: B @ B.T)])
def test_one_array_of_several_is_not_enough(name, function):
    found, calls = seen(function)
    assert found == Reached(f"your result depends on {name} only") and calls <= 5


def test_the_only_array_is_enough():
    cases = drawn(expected=lambda A: A + 1, names="A")
    assert seen(lambda A, b: A**2, cases)[0] == Reached()


def test_an_array_that_is_not_used_is_named():
    cases = drawn(expected=lambda A, B, C: A + B + C, names="ABC")
    assert seen(lambda A, B, C, b: A * B + 0 * C, cases)[0] == Reached(unused=("C",))
    assert seen(lambda A, B, C, b: B * C, cases)[0] == Reached(unused=("A",))


def test_shapes_alone_are_not_used_arrays():
    found, calls = seen(lambda A, B, b: np.arange(A.size * 1.0))
    assert found.nothing == "your result does not depend on the input arrays" and calls == 6


def test_an_array_that_only_the_largest_case_uses_is_used():
    assert seen(lambda A, B, b: A + (B if len(A) > 3 else 0))[0] == Reached()


def test_the_smaller_case_that_is_run_again_has_room():
    sizes = []

    def recorded(A, B, b):
        sizes.append(A.size)
        return A + B + 1

    cases = drawn(shapes=((4, 3), (3, 2), (1, 1)))
    one_entry_of_B = Case("4 and 1", {"A": np.arange(4.0), "B": np.ones(1), "b": 2}, np.zeros(4))
    assert seen(recorded, [*cases, one_entry_of_B])[0] == Reached() and sizes[4:] == [6, 6, 6]


def test_the_largest_case_has_the_most_words_of_all_arrays():
    sizes = ((3, 3), (8, 2), (6, 6))
    cases = [Case(str(n), {"A": np.arange(1.0, n + 1), "B": np.arange(1.0, m + 1)}, 0.0) for n, m in sizes]
    assert seen(lambda A, B: A.sum() + (B.sum() if len(A) == 6 else 0), cases)[0] == Reached()


def test_an_empty_array_is_not_one_of_several():
    cases = [Case(str(n), {"A": np.arange(1.0, n), "B": np.empty(0)}, 0.0) for n in (4, 5)]
    assert seen(lambda A, B: A**2, cases)[0] == Reached()


def test_the_only_case_is_not_run_twice_as_the_smaller_and_the_largest():
    assert seen(lambda A, B, b: A**2, drawn(shapes=((3, 2),)))[1] == 3


def test_an_array_that_the_largest_case_lacks_is_not_changed_in_it():
    large = drawn(shapes=((9, 9),), names="A", expected=lambda A: A)
    assert seen(lambda A, *rest: A + 1, [*drawn(), *large])[0] == Reached("your result depends on A only")


def test_cases_with_a_tag_are_not_run_again_if_others_have_none():
    odd = drawn(shapes=((9, 9),), tags=("large",))
    assert seen(lambda A, B, b: A + (B if len(A) == 9 else 0), [*drawn(), *odd])[0].nothing
    assert seen(lambda A, B, b: A + (B if len(A) == 9 else 0), odd)[0] == Reached()


def test_a_shift_or_a_scale_hides_no_array():
    """Rounded, because a rounding error would also be a difference."""

    def normalised(A, B, b):
        return np.round(A - A.mean(), 6) + np.round(B / np.linalg.norm(B), 6)

    assert seen(normalised)[0] == Reached()


# ------------------------------------------------------------------ functions with state
NEVER_THE_SAME = "your function returns something else when it is called again with the same input"


def test_random_numbers_are_not_a_result():
    rng = np.random.default_rng()
    found, calls = seen(lambda A, B, b: rng.standard_normal(A.shape))
    assert found.nothing == NEVER_THE_SAME and calls <= 4


def test_the_result_of_the_call_before_is_not_a_result():
    kept = [np.ones((2, 2))]

    def earlier(A, B, b):
        kept.append(A @ B.T)
        return kept[-2]

    assert seen(earlier)[0].nothing == NEVER_THE_SAME


def test_a_result_with_some_memory_that_was_never_written_is_computed():
    rng = np.random.default_rng()

    def last_row_unwritten(A, B, b):
        made = A @ B.T + 1
        made[-1:] = rng.standard_normal(made.shape[1])
        return made

    assert seen(last_row_unwritten, drawn(shapes=((3, 2), (4, 3))))[0] == Reached()


def test_one_of_two_results_may_be_memory_that_was_never_written():
    rng = np.random.default_rng()
    assert seen(lambda A, B, b: (A + B, rng.standard_normal(A.shape)))[0] == Reached()


def test_an_entry_that_is_not_a_number_does_not_make_a_result_constant():
    def first_entry_lost(A, B, b):
        made = A + B
        made[0, 0] = np.nan
        return made

    assert seen(first_entry_lost, drawn(shapes=((3, 2), (4, 3))))[0] == Reached()


def test_a_result_that_is_not_an_array_is_compared_as_a_whole():
    assert seen(lambda A, B, b: {"sum": float(A.sum() + B.sum())})[0] == Reached()


def test_a_result_of_another_length_in_each_call_is_not_a_result():
    calls = []

    def longer(A, B, b):
        calls.append(1)
        return np.full(len(calls) + 1, A.sum())

    assert seen(longer)[0].nothing == NEVER_THE_SAME


# ------------------------------------------------------------------ it never raises
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(2), GeneratorExit(), RecursionError()])
def test_an_error_in_a_further_call_never_ends_the_check(error):
    found, calls = seen(lambda A, B, b: A + B, fails=error)
    assert found.nothing == FAILS_LATER and calls == 1


def test_an_interrupt_ends_it():
    with pytest.raises(KeyboardInterrupt):
        seen(lambda A, B, b: A + B, fails=KeyboardInterrupt())


def test_a_function_gains_nothing_by_refusing_other_numbers():
    cases = drawn()
    known = [case.inputs["A"].tobytes() for case in cases]

    def picky(A, B, b):
        if A.tobytes() not in known:
            raise ValueError
        return A * 2 + B

    assert seen(picky, cases)[0] == Reached(FAILS_LATER)


class Odd:
    """An object without a text."""

    def __repr__(self):
        raise ValueError("no text")


class Other(Odd):
    """Another one."""


def test_objects_without_a_text_differ_by_their_class():
    plain = [Case(str(n), {"N": n}, n) for n in (3, 4)]
    assert seen(lambda N: Odd() if N == 3 else Other(), plain) == (Reached(), 0)
    assert seen(lambda N: Odd(), plain) == (Reached(CONSTANT), 0)


def test_a_function_without_arrays_of_real_numbers():
    plain = [Case(str(n), {"N": n, "mask": np.arange(n) > 1}, n * n) for n in (3, 4)]
    assert seen(lambda N, mask: N + 1, plain) == (Reached(), 0)
    assert seen(lambda N, mask: 7, plain) == (Reached(CONSTANT), 0)
    assert seen(lambda N, mask: N, plain) == (Reached(HANDED_BACK), 0)
    assert reached(made([]), None, []) == Reached()


def test_equal_entries_in_another_shape_are_another_result():
    sizes = [Case(f"{m} × {n}", {"m": m, "n": n}, 0.0) for m, n in ((2, 3), (3, 2))]
    assert seen(lambda m, n: np.arange(m * n).reshape(m, n), sizes) == (Reached(), 0)


def test_a_number_that_float64_cannot_hold_is_infinite():
    assert seen(lambda A, B, b: np.full(A.shape, np.finfo(np.longdouble).max))[0].nothing


def test_cases_may_have_different_arrays():
    without = Case("without", {"n": 3}, 3.0)
    first = seen(lambda *given: sum(np.sum(x) for x in given[:-1]), [without, *drawn()])[0]
    assert first == Reached() and seen(lambda *given: len(given), [*drawn(), without])[0].nothing
    copied = seen(lambda *given: given[0] if given[1:] else 7, [without, *drawn()])[0]
    assert copied.nothing == HANDED_BACK


VALUES = st.sampled_from(
    [0, None, Odd(), [Odd(), 1], {"a": np.ones(3)}, np.array(["x", "y"]), 1j * np.ones(3), [[1, 2], [3]],
     np.array(None, dtype=object), np.array([]), b"", True, (np.ones(2), np.ones((2, 3))), np.inf, lambda: 0,
     np.full((3, 2), np.nan), range(3), np.float32(1), {1, 2}]
)  # fmt: skip


@given(st.lists(VALUES, min_size=3, max_size=3), st.lists(VALUES, min_size=1, max_size=8))
def test_results_of_any_type_never_raise_and_need_at_most_two_calls_per_array_and_four_more(first, later):
    """The results of further calls may be any others too."""
    cases, queue = drawn(), [*first]
    trials = [run_function(lambda *given: queue.pop(0), case) for case in cases]
    calls = []

    def answer(*inputs):
        calls.append(inputs)
        return later[len(calls) % len(later)]

    found = reached(made(cases), answer, trials)
    assert len(calls) <= 8 and isinstance(found.nothing, str) and set(found.unused) <= {"A", "B"}


# ------------------------------------------------------------------ infinite and boolean results
def test_an_overflow_is_computed_from_the_arrays_that_matter_for_smaller_numbers():
    """exp without the maximum: every row is infinite, and for smaller scores it is not."""
    cases = drawn(shapes=((3, 2), (4, 3)))
    large = [replace(case, inputs={**case.inputs, "A": 1e4 + case.inputs["A"]}) for case in cases]
    assert seen(lambda A, B, b: np.exp(A + 1) * B, large)[0] == Reached()
    assert seen(lambda A, B, b: [np.exp(A + 1) * B, np.exp(A + 1)[0] * B[0]], large)[0] == Reached()
    assert seen(lambda A, B, b: np.exp(A + 1), large)[0].nothing
    assert seen(lambda A, B, b: np.full(A.shape, np.inf), large)[0].nothing


def test_booleans_may_be_the_same_for_other_numbers():
    assert seen(lambda A, B, b: A < 1e9)[0].nothing == CONSTANT
    assert seen(lambda A, B, b: A * B.sum() > 0)[0] == Reached()
    rng = np.random.default_rng(0)
    for function in (lambda A, B, b: np.arange(A.size) % 2 == 0, lambda A, B, b: rng.random(30) < 0.5):
        assert seen(function, drawn(shapes=((30, 2), (40, 3))))[0].nothing


def test_random_numbers_beside_a_constant_are_not_a_result():
    rng = np.random.default_rng(0)

    def mixed(A, B, b):
        made = rng.standard_normal(A.shape)
        made.flat[::2] = 0.0
        return made

    assert seen(mixed)[0].nothing


# ------------------------------------------------------------------ few words of wrong values
def counted(*words, of="A"):
    """Return trials with (words read, words of the closed form)."""
    pairs = [(Ledger(reads={of: got}), Ledger(reads={of: most})) for got, most in words]
    return [Trial(Case("", {}, budget=budget), ledger=ledger) for ledger, budget in pairs]


def test_the_share_of_few_words():
    assert few_words(counted((74, 100))) and not few_words(counted((76, 100)))


@pytest.mark.parametrize("words", [[(75, 100)], [(100, 100)], [(70, 100), (80, 100)], [(0, 0)], []])
def test_a_few_words_less_are_a_better_schedule(words):
    assert (
        few_words(counted(*words), "A") == few_words(counted(*words)) == few_words(counted(*words), "B") == ""
    )


def test_far_fewer_words_with_wrong_values_are_no_merit():
    trials = counted((10, 100), (100, 100))
    assert few_words(trials, "A") == "the values are wrong, and only 110 of 200 words of A are read"
    assert few_words(trials) == "the values are wrong, and only 110 of 200 words are moved"


# ------------------------------------------------------------------ words that were not moved
ALL, TWICE = {"Y": 6}, {"A": 12}


def ran(read, written, most_read=TWICE, most_written=ALL):
    """Return a trial of a schedule that reads A and writes Y, arrays of 6 words, with its closed form."""
    form = Ledger(reads=most_read, writes=most_written, sizes={"A": 6, "Y": 6})
    return Trial(Case("N=6", {"A": np.ones(6)}, M=9, budget=form), ledger=Ledger(reads=read, writes=written))


READS_A, READS_Y = reads_within("A", "A is read twice"), reads_within("Y", "Y is not read")
WRITES_Y = writes_within("Y", "Y is written once")
TOTAL, FITS = total_within(), fits_in_fast_memory()
LOADS = every_input_loaded()


@pytest.mark.parametrize(
    ("prop", "trial", "missed"),
    [
        (READS_A, ran({"A": 12}, {}), None),
        (READS_A, ran({"A": 6}, {}), None),
        (READS_A, ran({"A": 5}, {}), "only 5 words of A are read"),
        (READS_A, ran({}, ALL), "A is never read"),
        (READS_A, ran({"A": 3}, ALL, {"A": 3}), None),  # a mask hides half of it
        (READS_A, ran({"A": 2}, ALL, {"A": 3}), "only 2 words of A are read"),
        (READS_A, ran({}, {}, {}), None),  # this case does not need it
        (WRITES_Y, ran({}, {"Y": 6}), None),
        (WRITES_Y, ran({"Y": 6}, {"Y": 5}), "only 5 words of Y are written"),
        (WRITES_Y, ran({"A": 12}, {}), "Y is never written"),
        (READS_Y, ran({"A": 12}, {"Y": 6}), None),
        (READS_Y, ran({"A": 12}, {}), "Y is never written"),
        (TOTAL, ran({"A": 12}, {"Y": 6}), None),
        (TOTAL, ran({}, {"Y": 6}), "A is never read"),
        (TOTAL, ran({"B": 1}, {"Y": 6}), "A is never read"),
        (TOTAL, ran({"A": 12}, {}), "nothing is written"),
        (TOTAL, ran({}, {"Y": 6}, {}), None),
        (TOTAL, ran({"A": 12}, {}, TWICE, {}), None),
        (FITS, ran({"A": 12}, {"Y": 6}), None),
        (FITS, ran({}, {"Y": 6}), "A is never read"),
        (FITS, replace(ran({}, {}), case=Case("a challenge", {"A": np.ones(6)}, M=9)), None),
    ],
)
def test_too_few_words_are_not_reached(prop, trial, missed):
    said = prop.judge([trial])
    assert said == (missed and f"{missed} (N=6)") and (said is None or isinstance(said, NotReached))


@pytest.mark.parametrize(
    ("prop", "trial", "said"),
    [
        (READS_A, ran({"A": 18}, ALL), "A is read 3 times (18 words), expected at most 2 times (12 words)"),
        (WRITES_Y, ran({}, {"Y": 9}), "Y is written 1.5 times (9 words), expected at most once (6 words)"),
        (LOADS, ran({"A": 5}, ALL), "A has 6 words, but only 5 are read"),
        (LOADS, ran({}, ALL), "A has 6 words, but only 0 are read"),
        (TOTAL, ran({"A": 13}, ALL), "moves 19 words, expected at most 18"),
        (FITS, replace(ran({}, {}), ledger=Ledger(TWICE, ALL, 10)), "the peak is 10 words, but M = 9"),
    ],
)
def test_too_many_words_fail(prop, trial, said):
    found = prop.judge([trial])
    assert found == f"{said} (N=6)" and not isinstance(found, (NotReached, Better))


def test_fewer_words_are_better_only_if_no_case_moves_too_many():
    fewer, same, more = (ran({"A": words}, ALL) for words in (6, 12, 13))
    found = TOTAL.judge([same, fewer])
    assert isinstance(found, Better) and found == "fewer than the closed form, 12 words instead of 18 (N=6)"
    for trials in ([fewer, more], [more, fewer]):
        assert TOTAL.judge(trials) == "moves 19 words, expected at most 18 (N=6)"
    assert isinstance(TOTAL.judge([fewer, ran({}, ALL)]), NotReached)


def test_an_array_that_need_not_be_loaded_may_be_left_out():
    trial = ran(TWICE, ALL)
    two = replace(trial, case=replace(trial.case, inputs={"A": np.ones(6), "mask": np.ones(6)}))
    assert every_input_loaded("A").judge([two]) is None and "mask has 6 words" in LOADS.judge([two])


def test_words_of_an_array_and_all_words_are_marked_as_traffic():
    assert [(one.traffic, one.of, one.general) for one in (READS_A, WRITES_Y, TOTAL, FITS)] == [
        (True, ("A",), False), (True, ("Y",), False), (True, (), True), (True, (), False)
    ]  # fmt: skip


# ------------------------------------------------------------------ in a check
CHEAP = as_traffic(Property("moves few words", lambda trials: None))
OF_B = as_traffic(Property("B is read once", lambda trials: None), "B")
FINITE = idle(Property("is finite", lambda trials: None))
ALSO = Property("has the right form", lambda trials: None)


def verdicts_on(function):
    cases = drawn(expected=lambda A, B, C: A + B + C, names="ABC")
    exercise = made(cases, (values("right"), CHEAP, OF_B, FINITE, ALSO))
    verdicts = judge(exercise, function, 0)
    return dict(verdicts), points_of(exercise, verdicts)


def test_what_holds_without_work_is_not_reached_and_earns_nothing():
    said, points = verdicts_on(lambda A, B, C, b: A)
    for name in ("moves few words", "B is read once", "is finite"):
        assert isinstance(said[name], NotReached) and said[name] == HANDED_BACK
    assert said["right"] and not isinstance(said["right"], NotReached) and points.traffic == 0


def test_the_words_of_an_array_that_is_not_used_are_not_reached():
    said, points = verdicts_on(lambda A, B, C, b: A * C)
    assert said["B is read once"] == "your result does not depend on B" and said["moves few words"] is None
    assert isinstance(said["B is read once"], NotReached) and points.traffic == 1


def test_a_wrong_result_of_all_arrays_keeps_its_traffic():
    said, points = verdicts_on(lambda A, B, C, b: A + B + 2 * C)
    assert [name for name, complaint in said.items() if complaint] == ["right"] and points.traffic == 2


def test_a_right_result_is_not_run_again():
    cases = drawn(expected=lambda A, B: A + B)
    right = Counted(lambda A, B, b: A + B, cases, fails=ValueError())
    assert not any(said for _, said in judge(made(cases, (values("right"), CHEAP)), right, 0))


def test_right_values_with_a_fault_of_traffic_are_not_run_again():
    cases = drawn(expected=lambda A, B: A + B)
    right = Counted(lambda A, B, b: A + B, cases, fails=ValueError())
    much = as_traffic(Property("moves few words", lambda trials: "too many"))
    said = dict(judge(made(cases, (values("right"), much, FINITE)), right, 0))
    assert said == {"right": None, "moves few words": "too many", "is finite": None}


def asked_of(function, *properties):
    """Return the verdicts, and the number of calls after the first ones."""
    cases = drawn(expected=lambda A, B: A + B)
    counted = Counted(function, cases)
    return dict(judge(made(cases, properties), counted, 0)), counted.calls - len(cases)


MUCH = as_traffic(Property("much", lambda trials: "too many"))


def test_nothing_is_run_again_if_no_property_needs_it():
    assert asked_of(lambda A, B, b: A * B, values("right"), ALSO)[1] == 0
    unseen = Property("unseen", lambda trials: NotReached("no such case"))
    assert asked_of(lambda A, B, b: A * B, unseen, MUCH, CHEAP)[1] == 0  # no value is wrong


def test_wrong_values_decide_also_beside_a_fault_of_traffic_and_if_they_are_idle():
    for right in (values("right"), idle(values("right"))):
        said, _ = asked_of(lambda A, B, b: A, right, MUCH, CHEAP)
        assert said["moves few words"] == HANDED_BACK and said["much"] == "too many"


def test_few_words_concern_the_array_that_a_property_counts_and_the_sum_of_all_words():
    few, most = Ledger(reads={"A": 10, "B": 10}), Ledger(reads={"A": 100, "B": 10})
    cases = [replace(case, budget=most) for case in drawn(expected=lambda A, B: A + B)]
    of_A, of_B = (as_traffic(Property(name, lambda trials: None), name) for name in "AB")
    total, form = (Property(name, lambda trials: None, general=True) for name in ("total", "form"))
    exercise = replace(
        made(cases, (values("right"), of_A, of_B, as_traffic(total), CHEAP, idle(form))),
        run_case=lambda answer, case: replace(run_function(answer, case), ledger=few),
    )
    said = dict(judge(exercise, lambda A, B, b: A * B, 0))
    assert {name for name, one in said.items() if isinstance(one, NotReached)} == {"A", "total"}
    assert said["A"] == few_words([Trial(case, ledger=few) for case in cases], "A")
    said = dict(judge(exercise, lambda A, B, b: A, 0))
    assert {said[name] for name in ("A", "B", "total", "moves few words", "form")} == {HANDED_BACK}


def test_a_right_result_needs_no_array_that_it_did_not_touch():
    cases = drawn(expected=lambda A, B: A + B)
    untouched = as_traffic(Property("K is read once", lambda trials: NotReached("K is never read")))
    assert judge(made(cases, (values("right"), untouched)), lambda A, B, b: A + B, 0) == [
        ("right", None), ("K is read once", None)
    ]  # fmt: skip


@given(st.sampled_from([0.0, 1.0, 2.0, -1.0]), st.sampled_from([0.0, 1.0, 2.0]), st.booleans(), st.booleans())
def test_no_verdict_on_a_whole_answer_changes(a, b, cheap, finite):
    """Exactly the properties that fail on the trials are reported as failed."""
    cases = drawn(expected=lambda A, B: A + B)
    asked = (
        values("right"),
        as_traffic(Property("few", lambda trials: None if cheap else "many")),
        idle(Property("finite", lambda trials: None if finite else "not finite")),
    )
    trials = [run_function(lambda A, B, _: a * A + b * B, case) for case in cases]
    alone = {one.name for one in asked if one.judge(trials)}
    said = judge(made(cases, asked), lambda A, B, _: a * A + b * B, 0)
    failed = {name for name, one in said if one is not None and not isinstance(one, NotReached)}
    assert failed == alone and (not any(one for _, one in said)) == (not alone)
