"""Stub of ncu. Its tables are hand-written in ncu's format, without a GPU."""

import sys
from pathlib import Path

from tools.bench import ncu

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
)


def table(*rows, names=("forward_kernel",), metrics=ncu.METRICS, units=("sector",) * 4 + ("byte",) * 2):
    """Return ncu's output for kernels of these names, with these values of their metrics."""
    lines = ["==PROF== Connected to process 7 (/usr/bin/python3)", HEAD + "".join(f',"{m}"' for m in metrics)]
    lines.append('""' + ',""' * 8 + "".join(f',"{unit}"' for unit in units))
    for at, (name, row) in enumerate(zip(names, rows, strict=True)):
        facts = f'"{at}","7","python3","127.0.0.1","{name}","1","7","(256, 1, 1)","(64, 1, 1)"'
        lines.append(facts + "".join(f',"{value}"' for value in row))
    return "\n".join([*lines, "==PROF== Disconnected from process 7", ""])


FAKE = """#!{python}
import json, os, pathlib, sys
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.1.0.0 (build 1)")
    raise SystemExit
here = pathlib.Path(__file__).parent
if arguments == ["--query-metrics"]:
    print((here / "metrics").read_text() if (here / "metrics").exists() else "")
    raise SystemExit
asked = {{"arguments": arguments}}
asked |= {{name: os.environ.get(name) for name in ("TRITON_INTERPRET", "PYTHONPATH")}}
(here / "asked.json").write_text(json.dumps(asked))
pathlib.Path(arguments[arguments.index("--log-file") + 1]).write_text((here / "table.csv").read_text())
print((here / "printed").read_text() if (here / "printed").exists() else "the program's output")
raise SystemExit({code})
"""


def fake(folder: Path, text: str, *, code: int = 0, printed: str = "", metrics: str = "") -> Path:
    """A program that answers as ncu does: with this table, these words, this exit code, these metrics."""
    folder.mkdir(exist_ok=True)
    program = folder / "ncu"
    program.write_text(FAKE.format(python=sys.executable, code=code))
    program.chmod(0o755)
    (folder / "table.csv").write_text(text)
    for name, said in (("printed", printed), ("metrics", metrics)):
        if said:
            (folder / name).write_text(said)
    return program
