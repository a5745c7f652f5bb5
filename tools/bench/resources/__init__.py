"""Resources of every shipped kernel on every chip, and of the forward pass by tile, found without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice, product
from typing import Any

from iocourse.console import table, times_joined
from iocourse.data.records import (
    COMPILED,
    kernel_row,
    kernels_code,
    load_record,
    record_source,
    run_metadata,
)
from iocourse.gpu import CHIPS
from tools.bench import Row
from tools.bench.resources.compiling import (
    GROUP,
    Compilation,
    code_as_it_stands,
    compiled,
    need_compiler,
    shipped,
    windowed,
)

NAME = "resources"
HELP = "registers, spills, shared memory and hot loop of every kernel on every chip (compiled, no GPU needed)"
HEADS = (64, 128, 256, 512)
PAIRS_HEADS = (64, 128)
DECODE_HEADS = (64, 128, 256)
SLICED_D = 512  # any d runs the same code
# Heads that share keys, which take more registers: query heads per key head, the chips and the head sizes.
VARIANTS = "variants"  # part of a record
GROUPED, GROUPED_ARCHES, GROUPED_HEADS = 4, (80, 90), (64, 128, 256)
BYTES = (2, 4)
# Tiles of the forward pass for the figure of lesson 11: BM, BN, warps.
SWEEP = [(BM, BN, warps) for BM in (64, 128) for BN in (16, 32, 64, 128) for warps in (4, 8)]
WHOLE_RECORD = tuple(CHIPS), HEADS, BYTES, (64, 128)  # architectures, head sizes, widths, heads of the sweep


def run(quick: bool) -> Row:
    """Compile every kernel with its chosen tiles, and the forward pass over other tiles; return the record.

    Args:
        quick: sm_80 and sm_90 at d = 128 in 16 bits only.

    Raises:
        UsageError: torch or triton is missing.
    """
    return record(NAME, *(((80, 90), (128,), (2,)) if quick else WHOLE_RECORD))


def record(
    name: str, arches: Sequence[int], heads: Sequence[int], widths: Sequence[int], swept: Sequence[int] = ()
) -> Row:
    """Compile the kernels shipped for these architectures, head sizes and bytes per number, and the forward
    pass over a range of tiles for the head sizes in `swept`. Return the record. Raises as `run`.
    """
    need_compiler()
    parts = asked_for(arches, heads, widths, swept)
    rows = iter(compiled([*chain(*parts.values())]))
    found = {part: [*islice(rows, len(asked))] for part, asked in parts.items()}
    return {"subject": name, **run_metadata("triton"), **found}


@cache
def kernels_at_hand(capability: int) -> dict[str, dict[str, str]]:
    """Return `records.kernels_code` for the kernels that a GPU runs, as they are now; {} for an unknown GPU.

    A kernel whose source or tile has changed since it was compiled for the record has the fingerprint "".
    """
    from iocourse.kernels.host.choices import table_architecture

    if not (arch := table_architecture(capability)):
        return {}
    now = {kernel_row(one._asdict()): code_as_it_stands(one) for one in every(arch, HEADS, BYTES)}
    known: dict[str, set[tuple[str, str]]] = {}
    for record in filter(None, map(load_record, COMPILED)):
        codes = known.setdefault(record["versions"]["triton"], set())
        codes |= {(kernel_row(row), row["code"]) for row in record["shipped"]}
    return {
        version: {name: rows[name] if (name, code) in known[version] else "" for name, code in now.items()}
        for version, rows in kernels_code().items()
    }


def asked_for(
    arches: Sequence[int], heads: Sequence[int], widths: Sequence[int], swept: Sequence[int] = ()
) -> dict[str, list[Compilation]]:
    """Return the compilations of `record` for the same arguments, by part of the record and in its order."""
    return {
        "shipped": [one for arch in arches for one in every(arch, heads, widths)],
        VARIANTS: [one for arch in arches for one in variants(arch, heads, widths)],
        "forward_by_tile": [one for arch in arches for d in swept for one in _swept(arch, d)],
    }


def every(arch: int, heads: Sequence[int], widths: Sequence[int]) -> Iterator[Compilation]:
    """Yield the compilations of every kernel for one chip, with the tiles that the library chooses."""
    from iocourse.kernels.host.resources import WHOLE

    for d, width in product(heads, widths):
        yield from (asked for kernel in WHOLE for asked in shipped(arch, d, width, kernel))
        yield from _of_decoding(arch, d, width)
    for width in widths:
        yield from _sliced(arch, width)
    for d, pairs in product(PAIRS_HEADS, ("block_mask", "packed")):
        if d in heads:
            yield from _pairs(arch, d, pairs)


def variants(arch: int, heads: Sequence[int], widths: Sequence[int]) -> Iterator[Compilation]:
    """Yield kernels of complete rows in 16 bits for heads that share keys, and for windows."""
    if arch in GROUPED_ARCHES and 2 in widths:
        for d, kernel in product([d for d in GROUPED_HEADS if d in heads], TILED):
            yield from shipped(arch, d, 2, kernel, GROUPED)
            yield from (windowed(arch, d, 2, kernel, group) for group in (1, GROUPED))


def _of_decoding(arch: int, d: int, width: int) -> Iterator[Compilation]:
    """Yield the kernels of decoding, for head sizes that have one."""
    from iocourse.kernels.host.choices import Case, decode_tile
    from iocourse.kernels.host.resources import DECODE

    if d in DECODE_HEADS:
        tile = decode_tile(Case(arch, width, d, "full", GROUP))
        yield from (Compilation(arch, d, width, kernel, False, *tile, group=GROUP) for kernel in DECODE)


def _sliced(arch: int, width: int) -> Iterator[Compilation]:
    """Yield the causal kernels that split d."""
    from iocourse.kernels.host.choices import SLICED, Case, sliced_tile

    for kernel in SLICED:
        tile = sliced_tile(kernel, Case(arch, width, SLICED_D, "causal"))
        yield Compilation(arch, SLICED_D, width, kernel, True, **tile._asdict())


def _pairs(arch: int, d: int, pairs: str) -> Iterator[Compilation]:
    """Yield the kernels of complete rows for block masks or packed sequences, in 16 bits."""
    from iocourse.kernels.host.choices import WHOLE, Case
    from iocourse.kernels.host.choices import tile as tile_of

    case = Case(arch, 2, d, "blocks" if pairs == "block_mask" else "packed")
    for kernel in WHOLE:
        yield Compilation(arch, d, 2, kernel, True, *tile_of(kernel, case), pairs=pairs)


def _swept(arch: int, d: int) -> Iterator[Compilation]:
    for BM, BN, warps in SWEEP:
        yield Compilation(arch, d, 2, "forward", True, BM, BN, warps, 1 if arch == 75 else 2)


# ---------------------------------------------------------------------- as a table
TILED = ("forward", "fused", "queries", "keys")  # one iteration of these computes BM × BN scores
# Counts of the hot loop in the table.
COUNTED = ("wgmma", "mma", "tcgen05", "special", "barriers", "global_loads", "shared_loads", "spills")


def a_score(row: dict[str, Any]) -> float | None:
    """Return a thread's instructions per score in the hot loop; None for kernels that split d, whose
    iterations compute only partial scores, and if no hot loop is recorded.
    """
    loop = row.get("hot_loop")
    if not loop or row["BD"] is not None or row["kernel"] not in TILED:
        return None
    return float(loop["instructions"] * 32 * row["warps"] / (row["BM"] * row["BN"]))


def show(result: dict[str, Any]) -> str:
    """Format the shipped rows as plain text, one line per kernel. The columns after shared memory are for the
    hot loop: a thread's instructions per iteration and per score, tensor-core instructions by kind, special
    ones, barriers, loads, and spills.
    """
    rows = [*result["shipped"], *result[VARIANTS]]
    lines = [["", "BM×BN(×BD)×warps×stages", "registers", "spilled", "KB shared", "step", "score", *COUNTED]]
    lines += [_line(row) for row in rows]
    refused = [f"{' '.join(_line(row)[:2])}: {row['error']}" for row in rows if "error" in row]
    how = f"{len(rows)} kernels compiled with {record_source(result)}"
    return "\n".join([table(lines), *refused, how])


def _line(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row: the kernel, its tile and its resources; empty if it did not compile."""
    name = f"sm_{row['arch']} d={row['d']} {8 * row['bytes']} bit {row['kernel']}"
    name += " causal" * row["causal"] + f" {row['pairs']}" * (row["pairs"] != "band")
    group = row.get("group", 1)
    name += f" group {group}" * (group != 1)
    sizes = (row[part] for part in ("BM", "BN", "BD", "warps", "stages"))
    tile = times_joined(sizes)
    if "error" in row:
        return [name, tile, *[""] * (5 + len(COUNTED))]
    taken = [str(row["registers"]), str(row["spill_bytes"]), f"{row['shared_bytes'] / 1024:.1f}"]
    loop, each = row.get("hot_loop"), a_score(row)
    if not loop:
        return [name, tile, *taken, *[""] * (2 + len(COUNTED))]
    step = [str(loop["instructions"]), "" if each is None else f"{each:.2f}"]
    return [name, tile, *taken, *step, *(str(loop[kind]) for kind in COUNTED)]
