"""Facts about the GPU a measurement was made on, as JSON can hold them, and processes that use one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from iocourse.gpu.timing import need_cuda

ROOT = Path(__file__).parents[2]  # of the checkout
_ASKED = ("driver_version", "power.limit", "clocks.max.sm")


def device_facts() -> dict[str, Any]:
    """Of the GPU in use: name, architecture, multiprocessors, L2, memory, CUDA, and what nvidia-smi says.

    Returns:
        name, arch (90 for compute capability 9.0), multiprocessors, l2_bytes, memory_bytes, cuda (the version
        torch was built for), and driver, power_limit, clock_limit as nvidia-smi prints them, None where it
        cannot be asked. The versions of torch and triton stand beside it, in `data.records.run_metadata`.

    Raises:
        NeedsCuda: there is no GPU.
    """
    need_cuda("so there are no facts about one")
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return facts_of(found, str(torch.version.cuda), _smi(found))


def facts_of(properties: Any, cuda: str, smi: tuple[str | None, ...]) -> dict[str, Any]:
    """The record, from what torch and nvidia-smi said."""
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
    """The command line for nvidia-smi to print these fields of the GPU with these properties.

    Where torch does not know the GPU's identity, nvidia-smi prints a line for each GPU.
    """
    uuid = getattr(properties, "uuid", None)
    which = [] if uuid is None else [f"--id=GPU-{uuid}"]
    return ["nvidia-smi", f"--query-gpu={fields}", *options, *which]


def _smi(properties: Any) -> tuple[str | None, ...]:
    """Driver, power limit and highest clock of this GPU; None for what cannot be had."""
    command = smi_query(properties, ",".join(_ASKED), "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return (None,) * len(_ASKED)
    return read_smi(done.stdout)


def read_smi(printed: str) -> tuple[str | None, ...]:
    """The first line that nvidia-smi printed, cut at its commas; what it cannot say ("[N/A]") is None."""
    said = [part.strip() for part in printed.strip().split("\n")[0].split(",")]
    known: list[str | None] = [None if not part or part.startswith("[") else part for part in said]
    return tuple(known) if len(known) == len(_ASKED) else (None,) * len(_ASKED)


def environment(*beside: Path, interpret: bool) -> dict[str, str]:
    """The environment of a process whose kernels are interpreted or compiled, with the iocourse of this
    checkout in any folder; modules in the folders `beside` are found too.
    """
    paths = [str(ROOT), *map(str, beside), os.environ.get("PYTHONPATH", "")]
    kernels = {"TRITON_INTERPRET": str(int(interpret)), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return os.environ | kernels
