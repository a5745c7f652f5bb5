"""Score a schedule for an open challenge, as in `challenge("forward", my_schedule, Br=30)`.

A schedule is tested as in the check of an exercise: on new random numbers, at shapes with a partial last
block, with scores that overflow exp, in M words of fast memory, and with the library's solutions blocked.
Every input word must be loaded. The same shapes are also run without numbers (dry) and must move the same
words, so that nothing is computed outside the machine. The score is the traffic at the size of the challenge,
run on numbers if possible and otherwise dry. A score below the proved lower bound is rejected. The test
cannot detect a schedule that behaves differently in a dry run or at one length, so read a schedule before you
trust a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ...console import table
from ...exact import Array
from ...machine import run
from ...masks import Window
from ...schedules import PASSES, REGISTRY, Choice, Schedule, saved_for_backward
from .. import progress
from ..checking import Activity, Interrupted, failed_properties, fresh_seed, judge, read_first, still_running
from ..exercise import Case, Exercise, Property, RunCase, Trial, run_schedule
from ..guard import library_solution
from ..properties import LARGE, every_input_loaded, fits_in_fast_memory, is_right, only_where, values_in
from ..runtime_errors import below, failing_line
from ..trials.case_inputs import STRETCH, labelled_large, low_queries_and_keys
from . import Challenge, find_challenge

AT_SIZE = "the challenge's size"
MOST_MOVES = 200_000  # maximum loads and stores at a small shape, about three seconds
Arrays = dict[str, Array]


def challenge(which: str, schedule: Callable[..., Any], /, **tiles: int) -> None:
    """Test a schedule, print its words with the best known result and the lower bound, and record the best.

    Args:
        which: id or title of a challenge, such as "forward" or "forward at M = d²".
        schedule: `schedule(m, Q, K, V, **tiles)` that returns the slow array O. It also receives `mask=` if
            the challenge has one. For "backward" it receives `O, dO, LSE` after V and returns (dQ, dK, dV).
        tiles: tile sizes passed to the schedule, the same at every shape.

    Raises:
        ValueError: there is no such challenge.
        TypeError: a tile size is not an integer, or has the name of an argument of the challenge.
    """
    problem = find_challenge(which)
    for name, size in tiles.items():
        if name in (*problem.arrays, "mask", "m"):
            raise TypeError(f"{name} is passed by the challenge. Pass only tile sizes as keyword arguments")
        if not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, got {type(size).__name__}")
    with still_running() as activity:
        try:
            verdict = judge_schedule(problem, schedule, tiles, fresh_seed(), activity)
        except KeyboardInterrupt as stop:
            said = f"{_head(problem)}\n  interrupted in {activity.now}{below(failing_line(stop))}"
            raise Interrupted(said) from None
    if verdict.refused:
        print(f"{_head(problem)}\n  refused: {verdict.refused}")
        return
    before = progress.best_words(problem.id)
    progress.record_words(problem.id, verdict.words)
    print(challenge_report(problem, verdict, before))


# ------------------------------------------------------------------ testing a schedule
@dataclass(frozen=True)
class DryCase(Case):
    """A case on shapes only, which must move the same words as the case `real` on numbers."""

    real: Case | None = None


@dataclass(frozen=True)
class ChallengeResult:
    """Result of a test: the words of the schedule and its call as text, or the reason of the rejection."""

    words: int = 0
    called: str = ""
    refused: str = ""


def judge_schedule(
    problem: Challenge, schedule: Any, tiles: dict[str, int], seed: int, activity: Activity | None = None
) -> ChallengeResult:
    """Test a schedule as `check` tests an exercise, on random numbers drawn from `seed`.

    Args:
        problem: the challenge.
        schedule: the schedule.
        tiles: tile sizes passed to it.
        seed: seed of the random numbers.
        activity: receives a description of the current step; None without one.
    """
    done: list[Trial] = []

    def run_and_keep(schedule: Callable[..., Any], case: Case) -> Trial:
        done.append(run_schedule(schedule, case))
        return done[-1]

    exercise = _as_exercise(problem, tiles, run_and_keep)
    verdicts = judge(exercise, schedule, seed, activity)
    failed = failed_properties(verdicts)
    if failed:
        first = read_first(exercise, failed)
        return ChallengeResult(refused=f"{first}: {failed[first]}")
    name = getattr(schedule, "__name__", type(schedule).__name__)
    words = done[-1].ledger.total  # the last case is at the challenge's size
    return ChallengeResult(words, _called(name, tiles))


def _as_exercise(problem: Challenge, tiles: dict[str, int], run_case: RunCase) -> Exercise:
    loaded = every_input_loaded(*problem.inputs)
    on_numbers = replace(
        loaded, judge=lambda trials: loaded.judge([t for t in trials if t.case.expected is not None])
    )
    return Exercise(
        id=problem.id,
        title=problem.title,
        function="",
        difficulty=5,
        importance=1,
        minutes=0,
        hints=("", "", ""),
        cases=lambda rng: cases(problem, tiles, rng),
        properties=(
            only_where(
                "values equal exact attention",
                lambda case: case.expected is not None and not case.has(LARGE),
                is_right,
            ),
            values_in(f"{LARGE} neither overflow nor vanish", LARGE),
            fits_in_fast_memory(),
            on_numbers,
            Property("moves the same words in a dry run", _counts_alike),
            Property("moves no fewer words than the lower bound", lambda trials: _not_below(problem, trials)),
        ),
        run_case=run_case,
    )


def cases(problem: Challenge, tiles: dict[str, int], rng: np.random.Generator) -> list[Case]:
    """Return the cases of a challenge: small shapes on numbers and dry, and last the size of the challenge.

    The second shape is also tested with large and with low scores. If the challenge is dry, one block
    represents all equal blocks in dry runs.
    """
    few = {"max_moves": MOST_MOVES}
    found = [_case(problem, N, d, tiles, _drawn(problem, N, d, rng), few) for N, d in problem.shapes]
    N, d = problem.shapes[1]
    hard = [labelled_large(_case(problem, N, d, tiles, one, few)) for one in _hard(problem, N, d, rng)]
    machine = {**few, "dry": True, "unroll": not problem.dry}
    dry = [DryCase(f"{one.label}, dry", one.inputs, M=one.M, machine=machine, real=one) for one in found]
    return [*found, *hard, *dry, replace(_at_size(problem, tiles, rng), label=AT_SIZE)]


def _at_size(problem: Challenge, tiles: dict[str, int], rng: np.random.Generator) -> Case:
    N, d = problem.N, problem.d
    if not problem.dry:
        return _case(problem, N, d, tiles, _drawn(problem, N, d, rng), {})
    shapes = PASSES[problem.pass_].shapes(N, d)
    inputs = {name: shapes[name] for name in problem.arrays} | problem.options(N) | tiles
    return Case(AT_SIZE, inputs, M=problem.M, machine={"dry": True})


def _case(
    problem: Challenge, N: int, d: int, tiles: dict[str, int], arrays: Arrays, machine: dict[str, Any]
) -> Case:
    found = PASSES[problem.pass_].exact(arrays, problem.mask(N))
    want = found[0] if problem.pass_ == "forward" else found  # O without LSE
    inputs = {name: arrays[name] for name in problem.arrays} | problem.options(N) | tiles
    return Case(f"N={N}, d={d}", inputs, want, problem.M, machine=machine)


def _drawn(problem: Challenge, N: int, d: int, rng: np.random.Generator) -> Arrays:
    return PASSES[problem.pass_].draw(rng, N, d, problem.mask(N))


def _hard(problem: Challenge, N: int, d: int, rng: np.random.Generator) -> list[Arrays]:
    """Return inputs with scores of ±10,000, and for a forward pass also with very negative scores."""
    large = _drawn(problem, N, d, rng)
    large["Q"] = large["Q"] * STRETCH
    if problem.pass_ != "forward":
        return [large | saved_for_backward(large["Q"], large["K"], large["V"], problem.mask(N))]
    low = dict(zip("QK", low_queries_and_keys(rng, N, N, d), strict=True))
    return [large, large | low]


# ------------------------------------------------------------------ properties
def _counts_alike(trials: Sequence[Trial]) -> str | None:
    on_numbers = {id(trial.case): trial.ledger for trial in trials}
    for trial in trials:
        if not isinstance(trial.case, DryCase):
            continue
        want, got = on_numbers[id(trial.case.real)], trial.ledger
        if got != want:
            remedy = "; loop with m.blocks, with alike=False where blocks differ"
            return f"on numbers {want.total:,} words, dry {got.total:,} ({trial.case.label}){remedy}"
    return None


def _not_below(problem: Challenge, trials: Sequence[Trial]) -> str | None:
    words, (least, bound) = trials[-1].ledger.total, problem.lower_bound()
    if words >= least:
        return None
    return (
        f"yours moves {words:,}, but bound {bound} proves at least {least:,} for every schedule that "
        "computes its scores and outputs from products on the machine"
    )


# ------------------------------------------------------------------ the library's best
@library_solution
@cache
def library_best(problem: Challenge) -> Choice:
    """Return the library's schedule with the fewest words at the challenge's size, its tiles and its cost."""
    return min(fitting_schedules(problem), key=lambda choice: choice.cost.total)


@library_solution
@cache
def known_words(problem: Challenge) -> int | None:
    """Return the words of the best known schedule, from a dry run; None if the challenge has none."""
    if problem.known is None:
        return None
    N, d = problem.N, problem.d
    shapes: dict[str, Any] = {name: PASSES[problem.pass_].shapes(N, d)[name] for name in problem.arrays}
    given = shapes | problem.options(N)
    return run(problem.known, M=problem.M, dry=True, unroll=True, trace=False, **given).ledger.total


def fitting_schedules(problem: Challenge) -> Iterator[Choice]:
    """Yield the library's schedules that solve the problem and fit in M, with their best tiles and costs."""
    N, d, M = problem.N, problem.d, problem.M
    for schedule in REGISTRY.values():
        told = options_for(schedule, problem)
        if told is not None and schedule.smallest_M(N, d, **told) <= M:
            tiles = schedule.tiles(N, d, M, **told)
            yield Choice(schedule, tiles, schedule.cost(N, d, **tiles, **told))


