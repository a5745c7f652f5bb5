"""Lesson 08 says numbers and shows formulas: here they are computed again and looked up in its text."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from iocourse import bounds, costs, exact, masks, run, schedules
from iocourse.course.authoring.source import parse
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson08 import bucket_pairs, words_in_order
from iocourse.data import real_head

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "solutions" / "08_sparse.py"
CELLS = parse(SOURCE.read_text(encoding="utf-8"), SOURCE)
TEXT = "\n".join("\n".join(cell.lines) for cell in CELLS if cell.kind == "markdown")
N, D, B = 4096, 64, 64
NB = N // B


def section(number):
    """The text from one numbered heading to the next, thousands with plain commas."""
    return TEXT.split(f"## {number} ")[1].split("\n## ")[0].replace("{,}", ",").replace("\\,", ",")


def says(number, *figures):
    missing = [figure for figure in figures if figure not in section(number)]
    assert not missing, missing


def blocked(mask, Br=B, d=D):
    return costs.block_sparse(mask.N, d, mask=mask, Br=Br, Bc=1)


def tile_masks():
    return {
        "dense": masks.BlockMask(N, np.ones((NB, NB), dtype=bool), B),
        "causal": masks.causal(N, B),
        "window": masks.sliding_window(N, B, 1),
        "strided": masks.strided(N, B, 8),
        "bigbird": masks.bigbird(N, B, 1, 1, 2),
        "random": masks.random(N, B, 0.1),
    }


# ---------------------------------------------------------------------- 8.1
def tile_weights(head):
    Q, K = head.Q.astype(float), head.K.astype(float)
    P = np.zeros((480, 480))
    P[:471, :471] = exact.softmax(exact.scores(Q, K))
    return P.reshape(30, 16, 30, 16).sum(axis=(1, 3))


def tiles_for(weights, share):
    heaviest = np.sort(weights, axis=None)[::-1]
    return 1 + int(np.searchsorted(heaviest.cumsum(), share * weights.sum()))


def test_section_8_1():
    sharp, flat = tile_weights(real_head(0, 2)), tile_weights(real_head(0, 11))
    assert sharp.sum() == pytest.approx(471)
    says("8.1", f"{tiles_for(sharp, 0.99)} tiles for the sharp head, {tiles_for(flat, 0.99)} for the flat")
    near = masks.sliding_window(471, 16, 1)
    share = 100 * sharp[near.tiles].sum() / 471
    says("8.1", f"the {near.tiles.sum()} tiles near", f"holds {share:.0f} percent")
    top = sharp[:8].sum() - sharp[:8][near.tiles[:8]].sum()
    assert top > 0.7 * sharp[:8].sum()  # "in the first eight rows … far from the diagonal"
    head = real_head(0, 2)
    mask = masks.BlockMask(471, sharp >= np.sort(sharp, axis=None)[-89], 16)
    Q, K, V = (part.astype(float) for part in (head.Q, head.K, head.V))
    full, kept = exact.attention(Q, K, V), exact.attention(Q, K, V, mask=mask.additive())
    says("8.1", f"by {100 * np.linalg.norm(kept - full) / np.linalg.norm(full):.1f} percent")


# ---------------------------------------------------------------------- 8.2
@pytest.mark.parametrize("n", [3, 8, 64])
def test_the_numbers_of_tiles_are_those_of_the_table(n):
    side, w, s, g, r = n * B, min(2, n - 1), 3, 1, 1
    assert masks.causal(side, B).tiles.sum() == n * (n + 1) // 2
    assert masks.sliding_window(side, B, w).tiles.sum() == n * (2 * w + 1) - w * (w + 1)
    columns = -(-n // s)
    assert masks.strided(side, B, s).tiles.sum() == n * columns + n - columns
    rest, one = n - g, 1
    window = rest * (2 * one + 1) - one * (one + 1)
    if n > 3:
        assert masks.bigbird(side, B, g, one, r).tiles.sum() == g * (2 * n - g) + window + r * rest
    says("8.2", "n_b(n_b+1)/2", "n_b(2w+1) - w(w+1)", r"n_b\lceil n_b/s\rceil + n_b - \lceil n_b/s\rceil")
    says("8.2", "g(2n_b - g) + n'(2w+1) - w(w+1) + rn'", "n_b + p\\,n_b(n_b-1)".replace("\\,", ","))


def test_random_tiles_are_as_many_as_expected():
    counts = [masks.random(N, B, 0.1, seed=seed).tiles.sum() for seed in range(40)]
    expected = NB + 0.1 * NB * (NB - 1)
    assert np.mean(counts) == pytest.approx(expected, rel=0.02)
    says("8.2", f"drew {masks.random(N, B, 0.1).tiles.sum()} tiles where {expected:.0f} were")


def test_formula_8_1_is_the_closed_form():
    for mask in tile_masks().values():
        assert blocked(mask).total == 2 * N * D + 2 * D * B * mask.tiles.sum()
    ragged = masks.random(100, 8, 0.3)
    widths = np.minimum(8, 100 - 8 * np.arange(13))
    assert blocked(ragged, 8, 5).total == 2 * 100 * 5 + 2 * 5 * int((ragged.tiles @ widths).sum())
    says("8.2", r"W = 2Nd + 2d \sum_{(i,j)\ \text{seen}} c_j", r"W = 2Nd + 2dB \cdot")


def test_section_8_2():
    words = {name: blocked(mask).total for name, mask in tile_masks().items()}
    told = {"dense": 34.1, "causal": 17.6, "window": 2.08, "bigbird": 4.13, "strided": 5.18, "random": 4.49}
    for name, millions in told.items():
        assert words[name] / 1e6 == pytest.approx(millions, rel=2.5e-3)
    given = tile_masks()
    for name, digits in (("causal", 3), ("window", 3)):
        part = words[name] / words["dense"]
        says("8.2", f"{part:.4g} for {given[name].tiles.mean():.{digits}f}")
    assert 2 * N * D / words["window"] == pytest.approx(0.25, abs=0.003)  # "a quarter of everything"
    says("8.2", f"2Nd = {2 * N * D:,}", f"{blocked(given['dense']).peak:,} words")
    says("8.2", f"{words['causal']:,} and {words['bigbird']:,} words")


# ---------------------------------------------------------------------- 8.3, 8.4
def test_the_schedule_of_8_3_moves_what_is_counted():
    Q, K, V = np.random.default_rng(8).standard_normal((3, 256, 16))
    for mask in (masks.causal(256, 32), masks.bigbird(256, 32, 1, 1, 1)):
        ledger = run(schedules.block_sparse, M=4096, Q=Q, K=K, V=V, mask=mask, Br=32, Bc=8).ledger
        assert ledger.total == 2 * 256 * 16 + 2 * 16 * 32 * mask.tiles.sum()
    with pytest.raises(ValueError, match="leaves 4 queries without any key"):
        masks.BlockMask(16, np.diag([True, True, False, True]), 4)


@pytest.mark.parametrize(("Br", "w"), [(64, 63), (64, 15), (64, 64), (32, 7), (128, 1)])
def test_formula_8_2(Br, w):
    words = blocked(masks.Window(N, w), Br).total
    assert words == 4 * N * D + 4 * D * w * (N // Br - 1)
    assert words / (4 * N * D) == pytest.approx(1 + w * (N // Br - 1) / N)
    says("8.4", r"W = 4Nd + 4dw\,(T_r - 1)".replace("\\,", ","), "1 + w(T_r-1)/N")


@pytest.mark.parametrize(("n", "d", "w"), [(20, 3, 0), (20, 4, 3), (9, 5, 4), (7, 2, 30), (1, 1, 1)])
def test_formula_8_3(n, d, w):
    Q, K, V = np.random.default_rng(n).standard_normal((3, n, d))
    ledger = run(schedules.window, M=10**4, Q=Q, K=K, V=V, w=w).ledger
    assert ledger.total == 4 * n * d
    assert ledger.peak == 2 * d * min(2 * w + 1, n) + 2 * d + 3
    says("8.4", r"W = 4Nd , \qquad \text{footprint } 2d(2w+1) + 2d + 3")


def test_section_8_4():
    rings = {w: costs.window(N, D, w=w) for w in (63, 15)}
    ratios = [blocked(masks.Window(N, w)).total / ring.total for w, ring in rings.items()]
    says("8.4", "{:.3f} and {:.3f}: the factor".format(*ratios), f"ring moves {rings[63].total:,}")
    says("8.4", f"takes {rings[63].peak:,} words where the blocks take {blocked(masks.Window(N, 63)).peak:,}")
    says("8.4", f"it takes {rings[15].peak:,} and wins")
    assert rings[15].peak < blocked(masks.Window(N, 15)).peak
    says("8.4", f"{4 * 256 * 16:,} words for every width", f"take {costs.window(N, D, w=256).peak:,} words")
    Br = (16384 - D) // (2 * D + 3)
    assert blocked(masks.Window(N, 256), Br).total / (4 * N * D) == pytest.approx(1 + 256 / Br, rel=0.03)


# ---------------------------------------------------------------------- 8.5, 8.6
def three_masks():
    diagonal = np.eye(NB, dtype=bool)
    thrown, rng = diagonal.copy(), np.random.default_rng(8)
    thrown.flat[rng.choice(np.flatnonzero(~diagonal), 126, replace=False)] = True
    return {
        "window": masks.sliding_window(N, B, 1),
        "columns": masks.BlockMask(N, diagonal | (np.arange(NB) < 2), B),
        "scattered": masks.BlockMask(N, thrown, B),
    }


def test_section_8_5():
    found = three_masks()
    assert {int(mask.tiles.sum()) for mask in found.values()} == {190}
    start = {blocked(mask).total for mask in found.values()}
    assert start == {2080768}
    at_512 = {name: blocked(mask, 512).total for name, mask in found.items()}
    assert at_512["window"] == at_512["columns"]
    says("8.5", "same 2,080,768 words", f"{at_512['scattered']:,} words, against {at_512['window']:,}")
    dense = [costs.flash_optimal(N, D, Br=Br, Bc=1).total for Br in (64, 512)]
    says("8.5", f"{dense[0] / dense[1]:.1f} times fewer")
    distinct = (at_512["scattered"] - 2 * N * D) / (2 * D * B) / 8
    says("8.5", f"{190 / 8:.0f}, and these lie in {distinct:.0f} different")
    assert f"moved {at_512['window']:,} words, 190 scattered tiles {at_512['scattered']:,}" in TEXT
    says("8.5", r"W = 2Nd + 2d \sum_I \bigl|\mathrm{cols}(I)\bigr|")


def drawn(rho):
    return np.random.default_rng(8).random((N, N), dtype=np.float32) < rho


def test_section_8_6_tiles():
    for rho in (0.01, 0.001, 0.0001):
        hit = masks.covering(drawn(rho), B)
        assert hit.tiles.mean() == pytest.approx(1 - (1 - rho) ** (B * B), abs=0.01)
        if rho == 0.01:
            assert hit.tiles.all()
        if rho == 0.001:
            says("8.6", f"{100 * hit.tiles.mean():.0f} percent, and at one pair in a hundred every tile")
            says("8.6", f"less than {blocked(hit).total / 1e6:.1f} million")
    says("8.6", f"{blocked(tile_masks()['dense']).total:,} words, as without", f"1/B^2 = {1 / B**2:.5f}")
    says("8.6", r"1 - (1 - \rho)^{B^2}")


def test_section_8_6_single_pairs():
    pairs = drawn(0.001)
    single = masks.BlockMask(N, pairs, 1, allow_empty=True)
    alone, together = blocked(single, 1).total, blocked(single, 64).total
    assert alone == 2 * N * D + 2 * D * pairs.sum()
    assert 0.02 < 1 - together / alone < 0.03  # "less than three percent"
    tenth = blocked(masks.BlockMask(N, drawn(0.1), 1)).total
    says("8.6", f"{tenth / 1e6:.1f} million", f"moved {blocked(tile_masks()['random']).total:,} words")
    assert f"moved {tenth:,} words of {blocked(tile_masks()['dense']).total:,}" in TEXT


# ---------------------------------------------------------------------- 8.7, 8.8
def test_section_8_7():
    buckets = np.random.default_rng(8).permutation(np.repeat(np.arange(8), 32))
    pairs = buckets[:, None] == buckets[None, :]
    as_they_came, order = masks.covering(pairs, 32), np.argsort(buckets, kind="stable")
    in_order = masks.covering(pairs[np.ix_(order, order)], 32)
    before, after = (blocked(mask, 32, 16).total for mask in (as_they_came, in_order))
    says("8.7", f"{in_order.tiles.sum()} tiles instead of {as_they_came.tiles.sum()}")
    says("8.7", f"{after:,} words instead of {before:,}", f"${after:,} = 4Nd$")
    assert after == 4 * 256 * 16


@pytest.mark.parametrize("name", ["causal", "window", "strided", "bigbird", "random"])
def test_formula_8_6(name):
    mask = tile_masks()[name]
    met = B * int(mask.tiles.sum())
    fused = costs.fused_backward(N, D, Br=1, Bc=B, mask=mask).total
    split = costs.split_backward(N, D, Br1=B, Bc1=1, Br2=1, Bc2=B, mask=mask).total
    assert fused == 5 * N * D + N + (4 * D + 2) * met
    assert split == 8 * N * D + 2 * N + (2 * D + 2 * D + 2) * met
    says("8.8", "5Nd + N + (4d+2)", r"8Nd + 2N + ", r"2d,c_j + (2d+2),r_i")


def test_section_8_8():
    given = tile_masks()
    sizes = {"Br1": B, "Bc1": 1, "Br2": 1, "Bc2": B}
    window, dense = (costs.split_backward(N, D, **sizes, mask=given[k]).total for k in ("window", "dense"))
    says("8.8", f"{window / dense:.5f}: $s$", f"s = {given['window'].tiles.mean():.3f}")
    assert costs.fused_backward(N, D, Br=1, Bc=B, mask=given["window"]).total < window


# ---------------------------------------------------------------------- 8.9, 8.10
@pytest.mark.parametrize("M", [4096, 16384, 65536])
def test_formula_8_7_follows_from_theorem_D(M):
    for mask in (masks.Causal(N), masks.Window(N, 1000), tile_masks()["random"]):
        shown = 4 * mask.nnz * D**2 / (M + D**2) - (M + D**2)
        assert bounds.theorem_D(mask.nnz, D, M) >= shown
    assert bounds.theorem_D.status == "proved here"
    says("8.9", r"\frac{4\,\mathrm{nnz}\,d^2}{M + d^2} - (M + d^2)".replace("\\,", ","))


def test_section_8_9():
    n, M, Br = 2**16, 2**16, 448
    rng, anywhere = np.random.default_rng(8), np.zeros((n // B, n // B), dtype=bool)
    for row in anywhere:
        row[rng.choice(n // B, 33, replace=False)] = True
    long = masks.Causal(n), masks.sliding_window(n, B, 16), masks.BlockMask(n, anywhere, B)
    words = [blocked(mask, Br) for mask in long]
    least = [bounds.lower_bound("forward", n, D, M, mask=mask) for mask in long]
    assert {which for _, which in least} == {"D"} and max(ledger.peak for ledger in words) <= M
    ratios = [ledger.total / bound for ledger, (bound, _) in zip(words, least, strict=True)]
    says("8.9", "{:.3f} for the causal mask, {:.3f} for the window, {:.3f} for the".format(*ratios))
    assert 4 < words[2].total / words[1].total < 5 and least[2][0] == pytest.approx(least[1][0], rel=0.01)
    assert least[2][0] // 10**6 == 32


def test_a_wide_window_comes_near_theorem_D():
    M, n = 2**16, 2**19
    Br = (M - D) // (2 * D + 3)
    ratios = [
        blocked(mask, Br).total / bounds.lower_bound("forward", n, D, M, mask=mask)[0]
        for mask in (masks.Window(n, w) for w in (1024, 4096, 16384, 65536))
    ]
    limit = (1 + D**2 / M) * (1 + 3 / (2 * D))
    says("8.9", rf"(1 + d^2/M)(1 + 3/(2d)) = {limit:.2f}")
    assert all(one > other for one, other in pairwise(ratios)) and limit < ratios[-1] < limit + 0.02
    between = masks.Window(n, Br)
    least, _ = bounds.lower_bound("forward", n, D, M, mask=between)
    assert 1.7 < blocked(between, Br).total / least < 2.1  # "up to about two"


def test_section_8_10():
    bound = bounds.omega_sparse
    assert bound.status == "asymptotic only"
    M = costs.window(N, D, w=64).peak
    quotients = [
        bound.order(2 * n * D, masks.Window(n, 64).nnz, M) / costs.window(n, D, w=64).total
        for n in (2**12, 2**14, 2**16, 2**18, 2**20)
    ]
    assert all(1.99 < later / one < 2.01 for one, later in pairwise(quotients))
    says("8.10", "The quotient doubles each time", "*asymptotic only*")


@pytest.mark.parametrize("M", [2**4, 2**10, 2**16, 2**20])
def test_formula_8_9_the_sparse_form_is_the_dense_form_of_a_block(M):
    Z_in, Z_QK = 2**20, 2**24
    n, d = int(Z_QK**0.5), int(Z_in / Z_QK**0.5)
    dense = min((n * d) ** 2 / M, n * n * d / M**0.5)
    assert bounds.omega_sparse.order(Z_in, Z_QK, M) == pytest.approx(dense)
    assert (dense == pytest.approx((n * d) ** 2 / M)) == (d * d <= M)
    says("8.10", f"{n:,}$ tokens with {d} features")


# ---------------------------------------------------------------------- the exercises' own ground
def test_one_key_too_many_does_not_fit_in_some_case_of_8_3():
    for seed in range(20):
        cases = find("8.3").cases(np.random.default_rng(seed))
        assert any(case.budget.peak + 2 * case.inputs["Q"].shape[1] > case.M for case in cases)


def test_the_cases_of_8_2_hide_pairs_in_seen_tiles_and_have_gaps_and_empty_rows():
    for seed in range(20):
        found = find("8.2").cases(np.random.default_rng(seed))
        given = [case.inputs["mask"] for case in found]
        assert any(len(mask.columns(i, i + 1)) > 1 for mask in given for i in range(mask.N))
        assert any(mask.nonempty_rows < mask.N for mask in given)
        tiled = [mask for mask in given if isinstance(mask, masks.BlockMask)]
        whole = [masks.BlockMask(m.N, m.tiles, m.Br, m.Bc, allow_empty=True) for m in tiled]
        assert any(mask.nnz < seen.nnz for mask, seen in zip(tiled, whole, strict=True))


def test_no_order_of_buckets_beats_the_budget_of_8_4():
    rng = np.random.default_rng(8)
    for case in find("8.4").cases(np.random.default_rng(0)):
        pairs, (buckets, side) = case.inputs["pairs"], case.expected
        orders = [rng.permutation(len(pairs)) for _ in range(20)]
        orders += [np.lexsort((rng.random(len(pairs)), rng.permutation(99)[buckets])) for _ in range(20)]
        assert all(words_in_order(pairs, order, side).total >= case.budget.total for order in orders)


def test_buckets_as_pairs():
    buckets = np.array([0, 1, 0])
    assert bucket_pairs(buckets, causal=False).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert bucket_pairs(buckets, causal=True).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_the_painter_has_a_cell_of_its_own_in_the_students_notebook():
    notebook = json.loads((ROOT / "lessons" / "08_sparse.ipynb").read_text(encoding="utf-8"))
    assert ["explore.mask_painter()"] in [cell["source"] for cell in notebook["cells"]]
