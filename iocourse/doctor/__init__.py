"""Inspect this machine for `iocourse doctor`: installed packages, GPU, Triton's interpreter, and advice."""

import glob
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

from iocourse import __version__
from iocourse.console import table

PACKAGES = (
    "anywidget",
    "numpy",
    "matplotlib",
    "ipywidgets",
    "jupyterlab",
    "cloudpickle",
    "torch",
    "triton",
    "numba",
)
KNOWN_ANSWER = float(sum(i * i for i in range(100)))  # 328350, exact in float32
SECONDS = 120
NCU_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_GPU_PROBE = """
import json, torch
if torch.cuda.is_available():
    major, minor = torch.cuda.get_device_capability()
    print(json.dumps({"name": torch.cuda.get_device_name(), "compute_capability": f"{major}.{minor}"}))
else:
    print("null")
"""
_SELF_TEST = Path(__file__).with_name("selftest_kernel.py")
_SELF_TEST_TOO = "import runpy, sys\nrunpy.run_path(sys.argv[1], run_name='__main__')"


@dataclass(frozen=True)
class Report:
    """Result of `inspect_environment`. Its text form is a table with one line of advice per finding."""

    iocourse: str
    python: str
    platform: str
    packages: dict[str, str | None]
    gpu: dict[str, str] | None
    gpu_note: str
    ncu: str | None  # the path of NVIDIA Nsight Compute's command line
    interpreter: str  # "passed: …", "failed: …" or "skipped: …"
    advice: tuple[str, ...] = field(default=())

    def to_json(self) -> str:
        """Return the report as a JSON object; a missing package or GPU is null."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        rows = [("iocourse", self.iocourse), ("Python", f"{self.python} on {self.platform}")]
        rows += [(name, version or "not installed") for name, version in self.packages.items()]
        rows += [
            ("GPU", self.gpu_note),
            ("ncu", self.ncu or "not found; only `python -m tools.bench gpu` needs it"),
        ]
        rows += [("interpreter", self.interpreter)]
        return "\n".join([table(rows, left=2), "", *(f"- {line}" for line in self.advice)])

    __repr__ = __str__


def inspect_environment() -> Report:
    """Return a Report with the versions of packages, the GPU, and the self-test of Triton's interpreter.

    Works without torch and triton. If they are installed, they run in separate processes, so that nothing is
    imported into this one; that takes a few seconds.
    """
    packages = {name: installed(name) for name in PACKAGES}
    probed, tested = _asked_at_once(packages)
    gpu, gpu_note = _look_for_gpu(packages, probed)
    interpreter = _self_test(packages, tested)
    ncu = find_ncu()
    return Report(
        iocourse=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=packages,
        gpu=gpu,
        gpu_note=gpu_note,
        ncu=ncu,
        interpreter=interpreter,
        advice=tuple(_advice(packages, gpu, ncu, interpreter)),
    )


def installed(name: str) -> str | None:
    """Return the version of an installed and importable distribution, otherwise None. Does not import it."""
    try:
        found = importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules[name] is None: the import is blocked
        found = False
    try:
        return metadata.version(name) if found else None
    except metadata.PackageNotFoundError:
        return None


def find_ncu() -> str | None:
    """Return the path of ncu (Nsight Compute), from PATH or from NVIDIA's default folders, or None."""
    found = shutil.which("ncu")
    if found:
        return found
    places = [path for place in NCU_PLACES for path in sorted(glob.glob(place))]
    return places[-1] if places else None


def cannot_interpret(triton: str | None, numpy: str | None) -> str:
    """Return the reason why these versions cannot interpret kernels together, or "" if none is known.

    NumPy 2.4 no longer converts one-element arrays to numbers, and before 3.7 Triton's interpreter relied on
    this for every loop bound.
    """
    if triton is None or numpy is None or _release(triton) >= (3, 7) or _release(numpy) < (2, 4):
        return ""
    return (
        f"triton {triton} cannot interpret kernels with NumPy {numpy}: it needs triton 3.7 or later, "
        "or NumPy before 2.4"
    )


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: '3.7.1+git12' -> (3, 7)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _python(*arguments: str, **environment: str) -> str:
    """Run this Python in a new process and return its output. Raises RuntimeError with the error."""
    # -P: do not search the folder of the script, where a module of iocourse could hide one of torch's.
    command = [sys.executable, "-P", *arguments]
    env = os.environ | environment
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {SECONDS} seconds") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout.strip()


