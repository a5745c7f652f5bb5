"""The bytes of one launch: its ledger, the command and output of ncu, and the table of both."""

import json
import os
import sys
import types
from dataclasses import asdict

import pytest
import skip_without_interpreter  # noqa: F401
from fake_ncu import fake, table
from test_profile import SMALL, asked

from iocourse import doctor, kernels, profile
from iocourse.kernels.host.choices import Case, tile
from iocourse.kernels.host.launches import record_launches
from iocourse.profile import launch_cost
from tools.bench import counters, device, ncu, one_launch, steps

import torch  # isort: skip  # after the kernels


def refused(capsys, *arguments):
    assert counters.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


@pytest.mark.parametrize("what", SMALL)
def test_the_ledger_of_the_launch_is_its_closed_form_in_words_and_bytes(what):
    must = launch_cost.cost(asked(what, SMALL[what]), 90)
    with kernels.using(**must.chosen):
        ledger = one_launch.ledger(must.launched)
    assert not ledger - must.words, ledger - must.words
    assert launch_cost.ledger_in_bytes(ledger, ledger.itemsizes) == must.bytes
    assert must.bytes["total"] + must.bytes["added"] == ledger.bytes


@pytest.mark.parametrize("what", SMALL)
def test_the_kernels_that_ncu_is_asked_for_are_those_launched(what):
    must = launch_cost.cost(asked(what, SMALL[what]), 90)
    with kernels.using(**must.chosen):
        launch, _ = one_launch.prepared(must.launched, "cpu", torch.float16)
        with record_launches(90) as written:
            launch()
    assert tuple(one.kernel.fn.__name__ for one in written) == must.kernels


def test_one_launch_lies_between_start_and_stop():
    events = []
    profiler = types.SimpleNamespace(start=lambda: events.append("on"), stop=lambda: events.append("off"))
    one_launch.once(lambda: events.append("launch"), profiler, lambda: events.append("wait"))
    assert events == ["launch"] * one_launch.WARM_UPS + ["wait", "on", "launch", "wait", "off"]


def test_a_question_survives_json():
    question = asked("packed", SMALL["packed"])
    assert profile.LaunchRequest(**json.loads(json.dumps(asdict(question)))) == question


def test_what_is_lacking_is_said_and_what_can_be_had_without(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "NCU_PLACES", ())
    monkeypatch.setattr(
        counters, "cuda_unavailable_reason", lambda: "there is no CUDA device that torch can use here"
    )
    said = refused(capsys, "forward")
    assert "no CUDA device that torch can use here, and ncu (NVIDIA Nsight Compute) is not on PATH" in said
    assert "Needed: an NVIDIA GPU" in said and "`iocourse profile forward …`" in said
    monkeypatch.setattr(counters, "cuda_unavailable_reason", lambda: "")
    said = refused(capsys, "forward")
    assert "CUDA device" not in said and "ncu (NVIDIA Nsight Compute) is not on PATH" in said
    fake(tmp_path, "")
    monkeypatch.setattr(counters, "cuda_unavailable_reason", lambda: "torch is not installed here")
    said = refused(capsys, "decode")
    assert "here: torch is not installed here. Needed" in said and "profile decode …`" in said


# --- with a program that answers as ncu does ---------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU by its facts, and a folder first on PATH; nothing is interpreted."""
    facts = {"name": "Some GPU", "arch": 90, "multiprocessors": 132}
    monkeypatch.setattr(counters, "cuda_unavailable_reason", lambda: "")
    monkeypatch.setattr(counters, "device_facts", lambda: dict(facts))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def test_measured_bytes_stand_beside_the_closed_form(gpu, capsys, tmp_path):
    must = launch_cost.cost(asked("forward", "--N 1024 --heads 4"), 90).bytes
    sectors = must["read"] // 32, must["written"] // 32
    fake(gpu, table([f"{sectors[0]:,}", f"{sectors[1]:,}", "0", "0", "3,145,728", "524,288"]))
    assert counters.main(["forward", "--N", "1024", "--heads", "4", "--json", str(tmp_path / "a.json")]) == 0
    record, said = json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    assert record["bytes"]["l2"] == must
    assert record["bytes"]["dram"] == {"read": 2**20 * 3, "added": 0, "written": 2**19, "total": 7 * 2**19}
    assert record["device"]["ncu"] == "2025.1.0.0 (build 1)"
    read = next(line.split() for line in said.splitlines() if line.startswith("read"))
    assert read[-4:] == [f"{must['read']:,}", "3,145,728", "1.000", "1.000"] and "added" not in said
    (total,) = (line.split() for line in said.splitlines() if line.startswith("total"))
    assert total[-1] == f"{7 * 2**19 / record['bytes']['compulsory']['total']:.3f}" != "1.000"
    share = 100 * (1 - 3 * 2**20 / must["read"])
    assert f"L2 served {share:.0f} % of the reads" in said


