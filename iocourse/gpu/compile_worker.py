"""Compiler process of `gpu.compilation`: read jobs from stdin and write reports to stdout, one per line.

Triton defines kernels either for the interpreter or for the compiler, for the lifetime of a process. The
caller may use the interpreter, so this process runs with TRITON_INTERPRET=0. The original stdin and stdout
carry only jobs and reports. Modules of kernels, Triton and its tools get an empty stdin, and print to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.autotuner import Autotuner, Heuristics

from .hot_loop import hot_loop

IDLE = 300.0  # seconds without a job until this process exits
DIGITS = 16  # of a fingerprint
PROGRAM_BITS, LOADED = 1, 2  # SHT_PROGBITS and SHF_ALLOC of an ELF section
PATTERNS = {
    "tensor_core": r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b",
    "mma_sync": r"\bmma\.sync\b",
    "async_copies": r"\bcp\.async\.(?:cg|ca|bulk\.tensor)\b",
    "bulk_reductions": r"\bcp\.reduce\.async\.bulk\b",
}


class _Compiling(type(os.environ)):  # type: ignore[misc]
    """Environment variables in which TRITON_INTERPRET stays 0, even if a kernel's module sets it."""

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, "0" if name == "TRITON_INTERPRET" else value)


def kernel_of(job: dict[str, Any]) -> Any:
    """Import and return a job's kernel, from `file` if the job has one, otherwise from `module`. Triton
    compiles the kernel itself, without a tuner or heuristics around it.
    """
    if job.get("file"):
        spec = importlib.util.spec_from_file_location(job["module"], job["file"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[job["module"]] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(job["module"])
    kernel = getattr(module, job["name"])
    while isinstance(kernel, Autotuner | Heuristics):
        kernel = kernel.fn
    return kernel


def _type(kind: Any) -> Any:
    """Decode a type from JSON: a name, a list for a tuple, or names and types for a NamedTuple."""
    if isinstance(kind, list):
        return tuple(_type(part) for part in kind)
    if isinstance(kind, dict):
        return namedtuple("Parts", kind["fields"])(*(_type(part) for part in kind["kinds"]))
    return kind


def _constant(value: Any) -> Any:
    """Decode a constant from JSON: itself, a list for a tuple, or names and values for a NamedTuple."""
    if isinstance(value, list):
        return tuple(map(_constant, value))
    if isinstance(value, dict):
        return namedtuple("Constants", value["fields"])(*value["values"])
    return value


def compile_kernel(job: dict[str, Any]) -> Any:
    """Compile a job's kernel for its architecture and return Triton's compiled kernel."""
    constants = {tuple(at): _constant(value) for at, value in job["constants"]}
    source = ASTSource(
        fn=kernel_of(job),
        signature={name: _type(kind) for name, kind in job["signature"].items()},
        constexprs=constants,
        attrs={tuple(at): [["tt.divisibility", 16]] for at in job["aligned"]},
    )
    return triton.compile(source, target=GPUTarget("cuda", job["arch"], 32), options=job["options"])


def assembled(job: dict[str, Any]) -> Any:
    """Return a compiled kernel from a job with `ptx`, bytes of `shared` memory and a number of `warps`."""
    backend = make_backend(GPUTarget("cuda", job["arch"], 32))
    cubin = backend.make_cubin(job["ptx"], {}, backend.parse_options({}), job["arch"])
    facts = SimpleNamespace(shared=job["shared"], num_warps=job["warps"])
    return SimpleNamespace(asm={"ptx": job["ptx"], "cubin": cubin}, metadata=facts)


def machine_code(cubin: bytes) -> dict[str, Any]:
    """Return registers per thread, stack bytes per thread and the hot loop, from NVIDIA's binary tools."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _printed_by("cuobjdump", "--dump-resource-usage", file.name)
        loop = hot_loop(_printed_by("nvdisasm", "--print-code", "--print-instruction-encoding", file.name))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump must print REG and STACK of the kernel, got {usage!r}")
    return {
        "registers": int(found[1]),
        "spill_bytes": int(found[2]),
        "hot_loop": None if loop is None else asdict(loop),
    }


def fingerprint(cubin: bytes, *facts: int) -> str:
    """Return 16 hexadecimal digits for everything in a cubin that is loaded into the GPU, and for `facts`.

    These are machine code and constants. Names and line numbers are in sections that are not loaded, so a
    comment, a docstring, a renamed variable or function and a moved file leave the fingerprint as it is.
    """
    start, size, count = struct.unpack_from("<40xQ10xHH", cubin)  # the section table of a 64-bit ELF file
    code = sha256(repr(facts).encode())
    for at in range(start, start + size * count, size):
        kind, flags, offset, length = struct.unpack_from("<4xIQ8xQQ", cubin, at)
        if kind == PROGRAM_BITS and flags & LOADED:
            code.update(cubin[offset : offset + length])
    return code.hexdigest()[:DIGITS]


def _printed_by(tool: str, *arguments: str) -> str:
    """Run a tool that is shipped with Triton and return its output."""
    command = [str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_report(job: dict[str, Any]) -> dict[str, Any]:
    """Compile one job and return its resources, or {"error": text} if compilation fails."""
    start = time.perf_counter()
    try:
        kernel = assembled(job) if "ptx" in job else compile_kernel(job)
        facts = machine_code(kernel.asm["cubin"])
    except (Exception, SystemExit) as error:  # any failure, so that the other jobs still run
        return {"error": _innermost(error)}
    counts = {name: len(re.findall(pattern, kernel.asm["ptx"])) for name, pattern in PATTERNS.items()}
    shared, warps = int(kernel.metadata.shared), int(kernel.metadata.num_warps)
    return {
        **facts,
        "shared_bytes": shared,
        "warps": warps,
        **counts,
        "machine_code": fingerprint(kernel.asm["cubin"], shared, warps),
        "seconds": round(time.perf_counter() - start, 2),
    }


def _innermost(error: BaseException) -> str:
    """Return the type and message of the innermost cause; the outer errors only name the line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".strip()


def end_with_the_caller(jobs: int) -> None:
    """Wait until the caller closes the pipe `jobs`. If this process still runs one second later, kill it and
    the tools that it started.
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
        print(json.dumps(compile_report(json.loads(line))), file=answers, flush=True)
