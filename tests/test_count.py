"""`iocourse count`: the contract that others script against, and one line for each bad argument."""

import json
import re

import pytest

from iocourse import count as count_module
from iocourse import schedules
from iocourse.cli import main

SIZES = ("--N", "64", "--d", "8", "--M", "512")
KEYS = [
    *("schedule", "N", "d", "M", "tiles", "reads", "writes", "total"),
    *("footprint", "lower_bound", "bound_id", "ratio", "note"),
]


def counted(capsys, *arguments):
    assert main(["count", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *arguments):
    """The one line on standard error of a refused command."""
    try:
        code = main(["count", *arguments])
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.count("\n") == 1
    return err


def as_json(capsys, *arguments):
    return json.loads(counted(capsys, *arguments, "--json"))


def test_the_json_object_to_the_letter(capsys):
    record = as_json(capsys, "flash_optimal", *SIZES)
    assert record == {
        "schedule": "flash_optimal",
        "N": 64,
        "d": 8,
        "M": 512,
        "tiles": {"Br": 26, "Bc": 1},
        "reads": {"Q": 512, "K": 1536, "V": 1536},
        "writes": {"O": 512},
        "total": 4096,
        "footprint": 502,
        "lower_bound": 2048,
        "bound_id": "compulsory",
        "ratio": 2.0,
        "note": "",
    }
    assert list(record) == KEYS


@pytest.mark.parametrize("name", ["naive", "flash1", "flash2", "flash_optimal"])
def test_every_schedule_runs_and_agrees_with_its_closed_form(capsys, name):
    record = as_json(capsys, name, *SIZES, "--run", "--lse")
    assert list(record) == [*KEYS, "peak", "max_abs_error"]
    assert record["peak"] == record["footprint"] <= 512
    assert 0 < record["max_abs_error"] < 1e-12
    assert record["writes"]["LSE"] == 64
    assert record["total"] == sum(record["reads"].values()) + sum(record["writes"].values())
    assert record["ratio"] == record["total"] / record["lower_bound"]
    assert as_json(capsys, name, *SIZES, "--run")["total"] == record["total"] - 64


def test_run_uses_the_emulator(capsys, monkeypatch):
    """A schedule with other values is found out by its error, one that moves more by its ledger."""
    honest = count_module.run

    def wrong_values(*args, **kwargs):
        done = honest(*args, **kwargs)
        return done._replace(outputs=(done.O + 1, *done.outputs[1:]))

    monkeypatch.setattr(count_module, "run", wrong_values)
    assert as_json(capsys, "flash2", *SIZES, "--run")["max_abs_error"] == pytest.approx(1)

    def one_more_word(*args, **kwargs):
        done = honest(*args, **kwargs)
        done.ledger.reads["K"] += 1
        return done

    monkeypatch.setattr(count_module, "run", one_more_word)
    with pytest.raises(AssertionError, match="K read 1,537 words"):
        main(["count", "flash2", *SIZES, "--run"])


def test_tiles_may_be_given_in_two_ways(capsys):
    record = as_json(capsys, "flash2", *SIZES, "--Br", "10", "--Bc", "4")
    assert record["tiles"] == {"Br": 10, "Bc": 4} and record["total"] == 2 * 512 + 2 * 512 * 7
    assert record["note"] == "tiles as given"
    same = as_json(capsys, "flash2", *SIZES, "--tile", "Br=10", "Bc=4")
    assert same == record == as_json(capsys, "flash2", *SIZES, "--tile", "Bc=4", "--Br", "10")
    some = as_json(capsys, "flash2", *SIZES, "--tile", "Br=10", "--tile", "Br=10")
    assert some["tiles"] == {"Br": 10, "Bc": 1} and some["note"] == "tiles as given; Bc as picked for M"
    naive = as_json(capsys, "naive", *SIZES, "--tile", "Bm=3", "Bn=2", "--Br", "4", "--Bc", "5")
    assert naive["tiles"] == {"Br": 4, "Bc": 5, "Bm": 3, "Bn": 2}


def test_published_block_sizes_that_do_not_fit_are_noted(capsys):
    note = as_json(capsys, "flash1", *SIZES)["note"]
    assert "published block sizes Br=8, Bc=16 need 528 words and do not fit" in note
    fits = as_json(capsys, "flash1", "--N", "64", "--d", "8", "--M", "576")
    assert fits["note"] == "published block sizes"


def test_the_table(capsys):
    text = counted(capsys, "flash2", *SIZES, "--run")
    assert text.startswith("flash2 at N=64, d=8, M=512, tiles Br=26, Bc=1\n")
    assert re.search(r"^K +1,536 +0$", text, re.M)
    assert "4,096 words moved; at most 510 in fast memory at once" in text
    assert "lower bound (compulsory) 2,048 words, ratio 2.000" in text
    assert "note: Br=16, Bc=8 (a quarter of M" in text
    assert "emulator: the same words moved, peak 510 words, max |O - exact| = " in text


def test_the_list(capsys):
    listed = as_json(capsys, "--list")
    assert [one["name"] for one in listed] == ["naive", "flash1", "flash2", "flash_optimal"]
    assert all(list(one) == ["name", "pass", "regime", "source"] and all(one.values()) for one in listed)
    text = counted(capsys, "--list")
    assert len(text.splitlines()) == 5 and "FlashAttention, 2205.14135, Algorithm 1" in text


def test_names(capsys):
    assert "'flash9' is unknown; there are naive, flash1" in refused(capsys, "flash9", *SIZES)
    assert "NAME is missing; there are naive" in refused(capsys, *SIZES)
    for name in count_module.LATER_SCHEDULES:
        assert f"{name} is not built yet" in refused(capsys, name, *SIZES)
    assert not set(count_module.LATER_SCHEDULES) & set(schedules.REGISTRY)
    assert len(count_module.LATER_SCHEDULES) + len(schedules.REGISTRY) == 19


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--N", "64", "--d", "8"), "--M must be given"),
        ((), "--N and --d and --M must be given"),
        (("--N", "0", "--d", "8", "--M", "9"), "--N must be at least 1, got 0"),
        (("--N", "64", "--d", "-8", "--M", "9"), "--d must be at least 1, got -8"),
        (("--N", "many", "--d", "8", "--M", "9"), "argument --N: invalid int value: 'many'"),
        (
            ("--N", "64", "--d", "8", "--M", "34"),
            "M = 34 is too small for flash2 at N = 64, d = 8: the smallest M that works is 35",
        ),
        (
            (*SIZES, "--Br", "26", "--Bc", "2"),
            "flash2 with Br=26, Bc=2 does not fit M = 512: it needs 552 words, 40 short",
        ),
        ((*SIZES, "--Br", "0"), "the tile size Br must be at least 1, got 0"),
        ((*SIZES, "--Bd", "4"), "flash2 takes no --Bd"),
        ((*SIZES, "--tile", "Bx=4"), "flash2 has no tile size Bx; it has Br, Bc"),
        ((*SIZES, "--tile", "Br"), "expected NAME=INT, got 'Br'"),
        ((*SIZES, "--tile", "Br=x"), "expected NAME=INT, got 'Br=x'"),
        ((*SIZES, "--Br", "4", "--tile", "Br=5"), "the tile size Br is given twice, as 4 and 5"),
        ((*SIZES, "--mask", "causal"), "flash2 takes no --mask"),
        ((*SIZES, "--w", "3"), "flash2 takes no --w"),
        ((*SIZES, "--g", "0"), "flash2 takes no --g"),
        ((*SIZES, "--no-recompute"), "flash2 takes no --no-recompute"),
        ((*SIZES, "--speed"), "unrecognized arguments: --speed"),
    ],
)
def test_bad_arguments_are_one_line(capsys, arguments, line):
    assert line in refused(capsys, "flash2", *arguments)


@pytest.mark.parametrize("name", ["naive", "flash1", "flash2", "flash_optimal"])
def test_the_smallest_M_works_and_one_word_less_does_not(capsys, name):
    least = schedules.get(name).smallest_M(30, 4)
    size = ("--N", "30", "--d", "4", "--M")
    assert as_json(capsys, name, *size, str(least), "--run")["footprint"] <= least
    assert f"the smallest M that works is {least}" in refused(capsys, name, *size, str(least - 1))
