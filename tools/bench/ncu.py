"""NVIDIA Nsight Compute (ncu): run it to count the bytes of one launch, and parse its output.

L2 bytes are exchanged between the SMs and L2, counted in sectors of 32 bytes that the "tex" units request, by
kind of access. DRAM bytes are exchanged between L2 and memory. Before each kernel and each pass over it, ncu
empties the caches (--cache-control all); it does not change the clocks (--clock-control none). Bytes that are
still dirty in L2 when a kernel ends are not part of any DRAM count.
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
# More counters of reads, if the chip has them (names for sm_90): bytes that the SMs receive, in total and by
# path (TMA, ordinary loads, asynchronous copies), copies served by L1, and the traffic on either side of the
# unit between the SMs and L2 that merges requests.
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
SECONDS = 540  # the kernels are compiled first, and ncu runs each several times
PERMISSION = "ERR_NVGPUCTRPERM"


class CannotMeasure(RuntimeError):
    """Error: ncu did not measure; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Kernel:
    """Bytes of one kernel by metric, as ncu counted them; None if this chip does not count a metric."""

    name: str
    bytes: dict[str, int | None]


def version(ncu: str) -> str:
    """Return the version that ncu prints, "" if it prints none."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    said = [line.strip() for line in done.stdout.splitlines() if line.startswith("Version")]
    return said[0].removeprefix("Version").strip() if said else ""


def known(ncu: str, seconds: float = 60) -> tuple[str, ...]:
    """Return the metrics of MORE that ncu can count on this chip; () if it does not answer in `seconds`."""
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
    """Return the command that measures these kernels of a program between
    cudaProfilerStart and cudaProfilerStop.

    ncu writes to the file `log`, so that its output does not mix with the program's. more: counters in
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
    """Run a program under ncu and return its kernels in the order of their launches.

    seconds: time limit, SECONDS by default.

    Raises:
        CannotMeasure: ncu or the program failed, or it measured other kernels than expected.
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
            raise CannotMeasure(f"ncu did not finish within {seconds:g} seconds") from None
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    refuse_failure(text, done.stdout + done.stderr, done.returncode)
    found = parse(text, more)
    if [one.name for one in found] != list(kernels):
        got = ", ".join(one.name for one in found) or "no kernel"
        raise CannotMeasure(f"ncu must measure {', '.join(kernels)}, once each, but measured {got}")
    return found


def refuse_failure(log: str, printed: str, code: int) -> None:
    """Raise CannotMeasure if ncu or the program failed."""
    everything = log + "\n" + printed
    if PERMISSION in everything:
        raise CannotMeasure(
            f"this user may not read the GPU's counters ({PERMISSION}). Run the command as root, or load the "
            "driver's module with NVreg_RestrictProfilingToAdminUsers=0; in a container, set this on the "
            "host, and give the container the capability SYS_ADMIN "
            "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
    errors = [line.removeprefix("==ERROR==").strip() for line in _lines(everything, "==ERROR==")]
    if errors or code:
        last = [line.strip() for line in printed.splitlines() if line.strip()]
        said = "; ".join(part for part in (*errors, *last[-1:]) if part) or "nothing"
        raise CannotMeasure(f"ncu failed with exit code {code} and printed: {said}")


def _lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def parse(text: str, more: Sequence[str] = ()) -> list[Kernel]:
    """Parse the kernels in ncu's CSV: a row of names, a row of units, then one row per kernel. more: metrics
    in addition to METRICS.

    Messages of ncu before the table, such as "==PROF== Connected to process 7", are skipped.

    Raises:
        CannotMeasure: there is no table, a metric or a unit is missing, or a value is not a number.
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = "; ".join(_lines(text, "==WARNING==")) or "nothing about a kernel"
        raise CannotMeasure(f"ncu printed no table, but: {said}")
    table = (line for line in lines[start:] if not line.startswith("=="))
    rows = list(csv.DictReader(table, restval=""))
    missing = [name for name in ("Kernel Name", *METRICS, *more) if rows and name not in rows[0]]
    if missing or not rows:
        raise CannotMeasure(f"ncu's table is missing {', '.join(missing) or 'row of units'}")
    return [_kernel(row, rows[0], (*METRICS, *more)) for row in rows[1:]]


def _kernel(row: Mapping[str, str], units: Mapping[str, str], metrics: Sequence[str]) -> Kernel:
    name = row["Kernel Name"].partition("(")[0].strip()
    return Kernel(name, {metric: _bytes(metric, row.get(metric, ""), units[metric]) for metric in metrics})


def _bytes(metric: str, value: str, unit: str) -> int | None:
    if value.strip().lower() in ("", "n/a", "nan", "no data"):
        return None
    if unit not in UNITS:
        raise CannotMeasure(f"{metric} must be in one of {', '.join(UNITS)}; got {unit!r}")
    try:
        return round(float(value.replace(",", "")) * UNITS[unit])
    except ValueError:
        raise CannotMeasure(f"{metric} must be a number, got {value!r}") from None


def total(kernels: Iterable[Kernel], *metrics: str) -> int | None:
    """Return the sum of some metrics over kernels; None if one of them was not counted."""
    values = [kernel.bytes[metric] for kernel in kernels for metric in metrics]
    return None if None in values else sum(value for value in values if value is not None)
