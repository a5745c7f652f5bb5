"""Tests of check, hint, predict, measured and attempt, for a student and in strict mode."""

import sys
import time
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from iocourse import costs, exact, run, schedules
from iocourse.course import (
    CheckFailed,
    attempt,
    check,
    checking,
    exercise,
    hint,
    measured,
    predict,
    predictions,
    progress,
    properties,
    run_context,
    runtime_errors,
)
from iocourse.course.attempts import Unsolved
from iocourse.course.exercise import KEEPS_INPUTS, Case, Exercise, Property, Trial
from iocourse.ledger import Ledger

HINTS = ("a nudge", "half of it", "nearly all of it")


def _doubling_cases(rng):
    return [Case(f"n={n}", {"x": (x := rng.standard_normal(n))}, expected=2 * x) for n in (1, 3, 8)]


DOUBLE = Exercise(
    id="99.1",
    title="Double",
    function="my_double",
    difficulty=1,
    importance=1,
    minutes=2,
    hints=HINTS,
    cases=_doubling_cases,
    properties=(properties.values("every entry is doubled"),),
)


def _flash_cases(rng):
    N, d, Br, Bc = 11, 3, 4, 2
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    budget = costs.flash2(N, d, Br=Br, Bc=Bc)
    inputs = {"Q": Q, "K": K, "V": V, "Br": Br, "Bc": Bc}
    return [Case("N=11", inputs, exact.attention(Q, K, V), budget.peak, budget)]


FLASH = Exercise(
    id="99.2",
    title="Flash",
    function="my_flash",
    difficulty=1,
    importance=1,
    minutes=2,
    hints=HINTS,
    cases=_flash_cases,
    properties=(
        properties.values(),
        properties.fits_in_fast_memory(),
        properties.every_input_loaded("Q", "K", "V"),
        properties.reads_within("K", "K is read at most ⌈N/Br⌉ times"),
        properties.writes_within("O", "O is written once"),
        properties.total_within(),
    ),
    run_case=exercise.run_schedule,
)


@pytest.fixture(autouse=True)
def _two_exercises(monkeypatch, tmp_path):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    monkeypatch.delenv("IOCOURSE_SEED", raising=False)
    monkeypatch.setattr(exercise, "_exercises", {e.id: e for e in (DOUBLE, FLASH)})
    monkeypatch.setattr(predictions, "_predicted", {})


def my_double(x):
    return 2 * x


def flash(m, Q, K, V, *, Br, Bc, extra=0, keep_all=False, scale=True):
    """Correct FA-2 schedule with options that introduce errors."""
    (N, d), O, hoard = Q.shape, m.new("O", Q.shape), []
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5 if scale else 1.0
            for j in m.blocks(N, Bc):
                for _ in range(extra):
                    m.load(K, j).free()
                if keep_all:
                    hoard.append(m.load(K, j))
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def failing(exercise_, answer, seed=0):
    return [name for name, complaint in checking.judge(exercise_, answer, seed) if complaint]


def variant(**switches):
    return lambda m, Q, K, V, **tiles: flash(m, Q, K, V, **tiles, **switches)


