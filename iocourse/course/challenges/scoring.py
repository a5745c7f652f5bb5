"""challenge("forward", my_schedule, Br=30): try a schedule for an open challenge, and print its words.

A schedule is tried as in an exercise's check: on fresh numbers, at ragged shapes, with scores that overflow,
in M words of fast memory, while the library's solutions are blocked. Every input word must be loaded. The
ragged shapes are run dry as well, without numbers, and must move the same words, so nothing is computed
outside the machine. The score is then the words at the challenge's size, run on numbers if that is possible,
otherwise dry. Fewer words than the proved bound are refused. The trial cannot detect a schedule that behaves
differently in a dry run or at one length: read the schedule before you believe a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...console import table
from ...exact import Array
from ...schedules import PASSES, saved_for_backward
from .. import progress
from ..checking import fresh_seed, judge, read_first
from ..exercise import Case, Exercise, Property, Trial, run_schedule
from ..properties import LARGE, every_input_loaded, fits, is_right, only_where, values_in
from ..runtime_errors import below, line_of
from ..slow_check import Doing, Interrupted, signs_of_life
from ..trials.case_inputs import STRETCH, labelled_large, low_queries_and_keys
from .challenge_spec import Challenge, find
from .library_best import known_words, library_best

DRY = ", dry"  # at the end of a label
AT_SIZE = "the challenge's size"
MOST_MOVES = 200_000  # loads and stores at a ragged shape: three seconds
Arrays = dict[str, Array]


def challenge(which: str, schedule: Callable[..., Any], /, **tiles: int) -> None:
    """Try a schedule, print its words beside the best known and what is proved, and keep the fewest.

    Args:
        which: a challenge's id or title, such as "forward" or "forward at M = d²".
        schedule: `schedule(m, Q, K, V, **tiles)` returning the slow array O; with `mask=` where the challenge
            has one; for "backward" with `O, dO, LSE` after V, returning (dQ, dK, dV).
        tiles: whole numbers that the schedule is told; they are the same at every shape.

    Raises:
        ValueError: there is no such challenge.
        TypeError: a tile that is no whole number.
    """
    asked = find(which)
    _refuse_other_tiles(asked, tiles)
    with signs_of_life() as doing:
        try:
            verdict = judged(asked, schedule, tiles, fresh_seed(), doing)
        except KeyboardInterrupt as stop:
            said = f"{_head(asked)}\n  interrupted in {doing.now}{below(line_of(stop))}"
            raise Interrupted(said) from None
    if verdict.refused:
        print(f"{_head(asked)}\n  refused: {verdict.refused}")
        return
    before = progress.best_words(asked.id)
    progress.record_words(asked.id, verdict.words)
    print(told(asked, verdict, before))


def _refuse_other_tiles(asked: Challenge, tiles: dict[str, Any]) -> None:
    for name, size in tiles.items():
        if name in (*asked.arrays, "mask", "m"):
            raise TypeError(f"{name} is handed over by the challenge; give tile sizes only")
        if not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} must be a whole number, got {type(size).__name__}")


# ------------------------------------------------------------------ the trial
@dataclass(frozen=True)
class Verdict:
    """The result of a trial: the words of a schedule and how it was called, or why it is refused."""

    words: int = 0
    called: str = ""
    refused: str = ""


@dataclass
class _Watch:
    """Runs schedules and keeps the last trial: that at the challenge's size."""

    last: Trial | None = field(default=None)

    def run_case(self, schedule: Callable[..., Any], case: Case) -> Trial:
        self.last = run_schedule(schedule, case)
        return self.last


def judged(
    asked: Challenge, schedule: Any, tiles: dict[str, int], seed: int, doing: Doing | None = None
) -> Verdict:
    """Try a schedule as `check` tries an exercise, on numbers drawn from the seed."""
    watch = _Watch()
    trial = _as_exercise(asked, tiles, watch)
    verdicts = judge(trial, schedule, seed, doing)
    failed = {name: said for name, said in verdicts if said is not None}
    if failed or watch.last is None:
        first = read_first(trial, failed)
        return Verdict(refused=f"{first}: {failed[first]}")
    name = getattr(schedule, "__name__", type(schedule).__name__)
    return Verdict(watch.last.ledger.total, _called(name, tiles))


def _as_exercise(asked: Challenge, tiles: dict[str, int], watch: _Watch) -> Exercise:
    return Exercise(
        id=asked.id,
        title=asked.title,
        function="",
        difficulty=5,
        importance=1,
        minutes=0,
        hints=("", "", ""),
        cases=lambda rng: cases(asked, tiles, rng),
        properties=(
            only_where("values equal exact attention", _has_values, is_right),
            values_in(f"{LARGE} neither overflow nor vanish", LARGE),
            fits(),
            _on_numbers(every_input_loaded(*asked.inputs)),
            Property("a dry machine counts what a real one moves", _counts_alike),
            Property("moves no fewer words than are proved", lambda trials: _not_below(asked, trials)),
        ),
        run_case=watch.run_case,
    )


