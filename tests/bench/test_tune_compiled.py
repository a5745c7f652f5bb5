"""`bench tune-compiled`: which tiles are compiled, what the record has of them, and its table."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from iocourse.data.records import load_record
from iocourse.errors import UsageError
from tools.bench import tune_compiled
from tools.bench.__main__ import SUBJECTS

LOOP = dict.fromkeys(("wgmma", "waits", "spills", "barriers", "exponentials", "stall_clocks", "mma"), 3)
FACTS = {"registers": 90, "spill_bytes": 0, "shared_bytes": 2048, "tensor_core": 4, "machine_code": "0a"}
MADE_UP = FACTS | {"hot_loop": LOOP | {"instructions": 214}}


def test_every_tile_that_was_timed_is_compiled_with_both_masks():
    assert SUBJECTS["tune-compiled"] is tune_compiled
    timed = {
        "arch": 90,
        "kernels": [
            {"d": 64, "kernel": "keys", "tried": [
                {"tile": [64, 128, 8, 3], "ms": [1.0, 0.5]},
                {"tile": [64, 64, 4, 3], "ms": [2.0], "failed": "with a mask"},
                {"tile": [256, 256, 4, 3], "ms": [], "failed": "too large"},
            ]},
        ],
    }  # fmt: skip
    asked = [*tune_compiled.compilations(timed)]
    assert [(one.causal, one.BM, one.BN, one.warps, one.stages) for one in asked] == [
        (False, 64, 128, 8, 3), (True, 64, 128, 8, 3), (False, 64, 64, 4, 3)
    ]  # fmt: skip
    assert {(one.arch, one.d, one.bytes, one.kernel) for one in asked} == {(90, 64, 2, "keys")}


@pytest.fixture
def asked(monkeypatch):
    """The requested compilations; each has the resources of `MADE_UP`."""
    found = []
    monkeypatch.setattr(
        tune_compiled,
        "compiled",
        lambda some: found.extend(some) or [one._asdict() | MADE_UP for one in some],
    )
    return found


def test_the_record_has_the_facts_that_the_tables_use(asked):
    record = tune_compiled.run(quick=False)
    shipped = load_record("tune-compiled")
    assert record.keys() == shipped.keys() and len(asked) == len(shipped["tiles"]) == 94
    assert record["timed_commit"] == load_record("tune")["commit"] and record["subject"] == "tune-compiled"
    for mine, theirs in zip(record["tiles"], shipped["tiles"], strict=True):
        assert mine["compiled"].keys() == theirs["compiled"].keys()
        assert mine["compiled"]["hot_loop"].keys() == theirs["compiled"]["hot_loop"].keys()
        assert {**mine, "compiled": {}} == {**theirs, "compiled": {}}


def test_a_quick_run_compiles_the_fused_pass_only(asked):
    record = tune_compiled.run(quick=True)
    assert {one.kernel for one in asked} == {"fused"} and len(record["tiles"]) == len(asked) == 10
    head, first, *rest, how = tune_compiled.show(record).splitlines()
    assert head.split()[:3] == ["BM×BN×warps×stages", "registers", "KB"] and len(rest) == 9
    assert " ".join(first.split()) == "fused, d = 64 64×128×8×2 90 2.0 214 3 3 3 3 3 3"
    assert how.startswith("10 kernels compiled with Python ")


def test_a_tile_that_does_not_compile_is_named(monkeypatch):
    def failing(some):
        return [one._asdict() | {"error": "made up"} for one in some]

    monkeypatch.setattr(tune_compiled, "compiled", failing)
    with pytest.raises(
        UsageError, match=r"^a tile of the record of tune does not compile: forward, d = 64: m"
    ):
        tune_compiled.run(quick=False)
