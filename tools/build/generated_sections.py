"""Generate the parts of hand-written pages that the build writes between two markers.

In README.md these are the figure with its alt text, the size of the code, the table of results and the two
tables of lessons; in the guide the run times, what is made from the map of the course (`lesson_tables`), and
the links to Colab and Binder once the repository's address is claimed.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from iocourse import __version__
from iocourse.bounds import lower_bound
from iocourse.course.explore.draw.picture import Picture
from iocourse.course.explore.figures.traffic_charts import curve
from iocourse.course.explore.models.memory_regimes import memories
from iocourse.data.records import load_record, missing_metadata, record_source
from iocourse.files import atomic_write
from iocourse.schedules import REGISTRY
from tools.build import lesson_tables
from tools.build.lesson_tables import Row
from tools.build.project import Project

GUIDE = Path("docs") / "guide"
README, RUN_TIMES, INSTALL = Path("README.md"), GUIDE / "run-times.md", GUIDE / "install.md"
LESSONS, INDEX, TEACHING = GUIDE / "lessons.md", Path("docs") / "index.md", Path("docs") / "teaching.md"
FIGURE = Path("docs") / "words-moved.png"
TIMES = Path("iocourse") / "data" / "bench" / "notebooks.json"
SIGNED = b"tEXt", b"iocourse\0"  # the chunk of a PNG with the hash of the numbers that it shows
N, d, M = 8192, 64, 58_368  # of README's figure: tokens, head size, fast memory in words (228 KiB)
DRAWN = {  # name in the figure -> schedule
    "standard attention": "naive",
    "FlashAttention-1": "flash1",
    "FlashAttention-2": "flash2",
    "split-d": "small_cache",
}
COURSE = "course"  # the folder of iocourse/ that only the course needs; everything else is the library
CUDNN = "SDPA cuDNN"
TIMED = (  # pass, kernel in the record, name in README's table; all relative to PyTorch's FlashAttention-2
    ("forward", "fused", "speed of the forward kernel"),
    ("backward", "two-pass", "speed of the two-pass backward kernels"),
)


def marked(text: str, name: str) -> str | None:
    """Return the text between ``<!-- name -->`` and ``<!-- /name -->``, or None if one of them is missing."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    return found[1] if found else None


def with_marked(text: str, pieces: Mapping[str, str]) -> str:
    """Return the text with each piece, by name, between its markers. A piece without markers is left out."""
    for name, piece in pieces.items():
        if (old := marked(text, name)) is not None:
            text = text.replace(f"<!-- {name} -->\n{old}", f"<!-- {name} -->\n{piece}\n", 1)
    return text


def pieces(root: Path, rows: Sequence[Row], project: Project) -> dict[Path, dict[str, str]]:
    """Return the generated text of each page, by marker name.

    Args:
        root: the checkout.
        rows: the lessons in the order of the course; if there are none, no table is generated.
        project: source of the links, which are written once its address is claimed.
    """
    readme, text = {}, _read(root / README)
    if marked(text, "figure") is not None:
        readme["figure"] = f"![{first_figure().alt}]({FIGURE.as_posix()})"
    if marked(text, "results") is not None:
        readme["results"] = results()
    if marked(text, "size") is not None:
        readme["size"] = size(root)
    lessons = {row.lesson.number: row.lesson for row in rows}
    if rows:
        readme |= lesson_tables.readme_tables(rows, project)
    record = _run_times(root)
    made = {
        README: readme,
        RUN_TIMES: {"run-times": times_table(record)} if record else {},
        INSTALL: {"published": published(project)},
        LESSONS: lesson_tables.guide_parts(lessons) if rows else {},
        INDEX: {"letters": lesson_tables.LETTERS},
        TEACHING: lesson_tables.teaching_parts(root, lessons) if rows else {},
    }
    return {page: parts for page, parts in made.items() if page == README or (root / page).is_file()}


def pages(root: Path, rows: Sequence[Row], project: Project) -> dict[Path, str]:
    """Return, by path, each page with generated parts as it must be: these parts renewed, the rest unchanged.

    Missing pages are left out.
    """
    wanted = pieces(root, rows, project)
    return {page: with_marked(text, wanted[page]) for page in wanted if (text := _read(root / page))}


