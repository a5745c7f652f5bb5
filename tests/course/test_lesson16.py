"""Tests of lesson 16: its forms, formulas that the build does not compare, statements and exercises."""

import importlib.util
from itertools import pairwise
from math import factorial

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import exact, lowrank, run
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson16 import (
    LATER,
    NOW,
    causal_by_tiles,
    dense_gradients,
    machine_features,
    monomials_of,
    slopes,
    taylor,
    taylor_weights,
)
from iocourse.course.trials.operation_count import CountedArray, Tally
from iocourse.monomials import features, plan, rank_of

SOURCE = Lesson("16")
says = SOURCE.says

TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def lesson():
    return SOURCE.run()


@pytest.fixture
def tokens(lesson):
    return [lesson[name] for name in ("Q", "K", "V", "G")]


def relative(found, right):
    return np.linalg.norm(found - right) / np.linalg.norm(right)


def test_nothing_is_said_to_be_false(lesson):
    for number in ("16.1", "16.2", "16.3", "16.4", "16.5", "16.6"):
        assert "False" not in lesson["printed"][number] and "first" not in lesson["printed"][number]


# ---------------------------------------------------------------------- 16.1
def test_the_loss_of_16_1_changes_by_the_same_number_twice(lesson):
    told = next(line for line in lesson["printed"]["16.1"].splitlines() if "the loss changes by" in line)
    assert told.split("by ")[1].split(" ")[0] == told.rsplit(" ", 1)[1]


def test_formulas_16_2_and_16_3():
    rng = np.random.default_rng(0)
    X, (W, W_V) = rng.standard_normal((9, 3)), rng.standard_normal((2, 3, 3)) / 2
    f, h = exact.softmax(X @ W @ X.T), X @ W_V
    G = np.cos(f @ h)
    p1 = f * (G @ h.T)
    p2 = np.diag(p1 @ np.ones(9)) @ f
    p = p1 - p2
    dQ, dK, dV = exact.attention_backward(X @ W, X, h, G, scale=1.0)
    assert np.allclose(dQ, p @ X) and np.allclose(dK, p.T @ X @ W) and np.allclose(dV, f.T @ G)
    dX = p @ X @ W.T + p.T @ X @ W + f.T @ G @ W_V.T
    five = p1 @ X @ W.T - p2 @ X @ W.T + p1.T @ X @ W - p2.T @ X @ W + f.T @ G @ W_V.T
    assert np.allclose(dX, five) and np.allclose(dX, dQ @ W.T + dK + dV @ W_V.T)
    loss = lambda X: np.sin(exact.softmax(X @ W @ X.T) @ X @ W_V).sum()  # noqa: E731
    move = rng.standard_normal(X.shape)
    assert (loss(X + 1e-6 * move) - loss(X - 1e-6 * move)) / 2e-6 == pytest.approx((dX * move).sum())
    says("16.1", r"dX = dQ,W^\top + dK + dV,W_V^\top", r"dQ = pK$, $dK = p^\top Q$, $dV = f^\top G")
    # (16.2)
    delta = (G * (f @ h)).sum(axis=1)
    assert np.allclose(p1.sum(axis=1), delta)
    assert np.allclose(p, f * (np.column_stack([G, -delta]) @ np.column_stack([h, np.ones(9)]).T))
    says("16.1", r"f \circ \bigl([G, -\delta],[h, \mathbf 1]^\top\bigr)")


def test_the_factors_of_16_1_and_their_row_wise_kronecker_product(lesson, tokens):
    Q, K, V, G = tokens
    p = plan(8, 2)
    Phi, Psi, Ge, Ve = lesson["factors"](Q, K, V, G, p)
    weights = taylor(Q @ K.T, 2)
    assert np.allclose(Phi @ Psi.T, weights / weights.sum(axis=1, keepdims=True), atol=1e-15)  # (16.4)
    assert np.allclose(lesson["forward"](Q, K, V, p)[2], Psi.T @ Ve)  # T
    wide = lesson["row_wise_kronecker"](Phi, Ge)
    assert np.allclose(wide[7], np.kron(Phi[7], Ge[7])) and wide.shape[1] == 405
    assert (Q @ K.T).std() == pytest.approx(8**-0.5, abs=0.01)


