"""Run the lessons on kernels with compiled kernels on a GPU, without counting traffic.

Lessons use Triton's interpreter and count its traffic. Here a launch copies its tensors from the CPU to the
GPU and back, and no word is counted: a cell or a check that uses a count raises `CannotCount`, which the row
lists apart from errors. The run continues after a cell that raises an exception.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from iocourse.files import read_json
from iocourse.gpu.interpreter_lines import COMPILED_INSTEAD
from iocourse.ledger import Ledger
from iocourse.traffic import CannotCount
from tools.bench import Row
from tools.bench.device import environment
from tools.bench.processes import printed_by
from tools.build.notebook_execution import ExecutionFailed, cell_label, execute, lesson_environment

LESSONS = "1[0-4]*.ipynb"
UNCOUNTED = "needs the interpreter, because no words are counted in compiled kernels"
START = "from tools.bench.compiled_lessons import compile_kernels\ncompile_kernels()"


def files(root: Path) -> list[Path]:
    """Return the notebooks of the lessons that run kernels in a checkout."""
    paths = sorted((root / "solutions").glob(LESSONS))
    return [path for path in paths if "TRITON_INTERPRET" in path.read_text(encoding="utf-8")]


def row_of(file: Path, root: Path) -> Row:
    """Run one lesson and return its row: the number of cells that ran, and the errors of the others."""
    row: Row = {"lesson": file.stem}
    started = time.monotonic()
    try:
        with lesson_environment(root, strict=False) as env:
            env |= {"TRITON_INTERPRET": "0"}
            ran = execute(for_the_gpu(read_json(file)), name=file.name, folder=file.parent, env=env)
        cells = [(at, one) for at, one in enumerate(ran["cells"]) if one["cell_type"] == "code"]
        errors = [
            (cell_label(one, at), said)
            for at, one in cells for said in one["outputs"] if said["output_type"] == "error"
        ]  # fmt: skip
        whys = {label: f"{said['ename']}: {said['evalue']}" for label, said in errors}
        uncounted = [label for label, why in whys.items() if UNCOUNTED in why]
        failed = {label: why for label, why in whys.items() if label not in uncounted}
        row |= {
            "cells": len(cells), "ran": len(cells) - len(whys), "uncounted": uncounted, "failed": failed,
        }  # fmt: skip
    except ExecutionFailed as error:
        row |= {"refused": " ".join(str(error).split())}
    return row | {"seconds": round(time.monotonic() - started, 1)}


def rows_of(files: Sequence[Path], root: Path, at_once: int) -> Iterator[Row | None]:
    """Run the lessons, at most `at_once` at a time, each in a separate process. Yields the row of each that
    ends, and None about once per second.
    """
    program = [sys.executable, "-m", "tools.bench.compiled_lessons"]
    commands = {file.stem: [*program, str(file), str(root)] for file in files}
    rows: dict[str, Row] = {}
    for one in printed_by(commands, environment(interpret=False), at_once):
        if one is None:
            yield None
        elif one.code is None:
            if one.line.startswith("{"):
                rows[one.name] = json.loads(one.line)
        else:
            why = f"its process ended with exit code {one.code}; {one.line or 'no error was printed'}"
            yield rows.get(one.name) or {"lesson": one.name, "refused": why, "seconds": 0.0}


def text_of(row: Row) -> str:
    """Format a lesson's row: one line, and one more for each cell that failed or needs counts."""
    if "refused" in row:
        return f"{row['lesson']}: {row['refused']}"
    errors = [f"\n  {label}: {why.splitlines()[0]}" for label, why in row["failed"].items()]
    errors += [f"\n  {label}: {UNCOUNTED}" for label in row["uncounted"]]
    return f"{row['lesson']}: {row['ran']} of {row['cells']} cells ran{''.join(errors)}"


def for_the_gpu(notebook: Row) -> Row:
    """Return a copy of the notebook with compiled kernels, which continues after a cell that raises."""
    notebook = json.loads(json.dumps(notebook))
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for said, instead in COMPILED_INSTEAD.items():
            text = text.replace(said, instead)
        cell["source"] = text
        if cell["cell_type"] == "code":
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), "raises-exception"]
    start = START
    first: Row = {"cell_type": "code", "id": "compiled", "metadata": {}, "source": start, "outputs": [],
             "execution_count": None}  # fmt: skip
    notebook["cells"].insert(0, first)
    return notebook


class Uncounted(Ledger):
    """The ledger of compiled kernels: every use of a count raises CannotCount."""

    def __getattribute__(self, name: str) -> Any:
        if name in COUNTS:
            raise CannotCount(UNCOUNTED)
        return super().__getattribute__(name)


COUNTS = {one.name for one in dataclasses.fields(Ledger)}


def compile_kernels() -> None:
    """Patch the process of a lesson: launches accept tensors on the CPU, and traffic is not counted."""
    from triton.runtime.jit import JITFunction

    from iocourse import traffic
    from iocourse.course import checking
    from iocourse.kernels.host import checks

    JITFunction.run = on_device(JITFunction.run)
    for module, name, new in (
        (checks, "_check_device", lambda device: None),
        (traffic, "count", lambda *_, **__: nullcontext(Uncounted())),
        (checking, "failed_properties", partial(errors_first, checking.failed_properties)),
    ):
        setattr(module, name, new)


def errors_first(failed: Callable[[Any], dict[str, str]], verdicts: Any) -> dict[str, str]:
    """Return the failed properties of a check without those that need counts, unless only these failed."""
    found = failed(verdicts)
    return {name: why for name, why in found.items() if UNCOUNTED not in why} or found


def on_device(run: Callable[..., Any], device: str = "cuda") -> Callable[..., Any]:
    """Wrap a launch so that its tensors are copied to the device, and back after the kernel. Views
    still share memory. The checks of exercises, which refuse copies by torch, do not see these copies.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    def launched(*arguments: Any, **options: Any) -> Any:
        copies: dict[int, tuple[Any, Any]] = {}

        def there(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                memory = x.untyped_storage()
                if memory.data_ptr() not in copies:
                    copies[memory.data_ptr()] = memory, torch.UntypedStorage(memory.nbytes(), device=device)
                    copies[memory.data_ptr()][1].copy_(memory)
                copy = copies[memory.data_ptr()][1]
                whole = torch.empty(0, dtype=x.dtype, device=device)
                return whole.set_(copy, x.storage_offset(), x.size(), x.stride())
            if isinstance(x, tuple):
                return type(x)(*map(there, x)) if hasattr(x, "_fields") else tuple(map(there, x))
            return dataclasses.replace(x, base=there(x.base)) if hasattr(x, "block_shape") else x

        with _disable_current_modes():
            arguments, options = tuple(map(there, arguments)), {name: there(x) for name, x in options.items()}
        result = run(*arguments, **options)
        with _disable_current_modes():
            for memory, copy in copies.values():
                memory.copy_(copy)
        return result

    return launched


if __name__ == "__main__":
    print(json.dumps(row_of(Path(sys.argv[1]), Path(sys.argv[2]))))
