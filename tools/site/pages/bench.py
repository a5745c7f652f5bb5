"""The recorded runs of `tools.bench`, drawn; a subject without a record says so and shows no number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iocourse.console import DASH, table
from iocourse.data import records
from iocourse.data.recorded import NAMES, NONE_YET, provenance, recorded
from iocourse.explore import bench_bars, depth_errors, kernel_resources, training_curves
from iocourse.explore.draw.picture import Picture
from tools.bench import gpu, grouped, tiles
from tools.bench.__main__ import SUBJECTS
from tools.bench.lowrank import pictures as lowrank

Pictures = dict[str, Picture]
HEAD = """# Measured

What `tools.bench` measured, and what was recorded with the package. Each picture is drawn from its record
in `iocourse/data/bench/` when this site is built; `python -m tools.bench` measures the same on your machine.
Where there is no record, no number stands here in its place.
"""


def _attention(record: dict[str, Any]) -> Pictures:
    """TFLOP/s of every contender as bars: a picture for each pass, type and head size, by file name."""
    return {
        f"{pass_.replace('+', '_and_')}_{dtype}_d{d}": bench_bars(record, pass_=pass_, d=d, dtype=dtype)
        for pass_, dtype, d in grouped(record["rows"], ("pass", "dtype", "d"))
    }


def _depth(record: dict[str, Any]) -> Pictures:
    return {"errors": depth_errors(record), "training": training_curves(record)}


def _resources(record: dict[str, Any]) -> Pictures:
    rows = record["forward_by_tile"]
    return {"forward": kernel_resources(rows, d=128, chips=[75, 80, 90])}


DRAWN: dict[str, Callable[[dict[str, Any]], Pictures]] = {
    "attention": _attention,
    "attention-n4096": _attention,
    "attention-tutorial": _attention,
    "depth": _depth,
    "lowrank": lowrank,
    "resources": _resources,
}


def _answers(record: dict[str, Any]) -> str:
    keys = ("answer", "ms", "tflops", "registers", "instructions_per_score", "exponentials_per_score")
    heads = (
        "answer to 11F",
        "ms",
        "TFLOP/s",
        "registers",
        "instructions per score",
        "exponentials per score",
    )
    rows = [[_cell(row.get(key)) for key in keys] for row in record["rows"]]
    return f"{record['problem']}\n{table([heads, *rows])}"


def _cell(value: Any) -> str:
    return DASH if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _profile(record: dict[str, Any]) -> str:
    return "\n\n".join(_launch(run) for run in record["runs"])


def _launch(run: dict[str, Any]) -> str:
    """The bytes of one launch: what it must move, its closed form, and what Nsight Compute counted."""
    asked, ways = run["question"], {"compulsory": "compulsory", "closed_form": "closed form"}
    ways |= {"l2": "SMs to and from L2", "dram": "L2 to and from DRAM"}
    rows = [
        [what, *(_count(run["bytes"][way][what]) for way in ways)] for what in ("read", "added", "written")
    ]
    sizes = f"N = {asked['N']:,}, d = {asked['d']}, {asked['batch'] * asked['heads']} heads"
    mask = ", causal" if asked["causal"] else ""
    return f"{asked['what']}, {sizes}{mask}, {asked['dtype']}\n{table([['bytes', *ways.values()], *rows])}"


def _count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}"


def _roofs(record: dict[str, Any]) -> str:
    rates = f"product {record['product_tflops']:.0f} TFLOP/s, copy {record['copy_tb_s']:.2f} TB/s"
    return f"{rates} ({record['problem']})"


# How a record without a picture is told, where it is not by a subject of its own.
TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "answers": _answers, "profile": _profile, "roofs": _roofs, "tune": tiles.shown,
    **dict.fromkeys(gpu.CONTESTS, records.shown),
}  # fmt: skip
MADE_BY_HAND = ("answers", "roofs")


def bench_page() -> tuple[str, Pictures]:
    """The page, in Markdown, and the pictures it shows by file name."""
    shown: Pictures = {}
    parts = [HEAD]
    for name in NAMES:
        record = recorded(name)
        if record is None:
            continue
        subject = record["subject"] if record["subject"] in SUBJECTS else gpu.NAME
        command = "" if name in MADE_BY_HAND else f": `python -m tools.bench {subject}`"
        parts.append(f"## {name}\n\nMeasured with {provenance(record)}{command}.")
        drawn = DRAWN[name](record) if name in DRAWN else {}
        if drawn:
            parts += _figures(name, drawn)
        else:
            told = TOLD[name] if name in TOLD else SUBJECTS[record["subject"]].show
            parts.append(folded("The numbers", told(record)))
        shown |= {f"{name}-{part}.png": picture for part, picture in drawn.items()}
    without = [name for name in NAMES if recorded(name) is None]
    if without:
        parts.append(f"## Not measured yet\n\nOf these there is {NONE_YET}: {', '.join(without)}.")
    return "\n\n".join(parts) + "\n", shown


def _figures(name: str, drawn: Pictures) -> Iterator[str]:
    for part, picture in drawn.items():
        yield shown_as(f"pictures/{name}-{part}.png", picture)


def shown_as(file: str, picture: Picture) -> str:
    """The picture in `file` with its alternative text, and its numbers folded below."""
    alt = " ".join(picture.alt.split())
    return (
        f":::{{image}} {file}\n:alt: {alt}\n:width: {round(picture.width)}px\n:::\n\n"
        f"{folded('The numbers', picture.numbers)}"
    )


def folded(summary: str, text: str) -> str:
    """Text that a reader opens by a click."""
    return f"<details><summary>{summary}</summary>\n\n```text\n{text}\n```\n\n</details>"
