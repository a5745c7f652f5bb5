"""What every shipped kernel takes of every chip, and how that changes with the tile: compiled, with no GPU
needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.bench import circumstances
from iocourse.console import steps, table
from iocourse.data.recorded import provenance
from iocourse.gpu import CHIPS, CompilationFailed, Resources
from iocourse.gpu.jobs import job
from iocourse.gpu.resources import reports
from iocourse.refusal import Refused

if TYPE_CHECKING:
    from iocourse.lowrank.tensors.written import Written

NAME = "resources"
HELP = "registers, spills and shared memory of every kernel on every chip (compiled, no GPU needed)"
HEADS = (64, 128, 256, 512)
PAIRS_HEADS = (64, 128)
DECODE_HEADS = (64, 128, 256)
SLICED_D = 512  # any d runs the same code
BYTES = (2, 4)
GROUP = 8  # query heads for each head of keys in the decode step
PROCESSES = 2
# The forward pass once for each of these, for the picture of lesson 11: BM, BN, warps.
SWEEP = [(BM, BN, warps) for BM in (64, 128) for BN in (16, 32, 64, 128) for warps in (4, 8)]


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


def run(quick: bool) -> dict[str, Any]:
    """Compile every row of the tile table, and the forward pass over a range of tiles.

    Args:
        quick: sm_80 and sm_90 at d = 128 in 16 bits only.

    Raises:
        Refused: torch or triton is missing.
    """
    try:
        from iocourse.kernels.host.resources import WHOLE
    except ImportError as error:
        raise Refused(str(error)) from None
    arches, heads, widths = ((80, 90), (128,), (2,)) if quick else (tuple(CHIPS), HEADS, BYTES)
    sizes = [(arch, d, width) for arch in arches for d in heads for width in widths]
    table = [asked for size in sizes for name in WHOLE for asked in _shipped(*size, name)]
    table += [asked for arch in arches for width in widths for asked in _sliced(arch, width)]
    table += [asked for arch in arches for d in heads for asked in _pairs(arch, d)]
    table += [asked for size in sizes for asked in _decode(*size)]
    sweep = [] if quick else [asked for arch in arches for d in (64, 128) for asked in _swept(arch, d)]
    rows = _compiled([*table, *sweep, *_low_rank(arches)])
    last = len(table) + len(sweep)
    return {
        "subject": NAME,
        **circumstances("triton"),
        "shipped": rows[: len(table)],
        "forward_by_tile": rows[len(table) : last],
        "low_rank": rows[last:],
    }


def _shipped(arch: int, d: int, width: int, kernel: str) -> Iterator[Compilation]:
    from iocourse.kernels.host.tiles import row_products_tile, tiles_for

    tile = row_products_tile(d) if kernel == "row_products" else getattr(tiles_for(arch, d, width), kernel)
    for causal in (False, True):
        yield Compilation(arch, d, width, kernel, causal, *tile)


def _sliced(arch: int, width: int) -> Iterator[Compilation]:
    """The kernels that cut d, with the diagonal's mask."""
    from iocourse.kernels.host.tiles import sliced_tiles_for

    for kernel, tile in sliced_tiles_for(arch, width)._asdict().items():
        yield Compilation(arch, SLICED_D, width, kernel, True, **tile._asdict())


def _pairs(arch: int, d: int) -> Iterator[Compilation]:
    """The kernels of whole rows for block masks and packed sequences, in 16 bits."""
    from iocourse.kernels.host.tiles import Tiles, tiles_for

    if d in PAIRS_HEADS:
        for pairs in ("block_mask", "packed"):
            for kernel in Tiles._fields:
                tile = getattr(tiles_for(arch, d, 2, listed=pairs == "block_mask"), kernel)
                yield Compilation(arch, d, 2, kernel, True, *tile)._replace(pairs=pairs)


def _decode(arch: int, d: int, width: int) -> Iterator[Compilation]:
    from iocourse.kernels.host.resources import DECODE
    from iocourse.kernels.host.tiles import decode_tile

    if d in DECODE_HEADS:
        tile = decode_tile(arch, d, width, GROUP)
        for kernel in DECODE:
            yield Compilation(arch, d, width, kernel, False, *tile)


def _swept(arch: int, d: int) -> Iterator[Compilation]:
    for BM, BN, warps in SWEEP:
        yield Compilation(arch, d, 2, "forward", True, BM, BN, warps, 1 if arch == 75 else 2)


