"""`iocourse count --ranks`: closed form, memory and bound of a schedule; bad arguments in one line."""

import pytest
from command_line import as_json, count_refused, counted

from iocourse import count, distributed, schedules
from iocourse.count.distributed import PLACES
from iocourse.distributed import load_balance
from iocourse.distributed.bounds import lower_bound

SIZES = ("--N", "96", "--d", "8")
KEYS = [
    *("schedule", "N", "d", "ranks", "heads", "layout", "rank", "received", "sent", "words", "mean"),
    *("memory", "lower_bound", "bound_id", "ratio", "note"),
]
COUNTED = [name for name, schedule in distributed.REGISTRY.items() if set(schedule.options) <= {"a"}]


def test_the_json_object_to_the_letter(capsys):
    record = as_json(capsys, "grid", "--ranks", "8", "--grid", "2x4", *SIZES)
    assert record == {
        "schedule": "grid",
        "N": 96,
        "d": 8,
        "ranks": 8,
        "heads": 1,
        "grid": [2, 4],
        "layout": "contiguous",
        "rank": 0,
        "received": {"Q": 288, "K": 96, "V": 96, "O": 288, "L": 36},
        "sent": {"Q": 288, "K": 96, "V": 96, "O": 288, "L": 36},
        "words": 804,
        "mean": 804.0,
        "memory": 1188,
        "lower_bound": 638,
        "bound_id": "network",
        "ratio": 804 / 638,
        "note": "grid as given",
    }
    assert [key for key in record if key != "grid"] == KEYS


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("P", [1, 4, 7])
def test_every_schedule_has_the_words_of_a_dry_run(capsys, name, P):
    schedule = distributed.get(name)
    heads = None if schedule.pass_ == "states" else 28
    told = () if heads is None else ("--heads", str(heads))
    record = as_json(capsys, name, "--ranks", str(P), "--N", "45", "--d", "3", *told)
    a = {"a": record["grid"][0]} if "a" in schedule.options else {}
    run = schedule.dry(P, 45, 3, H=heads, **a)
    each = [ledger.words for ledger in run.ledgers]
    assert record["words"] == max(each) == each[record["rank"]]
    assert record["mean"] == pytest.approx(sum(each) / P)
    assert record["memory"] >= run.peak and list(record["received"]) == list(
        name for name, words in run.ledgers[record["rank"]].received.items() if words
    )
    if record["bound_id"] is None:
        assert schedule.pass_ in ("decode", "states", "packed") and record["ratio"] is None
    else:
        pass_ = "backward" if schedule.pass_ == "backward" else "forward"
        causal = schedule.pass_ == "causal"
        assert (record["lower_bound"], record["bound_id"]) == lower_bound(
            pass_, 45, 3, P, H=heads, causal=causal
        )
        assert record["words"] >= record["lower_bound"]


def test_memory_is_own_rows_and_what_is_held_of_others(capsys):
    n, d, P = 12, 8, 8
    ring = as_json(capsys, "ring", "--ranks", str(P), *SIZES)
    assert ring["memory"] == 4 * n * d + 4 * n * d
    backward = as_json(capsys, "ring_backward_rows", "--ranks", str(P), *SIZES)
    own = 6 * n * d - n * d + n + 3 * n * d  # Q, K, V, O, dO and LSE; dQ, dK and dV
    assert backward["memory"] == own + max(
        ledger.peak for ledger in distributed.get("ring_backward_rows").ledgers(P, 96, d)
    )


def test_without_a_grid_it_takes_the_one_with_the_fewest_words(capsys):
    found = as_json(capsys, "grid", "--ranks", "12", *SIZES)
    given = [
        as_json(capsys, "grid", "--ranks", "12", "--grid", f"{a}x{12 // a}", *SIZES)
        for a in (1, 2, 3, 4, 6, 12)
    ]
    assert found["words"] == min(one["words"] for one in given)
    assert found["note"] == "the grid with the least traffic"