class TestCheck:
    def test_a_right_answer_prints_no_sizes_and_is_recorded(self, capsys):
        check("99.1", my_double)
        assert capsys.readouterr().out == "99.1 Double\n  holds  every entry is doubled\nSolved.\n"
        assert progress.load()["99.1"]["status"] == "solved"

    def test_a_wrong_answer_names_property_numbers_sizes_and_seed(self, capsys):
        check("99.1", lambda x: x, seed=7)
        text = capsys.readouterr().out
        assert "FAILS  every entry is doubled: 1 of 1 entries differ, first at [0]: got" in text
        assert "(n=1)" in text and "seed=7" in text and 'hint("99.1")' in text
        assert progress.load()["99.1"]["status"] == "tried"

    def test_strict_raises_for_a_wrong_answer_only(self, monkeypatch):
        monkeypatch.setenv("IOCOURSE_STRICT", "1")
        check("99.1", my_double)
        with pytest.raises(CheckFailed, match="every entry is doubled"):
            check("99.1", lambda x: x)

    def test_a_solved_notebook_raises_one_short_error_below_the_report(self, monkeypatch, capsys):
        monkeypatch.setattr(sys.modules["__main__"], run_context.SOLVED_MARK, True, raising=False)
        monkeypatch.setattr(progress, "_nobodys", {})
        check("99.1", my_double)
        with pytest.raises(CheckFailed) as raised:
            check("99.1", lambda x: x, seed=7)
        assert "FAILS  every entry is doubled: 1 of 1 entries differ" in capsys.readouterr().out
        said = "CheckFailed: exercise 99.1 is not solved: every entry is doubled: 1 of 1 entries differ"
        (shown,) = raised.value._render_traceback_()  # the complete output of IPython
        first, second = shown.split("\n")
        assert first.startswith(said) and second == checking.WHY_IT_RAISES

    @pytest.mark.parametrize("answer", [None, 3, "my_double", np.zeros(3)])
    def test_what_is_no_function_is_refused(self, answer):
        assert failing(DOUBLE, answer) == [checking.OWN]

    def test_an_exception_in_the_answer_is_reported_not_raised(self, capsys):
        check("99.1", lambda x: x / "a")
        assert "FAILS  runs without an error: TypeError" in capsys.readouterr().out

    def test_an_overflow_in_the_answer_is_judged_and_prints_no_warning(self, recwarn):
        assert failing(DOUBLE, lambda x: x * 1e308 * 1e308) == ["every entry is doubled"]
        assert not recwarn.list

    def test_inputs_are_fresh_and_a_seed_repeats_them(self):
        seen = []
        for seed in (1, 1, 2):
            checking.judge(DOUBLE, lambda x: seen.append(x.tobytes()) or 2 * x, seed)
        assert seen[:3] == seen[3:6] != seen[6:]

    def test_the_environment_fixes_the_seed(self, monkeypatch):
        monkeypatch.setenv("IOCOURSE_SEED", "5")
        assert (
            checking.fresh_seed(None) == 5 and checking.fresh_seed(9) == checking.fresh_seed(np.int64(9)) == 9
        )

    @pytest.mark.parametrize("seed", ["x", "5", -1, 1.5, True])
    def test_a_seed_that_is_none_is_named(self, seed, monkeypatch):
        with pytest.raises(ValueError, match=f"^seed must be an integer of at least 0, got {seed!r}$"):
            check("99.1", my_double, seed=seed)
        if seed != "5":
            monkeypatch.setenv("IOCOURSE_SEED", str(seed))
            with pytest.raises(ValueError, match=r"^IOCOURSE_SEED must be an integer of at least 0, got "):
                check("99.1", my_double)

    def test_an_error_whose_message_cannot_be_shown_is_reported_by_its_type(self, capsys):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no")

        def raises(x):
            raise Mute

        check("99.1", raises)
        assert (
            "FAILS  runs without an error: Mute, whose message cannot be shown (n=1)"
            in capsys.readouterr().out
        )
        attempt(raises, 1)
        assert "(Mute, whose message cannot be shown; line " in capsys.readouterr().out

    def test_an_array_that_was_returned_is_not_written_over_by_a_later_call(self):
        kept = np.zeros(8)

        def in_one_array(x):
            kept[: x.size] = 2 * x
            return kept[: x.size]

        assert failing(DOUBLE, in_one_array) == [checking.KEEPS_RESULTS]

    def test_an_answer_cannot_change_the_inputs_it_is_judged_by(self):
        def cheat(x):
            x[:] = 0.0
            return x

        assert failing(DOUBLE, cheat) == [KEEPS_INPUTS]

    def test_an_unknown_exercise_lists_those_there_are(self):
        with pytest.raises(ValueError, match=r"unknown exercise '77.7'; the exercises are 99.1, 99.2"):
            check("77.7", my_double)

    @pytest.mark.parametrize("value", [None, "text", [1, "a"], {}, np.float64(3), lambda: 0])
    def test_values_of_any_kind_are_judged_without_an_exception(self, value):
        assert failing(DOUBLE, lambda x: value)


