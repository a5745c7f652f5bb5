"""Every exercise's check: it refuses the stub, plausible mistakes and cheats, and accepts right answers.

Each is tried on one seed, drawn by its name; `pytest tests/mutants/every_seed.py` tries all twenty.
"""

import pytest
from harness import drawn, failures, mutate
from suites import cannot_run_lesson, load_suites

from iocourse.course import check
from iocourse.course.checking import OWN, RUNS, CheckFailed
from iocourse.course.exercise import exercises, find
from iocourse.exact import attention
from tests.mutation.references import build, exercise_source

SUITES = load_suites()
IDS = list(SUITES)
MUTANTS = [pytest.param(s.id, m, id=f"{s.id}-{m.name}") for s in SUITES.values() for m in s.mutants]
RIGHT = [pytest.param(s.id, f, id=f"{s.id}-{f.__name__}") for s in SUITES.values() for f in s.right]
CHEATS = [pytest.param(s.id, f, p, id=f"{s.id}-{f.__name__}") for s in SUITES.values() for f, p in s.cheats]


@pytest.mark.parametrize("exercise_id", list(exercises()))
def test_every_exercise_has_a_suite_with_four_mutants_and_two_other_answers(exercise_id):
    if reason := cannot_run_lesson(find(exercise_id).lesson):
        pytest.skip(reason)
    assert len({m.name for m in SUITES[exercise_id].mutants}) >= 4
    assert len(SUITES[exercise_id].right) >= 2


def test_every_suite_is_of_an_exercise():
    assert set(SUITES) <= set(exercises())


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


@pytest.mark.quick
@pytest.mark.parametrize("exercise_id", IDS)
def test_the_reference_passes(exercise_id):
    reference = build(exercise_id, exercise_source(exercise_id, solved=True))
    assert failures(exercise_id, reference, 0) == []


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_reference_passes_on_another_seed(exercise_id):
    reference = build(exercise_id, exercise_source(exercise_id, solved=True))
    assert failures(exercise_id, reference, drawn(exercise_id)) == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # wrong answers compute with whatever they read
@pytest.mark.parametrize(("exercise_id", "mutant"), MUTANTS)
def test_a_mutant_fails_the_property_that_names_its_mistake(exercise_id, mutant):
    function = mutate(exercise_id, mutant)
    assert mutant.fails in failures(exercise_id, function, drawn(exercise_id, mutant.name))


@pytest.mark.parametrize(("exercise_id", "function"), RIGHT)
def test_another_right_answer_passes(exercise_id, function):
    assert failures(exercise_id, function, drawn(exercise_id, function.__name__)) == []


@pytest.mark.parametrize(("exercise_id", "function", "fails"), CHEATS)
def test_a_cheat_is_refused(exercise_id, function, fails):
    assert fails in failures(exercise_id, function, drawn(exercise_id, function.__name__, fails))


@pytest.mark.parametrize("exercise_id", IDS)
def test_nonsense_is_refused_without_an_exception(exercise_id):
    for answer in (None, 3, max, lambda *args, **kwargs: 0.0):
        assert failures(exercise_id, answer, 0), answer


def test_own_is_the_property_that_names_a_handed_back_library_function():
    assert all(failures(e, attention, 0) == [OWN] for e in IDS)
