"""Tests of Features: polynomial features of a row that use no words, and the errors for bad operands."""

import numpy as np
import pytest

from iocourse.machine import Features, Machine, MachineError, ShapeMismatch, UntrackedArray, UseAfterFree

pytestmark = pytest.mark.quick

X = np.array([[2.0, 3.0, 5.0]])
V = np.array([[7.0, 11.0]])
FACTORS = [(), (0,), (2, 2), (0, 1, 2)]  # 1, x0, x2², x0 x1 x2
VALUES = np.array([1.0, 2.0, 25.0, 30.0])


def machine(dry=False):
    m = Machine(100, dry=dry)
    return m, m.slow("X", X), m.slow("V", V)


def value(m, tile):
    """Return the values of a tile: store it to slow memory and take them from there."""
    out = m.new("out", tile.shape)
    m.store(tile, out, None)
    return m.take(out)


def test_the_features_are_products_of_coordinates_and_take_no_room():
    m, A, B = machine()
    with m.load(A, 0) as x, m.load(B, 0) as v, m.zeros(4, 2) as state, m.full(1, 2, 1.0) as o:
        used = m.used
        Features(FACTORS).add_outer(state, x, v)
        assert (value(m, state) == VALUES[:, None] * V).all()
        Features(FACTORS, [1, 0.5, 2, 0]).add_matmul(o, x, state)
        wanted = 1 + np.array([1, 0.5, 2, 0]) * VALUES @ (VALUES[:, None] * V)
        assert value(m, o)[0] == pytest.approx(wanted, rel=1e-15)
        Features(FACTORS).add_outer(state[:, :1], x)
        assert (value(m, state)[:, 0] == 8 * VALUES).all() and m.used == used == m.ledger.peak
    assert len(Features(FACTORS)) == 4


def test_a_dry_run_moves_and_holds_as_much():
    m, A, B = machine(dry=True)
    with m.load(A, 0) as x, m.load(B, 0) as v, m.zeros(4, 2) as state:
        Features(FACTORS).add_outer(state, x, v)
        Features(FACTORS).add_matmul(v, x, state)
        assert m.used == 3 + 2 + 8 == m.ledger.peak


@pytest.mark.parametrize("dry", [False, True])
def test_shapes_that_do_not_match_are_named(dry):
    m, A, B = machine(dry)
    x, v, state = m.load(A, 0), m.load(B, 0), m.zeros(4, 2)
    features = Features(FACTORS)
    with pytest.raises(
        ShapeMismatch, match=r"X\[0:1\] has shape \(1, 3\); expected one row with at least 4 columns"
    ):
        Features([(3,)]).add_outer(m.zeros(1, 2), x, v)
    with pytest.raises(
        ShapeMismatch, match=r"zeros \(3, 2\) has shape \(3, 2\); expected 4 rows, one per feature"
    ):
        features.add_outer(m.zeros(3, 2), x, v)
    with pytest.raises(
        ShapeMismatch, match=r"has shape \(1, 3\); with zeros \(4, 2\) .* it must be \(1, 2\)"
    ):
        features.add_matmul(m.zeros(1, 3), x, state)
    with pytest.raises(ShapeMismatch, match="expected one row with at least 3 columns"):
        features.add_outer(state, m.zeros(2, 3), v)


def test_words_enter_as_tiles_only():
    m, A, B = machine()
    x, v, state = m.load(A, 0), m.load(B, 0), m.zeros(4, 2)
    features = Features(FACTORS)
    for arguments in ((state, X, v), (state, x, V), (np.zeros((4, 2)), x, v), (state, A, v)):
        with pytest.raises((UntrackedArray, TypeError)):
            features.add_outer(*arguments)
    with pytest.raises(UntrackedArray):
        features.add_matmul(np.zeros((1, 2)), x, state)
    with pytest.raises(MachineError, match="belongs to another machine"):
        features.add_outer(state, machine()[0].zeros(1, 3), v)
    v.free()
    with pytest.raises(UseAfterFree):
        features.add_outer(state, x, v)


def test_what_is_filled_is_not_read_for_another_feature():
    m, A, _ = machine()
    x, state = m.load(A, 0), m.zeros(1, 3)
    one = Features([(0,)])
    with pytest.raises(MachineError, match="cannot be updated in place with features times itself"):
        one.add_outer(state, x, state)
    with pytest.raises(MachineError, match="cannot be updated in place with features times itself"):
        one.add_matmul(x, x, state)
    with pytest.raises(MachineError, match="cannot be updated in place with features times itself"):
        one.add_matmul(state, x, state[:, :])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "got 0 features and 0 weights"),
        (([(0,)], [1.0, 2.0]), "expected .* one weight per feature, got 1 features and 2 weights"),
        (([(0,), (1, -1)],), "positions of at least 0, got a negative one"),
    ],
)
def test_features_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Features(*arguments)


def test_the_gradient_is_that_of_finite_differences_and_takes_no_room():
    m, A, B = machine()
    weights, S = np.array([1.0, 0.5, 2.0, 3.0]), np.random.default_rng(0).standard_normal((4, 2))
    state_in = m.slow("S", S)
    with m.load(A, 0) as x, m.load(B, 0) as v, m.load(state_in, (0, 4)) as state, m.full(1, 3, 1.0) as dx:
        used = m.used
        Features(FACTORS, weights).add_gradient(dx, x, state, v)
        found = value(m, dx)
        assert m.used == used == m.ledger.peak

    def form(x):
        return weights * np.array([1, x[0], x[2] ** 2, x[0] * x[1] * x[2]]) @ S @ V[0]

    steps = 1e-6 * np.eye(3)
    assert found[0] == pytest.approx([1 + (form(X[0] + h) - form(X[0] - h)) / 2e-6 for h in steps], rel=1e-8)


@pytest.mark.parametrize("dry", [False, True])
def test_a_gradient_needs_a_place_of_its_own_and_the_right_shapes(dry):
    m, A, B = machine(dry)
    x, v, state, dx = m.load(A, 0), m.load(B, 0), m.zeros(4, 2), m.zeros(1, 3)
    features = Features(FACTORS)
    features.add_gradient(dx, x, state, v)
    with pytest.raises(MachineError, match="its old words are still needed"):
        features.add_gradient(x, x, state, v)
    with pytest.raises(
        ShapeMismatch,
        match=r"zeros \(1, 2\) has shape \(1, 2\), but a gradient .* X\[0:1\] has shape \(1, 3\)",
    ):
        features.add_gradient(m.zeros(1, 2), x, state, v)
    with pytest.raises(ShapeMismatch, match=r"it must be \(1, 2\)"):
        features.add_gradient(dx, x, state, m.zeros(1, 3))
    constant = Features([()])
    constant.add_gradient(dx, x, m.zeros(1, 2), v)
    dx.free()
    with pytest.raises(UseAfterFree):
        features.add_gradient(dx, x, state, v)
