"""The recorded choices: one row of `iocourse/data/choices.json` for each case.

A row names the cases that it decides, the choice, and why: timed on a GPU, compiled only, or by the bytes of
the closed forms. A row marked `otherwise` decides the cases that no other row names. So each case has exactly
one row, and a timed row decides only cases like the timed ones (`tools.bench.choices` checks both).

This file needs no torch, so explorers read the choices in a browser. `kernels/host/choices.py` adds the
tiles, the architecture of a device, and the choices of the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from ..data.records import load_record

PASSES = ("forward pass", "backward pass", "backward pass, fixed order", "backward pass, one kernel")
MASKS = ("full", "causal", "window", "blocks", "packed")
# The kernels of a pass by the value of its choice.
KERNELS_OF = {
    "forward pass": {
        "complete rows": ("forward",), "slices": ("sliced_forward",), "materialised": ("scores", "averages"),
    },
    "backward pass": {
        "fused": ("fused",), "two-pass": ("queries", "keys"), "slices": ("sliced_queries", "sliced_keys"),
        "materialised": ("weights", "query_gradients", "key_gradients"),
    },
}  # fmt: skip


class Case(NamedTuple):
    """A call of `attention` or `decode`, as far as a choice depends on it.

    arch: an architecture of the choices, such as 90; None for the interpreter. itemsize: bytes per number.
    d: head size. mask: one of `MASKS`. group: query heads per key head. rows: of Q, over all batches and
    heads. heads: key heads, over all batches. matrices: bytes of P and dS of one key head.
    """

    arch: int | None
    itemsize: int
    d: int
    mask: str = "full"
    group: int = 1
    rows: int = 0
    heads: int = 0
    matrices: int = 0


def loaded_width(d: int) -> int:
    """Return the columns of the rows that a GPU loads for head size d: rows that are not a multiple of 16
    numbers are first copied with columns of zeros (see `passes.readable`).
    """
    return d + -d % 16


def padded(d: int) -> int:
    """Return the width of a tile's rows: the power of two at or above d, and at least 16 (for tl.dot)."""
    return max(16, 1 << (d - 1).bit_length())


class Choice(NamedTuple):
    """A row of the choices: `name` of the choice, its `value`, the cases `where` it applies, and the reason.

    where: for each field of `Case` that the row limits, its values, or (from, to). why: the reason. evidence:
    the record, and what it must show (see `tools.bench.choices`). otherwise: the row decides the cases that
    no other row does.
    """

    name: str
    value: Any
    where: Mapping[str, Any]
    why: str
    evidence: Mapping[str, Any]
    otherwise: bool = False

    def covers(self, case: Case) -> bool:
        """Return True if the row decides this case."""
        values = case._asdict()
        return all(is_within(values[name], limit) for name, limit in self.where.items())

    def __str__(self) -> str:
        return f"{self.name}: {value_text(self.value)}\n    {self.why}{evidence_text(self.evidence)}"


def is_within(value: Any, limit: Any) -> bool:
    """Return True if a value is one of the values of a limit or, for a pair of integers, in from … to."""
    if isinstance(limit, tuple):
        return bool(limit[0] <= value and (limit[1] is None or value <= limit[1]))
    return value in limit


def value_text(value: Any) -> str:
    """Return a value in words: the sizes of a tile joined by ×."""
    return " × ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Return the evidence of a row in words: the device and date of its record, and the ratio of speeds."""
    text = ""
    if record := evidence.get("timed"):
        run = load_record(record) or {"device": {"name": "no device"}, "date": "no date", "versions": {}}
        gain = evidence["gain"]
        fast = f"{gain[0]:.2f}" if gain[0] == gain[1] else f"{gain[0]:.2f} to {gain[1]:.2f}"
        text += (
            f" (record {record}, {run['device']['name']}, {run['date']}: {fast} times as fast as "
            f"{value_text(evidence['against'])})"
        )
    if rival := evidence.get("rival"):
        text += f"; {evidence['share']:.2f} of the speed of {rival}"
    if spills := evidence.get("spills"):
        text += f"; {spills} spills in an iteration of its loop"
    return text


def recorded(name: str, case: Case) -> Choice:
    """Return the row that decides a case. Raises LookupError if there is none."""
    for row in _near(name, *case[:5]):
        if not row.where or row.covers(case):
            return row
    raise LookupError(f"iocourse/data/choices.json has no row of {name!r} for {case}")


# Kept for chip, type, head size, mask and group only: the other fields change with the length of a sequence.
@lru_cache(maxsize=4096)
def _near(name: str, arch: int | None, itemsize: int, d: int, mask: str, group: int) -> tuple[Choice, ...]:
    """Return the rows that may decide such cases, with their limits of the other fields alone."""
    fixed = {"d": d, "mask": mask, "group": group}
    found = list[Choice]()
    for row in _rows()[name, arch, itemsize]:
        if all(is_within(value, row.where[field]) for field, value in fixed.items() if field in row.where):
            rest = {field: limit for field, limit in row.where.items() if field not in fixed}
            found.append(row._replace(where=rest))
            if not rest:
                break
    return tuple(found)


@cache
def _rows() -> dict[tuple[str, int | None, int], list[Choice]]:
    """Return the rows by name, architecture and bytes per number, those for other cases last."""
    found: dict[tuple[str, int | None, int], list[Choice]] = {}
    for one in sorted(read_rows(), key=lambda row: row.otherwise):
        for arch in one.where["arch"]:
            for itemsize in one.where["itemsize"]:
                rest = {name: at for name, at in one.where.items() if name not in ("arch", "itemsize")}
                found.setdefault((one.name, arch, itemsize), []).append(one._replace(where=rest))
    return found


def read_rows(text: str | None = None) -> list[Choice]:
    """Return the rows of choices.json, or of a text of the same form, one for each name that a row chooses.

    Raises ValueError with the row if it lacks a name, a reason or a limit of a known form.
    """
    if text is None:
        text = resources.files("iocourse.data").joinpath("choices.json").read_text(encoding="utf-8")
    return [one for row in json.loads(text)["rows"] for one in _read(row)]


_PARTS = ("choose", "why", "evidence", "otherwise")  # of a row; the others are limits
_RANGES = ("d", "group", "rows", "heads", "matrices")  # limits of the form [from, to]


def _read(row: Any) -> Iterator[Choice]:
    try:
        chosen, why = row["choose"], row["why"]
        where = {name: at for name, at in row.items() if name not in _PARTS}
        where = {"arch": [None, 75, 80, 89, 90, 100], "itemsize": [2, 4]} | where
        if not chosen or not isinstance(why, str) or not why.strip():
            raise ValueError("`choose` needs a name with its value, and `why` a reason")
        if unknown := [*(where.keys() - set(Case._fields))]:
            raise ValueError(f"{unknown[0]} is not a limit. Use one of: {', '.join(Case._fields)}")
        for name, at in where.items():
            if not isinstance(at, list):
                form = "[from, to]" if name in _RANGES else "a list of values"
                raise ValueError(f"{name} must be {form}, got {json.dumps(at)}")
        ranges = {name: tuple(at) for name, at in where.items() if name in _RANGES}
    except KeyError as error:
        raise ValueError(f"a row of choices.json lacks {error}: {json.dumps(row)}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"a row of choices.json is not valid ({error}): {json.dumps(row)}") from None
    for name, value in chosen.items():
        yield Choice(name, value, where | ranges, why, row.get("evidence", {}), row.get("otherwise", False))