class TestSchedules:
    def test_a_right_schedule_passes(self):
        assert failing(FLASH, flash) == []

    def test_several_outputs_are_judged_together(self):
        def two(m, Q, K, V, *, Br, Bc):
            O = flash(m, Q, K, V, Br=Br, Bc=Bc)
            return O, O

        assert "expected" in dict(checking.judge(FLASH, two, 0))["values equal exact attention"]

    def test_a_report_says_how_often_and_how_often_is_allowed(self):
        verdicts = dict(checking.judge(FLASH, variant(extra=1), 0))
        assert (
            "K is read 6 times (198 words), expected at most 3 times (99 words)"
            in verdicts["K is read at most ⌈N/Br⌉ times"]
        )
        assert verdicts["moves no more words than the closed form"]

    def test_hoarding_fails_by_peak_and_names_what_is_resident(self):
        verdicts = dict(checking.judge(FLASH, variant(keep_all=True), 0))
        assert "In use: Q[0:4]" in verdicts["fits in fast memory"]
        assert verdicts["values equal exact attention"] is None, "judged on a larger machine all the same"

    def test_the_materialised_answer_is_refused(self):
        def materialised(m, Q, K, V, *, Br, Bc):
            N, d = Q.shape
            O = m.new("O", (N, d))
            with m.load(Q, (0, N)) as q, m.load(K, (0, N)) as k, m.load(V, (0, N)) as v:
                s = (q * d**-0.5) @ k.T
                p = np.exp(s - s.max(axis=1, keepdims=True))
                m.store((p @ v) / p.sum(axis=1, keepdims=True), O, (0, N))
            return O

        assert failing(FLASH, materialised) == ["fits in fast memory"]

    @pytest.mark.parametrize("call_it", [True, False])
    def test_the_librarys_own_function_is_refused(self, call_it):
        library = schedules.get("flash2")
        answer = (lambda m, Q, K, V, **tiles: library(m, Q, K, V, **tiles)) if call_it else library
        assert failing(FLASH, answer) == [checking.OWN]

    def test_exact_attention_is_refused_inside_an_answer_and_free_outside(self):
        def cheat(m, Q, K, V, *, Br, Bc):
            return exact.attention(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)))

        assert failing(FLASH, cheat) == [checking.OWN]
        assert exact.attention(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2))).shape == (2, 2)

    def test_no_public_attribute_of_a_slow_array_or_machine_gives_values_during_a_run(self):
        found = []

        def prying(m, Q, K, V, *, Br, Bc):
            for thing in (Q, m):
                for name in (n for n in dir(thing) if not n.startswith("_")):
                    try:
                        value = getattr(thing, name)
                        value = value(Q) if callable(value) and name == "take" else value
                    except Exception:
                        continue
                    if isinstance(value, np.ndarray):
                        found.append(name)
            return flash(m, Q, K, V, Br=Br, Bc=Bc)

        assert failing(FLASH, prying) == [] and found == []


class TestWhatIsRecorded:
    def test_an_unsolved_stub_is_no_attempt(self, capsys):
        def my_double(x):
            raise NotImplementedError("solve me")

        check("99.1", my_double)
        assert "FAILS  runs without an error: not written yet" in capsys.readouterr().out
        assert progress.load() == {}

    def test_an_answer_that_waits_for_another_exercise_is_none_either(self, capsys):
        check("99.1", lambda x: my_flash(None, x, x, x, Br=1, Bc=1))
        assert "it calls my_flash, which is not written yet: solve 99.2 first" in capsys.readouterr().out
        assert progress.load() == {}

    def test_an_answer_that_only_says_so_is_an_attempt(self):
        def says_so(x):
            raise RuntimeError("not written yet")

        check("99.1", says_so)
        assert progress.load()["99.1"]["attempts"] == 1

    def test_an_interrupted_check_names_the_case_counts_and_is_raised_again(self):
        def endless(x):
            if x.size == 3:
                raise KeyboardInterrupt
            return 2 * x

        with pytest.raises(KeyboardInterrupt) as stopped:
            check("99.1", endless, seed=4)
        out = str(stopped.value).splitlines()
        assert out[:2] == ["99.1 Double", "  interrupted in case n=3"]
        assert out[2].endswith(": raise KeyboardInterrupt")
        assert out[3] == "Counted as tried. Same inputs again: seed=4"
        assert progress.load()["99.1"]["status"] == "tried"


class TestSignsOfLife:
    def test_a_solved_notebook_prints_nothing_that_depends_on_time(self, monkeypatch, capsys):
        monkeypatch.setattr(checking, "SECONDS", 0.01)
        monkeypatch.setattr(sys.modules["__main__"], run_context.SOLVED_MARK, True, raising=False)
        with checking.still_running():
            time.sleep(0.05)
        assert capsys.readouterr().out == ""
        monkeypatch.delattr(sys.modules["__main__"], run_context.SOLVED_MARK)
        with checking.still_running():
            time.sleep(0.05)
        assert capsys.readouterr().out.startswith("still running: the inputs are drawn")

    def test_a_check_that_takes_long_says_which_case_is_running(self, monkeypatch, capsys):
        monkeypatch.setattr(checking, "SECONDS", 0.01)

        def slow(x):
            time.sleep(0.05 if x.size == 3 else 0)
            return 2 * x

        check("99.1", slow)
        out = capsys.readouterr().out
        assert out.startswith("still running: case n=3\n") and out.count("n=3") <= 3
        monkeypatch.setenv("IOCOURSE_SEED", "1")  # outputs are compared: they must not depend on time
        check("99.1", slow)
        assert capsys.readouterr().out.startswith("99.1 Double\n")

    def test_it_names_the_property_and_ends_with_the_check(self, monkeypatch, capsys):
        monkeypatch.setattr(checking, "SECONDS", 0.01)
        slow = Property("takes its time", lambda trials: time.sleep(0.05))
        monkeypatch.setitem(exercise._exercises, "99.1", replace(DOUBLE, properties=(slow,)))
        check("99.1", my_double)
        assert 'still running: property "takes its time"' in capsys.readouterr().out
        time.sleep(0.03)
        assert capsys.readouterr().out == ""

    def test_where_there_are_no_threads_there_are_no_signs(self, monkeypatch, capsys):
        def refuse(self):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("threading.Thread.start", refuse)
        check("99.1", my_double)
        assert capsys.readouterr().out.endswith("Solved.\n")


