"""Records shipped with the package: read as they are, None where there is none, each with its provenance."""

import json
import re
from importlib import resources

import pytest

from iocourse.data import recorded as module
from iocourse.data.recorded import NAMES, lacking, provenance, recorded


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_shipped_file_or_none(name):
    file = resources.files("iocourse.data").joinpath("bench", f"{name}.json")
    record = recorded(name)
    assert (record is None) == (not file.is_file())
    if record is None:
        assert provenance(record) == "no recorded run yet"
    else:
        assert record == json.loads(file.read_text(encoding="utf-8")) and name.startswith(record["subject"])
        assert record["date"] in provenance(record)
        assert all(version in provenance(record) for version in record["versions"].values())


def test_every_shipped_record_can_be_asked_for():
    folder = resources.files("iocourse.data").joinpath("bench")
    shipped = {file.name for file in folder.iterdir() if file.name.endswith(".json")}
    assert shipped <= {f"{name}.json" for name in NAMES}


def test_no_recorded_run_yet_is_an_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(module.resources, "files", lambda package: tmp_path)
    assert recorded("attention") is None


def test_provenance_names_the_device_where_there_was_one():
    made_up = {"versions": {"torch": "0.1", "triton": "0.2"}, "date": "1970-01-01"}
    assert provenance(made_up) == "torch 0.1, triton 0.2, 1970-01-01"
    device = {"name": "a made-up GPU", "arch": 12, "driver": "3.4"}
    assert provenance(made_up | {"device": device}).startswith("a made-up GPU (sm_12, driver 3.4), torch 0.1")


def test_every_shipped_record_tells_device_versions_date_and_commit():
    for name in NAMES:
        record = recorded(name)
        assert record is None or (lacking(record) == [] and re.fullmatch("[0-9a-f]{40}", record["commit"]))


@pytest.mark.parametrize("missing", ["device", "versions", "date", "commit"])
def test_what_a_record_lacks_is_named(missing):
    whole = recorded("roofs")
    assert lacking(whole) == [] and lacking({**whole, missing: {}}) == [missing]
    there = {key: value for key, value in whole.items() if key != missing}
    assert lacking(there) == [missing] and lacking({}) == ["device", "versions", "date", "commit"]


def test_a_record_says_when_the_kernels_have_changed_since(monkeypatch):
    made_up = {
        "versions": {"torch": "0.1"},
        "date": "1970-01-01",
        "commit": "0123456789",
        "kernels_code": "a",
    }
    monkeypatch.setattr(module, "kernels_code", lambda: "a")
    assert provenance(made_up) == "torch 0.1, 1970-01-01, commit 0123456"
    monkeypatch.setattr(module, "kernels_code", lambda: "b")
    assert provenance(made_up) == f"torch 0.1, 1970-01-01, commit 0123456, {module.CHANGED}"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Other words."""\nx = f"{1}"  # why\ndef f():\n    """More."""\n    return x\n', True),
        ('"""Words."""\n\nx = f"{1}"\n\n\ndef f():\n    return (\n        x\n    )\n', False),
        ('"""Words."""\nx = f"{2}"\ndef f():\n    return x\n', False),
        ('"""Words."""\nx = f"{1}"\ndef f():\n  return x\n', True),
        ('"""Words."""\nfrom .there import (\n    y,\n)\nx = f"{1}"\ndef f():\n    return x\n', True),
        ('"""Words."""\nx = f"{1}"\ndef f():\n    import there\n    return there.x\n', False),
    ],
)
def test_only_code_counts_in_the_fingerprint(text, same):
    code = '"""Words."""\nx = f"{1}"\ndef f():\n    return x\n'
    assert (module._code_of(code) == module._code_of(text)) == same


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="name is 'speed'; allowed: answers, attention"):
        recorded("speed")
