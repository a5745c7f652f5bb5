"""`tools.bench gpu --install`: which parts of a run are shipped, in the place of which records, and with what
remark. Every part is judged alone; the others are installed.
"""

import json
from pathlib import Path

import pytest
from fake_gpu import CpuPlace

from iocourse.data import records
from iocourse.data.records import load_record
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
    """An empty folder in the place of the package's records, made-up kernels of today, and no choices."""
    pytest.importorskip("triton")
    from tools.bench import choices

    (tmp_path / "no-choices.json").write_text('{"about": "", "rows": []}')
    monkeypatch.setattr(choices, "FILE", tmp_path / "no-choices.json")
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


# --- the file of choices -----------------------------------------------------------------------------------


@pytest.fixture
def choices_file(monkeypatch, tmp_path):
    """A copy of choices.json in the place of the shipped one."""
    pytest.importorskip("triton")
    from iocourse import data
    from tools.bench import choices

    copy = tmp_path / "choices.json"
    copy.write_bytes(Path(data.__file__).with_name("choices.json").read_bytes())
    monkeypatch.setattr(choices, "FILE", copy)
    return copy


def tune(kernel="queries", d=64, tile=(64, 64, 8, 3), ms=0.5):
    """The shipped record of `tune` with another fastest tile for one kernel, causal only."""
    shipped_one = json.loads(json.dumps(load_record("tune")))
    (search,) = (one for one in shipped_one["kernels"] if (one["kernel"], one["d"]) == (kernel, d))
    search["tried"].append({"tile": [*tile], "ms": [9.0, ms]})
    search["chosen"][1] = [*tile]
    at = {"arch": 90, "kernel": kernel, "d": d, "itemsize": 2, "causal": True}
    found = {"kernels": shipped_one["kernels"], "asked": 8, "tiles": [at | {"tile": [*tile]}], "arch": 90}
    return record("tune", **found)


def tiles_of(file, kernel, d, *masks):
    from iocourse.kernels.host.choices import Case, read_rows
    from tools.bench.choices import decides

    rows = sorted(read_rows(file.read_text()), key=lambda row: row.otherwise)
    cases = [Case(90, 2, d, mask) for mask in masks]
    found = [[row for row in rows if row.name == kernel and decides(row, case)] for case in cases]
    return [tuple(some[0].value) for some in found]


def test_tiles_that_were_found_become_rows_of_the_choices(package, tmp_path, choices_file):
    before = choices_file.read_text()
    written, *lines = install.installed(run(tmp_path, tune=tune()))
    (was,) = (one["ms"][1] for one in _searched("queries", 64)["tried"] if one["tile"] == [128, 64, 8, 3])
    assert written.startswith(f"{package / 'tune'}.json written") and shipped(package, "tune")["tiles"]
    about = "choices.json: queries on sm_90, d = 64, causal:"
    assert lines == [f"{about} 64×64×8×3, {was / 0.5:.2f} times as fast as 128×64×8×3"]
    assert tiles_of(choices_file, "queries", 64, "causal", "full", "window", "packed") == [
        (64, 64, 8, 3), *[(128, 64, 8, 3)] * 3,
    ]  # fmt: skip
    assert tiles_of(choices_file, "fused", 64, "causal") == [(64, 128, 8, 2)], "a name of the same row before"
    # No other row changes, and the shipped record restores the tiles that it has.
    others = [row for row in before.splitlines() if '"queries"' not in row]
    assert [row for row in others if row not in choices_file.read_text().splitlines()] == []
    again = record("tune", **{key: load_record("tune")[key] for key in ("kernels", "asked", "tiles", "arch")})
    _, *lines = install.installed(run(tmp_path, tune=again | {"date": "1970-01-03"}))
    assert lines == [f"{about} no longer 64×64×8×3, but the tile of another row"]
    assert tiles_of(choices_file, "queries", 64, "causal") == [(128, 64, 8, 3)]


def _searched(kernel, d):
    return next(one for one in load_record("tune")["kernels"] if (one["kernel"], one["d"]) == (kernel, d))


def test_a_record_of_tiles_without_a_difference_changes_no_byte(package, tmp_path, choices_file):
    before = choices_file.read_text()
    same = record("tune", **{key: load_record("tune")[key] for key in ("kernels", "asked", "tiles", "arch")})
    (line,) = install.installed(run(tmp_path, tune=same))
    assert " written" in line and choices_file.read_text() == before


def test_a_shipped_tile_that_failed_has_no_time(package, tmp_path, choices_file):
    part = tune()
    (search,) = (one for one in part["kernels"] if (one["kernel"], one["d"]) == ("queries", 64))
    for one in search["tried"]:
        one |= {"ms": []} if one["tile"] == search["shipped"] else {}
    search["tried"].append({"tile": [32, 64, 8, 3], "ms": [9.0, 1.0]})
    search["tried"] = [one for one in search["tried"] if one["tile"] in ([64, 64, 8, 3], [32, 64, 8, 3])]
    search["chosen"][0] = [64, 64, 8, 3]
    lines = install.installed(run(tmp_path, tune=part))
    assert "d = 64, causal: 64×64×8×3, 2.00 times as fast as 32×64×8×3" in "\n".join(lines)


