"""Kernels named by chip, size and tile, what the compiler says of each, and of which code it says that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.console import steps
from iocourse.errors import UsageError
from iocourse.gpu import CompilationFailed, Resources
from iocourse.gpu.compilation import job, reports
from tools.bench import Row
from tools.bench.resources.code_fingerprint import fingerprint

if TYPE_CHECKING:
    from iocourse.kernels.host.launches import Launch

GROUP = 8  # query heads for each head of keys in the decode step
PROCESSES = 2


def need_compiler() -> None:
    """Raises UsageError where torch or triton is missing."""
    try:
        import iocourse.kernels.host.resources  # noqa: F401
    except ImportError as error:
        raise UsageError(str(error)) from None


class Compilation(NamedTuple):
    """One kernel to compile. BD is None where tiles are whole rows."""

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


def shipped(arch: int, d: int, width: int, kernel: str) -> Iterator[Compilation]:
    """A kernel of whole rows with the tiles that it is launched with, plain and causal."""
    from iocourse.kernels.host.tile_table import row_products_tile, tiles_for

    for causal in (False, True):
        tiles = tiles_for(arch, d, width, causal=causal)
        tile = row_products_tile(d) if kernel == "row_products" else getattr(tiles, kernel)
        yield Compilation(arch, d, width, kernel, causal, *tile)


def compiled(asked: Sequence[Compilation]) -> list[Row]:
    """Each row with its report, compiled by a few processes side by side."""
    shares = [asked[first::PROCESSES] for first in range(PROCESSES)]
    rows: list[Row] = []
    with ThreadPoolExecutor(PROCESSES) as pool:
        queues = [reports([job_of(one.arch, launch_of(one)) for one in share]) for share in shares]
        for first in steps(range(0, len(asked), PROCESSES), "kernels compiled, a few at a time"):
            some = asked[first : first + PROCESSES]
            answers = pool.map(next, queues[: len(some)])
            rows += [_row(one, answer) for one, answer in zip(some, answers, strict=True)]
    return rows


def code_as_it_stands(one: Compilation) -> str:
    """The fingerprint (see `code_fingerprint`) of what would be compiled for this row now."""
    made = launch_of(one)
    return fingerprint(made.kernel, job_of(one.arch, made))


def job_of(arch: int, made: Launch) -> Row:
    """What the compiler is given for the launch of a module's kernel, of which nothing need be written."""
    return job(made.kernel, arch, made.arguments, {"enable_fp_fusion": True} | made.constants, Path())


def launch_of(one: Compilation) -> Launch:
    """The launch that is compiled for a row."""
    import torch

    from iocourse.kernels.host.resources import DECODE, launches

    # A T4 has no bfloat16 units; elsewhere bfloat16 is what people train with.
    half = torch.float16 if one.arch == 75 else torch.bfloat16
    tiled = one.kernel != "row_products" and one.kernel not in DECODE
    sizes = (one.BM, one.BN) if one.BD is None else (one.BM, one.BN, one.BD)
    tile: dict[str, Any] = {one.kernel: (*sizes, one.warps, one.stages)} if tiled else {}
    group = GROUP if one.kernel in DECODE else 1
    dtype = half if one.bytes == 2 else torch.float32
    made = launches(one.arch, one.d, dtype, causal=one.causal, group=group, pairs=one.pairs, **tile)
    return made[one.kernel]


def _row(one: Compilation, answer: Resources | CompilationFailed) -> Row:
    asked = one._asdict() | {"code": code_as_it_stands(one)}
    if isinstance(answer, CompilationFailed):
        return asked | {"error": str(answer)}
    facts = asdict(answer)
    del facts["arch"], facts["seconds"]  # the first is in the row already; the second would change every time
    return asked | facts
