"""Run a notebook for its saved outputs, and normalise these: PNG and plain text, equal in every run.

Lessons 10 to 14 run Triton kernels; `cannot_run` returns the reason if they cannot run on this machine.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iocourse.doctor import cannot_interpret, install_command, installed
from iocourse.doctor.triton_missing import explanation
from iocourse.errors import UsageError
from tools.build import BuildFailed

Json = dict[str, Any]
KEPT = ("image/png", "text/plain", "text/markdown", "text/latex")
LARGEST_PNG = 60 * 1024  # bytes: larger pictures make a repository of notebooks slow to clone
LARGEST_FILM = 300_000  # bytes of an animated PNG
CELL_TIMEOUT = 120  # seconds
SEED = "0"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}\b")
_KERNELS = re.compile(
    r"^\s*\"?\s*(from iocourse import .*\bkernels\b|import (torch, )?triton\b)", re.MULTILINE
)
_NO_VIEW = re.compile(r"^<IPython\.core\.display\.\w+ object>$")


class ExecutionFailed(BuildFailed):
    """A cell raised an error, timed out or killed its kernel; the message names notebook and cell."""


def runs_kernels(code: str) -> bool:
    """Return True if this code (of a source or a notebook's JSON) imports Triton or the library's kernels."""
    return _KERNELS.search(code) is not None


def cannot_run(code: str) -> str:
    """Return the reason why a lesson's code cannot run here ("needs triton: …" and what to do), or "".

    Code without kernels runs everywhere. The function imports nothing.
    """
    reason = explanation() or cannot_interpret(installed("triton"), installed("numpy"))
    return f"needs triton: {reason}" if reason and runs_kernels(code) else ""


def cell_label(cell: Json, index: int) -> str:
    """Return the name of a cell for messages: its position from 0, its id and its first line."""
    text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    first = text.strip().splitlines()[0] if text.strip() else "(empty)"
    return f"cell {index} (id {cell.get('id', '?')}): {first[:70]}"


@contextmanager
def lesson_environment(root: Path, *, strict: bool) -> Iterator[dict[str, str]]:
    """Yield environment variables for a reproducible run of a notebook, with temporary folders.

    Args:
        root: the checkout whose `iocourse` the kernel imports.
        strict: whether a failing check raises an error (IOCOURSE_STRICT).
    """
    with tempfile.TemporaryDirectory(prefix="iocourse-", ignore_cleanup_errors=True) as home:
        env = dict(os.environ)
        # The iocourse of the checkout, or the one that runs now, because a lesson must not install another.
        paths = (str(root), str(Path(__file__).resolve().parents[2]), env.get("PYTHONPATH", ""))
        env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        env |= {"IOCOURSE_HOME": home, "IPYTHONDIR": home, "IOCOURSE_SEED": SEED, "PYTHONHASHSEED": "0"}
        env["IOCOURSE_STRICT"] = "1" if strict else "0"
        # Temporary files of a killed kernel are deleted with the folder.
        env |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), home)
        yield env


def execute(notebook: Json, *, name: str, folder: Path, env: dict[str, str]) -> Json:
    """Run `notebook` from top to bottom in a fresh kernel and return a copy with its outputs.

    Args:
        notebook: nbformat 4 JSON.
        name: name of the notebook in messages.
        folder: working folder of the kernel.
        env: environment variables, see `lesson_environment`.

    Raises:
        ExecutionFailed: a cell failed; the message has the cell and its traceback.
        UsageError: nbclient or ipykernel is not installed.
    """
    client = _client(notebook, folder)
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    at = [0]
    client.on_cell_start = lambda cell, cell_index: at.__setitem__(0, cell_index)
    try:
        done = client.execute(env=env, stderr=subprocess.DEVNULL)  # the kernel's own log
    except (CellControlSignal, DeadKernelError, TimeoutError) as error:
        where = cell_label(notebook["cells"][at[0]], at[0])
        raise ExecutionFailed(f"{name}: {where}\n{_ANSI.sub('', str(error)).rstrip()}") from None
    return dict(json.loads(json.dumps(done)))


def _client(notebook: Json, folder: Path) -> Any:
    try:
        import nbformat
        from jupyter_client.kernelspec import KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient
    except ImportError as error:
        raise UsageError(
            f"running notebooks needs {error.name}: {install_command.command('nbclient', 'ipykernel')}"
        ) from None
    # No kernel folders, so that the kernel is this Python and not one that the user has registered.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    where = {"metadata": {"path": str(folder)}}
    reads: Any = nbformat.reads  # untyped
    client = NotebookClient(
        reads(json.dumps(notebook), as_version=4), km=manager, resources=where,
        timeout=CELL_TIMEOUT, startup_timeout=CELL_TIMEOUT,
    )  # fmt: skip
    client.owns_km = True  # so that the kernel is shut down after the last cell
    client.log = logging.getLogger("iocourse.execution")
    client.log.setLevel(logging.ERROR)
    # Emulating ipywidgets' Output widget sometimes makes nbclient wait for ever (its issue 312).
    client.comm_open_handlers = {}
    return client


def normalise(outputs: list[Json]) -> list[Json]:
    """Return the outputs without parts that change from run to run or are not saved.

    Widget views, HTML, SVG and the paths in tracebacks are removed. Adjacent pieces of streams are joined,
    standard output before standard error.
    """
    kept: list[Json] = []
    for is_stream, group in itertools.groupby(outputs, lambda one: one["output_type"] == "stream"):
        together = list(group)
        if not is_stream:
            kept += map(_normalise_one, together)
            continue
        for name in ("stdout", "stderr"):
            text = "".join(_joined(one["text"]) for one in together if one["name"] == name)
            if text:  # a carriage return overwrites its line, as in a terminal
                text = re.sub(r"^.*\r(?=[^\n])", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)
                kept.append({"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)})
    return kept


def _normalise_one(output: Json) -> Json:
    if output["output_type"] == "error":
        name, value = output["ename"], output["evalue"]
        return {"output_type": "error", "ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}
    data: Json = {kind: _joined(output["data"][kind]) for kind in KEPT if kind in output["data"]}
    for kind, text in data.items():
        data[kind] = text.strip() if kind.startswith("image/") else text.splitlines(keepends=True)
    kept = {"output_type": output["output_type"], "data": data}
    kept["metadata"] = {kind: value for kind, value in output.get("metadata", {}).items() if kind in data}
    if output["output_type"] == "execute_result":
        kept["execution_count"] = output["execution_count"]
    return kept


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def faults(cell: Json, outputs: list[Json]) -> Iterator[str]:
    """Yield the reasons why the outputs of a cell, as received from the kernel, cannot be saved."""
    if outputs and "setup" in cell["metadata"].get("tags", []):
        yield "is the setup cell and has output: it must find iocourse installed and print nothing"
    for output in outputs:
        if output["output_type"] == "stream" and output["name"] == "stderr":
            yield f"writes to standard error: {_joined(output['text']).strip()[:200]}"
        if "data" in output:
            yield from _data_faults(output["data"])
    text = json.dumps(normalise(outputs))
    address = _ADDRESS.search(text)
    if address:
        yield f"shows a memory address ({address[0]}), which differs in every run: give the object a __repr__"


def _data_faults(data: Json) -> Iterator[str]:
    for kind, value in data.items():
        text = _joined(value) if isinstance(value, str | list) else ""
        if "javascript" in kind or "plotly" in kind or "bokeh" in kind or "<script" in text.lower():
            yield f"shows JavaScript ({kind}); saved outputs must be PNG or plain text"
    if "image/png" in data:
        png = base64.b64decode(_joined(data["image/png"]))
        size, allowed = len(png), LARGEST_FILM if b"acTL" in png[:100] else LARGEST_PNG
        if size > allowed:
            yield f"shows a PNG of {size} bytes, expected at most {allowed}: reduce its size or its dpi"
    elif not any(kind in data and not _NO_VIEW.match(_joined(data[kind])) for kind in KEPT):
        yield f"shows only {', '.join(sorted(data))}; a saved output also needs PNG or plain text"
