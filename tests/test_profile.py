"""Tests of `iocourse profile`: the closed form of a launch in bytes, its table, and error messages."""

import argparse
import json

import pytest
import skip_without_interpreter  # noqa: F401

from iocourse import profile
from iocourse.cli import main
from iocourse.gpu.roofline import compulsory_bytes
from iocourse.kernels.host.tile_table import TABLE
from iocourse.profile import launch_cost

SMALL = {
    "forward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "fused-backward": "--N 130 --heads 2 --d 40",
    "split-backward": "--N 130 --heads 2 --kv-heads 1 --d 40 --causal",
    "decode": "--N 300 --heads 4 --kv-heads 2 --d 64 --batch 2",
    "small-cache-fused": "--N 130 --heads 1 --d 72",
    "small-cache-materialised": "--N 130 --heads 1 --d 72 --causal",
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


# --- the command -------------------------------------------------------------------------------------------


def test_the_closed_form_is_a_table_and_a_record(capsys, tmp_path):
    options = ["--N", "100", "--heads", "1", "--d", "32", "--closed-form", "--arch", "80"]
    assert main(["profile", "forward", *options, "--json", str(tmp_path / "a.json")]) == 0
    said, record = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    total = 2 * 4 * 100 * 32 + 4 * 100  # one tile of 128 queries: K and V are read once
    assert record["bytes"]["closed_form"]["total"] == record["bytes"]["compulsory"]["total"] == total
    assert record["tiles"]["forward"][:2] == list(TABLE[80, 64, 2].forward[:2])
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


@pytest.mark.parametrize("options", [[], ["--arch", "80"]])
def test_counting_bytes_has_left_the_package(capsys, options):
    said = refused(capsys, "forward", *options)
    assert "--closed-form is missing" in said and "`python -m tools.bench gpu` in a checkout" in said


# --- bad arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("", "WHAT is missing. Use one of: forward, fused-backward"),
        ("backward", "WHAT 'backward' is unknown. Use one of: forward"),
        ("forward --N 0", "--N must be at least 1, got 0"),
        ("forward --d 1025", "--d must be 1 to 512 with forward, got 1025"),
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
    closed_form = ["--closed-form"] if arguments else []
    assert part in refused(capsys, *arguments.split(), *closed_form)
