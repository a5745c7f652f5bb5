"""Tests of `iocourse count`: its JSON for scripts, and one error line for each bad argument."""

import json
import re

import pytest
from command_line import as_json, count_refused, counted

from iocourse import bounds, costs, masks, schedules
from iocourse.cli import main
from iocourse.count.mask_specs import RULES
from iocourse.schedules import report

SIZES = ("--N", "64", "--d", "8", "--M", "512")
PROBLEM = {"block_sparse": ("--mask", "causal", "--block", "4"), "window": ("--w", "3")}
EVERY = list(schedules.REGISTRY)
KEYS = [
    *("schedule", "N", "d", "M", "tiles", "reads", "writes", "total"),
    *("footprint", "lower_bound", "bound_id", "ratio", "note"),
]


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


@pytest.mark.parametrize("name", EVERY)
def test_every_schedule_runs_and_agrees_with_its_closed_form(capsys, name):
    lse = "lse" in schedules.get(name).options
    asked = (name, *SIZES, *PROBLEM.get(name, ()), "--run")
    record = as_json(capsys, *asked, *["--lse"] * lse)
    assert [key for key in record if key not in ("mask", "w", "g", "softmax_error")] == [
        *KEYS,
        *("peak", "max_abs_error"),
    ]
    assert ("softmax_error" in record) == (schedules.get(name).approximates is not None)
    assert record["peak"] == record["footprint"] <= 512
    assert record["max_abs_error"] < 1e-11
    assert record["total"] == sum(record["reads"].values()) + sum(record["writes"].values())
    assert record["ratio"] == record["total"] / record["lower_bound"] >= 1
    if lse:
        assert record["writes"]["LSE"] == 64
        unasked = as_json(capsys, *asked)  # one that needs LSE itself stores it all the same
        assert unasked["total"] == record["total"] - 64 + unasked["writes"].get("LSE", 0)


def test_run_uses_the_emulator(capsys, monkeypatch):
    """A schedule with wrong values is detected by its error, one with more traffic by its ledger."""
    honest = report.run

    def wrong_values(*args, **kwargs):
        done = honest(*args, **kwargs)
        return done._replace(outputs=(done.O + 1, *done.outputs[1:]))

    monkeypatch.setattr(report, "run", wrong_values)
    assert as_json(capsys, "flash2", *SIZES, "--run")["max_abs_error"] == pytest.approx(1)
    assert counted(capsys, "flash2", *SIZES, "--run").endswith("error against exact values 1.00e+00\n")

    def one_wrong_output(*args, **kwargs):
        done = honest(*args, **kwargs)
        return done._replace(outputs=(*done.outputs[:-1], done.outputs[-1] + 2))

    monkeypatch.setattr(report, "run", one_wrong_output)
    for asked in (("flash2", "--lse"), ("split_backward",), ("gradient",)):
        assert as_json(capsys, *asked, *SIZES, "--run")["max_abs_error"] == pytest.approx(2)

    def one_more_word(*args, **kwargs):
        done = honest(*args, **kwargs)
        done.ledger.reads["K"] += 1
        return done

    monkeypatch.setattr(report, "run", one_more_word)
    asked = ["count", "flash2", *SIZES, "--run"]
    assert main(asked) == 1
    *_, moved, difference = capsys.readouterr().out.splitlines()
    assert moved.startswith("emulator: not the words of the closed form, peak ")
    assert difference.startswith("K read 1,537 words (3.00×), closed form ") and difference.endswith(" 3×")
    assert main([*asked, "--json"]) == 1 and json.loads(capsys.readouterr().out)["difference"] == [difference]


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


def test_published_tiles_are_taken_where_they_fit_and_refused_with_the_words_that_are_short(capsys):
    best, fits = (
        as_json(capsys, "flash1", "--N", "64", "--d", "8", "--M", "576", *published)
        for published in ((), ("--published",))
    )
    assert (best["tiles"], best["note"]) == ({"Br": 1, "Bc": 32}, "")
    assert (fits["tiles"], fits["note"]) == ({"Br": 8, "Bc": 18}, "tiles as published")
    line = count_refused(capsys, "flash1", *SIZES, "--published")
    assert "--published: flash1 with Br = 8, Bc = 16 needs 528 words, 16 more than M = 512; omit" in line
    assert "split_backward has no published tile sizes; schedules with some are " in count_refused(
        capsys, "split_backward", *SIZES, "--published"
    )
    line = count_refused(capsys, "flash1", *SIZES, "--published", "--Br", "2")
    assert "--published and --Br both set tile sizes; pass only one of them" in line


