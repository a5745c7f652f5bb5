"""Measured rates of recorded runs that belong into a roofline: same chip, head size, length and mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...data.recorded import NONE_YET, provenance, recorded
from .roofline_explorer import PASSES, Point, Sizes, points

Record = Mapping[str, Any]
Row = Mapping[str, Any]
NAMES = ("resources", "attention", "sparse", "decode")  # the first for tiles, the others measured on a GPU
OURS = "ours"
TYPES = ("bfloat16", "float16")
NEAR = 0.03  # how far a mask's share of the pairs may lie from the density asked for
UNMASKED = "no mask"  # rows of the kernel that knows of no mask


class Measured(NamedTuple):
    """A recorded rate of our kernels: the pass, FLOP a compulsory byte, TFLOP/s, and the sizes it had."""

    name: str
    intensity: float
    tflops: float
    sizes: str


@lru_cache(maxsize=1)
def _shipped_records() -> dict[str, Record]:
    return {name: recorded(name) or {} for name in NAMES}


def records_of(given: Mapping[str, Record | None] | None) -> dict[str, Record]:
    """Records by name, {} where there is none; None stands for those that are shipped."""
    if given is None:
        return _shipped_records()
    return {name: given.get(name) or {} for name in NAMES}


def measured(s: Sizes, records: Mapping[str, Record]) -> list[Measured]:
    """What was recorded for these sizes on this chip, a pass at most once. Batches and heads are the run's
    own, because a rate hardly depends on how many heads there are; for decode they are those asked for.
    """
    on_chip = {name: record for name, record in records.items() if _arch(record) == s.arch}
    rows = [*_dense(s, on_chip), *_decoding(s, on_chip), *_sparse(s, on_chip)]
    found: dict[str, Measured] = {}
    for name, row in rows:
        found.setdefault(name, _measured(s, name, row))
    return [found[name] for name in PASSES if name in found]


def remark(s: Sizes, records: Mapping[str, Record]) -> str:
    """Where measured rates come from, or that there are none."""
    runs = [record for name, record in records.items() if name != "resources" and record]
    if not runs:
        return f"Measured: {NONE_YET}."
    if not measured(s, records):
        return f"Measured: nothing recorded for N = {s.N:,}, d = {s.d:,} and these masks on {s.chip.name}."
    here = dict.fromkeys(provenance(dict(record)) for record in runs if _arch(record) == s.arch)
    return f"Measured (◆): {'; '.join(here)}."


def _arch(record: Record) -> int | None:
    return (record.get("device") or {}).get("arch")


def _ours(record: Record, s: Sizes, key: str = "rows") -> Iterator[Row]:
    """Rows of our kernels that were timed, of this N and d, in 16 bits."""
    for row in record.get(key, ()):
        same = (row["N"], row["d"]) == (s.N, s.d) and row["dtype"] in TYPES
        if row["contender"] == OURS and "ms" in row and same:
            yield row


def _dense(s: Sizes, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    for row in _ours(records.get("attention", {}), s):
        if row["causal"] == s.causal and row["pass"] in PASSES:
            yield row["pass"], row


def _decoding(s: Sizes, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    for row in _ours(records.get("decode", {}), s):
        if (row["B"], row["H"], row["H_kv"]) == (s.B, s.H, s.H_kv):
            yield "decode", row


def _sparse(s: Sizes, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    record = records.get("sparse", {})
    rows = [*_ours(record, s, "density_rows"), *_ours(record, s)]
    masked = [row for row in rows if row["pass"] == "forward" and row["mask"] != UNMASKED]
    near = [row for row in masked if abs(row["density"] - s.density) <= NEAR]
    for row in sorted(near, key=lambda row: abs(float(row["density"]) - s.density)):
        yield "block-sparse", row


def _measured(s: Sizes, name: str, row: Row) -> Measured:
    """The row at its own intensity: `points` of its own batches and heads."""
    H = row["H"]
    own = s._replace(B=row["B"], H=H, H_kv=row.get("H_kv", H))
    point: Point = next(one for one in points(own) if one.name == name)
    tflops = row["tflops"] if "tflops" in row else point.flop / row["ms"] / 1e9
    density = f", {row['mask']}, density {row['density']:.3f}" if name == "block-sparse" else ""
    return Measured(name, point.intensity, tflops, f"B = {own.B}, H = {H}, H_kv = {own.H_kv}{density}")
