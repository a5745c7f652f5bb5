"""Tests of `iocourse profile`: the closed form of a launch in bytes, its table, and error messages."""

import argparse
import json

import pytest
import skip_without_interpreter  # noqa: F401

from iocourse import profile
from iocourse.cli import main
from iocourse.data.records import load_record, record_source
from iocourse.gpu.roofline import compulsory_bytes
from iocourse.kernels.host.choices import replaced, tile
from iocourse.kernels.host.passes import case_of
from iocourse.kernels.host.ranges import VisiblePairs
from iocourse.profile import launch_cost

SMALL = {
    "forward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "backward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "complete-rows": "--N 130 --heads 2 --kv-heads 1 --d 40",
    "fused-backward": "--N 130 --heads 2 --d 40",
    "split-backward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "decode": "--N 300 --heads 4 --kv-heads 2 --d 64 --batch 2",
    "small-cache-fused": "--N 130 --heads 1 --d 72",
    "small-cache-materialised": "--N 130 --heads 1 --d 72 --causal",
    "small-cache-fused-backward": "--N 130 --heads 2 --kv-heads 1 --d 72 --causal",
    "small-cache-materialised-backward": "--N 130 --heads 2 --kv-heads 1 --d 72",
    "block-sparse": "--N 200 --heads 2 --d 32 --block-mask window:1 --block 32",
    "packed": "--lengths 70,0,130 --heads 2 --d 32 --causal",
}


def asked(what, options="", *more):
    parser = argparse.ArgumentParser()
    profile.add_parser(parser.add_subparsers())
    return profile.parse_request(parser.parse_args(["profile", what, *options.split(), *more]))


