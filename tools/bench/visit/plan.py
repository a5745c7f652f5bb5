"""What a visit to a GPU does, in which order, and how many minutes each step may take: one table.

Values come before times, first what everything else is judged by, and what takes longest in the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from iocourse.course.project_paths import find_checkout
from iocourse.refusal import Refused, read_json
from tools.bench.gpu.contenders import EFFICIENT, FLEX, MATH
from tools.bench.visit.state import part_path, record_path

MINUTES = 45.0  # of a whole visit, where nobody says otherwise
QUICK = 140 / 60  # of each smaller subject
SHARDS = 8  # processes that share the checks of values: most of their time is compiling
CHECKS = Path("tests", "kernels", "on_gpu.py")
# Named here so that whoever joins the field is timed without being asked for.
WITHOUT_SLOW = [part for name in (EFFICIENT, MATH, FLEX) for part in ("--without", name)]
TUNE = ["tune", "--quick", "--heads", "64,128"]


class Step(NamedTuple):
    """One step of a visit; its logs and its record are named after it."""

    name: str  # what --only calls it
    about: str  # what it does
    minutes: float  # its share; what earlier steps left is shared out among those to come
    commands: dict[str, list[str]]  # by label, all at once: checks may share a GPU, a measurement is alone
    recorded: bool = False  # whether it leaves a record
    shipped: str = ""  # the record of `iocourse.data.recorded` that this one can become, "" for none

    def logs(self, out: Path) -> dict[str, Path]:
        """Where what each command said is kept."""
        return {label: out / "logs" / f"{label}.log" for label in self.commands}


def steps(out: Path, tutorial: Path | None = None) -> list[Step]:
    """The steps of a visit in their order; those of the tutorial only where a copy of it is given."""
    iocourse = [sys.executable, "-m", "iocourse"]
    tuned = [sys.executable, "-m", f"{__package__}.tuned", str(record_path(out, "tune"))]
    lowrank = [sys.executable, "-m", "tools.bench.lowrank.on_gpu", str(part_path(out, "lowrank"))]
    doctor = {"nvidia-smi": ["nvidia-smi"], "doctor": [*iocourse, "doctor", "--json"]}
    sixteen = ["attention", "--types", "bfloat16"]
    few = [*sixteen, *WITHOUT_SLOW]
    beside = ["attention", "--types", "float16", "--lengths", "1024,4096,16384", "--tutorial", str(tutorial)]

    def bench(name: str, about: str, minutes: float, asked: Sequence[str], shipped: str = "",
              command: Sequence[str] = iocourse) -> Step:  # fmt: skip
        run = [*command, "bench", *asked, "--json", str(part_path(out, name))]
        return Step(name, about, minutes, {name: run}, True, shipped)

    quick = ("sparse", "varlen", "decode", "small-cache")
    found = [
        Step("machine", "what nvidia-smi and doctor say", 0.5, doctor),
        Step("values", f"compiled kernels against float64, {SHARDS} processes", 4, _checks()),
        bench("attention", "bfloat16, d = 64 and 128, N = 1k to 16k, few rivals", 3, few, "attention"),
        bench("tune", "few tiles, the shipped ones first", 5, TUNE, "tune"),
        bench("tutorial", "float16 beside Triton's tutorial", 7, [*beside, *WITHOUT_SLOW]),
        *(bench(name, f"bench {name} --quick", QUICK, [name, "--quick"], name) for name in quick),
        Step("lowrank", "low rank on the GPU", QUICK, {"lowrank": lowrank}, True, "lowrank"),
        bench("everyone", "bfloat16, N = 4096, every rival", 4, [*sixteen, "--lengths", "4096"]),
        bench("again", "as attention, with the tiles that tune found", 3, few, command=tuned),
    ]
    return [step for step in found if tutorial or step.name != "tutorial"]


def _checks() -> dict[str, list[str]]:
    """The shards; none where the tests are not here."""
    with suppress(Refused):
        script, shards = find_checkout() / CHECKS, range(1, SHARDS + 1)
        if script.is_file():
            shard = [sys.executable, str(script), "--shard"]
            return {f"values-{k}": [*shard, f"{k}/{SHARDS}"] for k in shards}
    return {}


def chosen(known: Sequence[Step], only: Sequence[str]) -> list[Step]:
    """The steps named, in the order of the table; all where none is. Raises Refused at a name of none."""
    names = [step.name for step in known]
    for name in only:
        if name not in names:
            raise Refused(f"--only {name!r} is no step of this visit; allowed: {', '.join(names)}")
    return [step for step in known if not only or step.name in only]


def limit(step: Step, to_come: Sequence[Step], seconds: float) -> float:
    """Seconds that a step may take of those left: its share among the steps to come, itself first."""
    return seconds * step.minutes / sum(one.minutes for one in to_come)


def needless(out: Path, step: Step) -> str:
    """Why a step has nothing to do, "" where it has."""
    if step.name != "again":
        return ""
    record = read_json(record_path(out, "tune"))
    if not record:
        return "tune has left no record"
    return "" if record.get("tiles") else "tune found no tile that is worth a change"
