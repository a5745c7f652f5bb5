"""`iocourse profile`: the closed form in bytes, the launch, the table, and what is refused."""

import argparse
import json
import os
import sys
import types
from dataclasses import asdict

import needs_interpreter  # noqa: F401
import pytest
from fake_ncu import fake, table

from iocourse import kernels, profile
from iocourse.cli import main
from iocourse.gpu import device, ncu
from iocourse.gpu.roofline import compulsory_bytes
from iocourse.kernels.host.launches import written_down
from iocourse.ledger import Ledger
from iocourse.profile import costing, one_launch, report
from iocourse.profile import question as questions

import torch  # isort: skip  # after the kernels

SMALL = {
    "forward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "fused-backward": "--N 130 --heads 2 --d 40",
    "split-backward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "decode": "--N 300 --heads 4 --kv-heads 2 --d 64 --batch 2",
    "small-cache-fused": "--N 130 --heads 1 --d 72",
    "small-cache-materialised": "--N 130 --heads 1 --d 72 --causal",
    "block-sparse": "--N 200 --heads 2 --d 32 --block-mask window:1 --block 32",
    "packed": "--lengths 70,0,130 --heads 2 --d 32 --causal",
}


def asked(what, options="", *more):
    parser = argparse.ArgumentParser()
    profile.add_parser(parser.add_subparsers())
    return questions.question(parser.parse_args(["profile", what, *options.split(), *more]))


