"""Plain-text report of the record of `python -m tools.bench lowrank`: its figures' numbers, and goals."""

from __future__ import annotations

from collections.abc import Iterator

from iocourse.console import paragraphs, table
from iocourse.course.explore import lowrank_baselines, lowrank_scaling, lowrank_vs_published
from iocourse.course.explore.draw.picture import Picture
from iocourse.course.explore.models.lowrank_record import WHAT
from iocourse.data.records import record_source
from tools.bench import Row
from tools.bench.lowrank.goals import JUDGED, goals

BUSY = 0.5  # tolerated excess of the load over the number of cores


def pictures(record: Row) -> dict[str, Picture]:
    """Return figures of the rows, the scaling and the baselines, by file name."""
    rows = {name: lowrank_vs_published(record, section=name) for name in WHAT}
    return rows | {"scaling": lowrank_scaling(record), "contenders": lowrank_baselines(record)}


def text(record: Row) -> str:
    """Format all tables, the goals, and the source of the measurement."""
    tables = (f"{name}\n{picture.numbers}" for name, picture in pictures(record).items())
    lines = [["goals", "wanted", "reached", ""]]
    lines += [[row[key] for key in ("what", "wanted", "reached", "verdict")] for row in goals(record)]
    return paragraphs(*tables, "\n".join([table(lines), *JUDGED]), "\n".join(_about(record)))


def _about(record: Row) -> Iterator[str]:
    threads, memory = record["threads"], record["memory"]
    held = f"a gradient of {memory['n']:,} tokens must hold {memory['held'] / 1e6:,.0f} MB"
    yield f"{held}; " + (
        f"its process grew by {memory['grown'] / 1e6:,.0f} MB"
        if "grown" in memory
        else f"not measured, {memory['refused']}"
    )
    yield (
        f"{'a quick run, ' * record['quick']}{threads} thread{'s' * (threads != 1)} for all, ours with "
        f"{record['engine']}; warm, interleaved, medians, freed memory kept; {record['seconds']} s in total"
    )
    load, cores = record["load"], record["cores"]
    if load is not None and load + threads > cores + BUSY:
        yield (
            f"other programs were running at the start (load {load:.1f}, {cores} cores). They slow long "
            "laps more than short ones, so the quotients here are too large"
        )
    yield record_source(record)