def test_the_table(capsys):
    text = counted(capsys, "flash2", *SIZES, "--run")
    assert text.startswith("flash2 at N=64, d=8, M=512, tiles Br=26, Bc=1\n")
    assert re.search(r"^K +1,536 +0$", text, re.M)
    assert "4,096 words moved; at most 510 in fast memory at once" in text
    assert "lower bound (compulsory) 2,048 words, ratio 2.000" in text
    assert "note: " not in text
    assert "emulator: the same words moved, peak 510 words, largest error against exact values " in text


def test_the_list(capsys):
    listed = as_json(capsys, "--list")[: len(EVERY)]  # schedules between ranks come after
    assert [one["name"] for one in listed] == EVERY and len(EVERY) >= 19
    dense = [one["pass"] for one in listed if not schedules.get(one["name"]).needs]
    assert dense == sorted(dense, key=list(schedules.PASSES).index)
    told = [one["pass"] for one in listed[len(dense) :]]
    assert told == sorted(told, key=list(schedules.PASSES).index) and set(told) == {"forward", "backward"}
    assert all(list(one) == ["name", "pass", "regime", "source"] and all(one.values()) for one in listed)
    lines = counted(capsys, "--list").splitlines()[: 1 + len(EVERY)]
    (flash1,) = [line for line in lines if line.startswith("flash1 ")]
    assert len(lines) == 1 + len(EVERY) and "FlashAttention, 2205.14135, Algorithm 1" in flash1
    starts = [lines[0].index(title) for title in ("name", "pass", "regime", "source")]
    for line in lines[1:]:  # columns stand under their titles, with two spaces between
        assert all(line[start - 2 : start] == "  " and line[start] != " " for start in starts[1:])