def refused(capsys, *arguments):
    assert main(["profile", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


def test_every_launch_has_its_kernels_tiles_and_a_test():
    assert set(profile.LAUNCHES) == set(SMALL)


@pytest.mark.parametrize("what", SMALL)
def test_compulsory_bytes_are_those_of_the_roofline(what):
    must = launch_cost.cost(asked(what, SMALL[what]), 90)
    pass_ = "backward" if what.endswith("backward") else "forward"
    assert must.compulsory["total"] == compulsory_bytes(pass_, must.problem, 2)


def test_a_number_of_float32_has_four_bytes():
    half, whole = (
        launch_cost.cost(asked("forward", "--N 64 --d 32", "--dtype", dtype), 90)
        for dtype in profile.DTYPES
        if dtype != "float16"
    )
    sums = 4 * 16 * 64
    assert whole.compulsory["total"] - sums == 2 * (half.compulsory["total"] - sums)


def test_decode_fills_the_chip_unless_told():
    options = "--N 65536 --heads 32 --kv-heads 8"
    assert launch_cost.cost(asked("decode", options), 90).request.parts == 4
    assert launch_cost.cost(asked("decode", options), 90, processors=128).request.parts == 2 * 128 // 8
    assert launch_cost.cost(asked("decode", options, "--parts", "7"), 90, processors=132).request.parts == 7
    parts = launch_cost.cost(asked("decode", options, "--parts", "5"), 90)
    assert parts.words.writes["LSE_parts"] == 5 * 32


# --- the choice --------------------------------------------------------------------------------------------

MANY = "--heads 32 --batch 4"
CHOSEN = [
    ("backward", f"--d 64 {MANY}", "split-backward", "backward pass: two-pass\n    no atomic additions"),
    ("backward", f"--d 64 --kv-heads 8 {MANY}", "fused-backward", "heads that share keys were not timed"),
    ("backward", f"--d 64 --dtype float32 {MANY}", "fused-backward", "not timed in two passes in float32"),
    ("backward", "--d 64 --N 128", "fused-backward", "less than one tile of 128 queries"),
    ("backward", f"--d 256 {MANY}", "small-cache-materialised-backward", "0.60 of the speed of SDPA flash"),
    ("backward", "--d 192", "small-cache-fused-backward", "backward pass: slices"),
    ("forward", f"--d 256 {MANY}", "complete-rows", "O stays in registers"),
    ("forward", f"--d 320 {MANY}", "small-cache-fused", "5 slices of 64 columns"),
    ("forward", f"--d 320 --kv-heads 8 {MANY}", "complete-rows", "forward pass: complete rows"),
    ("packed", "--d 128 --lengths 4096,300", "packed", "packed descriptors: True\n    the copy engine"),
    ("packed", "--d 64 --lengths 4096,300", "packed", "packed descriptors: False"),
    ("decode", "--heads 32", "decode", "decode step: last program\n    one launch less"),
]


@pytest.mark.parametrize(("what", "options", "launched", "reason"), CHOSEN)
def test_the_launch_is_the_one_that_attention_chooses_with_its_reason(what, options, launched, reason):
    must = launch_cost.cost(asked(what, options), 90)
    assert must.launched.what == launched and must.request.what == what
    assert reason in must.reason and must.reason.startswith(profile.LAUNCHES[what].choice)


def test_another_chip_has_its_own_choice():
    assert launch_cost.cost(asked("backward", "--d 64"), 80).launched.what == "fused-backward"


def test_a_head_size_that_is_padded_on_a_gpu_takes_the_choice_of_the_padded_copy():
    must = launch_cost.cost(asked("backward", f"--d 60 {MANY}"), 90)
    assert must.launched.what == "split-backward" and must.problem.d == 60


@pytest.mark.parametrize("options", ["", "--causal --heads 8 --kv-heads 2 --batch 3"])
def test_the_case_is_that_of_the_tensors(options):
    torch = pytest.importorskip("torch")
    request = asked("backward", "--N 256 --d 64", *options.split())
    q, k = (
        torch.empty(request.batch, heads, 256, 64, dtype=torch.bfloat16, device="meta")
        for heads in (request.heads, request.kv_heads)
    )
    visible = VisiblePairs.all()
    visible = visible._replace(band=visible.band._replace(high=0)) if request.causal else visible
    assert launch_cost.case_of(request, 90) == case_of(90, q, k, visible)


def test_a_requested_launch_names_the_recorded_choice():
    said = launch_cost.cost(asked("fused-backward", f"--d 64 {MANY}"), 90).reason
    assert said.startswith("backward pass: fused, as requested; attention would launch\nbackward pass: two-")
    assert "as requested" not in launch_cost.cost(asked("split-backward", f"--d 64 {MANY}"), 90).reason


def test_a_changed_choice_is_shown():
    with replaced({"backward pass": "slices", "decode step": "last program"}):
        assert launch_cost.cost(asked("backward"), 80).launched.what == "small-cache-fused-backward"
        must = launch_cost.cost(asked("decode", "--heads 4"), 80)
    assert must.kernels == ("last_merges_kernel",) and must.bytes["added"] == 4 * 4 * 4


# --- the command -------------------------------------------------------------------------------------------


def test_the_closed_form_is_a_table_and_a_record(capsys, tmp_path):
    options = ["--N", "100", "--heads", "1", "--d", "32", "--closed-form", "--arch", "80"]
    assert main(["profile", "forward", *options, "--json", str(tmp_path / "a.json")]) == 0
    said, record = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    total = 2 * 4 * 100 * 32 + 4 * 100  # one tile of 128 queries: K and V are read once
    assert record["bytes"]["closed_form"]["total"] == record["bytes"]["compulsory"]["total"] == total
    assert record["tiles"]["forward"][:2] == list(
        tile("forward", launch_cost.case_of(asked("forward", "--d 32"), 80))[:2]
    )
    assert record["question"]["N"] == 100 and record["subject"] == "profile"
    rows = {line.split("  ")[0]: line.split()[-2:] for line in said.splitlines()}
    assert rows["total"] == [f"{total:,}"] * 2 and "added to" not in rows and "ledger" not in said
    assert (
        "tiles of sm_80; tiles forward 128 × 64" in said
        and "The closed form is 1.00 times the compulsory bytes." in said
    )


@pytest.mark.parametrize(("arch", "tile"), [(80, "128 × 64"), (90, "64 × 64")])
def test_the_tiles_are_those_of_the_chip(arch, tile, capsys):
    assert main(["profile", "forward", "--d", "128", "--closed-form", "--arch", str(arch)]) == 0
    assert f"tiles of sm_{arch}; tiles forward {tile}\n" in capsys.readouterr().out


def test_an_addition_has_a_row_of_its_own(capsys):
    assert main(["profile", "fused-backward", "--N", "256", "--closed-form"]) == 0
    said, must = capsys.readouterr().out, launch_cost.cost(asked("fused-backward", "--N 256"), 90)
    (added,) = (line for line in said.splitlines() if line.startswith("added to"))
    assert added.split() == ["added", "to", f"{must.bytes['added']:,}"] and must.bytes["added"] > 0
    assert (
        f"The closed form is {must.bytes['total'] / must.compulsory['total']:.2f} times the compulsory bytes."
        in said
        and "sent to L2 once" in said
    )


def test_the_closed_form_is_the_default_and_help_names_the_counters(capsys):
    assert main(["profile", "backward", "--N", "256"]) == 0
    plain = capsys.readouterr()
    assert main(["profile", "backward", "--N", "256", "--closed-form"]) == 0
    assert capsys.readouterr() == plain and plain.err == ""
    assert plain.out.splitlines()[2].startswith("backward pass: fused")
    with pytest.raises(SystemExit):
        main(["profile", "--help"])
    assert "python -m tools.bench.counters WHAT" in " ".join(capsys.readouterr().out.split())


# --- recorded launches -------------------------------------------------------------------------------------


def shown(capsys, *arguments):
    assert main(["profile", *arguments, "--recorded"]) == 0
    return capsys.readouterr().out


def test_the_recorded_launches_have_a_line_each_with_device_date_and_tiles(capsys):
    said, record = shown(capsys), load_record("profile")
    assert said.startswith(f"{record_source(record)}\n") and record["date"] in said
    lines = {line[:70].split("  ")[0]: line for line in said.splitlines() if "bfloat16" in line}
    assert len(lines) == len(record["runs"]) == 5
    for run, line in zip(record["runs"], lines.values(), strict=True):
        reads = [run["bytes"][level]["read"] for level in ("compulsory", "closed_form", "l2", "dram")]
        reads.insert(2, run["counters"]["l1tex__m_xbar2l1tex_read_bytes.sum"])
        assert line.split()[-5:] == [f"{count:,}" for count in reads]
        (tile,) = run["tiles"].values()
        assert f" {' × '.join(map(str, tile[:-2]))} " in line


def test_the_recorded_closed_form_is_that_of_the_recorded_tiles():
    """The launches keep their tiles, which are not those of today."""
    for run in load_record("profile")["runs"]:
        question = run["question"]
        if question["what"] == "decode":  # its parts decide the words, and the record has them
            continue
        ((name, tile_of_run),) = run["tiles"].items()
        chosen = {"forward": {"forward pass": "complete rows"}}.get(question["what"], {})
        with replaced(chosen | {name: tile_of_run}):
            must = launch_cost.cost(profile.LaunchRequest(**question), 90)
        assert must.bytes == run["bytes"]["closed_form"] and must.compulsory == run["bytes"]["compulsory"]


def test_the_launches_of_one_kind_have_a_table_of_all_bytes(capsys, tmp_path):
    said = shown(capsys, "forward", "--json", str(tmp_path / "a.json"))
    assert said.count("NVIDIA H200; tiles forward 128 × ") == 2
    assert said.count("Reads: SMs exactly the closed form; L2 lookups 0.") == 2
    assert "`iocourse profile forward --N 4096 --d 128 --heads 16 --causal`" in said and "added" not in said
    assert len(json.loads((tmp_path / "a.json").read_text())["runs"]) == 2
    fused = shown(capsys, "fused-backward")
    (added,) = (line for line in fused.splitlines() if line.startswith("added to"))
    assert added.split()[-1] == "268,435,456" and "sent to L2 once" in fused
    assert "SMs 1.00005 of the closed form" in shown(capsys, "decode")


def test_options_select_recorded_launches(capsys):
    assert shown(capsys, "forward", "--causal").count("NVIDIA H200; tiles") == 1
    assert shown(capsys, "--d", "64").count("bfloat16") == 2


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("forward --arch 80", "no launch is recorded on sm_80; recorded: sm_90 (NVIDIA H200)"),
        ("backward", "no launch of backward is recorded; recorded: forward, fused-backward, decode"),
        ("sideways", "WHAT 'sideways' is unknown. Use one of: forward"),
        (
            "decode --N 8192 --kv-heads 8",
            "no recorded launch has --N 8192, --kv-heads 8; recorded: decode: N",
        ),
        ("--heads 3", "no recorded launch has --heads 3; recorded: forward: N = 4096"),
        ("--N 0", "no recorded launch has --N 0; recorded: forward: N = 4096"),
        ("decode --parts 0", "no recorded launch has --parts 0; recorded: decode: N"),
    ],
)
def test_a_launch_without_a_record_gets_one_line(capsys, arguments, part):
    assert part in refused(capsys, *arguments.split(), "--recorded")


