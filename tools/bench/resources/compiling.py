"""Compilation of shipped kernels: rows by chip, size and tile, with resources and code fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.console import with_progress_bar
from iocourse.errors import UsageError
from iocourse.gpu import CompilationFailed, Resources
from iocourse.gpu.compilation import job, reports
from tools.bench import Row
from tools.bench.resources.code_fingerprint import fingerprint

if TYPE_CHECKING:
    from iocourse.kernels.host.launches import Launch

GROUP = 8  # query heads per key head in the decode step
PROCESSES = 2
WINDOW = "window"  # among the kinds of pairs of a row: a band with a lower and an upper limit


def need_compiler() -> None:
    """Raise UsageError if torch or triton is missing."""
    try:
        import iocourse.kernels.host.resources  # noqa: F401
    except ImportError as error:
        raise UsageError(str(error)) from None


class Compilation(NamedTuple):
    """One kernel to compile: architecture, sizes and tile. BD is None for tiles of complete rows."""

    arch: int
    d: int
    bytes: int
    kernel: str
    causal: bool
    BM: int
    BN: int
    warps: int
    stages: int
    BD: int | None = None
    pairs: str = "band"
    group: int = 1  # query heads per key head


Launched = Callable[[Compilation], "Launch"]


def shipped(arch: int, d: int, width: int, kernel: str, group: int = 1) -> Iterator[Compilation]:
    """Yield a kernel of complete rows with its chosen tiles, full and causal."""
    from iocourse.kernels.host.choices import Case
    from iocourse.kernels.host.choices import tile as tile_of
    from iocourse.kernels.host.launches import row_products_tile

    for causal in (False, True):
        case = Case(arch, width, d, "causal" if causal else "full", group)
        tile = row_products_tile(d) if kernel == "row_products" else tile_of(kernel, case)
        yield Compilation(arch, d, width, kernel, causal, *tile, group=group)


def windowed(arch: int, d: int, width: int, kernel: str, group: int) -> Compilation:
    """Return a kernel of complete rows with its chosen tile for a band with both limits."""
    from iocourse.kernels.host.choices import Case
    from iocourse.kernels.host.choices import tile as tile_of

    tile = tile_of(kernel, Case(arch, width, d, "window", group))
    return Compilation(arch, d, width, kernel, False, *tile, pairs=WINDOW, group=group)


def compiled(asked: Sequence[Compilation], launched: Launched | None = None) -> list[Row]:
    """Compile the rows in a few parallel processes, and return each row with its resources or error.

    launched: returns the launch of a row; None: `launch_of`.
    """
    launched = launched or launch_of
    shares = [asked[first::PROCESSES] for first in range(PROCESSES)]
    rows: list[Row] = []
    with ThreadPoolExecutor(PROCESSES) as pool:
        queues = [reports([job_of(one.arch, launched(one)) for one in share]) for share in shares]
        for first in with_progress_bar(range(0, len(asked), PROCESSES), "kernels compiled, a few at a time"):
            some = asked[first : first + PROCESSES]
            answers = pool.map(next, queues[: len(some)])
            rows += [_row(one, answer, launched) for one, answer in zip(some, answers, strict=True)]
    return rows


def code_as_it_stands(one: Compilation, launched: Launched | None = None) -> str:
    """Return the fingerprint (see `code_fingerprint`) of the code that would be compiled for this row now;
    launched as in `compiled`.
    """
    made = (launched or launch_of)(one)
    return fingerprint(made.kernel, job_of(one.arch, made))


def job_of(arch: int, made: Launch) -> Row:
    """Return the compiler's job for a launch of a kernel in a module, for which no source file is written."""
    return job(made.kernel, arch, made.arguments, {"enable_fp_fusion": True} | made.constants, Path())


def launch_of(one: Compilation) -> Launch:
    """Return the launch that is compiled for a row."""
    import torch

    from iocourse.kernels.host.resources import DECODE, launches

    # T4 does not support bfloat16; on other chips it is the usual type for training.
    half = torch.float16 if one.arch == 75 else torch.bfloat16
    tiled = one.kernel != "row_products" and one.kernel not in DECODE
    sizes = (one.BM, one.BN) if one.BD is None else (one.BM, one.BN, one.BD)
    tile: dict[str, Any] = {one.kernel: (*sizes, one.warps, one.stages)} if tiled else {}
    dtype = half if one.bytes == 2 else torch.float32
    window, pairs = ((64, 64), "band") if one.pairs == WINDOW else (None, one.pairs)
    made = launches(
        one.arch, one.d, dtype, causal=one.causal, group=one.group, window=window, pairs=pairs, **tile
    )
    return made[one.kernel]


def _row(one: Compilation, answer: Resources | CompilationFailed, launched: Launched) -> Row:
    asked = one._asdict() | {"code": code_as_it_stands(one, launched)}
    if isinstance(answer, CompilationFailed):
        return asked | {"error": str(answer)}
    facts = asdict(answer)
    del facts["arch"], facts["seconds"]  # arch is in the row already; seconds change in every run
    if facts["hot_loop"]:
        del facts["hot_loop"]["opcodes"]  # some forty names per row, which no table shows
    return asked | facts