def test_formula_16_6_and_the_words_that_are_held(lesson, tokens):
    K = tokens[1]
    Phi, Psi, Ge, Ve = (lesson[name] for name in ("Phi", "Psi", "Ge", "Ve"))
    p = (Phi @ Psi.T) * (Ge @ Ve.T)
    by_columns = sum(np.diag(Ge[:, c]) @ Phi @ (Psi.T @ np.diag(Ve[:, c]) @ K) for c in range(9))
    assert np.allclose(p @ K, by_columns, atol=1e-12)
    told = next(line for line in lesson["printed"]["16.1"].splitlines() if "words held" in line)
    held = [float(word.replace(",", "")) for word in told.split() if word[0].isdigit()]
    assert held == pytest.approx([1215, 59], rel=0.15)  # measured; includes Python's own objects


def matrix_work(function, *arrays):
    tally, given = Tally(), []
    for array in arrays:
        given.append(array.view(CountedArray))
        given[-1].tally = tally
    function(*given)
    return tally.count


def test_the_costs_of_the_table_in_16_2(lesson, tokens):
    Q, K, _, G = tokens
    N, d, r = 512, 8, 45
    Phi, Psi, Ge, Ve = (lesson[name] for name in ("Phi", "Psi", "Ge", "Ve"))
    wide = lesson["row_wise_kronecker"]

    def kronecker(Phi, Psi, Ge, Ve, Q, K, G):
        left, right = wide(Phi, Ge), wide(Psi, Ve)
        return left @ (right.T @ K), right @ (left.T @ Q), Psi @ (Phi.T @ G)

    def associative(Phi, Psi, Ge, Ve, Q, K, G):
        for g, v in zip(Ge.T[:, :, None], Ve.T[:, :, None], strict=True):
            g * (Phi @ (Psi.T @ (v * K)))
            v * (Psi @ (Phi.T @ (g * Q)))
        return Psi @ (Phi.T @ G)

    given = (Phi, Psi, Ge, Ve, Q, K, G)
    first, second = 2 * r * (d + 1) * (2 * d + 1) + 2 * r * d, 4 * r * d * (d + 1) + 2 * r * d
    assert matrix_work(kronecker, *given) == N * first
    scalings = 4 * d * (d + 1)  # for a token's rows of K, Q and the results
    assert matrix_work(associative, *given) == N * (second + scalings)
    third = 3 * r * (d + 1) + r * d + 4 * r
    products = 3 * r * (d + 1) + r * (d + 1)  # as in the lesson's code, dV with its last column
    steps = sum(step.last - step.first for step in plan(d, 2).steps)
    assert products - r + 2 * 2 * steps <= third <= products + 4 * r  # two multiplications per feature, twice
    says("16.2", "$2r(d+1)(2d + 1) + 2rd$", "$4rd(d+1) + 2rd$", "$3r(d+1) + rd + 4r$")
    assert 11.5 < 294840 / 25025 < 12  # "nearly twelve times"
    assert list(lesson["multiply_adds"](d, r).values()) == [first, second, third]
    assert list(lesson["multiply_adds"](12, 455).values()) == [306670, 294840, 25025]
    says("16.3", "55 \\cdot 1,820 = 100,100")


