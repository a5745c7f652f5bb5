"""`bench tuning-rules`: regret, place and chance by hand and by enumeration; results on the records."""

from itertools import combinations
from statistics import mean, median

import pytest

from iocourse.gpu.timed_tiles import tables
from tools.bench import tuning_rules as t
from tools.bench.__main__ import SUBJECTS

GROUPS = t.grouped_tables()
MADE_UP = [{"ms": ms, "x": x} for ms, x in ((4.0, 1), (2.0, 2), (3.0, 1), (8.0, 2), (5.0, 3))]


def test_regret_and_place_by_hand():
    assert t.regret(MADE_UP, lambda row: row["x"]) == (4 + 3) / 2 / 2
    assert t.regret(MADE_UP, lambda row: -row["x"]) == 5 / 2
    assert t.place(MADE_UP, lambda row: row["x"]) == 4  # level with the slowest one, which counts
    assert t.place(MADE_UP, lambda row: row["ms"]) == 1
    assert t.place(MADE_UP, lambda row: 0) == len(MADE_UP)
    assert t.regret(MADE_UP, lambda row: 0) == pytest.approx(t.chance_of_best(MADE_UP, 1))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_chance_is_the_mean_over_all_choices(k):
    every = combinations([row["ms"] for row in MADE_UP], k)
    assert t.chance_of_best(MADE_UP, k) == pytest.approx(mean(map(min, every)) / 2)


# Mean regret on the draft, the library's forward pass and its backward halves; places in the first two.
FOUND = {
    "most warps per SM": (2.06, 1.15, 1.49, [18, 17, 25, 25], [8, 4, 5, 5]),
    "most programs per SM": (1.30, 1.07, 1.21, [29, 5, 32, 32], [7, 2, 3, 3]),
    "fewest words": (1.34, 1.16, 1.15, [18, 30, 16, 16], [8, 7, 6, 5]),
    "largest BM, then BN": (1.53, 1.29, 1.10, [12, 30, 4, 4], [6, 8, 6, 6]),
    "no spills, then instructions": (1.16, 1.22, 1.05, [13, 13, 1, 2], [1, 6, 5, 5]),
    "fewest instructions per score": (1.11, 1.22, 1.05, [16, 16, 1, 2], [1, 6, 5, 5]),
    "fewest waits per product": (1.53, 1.18, 1.40, [36, 36, 32, 32], [4, 8, 5, 5]),
    "fewest stall clocks per score": (1.26, 1.07, 1.03, [16, 18, 1, 3], [3, 6, 5, 4]),
    "clock model": (1.18, 1.15, 1.09, [2, 5, 4, 5], [5, 4, 5, 5]),
    "64 rows per warpgroup, 3 stages, then clock model": (1.03, 1.15, 1.00, [1, 2, 2, 2], [3, 2, 4, 4]),
}
CHANCE = {"draft": (1.53, 1.27, 1.17), "forward": (1.14, 1.06, 1.04), "backward halves": (1.22, 1.07, 1.03)}


def test_the_table_of_rules_to_two_digits():
    assert SUBJECTS["tuning-rules"] is t
    draft, forward, halves = t.run(quick=True)["groups"]
    assert [one["group"] for one in (draft, forward, halves)] == [*CHANCE]
    for at, (rule, (*regrets, in_draft, in_forward)) in enumerate(FOUND.items()):
        mine = [one["rules"][at] for one in (draft, forward, halves)]
        assert {one["rule"] for one in mine} == {rule}
        assert [round(one["regret"], 2) for one in mine] == regrets, rule
        assert [one["places"] for one in mine[:2]] == [in_draft, in_forward], rule
    for one in (draft, forward, halves):
        assert tuple(round(chance, 2) for chance in one["chance"]) == CHANCE[one["group"]]
    assert len(t.RULES) == len(FOUND)


def test_no_rule_chooses_better_than_three_timings_on_all_tables():
    chance = {name: mean(t.chance_of_best(rows, 3) for rows in group) for name, group in GROUPS.items()}
    for rule in list(t.RULES.values())[:-1]:
        assert any(mean(t.regret(rows, rule) for rows in GROUPS[name]) > chance[name] for name in GROUPS)


