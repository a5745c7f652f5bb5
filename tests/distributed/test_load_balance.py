"""Load balance: pairs and words against explicit masks; every row is placed once; split parts are even."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.distributed.layouts import LAYOUTS, check_layout, rows_of
from iocourse.distributed.load_balance import (
    draw_lengths,
    equal_tokens,
    imbalance,
    pairs_of_ranks,
    split_texts,
    whole_texts,
    words_of_ranks,
)

PLACE = {"equal tokens": equal_tokens, "whole texts": whole_texts, "split texts": split_texts}
layouts = st.sampled_from(LAYOUTS)
texts = st.lists(st.integers(1, 200), min_size=1, max_size=12)
ranks = st.integers(1, 9)


# ---------------------------------------------------------------------- one sequence
@given(layouts, st.integers(1, 90), st.integers(1, 7), ranks)
def test_pairs_and_words_are_those_of_the_mask(layout, N, d, P):
    seen = np.tril(np.ones((N, N), bool))
    pairs, words = pairs_of_ranks(layout, N, P), words_of_ranks(layout, N, d, P)
    for rank in range(P):
        rows = rows_of(layout, N, P, rank)
        assert pairs[rank] == seen[rows].sum()
        others = seen[rows].any(0)
        others[rows] = False
        assert words[rank] == 2 * d * others.sum()


def test_the_table_of_the_layouts():
    """On 16 ranks and 4,096 rows zigzag balances the work, but the maximum of the words remains the same."""
    N, d, P = 4096, 64, 16
    table = {}
    for layout in LAYOUTS:
        shares = [words / (2 * N * d) for words in words_of_ranks(layout, N, d, P)]
        table[layout] = (imbalance(pairs_of_ranks(layout, N, P)), sum(shares) / P, max(shares))
    assert table["contiguous"] == pytest.approx((1.937, 0.469, 0.938), abs=6e-4)
    assert table["zigzag"] == pytest.approx((1.000, 0.703, 0.938), abs=6e-4)
    assert table["striped"] == pytest.approx((1.004, 0.936, 0.938), abs=6e-4)


@given(st.integers(1, 40), ranks, st.integers(1, 9))
def test_zigzag_is_even_where_its_blocks_are(n, P, d):
    N = 2 * P * n
    assert pairs_of_ranks("zigzag", N, P) == (n * (N + 1),) * P
    assert words_of_ranks("zigzag", N, d, P) == tuple((2 * P - 2 - p) * N * d // P for p in range(P))


@given(st.integers(1, 500), ranks)
def test_no_pair_is_lost(N, P):
    assert {sum(pairs_of_ranks(layout, N, P)) for layout in LAYOUTS} == {N * (N + 1) // 2}


# ---------------------------------------------------------------------- several sequences
@pytest.mark.parametrize("place", PLACE.values(), ids=PLACE)
@given(lengths=texts, P=ranks)
def test_every_row_of_every_text_stands_on_one_rank(place, lengths, P):
    placed = place(lengths, P)
    rows = [(piece.text, t) for piece in placed.pieces for block in piece.rows for t in block]
    assert sorted(rows) == [(text, t) for text, length in enumerate(lengths) for t in range(length)]
    assert sum(placed.tokens) == sum(lengths) and len(placed.tokens) == P
    assert sum(placed.pairs) == sum(length * (length + 1) // 2 for length in lengths)


@pytest.mark.parametrize("place", PLACE.values(), ids=PLACE)
@given(lengths=texts, P=ranks)
def test_the_layout_of_a_placement_gives_each_row_to_the_rank_of_its_piece(place, lengths, P):
    placed = place(lengths, P)
    check_layout(placed.layout, sum(lengths), P)
    assert placed.lengths == tuple(lengths)
    starts = np.cumsum([0, *lengths])
    for piece in placed.pieces:
        owned = rows_of(placed.layout, sum(lengths), P, piece.rank)
        assert {starts[piece.text] + t for block in piece.rows for t in block} <= set(owned.tolist())


@pytest.mark.parametrize("place", PLACE.values(), ids=PLACE)
@given(lengths=texts, P=ranks, d=st.integers(1, 5))
def test_a_rank_needs_the_keys_before_its_queries(place, lengths, P, d):
    placed = place(lengths, P)
    needed = [0] * P
    for piece in placed.pieces:
        own = {t for block in piece.rows for t in block}
        needed[piece.rank] += 2 * d * len(set(range(max(own, default=-1) + 1)) - own)
    assert placed.words(d) == tuple(needed)
    for text in range(len(lengths)):
        there = {piece.rank for piece in placed.pieces if piece.text == text}
        assert (text in placed.split) == (len(there) > 1)


@given(texts, ranks)
def test_equal_tokens_are_equal_and_whole_texts_move_nothing(lengths, P):
    tokens = equal_tokens(lengths, P).tokens
    assert max(tokens) - min(tokens) <= 1
    whole = whole_texts(lengths, P)
    assert whole.split == () and not any(whole.words(3))


@given(texts, ranks)
def test_a_text_is_split_over_just_enough_ranks(lengths, P):
    placed, total = split_texts(lengths, P), sum(length * (length + 1) for length in lengths)
    for text, length in enumerate(lengths):
        work = P * length * (length + 1)
        on = sum(piece.text == text for piece in placed.pieces)
        assert work <= on * total and (on == 1 or work > (on - 1) * total)
    assert max(placed.pairs) <= 2 * total / (2 * P) + max(piece.pairs for piece in placed.pieces)


def test_long_texts_split_over_just_enough_ranks_make_the_work_even():
    """Test 40 draws of 2^19 tokens on 16 ranks; a single draw may have a sequence of 100,000 tokens."""
    P, d, found = 16, 64, []
    for seed in range(40):
        lengths = draw_lengths(np.random.default_rng(seed), 2**19)
        placed = {name: place(lengths, P) for name, place in PLACE.items()}
        all_split = 2 * d * sum(length * (2 * P - 2) - (P - 1) * P // 2 * (length // P) for length in lengths)
        split = placed["split texts"]
        found.append(
            [
                *(imbalance(one.pairs) for one in placed.values()),
                len(split.split) / len(lengths),
                sum(split.words(d)) / all_split,
                imbalance(split.tokens),
            ]
        )
    tokens, whole, split, share, words, memory = np.median(found, axis=0)
    assert tokens > 3 and whole > 5 and split < 1.03
    assert 0.02 < share < 0.04 and words < 0.15 and 1.5 < memory < 2
    assert max(row[2] for row in found) < 1.4


def test_lengths_fill_the_tokens_and_are_log_normal():
    lengths = draw_lengths(np.random.default_rng(1), 10**8)
    assert sum(lengths) == 10**8 and min(lengths) >= 1
    assert np.median(lengths) == pytest.approx(1500, rel=0.03)
    assert np.std(np.log(lengths)) == pytest.approx(1.5, rel=0.03)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: pairs_of_ranks("spiral", 8, 2),
            "layout must be one of contiguous, zigzag, striped, or ranges for each rank, got 'spiral'",
        ),
        (lambda: pairs_of_ranks("zigzag", 0, 2), "N must be at least 1, got 0"),
        (lambda: words_of_ranks("zigzag", 8, 0, 2), "d must be at least 1, got 0"),
        (lambda: words_of_ranks("zigzag", 8, 1, 0), "P must be at least 1, got 0"),
        (lambda: equal_tokens([], 2), "lengths must contain the length of at least one sequence, got none"),
        (lambda: whole_texts([3, 0], 2), r"lengths\[1\] must be at least 1, got 0"),
        (lambda: split_texts([3], 0), "P must be at least 1, got 0"),
        (lambda: split_texts([3], 1).words(0), "d must be at least 1, got 0"),
        (lambda: imbalance([]), "shares must contain at least one number above 0, got none"),
        (lambda: imbalance([0, 0]), "shares must contain at least one number above 0, got none"),
        (lambda: draw_lengths(np.random.default_rng(0), 0), "tokens must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_check_does_not_get_its_placement_from_here():
    for call in (lambda: pairs_of_ranks("zigzag", 8, 2), lambda: split_texts([3], 1)):
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
            call()