def test_names(capsys):
    line = count_refused(capsys, "flash9", *SIZES)
    assert "unknown schedule 'flash9'; known schedules are naive, flash2" in line
    assert "NAME is missing; known schedules are naive" in count_refused(capsys, *SIZES)


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
            "M = 34 is too small for flash2 with N = 64, d = 8. It needs at least M = 35",
        ),
        (
            (*SIZES, "--Br", "26", "--Bc", "2"),
            "flash2 with Br = 26, Bc = 2 needs 552 words, but M = 512 (the product Q[0:26] @ K[0:2].T needs "
            "52 words, but only 12 of M = 512 are free); with the other tile sizes unchanged, "
            "the largest Br that fits is 24, the largest Bc that fits is 1",
        ),
        ((*SIZES, "--Br", "0"), "tile size Br must be at least 1, got 0"),
        ((*SIZES, "--Bd", "4"), "flash2 does not accept --Bd"),
        ((*SIZES, "--tile", "Bx=4"), "unknown tile size Bx; the tile sizes of flash2 are Br, Bc"),
        ((*SIZES, "--tile", "Br"), "expected NAME=INT, got 'Br'"),
        ((*SIZES, "--tile", "Br=x"), "expected NAME=INT, got 'Br=x'"),
        ((*SIZES, "--Br", "4", "--tile", "Br=5"), "tile size Br was passed twice, as 4 and 5"),
        (
            (*SIZES, "--mask", "causal"),
            "flash2 does not accept --mask; schedules with it are standard_backward, flash1_",
        ),
        ((*SIZES, "--w", "3"), "flash2 does not accept --w; schedules with it are window"),
        ((*SIZES, "--w", "0"), "flash2 does not accept --w; schedules with it are window"),
        (
            (*SIZES, "--g", "0"),
            "flash2 does not accept --g; schedules with it are low_rank, low_rank_backward",
        ),
        (
            (*SIZES, "--block", "8"),
            "--block is the side of the tiles of --mask; add --mask or remove --block",
        ),
        ((*SIZES, "--speed"), "unrecognized arguments: --speed"),
    ],
)
def test_bad_arguments_are_one_line(capsys, arguments, line):
    assert line in count_refused(capsys, "flash2", *arguments)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("gradient", "--lse"), "gradient does not accept --lse; schedules with it are naive, flash2"),
        (("flash2_backward", "--lse"), "flash2_backward does not accept --lse"),
        (("gradient", "--mask", "causal"), "gradient does not accept --mask"),
        (
            ("split_backward", "--no-recompute"),
            "split_backward does not accept --no-recompute: bound B applies to the forward pass only",
        ),
        (("low_rank", "--g", "0"), "--g must be at least 1, got 0"),
        (("low_rank", "--g", "-3"), "--g must be at least 1, got -3"),
        (("low_rank", "--lse"), "low_rank does not accept --lse"),
        (("low_rank", "--Br", "4"), "low_rank does not accept --Br"),
        (("low_rank", "--mask", "causal"), "low_rank does not accept --mask"),
        (("low_rank", "--no-recompute"), "it is an approximation and computes no scores"),
        (
            ("low_rank", "--g", "3", "--tile", "rc=165", "Bd=9"),
            "low_rank with rc = 165, Bd = 9 needs 1,502 words, but M = 512 (zeros (165, 9) needs 1,485 "
            "words, but only 512 of M = 512 are free); with the other tile sizes unchanged, the "
            "largest rc that fits is 55, the largest Bd that fits is 3",
        ),
        (("window",), "window needs --w W, the number of keys on each side of a query"),
        (("window", "--w", "-1"), "--w must be at least 0, got -1"),
        (("window", "--w", "3", "--Br", "4"), "window does not accept --Br"),
        (
            ("window", "--w", "3", "--tile", "Bx=4"),
            "unknown tile size Bx; the tile sizes of window are none",  # style: ok (a list)
        ),
        (
            ("block_sparse",),
            "block_sparse needs --mask MASK, one of causal, window:W, bigbird:G,W,R, strided:S, ",
        ),
        (
            ("block_sparse", "--mask", "diagonal"),
            "--mask must be one of causal, window:W, bigbird:G,W,R, strided:S, random:P[,SEED]; "
            "got 'diagonal'",
        ),
        (("block_sparse", "--mask", ""), "--mask must be one of causal, window:W"),
        (
            ("block_sparse", "--mask", "causal:1"),
            "--mask must have the form causal, got 'causal:1' with 1 numbers",
        ),
        (
            ("block_sparse", "--mask", "window"),
            "--mask must have the form window:W, got 'window' with 0 numbers",
        ),
        (
            ("block_sparse", "--mask", "window:-1"),
            "'window:-1': W must be an integer of at least 0, got '-1'",
        ),
        (("block_sparse", "--mask", "bigbird:1,x,2"), "W must be an integer of at least 0, got 'x'"),
        (
            ("block_sparse", "--mask", "bigbird:1,1"),
            "must have the form bigbird:G,W,R, got 'bigbird:1,1' with 2 numbers",
        ),
        (("block_sparse", "--mask", "strided:0"), "S must be an integer of at least 1, got '0'"),
        (("block_sparse", "--mask", "strided:2.5"), "S must be an integer of at least 1, got '2.5'"),
        (("block_sparse", "--mask", "random:1.5"), "P must be a number from 0 to 1, got '1.5'"),
        (("block_sparse", "--mask", "random:nan"), "P must be a number from 0 to 1, got 'nan'"),
        (("block_sparse", "--mask", "random:0.5,x"), "SEED must be an integer of at least 0, got 'x'"),
        (
            ("block_sparse", "--mask", "random:0.5,1,2"),
            "must have the form random:P[,SEED], got 'random:0.5,1,2' with 3 numbers",
        ),
        (("block_sparse", "--mask", "causal", "--block", "0"), "--block must be at least 1, got 0"),
        (
            ("flash1_backward", "--mask", "causal", "--Br", "40", "--Bc", "40"),
            "needs 4,240 words, but M = 512 (loading V[0:40] needs 320 words, but only 192 of M = 512 are "
            "free); try Br = 1, Bc = 14",
        ),
    ],
)
def test_bad_questions_are_one_line(capsys, arguments, line):
    name, *rest = arguments
    assert line in count_refused(capsys, name, *SIZES, *rest)


