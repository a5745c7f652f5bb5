"""The compiling half of `gpu.resources`, in a process of its own: jobs come in on stdin, reports go out, a
line each.

Triton defines a kernel either for the interpreter or for the compiler, once and for all; whoever asks for a
report may well be interpreting, so this process starts without TRITON_INTERPRET.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import select
import subprocess
import sys
import tempfile
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
    """A type as `jobs` wrote it down: a name, a list for a tuple, names and types for a NamedTuple."""
    if isinstance(kind, list):
        return tuple(_type(part) for part in kind)
    if isinstance(kind, dict):
        return namedtuple("Parts", kind["fields"])(*(_type(part) for part in kind["kinds"]))
    return kind


def _constant(value: Any) -> Any:
    """A constant as `jobs` wrote it down: itself, or names and values of a NamedTuple."""
    return namedtuple("Constants", value["fields"])(*value["values"]) if isinstance(value, dict) else value


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
        usage = _told("cuobjdump", "--dump-resource-usage", file.name)
        loop = hot_loop(_told("nvdisasm", "--print-code", "--print-instruction-encoding", file.name))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing about registers: {usage!r}")
    return {
        "registers": int(found[1]),
        "spill_bytes": int(found[2]),
        "hot_loop": None if loop is None else asdict(loop),
    }


def _told(tool: str, *arguments: str) -> str:
    """What one of the tools that come with Triton prints."""
    command = [str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def report(job: dict[str, Any]) -> dict[str, Any]:
    """What one kernel takes of a multiprocessor, or the compiler's complaint."""
    start = time.perf_counter()
    try:
        kernel = compiled(job)
        facts = machine_code(kernel.asm["cubin"])
    except Exception as error:  # in one of many ways, which must not lose the other reports
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


if __name__ == "__main__":
    while select.select([sys.stdin], [], [], IDLE)[0] and (line := sys.stdin.readline()):
        print(json.dumps(report(json.loads(line))), flush=True)
