"""Compilation before anything is timed, in parallel processes.

Triton caches compiled kernels on disk, for all processes of a user, by source, types and alignment of the
arguments, and options. Therefore a process records the launches of a problem on tensors without numbers, and
compiles them with Triton's JIT without running them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import zip_longest
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.data.records import run_metadata
from iocourse.gpu.roofline import PASSES
from tools.bench import cases, problems
from tools.bench.contest import Tensor, reason_of, work_of
from tools.bench.problems import ONE_FILE, OURS

if TYPE_CHECKING:
    from iocourse.kernels.host.launches import Launch

MOST = 16  # processes
WAIT = 1.0  # seconds after which the caller can look at the time


def in_processes(work: Callable[..., Any], jobs: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Run `work(*job)` for every job, in one process per core and at most MOST. Yields the results since the
    last yield, at least once per second; when the iterator is closed, jobs that have not begun are dropped.
    """
    if not jobs:
        return
    pool = ProcessPoolExecutor(max(1, min(MOST, run_metadata()["cores"], len(jobs))), get_context("spawn"))
    try:
        left: set[Future[Any]] = {pool.submit(work, *job) for job in jobs}
        while left:
            done, left = wait(left, WAIT, FIRST_COMPLETED)
            yield [one.result() for one in done]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compile_all(written: Sequence[Launch]) -> None:
    """Compile recorded launches for the current device."""
    for launch in written:
        launch.kernel.warmup(*launch.arguments, grid=(1,), **launch.constants)


class Wanted(NamedTuple):
    """One thing to compile: our implementation at a shape of a step."""

    step: str
    shape: Any
    contender: str


def wanted(steps: Sequence[str], quick: bool) -> list[Wanted]:
    """Return our implementations at all shapes of these comparisons, the first shape of each step first. The
    tuner of `ONE_FILE` compiles its kernels itself.
    """
    from tools.bench.contests import CONTESTS

    each = []
    for name in steps:
        one = CONTESTS[name]
        field = [who for who in one.contenders(None) if who in OURS and who != ONE_FILE]
        shapes = [*one.small, *one.shapes(quick)]
        each.append([Wanted(name, shape, who) for shape in shapes for who in field
                     if one.takes_part(shape, who)])  # fmt: skip
    return [one for row in zip_longest(*each) for one in row if one is not None]


def compile_one(arch: int, multiprocessors: int, step: str, shape: Any, contender: str) -> str:
    """Compile the launches of one `Wanted` in this process, which must do nothing else afterwards. Returns
    the reason of a failure, or "".
    """
    import torch

    from iocourse.kernels.host import checks, launches
    from tools.bench.contests import CONTESTS

    torch.set_num_threads(1)  # block masks are evaluated here, and each process has one core
    # The tensors are on the CPU: large ones are allocated and never written, so they take no memory.
    for module, name, instead in (
        (checks, "_check_device", lambda device: None),
        (launches, "processors", lambda arch, device: multiprocessors),
        (cases, "normal", _without_numbers), (problems, "normal", _without_numbers),
    ):  # fmt: skip
        setattr(module, name, instead)
    one = CONTESTS[step]
    try:
        given = one.problem(shape, "cpu", 0).given_to(contender)
        pass_ = PASSES[0] if len(one.passes) == 1 else PASSES[-1]
        work: Any = work_of(one.contenders(None)[contender], given, pass_)
        with launches.record_launches(arch) as written:
            work()
        compile_all(written)
    except Exception as error:
        return f"{step}, {contender}, {shape}: {reason_of(error)}"
    return ""


def _without_numbers(sizes: tuple[int, ...], count: int, dtype: str, device: str, seed: int) -> list[Tensor]:
    import torch

    return [torch.empty(sizes, dtype=getattr(torch, dtype), device=device) for _ in range(count)]