def _asked_at_once(packages: dict[str, str | None]) -> tuple[str, str]:
    """Return the outputs of the GPU probe and of the self-test, run in one process, which imports torch once.

    Both are "" if that fails. Each is then run again separately, which gives its own error message.
    """
    if packages["torch"] is None or packages["triton"] is None:
        return "", ""
    try:
        printed = _python("-c", _GPU_PROBE + _SELF_TEST_TOO, str(_SELF_TEST), TRITON_INTERPRET="1")
        probed, tested = printed.splitlines()[-2:]
    except (RuntimeError, ValueError):
        return "", ""
    return probed, tested


def _look_for_gpu(packages: dict[str, str | None], probed: str) -> tuple[dict[str, str] | None, str]:
    """Return the first CUDA device (or None) and a line of text about it. `probed`: output of the probe."""
    if packages["torch"] is None:
        return None, "not checked: torch is not installed"
    try:
        printed = probed or _python("-c", _GPU_PROBE)
        gpu: dict[str, str] | None = json.loads(printed.splitlines()[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        return None, f"not checked: torch failed ({error})"
    if gpu is None:
        return None, "none that torch can use"
    return gpu, f"{gpu['name']}, compute capability {gpu['compute_capability']}"


def _self_test(packages: dict[str, str | None], tested: str) -> str:
    """Return a text that begins with passed, failed or skipped, from the output `tested` of the self-test."""
    for name in ("triton", "torch"):
        if packages[name] is None:
            return f"skipped: {name} is not installed"
    try:
        printed = tested or _python(str(_SELF_TEST), TRITON_INTERPRET="1")
        value = float(printed.splitlines()[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        return f"failed: {cannot_interpret(packages['triton'], packages['numpy']) or error}"
    if value != KNOWN_ANSWER:
        return f"failed: the kernel returned {value:g}, expected {KNOWN_ANSWER:g}"
    return f"passed: the kernel returned {value:g}, as expected"


def _advice(
    packages: dict[str, str | None], gpu: dict[str, str] | None, ncu: str | None, interpreter: str
) -> Iterator[str]:  # fmt: skip
    lacks = [name for name in ("matplotlib", "ipywidgets", "anywidget") if packages[name] is None]
    if packages["jupyterlab"] is None:
        yield f"`iocourse lab` needs JupyterLab: {_line('lab')}"
    if lacks:
        yield f"In notebooks, figures and explorers need {_joined(lacks)}: {_line('course')}"
    else:
        yield "Lessons 00-09 and 15-19 need NumPy, matplotlib, ipywidgets and anywidget; all are installed."
    yield from _advice_on_low_rank(packages)
    yield from _advice_on_kernels(packages, interpreter)
    if gpu and ncu is None:
        yield (
            "`python -m tools.bench gpu`, in a checkout of iocourse, counts bytes with NVIDIA Nsight Compute "
            "(ncu), which is not on PATH. It is part of the CUDA toolkit."
        )
    if gpu and _release(gpu["compute_capability"]) < (8, 0):
        yield (
            "On a GPU older than Ampere lessons 10-14 interpret kernels, because Triton does not support its "
            "tensor cores. Set TRITON_INTERPRET=0 to compile: 3 to 70 seconds per kernel, the first time."
        )


def _line(*wanted: str, pinned: bool = True) -> str:
    from . import install_command  # not above: a check imports this package, and needs no command

    at = install_command.this_environment()
    return install_command.command(*wanted, at=at if pinned else at._replace(checkout=""))


def _joined(names: list[str]) -> str:
    """Return the names as text: "a", "a and b" or "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _advice_on_low_rank(packages: dict[str, str | None]) -> Iterator[str]:
    if packages["torch"] is None:
        yield f"Lesson 17 trains a small model, which needs torch: {_line('torch')}"
    if packages["numba"] is None:
        command = _line("fast")
        yield f"Low-rank attention (lessons 15-17) is much faster with Numba: {command}"


def _advice_on_kernels(packages: dict[str, str | None], interpreter: str) -> Iterator[str]:
    missing = [name for name in ("torch", "triton") if packages[name] is None]
    if missing and sys.platform == "linux":
        command = _line("triton")
        yield f"Only lessons 10-14, with Triton kernels, need {_joined(missing)}: {command}"
    elif "triton" in missing:
        yield (
            "Triton is published for Linux only. The NumPy parts of lessons 10-14 run here; use Colab for "
            "the rest."
        )
    problem = cannot_interpret(packages["triton"], packages["numpy"])
    if problem:
        # Not a newer triton, because torch requires exactly the version it was built with.
        cure = _line("numpy>=2.0,<2.4", pinned=False)  # the versions of a checkout pin a newer NumPy
        yield f"{problem}. For lessons 10-14, with Triton kernels: {cure}"
    elif interpreter.startswith("failed"):
        yield "Lessons 10-14, with Triton kernels, will not run until the interpreter passes its test."
    elif not missing:
        yield "Lessons 10-14, with Triton kernels, can run."