def wrong_line(verdicts):
    """Return the lines of a report that follow the error: the student's line of code and the shapes in it."""
    return [line.strip() for line in dict(verdicts)[checking.RUNS].splitlines()[1:]]


class TestErrors:
    def test_the_innermost_line_of_the_students_own_code_and_its_shapes(self):
        def helper(a, b):
            return np.linalg.inv(a @ b)

        def answer(x):
            y = np.ones((4, 2))
            return helper(x, y)

        line, advised = wrong_line(checking.judge(DOUBLE, answer, 0))
        assert line.startswith("line ") and line.endswith(
            ": return np.linalg.inv(a @ b)   with a (1,), b (4, 2)"
        )
        assert advised == runtime_errors.TRANSPOSED

    def test_on_the_machine_tiles_slow_arrays_and_freed_ones_are_told_apart(self):
        def answer(m, Q, K, V, *, Br, Bc):
            with m.load(K, (0, Bc)) as k:
                pass
            with m.load(Q, (0, Br)) as q:
                return q @ k.T * V

        (line,) = wrong_line(checking.judge(FLASH, answer, 0))
        assert line.endswith(
            ": return q @ k.T * V   with q (4, 3), k (2, 3), freed, V (11, 3) in slow memory"
        )

    @pytest.mark.parametrize(
        ("mistake", "sentence"),
        [
            (lambda m, q, k, K: m.load(K), runtime_errors.NO_ROWS),
            (lambda m, q, k, K: m.store(k, K), runtime_errors.NO_ROWS),
            (lambda m, q, k, K: q @ k, runtime_errors.TRANSPOSED),
            (lambda m, q, k, K: q - q.sum(axis=1), runtime_errors.NO_AXIS),
            (lambda m, q, k, K: np.ones((4, 3)) - np.ones(4), runtime_errors.NO_AXIS),
            (lambda m, q, k, K: np.ones((4, 3)) @ np.ones((4, 3)), runtime_errors.TRANSPOSED),
            (lambda m, q, k, K: max(q, q), runtime_errors.ONE_TRUTH),
            (lambda m, q, k, K: max(np.ones(2), np.ones(2)), runtime_errors.ONE_TRUTH),
            (lambda m, q, k, K: nobody_made_this, runtime_errors.NOT_RUN),  # noqa: F821
            (lambda m, q, k, K: m.row_stats(4).update(q).T, runtime_errors.NONE),
            (lambda m, q, k, K: np.divide(1, 2.5, out=np.zeros(3, dtype=int)), runtime_errors.WHOLE),
        ],
    )
    def test_the_commonest_mistakes_are_recognised(self, mistake, sentence):
        def answer(m, Q, K, V, *, Br, Bc):
            with m.load(Q, (0, Br)) as q, m.load(K, (0, Bc)) as k:
                return mistake(m, q, k, K)

        assert wrong_line(checking.judge(FLASH, answer, 0))[-1] == sentence

    def test_an_error_that_says_nothing_of_its_cause_gets_no_sentence(self):
        (line,) = wrong_line(checking.judge(DOUBLE, lambda x: [][0], 0))
        assert "[][0]" in line

    def test_code_without_a_source_still_has_its_line_and_tiles(self):
        names = {}
        source = "def answer(m, Q, K, V, *, Br, Bc):\n    q = m.load(Q, (0, Br))\n    return q.nothing\n"
        exec(compile(source, "<nowhere>", "exec"), names)
        (line,) = wrong_line(checking.judge(FLASH, names["answer"], 0))
        assert line == "line 3   with q (4, 3)"

    def test_where_fast_memory_overflows_no_tile_of_the_line_is_called_freed(self):
        def answer(m, Q, K, V, *, Br, Bc):
            with m.load(Q, (0, Br)) as q, m.load(K, (0, Bc)) as k:
                held = [q @ k.T for _ in range(9)]
            del held
            return flash(m, Q, K, V, Br=Br, Bc=Bc)

        said = dict(checking.judge(FLASH, answer, 0))["fits in fast memory"]
        assert said.startswith("Out of fast memory: ") and "are free. In use: " in said
        assert ": held = [q @ k.T for _ in range(9)]   with q (4, 3), k (2, 3) (N=11)" in said

    def test_a_whole_array_that_does_not_fit_is_called_that(self):
        def answer(m, Q, K, V, *, Br, Bc):
            with m.load(Q, (0, Br)), m.load(K, None), m.load(V, None):
                return flash(m, Q, K, V, Br=Br, Bc=Bc)

        said = dict(checking.judge(FLASH, answer, 0))["fits in fast memory"]
        assert "That is all of V: load it in blocks of the given tile size." in said
        assert ": with m.load(Q, (0, Br)), m.load(K, None), m.load(V, None):   with Q (11, 3) in slow" in said
        assert (
            "That is all of"
            not in dict(checking.judge(FLASH, variant(keep_all=True), 0))["fits in fast memory"]
        )


