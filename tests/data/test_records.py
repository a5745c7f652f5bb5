"""Records shipped with the package: loaded unchanged, or None if missing, each with its source; and formatted
as text with implementations as columns and shapes as lines, without losing a number.
"""

import json
import re
from importlib import resources

import pytest

from iocourse.console import number
from iocourse.data import records
from iocourse.data.records import (
    NAMES,
    format_record,
    load_record,
    missing_metadata,
    record_source,
    run_metadata,
)

TIMED = (
    "attention", "attention-lengths", "attention-tutorial", "decode", "small-cache", "sparse", "sparse-lines",
    "varlen",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_shipped_file_or_none(name):
    file = resources.files("iocourse.data").joinpath("bench", f"{name}.json")
    record = load_record(name)
    assert (record is None) == (not file.is_file())
    if record is None:
        assert record_source(record) == "no recorded run yet"
    else:
        assert record == json.loads(file.read_text(encoding="utf-8")) and name.startswith(record["subject"])
        assert record["date"] in record_source(record)
        assert all(version in record_source(record) for version in record["versions"].values())


def test_every_shipped_record_can_be_asked_for():
    folder = resources.files("iocourse.data").joinpath("bench")
    shipped = {file.name for file in folder.iterdir() if file.name.endswith(".json")}
    assert shipped <= {f"{name}.json" for name in NAMES}


def test_no_recorded_run_yet_is_an_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(records.resources, "files", lambda package: tmp_path)
    assert load_record("attention") is None


def test_a_source_names_the_device_where_there_was_one():
    made_up = {"versions": {"torch": "0.1", "triton": "0.2"}, "date": "1970-01-01"}
    assert record_source(made_up) == "torch 0.1, triton 0.2, 1970-01-01"
    device = {"name": "a made-up GPU", "arch": 12, "driver": "3.4"}
    assert record_source(made_up | {"device": device}).startswith(
        "a made-up GPU (sm_12, driver 3.4), torch 0.1"
    )


def test_every_shipped_record_tells_device_versions_date_and_commit():
    for name in NAMES:
        record = load_record(name)
        assert record is None or (
            missing_metadata(record) == []
            and (record.get("timed") or re.fullmatch("[0-9a-f]{40}[+]?", record["commit"]))
        )


def test_only_tiles_was_measured_with_code_outside_the_repository():
    found = {name: record for name in NAMES if (record := load_record(name)) and "timed" in record}
    assert [*found] == ["tiles"] and "commit" not in found["tiles"]
    assert record_source(found["tiles"]).endswith(
        ", a draft of the forward kernel, not a kernel of the library"
    )


@pytest.mark.parametrize("missing", ["device", "versions", "date", "commit"])
def test_what_a_record_lacks_is_named(missing):
    whole = load_record("roofs")
    assert missing_metadata(whole) == [] and missing_metadata({**whole, missing: {}}) == [missing]
    there = {key: value for key, value in whole.items() if key != missing}
    assert missing_metadata(there) == [missing] and missing_metadata({}) == [
        "device",
        "versions",
        "date",
        "commit",
    ]


ROW = "sm_90 forward 64 2 causal band"
TODAY = {"1.0": {ROW: "a", "sm_90 keys 64 2 full band": "b"}, "2.0": {ROW: "c"}, "3.0": {ROW: ""}}


def source(monkeypatch, kernels_code, commit="0123456789"):
    """The source of a made-up record with these fingerprints, without its first part."""
    monkeypatch.setattr(records, "kernels_code", lambda: TODAY)
    made_up = {"versions": {"torch": "0.1"}, "date": "1970-01-01", "commit": commit}
    return record_source(made_up | {"kernels_code": kernels_code}).removeprefix("torch 0.1, 1970-01-01, ")


@pytest.mark.parametrize(
    ("then", "remark"),
    [
        ({"1.0": {ROW: "a"}}, ""),
        ({"1.0": {ROW: "a"}, "2.0": {ROW: "c"}}, ""),
        ({"1.0": {ROW: "b"}}, records.CHANGED),
        ({"1.0": {ROW: "a"}, "2.0": {ROW: "d"}}, records.CHANGED),  # one compiler shows the change
        ({"1.0": {"sm_90 gone 64 2 full band": "a"}}, records.CHANGED),
        ("a made-up string", records.CHANGED),  # of a record before machine code was compared
        ({}, records.NOT_COMPARED),
        ({"1.0": {}}, records.NOT_COMPARED),
        ({"0.9": {ROW: "a"}}, records.NOT_COMPARED),  # another Triton
        ({"1.0": {ROW: ""}}, records.NOT_COMPARED),  # not known then
        ({"3.0": {ROW: "a"}}, records.NOT_COMPARED),  # not known now
        ({"0.9": {ROW: "z"}, "1.0": {ROW: "a"}, "3.0": {ROW: "z"}}, ""),
    ],
)
def test_a_record_says_whether_its_kernels_are_those_of_today(monkeypatch, then, remark):
    """Fingerprints are compared for the versions of Triton for which both sides know all of them."""
    assert source(monkeypatch, then) == ", ".join(filter(None, ["commit 0123456", remark]))


def test_a_checkout_with_changed_files_is_never_of_today(monkeypatch):
    dirty = "0123456789+"
    assert source(monkeypatch, TODAY, dirty) == f"commit 0123456+, {records.NOT_COMPARED}"
    assert source(monkeypatch, {"1.0": {ROW: "z"}}, dirty) == f"commit 0123456+, {records.CHANGED}"


def test_fingerprints_are_read_from_the_records_of_compiled_kernels():
    for name in records.COMPILED:
        record = load_record(name)
        rows = records.kernels_code()[record["versions"]["triton"]]
        assert rows == {records.kernel_row(row): row.get("machine_code", "") for row in record["shipped"]}
        assert len(rows) == len(record["shipped"]), "no two kernels have the same name"


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of answers, attention, .*; got 'speed'"):
        load_record("speed")


# ---- as text


@pytest.mark.parametrize("name", TIMED)
def test_every_figure_of_a_shipped_record_is_in_its_line_and_column(name):
    record = load_record(name)
    tables = [part.splitlines() for part in format_record(record).split("\n\n")]
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
    assert tables[-1] == [record_source(record)]


def test_what_only_some_records_have():
    assert format_record(None) == "no recorded run yet"
    said = format_record(load_record("sparse-lines"))
    line = load_record("sparse-lines")["lines"][0]
    want = [str(line[key]) for key in ("d", "N", "pass")]
    want += [number(line[key], 3) for key in ("dense_ms", "overhead_ms", "deviation")]
    assert "  ".join(want) in re.sub(r" {2,}", "  ", said) and "dense + overhead" not in format_record(
        load_record("decode")
    )
    assert "of the copy" in format_record(load_record("decode")) and "of the copy" not in said
    assert "of the saved" in format_record(load_record("varlen"))


def test_a_reason_not_to_time_is_said_once():
    row = {"dtype": "float16", "d": 64, "N": 1, "contender": "A", "pass": "forward", "ms": 1.0, "tflops": 2.0}
    refused = {key: value for key, value in row.items() if key not in ("ms", "tflops")} | {
        "refused": "no room"
    }
    rows = [row, refused | {"contender": "B"}, refused | {"contender": "B", "N": 2}]
    made = {"rows": rows, "contenders": ["A", "B"], "versions": {}, "date": "today"}
    text = format_record(made)
    assert text.count("no room") == 1 and "not timed\nB: no room" in text
    assert "N    A  B\n1  2.0  –\n2    –  –" in text


def test_a_run_outside_a_checkout_says_its_version_for_a_commit(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{7,40}\+?|iocourse .*, not a checkout", run_metadata()["commit"])
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert re.fullmatch(r"iocourse [\d.]+, not a checkout", run_metadata()["commit"])
