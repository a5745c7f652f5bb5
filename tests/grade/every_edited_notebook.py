"""nbgrader itself on every edited notebook (minutes: `pytest tests/grade/every_edited_notebook.py`)."""

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import edited_notebooks

from tools.build.notebook_execution import lesson_environment

EDITS = edited_notebooks.discovered()


def test_nbgrader_gives_the_declared_points_and_line(tmp_path):
    source = tmp_path / "source" / edited_notebooks.STEM
    source.mkdir(parents=True)
    shutil.copy(edited_notebooks.ROOT / "docs" / "nbgrader_config.py", tmp_path)
    shutil.copy(edited_notebooks.ROOT / "lessons" / f"{edited_notebooks.STEM}.ipynb", source)
    for name, edit in EDITS.items():
        folder = tmp_path / "submitted" / name / edited_notebooks.STEM
        folder.mkdir(parents=True)
        (folder / f"{edited_notebooks.STEM}.ipynb").write_text(
            json.dumps(edited_notebooks.made(edit)), encoding="utf-8"
        )
    with lesson_environment(edited_notebooks.ROOT, strict=False) as env:
        env |= {"JUPYTER_CONFIG_DIR": str(tmp_path / "none"), "JUPYTER_DATA_DIR": str(tmp_path / "none")}
        env["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), env["PATH"]])
        steps = [sys.executable, str(Path(__file__).with_name("nbgrader_steps.py")), edited_notebooks.STEM]
        done = subprocess.run(steps, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        points = {row["student_id"]: round(float(row["score"]), 2) for row in csv.DictReader(file)}
    assert points == {name: edit.POINTS for name, edit in EDITS.items()}
    for name, edit in EDITS.items():
        assert f"{name}: {edit.LINE}" in done.stderr
