"""The kind `distributed`: a schedule of one rank, tested for values and for words moved and held per rank.

The closed form is that of the library's schedule `form`, counted on shapes. A case has one difficulty, which
is its tag: for example scores of ±10,000, or (from its sizes) more ranks than rows, or ragged shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ... import distributed as ranks
from ..exercise import Case, Exercise, Property, exercise
from ..properties import LARGE, values_in
from ..trials.case_inputs import bottomless_queries_and_keys
from ..trials.rank_runs import MANY, ClosedForm, rank_case, right_on_every_rank, run_distributed

FAR = {LARGE: f"{LARGE} neither overflow nor vanish"}
RankSample = tuple[str, int, dict[str, Any]]  # the difficulty, "" to compute it; P; the inputs by name
Draw = Callable[[np.random.Generator], Iterator[RankSample]]


def distributed_exercise(
    id: str,
    form: str | ClosedForm,
    result: Callable[..., Any],
    draw: Draw,
    words: tuple[Property, ...],
    *,
    values: str = "values equal exact attention",
    where: Mapping[str, str] | None = None,
    **machine: Any,
) -> Exercise:
    """Return the exercise of a schedule whose ranks return their rows of `result(**inputs)`.

    Args:
        id: the exercise's id.
        form: the name of a schedule of `iocourse.distributed`, or a function of P and the inputs that returns
            the ledger of each rank.
        result: the exact outputs, an array or a tuple of arrays.
        draw: a generator of samples, such as `shards`.
        words: properties of the words that ranks receive, send and hold, in the order of the report.
        values: the name of the property that values are correct.
        where: names of properties that values are correct in the cases with a tag, by this tag.
        machine: further keyword arguments of `run` for all cases.

    Raises:
        ValueError: the closed form, the result or the property of words is missing. Drawing the cases raises
            it if no case has a tag of `where`.
    """
    if not callable(form) and form not in ranks.REGISTRY:
        raise _refused(
            id,
            f"form must be one of {', '.join(ranks.REGISTRY)}, or a function of P and the inputs that "
            f"returns a RankLedger, got {form!r}",
        )
    if not callable(result):
        raise _refused(
            id, f"result must be a function of the inputs, such as exact.attention, got {result!r}"
        )
    if not words:
        raise _refused(id, "words is empty; pass a property of words, such as receives(name, 'K', 'V')")
    named = where or {}

    def cases(rng: np.random.Generator) -> list[Case]:
        drawn: list[Case] = [
            rank_case(form, P, inputs, result(**inputs), tag=tag, **machine) for tag, P, inputs in draw(rng)
        ]
        for tag, name in named.items():
            if not any(case.has(tag) for case in drawn):
                raise _refused(id, f"no case has the tag {tag!r} of {name!r}; draw such a case")
        return drawn

    hard = (values_in(name, tag) for tag, name in named.items())
    properties = (right_on_every_rank(values), *hard, *words)
    return exercise(id, cases=cases, properties=properties, run_case=run_distributed)


def _refused(id: str, why: str) -> ValueError:
    return ValueError(f"exercise {id}: {why}")


# ------------------------------------------------------------------ inputs
def normal_arrays(rng: np.random.Generator, names: str, *shape: int, large: bool = False) -> dict[str, Any]:
    """Return standard normal arrays by name; with `large`, the largest score of each query is 10,000."""
    arrays = {name: rng.standard_normal(shape) for name in names.split()}
    if large:
        largest = (arrays["Q"] @ arrays["K"].T).max(axis=1, keepdims=True)
        arrays["Q"] *= 10_000 * np.sqrt(shape[-1]) / largest
    return arrays


def shards(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield even and ragged shards, two, one and many ranks, ranks without rows, and scores far from 0."""
    n, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    for P, N, columns in [(4, 4 * n, d), (5, 5 * n + 3, d), (2, 2 * n + 1, d + 1), (1, n, d), (4, 3, d)]:
        yield "", P, normal_arrays(rng, "Q K V", N, columns)
    yield MANY, 24, normal_arrays(rng, "Q K V", 48, 4)
    yield LARGE, 3, normal_arrays(rng, "Q K V", 7, d, large=True)
    Q, K = bottomless_queries_and_keys(rng, 7)
    yield LARGE, 3, {"Q": Q, "K": K, "V": rng.standard_normal(K.shape)}