def test_a_grid_that_would_fill_the_memory_is_refused(capsys):
    asked = ("block_sparse", "--N", "300000", "--d", "8", "--M", "100000", "--mask", "causal")
    line = "--block 64 gives 4688 x 4688 tiles for N = 300000, more than 4096 x 4096; use at least 74"
    assert line in count_refused(capsys, *asked)
    assert as_json(capsys, *asked, "--block", "15000")["mask"]["tiles"] == 400


# ---- masks -----------------------------------------------------------------------------------------------

MASKS = {
    "causal": lambda N, B: masks.causal(N, B),
    "window:1": lambda N, B: masks.sliding_window(N, B, 1),
    "window:0": lambda N, B: masks.sliding_window(N, B, 0),
    "bigbird:1,1,2": lambda N, B: masks.bigbird(N, B, 1, 1, 2),
    "strided:3": lambda N, B: masks.strided(N, B, 3),
    "random:0.25": lambda N, B: masks.random(N, B, 0.25),
    "random:0.25,7": lambda N, B: masks.random(N, B, 0.25, seed=7),
}


def test_every_kind_of_mask_is_tried_here():
    assert {name.partition(":")[0] for name in MASKS} == set(RULES)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_the_builders_on_tiles_of_its_side(capsys, name):
    mask, sizes = MASKS[name](60, 7), ("--N", "60", "--d", "8", "--M", "512")
    record = as_json(capsys, "block_sparse", *sizes, "--mask", name, "--block", "7", "--run")
    tiles = {"tiles_seen": int(mask.tiles.sum()), "tiles": 81}
    assert record["mask"] == {"name": name, "block": 7, **tiles, "pairs_seen": mask.nnz}
    picked = schedules.get("block_sparse").tiles(60, 8, 512, mask=mask)
    assert record["tiles"] == picked
    assert record["total"] == costs.block_sparse(60, 8, mask=mask, **picked).total
    assert (record["lower_bound"], record["bound_id"]) == bounds.lower_bound("forward", 60, 8, 512, mask=mask)
    assert record["max_abs_error"] < 1e-12


STORE_SCORES = {  # or take P: a mask changes values, and no count
    *("standard_backward", "small_cache_backward", "score_gradients_stored"),
    *("weights_stored", "weights_precomputed", "small_cache_precomputed"),
}
TAKE_MASKS = [name for name in EVERY if "mask" in schedules.get(name).options]


@pytest.mark.parametrize("name", TAKE_MASKS)
def test_the_backward_schedules_take_masks(capsys, name):
    record = as_json(capsys, name, *SIZES, "--mask", "window:1", "--block", "8", "--run")
    mask = masks.sliding_window(64, 8, 1)
    assert record["max_abs_error"] < 1e-12
    assert record["total"] == schedules.get(name).cost(64, 8, mask=mask, **record["tiles"]).total
    assert record["lower_bound"] == bounds.lower_bound("backward", 64, 8, 512, mask=mask)[0]
    dense = as_json(capsys, name, *SIZES)
    assert "mask" not in dense and (record["total"] == dense["total"]) == (name in STORE_SCORES)


def test_the_side_of_a_tile(capsys):
    """--block, otherwise --Br, otherwise 64."""
    asked = ("block_sparse", "--N", "300", "--d", "8", "--M", "512", "--mask", "causal")
    sides = [as_json(capsys, *asked, *more)["mask"]["block"] for more in ((), ("--Br", "20"))]
    both = as_json(capsys, *asked, "--Br", "20", "--block", "30")
    assert sides == [64, 20] and both["mask"]["block"] == 30 and both["tiles"]["Br"] == 20


def test_the_six_masks_of_the_course(capsys):
    """THEORY's row-block words at N = 4096, d = 64 with tiles of 64, in millions."""
    asked = ("--N", "4096", "--d", "64", "--M", "65536", "--Br", "64", "--Bc", "64")
    found = {
        name: as_json(capsys, "block_sparse", *asked, "--mask", name)["total"]
        for name in ("causal", "window:1", "strided:8")
    }
    assert found == {"causal": 17563648, "window:1": 2080768, "strided:8": 5177344}


def test_a_mask_in_the_table(capsys):
    text = counted(capsys, "block_sparse", *SIZES, "--mask", "causal", "--block", "16")
    assert "\nmask causal: 10 of 16 blocks of side 16 not empty, 2,080 of 4,096 pairs visible\n" in text
    assert "lower bound (compulsory_sparse) 2,048 words" in text
    window = counted(capsys, "window", *SIZES, "--w", "3")
    assert window.startswith("window at N=64, d=8, M=512, w=3, tiles none\n")


