"""What a visit to a GPU does, rehearsed without one: launches through Triton's JIT, every bench as planned.

Each runs in a process of its own, because a process interprets or compiles.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.gpu.contenders import FIRST

pytest.importorskip("torch")
pytest.importorskip("triton")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def rehearse(script, *arguments):
    """What a script of this folder says. What it compiles stays in Triton's own cache, under a name made of
    the source and of all that it was compiled for: kernels that nobody has changed are compiled once.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


@pytest.mark.timeout(900)
def test_every_launch_is_compiled_and_packed():
    done = rehearse("variants.py")
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


STEPS = (
    "attention",
    "tune",
    "tutorial",
    "sparse",
    "varlen",
    "decode",
    "small-cache",
    "everyone",
    "again",
)


@pytest.mark.timeout(900)
def test_the_whole_visit_runs_and_leaves_its_records(tmp_path):
    done = rehearse("a_visit.py", tmp_path)
    state = json.loads((tmp_path / "visit.json").read_text())["steps"]
    assert done.returncode == 0, done.stdout + done.stderr
    logs = {name: (tmp_path / "logs" / f"{name}.log").read_text() for name in STEPS}
    assert {name: logs[name] for name in STEPS if state[name]["state"] != "done"} == {}
    for log in (tmp_path / "logs").glob(
        "values-*.log"
    ):  # their values are those of a stub, and nothing raises
        assert "failed on no GPU but a rehearsal" in log.read_text() and " raised " not in log.read_text()
    for name in STEPS:
        record = json.loads((tmp_path / "records" / f"{name}.json").read_text())
        assert record["device"]["name"] == "no GPU but a rehearsal" and record["device"]["arch"] == 90
        assert {"subject", "date", "versions"} <= record.keys()
        ours_are_timed(name, record)
    assert json.loads((tmp_path / "rehearsal.json").read_text())["launches"] > 500


def ours_are_timed(name, record):
    """Every shape and pass of ours has its time, and every tile that was tried."""
    if name == "tune":
        assert len(record["kernels"]) == record["asked"] == 8 and record["tiles"] == []
        assert [one for kernel in record["kernels"] for one in kernel["tried"] if "failed" in one] == []
        return
    assert record["shapes"]["done"] == record["shapes"]["asked"] > 0
    rows = [*record["rows"], *record.get("density_rows", [])]
    names = (*FIRST, "last program merges", "whole rows", "materialised", "two-pass")
    ours = [row for row in rows if row["contender"].startswith(names)]
    assert ours and [row for row in ours if "ms" not in row] == []
    assert any("ms" in row for row in rows if not row["contender"].startswith(names))
    assert all({"what", "reached", "goal", "floor", "verdict"} <= goal.keys() for goal in record["goals"])


def kernels():
    """The names of all kernels of the library, as their files have them."""
    found = set()
    for file in (ROOT / "iocourse" / "kernels").glob("*.py"):
        lines = file.read_text(encoding="utf-8").splitlines()
        defined = (line for line in lines if line.startswith("def ") and "_kernel(" in line)
        found |= {line.removeprefix("def ").partition("(")[0] for line in defined}
    return found
