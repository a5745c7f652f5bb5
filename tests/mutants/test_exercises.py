"""Checks of all exercises: they reject the stub, mistakes and cheats, and accept correct answers.

Each answer is tried on one seed, chosen by its name; `pytest tests/mutants/every_seed.py` tries many.
"""

import pytest
from harness import drawn, emptied, failures, solved, unlabelled
from suites import cannot_run_lesson, load_recorded, load_suites

from iocourse.course import check
from iocourse.course.checking import OWN, RUNS, CheckFailed
from iocourse.course.exercise import exercises, find
from iocourse.course.guard import library_solution
from iocourse.exact import attention
from tests.mutation.references import build, exercise_source
from tools.build.recorded_mutants import recording_command

SUITES = load_suites()
IDS = list(SUITES)
RECORDED = load_recorded()


def reference_of(exercise_id):
    return build(exercise_id, solved(exercise_id))


# ------------------------------------------------------------------ what each exercise has
@pytest.mark.parametrize("exercise_id", list(exercises()))
def test_every_exercise_has_another_right_answer_and_a_mistake_for_each_property(exercise_id):
    if reason := cannot_run_lesson(find(exercise_id).lesson):
        pytest.skip(reason)
    recorded = {one for name, row in RECORDED if name == exercise_id for one in row.properties}
    by_hand = {fails for _, _, fails in SUITES[exercise_id].wrong_answers()}
    lacking = [one.name for one in find(exercise_id).properties if one.name not in recorded | by_hand]
    assert lacking == [], f"exercise {exercise_id}: run {recording_command(exercise_id)}"


def test_every_suite_is_of_an_exercise():
    assert set(SUITES) <= set(exercises())


# ------------------------------------------------------------------ right answers
@pytest.mark.quick
@pytest.mark.parametrize("exercise_id", IDS)
def test_the_reference_passes(exercise_id):
    assert failures(exercise_id, reference_of(exercise_id), 0) == []


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_reference_passes_on_another_seed(exercise_id):
    assert failures(exercise_id, reference_of(exercise_id), drawn(exercise_id)) == []


@pytest.mark.parametrize("exercise_id", IDS)
def test_another_right_answer_passes(exercise_id):
    right = SUITES[exercise_id].right
    assert failures(exercise_id, right, drawn(exercise_id, right.__name__)) == []


# ------------------------------------------------------------------ mistakes, each in its properties
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # wrong answers compute with whatever they read
@pytest.mark.parametrize(
    ("exercise_id", "row"),
    [pytest.param(name, row, id=f"{name}-{row.operator}-line{row.line}") for name, row in RECORDED],
)
def test_a_recorded_mutant_fails_the_properties_it_was_recorded_for(exercise_id, row):
    text = row.made_of(solved(exercise_id))
    assert text is not None, f"line {row.line} has changed: run {recording_command(exercise_id)}"
    function, exercise = build(exercise_id, text), unlabelled(exercise_id)
    failed = failures(exercise_id, function, drawn(exercise_id, text), exercise)
    assert set(row.properties) - set(failed) == set()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("exercise_id", "name", "function", "fails"),
    [
        pytest.param(suite.id, *wrong, id=f"{suite.id}-{wrong[0]}")
        for suite in SUITES.values()
        for wrong in suite.wrong_answers()
    ],
)
def test_a_wrong_answer_fails_the_property_that_names_its_mistake(exercise_id, name, function, fails):
    assert fails in failures(exercise_id, function(), drawn(exercise_id, name, fails))


# ------------------------------------------------------------------ laws of all exercises
@pytest.mark.parametrize("exercise_id", IDS)
def test_the_stub_fails_without_an_exception(exercise_id, capsys, monkeypatch):
    stub = build(exercise_id, exercise_source(exercise_id, solved=False))
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check(exercise_id, stub, seed=0)
    report = capsys.readouterr().out
    assert f"  FAILS  {RUNS}: not written yet\n" in report
    assert report.count("  FAILS  ") == 1 and "  holds  " not in report
    monkeypatch.setenv("IOCOURSE_STRICT", "1")
    with pytest.raises(CheckFailed):
        check(exercise_id, stub, seed=0)


@pytest.mark.parametrize("exercise_id", IDS)
def test_nonsense_is_refused_without_an_exception(exercise_id):
    for answer in (None, 3, max, lambda *args, **kwargs: 0.0):
        assert failures(exercise_id, answer, 0), answer


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_right_answer_printed_or_emptied_is_refused(exercise_id):
    right = reference_of(exercise_id)

    def prints(*given, **options):
        print(right(*given, **options))

    assert failures(exercise_id, prints, 0)
    assert failures(exercise_id, lambda *given, **options: emptied(right(*given, **options)), 0)


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_first_answer_is_refused_as_the_answer_to_everything(exercise_id):
    right, answers = reference_of(exercise_id), []

    def first(*given, **options):
        answers.append(answers[0] if answers else right(*given, **options))
        return answers[0]

    assert failures(exercise_id, first, 0)


def test_own_is_the_property_that_names_a_handed_back_library_function():
    assert all(failures(e, attention, 0) == [OWN] for e in IDS)


@pytest.mark.parametrize("exercise_id", IDS)
def test_what_the_library_marks_as_its_answers_refuses_inside_any(exercise_id):
    marked = library_solution(max)
    assert failures(exercise_id, lambda *given, **options: marked(given), 0) == [OWN]
