"""NVIDIA Nsight Compute (ncu): how it is asked for the bytes of one launch, and how its answer is read.

L2 is what the multiprocessors and L2 exchange: sectors of 32 bytes that the units "tex" ask for, by kind of
access. DRAM is what L2 and the memory exchange. Before each kernel, and before each pass over one, ncu
empties the caches (--cache-control all); the clocks stay as they are (--clock-control none). What was written
may still lie in L2 when a kernel ends, and is then in no DRAM count.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iocourse.doctor import find_ncu as find

__all__ = ["find"]

L2 = "lts__t_sectors_srcunit_tex_op_{}.sum"
DRAM = "dram__bytes_{}.sum"
METRICS = (
    *(L2.format(kind) for kind in ("read", "write", "red", "atom")),
    *(DRAM.format(kind) for kind in ("read", "write")),
)
# More counters of reads, where the chip has them (the names are those of sm_90): what the multiprocessors
# receive, all of it and by path (TMA, ordinary loads, asynchronous copies), the copies that L1 answers, and
# what passes on either side of the unit between the multiprocessors and L2, which merges requests.
MORE = (
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum",
    "sm__sass_l1tex_m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_bypass.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access_lookup_hit.sum",
    "lrc__xbar2gpc_sectors_op_read.sum",
    "lrc__lts2lrc_sectors_op_read.sum",
)
# Bytes of a unit. ncu's prefixes are decimal.
PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS = {p + unit: size * n for p, n in PREFIXES.items() for unit, size in (("byte", 1), ("sector", 32))}
SECONDS = 540  # ncu runs each kernel several times over, and the kernels are compiled first
PERMISSION = "ERR_NVGPUCTRPERM"


class CannotMeasure(RuntimeError):
    """ncu did not give the numbers; the message says why, and what to do."""


@dataclass(frozen=True)
class Kernel:
    """Bytes of one kernel as ncu counted them, by metric; None where this chip does not count it."""

    name: str
    bytes: dict[str, int | None]


def version(ncu: str) -> str:
    """What ncu says of its version, "" where it says nothing."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    said = [line.strip() for line in done.stdout.splitlines() if line.startswith("Version")]
    return said[0].removeprefix("Version").strip() if said else ""


def known(ncu: str, seconds: float = 60) -> tuple[str, ...]:
    """Those of MORE that ncu can count on this chip; none where it does not say within so many seconds."""
    query = [ncu, "--query-metrics"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    names = {line.split()[0] for line in done.stdout.splitlines() if line.split()}
    return tuple(metric for metric in MORE if metric.removesuffix(".sum") in names)


def command(
    ncu: str, kernels: Sequence[str], log: Path, program: Sequence[str], more: Sequence[str] = ()
) -> list[str]:  # fmt: skip
    """The command that measures these kernels of a program, between cudaProfilerStart and its Stop.

    Its answer goes to the file `log`, so that nothing the program prints comes between. `more`: counters in
    addition to METRICS.
    """
    return [
        ncu,
        "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
        "--metrics", ",".join((*METRICS, *more)),
        "--kernel-name", f"regex:{'|'.join(dict.fromkeys(kernels))}",
        "--profile-from-start", "off", "--cache-control", "all", "--clock-control", "none",
        "--replay-mode", "kernel",
        "--target-processes", "all",
        *program,
    ]  # fmt: skip


def measure(
    ncu: str, kernels: Sequence[str], program: Sequence[str], environment: Mapping[str, str],
    seconds: float | None = None,
) -> list[Kernel]:  # fmt: skip
    """Run a program under ncu; its kernels in the order of their launches.

    It may take so many seconds, SECONDS by default.

    Raises:
        CannotMeasure: ncu or the program failed, or other kernels were measured than those expected.
    """
    seconds = seconds or SECONDS
    more = known(ncu, min(60.0, seconds))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        try:
            done = subprocess.run(
                command(ncu, kernels, log, program, more), capture_output=True, text=True, timeout=seconds,
                env=dict(environment) | {"LC_ALL": "C"}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"ncu gave no answer within {seconds:g} seconds") from None
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    refuse_failure(text, done.stdout + done.stderr, done.returncode)
    found = parse(text, more)
    if [one.name for one in found] != list(kernels):
        got = ", ".join(one.name for one in found) or "no kernel"
        raise CannotMeasure(f"ncu measured {got}; expected: {', '.join(kernels)}, once each")
    return found


def refuse_failure(log: str, printed: str, code: int) -> None:
    """Raise CannotMeasure where ncu says that it, or the program, failed."""
    everything = log + "\n" + printed
    if PERMISSION in everything:
        raise CannotMeasure(
            f"this user may not read the GPU's counters ({PERMISSION}): run the command as root, or have the "
            "driver's module loaded with NVreg_RestrictProfilingToAdminUsers=0; in a container the host "
            "decides, and the container needs the capability SYS_ADMIN "
            "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
    errors = [line.removeprefix("==ERROR==").strip() for line in _lines(everything, "==ERROR==")]
    if errors or code:
        last = [line.strip() for line in printed.splitlines() if line.strip()]
        said = "; ".join(part for part in (*errors, *last[-1:]) if part) or "nothing"
        raise CannotMeasure(f"ncu failed with exit code {code} and said: {said}")


def _lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def parse(text: str, more: Sequence[str] = ()) -> list[Kernel]:
    """The kernels in ncu's CSV: a row each, with a column for each metric, and a second row of units. `more`:
    metrics in addition to METRICS.

    Lines of ncu's own before it, such as "==PROF== Connected to process 7", are skipped.

    Raises:
        CannotMeasure: there is no table, a metric or a unit is missing, or a value is no number.
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = "; ".join(_lines(text, "==WARNING==")) or "nothing about a kernel"
        raise CannotMeasure(f"ncu printed no table; it said: {said}")
    table = (line for line in lines[start:] if not line.startswith("=="))
    rows = list(csv.DictReader(table, restval=""))
    missing = [name for name in ("Kernel Name", *METRICS, *more) if rows and name not in rows[0]]
    if missing or not rows:
        raise CannotMeasure(f"ncu's table has no {', '.join(missing) or 'row of units'}")
    return [_kernel(row, rows[0], (*METRICS, *more)) for row in rows[1:]]


def _kernel(row: Mapping[str, str], units: Mapping[str, str], metrics: Sequence[str]) -> Kernel:
    name = row["Kernel Name"].partition("(")[0].strip()
    return Kernel(name, {metric: _bytes(metric, row.get(metric, ""), units[metric]) for metric in metrics})


def _bytes(metric: str, value: str, unit: str) -> int | None:
    if value.strip().lower() in ("", "n/a", "nan", "no data"):
        return None
    if unit not in UNITS:
        raise CannotMeasure(f"{metric} is in {unit!r}; known: {', '.join(UNITS)}")
    try:
        return round(float(value.replace(",", "")) * UNITS[unit])
    except ValueError:
        raise CannotMeasure(f"{metric} is {value!r}, which is no number") from None


def total(kernels: Iterable[Kernel], *metrics: str) -> int | None:
    """The sum of some metrics over kernels; None where one of them was not counted."""
    values = [kernel.bytes[metric] for kernel in kernels for metric in metrics]
    return None if None in values else sum(value for value in values if value is not None)