def refused(capsys, *arguments):
    assert main(["profile", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


def test_every_launch_has_its_kernels_tiles_and_a_test():
    assert set(questions.LAUNCHES) == set(SMALL)


@pytest.mark.parametrize("what", SMALL)
def test_the_ledger_of_the_launch_is_its_closed_form_in_words_and_bytes(what):
    must = costing.cost(asked(what, SMALL[what]), 90)
    with kernels.using(**must.chosen):
        ledger = Ledger.from_json(one_launch.ledger(must.asked))
    assert not ledger - must.words, ledger - must.words
    assert costing.bytes_of(ledger, ledger.itemsizes) == must.bytes
    assert must.bytes["total"] + must.bytes["added"] == ledger.bytes


@pytest.mark.parametrize("what", SMALL)
def test_the_kernels_that_ncu_is_asked_for_are_those_launched(what):
    must = costing.cost(asked(what, SMALL[what]), 90)
    with kernels.using(**must.chosen):
        launch, _ = one_launch.prepared(must.asked, "cpu", torch.float16)
        with written_down(90) as written:
            launch()
    assert tuple(one.kernel.fn.__name__ for one in written) == questions.LAUNCHES[what].kernels


@pytest.mark.parametrize("what", SMALL)
def test_compulsory_bytes_are_those_of_the_roofline(what):
    must = costing.cost(asked(what, SMALL[what]), 90)
    pass_ = "backward" if what.endswith("backward") else "forward"
    assert must.compulsory["total"] == compulsory_bytes(pass_, must.problem, 2)


def test_a_number_of_float32_has_four_bytes():
    half, whole = (costing.cost(asked("forward", "--N 64 --d 32", "--dtype", t), 90) for t in questions.DTYPES
                   if t != "float16")  # fmt: skip
    sums = 4 * 16 * 64
    assert whole.compulsory["total"] - sums == 2 * (half.compulsory["total"] - sums)


def test_decode_fills_the_chip_unless_told():
    options = "--N 65536 --heads 32 --kv-heads 8"
    assert costing.cost(asked("decode", options), 90).asked.parts == 4
    assert costing.cost(asked("decode", options), 90, processors=128).asked.parts == 2 * 128 // 8
    assert costing.cost(asked("decode", options, "--parts", "7"), 90, processors=132).asked.parts == 7
    parts = costing.cost(asked("decode", options, "--parts", "5"), 90)
    assert parts.words.writes["LSE_parts"] == 5 * 32


def test_one_launch_lies_between_start_and_stop():
    events = []
    profiler = types.SimpleNamespace(start=lambda: events.append("on"), stop=lambda: events.append("off"))
    one_launch.once(lambda: events.append("launch"), profiler, lambda: events.append("wait"))
    assert events == ["launch"] * one_launch.WARM_UPS + ["wait", "on", "launch", "wait", "off"]


def test_a_question_survives_json():
    question = asked("packed", SMALL["packed"])
    assert questions.Question(**json.loads(json.dumps(asdict(question)))) == question


# --- without a GPU -----------------------------------------------------------------------------------------


def test_the_closed_form_and_the_ledger_need_no_gpu(capsys, tmp_path):
    options = ["--N", "100", "--heads", "1", "--d", "32", "--closed-form", "--arch", "80"]
    assert main(["profile", "forward", *options, "--json", str(tmp_path / "a.json")]) == 0
    said, record = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    total = 2 * 4 * 100 * 32 + 4 * 100  # one tile of 128 queries: K and V are read once
    assert record["bytes"]["closed_form"]["total"] == record["bytes"]["ledger"]["total"] == total
    assert record["tiles"]["forward"][:2] == list(kernels.host.tiles.TABLE[80, 64, 2].forward[:2])
    assert record["bytes"]["l2"] is record["bytes"]["dram"] is record["device"] is None
    line = next(line for line in said.splitlines() if line.startswith("total"))
    assert line.split("  ")[-1] == "not measured" and line.count(f"{total:,}") == 3
    assert "tiles of sm_80; tiles forward 128 × 64" in said and "only a GPU can say" in said


def closed(monkeypatch, ledger, why=""):
    """A small launch whose ledger is this."""
    monkeypatch.setattr(report, "counted", lambda must: (ledger, why))
    return ["profile", "forward", "--N", "100", "--heads", "1", "--d", "32", "--closed-form"]


def test_a_ledger_that_differs_is_an_error(monkeypatch, capsys):
    must = costing.cost(asked("forward", "--N 100 --heads 1 --d 32"), 90)
    wrong = must.words.copy()
    wrong.reads["K"] += 1
    wrong.measured = True
    wrong.itemsizes = dict.fromkeys("QKVO", 2) | {"LSE": 4}
    assert main(closed(monkeypatch, wrong)) == 1
    assert "The ledger is not the closed form: K read 3,201 words, closed form says 3,200" in (
        capsys.readouterr().out
    )


def test_a_large_launch_is_not_interpreted(capsys, monkeypatch):
    refuse = types.SimpleNamespace(run=lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr(report, "subprocess", refuse)  # git may say the commit
    assert main(["profile", "forward", "--closed-form"]) == 0
    said = capsys.readouterr().out
    assert "not counted" in said and "the launch meets 16,384 tiles" in said


def test_an_interpreter_that_fails_is_quoted(monkeypatch):
    failed = types.SimpleNamespace(returncode=1, stderr="Traceback\nTypeError: no\n", stdout="")
    monkeypatch.setattr(report.subprocess, "run", lambda *_, **__: failed)
    must = costing.cost(asked("forward", "--N 64 --heads 1"), 90)
    assert report.counted(must) == (None, "The ledger was not counted: TypeError: no")


def test_what_is_lacking_is_said_and_what_can_be_had_without(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setattr(report, "no_cuda", lambda: "there is no CUDA device that torch can use here")
    said = refused(capsys, "forward")
    assert "no CUDA device that torch can use here, and ncu (NVIDIA Nsight Compute) is not on PATH" in said
    assert "Needed: an NVIDIA GPU" in said and "iocourse profile forward … --closed-form" in said
    monkeypatch.setattr(report, "no_cuda", lambda: "")
    said = refused(capsys, "forward")
    assert "CUDA device" not in said and "ncu (NVIDIA Nsight Compute) is not on PATH" in said
    fake(tmp_path, "")
    monkeypatch.setattr(report, "no_cuda", lambda: "torch is not installed here")
    said = refused(capsys, "decode")
    assert "here: torch is not installed here. Needed" in said and "profile decode … --closed-form" in said


# --- with a program that answers as ncu does ---------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU by its facts, and a folder first on PATH; nothing is interpreted."""
    facts = {"name": "Some GPU", "arch": 90, "multiprocessors": 132}
    monkeypatch.setattr(report, "no_cuda", lambda: "")
    monkeypatch.setattr(report, "device_facts", lambda: dict(facts))
    monkeypatch.setattr(report, "counted", lambda must: (None, "Not counted in this test."))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def test_measured_bytes_stand_beside_the_closed_form(gpu, capsys, tmp_path):
    must = costing.cost(asked("forward", "--N 1024 --heads 4"), 90).bytes
    sectors = must["read"] // 32, must["written"] // 32
    fake(gpu, table([f"{sectors[0]:,}", f"{sectors[1]:,}", "0", "0", "3,145,728", "524,288"]))
    assert (
        main(["profile", "forward", "--N", "1024", "--heads", "4", "--json", str(tmp_path / "a.json")]) == 0
    )
    record, said = json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    assert record["bytes"]["l2"] == must
    assert record["bytes"]["dram"] == {"read": 2**20 * 3, "added": 0, "written": 2**19, "total": 7 * 2**19}
    assert record["device"]["ncu"] == "2025.1.0.0 (build 1)" and record["differences"] == []
    read = next(line.split() for line in said.splitlines() if line.startswith("read"))
    assert read[-4:] == [f"{must['read']:,}", "3,145,728", "1.000", "1.000"] and "added" not in said
    share = 100 * (1 - 3 * 2**20 / must["read"])
    assert f"L2 answered {share:.0f} % of what was read" in said and "Not counted in this test." in said


def test_the_launch_is_compiled_with_the_tiles_of_the_closed_form(gpu):
    fake(gpu, table([*"123456"], [*"123456"], names=questions.LAUNCHES["decode"].kernels))
    assert main(["profile", "decode", "--N", "8192"]) == 0
    told = json.loads((gpu / "asked.json").read_text())
    *_, python, dash_m, module, text = told["arguments"]
    assert [python, dash_m, module] == [sys.executable, "-m", "iocourse.profile.one_launch"]
    assert told["TRITON_INTERPRET"] == "0" and str(device.ROOT) in told["PYTHONPATH"].split(os.pathsep)
    given = json.loads(text)
    assert given["question"]["parts"] == 2 * 132 // 16 and given["tiles"] == {}
    fake(gpu, table([*"123456"], [*"123456"], names=questions.LAUNCHES["split-backward"].kernels))
    assert main(["profile", "split-backward", "--d", "64"]) == 0
    given = json.loads(json.loads((gpu / "asked.json").read_text())["arguments"][-1])
    tuned = kernels.host.tiles.tiles_for(90, 64, 2, causal=False)
    assert given["tiles"] == {"queries": list(tuned.queries), "keys": list(tuned.keys)}
    assert tuned.keys != kernels.host.tiles.TABLE[90, 64, 2].keys


def test_an_addition_is_a_row_of_its_own(gpu, capsys):
    rows = [["10", "1", "0", "0", "320", "32"], ["20", "2", "40", "5", "640", "n/a"]]
    fake(gpu, table(*rows, names=questions.LAUNCHES["fused-backward"].kernels))
    assert main(["profile", "fused-backward", "--N", "256"]) == 0
    said = capsys.readouterr().out
    added = next(line for line in said.splitlines() if line.startswith("added to"))
    closed_form = costing.cost(asked("fused-backward", "--N 256"), 90).bytes
    assert f"{closed_form['added']:,}" in added and f"{45 * 32:,}" in added
    total = next(line for line in said.splitlines() if line.startswith("total"))
    assert f"{(10 + 1 + 20 + 2 + 45) * 32:,}" in total and "not available" in total
    assert "row_products_kernel: L2 read 320, written 32; DRAM read 320, written 32" in said
    assert "backward_keys_kernel: L2 read 640, added to 1,440, written 64; DRAM read 640, written not" in said
    assert "sent to L2 once" in said and "the memory moved" not in said


def test_a_missing_permission_is_one_line(gpu, capsys):
    fake(gpu, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access …\n", code=1)
    said = refused(capsys, "forward")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said and "--closed-form" in said


# --- bad arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("", "WHAT is missing; allowed: forward, fused-backward"),
        ("backward", "WHAT 'backward' is unknown; allowed: forward"),
        ("forward --N 0", "--N must be at least 1, got 0"),
        ("forward --d 1025", "--d is 1025; allowed with forward: 1 to 512"),
        ("decode --d 257", "--d is 257; allowed with decode: 1 to 256"),
        ("small-cache-fused --d 1025", "1 to 1024"),
        ("forward --heads 6 --kv-heads 4", "--kv-heads is 4 for 6 heads; allowed: a divisor of 6"),
        ("forward --dtype int8", "--dtype is 'int8'; allowed: bfloat16, float16, float32"),
        ("decode --causal", "decode takes no --causal; allowed with: forward, "),
        ("forward --parts 3", "forward takes no --parts; allowed with: decode"),
        ("decode --parts 265", "--parts is 265; allowed: 1 to 264"),
        ("decode --parts 0", "--parts must be at least 1"),
        ("forward --block-mask causal", "forward takes no --block-mask; allowed with: block-sparse"),
        ("block-sparse", "block-sparse needs --block-mask SPEC, one of causal"),
        ("block-sparse --block-mask hexagons", "--block-mask 'hexagons' is unknown; allowed are causal"),
        ("block-sparse --block-mask random:2", "--block-mask 'random:2': P must be a number from 0 to 1"),
        (
            "block-sparse --block-mask causal --N 16385",
            "--N is 16385; allowed with block-sparse: up to 16384",
        ),
        ("packed", "packed needs --lengths"),
        ("packed --lengths 5,x", "--lengths is '5,x'; allowed"),
        ("packed --lengths 0,0", "not all of them 0"),
        ("packed --lengths 5 --N 5", "packed takes no --N"),
        ("packed --lengths 5 --batch 2", "--batch is 2; allowed with packed: 1"),
        ("forward --arch 70", "--arch is 70; allowed: 75, 80, 89, 90, 100"),
    ],
)
def test_a_bad_argument_is_named_in_one_line(capsys, arguments, part):
    closed_form = ["--closed-form"] if arguments else []
    assert part in refused(capsys, *arguments.split(), *closed_form)


def test_an_architecture_is_no_choice_where_it_is_measured(capsys):
    assert "--arch is for --closed-form" in refused(capsys, "forward", "--arch", "80")
