"""Hardware counters of the launches in the record `profile`, next to their closed form and compulsory bytes.

A recorded launch keeps the tiles of its run, which may differ from the tiles that the kernels use today.
"""

from __future__ import annotations

from typing import Any

from .. import console
from ..data.records import load_record, record_source
from ..errors import UsageError
from . import ADDITIONS, OPTIONS, ROWS, heading, option

SM_READS = "l1tex__m_xbar2l1tex_read_bytes.sum"  # bytes that the SMs read
COLUMNS = {
    "compulsory": "compulsory", "closed_form": "closed form", "sms": "SMs", "l2": "L2 lookups",
    "dram": "DRAM",
}  # fmt: skip
LEGEND = (
    "SMs: bytes that the SMs receive (reads only). L2 lookups: fewer if reads of the same words by several "
    "SMs are merged.\nDRAM: caches are emptied before each kernel; bytes that are still in L2 at its end are "
    "not written yet."
)

Run = dict[str, Any]


def recorded_launches(what: str, given: dict[str, Any], arch: int) -> dict[str, Any]:
    """Return the record `profile` with those of its runs that are launches of `what` with these sizes.

    Args:
        what: a kind of launch, or "" for all of them.
        given: fields of LaunchRequest and their values; the others may have any value.
        arch: the chip, such as 90.

    Raises:
        UsageError: no launch is recorded on this chip, of this kind or with these sizes. The message lists
            those that are.
    """
    record = load_record("profile")
    if record is None:
        raise UsageError("no launch is recorded yet: the package has no record of counters")
    device = record["device"]
    if arch != device["arch"]:
        raise UsageError(
            f"no launch is recorded on sm_{arch}; recorded: sm_{device['arch']} ({device['name']})"
        )
    kinds = list(dict.fromkeys(run["question"]["what"] for run in record["runs"]))
    if what and what not in kinds:
        raise UsageError(f"no launch of {what} is recorded; recorded: {', '.join(kinds)}")
    runs = [run for run in record["runs"] if what in ("", run["question"]["what"])]
    found = [run for run in runs if given.items() <= run["question"].items()]
    if not found:
        asked = ", ".join(f"{option(name)} {value}" for name, value in given.items())
        raise UsageError(
            f"no recorded launch has {asked}; recorded: {'; '.join(_launch_line(run) for run in runs)}"
        )
    return record | {"runs": found}


def given_sizes(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a launch that the command line has, by field of LaunchRequest."""
    return {name: value for name in OPTIONS if (value := arguments[name]) is not None and value is not False}


def summary(record: dict[str, Any]) -> str:
    """Format one line per launch with the bytes read at each level, and the source of the record."""
    lines = [["bytes read", "tiles", *COLUMNS.values()]]
    for run in record["runs"]:
        reads = (counts["read"] for counts in _levels(run).values())
        lines.append([_launch_line(run), _tiles(run), *(f"{count:,}" for count in reads)])
    more = "`iocourse profile WHAT --recorded` also prints the bytes written, for the launches of one kind."
    return console.paragraphs(record_source(record), console.table(lines), f"{LEGEND}\n{more}")


def details(record: dict[str, Any]) -> str:
    """Format a table of all bytes for each launch, the ratios of its reads, and the source of the record."""
    reports = [
        console.paragraphs(heading(run), console.table(_table(run)), "\n".join(_sentences(run)))
        for run in record["runs"]
    ]
    return console.paragraphs(record_source(record), *reports, LEGEND)


def _levels(run: Run) -> dict[str, dict[str, int | None]]:
    """Return the bytes of a launch by column. The counter of the SMs has reads only."""
    reads = {"read": run["counters"][SM_READS]}
    return {name: reads if name == "sms" else run["bytes"][name] for name in COLUMNS}


def _table(run: Run) -> list[list[str]]:
    levels = _levels(run)
    lines = [["bytes", *COLUMNS.values()]]
    for row, name in ROWS.items():
        if row != "added" or levels["closed_form"]["added"]:
            counts = (counts.get(row) for counts in levels.values())
            lines.append([name, *("" if not count else f"{count:,}" for count in counts)])
    return lines


def _sentences(run: Run) -> list[str]:
    levels = _levels(run)
    ratios = [levels[over]["read"] / levels[under]["read"] for over, under in (  # type: ignore[operator]
        ("sms", "closed_form"), ("l2", "closed_form"), ("dram", "compulsory"))]  # fmt: skip
    sms = "exactly the closed form" if ratios[0] == 1 else f"{ratios[0]:.5f} of the closed form"
    said = [
        f"Reads: SMs {sms}; L2 lookups {ratios[1]:.3f} of it; DRAM {ratios[2]:.3f} of the compulsory bytes.",
        f"These are the tiles of the run. With the tiles used today: {_command(run)}",
    ]
    return said + [ADDITIONS] * bool(levels["closed_form"]["added"])


def _command(run: Run) -> str:
    """Return the command that prints the closed form of the same launch with the tiles of today."""
    asked = run["question"]
    options = [f"--N {asked['N']} --d {asked['d']} --heads {asked['heads']}"]
    options += [f"--kv-heads {asked['kv_heads']}"] * (asked["kv_heads"] != asked["heads"])
    options += ["--causal"] * asked["causal"] + [f"--parts {asked['parts']}"] * bool(asked["parts"])
    return f"`iocourse profile {asked['what']} {' '.join(options)}`"


def _launch_line(run: Run) -> str:
    return heading(run).split("\n")[0]


def _tiles(run: Run) -> str:
    return ", ".join(" × ".join(map(str, tile[:-2])) for tile in run["tiles"].values())
