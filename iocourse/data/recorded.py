"""Measurements that were made once on a named machine and are shipped with the package: never edited by hand.

>>> recorded("notebooks")["subject"]
'notebooks'
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

NAMES = (
    "answers",
    "attention",
    "attention-n4096",
    "attention-tutorial",
    "decode",
    "depth",
    "hot-loops",
    "lowrank",
    "notebooks",
    "profile",
    "resources",
    "roofs",
    "small-cache",
    "sparse",
    "tune",
    "varlen",
)
NONE_YET = "no recorded run yet"


def recorded(name: str) -> dict[str, Any] | None:
    """The record of this name that is shipped, by `tools.bench`, or None where there is no recorded run yet.

    Raises ValueError for a name that no record is kept of.
    """
    if name not in NAMES:
        raise ValueError(f"name is {name!r}; allowed: {', '.join(NAMES)}")
    file = resources.files(__package__).joinpath("bench", f"{name}.json")
    if not file.is_file():
        return None
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def provenance(record: dict[str, Any] | None) -> str:
    """Where a record comes from, in one line: device, versions, date; "no recorded run yet" for None.

    A record of our kernels also says which commit it timed, and whether the kernels have changed since.
    """
    if record is None:
        return NONE_YET
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    timed = f"commit {record['commit'][:7]}" if "kernels_code" in record and "commit" in record else ""
    changed = CHANGED if record.get("kernels_code", kernels_code()) != kernels_code() else ""
    parts = (_device(record.get("device")), versions, record["date"], timed, changed)
    return ", ".join(part for part in parts if part)


CHANGED = "measured before a later change of the kernels or of their tiles"


@cache
def kernels_code() -> str:
    """A fingerprint of the Triton kernels and their tiles, without comments, docstrings, imports and layout.

    Nor do the names of their files count: a module that is only renamed is the same code.
    """
    kernels = Path(__file__).parents[1] / "kernels"
    files = [*kernels.glob("*.py"), kernels / "host" / "tile_table.py"]
    code = "\n".join(sorted(_code_of(file.read_text(encoding="utf-8")) for file in files))
    tiles = json.dumps((recorded("tune") or {}).get("tiles", []), sort_keys=True)
    return hashlib.sha256(f"{code}\n{tiles}".encode()).hexdigest()[:16]


def _code_of(text: str) -> str:
    """The code of a module without comments, docstrings, imports, blank space and line breaks."""
    nodes = [*ast.walk(ast.parse(text))]
    prose = {place for node in nodes for place in _docstring_lines(node)}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            prose |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "".join(one.string for one in tokens if one.type not in skipped and one.start[0] not in prose)


def _docstring_lines(node: ast.AST) -> Iterator[int]:
    """The lines of a docstring, should the node have one."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def lacking(record: dict[str, Any]) -> list[str]:
    """Which of device, versions, date and commit are missing; a record of a CPU may have `cores` instead."""
    there = {
        "device": (record.get("device") or {}).get("name") or record.get("cores"),
        "versions": record.get("versions"),
        "date": record.get("date"),
        "commit": record.get("commit"),
    }
    return [name for name, value in there.items() if not value]


def _device(device: dict[str, Any] | None) -> str:
    """'NVIDIA H200 (sm_90, driver 570.1)'; a record that needs no device has none."""
    if not device:
        return ""
    facts = [f"sm_{device['arch']}"] if device.get("arch") else []
    facts += [f"driver {device['driver']}"] if device.get("driver") else []
    return f"{device['name']} ({', '.join(facts)})" if facts else str(device["name"])
