"""`tools.bench gpu --install`: which parts of a run are shipped, in the place of which records, and with what
remark. Every part is judged alone; the others are installed.
"""

import json

import pytest
from fake_gpu import CpuPlace

from iocourse.data import records
from iocourse.errors import UsageError
from tools.bench import gpu, install, steps
from tools.bench.__main__ import main

CLEAN, DIRTY = "0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567+"
ROWS = (
    "sm_90 forward 64 2 causal band",
    "sm_90 forward 128 2 causal band",
    "sm_90 decode_parts 128 2 full band",
)
TODAY = {"3.6.0": dict.fromkeys(ROWS, "new"), "3.7.1": dict.fromkeys(ROWS, "also new")}
OLD = {"3.6.0": dict.fromkeys(ROWS, "old")}
FORWARD = {"d": 64, "dtype": "bfloat16"}


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    """An empty folder in the place of the package's records, and made-up kernels of today."""
    monkeypatch.setattr(install, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(records, "kernels_code", lambda: TODAY)
    return tmp_path / "package"


def record(subject, done=6, **facts):
    made = {"subject": subject, "quick": False, "date": "1970-01-02", "commit": CLEAN, "kernels_code": TODAY}
    made |= {"versions": {"triton": "3.6.0"}, "device": {"name": "a toy", "arch": 90}}
    return made | {"shapes": {"asked": 6, "done": done}, "rows": [FORWARD]} | facts


def run(tmp_path, **parts):
    """A file of a run with these parts."""
    file = tmp_path / "gpu.json"
    named = {name.replace("_", "-"): part for name, part in parts.items()}
    file.write_text(json.dumps(record("gpu") | {"steps": {}} | named))
    return file


def shipped(package, name="attention"):
    return json.loads((package / f"{name}.json").read_text())


def put(package, **facts):
    """Ship a record of attention, and return it."""
    package.mkdir(exist_ok=True)
    old = record("attention", **facts)
    (package / "attention.json").write_text(json.dumps(old))
    return old


def test_every_part_that_is_a_record_is_installed_under_its_name(package, tmp_path, capsys):
    """Parts of steps that no list names too; `counters` becomes `profile`."""
    parts = {
        "values": "values",
        "lessons": "lessons",
        "attention_tutorial": "attention",
        "a_new_step": "order",
    }
    made = {name: record(subject) for name, subject in parts.items()} | {"counters": record("profile")}
    assert main(["gpu", "--install", str(run(tmp_path, compile=record("compile"), **made))]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["values", "lessons", "attention-tutorial", "a-new-step", "profile"]
    assert lines == [f"{package / name}.json written" for name in names]
    assert sorted(file.stem for file in package.iterdir()) == sorted(names)
    assert {"values", "lessons"} <= set(records.NAMES)
    assert shipped(package, "values") == record("values")


# --- which record is better: (shipped, new, the new one replaces it) ---------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "written", "words"),
    [
        ({"done": 4, "kernels_code": OLD}, {"done": 2}, True, "the record that it replaces has 67%"),
        ({"done": 2}, {"done": 4, "kernels_code": OLD}, False, "because it is of today's kernels"),
        ({"done": 4}, {"done": 2}, False, "because it is more complete: 67% of its shapes, here 33%"),
        ({"done": 2}, {"done": 4}, True, "cut off at 67% of its shapes"),
        ({"done": 4, "kernels_code": OLD}, {"done": 2, "kernels_code": OLD}, False, "is more complete"),
        ({"date": "1970-01-03"}, {}, False, "because it is newer: 1970-01-03, here 1970-01-02"),
        ({"date": "1970-01-01"}, {}, True, "written"),
        ({"commit": DIRTY, "date": "1970-01-03"}, {"done": 1}, True, "written"),  # not known to be of today
        ({"kernels_code": "a string"}, {"done": 1}, True, "written"),
        ({"kernels_code": OLD}, {"quick": True}, False, "because it is not of a quick run"),
        ({"quick": True}, {"done": 1}, True, "written"),
        ({"quick": True, "done": 2}, {"quick": True, "done": 4}, True, "written"),
    ],
)
def test_fresh_kernels_come_before_the_number_of_shapes(package, tmp_path, before, now, written, words):
    old = put(package, **before)
    (line,) = install.installed(run(tmp_path, attention=record("attention", **now)))
    assert words in line and (" written" in line) == written
    assert (shipped(package) == old) != written
    assert not written or shipped(package)["shapes"] == record("", **now)["shapes"], "rows of one run only"


# --- what a record lacks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"commit": DIRTY}, "the checkout of 0123456 had changed files, so its code is unknown"),
        ({"commit": "iocourse 1.0, not a checkout"}, "its code is unknown: iocourse 1.0, not a checkout"),
        ({"commit": None, "device": {}}, "it is not a valid record: missing device, commit"),
        ({"done": 0}, "it was cut off before its first result"),
        ({"shapes": {"asked": 6}}, "it does not state how many of its shapes are done"),
        ({"shapes": {"asked": 0, "done": 0}}, "it does not state how many of its shapes are done"),
    ],
)
def test_a_part_with_a_fault_is_left_out_with_one_line(package, tmp_path, fault, words):
    bad = {"cores": None, **fault}
    file = run(tmp_path, decode=record("decode", **bad), attention=record("attention"))
    written, refused = install.installed(file)
    assert written == f"{package / 'attention'}.json written"
    assert refused.startswith(f"decode is not installed, because {words}")
    assert [one.stem for one in package.iterdir()] == ["attention"]
    with pytest.raises(UsageError, match="contains no valid record\ndecode is not installed, because"):
        install.installed(run(tmp_path, decode=record("decode", **bad)))