def test_the_tile_chosen_on_the_draft_holds_for_the_librarys_forward_pass():
    def chosen(row):
        return (row["BM"], row["BN"], row["warps"], row["stages"]) != (64, 64, 4, 3)

    assert [round(t.regret(rows, chosen), 3) for rows in GROUPS["draft"]] == [1.015, 1.0, 1.038, 1.001]
    assert [round(t.regret(rows, chosen), 3) for rows in GROUPS["forward"]] == [1.004, 1.0, 1.0, 1.0]
    assert all(map(chosen, (row for rows in GROUPS["backward halves"] for row in rows)))  # not tried there


def ratios(name, factor, a, b, *equal, spills=True):
    """Time at a divided by time at b of all pairs in the tables of a record."""
    rows = [row for some in tables(name).values() for row in some if spills or not row["spills"]]
    return [one["ms"] / other["ms"] for one, other in t.pairs(rows, factor, a, b, *equal)]


def test_a_third_stage_is_faster_and_a_fourth_is_not():
    clean = ratios("tiles", "stages", 2, 3, "blocks", spills=False)
    assert len(clean) == 38 and min(clean) > 1.03 and round(median(clean), 2) == 1.18
    every = ratios("tiles", "stages", 2, 3)
    assert (len(every), sum(ratio > 1 for ratio in every)) == (48, 44)
    tune = ratios("tune", "stages", 2, 3)
    assert len(tune) == 10 and min(tune) > 1.03
    fourth = ratios("tune", "stages", 3, 4)
    assert len(fourth) == 14 and 0.98 < min(fourth) < max(fourth) < 1.021
    fourth = ratios("tiles", "stages", 3, 4, "blocks")
    assert len(fourth) == 27 and 0.967 < min(fourth) < max(fourth) < 1.029


def test_fewer_than_64_rows_per_warpgroup_are_slower():
    def split(name, few, many):
        rows = [row for some in tables(name).values() for row in some]
        return [
            one["ms"] / other["ms"] for one, other in t.pairs(rows, "warps", few, many)
            if other["rows_per_warpgroup"] < 64
        ]  # fmt: skip

    assert len(split("tune", 8, 16)) == 8 and len(split("tiles", 4, 8)) == 34
    assert 0.58 <= min(split("tune", 8, 16)) <= max(split("tune", 8, 16)) <= 0.74
    assert 0.45 <= min(split("tiles", 4, 8)) <= max(split("tiles", 4, 8)) <= 0.87


def test_pairs_differ_in_one_size_and_agree_in_the_columns_that_are_held():
    rows = tables("tiles")["draft, d = 64"]
    for equal in ((), ("blocks",)):
        for one, other in t.pairs(rows, "stages", 3, 4, *equal):
            assert {name for name in t.TILE if one[name] != other[name]} == {"stages"}
            assert (one["stages"], other["stages"]) == (3, 4)
            assert not equal or one["blocks"] == other["blocks"]
    assert len([*t.pairs(rows, "stages", 3, 4)]) == 12 > len([*t.pairs(rows, "stages", 3, 4, "blocks")])


def test_pruning_keeps_the_best_tile_of_every_table():
    draft, forward, halves = (one["kept"] for one in t.run(quick=True)["groups"])
    assert draft["tiles"] == [9, 9, 6, 6] and forward["tiles"] == [4, 4, 4, 4]
    assert halves["tiles"] == [5, 5, 3, 3, 2, 2, 2, 2]
    assert draft["best"] and forward["best"] and halves["best"]
    assert [round(one["chance"], 3) for one in (draft, forward, halves)] == [1.036, 1.012, 1.002]


def test_it_is_shown_as_one_table_and_sentences():
    shown = t.show(t.run(quick=True))
    assert "best of 3                                           1.17     1.04             1.03" in shown
    assert "clock model                                         1.18     1.15             1.09" in shown
    assert "draft: 2 to 3 stages faster in 38 of 38 pairs, equal programs per SM, no spills, 1.18" in shown
    assert "draft: of 36, 36, 32, 32 tiles, 9, 9, 6, 6 have 3 stages" in shown
    assert "a draft of the forward kernel, not a kernel of the library" in shown