@pytest.mark.parametrize(
    "fault",
    [
        {
            "tiles": [
                {"arch": 90, "kernel": "forward", "d": 64, "itemsize": 2, "causal": True, "tile": [48] * 4}
            ]
        },
        {"tiles": None},
        {"kernels": [1]},
        {"kernels": [{"kernel": "forward"}]},
    ],
    ids=["tile", "no tiles", "no search", "part of a search"],
)
def test_nonsense_is_not_shipped(package, tmp_path, choices_file, fault):
    before = choices_file.read_text()
    lines = install.installed(run(tmp_path, tune=tune() | fault, values=record("values")))
    assert any("tune" in line and (" is not installed" in line or " is unchanged" in line) for line in lines)
    assert not (package / "tune.json").exists() and choices_file.read_text() == before


def test_a_tile_by_which_the_choices_would_have_a_fault_is_refused_with_its_row(
    package, tmp_path, choices_file
):
    """Another row decides the same case, for a reason that a record of tiles must not overrule."""
    about, rows = (json.loads(choices_file.read_text())[key] for key in ("about", "rows"))
    small_cache = next(
        row["evidence"] for row in rows if row.get("evidence", {}).get("timed") == "small-cache"
    )
    case = {"arch": [90], "itemsize": [2], "mask": ["causal"], "d": [64, 64], "group": [1, 1]}
    rows.append({"choose": {"queries": [64, 32, 8, 2]}, **case, "why": "made up", "evidence": small_cache})
    choices_file.write_text(json.dumps({"about": about, "rows": rows}))
    before = choices_file.read_text()
    (line,) = install.installed(run(tmp_path, tune=tune()))
    assert line.startswith(
        f"{package / 'tune'}.json is unchanged, because with its tiles choices.json, queries = "
    )
    assert not (package / "tune.json").exists() and choices_file.read_text() == before


@pytest.mark.parametrize(
    ("name", "contender", "factor", "advice"),
    [
        ("attention", "two-pass", 0.5, 'Write "gain": ['),
        ("small-cache", "materialised", 9.0, "which was faster at each shape"),
        ("varlen", "packed by descriptors", 3.0, "Choose False, which was faster at each shape"),
        ("decode", "last program merges", 1.03, "Limit the row to cases where it was faster than"),
    ],
)
def test_rows_whose_gain_is_not_that_of_a_new_record_are_named(
    package, tmp_path, choices_file, name, contender, factor, advice
):
    before = choices_file.read_text()
    part = json.loads(json.dumps(load_record(name)))
    for row in part["rows"]:
        if row["contender"] == contender and "ms" in row:
            row |= {"ms": factor * row["ms"]} | ({"us": factor * row["us"]} if "us" in row else {})
    facts = {key: value for key, value in part.items() if key not in ("commit", "kernels_code", "before")}
    file = run(tmp_path, **{name.replace("-", "_"): facts | {"commit": CLEAN, "quick": False}})
    written, *lines = install.installed(file)
    assert " written" in written and lines and all(f"by the record {name}, " in line for line in lines)
    assert any(advice in line for line in lines), lines
    assert all(line.startswith("choices.json, ") for line in lines) and choices_file.read_text() == before


def test_a_row_without_times_that_a_new_record_shows_to_be_slower_is_named(package, tmp_path, choices_file):
    """A head size that was timed for the first time."""
    part = json.loads(json.dumps(load_record("varlen")))
    of_64 = [row for row in part["rows"] if row["d"] == 64 and row["pass"] == "forward" and "ms" in row]
    part["rows"] += [row | {"d": 96, "ms": row["ms"] / (1.5 if "by desc" in row["contender"] else 1)}
                     for row in of_64]  # fmt: skip
    facts = {key: value for key, value in part.items() if key not in ("kernels_code", "before")}
    _, line, *_ = install.installed(run(tmp_path, varlen=facts | {"commit": CLEAN}))
    assert "packed descriptors = " in line and "at varlen d 96" in line and "Choose that" in line


def test_tiles_are_installed_before_records_with_which_rows_no_longer_agree(
    package, tmp_path, choices_file, monkeypatch
):
    """As in the package, where a record that is written is read at once."""
    from tools.bench import choices

    def shipped_now(name):
        file = package / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else load_record(name)

    monkeypatch.setattr(choices, "load_record", shipped_now)
    part = json.loads(json.dumps(load_record("attention")))
    for row in part["rows"]:
        if row["contender"] == "two-pass" and "ms" in row:
            row["ms"] /= 2
    facts = {key: value for key, value in part.items() if key not in ("kernels_code", "before")}
    lines = install.installed(run(tmp_path, attention=facts | {"commit": CLEAN}, tune=tune()))
    assert lines[0].startswith(f"{package / 'tune'}.json written")
    assert tiles_of(choices_file, "queries", 64, "causal") == [(64, 64, 8, 3)]
    assert any("by the record attention" in line for line in lines[2:])


def test_a_record_with_the_stated_gains_has_no_further_line(package, tmp_path, choices_file):
    facts = {key: value for key, value in load_record("varlen").items() if key != "kernels_code"}
    assert len(install.installed(run(tmp_path, varlen=facts | {"commit": CLEAN}))) == 1


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
