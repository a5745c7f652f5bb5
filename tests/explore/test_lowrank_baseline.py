"""Tests that a printed quotient comes with d, n, degree, error, the exact run, and the multiply-adds."""

import re
from pathlib import Path

import pytest
from fake_lowrank_record import degree, record, row
from figure_layout import check_layout, texts

from iocourse.course import explore
from iocourse.course.explore.models.lowrank_record import WHAT, baselines, methods
from iocourse.data.records import load_record
from tools.bench.lowrank.text import text

ROOT = Path(__file__).parents[2]
RECORDS = pytest.mark.parametrize("found", [record(), load_record("lowrank")], ids=["made up", "recorded"])
RATIO = re.compile(r"[\d,.]+×")
# d, n, method, ms, quotient, exact run, multiply-adds, error, usual error (not of the script)
LINE = re.compile(
    r" *\d+ +[\d,]+ +(ours, g = \d|the script) +[\d.e,-]+ +[\d.e,-]+× +\w[\w ,]* +[\d.e,-]+× +[\d.e-]+.*"
)


@RECORDS
@pytest.mark.parametrize("section", WHAT)
def test_every_line_with_a_quotient_has_all_that_belongs_to_it(found, section):
    picture = explore.lowrank_vs_published(found, section=section)
    check_layout(picture)
    with_ratio = [line for line in picture.numbers.splitlines() if RATIO.search(line)]
    shown = sum(one.quotient is not None for row in found[section] for one in methods(row))
    assert len(with_ratio) == shown > 0 and all(map(LINE.fullmatch, with_ratio))
    note = baselines(found[section])
    assert note in picture.alt and note in " ".join(texts(picture))


@RECORDS
def test_the_report_has_no_other_quotient(found):
    with_ratio = [line for line in text(found).splitlines() if RATIO.search(line)]
    assert with_ratio and all(map(LINE.fullmatch, with_ratio))


@RECORDS
@pytest.mark.parametrize("section", WHAT)
def test_the_mean_of_v_is_a_line_of_every_row(found, section):
    lines = explore.lowrank_vs_published(found, section=section).numbers.splitlines()
    assert sum("mean of V" in line for line in lines) == len(found[section])
    assert "mean of V: from " in explore.lowrank_vs_published(found, section=section).alt


@RECORDS
def test_the_mean_of_v_is_a_line_of_every_panel(found):
    lines = explore.lowrank_baselines(found).numbers.splitlines()
    problems = {
        (one.get("layer"), one.get("head"), one["spread"]) for one in found["panels"] + found["heads"]
    }
    assert sum("mean of V" in line for line in lines) == len(problems)


def test_a_quotient_is_over_the_fastest_run_of_all():
    found = load_record("lowrank")
    for one in (one for section in WHAT for one in found[section]):
        assert one["baseline_ms"] == min(one["exact_ms"].values()) == one["exact_ms"][one["baseline"]]
        assert "SDPA" in one["exact_ms"] and ("SDPA, padded" in one["exact_ms"]) == (one["d"] % 16 != 0)
        for mine in one["degrees"]:
            assert mine["speedup"] == pytest.approx(one["baseline_ms"] / mine["ms"])


def test_the_note_names_every_run_with_its_rows():
    rows = [row(4, degree(2, 1, 2)), row(8, degree(2, 1, 2), baseline="SDPA"), row(12, degree(2, 1, 2))]
    first = "compiled loops at (d, n) = (4, 160), (12, 40,960)"
    assert (
        baselines(rows) == f"Quotients are over the fastest exact run: {first}; SDPA at (d, n) = (8, 2,560)."
    )


@RECORDS
def test_a_figure_of_one_row_has_both_quotients_and_the_control(found):
    picture = explore.lowrank_times(found, 8, 3)
    check_layout(picture)
    assert "d = 8, n = 2,560, degree 3" in picture.alt and "× over the fastest exact run" in picture.alt
    bars = [words for words in texts(picture) if RATIO.search(words) and "over the" not in words]
    assert bars and all(re.search(r"×, [\d.e,-]+× fewer multiply-adds, off by ", words) for words in bars)
    assert sum(words == "mean of V" for words in texts(picture)) == len(WHAT)


def test_the_headline_of_the_explorer_names_the_exact_run():
    table = explore.lowrank_table(8, 3)
    for d, n in ((8, 2560), (12, 40_960)):
        table.set("row", (d, n))
        assert f"Forward, d = {d}, n = {n:,}, degree 3: " in table.words
        assert re.search(
            r"times as fast as the fastest exact run \(\w[\w ,]*\), with [\d.e]+ times", table.words
        )
        assert "(the mean of V: " in table.words


def test_the_guide_says_what_belongs_to_a_quotient():
    words = " ".join((ROOT / "docs/guide/low-rank.md").read_text(encoding="utf-8").split())
    (sentence,) = re.findall(r"Each quotient is printed with .*? on every machine\.", words)
    for part in ("d, n, the degree, the error", "the name of the exact run", "the quotient of multiply-adds"):
        assert part in sentence
