"""The compiling half of `gpu.compilation`, a process that reads jobs and writes reports, one per line.

Triton defines a kernel either for the interpreter or for the compiler, for the life of a process. The caller
may be interpreting, so this process runs with TRITON_INTERPRET=0. Only jobs are read from the stdin and only
reports are written to the stdout that it is started with. Modules of kernels, Triton and its tools find an
empty stdin, and print to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from dataclasses import asdict
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .hot_loop import hot_loop

IDLE = 300.0  # seconds without a job, after which this process ends
PATTERNS = {
    "tensor_core": r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b",
    "mma_sync": r"\bmma\.sync\b",
    "async_copies": r"\bcp\.async\.(?:cg|ca|bulk\.tensor)\b",
    "bulk_reductions": r"\bcp\.reduce\.async\.bulk\b",
}


class _Compiling(type(os.environ)):  # type: ignore[misc]
    """Environment variables that keep TRITON_INTERPRET at 0, also where a kernel's module sets it."""

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, "0" if name == "TRITON_INTERPRET" else value)


def kernel_of(job: dict[str, Any]) -> Any:
    """The kernel a job names: `module`, or `file` where the module cannot be imported by name."""
    if job.get("file"):
        spec = importlib.util.spec_from_file_location(job["module"], job["file"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[job["module"]] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(job["module"])
    return getattr(module, job["name"])


def _type(kind: Any) -> Any:
    """A type as it was written down: a name, a list for a tuple, names and types for a NamedTuple."""
    if isinstance(kind, list):
        return tuple(_type(part) for part in kind)
    if isinstance(kind, dict):
        return namedtuple("Parts", kind["fields"])(*(_type(part) for part in kind["kinds"]))
    return kind


def _constant(value: Any) -> Any:
    """A constant as it was written down: itself, a list for a tuple, names and values of a NamedTuple."""
    if isinstance(value, list):
        return tuple(map(_constant, value))
    if isinstance(value, dict):
        return namedtuple("Constants", value["fields"])(*value["values"])
    return value


def compiled(job: dict[str, Any]) -> Any:
    """The kernel compiled for the job's architecture."""
    constants = {tuple(at): _constant(value) for at, value in job["constants"]}
    source = ASTSource(
        fn=kernel_of(job),
        signature={name: _type(kind) for name, kind in job["signature"].items()},
        constexprs=constants,
        attrs={tuple(at): [["tt.divisibility", 16]] for at in job["aligned"]},
    )
    return triton.compile(source, target=GPUTarget("cuda", job["arch"], 32), options=job["options"])


def machine_code(cubin: bytes) -> dict[str, Any]:
    """Registers a thread, bytes of stack a thread, and the hot loop, as NVIDIA's tools read them off."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _printed_by("cuobjdump", "--dump-resource-usage", file.name)
        loop = hot_loop(_printed_by("nvdisasm", "--print-code", "--print-instruction-encoding", file.name))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing about registers: {usage!r}")
    return {
        "registers": int(found[1]),
        "spill_bytes": int(found[2]),
        "hot_loop": None if loop is None else asdict(loop),
    }


def _printed_by(tool: str, *arguments: str) -> str:
    """What one of the tools that come with Triton prints."""
    command = [str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def report(job: dict[str, Any]) -> dict[str, Any]:
    """What one kernel takes of a multiprocessor, or the compiler's complaint."""
    start = time.perf_counter()
    try:
        kernel = compiled(job)
        facts = machine_code(kernel.asm["cubin"])
    except (Exception, SystemExit) as error:  # in one of many ways, which must not lose the other reports
        return {"error": _innermost(error)}
    counts = {name: len(re.findall(pattern, kernel.asm["ptx"])) for name, pattern in PATTERNS.items()}
    return {
        **facts,
        "shared_bytes": int(kernel.metadata.shared),
        "warps": int(kernel.metadata.num_warps),
        **counts,
        "seconds": round(time.perf_counter() - start, 2),
    }


def _innermost(error: BaseException) -> str:
    """The first cause of a failure, with its type: what stands outside only says where it was met."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".strip()


def end_with_the_caller(jobs: int) -> None:
    """Wait until the other end of the pipe `jobs` is closed. If this process still runs a second later, kill
    it and the tools it has started.
    """
    pipe = select.poll()
    pipe.register(jobs, 0)
    pipe.poll()
    time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    threading.Thread(target=end_with_the_caller, args=[jobs.fileno()], daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    os.environ.__class__ = _Compiling
    while select.select([jobs], [], [], IDLE)[0] and (line := jobs.readline()):
        print(json.dumps(report(json.loads(line))), file=answers, flush=True)