def options_for(schedule: Schedule, problem: Challenge) -> dict[str, Any] | None:
    """Return the options with which a schedule solves the challenge exactly; None if it cannot."""
    exact = schedule.safe and schedule.approximates is None
    if schedule.pass_ != problem.pass_ or not exact or not {*schedule.operands} <= {*problem.arrays}:
        return None
    mask = problem.mask(problem.N)
    if mask is None:
        return None if schedule.needs else {}
    if isinstance(mask, Window) and schedule.needs == ("w",):
        return {"w": mask.w}
    takes_it = "mask" in (*schedule.needs, *schedule.options)
    return {"mask": mask} if takes_it and set(schedule.needs) <= {"mask"} else None


# ------------------------------------------------------------------ the report
def _head(problem: Challenge) -> str:
    mask = problem.mask(problem.N)
    seen = f", {mask}" if mask is not None else ""
    return f"{problem.title}: N = {problem.N:,}, d = {problem.d}, M = {problem.M:,}{seen}"


def challenge_report(problem: Challenge, verdict: ChallengeResult, before: int | None) -> str:
    """Return the report on a valid schedule; `before` is the best earlier result in words, or None."""
    best, known = library_best(problem), known_words(problem)
    rows = [("yours", verdict.called, verdict.words)]
    if known is not None:
        rows.append(("best known", problem.idea, known))
    rows.append(("library's best", _called(best.schedule.title, best.tiles), best.cost.total))
    if problem.whole_rows:
        rows.append(
            _proved("lower bound for complete rows, no score kept", problem.lower_bound(whole_rows=True))
        )
    rows.append(_proved("lower bound", problem.lower_bound()))
    score = {n: f"{problem.score(n):.4f} {problem.per}" for *_, n in rows}
    cells = [(f"  {what}", how, score[n], f"{n:,} words") for what, how, n in rows]
    whose, least = ("the best known", known) if known is not None else ("the library's best", best.cost.total)
    if verdict.words < least:
        said = f"{least - verdict.words:,} words fewer than {whose}. Let another person review the schedule."
    else:
        said = f"Your schedule moves {verdict.words / least:.4f} times the traffic of {whose}."
    lines = [_head(problem), table(cells, left=2), said]
    if before is not None:
        lines.append(f"Your best before: {before:,} words, {problem.score(before):.4f} {problem.per}.")
    return "\n".join(lines)


def _called(name: str, tiles: Mapping[str, int]) -> str:
    return f"{name}({', '.join(f'{tile}={size}' for tile, size in tiles.items())})"


def _proved(what: str, found: tuple[int, str]) -> tuple[str, str, int]:
    return what, f"bound {found[1]}", found[0]
