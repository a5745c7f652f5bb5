"""Harness for tests of checks: stub, reference, recorded mutants, and answers written by hand.

The stub and the reference are read from the lesson's source, as a student and an instructor get them. Most
mistakes are recorded: for each property, `recorded.json` has an automatic change of the reference, written by
`python -m tests.mutation --record-cover`. The files of the lessons contain the answers written by hand.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import KEEPS_INPUTS, Exercise, find
from tests.mutation.references import build, exercise_source

SEEDS = range(20)  # verdicts must not depend on the seed: `every_seed.py` tries all, the suite one by name
Answer = Callable[..., Any]
MOST = "moves no more words than the closed form"
EXACT = "moves exactly the words of the closed form"


class Mutant:
    """The reference with each `(old, new)` replaced; its check must fail in the property called `fails`."""

    def __init__(self, name: str, fails: str, *edits: tuple[str, str]) -> None:
        self.name, self.fails, self.edits = name, fails, edits


def empty_round(array: str, lanes: str, before: str) -> Mutant:
    """Return the mutant with a loop inserted before a line; its second iteration loads masked lanes only."""
    loop = f"    for k in range(2):\n        tl.load({array} + {lanes}, mask={lanes} < 1 - k)\n"
    return Mutant(
        "a-loop-with-an-empty-round", "no loop iteration is completely out of bounds", (before, loop + before)
    )


def first_program_first(array: str, value: str, before: str) -> Mutant:
    """Return the mutant whose programs are correct only after the first program has written to an array."""
    where = f"tl.where((tl.program_id(0) == 0) | (seen == seen), {value}, 0.0)"
    lines = f"    seen = tl.load({array})\n    {value} = {where}\n"
    return Mutant("first-program-first", "does not depend on the order of programs", (before, lines + before))


def launched_twice(function: str, fails: str = EXACT) -> Mutant:
    """Return the mutant whose function, with its kernels, runs twice: equal results, twice the words."""
    both = "    once(*given, **options)\n    return once(*given, **options)"
    twice = f"def {function}(*given, **options):\n{both}\n\n\ndef once("
    return Mutant("launched-twice", fails, (f"def {function}(", twice))


def as_scratch(array: str, line: str, store: str, fails: str = KEEPS_INPUTS) -> Mutant:
    """Return the mutant that stores into an input, or too early into a result, before each such line."""
    return Mutant(f"{array}-as-scratch", fails, (line, f"{store}; {line}"))


@dataclass(frozen=True)
class Suite:
    """Answers to one exercise in addition to its reference and its recorded mutants.

    Attributes:
        id: id of the exercise.
        right: a correct answer, written as differently as possible.
        wrong: wrong answers by the reason why no recorded mutant covers them: a `Mutant`, or a function and
            the property that must reject it.
    """

    id: str
    right: Answer
    wrong: Mapping[str, tuple[Mutant | tuple[Answer, str], ...]] = field(default_factory=dict)

    def wrong_answers(self) -> Iterator[tuple[str, Callable[[], Answer], str]]:
        """Yield the name of each wrong answer, a factory of its function, and the property it must fail."""
        for one in itertools.chain.from_iterable(self.wrong.values()):
            if isinstance(one, Mutant):
                yield one.name, functools.partial(mutate, self.id, one), one.fails
            else:
                function, fails = one
                yield function.__name__, functools.partial(lambda given: given, function), fails


def drawn(*names: str) -> int:
    """Choose one of the seeds by a hash of the names, so that each run takes the same one."""
    return SEEDS[int(hashlib.sha256(" ".join(names).encode()).hexdigest(), 16) % len(SEEDS)]


@functools.cache  # finding the lesson takes as long as judging some of the mutants
def solved(exercise_id: str) -> str:
    """The source of the reference, which mutants change."""
    return exercise_source(exercise_id, solved=True)


def mutate(exercise_id: str, mutant: Mutant) -> Answer:
    """Build the reference with the mutant's edits; each must change the source."""
    source = solved(exercise_id)
    for old, new in mutant.edits:
        if old not in source:
            raise AssertionError(
                f"mutant {mutant.name!r} of {exercise_id} changes nothing: {old!r} is not there"
            )
        source = source.replace(old, new)
    return build(exercise_id, source)


def failures(exercise_id: str, function: Any, seed: int, exercise: Exercise | None = None) -> list[str]:
    """Names of the properties that fail, in the report's order; `exercise` is judged in place of the id's.

    A check of memory records up to 50 calls above every allocation. The judge runs in a separate thread,
    without pytest's calls above it, so that 3A and 3B take a quarter of the time.
    """
    judged = exercise or find(exercise_id)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: list(failed_properties(judge(judged, function, seed)))).result()


def unlabelled(exercise_id: str) -> Exercise:
    """The exercise without labels of its cases. Labels are shown and must not affect a verdict."""
    exercise = find(exercise_id)
    return replace(exercise, cases=lambda rng: [replace(case, label="") for case in exercise.cases(rng)])


def emptied(result: Any) -> Any:
    """Zeros of the same shape, an empty list for a list, 0 for a number; None for other results."""
    if isinstance(result, tuple):
        return tuple(map(emptied, result))
    if hasattr(result, "shape"):
        return result * 0
    return type(result)() if isinstance(result, (int, float, str, list, dict, set)) else None