def problems(root: Path, rows: Sequence[Row], project: Project) -> Iterator[str]:
    """Yield one message for each generated part that is missing or stale."""
    for page, wanted in pieces(root, rows, project).items():
        text = _read(root / page)
        for name, piece in wanted.items():
            found = marked(text, name)
            if found is None:
                yield f"{page.as_posix()} has no lines <!-- {name} --> and <!-- /{name} -->: add both"
            elif found != f"{piece}\n":
                below = f"{page.as_posix()}: the part below <!-- {name} -->"
                yield f"{below} is stale: run python -m tools.build"
    if marked(_read(root / README), "figure") is not None and not figure_is_current(root):
        yield f"{FIGURE.as_posix()} is stale: run python -m tools.build"
    yield from _unrecorded(root)


def records_without_origin(root: Path) -> list[str]:
    """Return one message for each benchmark record without device, versions, date or commit."""
    faults = []
    for path in sorted((root / TIMES).parent.glob("*.json")):
        if missing := missing_metadata(json.loads(path.read_text(encoding="utf-8"))):
            at = path.relative_to(root).as_posix()
            faults.append(f"{at} has no {' and no '.join(missing)}: record it again, or add the known values")
    return faults


def _run_times(root: Path) -> dict[str, Any]:
    """Return the record of run times, with the present names of renamed notebooks; empty if there is none."""
    if not (text := _read(root / TIMES)):
        return {}
    present = lesson_tables.present_names(root)
    record: dict[str, Any] = json.loads(text)
    times = {present.get(name, name): one for name, one in record["notebooks"].items()}
    return record | {"notebooks": times}


def _unrecorded(root: Path) -> Iterator[str]:
    record, how = _run_times(root), f"run: python -m tools.bench notebooks --json {TIMES.as_posix()}"
    if not record:
        yield f"{TIMES.as_posix()} does not exist; {how}"
    elif set(record["notebooks"]) != {path.stem for path in (root / "solutions").glob("[0-9]*.py")}:
        yield f"{TIMES.as_posix()} has the times of other notebooks than those of solutions/; {how}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


# ---- README's figure and results ---------------------------------------------------------------------------


@cache
def first_figure() -> Picture:
    """Return README's figure: words moved against M by the schedules of `DRAWN`, and the lower bound.

    Each schedule uses its best tile sizes for M. The alt text states the numbers at M = 58,368.
    """
    sizes = memories(256, 2**22, 4)
    lines = {
        label: [(size, _words(name, size)) for size in sizes if REGISTRY[name].smallest_M(N, d) <= size]
        for label, name in DRAWN.items()
    }
    lines["lower bound"] = [(size, lower_bound("forward", N, d, size)[0]) for size in sizes]
    title = f"Words moved by a forward pass, N = {N:,}, d = {d}"
    picture = curve({}, lines, title=title, xlabel="fast memory M (words)", ylabel="words moved")
    best, least = _words("flash2", M), lower_bound("forward", N, d, M)[0]
    alt = (
        f"Line chart of words moved against fast memory M, from {sizes[0]:,} to {sizes[-1]:,} words, both "
        f"axes logarithmic, at N = {N:,} and d = {d}. At M = {M:,}, standard attention moves "
        f"{_words('naive', M):,} words, FlashAttention-1 {_words('flash1', M):,} and FlashAttention-2 "
        f"{best:,}, which is {best / least:.2f} × the lower bound of {least:,}. Up to about "
        f"M = {_last_memory_where_split_d_moves_less(sizes):,}, split-d moves fewer words than "
        "FlashAttention-2."
    )
    return replace(picture, alt=alt)


def _words(name: str, fast: int) -> int:
    return int(REGISTRY[name].count(N, d, fast).total)


def _last_memory_where_split_d_moves_less(sizes: Sequence[int]) -> int:
    fitting = [size for size in sizes if REGISTRY["flash2"].smallest_M(N, d) <= size]
    return max(size for size in fitting if _words("small_cache", size) < _words("flash2", size))


