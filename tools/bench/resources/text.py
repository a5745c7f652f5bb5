"""What the compiler said, as a table."""

from __future__ import annotations

from typing import Any

from iocourse.console import table, times_joined
from iocourse.data.records import record_source

TILED = ("forward", "fused", "queries", "keys")  # a step of these makes BM × BN scores
# Of the counts of a hot loop, those that are shown.
COUNTED = ("wgmma", "mma", "tcgen05", "special", "barriers", "global_loads", "shared_loads", "spills")


def a_score(row: dict[str, Any]) -> float | None:
    """Instructions a thread issues for each of its scores, in the hot loop; None for a kernel that cuts d, of
    which a step makes no whole score, and where no hot loop is recorded.
    """
    loop = row.get("hot_loop")
    if not loop or row["BD"] is not None or row["kernel"] not in TILED:
        return None
    return float(loop["instructions"] * 32 * row["warps"] / (row["BM"] * row["BN"]))


def table_of(result: dict[str, Any]) -> str:
    """The shipped rows as plain text, one line a kernel. What follows the shared memory is of the hot
    loop: instructions a thread and step, for each score, of tensor cores by kind, waits for other
    warps, loads, and spills.
    """
    rows = result["shipped"]
    lines = [["", "BM×BN(×BD)×warps×stages", "registers", "spilled", "KB shared", "step", "score", *COUNTED]]
    lines += [_line(row) for row in rows]
    refused = [f"{' '.join(_line(row)[:2])}: {row['error']}" for row in rows if "error" in row]
    how = f"{len(rows)} kernels compiled with {record_source(result)}"
    return "\n".join([table(lines), *refused, how])


def _line(row: dict[str, Any]) -> list[str]:
    """The kernel, its tile and its facts; empty where it could not be compiled."""
    name = f"sm_{row['arch']} d={row['d']} {8 * row['bytes']} bit {row['kernel']}"
    name += " causal" * row["causal"] + f" {row['pairs']}" * (row["pairs"] != "band")
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