# ---------------------------------------------------------------------- 16.2, 16.3
def test_formulas_16_8_and_16_9():
    rng = np.random.default_rng(1)
    n, d = 7, 3
    Q, K = rng.standard_normal((2, n, d)) / 2
    V, G = rng.standard_normal((2, n, d))
    p = plan(d, 2)
    phi, psi = features(Q, p), taylor_weights(p)[:, None] * features(K, p)
    T = psi @ np.column_stack([V, np.ones(n)])
    both = phi.T @ T
    O, den = both[:, :-1] / both[:, -1:], both[:, -1]
    Ge = np.column_stack([G, -(G * O).sum(axis=1)]) / den[:, None]
    step = 1e-6 * rng.standard_normal(both.shape)
    value = lambda both: (G * both[:, :-1] / both[:, -1:]).sum()  # noqa: E731
    assert value(both + step) - value(both - step) == pytest.approx(2 * (Ge * step).sum(), rel=1e-6)
    U = phi @ Ge
    dQ, dK, dV = dense_gradients(Q, K, V, G, 2)
    assert np.allclose((psi.T @ U)[:, :-1], dV)
    assert np.allclose(slopes(Q, p, T @ Ge.T), dQ)
    weighted = taylor_weights(p)[:, None] * (U @ np.column_stack([V, np.ones(n)]).T)
    assert np.allclose(slopes(K, p, weighted), dK)
    says("16.2", r"d\phi_i = T,G_{e,i}, \qquad U = \sum_i \phi(q_i),G_{e,i}^\top")


def test_formula_16_10():
    x, y = 0.7, -1.3
    df = np.random.default_rng(2).standard_normal((6, 1))
    f = features(np.array([[x, y]]), plan(2, 2))
    assert f[:, 0].tolist() == pytest.approx([1, x, y, x * x, x * y, y * y])
    dx, dy = slopes(np.array([[x, y]]), plan(2, 2), df)[0]
    _, fx, fy, fxx, fxy, fyy = df[:, 0]
    assert dx == pytest.approx(fx + 2 * x * fxx + y * fxy)
    assert dy == pytest.approx(fy + x * fxy + 2 * y * fyy)
    says(
        "16.2", r"dx = d\phi_x + 2x,d\phi_{xx} + y,d\phi_{xy}", r"dy = d\phi_y + x,d\phi_{xy} + 2y,d\phi_{yy}"
    )


def test_the_jacobian_form_is_the_gradient_and_only_dV_is_that_of_the_paper(lesson, tokens):
    Q, K, V, G = tokens
    found = dense_gradients(Q, K, V, G, 2)
    mine = lesson["jacobian_form"](Q, K, V, G, plan(8, 2), lesson["forward"](Q, K, V, plan(8, 2)))
    assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(mine, found, strict=True))
    assert np.allclose(found[2], lesson["by_kronecker"][2])
    want = exact.attention_backward(Q, K, V, G, scale=1.0).dQ
    assert relative(found[0], want) > relative(lesson["by_kronecker"][0], want)


def test_the_table_of_16_3(lesson, tokens):
    Q, K, V, G = tokens
    want, O = exact.attention_backward(Q, K, V, G, scale=1.0), exact.attention(Q, K, V, scale=1.0)
    rows = lesson["table"]
    for g, (o, q, k, v, paper_q, paper_k) in rows.items():
        weights = taylor(Q @ K.T, g)
        total = weights.sum(axis=1, keepdims=True)
        dense = dense_gradients(Q, K, V, G, g)
        assert o == pytest.approx(relative(weights @ V / total, O))
        assert (q, k, v) == pytest.approx([relative(a, b) for a, b in zip(dense, want, strict=True)])
        p = weights / total * (G @ V.T - (G * (weights @ V / total)).sum(axis=1, keepdims=True))
        assert (paper_q, paper_k) == pytest.approx([relative(p @ K, want.dQ), relative(p.T @ Q, want.dK)])
    for column in range(4):
        ratios = [one[column] / other[column] for one, other in pairwise(rows.values())]
        assert all(2.3 < ratio < 4 for ratio in ratios)  # "by about three"
    assert all(2.3 < row[1] / row[0] < 3.7 for row in rows.values())  # "about three times that of O"
    assert all(0.4 < row[3] / row[0] < 1 for row in rows.values())  # "dV stays with O"


