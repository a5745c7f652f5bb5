"""Tests of lessons 08 and 08b: their formulas, statements and exercises."""

from itertools import pairwise, product

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, exact, masks, run, schedules
from iocourse.course import challenges
from iocourse.course.challenges.rolling_rows import rolling_rows
from iocourse.course.checking import HeldWithRemark, failed_properties, judge
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson08 import PAIRS_DECIDE, UNASKED, bucket_pairs, words_in_order
from iocourse.data import real_head
from tests.mutation.references import build, exercise_source

LESSON, SECOND = Lesson("08_sparse"), Lesson("08b_")
says = LESSON.says
N, D, B = 4096, 64, 64
NB = N // B


def blocked(mask, Br=B, d=D):
    return costs.block_sparse(mask.N, d, mask=mask, Br=Br, Bc=1)


# ---------------------------------------------------------------------- 8.1
def tile_weights(head):
    Q, K = head.Q.astype(float), head.K.astype(float)
    P = np.zeros((480, 480))
    P[:471, :471] = exact.softmax(exact.scores(Q, K))
    return P.reshape(30, 16, 30, 16).sum(axis=(1, 3))


def test_in_the_first_eight_rows_much_of_the_weight_lies_far_from_the_diagonal():
    sharp = tile_weights(real_head(0, 2))
    near = masks.sliding_window(471, 16, 1).tiles
    assert sharp.sum() == pytest.approx(471)
    assert sharp[:8].sum() - sharp[:8][near[:8]].sum() > 0.7 * sharp[:8].sum()


