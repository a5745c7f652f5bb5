"""Records shipped with the package: read as they are, None where there is none, each with its provenance."""

import json
from importlib import resources

import pytest

from iocourse.data import recorded as module
from iocourse.data.recorded import NAMES, provenance, recorded


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_shipped_file_or_none(name):
    file = resources.files("iocourse.data").joinpath("bench", f"{name}.json")
    record = recorded(name)
    assert (record is None) == (not file.is_file())
    if record is None:
        assert provenance(record) == "no recorded run yet"
    else:
        assert record == json.loads(file.read_text(encoding="utf-8")) and record["subject"] == name
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


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="name is 'speed'; allowed: attention"):
        recorded("speed")