def test_a_layout_names_a_schedule(capsys):
    short = as_json(capsys, "causal", "--layout", "zigzag", "--ranks", "4", *SIZES)
    assert short == as_json(capsys, "causal_zigzag", "--ranks", "4", *SIZES) and short["layout"] == "zigzag"


def test_queries_and_features_are_told(capsys):
    decode = as_json(capsys, "decode", "--ranks", "4", "--queries", "5", *SIZES)
    assert decode["words"] == 5 * 9 * 3 and decode["bound_id"] is None
    states = as_json(capsys, "states", "--ranks", "4", "--features", "7", *SIZES)
    assert states["words"] == 7 * 9 * 3


@pytest.mark.parametrize("place", PLACES)
def test_packed_texts_move_what_their_placement_needs(capsys, place):
    texts, P, d = [40, 3, 17, 100, 1, 30], 4, 8
    told = ("--ranks", str(P), "--d", str(d), "--seq-lens", ",".join(map(str, texts)), "--placement", place)
    record, placed = as_json(capsys, "packed", *told), PLACES[place](texts, P)
    assert record["N"] == 191 and record["texts"] == texts and record["layout"] == "as placed"
    assert record["words"] == max(placed.words(d)) and record["mean"] * P == sum(placed.words(d))
    assert f"{load_balance.imbalance(placed.pairs):.2f} times the mean work" in record["note"]
    assert record["memory"] >= 4 * d * max(placed.tokens)
    run = distributed.get("packed").dry(P, 191, d, texts=texts, layout=placed.layout)
    assert [ledger.words for ledger in run.ledgers] == list(placed.words(d))


def test_texts_are_split_by_work_unless_told(capsys):
    told = ("packed", "--ranks", "4", "--d", "8", "--seq-lens", "40,3,17,100")
    assert as_json(capsys, *told) == as_json(capsys, *told, "--placement", "split", "--N", "160")
    text = counted(capsys, *told)
    assert "packed at N=160, d=8, ranks=4, heads=1, layout as placed\n" in text
    assert "1 sequence on more than one rank" in text
    assert "\nno rank moves words\n" in counted(capsys, *told, "--placement", "whole")


def test_the_goal_of_the_grid(capsys):
    record = as_json(capsys, "grid", "--ranks", "16", "--N", "131072", "--d", "128")
    assert record["grid"] == [4, 4] and 1 <= record["ratio"] <= 1.05


def test_the_table(capsys):
    text = counted(capsys, "grid", "--ranks", "8", *SIZES)
    assert text.startswith("grid at N=96, d=8, ranks=8, heads=1, grid 4x2, layout contiguous\n")
    assert "array       words received      words sent\nQ " in text
    assert "\nrank 0 has the most traffic; the mean over ranks is 780 words\n" in text
    assert "\nmemory per rank: 1,164 words, its own rows and the received data it keeps\n" in text
    assert "\nlower bound (network) 638 words of some rank, ratio 1.223\n" in text
    assert text.endswith("\nnote: the grid with the least traffic\n")
    assert counted(capsys, "decode", "--ranks", "4", *SIZES).endswith(
        "no lower bound is known for this pass\n"
    )
    assert "lower bound (network) 0 words of some rank\n" in counted(capsys, "ring", "--ranks", "1", *SIZES)