@pytest.mark.parametrize(("d", "g"), [(2, 1), (3, 2), (2, 4)])
def test_the_identity_of_16_3(d, g, lesson):
    """The paper's form at degree g is the Jacobian form at degree g + 1 with O and den of degree g."""
    rng = np.random.default_rng(g)
    Q, K = rng.standard_normal((2, 11, d)) / 3
    V, G = rng.standard_normal((2, 11, d))
    S = Q @ K.T
    weights = taylor(S, g)
    total = weights.sum(axis=1, keepdims=True)
    O = weights @ V / total
    p = weights / total * (G @ V.T - (G * O).sum(axis=1, keepdims=True))
    state = lesson["forward"](Q, K, V, plan(d, g + 1))[2]
    made = (O, total[:, 0], state)
    dQ, dK, _ = lesson["jacobian_form"](Q, K, V, G, plan(d, g + 1), made)
    assert np.allclose(dQ, p @ K, rtol=1e-13, atol=1e-14) and np.allclose(dK, p.T @ Q, rtol=1e-13, atol=1e-14)
    # (16.11): with one degree the slope is that of degree g - 1
    dS = taylor(S, g - 1) / total * (G @ V.T - (G * O).sum(axis=1, keepdims=True))
    assert np.allclose(dense_gradients(Q, K, V, G, g)[0], dS @ K)


def test_the_choice_of_degrees_in_16_3(lesson):
    lines = [line for line in lesson["printed"]["16.3"].splitlines() if line.startswith("O of degree 3")]
    three, four = (dict(part.split() for part in line.split(": ")[1].split(", ")) for line in lines)
    assert float(four["dQ"]) < float(four["O"]) == float(three["O"])


def test_with_the_same_degree_the_gradient_is_that_of_the_function_of_16_3(tokens):
    """Central differences of the library's own output, in the inputs of the lesson's cell."""
    says("16.3", "With the same degree in both passes the gradient is that of the function that is computed")
    Q, K, V, G = (np.array(X[:200]) for X in tokens)
    options = {"degree": 3, "scale": 1.0, "engine": "numpy"}
    found = lowrank.gradient(Q, K, V, G, **options)
    moves = np.random.default_rng(3).standard_normal((3, *Q.shape))
    h = 1e-4  # truncation is of the order h², rounding 1e-16 · |O| / h

    def loss(t):
        moved = (X + t * move for X, move in zip((Q, K, V), moves, strict=True))
        return (G * lowrank.attention(*moved, **options)).sum()

    slope = (loss(h) - loss(-h)) / (2 * h)
    assert sum((dX * move).sum() for dX, move in zip(found[1:], moves, strict=True)) == pytest.approx(
        slope, rel=1e-6
    )
    higher = lowrank.gradient(Q, K, V, G, gradient_degree=4, **options)
    assert sum((dX * m).sum() for dX, m in zip(higher[1:], moves, strict=True)) != pytest.approx(slope, 1e-4)


# ---------------------------------------------------------------------- 16.4
# ---------------------------------------------------------------------- 16.5, 16.6
def test_tiles_of_16_5_share_the_pairs_and_do_not_see_the_future(tokens):
    Q, K, V, _ = tokens
    want = exact.attention(Q, K, V, causal=True, scale=1.0)
    assert np.allclose(causal_by_tiles(Q, K, V, 2, 512), want, atol=1e-12)
    assert 8 * 64 * 65 // 2 + 64 * 64 * 28 == 512 * 513 // 2
    moved = K.copy()
    moved[-1] += 3.0
    assert (causal_by_tiles(Q, moved, V, 2, 64)[:-1] == causal_by_tiles(Q, K, V, 2, 64)[:-1]).all()
    was, now = (causal_by_tiles(Q, keys - keys.mean(axis=0), V, 2, 64)[:-1] for keys in (K, moved))
    assert abs(now - was).max() > 0


def test_the_causal_gradient_of_16_5(lesson):
    """The gradient equals finite differences of the causal weights, and the quoted errors are correct."""
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((2, 23, 2)) / 2
    V, G = rng.standard_normal((2, 23, 3))
    p, w = plan(2, 3), taylor_weights(plan(2, 3))[:, None]
    dQ, Ge = lesson["queries_in_order"](Q, K, V, G, p, w, 5)
    dK, dV = lesson["keys_from_the_end"](Q, K, V, Ge, p, w, 5)
    for given, found in ((Q, dQ), (K, dK), (V, dV)):
        move = 1e-6 * rng.standard_normal(given.shape)
        values = []
        for sign in (1, -1):
            arrays = [x + sign * move if x is given else x for x in (Q, K, V)]
            values.append((G * causal_by_tiles(*arrays, 3, 5)).sum())
        assert values[0] - values[1] == pytest.approx(2 * (found * move).sum(), rel=1e-6)


