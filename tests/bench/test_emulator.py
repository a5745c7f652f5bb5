"""The emulator's benchmark reports its measurements; times are not asserted."""

import json

import pytest

from iocourse import exact
from tools.bench import emulator
from tools.bench.__main__ import SUBJECTS


def test_the_record_and_its_table(tmp_path, capsys):
    from tools.bench.__main__ import main

    file = tmp_path / "emulator.json"
    assert main(["emulator", "--quick", "--json", str(file)]) == 0
    record = json.loads(file.read_text(encoding="utf-8"))
    assert SUBJECTS["emulator"] is emulator
    assert {"date", "cores", "versions"} <= set(record) and {"Python", "numpy"} <= set(record["versions"])
    measured = record["measured"]
    assert list(measured) == ["run", "dry", "import"]
    for one in measured.values():
        assert len(one["seconds"]) == record["repeats"] == 1
        assert one["median_s"] == one["seconds"][0] > 0
    assert (measured["run"]["N"], measured["dry"]["N"]) == (1024, 65536)
    assert measured["run"]["words"] == 2 * 1024 * 64 * (1 + 9)
    text = capsys.readouterr().out
    print(text)
    assert "flash_optimal with values, N=1024, d=64, M=16384" in text and "goal below 2.0 s" in text


def test_wrong_values_are_not_timed_in_silence(monkeypatch):
    monkeypatch.setattr(exact, "max_abs_error", lambda *a: 1.0)
    with pytest.raises(AssertionError, match="values are wrong"):
        emulator.run(quick=True)