def results() -> str:
    """Return README's table of results: traffic relative to the lower bound, and recorded kernel speeds."""
    best, least = _words("flash2", M), lower_bound("forward", N, d, M)[0]
    counted = (
        f"words moved by FlashAttention-2, N = {N:,}, d = {d}, M = {M:,}",
        f"{best:,}, {best / least:.2f} × the lower bound",
        f"counted by iocourse {__version__}; equal on every machine",
    )
    return "\n".join(
        f"| {' | '.join(row)} |"
        for row in (("result", "value", "measured on"), ("---",) * 3, counted, *_timed())
    )


def _timed() -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, source) for each pass of the kernels, from the recorded run."""
    record = load_record("attention")
    means = {(one["pass"], one["d"], one["contender"]): one for one in record["means"]} if record else {}
    for n, (pass_, contender, name) in enumerate(TIMED):
        pairs = [(means[pass_, size, contender], means[pass_, size, CUDNN]) for size in (64, 128) if means]
        values = [
            f"{ours['ratio']:.2f} × at d = {ours['d']} (mean of {ours['shapes']} of {ours['of']} shapes; "
            f"cuDNN: {theirs['ratio']:.2f} ×)"
            for ours, theirs in pairs
        ]
        yield name, "; ".join(values), "the same run" if n else record_source(record)


def size(root: Path) -> str:
    """Return README's line with the size of the library and of the course, in lines of Python."""
    lines = {True: 0, False: 0}
    for path in (root / "iocourse").rglob("*.py"):
        of_the_course = path.relative_to(root / "iocourse").parts[0] == COURSE
        lines[of_the_course] += path.read_text(encoding="utf-8").count("\n")
    library, course = (f"{round(lines[which], -3):,}" for which in (False, True))
    return (
        f"The library has about {library} lines of Python and needs NumPy alone, except for its kernels.\n"
        f"The course has {course}."
    )


def signature(picture: Picture) -> bytes:
    """Return a hash of the numbers of a picture; its pixels may differ between machines."""
    return hashlib.sha256(f"{picture.alt}\n{picture.numbers}".encode()).hexdigest().encode()


def signed_png(picture: Picture) -> bytes:
    """Return the picture as a PNG with the hash of its numbers in a text chunk."""
    png, (kind, key) = picture.to_png(), SIGNED
    body = kind + key + signature(picture)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:-12] + chunk + png[-12:]  # before the end, which has 12 bytes


def figure_is_current(root: Path) -> bool:
    """Return True if the PNG on disk has the hash of the current numbers."""
    path = root / FIGURE
    return path.is_file() and b"".join(SIGNED) + signature(first_figure()) in path.read_bytes()


def write_figure(root: Path) -> list[str]:
    """Draw README's figure if it is stale, and return the paths written."""
    if marked(_read(root / README), "figure") is None or figure_is_current(root):
        return []
    atomic_write(root / FIGURE, signed_png(first_figure()))
    return [FIGURE.as_posix()]


# ---- links to a published copy -----------------------------------------------------------------------------


def published(project: Project) -> str:
    """Return the guide's lines on Colab and Binder: links if the address is claimed, otherwise the reason."""
    if not project.claimed:
        return (
            "This copy of the course is not published: its address has not been claimed, so there are no\n"
            "links to Colab or Binder here. [Publishing a copy](publishing.md) explains how to claim it."
        )
    first = "lessons/00_start_here.ipynb"
    binder = f"https://mybinder.org/v2/gh/{project.slug}/{project.tag}?urlpath=lab/tree/{first}"
    return f"Open lesson 00 in [Colab]({project.colab(first)}) or in [Binder]({binder})."


# ---- the run times -----------------------------------------------------------------------------------------


def times_table(record: dict[str, Any]) -> str:
    """Return the record of `python -m tools.bench notebooks` as a Markdown table of run times."""
    rows = [f"| {name} | {one['median_s']:.1f} |" for name, one in sorted(record["notebooks"].items())]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    total = sum(one["median_s"] for one in record["notebooks"].values())
    head = ["| solved notebook | seconds |", "| --- | ---: |"]
    how = (
        f"Measured {record['date']} on {record['cores']} cores with {versions}: "
        "`python -m tools.bench notebooks`, "
        f"each notebook in a fresh kernel, median of {record['repeats']}."
    )
    return "\n".join([*head, *rows, f"| all | {total:.1f} |", "", how])