def test_the_list_has_both_kinds_one_after_the_other(capsys):
    listed = as_json(capsys, "--list")
    there = listed[len(schedules.REGISTRY) :]
    assert [one["name"] for one in there] == list(distributed.REGISTRY)
    assert all(list(one) == ["name", "pass", "regime", "source"] and all(one.values()) for one in there)
    assert all(one["regime"].startswith("--ranks: ") for one in there)
    lines = counted(capsys, "--list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [one["name"] for one in listed]


def test_names_of_the_two_kinds_differ():
    assert not set(distributed.REGISTRY) & set(schedules.REGISTRY)


RING, RANKS = ("ring", *SIZES), ("--ranks", "8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (RING, "ring is for schedules between ranks; add --ranks P, the number of ranks"),
        (
            ("flash2", *SIZES, "--M", "99", "--grid", "2x2"),
            "--grid is for schedules between ranks; add --ranks",
        ),
        (
            ("flash2", *SIZES, "--M", "99", "--heads", "2"),
            "--heads is for schedules between ranks; add --ranks",
        ),
        ((*RING, *RANKS, "--M", "99"), "--M is for schedules of one machine and cannot be used with --ranks"),
        (
            (*RING, *RANKS, "--tile", "Br=4"),
            "--tile is for schedules of one machine and cannot be used with --ranks",
        ),
        ((*RING, *RANKS, "--no-recompute"), "--no-recompute is for schedules of one machine"),
        ((*RING, *RANKS, "--g", "0"), "--g is for schedules of one machine"),
        ((*RING, *RANKS, "--run"), "--run is for schedules of one machine"),
        (RANKS, "NAME is missing; schedules between ranks are ring, grid"),
        (
            ("flash2", *SIZES, *RANKS),
            "unknown schedule between ranks 'flash2'; known ones are ring, grid",
        ),
        (("ring", *RANKS, "--d", "8"), "--N must be given"),
        (("ring", *RANKS), "--N and --d must be given"),
        ((*RING, "--ranks", "0"), "--ranks must be at least 1, got 0"),
        ((*RING, *RANKS, "--heads", "0"), "--heads must be at least 1, got 0"),
        ((*RING, *RANKS, "--grid", "2x4"), "ring does not accept --grid"),
        ((*RING, *RANKS, "--queries", "2"), "ring does not accept --queries"),
        ((*RING, *RANKS, "--features", "2"), "ring does not accept --features"),
        ((*RING, *RANKS, "--layout", "zigzag"), "--layout zigzag: the layout of ring is contiguous"),
        ((*RING, *RANKS, "--layout", "spiral"), "invalid choice: 'spiral'"),
        (("grid", *SIZES, *RANKS, "--grid", "3x3"), "--grid 3x3 has 9 ranks, but --ranks is 8"),
        (("grid", *SIZES, *RANKS, "--grid=-2x-4"), "--grid -2x-4 has 8 ranks"),
        (("grid", *SIZES, *RANKS, "--grid", "2y4"), "--grid must be rows and columns such as 4x2, got '2y4'"),
        (("packed", *SIZES, *RANKS), "--seq-lens must be given"),
        (("packed", *RANKS), "--seq-lens and --d must be given"),
        (
            ("packed", "--d", "8", *RANKS, "--seq-lens", "5,x"),
            "--seq-lens must be lengths such as 4096,512,64, got '5,x'",
        ),
        (
            ("packed", "--d", "8", *RANKS, "--seq-lens", "5,0"),
            "each length in --seq-lens must be at least 1, got 0",
        ),
        (
            ("packed", *SIZES, *RANKS, "--seq-lens", "5,6"),
            "--N must be the sum of --seq-lens, 11, got 96; or omit it",
        ),
        (("packed", "--d", "8", *RANKS, "--seq-lens", "5", "--placement", "pile"), "invalid choice: 'pile'"),
        ((*RING, *RANKS, "--seq-lens", "96"), "ring does not accept --seq-lens"),
        ((*RING, *RANKS, "--placement", "split"), "ring does not accept --placement"),
        (("states", *SIZES, *RANKS, "--heads", "2"), "states does not accept --heads"),
        (("decode", *SIZES, *RANKS, "--queries", "0"), "--queries must be at least 1, got 0"),
        (
            ("ulysses", *SIZES, *RANKS, "--heads", "12"),
            "H = 12 heads cannot be distributed evenly over 8 ranks",
        ),
    ],
)
def test_each_bad_argument_is_named_in_one_line(capsys, arguments, line):
    assert line in count_refused(capsys, *arguments)


def test_what_the_options_allow_is_what_ranks_have():
    """The command line writes it down, because importing ranks for every count would be slow."""
    assert count.LAYOUTS == distributed.LAYOUTS and tuple(PLACES) == count.PLACES