def test_a_file_of_something_else(package, tmp_path):
    with pytest.raises(UsageError, match=r"contains no valid record$"):
        install.installed(run(tmp_path))
    file = run(tmp_path, attention=record("attention"))
    file.write_text(file.read_text()[:-20])  # cut off while it was copied
    for other in (file, tmp_path / "nowhere.json"):
        with pytest.raises(UsageError, match="must be a file that --json of this command wrote, got "):
            install.installed(other)
    assert not package.exists()


FASTER = {"arch": 90, "kernel": "forward", "d": 64, "itemsize": 2, "causal": True, "tile": [64, 32, 4, 2]}


def test_tiles_that_were_found_are_shipped_and_nonsense_is_not(package, tmp_path):
    tune = {"kernels": [1], "asked": 1}
    install.installed(run(tmp_path, tune=record("tune", **tune, tiles=[FASTER])))
    assert shipped(package, "tune")["tiles"] == [FASTER]
    for tiles in ([FASTER | {"tile": [48] * 4}], None):
        file = run(tmp_path, tune=record("tune", **tune, tiles=tiles), values=record("values"))
        _, refused = install.installed(file)
        assert refused.startswith("tune is not installed, because ")
        assert "[48, 48, 48, 48] of forward cannot run on sm_90" in refused or tiles is None
        assert shipped(package, "tune")["tiles"] == [FASTER]


# --- the kernels of a record --------------------------------------------------------------------------------


def test_a_record_of_another_triton_is_installed_and_says_with_which_it_is_compared(package, tmp_path):
    other = record("attention", versions={"triton": "9.9"})
    (line,) = install.installed(run(tmp_path, attention=other))
    assert line.endswith("; its kernels are compared as compiled by Triton 3.6.0, 3.7.1, not 9.9")
    assert shipped(package)["versions"] == {"triton": "9.9"}


@pytest.mark.parametrize(
    ("code", "words"), [(OLD, "its kernels have changed since"), ({}, "its kernels cannot be compared")]
)
def test_a_record_of_other_kernels_is_installed_with_a_line(package, tmp_path, code, words):
    (line,) = install.installed(run(tmp_path, attention=record("attention", kernels_code=code)))
    assert line == f"{package / 'attention'}.json written; {words}"


def test_only_kernels_that_were_timed_age_a_record(package, tmp_path):
    forward_64, forward_128, decode = ROWS
    parts = {
        "attention": record("attention"),
        "values": record("values"),
        "small_cache": record("small-cache"),
    }
    parts["decode"] = record("decode", rows=[{"d": 128, "dtype": "bfloat16"}])
    parts["sparse"] = record("sparse", rows=[], density_rows=[{"d": 100, "dtype": "float16"}])
    parts["varlen"] = record("varlen")
    install.installed(run(tmp_path, **parts))
    kept = {
        name: [*shipped(package, name)["kernels_code"].get("3.6.0", ())] for name in ("attention", "decode")
    }
    assert kept == {"attention": [forward_64], "decode": [decode]}
    assert shipped(package, "values")["kernels_code"] == TODAY
    assert [*shipped(package, "sparse")["kernels_code"]["3.7.1"]] == [forward_128]
    assert shipped(package, "varlen")["kernels_code"] == {}  # no packed kernel is known


def test_a_compiler_that_lacks_a_kernel_does_not_count(package, tmp_path):
    code = TODAY | {"3.6.0": TODAY["3.6.0"] | {ROWS[0]: ""}}
    facts = {"kernels_code": code}
    install.installed(run(tmp_path, attention=record("attention", **facts), values=record("values", **facts)))
    assert [*shipped(package)["kernels_code"]] == ["3.7.1"]
    known = shipped(package, "values")["kernels_code"]
    assert known == TODAY | {"3.6.0": dict.fromkeys(ROWS[1:], "new")}
    code = {version: rows | {ROWS[0]: ""} for version, rows in TODAY.items()}
    (line,) = install.installed(run(tmp_path, lessons=record("lessons", kernels_code=code)))
    assert line.endswith("; its kernels cannot be compared")
    assert shipped(package, "lessons")["kernels_code"] == {}, "no compiler knows all of them"


@pytest.mark.parametrize("commit", [CLEAN, DIRTY])
def test_a_run_says_at_its_start_that_its_records_will_be_refused(monkeypatch, capsys, tmp_path, commit):
    monkeypatch.setattr(gpu, "cuda_place", CpuPlace)
    monkeypatch.setattr(gpu, "plan", lambda tutorial: {})
    monkeypatch.setattr(steps, "kernels_at_hand", lambda capability: {})
    monkeypatch.setattr(steps, "run_metadata", lambda *packages: {"commit": commit})
    gpu.run(False, file=tmp_path / "gpu.json")
    assert ("--install will refuse the records" in capsys.readouterr().out) == (commit == DIRTY)
