"""What `release` writes into pages that are otherwise written by hand: each piece stands between two markers.

README.md gets the map of the course, drawn and told, and the table of lessons; the guide gets the run times.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from iocourse.course.authoring.kernel_lessons import runs_kernels
from iocourse.course.authoring.source import Cell
from iocourse.course.checkout import Project
from iocourse.explore import memory_map
from iocourse.explore.draw.picture import Picture
from iocourse.refusal import write_whole

README, RUN_TIMES = Path("README.md"), Path("docs") / "guide" / "run-times.md"
MAP = Path("docs") / "map.png"
TIMES = Path("iocourse") / "data" / "bench" / "notebooks.json"
SIGNED = b"tEXt", b"iocourse\0"  # the chunk of a PNG that says which numbers it shows
MAPPED = (
    "naive",
    "flash1",
    "flash_optimal",
    "small_cache",
    "scores_stored",
    "scores_stored_tiled",
    "keys_kept",
)
HEAD = ("| lesson | minutes | builds on | needs | opens in |", "| --- | ---: | --- | --- | --- |")
_ASIDE = re.compile(r"\d+\.\d+|Signs and terms.*")  # sections and formulas, and the link to the signs


def marked(text: str, name: str) -> str | None:
    """What stands between ``<!-- name -->`` and ``<!-- /name -->``; None where one of them is missing."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    return found[1] if found else None


def with_marked(text: str, pieces: Mapping[str, str]) -> str:
    """The text with each of the pieces, by name, between its markers; those that are missing stay missing."""
    for name, piece in pieces.items():
        if (old := marked(text, name)) is not None:
            text = text.replace(f"<!-- {name} -->\n{old}", f"<!-- {name} -->\n{piece}\n", 1)
    return text


def pieces(root: Path, rows: Sequence[str]) -> dict[Path, dict[str, str]]:
    """What `release` writes into each page, by marker.

    Args:
        root: the checkout.
        rows: of the table of lessons; where there are none it is left as it is.
    """
    readme = {"lessons": "\n".join([*HEAD, *rows])} if rows else {}
    if marked(_read(root / README), "map") is not None:
        readme["map"] = f"![{the_map().alt}]({MAP.as_posix()})"
    record = _read(root / TIMES)
    return {README: readme, RUN_TIMES: {"run-times": times_table(json.loads(record))} if record else {}}


def pages(root: Path, rows: Sequence[str]) -> dict[Path, str]:
    """The text of every page that `release` has a part in, as it must be; a page that is missing stays so."""
    wanted = pieces(root, rows)
    return {page: with_marked(text, wanted[page]) for page in wanted if (text := _read(root / page))}


def problems(root: Path, rows: Sequence[str]) -> Iterator[str]:
    """Pieces that are missing or out of date, one line each."""
    for page, wanted in pieces(root, rows).items():
        text = _read(root / page)
        for name, piece in wanted.items():
            found = marked(text, name)
            if found is None:
                yield f"{page.as_posix()} has no lines <!-- {name} --> and <!-- /{name} -->"
            elif found != f"{piece}\n":
                yield f"{page.as_posix()}: what stands below <!-- {name} --> is stale: run iocourse release"
    if marked(_read(root / README), "map") is not None and not map_is_current(root):
        yield f"{MAP.as_posix()} is stale: run iocourse release"
    yield from _unrecorded(root)


def _unrecorded(root: Path) -> Iterator[str]:
    record, how = _read(root / TIMES), f"run: iocourse bench notebooks --json {TIMES.as_posix()}"
    if not record:
        yield f"{TIMES.as_posix()} does not exist; {how}"
    elif set(json.loads(record)["notebooks"]) != {
        path.stem for path in (root / "solutions").glob("[0-9]*.py")
    }:
        yield f"{TIMES.as_posix()} times other notebooks than there are; {how}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


# ---- the map -----------------------------------------------------------------------------------------------


@cache
def the_map() -> Picture:
    """The picture that stands for the course: words against fast memory, schedules above bounds."""
    picture: Picture = memory_map(8192, 64, M=58368, M_range=(128, 2**22), schedules=MAPPED)
    return picture


def signature(picture: Picture) -> bytes:
    """Which numbers a picture shows; two machines may draw the same numbers with other bytes."""
    return hashlib.sha256(f"{picture.alt}\n{picture.numbers}".encode()).hexdigest().encode()


def signed_png(picture: Picture) -> bytes:
    """The picture as a PNG that says which numbers it shows."""
    png, (kind, key) = picture.to_png(), SIGNED
    body = kind + key + signature(picture)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:-12] + chunk + png[-12:]  # before the end, which has 12 bytes


def map_is_current(root: Path) -> bool:
    """Whether the map on disk shows today's numbers."""
    path = root / MAP
    return path.is_file() and b"".join(SIGNED) + signature(the_map()) in path.read_bytes()


def write_map(root: Path) -> list[str]:
    """Draw the map where README shows one and it is not current; returns what was written."""
    if marked(_read(root / README), "map") is None or map_is_current(root):
        return []
    write_whole(root / MAP, signed_png(the_map()))
    return [MAP.as_posix()]


# ---- the lessons -------------------------------------------------------------------------------------------


def lesson_row(stem: str, cells: Sequence[Cell], minutes: int, project: Project) -> str:
    """A lesson's row in README's table: what it takes, what it builds on and what it needs."""
    title = cells[0].lines[0].removeprefix("# ")
    code = "\n".join(line for cell in cells if cell.kind == "code" for line in cell.lines)
    colab = project.colab(f"lessons/{stem}.ipynb")
    link = f"[{title}](solutions/{stem}.ipynb)"
    return f"| {link} | {minutes} | {', '.join(builds_on(cells))} | {needs(code)} | [Colab]({colab}) |"


def builds_on(cells: Iterable[Cell]) -> list[str]:
    """The numbers of the lessons that a lesson names as its prerequisites, in order."""
    lines = [line for cell in cells if cell.kind == "markdown" for line in cell.lines]
    said = next((line for line in lines if line.startswith("**Prerequisites**")), "")
    return sorted(set(re.findall(r"\b(?<!/)([01]\db?)\b(?!_)", _ASIDE.sub("", said))))


def needs(code: str) -> str:
    """What must be installed for a lesson's code, beside what every lesson needs."""
    if runs_kernels(code):
        return "Triton"
    return "NumPy, torch in part" if re.search(r"^\s*import torch\b", code, re.MULTILINE) else "NumPy"


# ---- the run times -----------------------------------------------------------------------------------------


def times_table(record: dict[str, Any]) -> str:
    """The run times recorded by `iocourse bench notebooks` as a markdown table."""
    rows = [f"| {name} | {one['median_s']:.1f} |" for name, one in sorted(record["notebooks"].items())]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    total = sum(one["median_s"] for one in record["notebooks"].values())
    head = ["| solved notebook | seconds |", "| --- | ---: |"]
    how = (
        f"Measured {record['date']} on {record['cores']} cores with {versions}: `iocourse bench notebooks`, "
        f"each notebook in a fresh kernel, median of {record['repeats']}."
    )
    return "\n".join([*head, *rows, f"| all | {total:.1f} |", "", how])
