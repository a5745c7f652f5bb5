"""Tests that functions of the library, called in any way, and functions that raise solve no exercise."""

import importlib
import inspect
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from iocourse import exact, lowrank, schedules
from iocourse.course import guard
from iocourse.course.checking import OWN, RUNS, check, judge
from iocourse.course.exercise import exercises, find
from iocourse.machine import run
from tests.mutation.references import sources_of
from tools.build.notebook_execution import cannot_run

ROOMS = ("bounds", "costs", "distributed", "exact", "kernels", "lowrank", "masks", "monomials", "pebbling",
         "schedules", "sweeps")  # fmt: skip
each = pytest.mark.parametrize("exercise_id", list(exercises()))


@cache
def cases_of(exercise_id):
    """Return the cases of the first seed, drawn once."""
    exercise = find(exercise_id)
    if reason := cannot_run(sources_of(exercise.lesson)[0].read_text(encoding="utf-8")):
        pytest.skip(reason)
    return exercise.cases(np.random.default_rng(0))


def refused(exercise_id, answer, cases):
    """Return the failed properties with their complaints."""
    verdicts = judge(replace(find(exercise_id), cases=lambda rng: cases), answer, 0)
    return [(name, said) for name, said in verdicts if said is not None]


# ------------------------------------------------------------------ functions of the library
@cache
def public():
    """Return the public functions of the packages that compute results.

    Functions that build pebbling graphs are left out: they solve no exercise, and the size of their result
    grows with their arguments.
    """
    found = {}
    for room in ROOMS:
        try:
            module = importlib.import_module(f"iocourse.{room}")
        except ImportError:  # exercises with kernels, if Triton is missing
            continue
        for name in getattr(module, "__all__", dir(module)):
            one = getattr(module, name)
            if callable(one) and not inspect.isclass(one) and name[0] != "_":
                found[f"{room}.{name}"] = getattr(one, "body", one)
    return {
        k: one for k, one in found.items() if getattr(one, "__annotations__", {}).get("return") != "Graph"
    }


def called_inside(function):
    """Return a new function that calls the library's function."""

    def mine(*given, **named):
        return function(*given, **named)

    mine.__module__ = "__main__"
    return mine


def without_inputs(function):
    return lambda *given, **named: function()


@cache
def answers_to(exercise_id):
    """Return the names of library functions that would solve the exercise if they were not blocked."""
    cases = cases_of(exercise_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "are_solutions_blocked", lambda: False)
        patch.setattr(guard.sys, "setprofile", lambda watch: None)
        return [
            name
            for name, function in public().items()
            if not refused(exercise_id, called_inside(function), cases[:1])
            and not refused(exercise_id, called_inside(function), cases)
        ]


@each
def test_a_library_function_that_would_answer_is_refused_as_such(exercise_id):
    for name in answers_to(exercise_id):
        function = public()[name]
        for answer in (function, called_inside(function)):
            assert [property for property, _ in refused(exercise_id, answer, cases_of(exercise_id))] == [
                OWN
            ], name


def test_many_exercises_have_an_answer_in_the_library():
    """Otherwise the test above would test nothing."""
    schedules = {"4A": "flash2", "4B": "flash1", "6B": "fused_backward", "2B": "matmul"}
    assert all(f"schedules.{name}" in answers_to(exercise) for exercise, name in schedules.items())
    assert "exact.softmax" in answers_to("1A")


def ones(many, *shape):
    """Return arrays of ones, created in the function because code on ranks must not read outer arrays."""
    return [np.ones(shape)] * many


def tensors(many, *shape):
    import torch

    return [torch.ones(shape)] * many


def packed():
    import torch

    from iocourse import kernels

    starts = torch.tensor([0, 4], dtype=torch.int32)
    return kernels.attention_varlen(*tensors(3, 4, 1, 4), starts, starts)


def attentions():
    """Return all attention functions of the library, applied to four rows of one head."""
    from iocourse import kernels

    return {
        "kernels.attention": lambda: kernels.attention(*tensors(3, 1, 1, 4, 4)),
        "kernels.attention_with_lse": lambda: kernels.attention_with_lse(*tensors(3, 1, 1, 4, 4)),
        "kernels.attention_varlen": packed,
        "kernels.decode": lambda: kernels.decode(*tensors(1, 1, 1, 1, 4), *tensors(2, 1, 1, 4, 4)),
        "exact.attention": lambda: exact.attention(*ones(3, 4, 4)),
        "exact.attention_backward": lambda: exact.attention_backward(*ones(4, 4, 4)),
        "lowrank.attention": lambda: lowrank.attention(*ones(3, 4, 4), degree=2, engine="numpy"),
        "schedules.flash2": lambda: run(
            schedules.flash2, M=99, **dict(zip("QKV", ones(3, 4, 4), strict=True)), Br=2, Bc=2
        ),
    }


@each
def test_attention_of_the_library_is_no_part_of_an_answer(exercise_id):
    """Calling the library's attention fails the check, even if the result is not used."""
    cases = cases_of(exercise_id)[:1]
    pytest.importorskip("triton", reason="triton is not installed: the extra `triton` brings it")
    for name, attention in attentions().items():
        found = refused(exercise_id, called_inside(without_inputs(attention)), cases)
        assert [property for property, _ in found] == [OWN], (name, found)


# ------------------------------------------------------------------ functions that raise
class Odd(BaseException):
    """Error class that is not a subclass of Exception, like KeyboardInterrupt."""


class Mute(Exception):
    """Error class whose message raises."""

    def __str__(self):
        raise ValueError


def again():
    return again() + 1


def import_of(name):
    return lambda: importlib.import_module(name)


def thrown(error):
    def throw():
        raise error

    return throw


RAISES = {
    "ValueError": thrown(ValueError("made up")),
    "AssertionError": thrown(AssertionError()),
    "StopIteration": thrown(StopIteration()),
    "MemoryError": thrown(MemoryError()),
    "Mute": thrown(Mute()),
    "Odd": thrown(Odd()),
    "SystemExit": sys.exit,
    "GeneratorExit": thrown(GeneratorExit()),
    "RecursionError": again,
    "ModuleNotFoundError": import_of("no_such_module_anywhere"),
    "ZeroDivisionError": import_of("raises_when_imported"),
    "SystemExit: 3": import_of("exits_when_imported"),
}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Two modules that raise on import."""
    (tmp_path / "raises_when_imported.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "exits_when_imported.py").write_text("import sys\nsys.exit(3)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@each
def test_what_raises_is_refused_and_ends_nothing(exercise_id, modules):
    for name, throw in RAISES.items():
        ((property, said),) = refused(exercise_id, without_inputs(throw), cases_of(exercise_id)[:1])
        assert property == RUNS and name in said, (name, property, said)


def test_a_check_of_an_answer_that_exits_goes_on_to_its_report(capsys):
    check("1A", lambda *given: sys.exit("the end"), seed=0)
    assert "FAILS  runs without an error: SystemExit: the end" in capsys.readouterr().out