def test_a_window_is_held_against_the_bound_of_its_pairs(capsys):
    record = as_json(capsys, "window", *SIZES, "--w", "0")
    assert record["w"] == 0 and record["ratio"] == 1.0
    large = ("--N", "4096", "--d", "16", "--M", "100000", "--w", "1000")
    wanted = bounds.lower_bound("forward", 4096, 16, 100000, mask=masks.Window(4096, 1000))
    record = as_json(capsys, "window", *large)
    assert (record["lower_bound"], record["bound_id"]) == wanted


def test_no_recompute_adds_bound_B(capsys):
    asked = ("small_cache", "--N", "4096", "--d", "256", "--M", "4096")
    with_it, without = (as_json(capsys, *asked, *more) for more in (["--no-recompute"], []))
    assert with_it["bound_id"] == "B" and without["bound_id"] != "B"
    wanted = bounds.lower_bound("forward", 4096, 256, 4096, recompute=False)
    assert (with_it["lower_bound"], with_it["bound_id"]) == wanted
    assert with_it["lower_bound"] > without["lower_bound"] and with_it["ratio"] < without["ratio"]


@pytest.mark.parametrize("name", EVERY)
def test_the_smallest_M_works_and_one_word_less_does_not(capsys, name):
    schedule = schedules.get(name)
    mask, more = masks.causal(30, 4), PROBLEM.get(name, ())
    problem = {
        "block_sparse": {"mask": mask},
        "window": {"w": 3},
        "low_rank": {"g": 2},
        "low_rank_backward": {"g": 2},
    }.get(name, {})
    least = schedule.smallest_M(30, 4, **problem)
    size = ("--N", "30", "--d", "4", *more, "--M")
    assert as_json(capsys, name, *size, str(least), "--run")["footprint"] <= least
    assert f"It needs at least M = {least:,}" in count_refused(capsys, name, *size, str(least - 1))


def test_low_rank_says_what_it_is_measured_against(capsys):
    """An approximation is compared with the compulsory traffic, and with the values of its reference."""
    asked = ("low_rank", *SIZES, "--g", "3", "--tile", "rc=50", "--run")
    record = as_json(capsys, *asked)
    assert record["g"] == 3 and record["tiles"] == {"rc": 50, "Bd": 3}
    assert record["max_abs_error"] < 1e-12 < record["softmax_error"] < 1
    assert (record["bound_id"], record["lower_bound"]) == ("compulsory", 4 * 64 * 8)
    told = "an approximation: max_abs_error is against dense attention with the same polynomial"
    assert record["note"] == f"tiles as given; Bd as picked for M; {told}"
    assert as_json(capsys, *asked[:-3], "--g", "3")["note"] == (
        f"rank 165: the state of 1485 words in 3 tiles; {told}"
    )
    text = counted(capsys, *asked)
    assert text.startswith("low_rank at N=64, d=8, M=512, g=3, tiles rc=50, Bd=3\n")
    assert "largest error against dense attention with the same polynomial below 1e-12\n" in text
    assert text.rstrip().rpartition("\n")[2].startswith("largest error against softmax attention ")


def test_low_rank_stays_at_the_compulsory_bound_where_bounds_of_exact_attention_are_above_it(capsys):
    asked = ("--N", "65536", "--d", "8", "--M", "512")
    low, flash = (as_json(capsys, name, *asked) for name in ("low_rank", "flash_optimal"))
    assert low["ratio"] == 1.0 and low["total"] == low["lower_bound"] == 4 * 65536 * 8
    assert flash["bound_id"] != "compulsory" and flash["lower_bound"] > 4 * low["total"]
    assert low["g"] == 2  # the default


def test_a_degree_whose_features_no_run_could_list_is_counted_but_not_run(capsys):
    asked = ("low_rank", "--N", "64", "--d", "64", "--g", "6", "--M", "10000000000")
    assert as_json(capsys, *asked)["total"] == 4 * 64 * 64
    line = count_refused(capsys, *asked, "--run")
    assert "d = 64, g = 6 has rank 131,115,985, and a run with rc = 131,115,985 features would need " in line
    assert "65.6 GB of memory; rc must be at most 4,194,304" in line
