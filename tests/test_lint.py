"""Form is a test like any other: ruff's rules, ruff's format, mypy's strict types."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check", "--diff"], ["mypy"]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_style(command: list[str]):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