def cases(asked: Challenge, tiles: dict[str, int], rng: np.random.Generator) -> list[Case]:
    """Ragged shapes on numbers, the second also with large and with low scores; the shapes dry, one block
    for many where the challenge is dry; the challenge's size last.
    """
    few = {"max_moves": MOST_MOVES}
    found = [_case(asked, N, d, tiles, _drawn(asked, N, d, rng), few) for N, d in asked.shapes]
    N, d = asked.shapes[1]
    hard = [labelled_large(_case(asked, N, d, tiles, one, few)) for one in _hard(asked, N, d, rng)]
    machine = {**few, "dry": True, "unroll": not asked.dry}
    dry = [replace(one, label=one.label + DRY, expected=None, machine=machine) for one in found]
    return [*found, *hard, *dry, replace(_at_size(asked, tiles, rng), label=AT_SIZE)]


def _at_size(asked: Challenge, tiles: dict[str, int], rng: np.random.Generator) -> Case:
    N, d = asked.N, asked.d
    if not asked.dry:
        return _case(asked, N, d, tiles, _drawn(asked, N, d, rng), {})
    shapes = PASSES[asked.pass_].shapes(N, d)
    inputs = {name: shapes[name] for name in asked.arrays} | asked.told(N) | tiles
    return Case(AT_SIZE, inputs, M=asked.M, machine={"dry": True})


def _case(
    asked: Challenge, N: int, d: int, tiles: dict[str, int], arrays: Arrays, machine: dict[str, Any]
) -> Case:
    found = PASSES[asked.pass_].exact(arrays, asked.mask(N))
    want = found[0] if asked.pass_ == "forward" else found  # O without LSE
    inputs = {name: arrays[name] for name in asked.arrays} | asked.told(N) | tiles
    return Case(f"N={N}, d={d}", inputs, want, asked.M, machine=machine)


def _drawn(asked: Challenge, N: int, d: int, rng: np.random.Generator) -> Arrays:
    return PASSES[asked.pass_].draw(rng, N, d, asked.mask(N))


def _hard(asked: Challenge, N: int, d: int, rng: np.random.Generator) -> list[Arrays]:
    """Scores of ±10,000; for a forward pass also scores far below zero."""
    large = _drawn(asked, N, d, rng)
    large["Q"] = large["Q"] * STRETCH
    if asked.pass_ != "forward":
        return [large | saved_for_backward(large["Q"], large["K"], large["V"], asked.mask(N))]
    low = dict(zip("QK", low_queries_and_keys(rng, N, N, d), strict=True))
    return [large, large | low]


# ------------------------------------------------------------------ properties
def _has_values(case: Case) -> bool:
    return case.expected is not None and LARGE not in case.label


def _on_numbers(prop: Property) -> Property:
    """The property, of the trials on numbers."""
    return replace(prop, judge=lambda trials: prop.judge([t for t in trials if t.case.expected is not None]))


def _counts_alike(trials: Sequence[Trial]) -> str | None:
    real = {trial.case.label + DRY: trial for trial in trials}
    for dry in (trial for trial in trials if trial.case.label in real):
        want, got = real[dry.case.label].ledger, dry.ledger
        if got != want:
            remedy = "; loop with m.blocks, with alike=False where blocks differ"
            return f"real {want.total:,} words, dry {got.total:,} ({dry.case.label}){remedy}"
    return None


def _not_below(asked: Challenge, trials: Sequence[Trial]) -> str | None:
    words, (least, bound) = trials[-1].ledger.total, asked.floor()
    if words >= least:
        return None
    return (
        f"yours moves {words:,}, and bound {bound} proves {least:,} for every schedule that forms its scores "
        "and outputs from products on the machine"
    )


# ------------------------------------------------------------------ what is printed
def _head(asked: Challenge) -> str:
    mask = asked.mask(asked.N)
    seen = f", {mask}" if mask is not None else ""
    return f"{asked.title}: N = {asked.N:,}, d = {asked.d}, M = {asked.M:,}{seen}"


def told(asked: Challenge, verdict: Verdict, before: int | None) -> str:
    """The report on a schedule that is not refused; `before` are the fewest words until now."""
    best, known = library_best(asked), known_words(asked)
    rows = [("yours", verdict.called, verdict.words)]
    if known is not None:
        rows.append(("best known", asked.idea, known))
    rows.append(("library's best", _called(best.schedule.title, best.tiles), best.cost.total))
    if asked.whole_rows:
        rows.append(_proved("proved for whole rows, no score kept", asked.floor(whole_rows=True)))
    rows.append(_proved("proved", asked.floor()))
    shown = [(f"  {what}", how, f"{asked.score(n):.4f} {asked.per}", f"{n:,} words") for what, how, n in rows]
    beside = ("the best known", known) if known is not None else ("the library's best", best.cost.total)
    lines = [_head(asked), table(shown, left=2), _beside(verdict.words, *beside)]
    if before is not None:
        lines.append(f"Your best before: {before:,} words, {asked.score(before):.4f} {asked.per}.")
    return "\n".join(lines)


def _called(name: str, tiles: Mapping[str, int]) -> str:
    return f"{name}({', '.join(f'{tile}={size}' for tile, size in tiles.items())})"


def _proved(what: str, found: tuple[int, str]) -> tuple[str, str, int]:
    return what, f"bound {found[1]}", found[0]


def _beside(words: int, whose: str, best: int) -> str:
    if words < best:
        return f"{best - words:,} words fewer than {whose}. Have somebody read the schedule."
    return f"Yours moves {words / best:.4f} × the words of {whose}."