def test_a_package_without_the_record_says_so_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr("iocourse.profile.recorded.load_record", lambda name: None)
    assert "no launch is recorded yet" in refused(capsys, "--recorded")


# --- bad arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("", "WHAT is missing. Use one of: forward, backward"),
        ("sideways", "WHAT 'sideways' is unknown. Use one of: forward, backward"),
        ("forward --N 0", "--N must be at least 1, got 0"),
        ("forward --d 1025", "--d must be 1 to 1024 with forward, got 1025"),
        ("complete-rows --d 513", "--d must be 1 to 512 with complete-rows, got 513"),
        ("decode --d 257", "--d must be 1 to 256 with decode, got 257"),
        ("small-cache-fused --d 1025", "1 to 1024"),
        ("forward --heads 6 --kv-heads 4", "--kv-heads must divide --heads, 6, got 4"),
        ("forward --dtype int8", "--dtype must be one of bfloat16, float16, float32; got 'int8'"),
        ("decode --causal", "decode does not take --causal. Use it with: forward, "),
        ("forward --parts 3", "forward does not take --parts. Use it with: decode"),
        ("decode --parts 265", "--parts must be 1 to 264, got 265"),
        ("decode --parts 0", "--parts must be at least 1"),
        ("forward --block-mask causal", "forward does not take --block-mask. Use it with: block-sparse"),
        ("block-sparse", "block-sparse needs --block-mask SPEC, one of causal"),
        ("block-sparse --block-mask hexagons", "--block-mask must be one of causal, window:W, "),
        ("block-sparse --block-mask random:2", "--block-mask 'random:2': P must be a number from 0 to 1"),
        (
            "block-sparse --block-mask causal --N 16385",
            "--N is 16385, but with block-sparse it must be at most 16384",
        ),
        ("packed", "packed needs --lengths"),
        (
            "packed --lengths 5,x",
            "--lengths must be integers separated by commas, not all of them 0, got '5,x'",
        ),
        ("packed --lengths 0,0", "not all of them 0"),
        ("packed --lengths 5 --N 5", "packed does not take --N"),
        ("packed --lengths 5 --batch 2", "--batch must be 1 with packed, got 2"),
        ("forward --arch 70", "--arch must be one of 75, 80, 89, 90, 100; got 70"),
    ],
)
def test_a_bad_argument_is_named_in_one_line(capsys, arguments, part):
    assert part in refused(capsys, *arguments.split())