class TestWhichFirst:
    def test_of_several_that_fail_the_particular_one_is_read_first(self, capsys):
        check("99.2", variant(extra=1))
        out = capsys.readouterr().out
        assert "  FAILS  K is read at most ⌈N/Br⌉ times: " in out
        assert "\n         and with it: moves no more words than the closed form\n" in out
        assert "  FAILS  moves no more words" not in out and 'Read "' not in out  # one fault

        def nothing(m, Q, K, V, *, Br, Bc):
            O = m.new("O", Q.shape)
            with m.zeros(*Q.shape) as o:
                m.store(o, O, (0, 11))
            return O

        check("99.2", nothing)
        assert 'Read "loads every word of its inputs" first' in capsys.readouterr().out

    def test_one_that_fails_alone_needs_no_advice(self, capsys):
        assert failing(FLASH, variant(scale=False)) == ["values equal exact attention"]
        check("99.2", variant(scale=False))
        assert "first: the others" not in capsys.readouterr().out


class Spy(float):
    """Number that records every operand it is multiplied with."""

    seen: ClassVar[list] = []

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        Spy.seen.append(inputs[0])
        return inputs[0]


def sly(trick):
    """Return a correct schedule that first manipulates the machine and a tile of Q."""

    def schedule(m, Q, K, V, **tiles):
        with m.load(Q, (0, 1)) as q:
            trick(m, q)
        return flash(m, Q, K, V, **tiles)

    return schedule


class TestCheats:
    def test_more_room_taken_through_vars_is_seen_in_the_peak(self):
        def roomy(m, Q, K, V, **tiles):
            vars(m)["M"] = 10**9
            return variant(keep_all=True)(m, Q, K, V, **tiles)

        assert "fits in fast memory" in failing(FLASH, roomy)

    @pytest.mark.parametrize(
        "trick",
        [
            lambda m, q: q * Spy(1.0),
            lambda m, q: np.frompyfunc(lambda word: Spy.seen.append(word) or word, 1, 1)(q),
        ],
        ids=["number subclass", "student's ufunc"],
    )
    def test_words_do_not_leave_through_what_only_looks_like_arithmetic(self, trick):
        Spy.seen.clear()
        assert failing(FLASH, sly(trick)) == [checking.RUNS] and not Spy.seen

    def test_floating_point_flags_tell_nothing(self):
        told = []

        def ask(m, q):
            with np.errstate(invalid="raise"):
                try:
                    np.sqrt(q - 1e9)
                except FloatingPointError:
                    told.append(True)

        failing(FLASH, sly(ask))
        assert not told

    def test_the_best_tiles_of_the_explorer_and_the_bounds_refuse_too(self):
        from iocourse import bounds
        from iocourse.course.explore.models.tile_tuner import best_tiles

        assert failing(DOUBLE, lambda x: best_tiles("flash2", 64, 8, 600)) == [checking.OWN]
        assert failing(DOUBLE, lambda x: bounds.compulsory(64, 8)) == [checking.OWN]


