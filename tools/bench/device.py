"""Facts about the GPU of a measurement, in JSON types, and the environment of processes that use it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from iocourse.gpu.timing import need_cuda

ROOT = Path(__file__).parents[2]  # of the checkout
_ASKED = ("driver_version", "power.limit", "clocks.max.sm")


def device_facts() -> dict[str, Any]:
    """Return facts about the GPU in use.

    Returns:
        name, arch (90 for compute capability 9.0), `multiprocessors`, l2_bytes, memory_bytes, cuda (the
        version torch was built for), and driver, power_limit, clock_limit as nvidia-smi prints them, None if
        it is not available. The versions of torch and triton are in `data.records.run_metadata`.

    Raises:
        NeedsCuda: there is no GPU.
    """
    need_cuda("so there are no facts about one")
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return facts_of(found, str(torch.version.cuda), _smi(found))


def facts_of(properties: Any, cuda: str, smi: tuple[str | None, ...]) -> dict[str, Any]:
    """Combine torch's properties and nvidia-smi's values into the facts of `device_facts`."""
    return {
        "name": properties.name,
        "arch": 10 * properties.major + properties.minor,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "cuda": cuda,
        **dict(zip(("driver", "power_limit", "clock_limit"), smi, strict=True)),
    }


def smi_query(properties: Any, fields: str, *options: str) -> list[str]:
    """Return the nvidia-smi command that prints these fields of the GPU with these properties.

    If torch does not report the GPU's UUID, nvidia-smi prints one line per GPU.
    """
    uuid = getattr(properties, "uuid", None)
    which = [] if uuid is None else [f"--id=GPU-{uuid}"]
    return ["nvidia-smi", f"--query-gpu={fields}", *options, *which]


def _smi(properties: Any) -> tuple[str | None, ...]:
    """Return driver, power limit and maximum clock of this GPU; None for unknown values."""
    command = smi_query(properties, ",".join(_ASKED), "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return (None,) * len(_ASKED)
    return read_smi(done.stdout)


def read_smi(printed: str) -> tuple[str | None, ...]:
    """Split the first line of nvidia-smi's output at commas; unavailable values ("[N/A]") become None."""
    said = [part.strip() for part in printed.strip().split("\n")[0].split(",")]
    known: list[str | None] = [None if not part or part.startswith("[") else part for part in said]
    return tuple(known) if len(known) == len(_ASKED) else (None,) * len(_ASKED)


def environment(*beside: Path, interpret: bool) -> dict[str, str]:
    """Return the environment of a process whose kernels are interpreted or compiled. It imports iocourse from
    this checkout, and modules from the folders `beside`.
    """
    paths = [str(ROOT), *map(str, beside), os.environ.get("PYTHONPATH", "")]
    kernels = {"TRITON_INTERPRET": str(int(interpret)), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return os.environ | kernels
