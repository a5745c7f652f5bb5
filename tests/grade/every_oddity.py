"""nbgrader itself on every odd submission (minutes: `pytest tests/grade/every_oddity.py`)."""

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import oddities

from tools.build.notebook_execution import lesson_environment

ODD = oddities.discovered()


def test_nbgrader_gives_the_declared_points_and_line(tmp_path):
    source = tmp_path / "source" / oddities.STEM
    source.mkdir(parents=True)
    shutil.copy(oddities.ROOT / "docs" / "nbgrader_config.py", tmp_path)
    shutil.copy(oddities.ROOT / "lessons" / f"{oddities.STEM}.ipynb", source)
    for name, odd in ODD.items():
        folder = tmp_path / "submitted" / name / oddities.STEM
        folder.mkdir(parents=True)
        (folder / f"{oddities.STEM}.ipynb").write_text(json.dumps(oddities.made(odd)), encoding="utf-8")
    with lesson_environment(oddities.ROOT, strict=False) as env:
        env |= {"JUPYTER_CONFIG_DIR": str(tmp_path / "none"), "JUPYTER_DATA_DIR": str(tmp_path / "none")}
        env["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), env["PATH"]])
        steps = [sys.executable, str(Path(__file__).with_name("nbgrader_steps.py")), oddities.STEM]
        done = subprocess.run(steps, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        points = {row["student_id"]: round(float(row["score"]), 2) for row in csv.DictReader(file)}
    assert points == {name: odd.POINTS for name, odd in ODD.items()}
    for name, odd in ODD.items():
        assert f"{name}: {odd.LINE}" in done.stderr