def test_the_launch_is_compiled_with_the_tiles_of_the_closed_form(gpu):
    fake(gpu, table([*"123456"], [*"123456"], names=profile.LAUNCHES["decode"].kernels))
    assert counters.main(["decode", "--N", "8192"]) == 0
    told = json.loads((gpu / "asked.json").read_text())
    *_, python, dash_m, module, text = told["arguments"]
    assert [python, dash_m, module] == [sys.executable, "-m", "tools.bench.one_launch"]
    assert told["TRITON_INTERPRET"] == "0" and str(device.ROOT) in told["PYTHONPATH"].split(os.pathsep)
    given = json.loads(text)
    assert given["question"]["parts"] == 2 * 132 // 16 and given["tiles"] == {}
    fake(gpu, table([*"123456"], [*"123456"], names=profile.LAUNCHES["split-backward"].kernels))
    assert counters.main(["split-backward", "--d", "64"]) == 0
    given = json.loads(json.loads((gpu / "asked.json").read_text())["arguments"][-1])
    case = Case(90, 2, 64)
    assert given["tiles"] == {name: list(tile(name, case)) for name in ("queries", "keys")}
    assert tile("keys", case) != tile("keys", case._replace(mask="packed"))  # which was not timed


def test_an_addition_is_a_row_of_its_own(gpu, capsys):
    rows = [["10", "1", "0", "0", "320", "32"], ["20", "2", "40", "5", "640", "n/a"]]
    fake(gpu, table(*rows, names=profile.LAUNCHES["fused-backward"].kernels))
    assert counters.main(["fused-backward", "--N", "256"]) == 0
    said = capsys.readouterr().out
    added = next(line for line in said.splitlines() if line.startswith("added to"))
    closed_form = launch_cost.cost(asked("fused-backward", "--N 256"), 90).bytes
    assert f"{closed_form['added']:,}" in added and f"{45 * 32:,}" in added
    total = next(line for line in said.splitlines() if line.startswith("total"))
    assert f"{(10 + 1 + 20 + 2 + 45) * 32:,}" in total and "not available" in total
    assert "row_products_kernel: L2 read 320, written 32; DRAM read 320, written 32" in said
    assert "backward_keys_kernel: L2 read 640, added to 1,440, written 64; DRAM read 640, written not" in said
    assert "sent to L2 once" in said and "the memory moved" not in said


def test_counters_that_the_chip_has_are_in_the_record(gpu, capsys, tmp_path):
    sm = ncu.MORE[0]
    columns = {"metrics": (*ncu.METRICS, sm), "units": (*["sector"] * 4, *["byte"] * 3)}
    listed = sm.removesuffix(".sum")
    names = profile.LAUNCHES["fused-backward"].kernels
    fake(gpu, table([*"1234567"], [*"1234567"], names=names, **columns), metrics=listed)
    assert counters.main(["fused-backward", "--N", "256", "--json", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["counters"] == {sm: 14}
    assert f"{sm}: 14 bytes" in capsys.readouterr().out


def test_a_missing_permission_is_one_line(gpu, capsys):
    fake(gpu, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access …\n", code=1)
    said = refused(capsys, "forward")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said and "iocourse profile forward …" in said


def test_a_launch_in_another_order_is_asked_for_and_recorded(gpu):
    fake(gpu, table([*"123456"]))
    request = profile.LaunchRequest("forward", 1024, 64, 4, heads=4)
    for order in ("tiles fastest", "heads fastest"):
        assert counters.record_of(request, 60, order)["order"] == order
        given = json.loads(json.loads((gpu / "asked.json").read_text())["arguments"][-1])
        assert given["order"] == order and given["question"]["heads"] == 4


def test_runs_that_an_earlier_file_has_are_not_counted_again(monkeypatch):
    counted = []

    def record_of(one, seconds, order):
        counted.append((one.what, order))
        facts = dict.fromkeys(("place", "tiles", "bytes", "kernels", "counters"))
        return facts | {"question": asdict(one), "order": order, "device": {"ncu": "1"}}

    monkeypatch.setattr(counters, "record_of", record_of)
    monkeypatch.setattr(counters, "show", lambda record: "")
    visit = types.SimpleNamespace(place=types.SimpleNamespace(tidy=lambda: None))
    every = [*steps.ORDERED, *steps.COUNTED]
    (*_, (_, runs)) = steps.runs_of(every, [], visit, 60)
    assert len(counted) == len(runs) == len(every) == 10
    before = json.loads(json.dumps(runs))
    counted.clear()
    del before[1]["order"], before[3]  # the shipped record has no order
    (*_, (_, again)) = steps.runs_of(every, before, visit, 60)
    assert counted == [("forward", "heads fastest"), (every[3][0].what, "tiles fastest")]
    assert len(again) == len(every) + 1