# ---------------------------------------------------------------------- 8.2
@pytest.mark.parametrize("n", [8, 17, 64])
def test_the_numbers_of_tiles_are_those_of_the_table(n):
    side, s, g, w, r = n * B, 3, 1, 1, 1
    columns, rest = -(-n // s), n - g
    assert masks.strided(side, B, s).tiles.sum() == n * columns + n - columns
    bigbird = g * (2 * n - g) + rest * (2 * w + 1) - w * (w + 1) + r * rest
    assert masks.bigbird(side, B, g, w, r).tiles.sum() == bigbird


def test_random_tiles_are_as_many_as_expected():
    counts = [masks.random(N, B, 0.1, seed=seed).tiles.sum() for seed in range(40)]
    assert np.mean(counts) == pytest.approx(NB + 0.1 * NB * (NB - 1), rel=0.02)


def test_the_formulas_are_the_ones_shown():
    """Their values are tested in tests/test_masks.py, tests/test_costs.py and tests/bounds."""
    says("8.2", "n_b(n_b+1)/2", "n_b(2w+1) - w(w+1)", r"n_b\lceil n_b/s\rceil + n_b - \lceil n_b/s\rceil")
    says("8.2", "g(2n_b - g) + n'(2w+1) - w(w+1) + rn'", "n_b + p,n_b(n_b-1)")
    says("8.2", r"W = 2Nd + 2d \sum_{(i,j)\ \text{visible}} c_j", r"W = 2Nd + 2dB \cdot")
    says("8.4", r"W = 4Nd , \qquad \text{footprint } 2d(2w+1) + 2d + 3")
    SECOND.says("8.9", "5Nd + N + (4d+2)", r"8Nd + 2N + ", r"2d,c_j + (2d+2),r_i")


def test_under_the_window_queries_and_outputs_are_a_quarter_of_everything():
    assert 2 * N * D / blocked(masks.sliding_window(N, B, 1)).total == pytest.approx(0.25, abs=0.003)


# ---------------------------------------------------------------------- 8.3, 8.4
def by_ends(ends, d=D):
    """Words of Q and O, and of the keys and values 0 … end of each query block."""
    return 2 * d * (max(ends) + sum(ends))


@pytest.mark.parametrize(("n", "Br"), [(1024, 342), (1024, 445), (1024, 512), (999, 100), (7, 9)])
def test_the_short_block_first_under_a_causal_mask(n, Br):
    k = -(-n // Br)
    shown = 2 * n * D + 2 * D * (k * n - Br * k * (k - 1) // 2)
    assert blocked(masks.Causal(n), Br).total == shown == by_ends(range(n, 0, -Br))
    assert shown <= by_ends([*range(Br, n, Br), n])
    says("8.3", r"W = 2Nd + 2d\left(kN - B_r,\frac{k(k-1)}{2}\right)", r"k = \left\lceil \frac{N}{B_r}")


def test_the_best_block_is_the_largest_with_the_short_one_first_and_the_smallest_of_three_with_it_last():
    n, most = 1024, (58_368 - D) // (2 * D + 3)
    first = {Br: by_ends(range(n, 0, -Br)) for Br in range(1, most + 1)}
    last = {Br: by_ends([*range(Br, n, Br), n]) for Br in range(1, most + 1)}
    assert min(first, key=first.get) == most == 445 and first[most] == 353_408
    assert min(last, key=last.get) == -(-n // 3) == 342 and last[342] == 393_472


@pytest.mark.parametrize(("Br", "w"), [(64, 63), (64, 15), (64, 64), (32, 7), (128, 1)])
def test_formula_8_2(Br, w):
    words = blocked(masks.Window(N, w), Br).total
    assert words == 4 * N * D + 4 * D * w * (N // Br - 1)
    assert words / (4 * N * D) == pytest.approx(1 + w * (N // Br - 1) / N)
    says("8.4", r"W = 4Nd + 4dw\,(T_r - 1)".replace("\\,", ","), "1 + w(T_r-1)/N")


def test_a_narrow_ring_wins_on_both_counts_and_blocks_come_near_their_formula():
    narrow, rows = costs.window(N, D, w=15), blocked(masks.Window(N, 15))
    assert narrow.peak < rows.peak and narrow.total < rows.total
    Br = (16384 - D) // (2 * D + 3)
    assert blocked(masks.Window(N, 256), Br).total / (4 * N * D) == pytest.approx(1 + 256 / Br, rel=0.03)


# ---------------------------------------------------------------------- 8.5, 8.6
def test_a_mask_of_columns_moves_what_the_window_moves():
    columns = masks.BlockMask(N, np.eye(NB, dtype=bool) | (np.arange(NB) < 2), B)
    window = masks.sliding_window(N, B, 1)
    assert columns.tiles.sum() == window.tiles.sum() == 190
    for Br in (64, 512):
        assert blocked(columns, Br).total == blocked(window, Br).total
    says("8.5", r"W = 2Nd + 2d \sum_I \bigl|\mathrm{cols}(I)\bigr|")


def drawn(rho):
    return np.random.default_rng(8).random((N, N), dtype=np.float32) < rho


def test_formula_8_5():
    for rho in (0.01, 0.001, 0.0001):
        hit = masks.covering_blocks(drawn(rho), B)
        assert hit.tiles.mean() == pytest.approx(1 - (1 - rho) ** (B * B), abs=0.01)
        assert hit.tiles.all() == (rho == 0.01)
    says("8.6", r"1 - (1 - \rho)^{B^2}")


def test_random_pairs_share_less_than_three_percent():
    pairs = drawn(0.001)
    single = masks.BlockMask(N, pairs, 1, allow_empty=True)
    alone, together = blocked(single, 1).total, blocked(single, 64).total
    assert alone == 2 * N * D + 2 * D * pairs.sum()
    assert 0.02 < 1 - together / alone < 0.03


# ---------------------------------------------------------------------- 8.8, 8.9
def test_half_of_the_ring_of_the_challenge_does_not_fit():
    window = challenges.find_challenge("window")
    w = window.mask(window.N).w
    assert w == 256 and 2 <= costs.window(window.N, window.d, w=w).peak / window.M < 2.1
    says("8.8", "$w = 256$ keys to either side", "441 are visible")
    says("8.8", "would need twice the available memory", "$N = 2048$, $d = 32$ and $M = 16,384$")
    for asked in (window, challenges.find_challenge("sparsity")):
        assert (asked.N, asked.d, asked.M) == (2048, 32, 16_384) and asked.score(2048 * 32) == 1
        assert asked.lower_bound()[0] == 4 * 2048 * 32
    assert challenges.find_challenge("sparsity").mask(2048).tiles.sum() == 441


def test_at_the_same_block_size_B3_moves_fewer_words_than_B4():
    window = masks.sliding_window(N, B, 1)
    split = costs.split_backward(N, D, Br1=B, Bc1=1, Br2=1, Bc2=B, mask=window)
    assert costs.fused_backward(N, D, Br=1, Bc=B, mask=window).total < split.total


# ---------------------------------------------------------------------- 8.10, 8.11
@pytest.mark.parametrize("M", [4096, 16384, 65536])
def test_formula_8_7_follows_from_theorem_D(M):
    for mask in (masks.Causal(N), masks.Window(N, 1000), masks.random(N, B, 0.1)):
        shown = 4 * mask.nnz * D**2 / (M + D**2) - (M + D**2)
        assert bounds.theorem_D(mask.nnz, D, M) >= shown
    assert bounds.theorem_D.status == "proved here"
    SECOND.says("8.10", r"\frac{4\,\mathrm{nnz}\,d^2}{M + d^2} - (M + d^2)".replace("\\,", ","))


def test_window_and_scattered_mask_have_one_bound_and_other_words():
    n, M = 2**16, 2**16
    rng, anywhere = np.random.default_rng(8), np.zeros((n // B, n // B), dtype=bool)
    for row in anywhere:
        row[rng.choice(n // B, 33, replace=False)] = True
    both = masks.sliding_window(n, B, 16), masks.BlockMask(n, anywhere, B)
    window, scattered = (blocked(mask, 448) for mask in both)
    least = [bounds.lower_bound("forward", n, D, M, mask=mask) for mask in both]
    assert {which for _, which in least} == {"D"} and max(window.peak, scattered.peak) <= M
    assert 4 < scattered.total / window.total < 5 and least[1][0] == pytest.approx(least[0][0], rel=0.01)


def test_the_best_known_schedule_moves_a_fifth_fewer_words_than_buffer_reuse_in_the_first_figure():
    n, M = 2048, 65_536
    mask = masks.random(n, B, 0.1)
    least, which = bounds.lower_bound("forward", n, D, M, mask=mask)
    assert mask.tiles.sum() == 124 and which == "compulsory_sparse"
    reuse = schedules.get("block_sparse").count(n, D, M, mask=mask).total
    QKV = dict(zip("QKV", np.zeros((3, n, D)), strict=True))
    known = run(rolling_rows, M=M, mask=mask, B=B, rows=6, kept=120, **QKV).ledger.total
    assert least < known and known / reuse == pytest.approx(0.8, abs=0.02)
    SECOND.says("8.10", "about a fifth fewer words under this mask")


def test_a_wide_window_comes_near_theorem_D():
    M, n = 2**16, 2**19
    Br = (M - D) // (2 * D + 3)
    ratios = [
        blocked(mask, Br).total / bounds.lower_bound("forward", n, D, M, mask=mask)[0]
        for mask in (masks.Window(n, w) for w in (1024, 4096, 16384, 65536))
    ]
    limit = (1 + D**2 / M) * (1 + 3 / (2 * D))
    SECOND.says("8.10", "(1 + d^2/M)(1 + 3/(2d))")
    assert all(one > other for one, other in pairwise(ratios)) and limit < ratios[-1] < limit + 0.02
    between = masks.Window(n, Br)
    least, _ = bounds.lower_bound("forward", n, D, M, mask=between)
    assert 1.7 < blocked(between, Br).total / least < 2.1  # "up to about two"


def test_the_misread_bound_of_8_11_doubles_each_time():
    bound = bounds.omega_sparse
    assert bound.status == "asymptotic only"
    M = costs.window(N, D, w=64).peak
    quotients = [
        bound.order(2 * n * D, masks.Window(n, 64).nnz, M) / costs.window(n, D, w=64).total
        for n in (2**12, 2**14, 2**16, 2**18, 2**20)
    ]
    assert all(1.99 < later / one < 2.01 for one, later in pairwise(quotients))


@pytest.mark.parametrize("M", [2**4, 2**10, 2**16, 2**20])
def test_formula_8_9_the_sparse_form_is_the_dense_form_of_a_block(M):
    Z_in, Z_QK = 2**20, 2**24
    n, d = int(Z_QK**0.5), int(Z_in / Z_QK**0.5)
    dense = min((n * d) ** 2 / M, n * n * d / M**0.5)
    assert bounds.omega_sparse.order(Z_in, Z_QK, M) == pytest.approx(dense)
    assert (dense == pytest.approx((n * d) ** 2 / M)) == (d * d <= M)


# ---------------------------------------------------------------------- exercises
def test_in_the_cases_of_8E_each_half_of_the_bound_decides_where_its_tag_says():
    for seed in range(20):
        for case in find("8E").cases(np.random.default_rng(seed)):
            pairs, d, M = case.inputs.values()
            shown = 4 * pairs.sum() * d * d / (M + d * d) - (M + d * d)
            by_pairs = case.expected == pytest.approx(shown)
            assert d * d <= M and case.has(UNASKED) == (not (pairs.any(axis=0) & pairs.any(axis=1)).all())
            assert case.has(UNASKED) or case.has(PAIRS_DECIDE) == by_pairs


def test_the_bound_of_8E_is_nowhere_above_what_the_library_proves():
    my_least = SECOND.solved("8E")
    for mask in (masks.Window(300, 5), masks.Causal(300), masks.random(300, 10, 0.2)):
        for M in (64, 500, 5000):
            least, _ = bounds.lower_bound("forward", 300, 8, M, mask=mask)
            assert my_least(mask.pairs(), 8, M + 4) <= least  # the library also counts registers


def test_one_key_too_many_does_not_fit_in_some_case_of_8_3():
    for seed in range(20):
        cases = find("8C").cases(np.random.default_rng(seed))
        assert any(case.budget.peak + 2 * case.inputs["Q"].shape[1] > case.M for case in cases)


def test_the_cases_of_8_2_hide_pairs_in_seen_tiles_and_have_gaps_and_empty_rows():
    for seed in range(20):
        found = find("8B").cases(np.random.default_rng(seed))
        given = [case.inputs["mask"] for case in found]
        assert any(len(mask.columns(i, i + 1)) > 1 for mask in given for i in range(mask.N))
        assert any(mask.nonempty_rows < mask.N for mask in given)
        tiled = [mask for mask in given if isinstance(mask, masks.BlockMask)]
        whole = [masks.BlockMask(m.N, m.tiles, m.Br, m.Bc, allow_empty=True) for m in tiled]
        assert any(mask.nnz < seen.nnz for mask, seen in zip(tiled, whole, strict=True))


def test_8B_accepts_the_short_block_as_the_last_and_remarks_on_fewer_words_with_it_at_the_cheaper_end():
    loop = "for i in m.blocks(N, Br, alike=mask.alike):"
    source = exercise_source("8B", solved=True)
    assert loop in source  # the short block is the last
    better = source.replace(loop, loop.replace("):", ", short_first=mask.short_first(Br)):"))
    remarks = {source: set(), better: set()}
    for text, seed in product(remarks, range(4)):
        verdicts = judge(find("8B"), build("8B", text), seed)
        assert not failed_properties(verdicts), seed
        remarks[text] |= {name.remark for name, _ in verdicts if isinstance(name, HeldWithRemark)}
    assert not remarks[source]
    assert remarks[better] and all("fewer than the closed form" in said for said in remarks[better])


def test_no_order_of_buckets_beats_the_budget_of_8_4():
    rng = np.random.default_rng(8)
    for case in find("8D").cases(np.random.default_rng(0)):
        pairs, (buckets, side) = case.inputs["pairs"], case.expected
        orders = [rng.permutation(len(pairs)) for _ in range(20)]
        orders += [np.lexsort((rng.random(len(pairs)), rng.permutation(99)[buckets])) for _ in range(20)]
        assert all(words_in_order(pairs, order, side).total >= case.budget.total for order in orders)


def test_buckets_as_pairs():
    buckets = np.array([0, 1, 0])
    assert bucket_pairs(buckets, causal=False).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert bucket_pairs(buckets, causal=True).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_the_painter_has_a_cell_of_its_own_in_the_students_notebook():
    assert "explore.mask_painter()" in LESSON.student_sources()


def test_the_ragged_last_block_of_8A_is_seen_in_its_corner_alone_and_not_empty():
    seen = 0
    for seed in range(60):
        for case in find("8A").cases(np.random.default_rng(seed)):
            tiles, widths = case.inputs["tiles"], case.inputs["widths"]
            assert min(*case.inputs["heights"], *widths) >= 1
            if tiles.shape[0] == tiles.shape[1] and widths[-1] < widths[0] and not tiles.all():
                assert tiles[-1, -1] and not tiles[-1, 0]
                seen += 1
    assert seen == 60