class TestJudging:
    def test_a_tuple_is_compared_part_by_part(self):
        judge = properties.values().judge
        case = Case("c", {}, expected=(np.zeros(2), np.ones(2)))
        assert judge([Trial(case, value=(np.zeros(2), np.ones(2)))]) is None
        assert "expected 2 results, got one" in judge([Trial(case, value=np.zeros(2))])
        assert "entries differ" in judge([Trial(case, value=(np.zeros(2), np.zeros(2)))])

    def test_nan_never_equals_a_number_and_infinities_equal_themselves(self):
        assert properties.difference(np.array([np.nan]), np.array([0.0]))
        assert properties.difference(np.array([-np.inf, 1.0]), np.array([-np.inf, 1.0])) is None
        assert properties.difference(np.array([0.0]), np.array([-np.inf]))

    def test_a_single_number_has_no_place_and_close_numbers_are_shown_in_full(self):
        assert properties.difference(2.0, 3.0) == "got 2, expected 3"
        assert properties.difference(3.0000001, 3.0) == "got 3.0000001, expected 3"
        assert properties.difference(0.123456, 3.0, 2e-5) == "got 0.1235, expected 3"
        assert (
            properties.difference(268_770_123.0, 268_770_456.0) == "got 2.687701e+08, expected 2.687705e+08"
        )

    @pytest.mark.parametrize(
        ("one", "other", "told"),
        [(0.1, np.nextafter(0.1, 1), ("0.10000000000000001", "0.10000000000000002")), (1, 2, ("1", "2")),
         (2.6877e8, 2.687701e8, ("2.6877e+08", "2.687701e+08")), (0.99999994, 1.0, ("0.9999999", "1"))],
    )  # fmt: skip
    def test_numbers_are_shown_until_they_differ(self, one, other, told):
        texts = properties.format_apart(one, other)
        assert texts == told

    def test_an_answer_in_single_precision_is_called_that(self):
        x = np.random.default_rng(0).standard_normal(50)
        assert "your result is float32, which has 6 digits; compute in float64" in properties.difference(
            np.float32(x), x
        )
        assert "float32" not in properties.difference(np.float32(x) + 1, x)
        assert "float" not in properties.difference(x + 1e-6, x)

    @pytest.mark.parametrize(
        ("value", "kept"),
        [((2, 3), True), ([np.int64(1), 1], True), ((2, 3, 4), False), ((2, 0), False), ((2, True), False),
         ((2.0, 3), False), (5, False), ("23", False), (None, False), (np.array([2, 3]), False)],
    )  # fmt: skip
    def test_a_form_is_a_property_and_what_others_ask_of_it_waits_for_it(self, value, kept):
        form = properties.Form("a pair", properties.two_whole, "a tile (bm, bn)")
        small = form.must("small", lambda trial, tile: None if tile < (2, 4) else f"too large: {tile}", "odd")
        odd = Case("odd", {}, tags=frozenset({"odd"}))
        trial = Trial(odd, value=value)
        missing = f"expected a tile (bm, bn), got {value!r} (odd)"
        assert form.kept().judge([trial]) == small.judge([trial]) == (None if kept else missing)
        assert small.judge([Trial(odd, value=(3, 1))]) == "too large: (3, 1) (odd)"
        assert small.judge([Trial(Case("even", {}), value=(3, 1))]) is None
        assert len(form.kept().judge([Trial(Case("", {}), value="long" * 99)])) < 110

    @pytest.mark.parametrize(
        ("value", "number"),
        [(1, 1), (np.uint8(3), 1), (2.5, 1), (np.float32(1), 1), (True, 0), ("1", 0), (None, 0)],
    )
    def test_what_counts_as_a_number(self, value, number):
        assert properties.is_number(value) == bool(number)

    def test_one_part_of_several_is_judged_where_it_is_asked_for(self):
        case = Case("edge", {}, expected=(np.zeros(2), np.ones(2)), tags=frozenset({"edge"}))
        second = properties.part("second", ("O", "LSE"), 1, "edge", tolerance=0.5)
        assert second.judge([Trial(case, value=(None, np.full(2, 1.5)))]) is None
        assert "entries differ" in second.judge([Trial(case, value=[None, np.full(2, 2.5)])])
        assert second.judge([Trial(case, value=np.ones((2, 2)))]) == "expected 2 results: O, LSE (edge)"
        assert properties.part("second", ("O", "LSE"), 1, "middle").judge([Trial(case)]) is None

    def test_cases_are_chosen_by_a_tag_or_by_what_they_are_and_never_by_their_label(self):
        cases = [
            Case(f"{one}, not three", {"n": n}, tags=frozenset({one})) for one, n in (("one", 1), ("two", 2))
        ]
        trials = [Trial(case, value=1.0) for case in cases]
        said = [properties.only_where("", where, lambda trial: "seen").judge(trials)
                for where in ("two", lambda case: case.inputs["n"] == 1, "three")]  # fmt: skip
        assert said == ["seen (two, not three)", "seen (one, not three)", None]

    def test_sentences_about_words_are_made_of_the_array_and_how_often(self):
        made = (*properties.reads(K="at most ⌈N/Br⌉ times", V="once"), *properties.writes(O="once"))
        assert [p.name for p in made] == [
            "K is read at most ⌈N/Br⌉ times",
            "V is read once",
            "O is written once",
        ]
        case = Case("", {}, budget=Ledger(reads={"K": 9, "V": 3}, writes={"O": 3}))
        said = [p.judge([Trial(case, ledger=Ledger(reads={"K": 9, "V": 4}, writes={"O": 4}))]) for p in made]
        assert said == [
            None,
            *(
                f"{does} 4 words of {name}, expected at most 3 ()"
                for does, name in (("reads", "V"), ("writes", "O"))
            ),
        ]

    def test_the_same_answer_property_compares_trials_with_one_key(self):
        prop = properties.same_answer_for("one answer", key=lambda trial: trial.case.inputs["key"])
        a, b = Case("a", {"key": 1}), Case("b", {"key": 1})
        assert prop.judge([Trial(a, value=1.0), Trial(b, value=1.0)]) is None
        complaint = prop.judge([Trial(a, value=1.0), Trial(b, value=2.0)])
        assert complaint == "b compared with a: got 2, in the other case 1", (
            "the other answer is the student's own too"
        )


