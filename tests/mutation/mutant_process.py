"""Run each mutant in a separate process with limits, and return the verdict of its exercise's judge."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic, process_time
from typing import NoReturn

from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import Exercise, find
from tests.mutation.mutants import Mutant
from tests.mutation.references import INTERPRETED, before, build, exercise_source

LEAST = 1.0  # seconds of processor time that every mutant has
TIMES = 5  # times the processor time of the reference
WAITING = 30.0  # seconds on the clock, in addition to 30 times its processor time, until a mutant is stopped
ROOM = 2**30  # bytes in addition to those of the process that forks
OUT_OF_TIME, ENDED = "out of time", "ended without a verdict"


@dataclass(frozen=True)
class Verdict:
    """Verdict on a mutant.

    Attributes:
        mutant: the mutant.
        killed_in: the first property that rejected it, or how it ended; "" if every seed accepted it.
        accepted: number of seeds that accepted it.
        failed: for each seed that was completed, the properties that do not hold.
    """

    mutant: Mutant
    killed_in: str
    accepted: int
    failed: tuple[tuple[str, ...], ...] = ()

    @property
    def killed(self) -> bool:
        """True if the first seed rejected it. Rejection by a later seed only is a result of chance."""
        return bool(self.killed_in) and not self.accepted

    @property
    def by_chance(self) -> bool:
        """True if some seeds accepted it and a later one rejected it."""
        return bool(self.killed_in) and bool(self.accepted)


@dataclass
class _Run:
    mutant: Mutant
    pid: int
    due: float
    said: bytes = b""


def verdicts(
    mutants: Iterable[Mutant],
    seeds: Sequence[int],
    jobs: int,
    *,
    every_seed: bool = False,
    every_case: bool = False,
) -> Iterator[Verdict]:
    """Yield the verdict on each mutant when it is known; `jobs` mutants run at the same time.

    A mutant is tried on one seed after another until one rejects it; with `every_seed`, on all. A mutant of a
    kernel is first tried on the first case, which rejects most; with `every_case`, on all cases at once.
    """
    running: dict[int, _Run] = {}
    waiting = iter(mutants)
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            pipe, run = _start(mutant, seeds, every_seed, every_case)
            running[pipe] = run
        if not running:
            return
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for pipe in ready:
            heard = os.read(pipe, 65536)
            running[pipe].said += heard
            if not heard:
                yield _end(pipe, running.pop(pipe))
        for run in running.values():
            if monotonic() > run.due:
                os.kill(run.pid, signal.SIGKILL)


@cache
def seconds_for(exercise_id: str) -> float:
    """Limit of processor seconds per seed for mutants of this exercise, from a run of the reference."""
    reference = build(exercise_id, exercise_source(exercise_id, solved=True))
    began = process_time()
    complaints = [f"{name}: {seen}" for name, seen in judge(find(exercise_id), reference, 0) if seen]
    assert not complaints, f"the reference of {exercise_id} is refused: {complaints[0]}"
    return max(LEAST, TIMES * (process_time() - began))


def _start(mutant: Mutant, seeds: Sequence[int], every_seed: bool, every_case: bool) -> tuple[int, _Run]:
    seconds = seconds_for(mutant.exercise)
    before(mutant.exercise)
    pipe, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        _child(mutant, seeds, every_seed, every_case, seconds, end)
    os.close(end)
    return pipe, _Run(mutant, pid, monotonic() + WAITING + 30 * seconds)


def _child(
    mutant: Mutant, seeds: Sequence[int], every_seed: bool, every_case: bool, seconds: float, end: int
) -> NoReturn:
    """Judge the mutant on one seed after another, write the results to the pipe, and end the process."""
    try:
        gc.disable()
        faulthandler.disable()
        _quiet()
        _limit_memory()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process that has no handler for it
            seen = _failed(mutant, seed, every_case)
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(end, json.dumps(seen).encode() + b"\n")
            if seen and not every_seed:
                break
    finally:
        os._exit(0)


def _failed(mutant: Mutant, seed: int, every_case: bool) -> list[str]:
    """Names of the properties that reject the mutant; empty if all hold."""
    try:
        function = build(mutant.exercise, mutant.source)
    except Exception as error:
        return [f"cannot be defined: {type(error).__name__}"]
    exercise = find(mutant.exercise)
    first = exercise.lesson[:2] in INTERPRETED and not every_case
    for one in [_first_case(exercise), exercise] if first else [exercise]:
        if failed := failed_properties(judge(one, function, seed)):
            return list(failed)
    return []


def _first_case(exercise: Exercise) -> Exercise:
    """Return the exercise with its first case only, a quick check that rejects most mutants.

    Each property of a kernel is judged case by case, so the complete check rejects them too.
    """
    return replace(exercise, cases=lambda rng: exercise.cases(rng)[:1])


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _limit_memory() -> None:
    import resource

    pages = Path("/proc/self/statm")
    if pages.exists():
        most = int(pages.read_text().split()[0]) * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _end(pipe: int, run: _Run) -> Verdict:
    os.close(pipe)
    _, status = os.waitpid(run.pid, 0)
    said = [json.loads(line) for line in run.said.splitlines()]
    accepted = said.count([])
    killed_in = next((seen[0] for seen in said if seen), "")
    if os.WIFSIGNALED(status):
        killed_in = OUT_OF_TIME if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL) else ENDED
    elif not said:
        killed_in = ENDED
    return Verdict(run.mutant, killed_in, accepted, tuple(map(tuple, said)))
