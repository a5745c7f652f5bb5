"""The rule of choices.json: a bad file stops the build and is named by `--check`, with the row."""

import json
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tools.build.rules import choices_file

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / choices_file.FILE).read_text(encoding="utf-8")


def problems(tmp_path, change):
    """Return the messages about a copy of the file whose rows `change` has changed."""
    whole = json.loads(TEXT)
    change(whole["rows"])
    file = tmp_path / choices_file.FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole), encoding="utf-8")
    return choices_file.problems(tmp_path)


def first(rows, name, **facts):
    return next(row for row in rows if name in row["choose"] and facts.items() <= row.items())


def test_the_file_has_no_fault(tmp_path):
    assert choices_file.problems(ROOT) == []
    assert choices_file.problems(tmp_path) == []  # without a file


def test_a_row_without_a_reason_is_named(tmp_path):
    for why in ("", None):
        (line,) = problems(tmp_path, lambda rows, why=why: rows[5].update(why=why))
        assert line.startswith("a row of choices.json is not valid") and '"choose"' in line


def test_two_rows_for_one_case_are_named(tmp_path):
    more = {"choose": {"decode step": "last program"}, "arch": [80], "why": "made up, not timed"}
    lines = problems(tmp_path, lambda rows: rows.extend([more, more]))
    assert len(lines) == 1 and "decode step: 2 rows decide Case(arch=80" in lines[0]
    assert lines[0].count("decode step = last program (arch [80]") == 2


def test_a_case_without_a_row_is_named(tmp_path):
    def shorter(rows):
        first(rows, "forward pass", arch=[80], itemsize=[2])["d"] = [1, 192]

    (line,) = problems(tmp_path, shorter)
    assert "forward pass: no row decides Case(arch=80, itemsize=2, d=193" in line


def test_a_gain_that_is_not_that_of_the_record_is_named(tmp_path):
    def boast(rows):
        row = next(row for row in rows if row.get("evidence", {}).get("timed") == "attention")
        row["evidence"]["gain"] = [1.5, 1.5]

    (line,) = problems(tmp_path, boast)
    assert 'by the record attention, the row states [1.5, 1.5]. Write "gain": [1.' in line


@pytest.mark.parametrize(
    ("arch", "name", "end", "said"),
    [
        (80, "forward pass", 512, "fit and bytes decide for slices on sm_80, 2 bytes per number, d = 257"),
        (75, "backward pass, one kernel", 128, "decide for slices on sm_75, 2 bytes per number, d = 65"),
        (100, "forward pass", 256, "decide for complete rows on sm_100, 2 bytes per number, d = 257"),
    ],
)
def test_a_border_that_bytes_do_not_give_is_named(tmp_path, arch, name, end, said):
    def moved(rows):
        low, high = (row for row in rows if name in row["choose"]
                     and row.get("arch") == [arch] and row.get("itemsize") == [2])  # fmt: skip
        low["d"], high["d"] = [1, end], [end + 1, 1024]

    lines = problems(tmp_path, moved)
    assert len(lines) == 1 and said in lines[0]


def test_bytes_do_not_decide_between_other_values(tmp_path):
    def timed_by_bytes(rows):
        first(rows, "decode step", otherwise=True)["evidence"] = {"bytes": True}

    (line,) = problems(tmp_path, timed_by_bytes)
    assert "bytes decide only forward pass, " in line
