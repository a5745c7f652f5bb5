"""A shipped record as text: contenders are columns, shapes are lines, and no number is lost."""

import re

import pytest

from iocourse.console import number
from iocourse.data.recorded import provenance, recorded
from iocourse.data.records import shown

TIMED = ("attention", "attention-n4096", "attention-tutorial", "decode", "small-cache", "sparse", "varlen")


@pytest.mark.parametrize("name", TIMED)
def test_every_figure_of_a_shipped_record_is_in_its_line_and_column(name):
    record = recorded(name)
    tables = [part.splitlines() for part in shown(record).split("\n\n")]
    rows = [*record["rows"], *record.get("density_rows", [])]
    found = 0
    for head, names, *lines in (table for table in tables if " = " in table[0] and len(table) > 2):
        unit, dtype, d, pass_ = head.split(", ")
        key = {"TFLOP/s": "tflops", "GB/s of K and V": "gbytes_per_s"}[unit]
        columns = [cell.strip() for cell in re.split(r" {2,}", names)]
        for line in lines:
            cells = dict(zip(columns, re.split(r" {2,}", line.strip()), strict=True))
            some = [
                row for row in rows if (row["dtype"], f"d = {row['d']}", row["pass"]) == (dtype, d, pass_)
            ]
            labels = [
                column for column in columns if column in some[0] and column not in record["contenders"]
            ]
            here = [row for row in some if all(str(row[label]) == cells[label] for label in labels)]
            assert here and len({row["contender"] for row in here}) == len(here), "one shape per line"
            for row in here:
                assert cells[row["contender"]] == number(row.get(key), 1)
                found += 1
            ours = next(row for row in here if row["contender"] == record["contenders"][0])
            if "ours / rival" in cells:
                assert cells["ours / rival"] == number(ours.get("ratio"), 2)
    assert found == len(rows)
    assert tables[-1] == [provenance(record)]


def test_what_only_some_records_have():
    assert shown(None) == "no recorded run yet"
    said = shown(recorded("sparse"))
    line = recorded("sparse")["lines"][0]
    want = [str(line[key]) for key in ("d", "N", "pass")]
    want += [number(line[key], 3) for key in ("dense_ms", "overhead_ms", "deviation")]
    assert "  ".join(want) in re.sub(r" {2,}", "  ", said) and "dense + overhead" not in shown(
        recorded("decode")
    )
    assert "of the copy" in shown(recorded("decode")) and "of the copy" not in said
    assert "of the saved" in shown(recorded("varlen"))


def test_a_reason_not_to_time_is_said_once():
    row = {"dtype": "float16", "d": 64, "N": 1, "contender": "A", "pass": "forward", "ms": 1.0, "tflops": 2.0}
    refused = {key: value for key, value in row.items() if key not in ("ms", "tflops")} | {
        "refused": "no room"
    }
    rows = [row, refused | {"contender": "B"}, refused | {"contender": "B", "N": 2}]
    made = {"rows": rows, "contenders": ["A", "B"], "versions": {}, "date": "today"}
    text = shown(made)
    assert text.count("no room") == 1 and "not timed\nB: no room" in text
    assert "N    A  B\n1  2.0  –\n2    –  –" in text