@pytest.mark.skipif(not TORCH, reason="needs torch")
def test_the_network_of_16_6_keeps_no_weights(lesson):
    least = 6 * (4 * 512 * 8 + 512 + rank_of(8, 3) * 9)  # two heads in three layers
    assert least <= lesson["words"] < 6 * 512**2 <= lesson["softmax_words"]


@pytest.mark.skipif(not TORCH, reason="needs torch")
def test_the_operation_of_16_6_has_the_gradient_of_its_values(lesson):
    import torch

    given = [torch.tensor(lesson[name][:24] * 0.5, requires_grad=True) for name in ("Q", "K", "V")]
    assert torch.autograd.gradcheck(lesson["LowRank"].apply, given)


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize("g", [1, 2, 3, 4])
def test_dense_gradients_are_those_of_finite_differences(g):
    rng = np.random.default_rng(g)
    Q, K = rng.standard_normal((2, 9, 2)) / 3
    V, G = rng.standard_normal((2, 9, 2))

    def value(Q, K, V):
        weights = taylor(Q @ K.T, g)
        return (G * (weights @ V / weights.sum(axis=1, keepdims=True))).sum()

    for at, found in enumerate(dense_gradients(Q, K, V, G, g)):
        move = [np.zeros_like(x) for x in (Q, K, V)]
        move[at] = 1e-6 * rng.standard_normal(found.shape)
        ahead = value(*(x + m for x, m in zip((Q, K, V), move, strict=True)))
        behind = value(*(x - m for x, m in zip((Q, K, V), move, strict=True)))
        assert ahead - behind == pytest.approx(2 * (found * move[at]).sum(), rel=1e-6)


@pytest.mark.parametrize(("d", "g"), [(1, 4), (3, 1), (3, 3)])
def test_slopes_are_those_of_finite_differences(d, g):
    rng, p = np.random.default_rng(d), plan(d, g)
    x, df = rng.standard_normal((4, d)), rng.standard_normal((p.rank, 4))
    move = 1e-6 * rng.standard_normal(x.shape)
    change = (df * (features(x + move, p) - features(x - move, p))).sum() / 2
    assert change == pytest.approx((slopes(x, p, df) * move).sum(), rel=1e-6)
    assert np.allclose(monomials_of(p)(x), features(x, p))
    weights = taylor_weights(p)[:, None]
    assert np.allclose(features(x, p).T @ (weights * features(x, p)), taylor(x @ x.T, g))
    assert weights[0] == 1 and weights[-1] == pytest.approx(1 / factorial(g))


def test_the_budget_of_16C_is_what_the_reference_moves(lesson):
    for case in find("16C").cases(np.random.default_rng(0)):
        done = run(lesson["my_two_sweeps"], M=case.M, **case.inputs)
        assert done.ledger.total == case.budget.total and done.ledger.peak == case.budget.peak
        N, d = case.inputs["Q"].shape
        assert N == 1 or 2 * N * d > case.M  # keys and values do not fit


def test_the_machines_features_are_the_plans():
    p = plan(3, 3)
    assert len(machine_features(p)) == p.rank == len(machine_features(p, taylor_weights(p)))


def test_the_cases_of_16D_hide_the_future_and_have_ragged_tiles():
    for seed in range(10):
        found = find("16D").cases(np.random.default_rng(seed))
        assert any(len(case.inputs["Q"]) % case.inputs["B"] for case in found)
        now, later = (next(case for case in found if case.tags == {name}) for name in (NOW, LATER))
        assert (now.expected[:17] == later.expected[:17]).all() and (
            now.expected[17:] != later.expected[17:]
        ).all()
