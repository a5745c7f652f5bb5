"""The kind `function`: a function tested for its values, with one named property per result and tag.

A lesson passes a generator of samples and the names of the properties. The kind makes the cases and the
properties from them. A property selects its cases by a tag; the label of a case is only displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..exercise import (
    Case,
    Draw,
    Exercise,
    Property,
    RunCase,
    Sample,
    Trial,
    WrongForm,
    exercise,
    run_function,
)
from ..properties import (
    TOLERANCE,
    as_general,
    difference_or_scale,
    exchanged,
    only_where,
    part,
    several,
    values_in,
)

EVERY = ""  # instead of a tag: every case with the usual tolerance
TOGETHER = "*"  # instead of a result: all results in one property; its message names the wrong one


Rows = Callable[[Case], NDArray[np.bool_]]  # rows of the results
Sentences = Mapping[tuple[str, str], str]  # (result or TOGETHER, tag or EVERY): the name of a property


def function_exercise(
    id: str,
    results: str,
    draw: Draw,
    sentences: Sentences,
    *,
    before: tuple[Property, ...] = (),
    after: tuple[Property, ...] = (),
    tolerance: float = TOLERANCE,
    looser: Mapping[str, float] | None = None,
    rows: Mapping[str, Rows] | None = None,
    run_case: RunCase = run_function,
    compiles: bool = False,
) -> Exercise:
    """Return the exercise of a function that is judged by the values it returns.

    A sentence about all that is returned, in every case, is the general one: the sentence of a tag is read
    before it, unless the answer is wrong in the cases without a tag too.

    Args:
        id: the exercise, such as "14A".
        results: names of the results, in the order in which they are returned, separated by spaces.
        draw: yields the samples from a generator of random numbers.
        sentences: names of the properties about values, in the order of the report.
        before: other properties, which the report lists before these.
        after: other properties, which it lists after them.
        tolerance: of a difference, as a share of 1 + max|expected|.
        looser: tolerances of the cases that have these tags; sentences about EVERY leave these cases out.
        rows: for these tags, the rows that their sentences compare; for other tags all rows.
        run_case: how a case is tried.
        compiles: whether a solved check shows what the compiler makes of the kernels.

    Raises:
        ValueError: no result or no sentence is given, or a sentence is about another result. Drawing the
            cases raises it where a sample lacks an exact result, or no sample has the tag of a sentence.
    """
    names, other = results.split(), looser or {}
    if not names or not sentences:
        missing = "results" if not names else "sentences"
        raise ValueError(f"exercise {id} has no {missing}: give what is judged and a sentence about each")
    for result, _ in sentences:
        if result not in (*names, TOGETHER):
            raise ValueError(f"exercise {id} has a sentence about {result!r}; its results are {results}")

    def right(result: str, tag: str, sentence: str) -> Property:
        where = tag or (lambda case: not any(map(case.has, other)))
        allowed = other.get(tag, tolerance)
        if result == TOGETHER:
            asked = only_where(sentence, where, lambda trial: _first_wrong(trial, names, allowed))
        elif len(names) > 1:
            chosen = (rows or {}).get(tag)
            return part(sentence, names, names.index(result), where, allowed, chosen)
        else:
            asked = values_in(sentence, where, allowed)
        return replace(asked, echo=True) if tag else as_general(asked, lambda case: not case.tags)

    def cases(rng: np.random.Generator) -> list[Case]:
        found = [case_of(id, names, sample) for sample in draw(rng)]
        for tag, sentence in ((tag, sentence) for (_, tag), sentence in sentences.items() if tag):
            if not any(case.has(tag) for case in found):
                raise ValueError(
                    f"exercise {id}: no case has the tag {tag!r}, so {sentence!r} tests nothing; "
                    "draw such a case, or delete the property"
                )
        return found

    return exercise(
        id,
        cases=cases,
        properties=(*before, *(right(*about, sentence) for about, sentence in sentences.items()), *after),
        run_case=run_case,
        compiles=compiles,
    )


def case_of(id: str, names: Sequence[str], sample: Sample) -> Case:
    """Return the case of a sample with these results; raises ValueError if one of them is missing."""
    for name in names:
        if sample.results.get(name) is None:
            raise ValueError(
                f"exercise {id}: the case {sample.label!r} has no exact result {name!r}; "
                f"a sample needs {', '.join(names)} by name"
            )
    expected = tuple(sample.results[name] for name in names)
    return Case(
        sample.label,
        sample.inputs,
        expected if len(names) > 1 else expected[0],
        budget=sample.words,
        tags=sample.tag_set,
    )


def _first_wrong(trial: Trial, names: list[str], tolerance: float) -> str | None:
    """Return a message with the name of the first wrong result; it says if two results are exchanged."""
    found = (trial.value,) if len(names) == 1 else several(trial.value, len(names))
    wanted = (trial.case.expected,) if len(names) == 1 else trial.case.expected
    if trial.value is None:
        return WrongForm("your function returned None; does it end with a return?")
    if found is None:
        got = len(trial.value) if isinstance(trial.value, tuple) else 1
        return WrongForm(f"expected {len(names)} results ({', '.join(names)}), got {got}")
    for k, name in enumerate(names):
        if found[k] is None:
            return WrongForm(f"{name} is None")
        if said := difference_or_scale(found[k], wanted[k], trial.case, tolerance):
            return f"{name}: {exchanged(found[k], wanted, names, k, tolerance) or said}"
    return None
