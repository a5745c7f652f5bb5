"""Short names for what declarations read: rows of a record, the default tile, and the default variant."""

from __future__ import annotations

from typing import Any

from iocourse.data import records

Row = dict[str, Any]
__all__ = ["device", "launch", "mean", "ratio", "row", "rows", "tile"]


def rows(record: str, part: str = "rows", **fields: object) -> list[Row]:
    """Return the rows of a part of a record whose fields have these values; `pass_` stands for "pass".

    Raises LookupError if there is no such record, part or row.
    """
    found = records.load_record(record)
    if found is None or part not in found:
        raise LookupError(f"the record {record} has no {part}")
    wanted = {name.rstrip("_"): value for name, value in fields.items()}
    chosen = [one for one in found[part] if all(one.get(name) == value for name, value in wanted.items())]
    if not chosen:
        raise LookupError(f"no row of {record} has {wanted}")
    return chosen


def row(record: str, part: str = "rows", **fields: object) -> Row:
    """Return the only row of a record with these values. Raises LookupError if there are several or none."""
    found = rows(record, part, **fields)
    if len(found) > 1:
        raise LookupError(f"{len(found)} rows of {record} have {fields}: name more fields")
    return found[0]


def ratio(record: str, slow: str, fast: str, **fields: object) -> float:
    """Return the speed of `fast` relative to `slow`, two implementations with one row each."""
    return float(row(record, contender=slow, **fields)["ms"] / row(record, contender=fast, **fields)["ms"])


def mean(record: str, name: str, pass_: str, d: int) -> float:
    """Return the recorded geometric mean of the speed of an implementation relative to SDPA flash."""
    return float(row(record, "means", contender=name, pass_=pass_, d=d)["ratio"])


def device(record: str) -> Row:
    """Return the device of a record: name, `multiprocessors`, `l2_bytes`, `memory_bytes` and others."""
    found = records.load_record(record)
    if found is None:
        raise LookupError(f"there is no record {record}")
    return dict(found["device"])


def tile(kernel: str, arch: int, d: int, itemsize: int = 2, causal: bool | None = False) -> tuple[int, int]:
    """Return the default tile (BM, BN) of a kernel; causal: None for the table without measured tiles."""
    from iocourse.kernels.host.tile_table import tiles_for

    chosen = getattr(tiles_for(arch, d, itemsize, causal=causal), kernel)
    return chosen.BM, chosen.BN


def launch(arch: int | None, d: int, itemsize: int = 2, mask: str = "full", pairs: str = "band",
           group: int = 1, rows: int = 2**16, matrix_bytes: int = 2**25) -> Any:  # fmt: skip
    """Return the properties of a backward pass, for `dispatch.why_fused` and `dispatch.why_no_matrix`."""
    from iocourse.kernels.host.dispatch import Backward

    return Backward(arch, d, itemsize, mask, pairs, group, rows, matrix_bytes)
