"""Tests of lessons 08 and 08b: their formulas, statements and exercises."""

from itertools import product

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, exact, masks, run, schedules
from iocourse.course.challenges.rolling_rows import rolling_rows
from iocourse.course.checking import HeldWithRemark, failed_properties, judge, read_first
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson08 import PAIRS_DECIDE, UNASKED, bucket_pairs, words_in_order
from iocourse.data import real_head
from tests.mutation.references import build, exercise_source
from tools.build import latex

LESSON, SECOND = Lesson("08_sparse"), Lesson("08b_")
says = LESSON.says
N, D, B = 4096, 64, 64


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
@pytest.mark.parametrize("n", [17, 64])
def test_the_numbers_of_tiles_are_those_of_the_table(n):
    s, g, w, r = 5, 2, 3, 4
    made = {
        "causal": masks.causal(n * B, B),
        "sliding_window": masks.sliding_window(n * B, B, w),
        "strided": masks.strided(n * B, B, s),
        "bigbird": masks.bigbird(n * B, B, g, w, r),
    }
    shown = {name.strip("`").split("(")[0]: text for name, text in LESSON.table("8.2", 0, 2)[1:]}
    assert shown.keys() == {*made, "random"}
    sizes = {"nb": n, "nprime": n - g, "s": s, "g": g, "w": w, "r": r}
    for name, mask in made.items():
        assert latex.read(shown[name].split("$")[0]).value(sizes) == mask.tiles.sum(), name
    counts = [masks.random(n * B, B, 0.1, seed=seed).tiles.sum() for seed in range(400)]
    expected = latex.read(shown["random"].split("$")[0]).value({"nb": n, "p": 0.1})
    assert np.mean(counts) == pytest.approx(expected, rel=0.03)


def test_the_formulas_that_the_build_does_not_evaluate_are_the_ones_shown():
    """Their values are tested in tests/test_costs.py."""
    says("8.2", r"W = 2Nd + 2d \sum_{(i,j)\ \text{visible}} c_j")
    says("8.5", r"W = 2Nd + 2d \sum_I \bigl|\mathrm{cols}(I)\bigr|")
    SECOND.says("8.9", "5Nd + N + (4d+2)", r"8Nd + 2N + ", r"2d,c_j + (2d+2),r_i")


# ---------------------------------------------------------------------- 8.6
def test_random_pairs_share_less_than_three_percent():
    pairs = np.random.default_rng(8).random((N, N), dtype=np.float32) < 0.001
    single = masks.BlockMask(N, pairs, 1, allow_empty=True)
    assert 0.02 < 1 - blocked(single, 64).total / blocked(single, 1).total < 0.03


# ---------------------------------------------------------------------- 8.10, 8.11
@pytest.mark.parametrize("M", [4096, 16384, 65536])
def test_formula_8_7_follows_from_theorem_D(M):
    for mask in (masks.Causal(N), masks.Window(N, 1000), masks.random(N, B, 0.1)):
        shown = 4 * mask.nnz * D**2 / (M + D**2) - (M + D**2)
        assert bounds.theorem_D(mask.nnz, D, M) >= shown
    assert bounds.theorem_D.status == "proved here"


def test_window_and_scattered_mask_have_one_bound_and_other_words():
    n, M = 2**16, 2**16
    rng, anywhere = np.random.default_rng(8), np.zeros((n // B, n // B), dtype=bool)
    for row in anywhere:
        row[rng.choice(n // B, 33, replace=False)] = True
    both = masks.sliding_window(n, B, 16), masks.BlockMask(n, anywhere, B)
    window, scattered = (blocked(mask, 448) for mask in both)
    least = [bounds.lower_bound("forward", n, D, M, mask=mask) for mask in both]
    assert {which for _, which in least} == {"D"}
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


@pytest.mark.parametrize(
    ("exercise_id", "edit"),
    [
        ("7C", ("q *= d**-0.5", "q *= 1.0")),
        ("8C", ("q *= d**-0.5", "q *= 1.0")),
        ("15C", ("q *= d**-0.5", "q *= 1.0")),
        ("16D", ("T += w *", "T += 1.0 *")),
    ],
)
def test_values_that_are_wrong_in_every_ordinary_case_are_read_first(exercise_id, edit):
    """A single key, and a single tile in 16D, are correct in spite of the mistake."""
    exercise, source = find(exercise_id), exercise_source(exercise_id, solved=True)
    verdicts = judge(exercise, build(exercise_id, source.replace(*edit)), 0)
    assert read_first(exercise, failed_properties(verdicts)) == exercise.properties[0].name
