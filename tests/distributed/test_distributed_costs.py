"""Closed forms of the distributed schedules: compared with counted words on ragged shapes and with papers."""

import pytest
from distributed_cases import NAMES, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import distributed


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_rank_moves_and_holds_what_the_closed_form_says(name, data):
    P, N, d, told = data.draw(sizes(name))
    schedule = distributed.get(name)
    counted = schedule.dry(P, N, d, **told).ledgers
    assert [
        got - want
        for got, want in zip(counted, schedule.ledgers(P, N, d, **told), strict=True)
        if got != want
    ] == []


def test_the_formulas_of_papers_where_all_divides():
    N, d, P, H = 240, 8, 12, 24
    rest = (P - 1) / P
    words = {
        "ring": 2 * N * d * rest,
        "ring_backward_columns": 4 * N * d * rest,
        "ring_backward_rows": (3 * N * d + 2 * N) * rest,
        "decode": (d + 1) * (P - 1),
        "states": d * (d + 1) * (P - 1),
    }
    for name, wanted in words.items():
        assert {ledger.words for ledger in distributed.get(name).ledgers(P, N, d)} == {wanted}, name
    assert {one.words for one in distributed.get("ulysses").ledgers(P, N, d, H=H)} == {
        4 * N * H * d * (P - 1) / P**2
    }


@pytest.mark.parametrize("a", [1, 2, 3, 4, 6, 12])
def test_the_formula_of_the_grid(a):
    N, d, P = 240, 8, 12
    in_row, in_column = N / a - N / P, N * a / P - N / P
    forward, backward = (distributed.get(name).ledgers(P, N, d, a=a) for name in ("grid", "grid_backward"))
    assert {one.words for one in forward} == {(2 * d + 1) * in_row + 2 * d * in_column}
    assert {one.words for one in backward} == {(3 * d + 2) * in_row + 4 * d * in_column}


def test_zigzag_does_not_halve_the_words():
    N, d, P = 4096, 64, 16
    shares = {}
    for layout in ("contiguous", "zigzag", "striped"):
        words = [one.words / (2 * N * d) for one in distributed.get(f"causal_{layout}").ledgers(P, N, d)]
        shares[layout] = round(sum(words) / P, 3), round(max(words), 4)
    assert shares == {"contiguous": (0.469, 0.9375), "zigzag": (0.703, 0.9375), "striped": (0.936, 0.9375)}
    block = N * d // P
    assert [one.words for one in distributed.get("causal_zigzag").ledgers(P, N, d)] == [
        (2 * P - 2 - p) * block for p in range(P)
    ]


def test_a_dry_run_of_64_ranks_is_counted_as_well():
    run = distributed.get("ring").dry(64, 131072, 128)
    assert run.ledgers == distributed.get("ring").ledgers(64, 131072, 128)
    assert (run.words, run.peak) == (2 * 131072 * 128 * 63 // 64, 4 * 131072 * 128 // 64)
    with pytest.raises(distributed.RankError, match=r"a dry run has ledgers but no outputs\. Use on="):
        _ = run.O


def test_partial_sums_are_told_apart_from_inputs():
    ledger = distributed.RankLedger(received={"K": 5, "O": 7, "LSE": 1}, sent={"K": 11, "O": 13, "LSE": 2})
    assert (ledger.words, ledger.words_received, ledger.words_sent) == (5 + 1 + 13, 13, 26)


def test_a_difference_says_which_array_and_how_many_words():
    got = distributed.RankLedger({"K": 5}, {"K": 5}, peak=3, measured=True)
    assert (got - distributed.RankLedger({"K": 4, "V": 4}, {"K": 5}, peak=2)).lines() == [
        "K received 5 words, closed form: 4 words",
        "V received 0 words, closed form: 4 words",
        "peak of words held 3 words, closed form: 2 words",
    ]
    assert not got - distributed.RankLedger({"K": 5, "V": 0}, {"K": 5}, peak=3)
    assert "K" in repr(got) and "<caption>W = 5 words" in got._repr_html_()


def test_a_name_without_a_closed_form_or_schedule_is_told():
    with pytest.raises(LookupError, match="No closed form for square"):
        distributed.costs.form_of("square")
    with pytest.raises(ValueError, match=r"Unknown distributed schedule 'square'\. Available: ring, "):
        distributed.get("square")
