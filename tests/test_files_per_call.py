"""Count the files of the package that a reader needs to follow one call from its first line to its last.

The call runs in a new process, and two sets of files are counted. *Run*: files of which the call runs a
function; code that runs at import only (class bodies, decorators) is excluded, because readers skip it.
*Imported*: files that are loaded when the call returns, whether or not they run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WALK = """
import json, sys
from pathlib import Path

import iocourse

ROOT, run = Path(iocourse.__file__).parent, set()


def seen(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>":
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and not importing(frame):
            run.add(path.relative_to(ROOT).as_posix())


def importing(frame):
    while frame is not None:
        name = frame.f_code.co_filename
        ours = frame.f_code.co_name == "<module>" and name.startswith(str(ROOT))
        if ours or name.startswith("<frozen importlib"):  # also the package's own finders
            return True
        frame = frame.f_back
    return False


{prepared}
sys.setprofile(seen)
{call}
sys.setprofile(None)
files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
imported = [Path(file) for file in files if file and Path(file).is_relative_to(ROOT)]
print(json.dumps([sorted(run), sorted(path.relative_to(ROOT).as_posix() for path in imported)]))
"""
ATTENTION = (
    "import torch; from iocourse.kernels import attention; q = torch.randn(1, 1, 64, 16)",
    "attention(q, q, q)",
)
COUNT = (
    "from iocourse.cli import main",
    "main(['count', 'flash2', '--N', '1024', '--d', '64', '--M', '16384'])",
)
CHECK = (
    """
from iocourse.course import check

def my_flash2(m, Q, K, V, *, Br, Bc):
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
""",
    'check("4A", my_flash2)',
)
STUB = (
    "from iocourse.course import check\ndef my_flash2(m, Q, K, V, *, Br, Bc): raise NotImplementedError",
    CHECK[1],
)


@pytest.fixture
def walk(tmp_path):
    def walked(prepared, call):
        """Return the output of the call, the files that it ran, and the files imported at its end."""
        env = os.environ | {"TRITON_INTERPRET": "1", "IOCOURSE_HOME": str(tmp_path), "MPLBACKEND": "agg"}
        code = WALK.replace("{prepared}", prepared).replace("{call}", call)
        script = tmp_path / "walk.py"
        script.write_text(code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        *printed, found = done.stdout.splitlines()
        run, imported = json.loads(found)
        print(f"{len(run)} files run, {len(imported)} imported:", *run)
        return "\n".join(printed), run, imported

    return walked


def lessons(files):
    return [Path(name).stem for name in files if name.startswith("course/exercises/lesson")]


def test_attention(walk):
    pytest.importorskip("triton")
    _, run, imported = walk(*ATTENTION)
    assert "kernels/forward.py" in run and not [name for name in imported if name.startswith("course/")]
    repair = {"doctor/bfloat16_repair.py"}  # of Triton's interpreter: no GPU runs it
    assert len({*run} - repair) <= 12 and len({*imported} - repair) <= 58


def test_count(walk):
    printed, run, imported = walk(*COUNT)
    assert "1,310,720 words moved" in printed and "costs/forms/forward.py" in run
    assert not [name for name in imported if name.startswith("distributed/")]
    assert not [name for name in imported if name.startswith("course/")]
    assert len(run) <= 14 and len(imported) <= 77


def test_check(walk):
    printed, run, imported = walk(*CHECK)
    assert "Solved." in printed and "machine/machine.py" in run
    assert lessons(imported) == ["lesson04"]
    assert not [name for name in imported if name.startswith("distributed/")]
    assert len(run) <= 26 and len(imported) <= 101  # each kind is a separate file


def test_a_check_before_anything_is_written_imports_one_lesson_too(walk):
    printed, run, imported = walk(*STUB)
    assert "not written yet" in printed and lessons(imported) == ["lesson04"]
    assert len(run) <= 18