def _low_rank(arches: Sequence[int]) -> list[Written]:
    """The kernels of low rank, in 16 bits: what they hold and multiply is float32 in any case."""
    from iocourse.lowrank.tensors.written import SIZES, launches

    return [one for arch in arches for size in SIZES for one in launches(arch, *size, 2)]


def _compiled(asked: Sequence[Compilation | Written]) -> list[dict[str, Any]]:
    """Each row with its report, compiled by a few processes side by side."""
    shares = [asked[first::PROCESSES] for first in range(PROCESSES)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        queues = [reports(list(_jobs(share, Path(folder)))) for share in shares]
        done: dict[Compilation | Written, dict[str, Any]] = {}
        for first in steps(range(0, len(asked), PROCESSES), "kernels compiled, a few at a time"):
            round_ = asked[first : first + PROCESSES]
            answers = pool.map(next, queues[: len(round_)])
            done |= {one: one._asdict() | _facts(answer) for one, answer in zip(round_, answers, strict=True)}
    return [done[one] for one in asked]


def _jobs(share: Sequence[Compilation | Written], folder: Path) -> Iterator[dict[str, Any]]:
    import torch

    from iocourse.kernels.host.resources import DECODE, launches
    from iocourse.lowrank.tensors import written

    for one in share:
        if isinstance(one, written.Written):
            made = written.launches(one.arch, one.d, one.g, one.bytes)[one]
            yield job(made.kernel, one.arch, made.arguments, made.constants, folder)
            continue
        # A T4 has no bfloat16 units; elsewhere bfloat16 is what people train with.
        half = torch.float16 if one.arch == 75 else torch.bfloat16
        dtype = half if one.bytes == 2 else torch.float32
        group = GROUP if one.kernel in DECODE else 1
        known = launches(
            one.arch, one.d, dtype, causal=one.causal, group=group, pairs=one.pairs, **_tile_of(one)
        )
        made = known[one.kernel]
        yield job(made.kernel, one.arch, made.arguments, {"enable_fp_fusion": True} | made.constants, folder)


def _tile_of(one: Compilation) -> dict[str, Any]:
    from iocourse.kernels.host.resources import DECODE

    if one.kernel == "row_products" or one.kernel in DECODE:
        return {}
    sizes = (one.BM, one.BN) if one.BD is None else (one.BM, one.BN, one.BD)
    return {one.kernel: (*sizes, one.warps, one.stages)}


def _facts(answer: Resources | CompilationFailed) -> dict[str, Any]:
    if isinstance(answer, CompilationFailed):
        return {"error": str(answer)}
    facts = asdict(answer)
    del facts["arch"], facts["seconds"]  # the first is in the row already; the second would change every time
    return facts


def show(result: dict[str, Any]) -> str:
    """The shipped rows as plain text: one line a kernel, the worse of plain and causal; then low rank."""
    lines = [["", "BM×BN(×BD)×warps×stages", "registers", "spilled", "KB shared", "tensor"]]
    lines += [_line(row) for row in result["shipped"]]
    lines += [_low_rank_line(row) for row in result.get("low_rank", ())]
    refused = [f"{' '.join(_line(row)[:2])}: {row['error']}" for row in result["shipped"] if "error" in row]
    how = f"{len(result['shipped'])} kernels compiled with {provenance(result)}"
    return "\n".join([table(lines), *refused, how])


def _low_rank_line(row: dict[str, Any]) -> list[str]:
    """As `_line`: rows and features stand for BM and BN."""
    tile = {"BM": row["rows"], "BN": row["features"], "BD": None, "stages": 1, "pairs": f"g={row['g']}"}
    return _line(row | tile | {"kernel": f"low rank {row['kernel']}"})


def _line(row: dict[str, Any]) -> list[str]:
    """The kernel, its tile and its four facts; empty where it could not be compiled."""
    name = f"sm_{row['arch']} d={row['d']} {8 * row['bytes']} bit {row['kernel']}"
    name += " causal" * row["causal"] + f" {row['pairs']}" * (row["pairs"] != "band")
    sizes = (row[part] for part in ("BM", "BN", "BD", "warps", "stages"))
    tile = "×".join(str(size) for size in sizes if size is not None)
    if "error" in row:
        return [name, tile, *[""] * 4]
    shared = f"{row['shared_bytes'] / 1024:.1f}"
    return [name, tile, str(row["registers"]), str(row["spill_bytes"]), shared, str(row["tensor_core"])]
