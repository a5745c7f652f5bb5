"""Launches as on a GPU, without one: through Triton's JIT to a stubbed driver.

Each script runs in a separate process, because a process either interprets or compiles.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def rehearse(script, *arguments):
    """Run a script of this folder and return its output. Triton caches compiled kernels by source and
    compile-time arguments, so unchanged kernels are compiled once.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


@pytest.mark.timeout(900)
def test_every_launch_is_compiled_and_packed():
    done = rehearse("every_launch.py")
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    assert said["failed"] == {} and done.returncode == 0, "\n".join(said["failed"].values())
    assert set(said["launches"]) == kernels(), "a kernel of the library is launched by no variant, or unknown"
    assert said["maps"] > 40, "the copy engine's descriptors are used no more"
    assert said["cached"] == said["warmed"] > 0, "what tune compiles beforehand is not what it times"


@pytest.mark.timeout(300)
def test_a_direct_call_makes_fewer_calls_than_the_operators():
    """Of functions, in Python and in C, for both passes of `attention`; the times are for people to read."""
    done = rehearse("host_time.py", 0)
    assert done.returncode == 0, done.stderr
    for counted in json.loads(done.stdout).values():
        assert 100 < counted["calls"]["direct"] <= 0.75 * counted["calls"]["operators"]


def kernels():
    """The names of all kernels of the library, as their files have them."""
    found = set()
    for file in (ROOT / "iocourse" / "kernels").glob("*.py"):
        lines = file.read_text(encoding="utf-8").splitlines()
        defined = (line for line in lines if line.startswith("def ") and "_kernel(" in line)
        found |= {line.removeprefix("def ").partition("(")[0] for line in defined}
    return found