class TestHints:
    def test_running_a_cell_again_shows_the_same_hint_and_a_level_is_asked_for(self, capsys):
        for levels in ((), (), (2,), (), (3,)):
            hint("99.1", *levels)
        lines = capsys.readouterr().out.splitlines()
        first = ["Hint 1 of 3 for 99.1: a nudge", 'hint("99.1", 2) shows the next.']
        second = ["Hint 2 of 3 for 99.1: half of it", 'hint("99.1", 3) shows the next.']
        third = ["Hint 3 of 3 for 99.1: nearly all of it", "This was the last hint."]
        assert lines == [*first, *first, *second, *first, *third]
        assert progress.load()["99.1"]["hints"] == 3

    def test_no_line_of_a_hint_is_longer_than_100_letters_and_no_word_is_broken(self, monkeypatch, capsys):
        monkeypatch.setattr(exercise, "_exercises", {})
        printed = set()
        for one in exercise.exercises().values():
            for level, words in enumerate(one.hints, start=1):
                hint(one.id, level, count=False)
                out = capsys.readouterr().out
                assert set(words.split()) <= set(out.split())
                printed |= {len(line) for line in out.splitlines()}
        assert 80 < max(printed) <= 100

    def test_an_example_of_a_hint_is_not_charged(self, capsys):
        hint("99.1", count=False)
        assert capsys.readouterr().out.startswith("Hint 1 of 3") and progress.load() == {}

    @pytest.mark.parametrize("level", [0, 4, "2", True, None])
    def test_another_level_is_refused(self, level):
        with pytest.raises(ValueError, match="level must be 1 to 3"):
            hint("99.1", level)


