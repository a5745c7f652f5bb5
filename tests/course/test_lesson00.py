"""Tests of lesson 00: its formulas, statements and questions."""

import base64
import json
import re
from importlib import resources

import numpy as np
import pytest
from lesson_source import ROOT, Lesson

from iocourse import Ledger, costs, run
from iocourse.course import check

LESSON = Lesson("00_start_here")
SOURCE = (ROOT / "solutions" / "00_start_here.py").read_text(encoding="utf-8")
PRODUCT = {"A": np.random.default_rng(1).standard_normal((100, 50)), "x": np.ones(50)}


def shown(name):
    """Return a schedule as the lesson defines it."""
    names = {}
    exec(LESSON.code(f"def {name}(").split("\n\n\n")[0], names)
    return names[name]


@pytest.mark.parametrize("b", [1, 3, 7, 10, 99, 100, 101])
def test_formula_0_2_and_the_least_for_whole_and_ragged_blocks(b):
    again, kept = (run(shown(name), M=10_000, **PRODUCT, b=b) for name in ("x_loaded_again", "x_kept"))
    assert np.allclose(again.O, PRODUCT["A"] @ PRODUCT["x"]) and np.array_equal(again.O, kept.O)
    assert again.ledger.total == costs.matmul(100, 1, 50, bm=b, bn=1).total  # as bound to (0.2)
    assert kept.ledger.total == 100 * 50 + 50 + 100


def test_the_ledger_of_the_least_is_the_one_in_the_lesson():
    least = eval(re.search(r"least = (Ledger\(.*\))", SOURCE)[1], {"Ledger": Ledger})
    assert run(shown("x_kept"), M=600, **PRODUCT, b=10).ledger == least


def test_who_waits_in_section_0_4():
    N, d = 4096, 64
    chip = (312e12 / 2) / (1555e9 / 2)
    many = 2 * N * N * d / (4 * N * d)
    naive = 2 * N * N * d / (4 * N * d + 4 * N * N)
    assert naive < chip < many and round(many / chip) == 10 and round(chip, -1) == 200
    assert 2 * d * (1 + N) / (4 * N * d) == pytest.approx(0.5, abs=0.001)  # "about half as many"


def test_the_failing_report_in_the_text_is_what_check_prints(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)

    def output_forgotten(Nq, Nk, d):
        return Nq * d + 2 * Nk * d

    check("0A", output_forgotten, seed=7)
    said = capsys.readouterr().out.splitlines()
    quoted = LESSON.text.split("```text\n")[1].split("\n```")[0].splitlines()
    assert quoted[0] == said[0] and quoted[-1] == said[-1]
    assert [line for line in said if line in quoted] == [line for line in quoted if line != "  ..."]


def test_the_quiz_asks_and_does_not_tell():
    names = ("constant_traffic", "linear_traffic", "smaller_tiles_move_less")
    asked = re.search(r'^predict\("0\.2".*#> (.*)$', SOURCE, re.MULTILINE)
    assert asked[1] == f'predict("0.2", {", ".join(f"{name}=..." for name in names)})'
    assert 'measured("0.2"' not in SOURCE
    assert (
        len(set(re.findall(r"=(True|False)", asked[0]))) == 2
    )  # the guess in the solved notebook reveals nothing


def test_the_opening_picture_is_seen_before_anything_has_run():
    """Both notebooks contain the film, and the explanations of measurements are folded."""
    for folder in ("solutions", "lessons"):
        notebook = json.loads((ROOT / folder / "00_start_here.ipynb").read_text(encoding="utf-8"))
        first = next(n for n, cell in enumerate(notebook["cells"]) if "two_memories()" in cell["source"])
        (output,) = notebook["cells"][first]["outputs"]
        film = resources.files("iocourse.course.explore").joinpath("two_memories.png").read_bytes()
        assert first < 5 and base64.b64decode(output["data"]["image/png"]) == film
        assert "4,608" in output["metadata"]["image/png"]["alt"]


def test_what_is_measured_is_read_in_a_fold():
    cells = LESSON.cells
    after = [cells[n + 1].lines for n, cell in enumerate(cells) if _measures(cell)]
    assert len(after) == 3
    for lines in after:
        assert lines[0] == "<details><summary>Result and explanation</summary>" and lines[-1] == "</details>"


def _measures(cell):
    return cell.kind == "code" and any(line.strip().startswith("measured(") for line in cell.lines)


def test_one_query_costs_half_of_what_all_cost_together():
    least = LESSON.solved("0A")
    assert 100 * least(1, 4096, 64) / least(4096, 4096, 64) == pytest.approx(50, abs=0.02)
