"""Short names for what declarations read: rows of a record, the default tile, and the case of a choice."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from iocourse.data import records
from iocourse.gpu.choices import Case, Choice, recorded

Row = dict[str, Any]
# Fields that distinguish the shapes of a record.
_SHAPE = ("dtype", "d", "N", "B", "H", "H_kv", "causal", "mask", "lengths", "pass")
__all__ = ["checkout", "choice", "device", "goal", "launch", "mean", "row", "rows", "speeds", "tile"]


def rows(record: str, part: str = "rows", **fields: Any) -> list[Row]:
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


def row(record: str, part: str = "rows", **fields: Any) -> Row:
    """Return the only row of a record with these values. Raises LookupError if there are several or none."""
    found = rows(record, part, **fields)
    if len(found) > 1:
        raise LookupError(f"{len(found)} rows of {record} have {fields}: name more fields")
    return found[0]


def speeds(record: str, slow: str, fast: str, **fields: Any) -> list[float]:
    """Return the speed of `fast` relative to `slow`, two implementations, at each shape with both times."""
    times = {tuple(one.get(name) for name in _SHAPE): one.get("ms") for one in rows(record, contender=slow)}
    both = [
        (times.get(tuple(one.get(name) for name in _SHAPE)), one.get("ms"))
        for one in rows(record, contender=fast, **fields)
    ]
    found = [before / after for before, after in both if before and after]
    if not found:
        raise LookupError(f"no shape of {record} has times of {slow} and of {fast}")
    return found


def mean(record: str, name: str, pass_: str, d: int) -> float:
    """Return the recorded geometric mean of the speed of an implementation relative to SDPA flash."""
    return float(row(record, "means", contender=name, pass_=pass_, d=d)["ratio"])


def device(record: str) -> Row:
    """Return the device of a record: name, `multiprocessors`, `l2_bytes`, `memory_bytes` and others."""
    found = records.load_record(record)
    if found is None:
        raise LookupError(f"there is no record {record}")
    return dict(found["device"])


def tile(kernel: str, arch: int, d: int, itemsize: int = 2, mask: str = "full") -> tuple[int, ...]:
    """Return the default tile of a kernel, (BM, BN) or (BM, BN, BD)."""
    return tuple(choice(kernel, launch(arch, d, itemsize, mask)).value[:-2])


def launch(arch: int | None, d: int, itemsize: int = 2, mask: str = "full", group: int = 1,
           rows: int = 2**19, heads: int = 32, matrices: int = 2**26) -> Case:  # fmt: skip
    """Return the case of a call, for `choice`; by default the 32 heads of N = 4,096 in 4 batches that were
    timed.
    """
    return Case(arch, itemsize, d, mask, group, rows, heads, matrices)


def choice(name: str, case: Case) -> Choice:
    """Return the recorded choice of a pass or a tile, with `value`, `why` and `evidence`."""
    return recorded(name, case)


def goal(step: str, rival: str = "", **fields: object) -> Any:
    """Return the only goal of a step of `tools.bench gpu` with this rival and these values."""
    from tools.bench.contests import GOALS

    wanted = {name.rstrip("_"): value for name, value in fields.items()}
    found = [
        one
        for one in GOALS[step]
        if one.rival == rival and all(one.where.get(name) == value for name, value in wanted.items())
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} goals of {step} have {wanted} and the rival {rival!r}")
    return found[0]


def checkout(name: str) -> Any:
    """Return a module by its full name, or the text of another file of the checkout by its path."""
    if "/" in name:
        return (Path(__file__).parents[3] / name).read_text(encoding="utf-8")
    return import_module(name)