class TestPredictions:
    def test_prediction_then_measurement(self, capsys):
        predict("9.1", words=10, rises=True)
        measured("9.1", words=12, rises=True, other=1.5)
        assert capsys.readouterr().out.splitlines() == [
            "Prediction 9.1: words = 10, rises = True",
            "words: 12 measured, 10 predicted: off by 2, a factor of 1.20",
            "rises: True measured, True predicted: right",
            "other: 1.5 measured, no prediction",
        ]

    @pytest.mark.parametrize("expected, value, factor", [(1.329, 1.335, False), (1.329, 1.336, True)])
    def test_a_factor_that_would_read_1_00_is_not_printed(self, expected, value, factor, capsys):
        predict("9.1", ratio=expected)
        measured("9.1", ratio=value)
        out = capsys.readouterr().out.splitlines()[-1]
        assert "off by 0.00" in out and out.endswith(", a factor of 1.01") == factor
        assert "1.00" not in out

    @pytest.mark.parametrize(
        ("expected", "value", "right"),
        [(1, 0.9998, True), (1, 1.4, False), (1, 1.04, True), (1, 1.06, False), (1.33, 1.329, True),
         (1.33, 1.336, False), (0.5, 0.5235, True), (0.5, 0.54, False), (5_050, 5_051, False),
         (2.7e8, 268_435_456, True), (2.6e8, 268_435_456, False), (2.68e8, 268_435_456.0, True),
         (100.0, 100.4, False), (100.0, 100.04, True), (3, 3, True), (0, 1e-17, True), (0, 0.3, False),
         (1e-5, 1.02e-5, True), (1e-5, 1.2e-5, False), (-2, -2.01, True), (-2, 2, False),
         (float("nan"), 1.0, False), (1.0, float("inf"), False)],
    )  # fmt: skip
    def test_a_prediction_is_right_to_the_digits_it_was_given_in(self, expected, value, right, capsys):
        predict("9.1", it=expected)
        measured("9.1", it=value)
        assert capsys.readouterr().out.endswith("predicted: right\n") == right

    def test_what_is_measured_may_be_of_any_kind(self, capsys):
        predict("9.1", best=1, words=12_345)
        measured("9.1", best="F3", words=np.int64(12_345))
        assert capsys.readouterr().out.splitlines()[1:] == [
            "best: F3 measured, 1 predicted: the measured value is not a number",
            "words: 12,345 measured, 12,345 predicted: right",
        ]

    def test_an_empty_prediction_asks_for_one_and_stops_nothing(self, capsys):
        predict("9.1", words=...)
        measured("9.1", words=12)
        out = capsys.readouterr().out
        assert "write your answer for words in place of ..." in out and "no prediction" in out

    def test_a_later_session_remembers(self, monkeypatch, capsys):
        predict("9.2", words=3)
        monkeypatch.setattr(predictions, "_predicted", {})
        measured("9.2", words=3)
        assert "3 predicted: right" in capsys.readouterr().out

    def test_the_prediction_of_another_copy_is_not_compared_with_an_empty_cell(self, monkeypatch, capsys):
        predict("9.2", words=3)
        monkeypatch.setattr(predictions, "_predicted", {})  # the kernel of another copy of the lesson
        predict("9.2", words=...)
        measured("9.2", words=3)
        assert capsys.readouterr().out.splitlines()[1:] == [
            "Prediction 9.2: write your answer for words in place of ... before you go on",
            "words: 3 measured, no prediction",
        ]
        assert progress.load()["p9.2"]["prediction"] == {"words": 3}

    def test_what_is_no_number_is_named_and_stops_nothing(self, capsys):
        predict("9.1", best="F3", words=np.int64(3), often=None)
        measured("9.1", best=1, words=3)
        assert capsys.readouterr().out.splitlines() == [
            "Prediction 9.1: best must be a number, True or False, or ... for not yet; got 'F3'",
            "Prediction 9.1: often must be a number, True or False, or ... for not yet; got None",
            "Prediction 9.1: words = 3",
            "best: 1 measured, no prediction",
            "words: 3 measured, 3 predicted: right",
        ]

    def test_a_disk_that_tells_nothing_of_earlier_predictions_stops_nothing(self, monkeypatch, capsys):
        def unreadable():
            raise OSError("read-only")

        monkeypatch.setattr(progress, "load", unreadable)
        with pytest.warns(UserWarning, match="cannot read your earlier predictions: read-only"):
            measured("9.2", words=3)
        assert "no prediction" in capsys.readouterr().out

    def test_an_unsolved_measurement_says_so(self, capsys):
        measured("9.1", words=Unsolved("solve 9.1 first"))
        assert capsys.readouterr().out == "words: solve 9.1 first\n"


def my_flash(m, Q, K, V, *, Br, Bc):
    raise NotImplementedError


class TestAttempt:
    def test_a_solved_function_is_called(self):
        assert attempt(my_double, 3) == 6

    def test_an_unsolved_one_names_its_exercise_and_stands_in_for_any_result(self, capsys):
        x = np.ones((2, 2))
        result = attempt(run, my_flash, M=100, Q=x, K=x, V=x, Br=1, Bc=1)
        assert capsys.readouterr().out == "solve 99.2 first\n"
        assert not result and f"{result.ledger.total:,}" == "solve 99.2 first"
        assert str(result.O[0] * 3 - 1) == "solve 99.2 first" and list(result) == []
        assert str(np.abs(result.O - x).max()) == str(np.sum(result)) == "solve 99.2 first"

    def test_a_cell_that_ends_in_an_unsolved_result_says_it_once_with_the_error(self, capsys):
        attempt(my_double, None)._ipython_display_()
        out = capsys.readouterr().out
        assert out.count("solve 99.1 first") == out.count("solve 99.1 first (TypeError") == 1

    def test_one_that_has_passed_is_not_to_be_solved_again(self, capsys):
        progress.record("99.1", "solved")
        attempt(my_double, None)
        assert "99.1 has passed, and raises an error here (TypeError" in capsys.readouterr().out

    def test_strict_raises(self, monkeypatch):
        monkeypatch.setenv("IOCOURSE_STRICT", "1")
        with pytest.raises(NotImplementedError):
            attempt(my_flash, 1, 2, 3, 4, Br=1, Bc=1)
