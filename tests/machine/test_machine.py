"""Tests of the two-level machine: counted and free operations, and the errors with their messages."""

import copy
import gc
import operator
import pickle

import numpy as np
import pytest

from iocourse import masks
from iocourse.course.guard import solutions_blocked
from iocourse.machine import (
    Block,
    FastMemoryFull,
    Machine,
    MachineError,
    MoveLimitExceeded,
    RowStats,
    ShapeMismatch,
    SlowArray,
    SlowMemoryArithmetic,
    Tile,
    TraceFull,
    UninitialisedRead,
    UntrackedArray,
    UseAfterFree,
    probabilities,
    run,
)

pytestmark = pytest.mark.quick
X = np.arange(24.0).reshape(6, 4) / 10  # distinct words


def machine(M=1000, *, dry=False, **options):
    """A machine with X in slow memory under the names A (matrix) and v (vector)."""
    m = Machine(M, dry=dry, **options)
    return m, m.slow("A", X), m.slow("v", X[:, 0].copy())


@pytest.fixture(params=[False, True], ids=["with values", "dry"])
def both(request):
    """A machine with values and a dry one; both must raise the same errors."""
    return machine(dry=request.param)


def value(tile):
    """Return the values of a tile: store it to slow memory and take them from there."""
    m = tile._machine
    rows, *cols = tile.shape or (1,)
    out = m.new("out", tile.shape or (1,))
    m.store(tile if tile.shape else tile[None], out, (0, rows), (0, cols[0]) if cols else None)
    return m.take(out).reshape(tile.shape)


# ---- moves -----------------------------------------------------------------------------------------------


def test_load_and_store_are_counted_per_array_and_phase():
    m, A, v = machine()
    B = m.new("B", (6, 4))
    with m.phase("copy"):
        for i in m.blocks(6, 4):
            with m.load(A, i) as tile:
                m.store(tile, B, i)
    m.load(v, slice(1, 4)).free()
    ledger = m.ledger
    assert (ledger.reads, ledger.writes, ledger.peak) == ({"A": 24, "v": 3}, {"B": 24}, 16)
    assert ledger.phases["copy"] == (24, 24)
    assert (m.take(B) == X).all()


@pytest.mark.parametrize(
    ("rows", "cols", "want"),
    [
        (2, None, X[2:3]),
        (slice(1, 3), slice(None, 2), X[1:3, :2]),
        ((1, 3), (2, 4), X[1:3, 2:4]),
        (Block(4, 6), Block(0, 1), X[4:6, :1]),
        (None, np.int64(3), X[:, 3:]),
    ],
)
def test_the_ways_to_name_rows_and_columns(rows, cols, want):
    m, A, _ = machine()
    tile = m.load(A, rows, cols)
    assert tile.shape == want.shape and (value(tile) == want).all()
    assert m.ledger.reads == {"A": want.size}


@pytest.mark.parametrize(
    ("rows", "cols", "error", "message"),
    [
        (6, None, IndexError, "rows of A must be a non-empty range within 0:6, got 6:7"),
        (-1, None, IndexError, "rows of A must be a non-empty range within 0:6, got -1:0"),
        (slice(2, 2), None, IndexError, "must be a non-empty range within 0:6, got 2:2"),
        (0, slice(3, 5), IndexError, "columns of A must be a non-empty range within 0:4, got 3:5"),
        (slice(0, 6, 2), None, TypeError, "rows of A must be a Block, a slice or"),
        (1.5, None, TypeError, "rows of A"),
        (slice(0, 2.5), None, TypeError, "rows of A"),
        ((0, 2, 4), None, TypeError, "rows of A"),
        (True, None, TypeError, "rows of A"),
        (0, "all", TypeError, "columns of A"),
    ],
)
def test_bad_rows_and_columns(both, rows, cols, error, message):
    m, A, _ = both
    with pytest.raises(error, match=message):
        m.load(A, rows, cols)
    with pytest.raises(error, match=message):
        m.store(m.zeros(1, 4), A, rows, cols)
    assert m.ledger.total == 0


def test_a_vector_has_no_columns(both):
    m, _, v = both
    with pytest.raises(IndexError, match="v has one axis"):
        m.load(v, 0, 1)


def test_load_into_frees_the_old_tile_first(both):
    m, A, _ = both
    m = Machine(8, dry=m.dry)
    A = m.slow("A", X)
    old = m.load(A, slice(0, 2))
    new = m.load(A, slice(2, 4), into=old)
    assert m.used == 8 and not old.alive and new.alive
    with pytest.raises(UseAfterFree):
        m.load(A, 0, into=old)
    with pytest.raises(TypeError, match="view"):
        m.load(A, 0, into=new.T)
    with pytest.raises(UntrackedArray):
        m.load(A, 0, into=np.zeros(3))
    with pytest.raises(MachineError, match="another machine"):
        m.load(A, 0, into=machine()[0].zeros(1))


def test_a_load_is_a_copy_and_a_store_too():
    m, A, _ = machine()
    tile = m.load(A, 0)
    tile *= 0
    assert (m.take(A) == X).all()
    B = m.new("B", (1, 4))
    m.store(tile, B, 0)
    tile += 1
    assert (m.take(B) == 0).all()


# ---- operations that use fast memory, and operations that do not -------------------------------------------

TEMPORARIES = {
    "s - m": (lambda s, c: s - c[:, None], 24),
    "np.exp(s)": (lambda s, c: np.exp(s), 24),
    "s.max(axis=1)": (lambda s, c: s.max(axis=1), 6),
    "s.sum()": (lambda s, c: s.sum(), 1),
    "np.sum(s, axis=0, keepdims)": (lambda s, c: np.sum(s, axis=0, keepdims=True), 4),
    "s.mean(axis=1)": (lambda s, c: s.mean(axis=1), 6),
    "np.maximum(s, 0.5)": (lambda s, c: np.maximum(s, 0.5), 24),
    "s @ s.T": (lambda s, c: s @ s.T, 36),
    "c @ s": (lambda s, c: c @ s, 4),
    "c @ c": (lambda s, c: c @ c, 1),
    "np.dot(s.T, c)": (lambda s, c: np.dot(s.T, c), 4),
    "np.where": (lambda s, c: np.where(s > 1, s, -np.inf), 24),
    "s > 1": (lambda s, c: s > 1, 24),
    "-s": (lambda s, c: -s, 24),
    "2 ** s": (lambda s, c: 2**s, 24),
    "1 / (1 + s)": (lambda s, c: 1 / (1 + s), 24),
    "np.float64(2) * s": (lambda s, c: np.float64(2) * s, 24),
    "s.copy()": (lambda s, c: s.copy(), 24),
    "np.add.reduce(s)": (lambda s, c: np.add.reduce(s), 4),
    "s[0] * s[1]": (lambda s, c: s[0] * s[1], 4),
}


@pytest.mark.parametrize(("expression", "words"), TEMPORARIES.values(), ids=list(TEMPORARIES))
def test_whatever_makes_an_array_takes_room_and_has_numpys_values(both, expression, words):
    m, A, v = both
    s, c = m.load(A, None), m.load(v, None)
    result = expression(s, c)
    want = np.asarray(expression(X, X[:, 0]))
    assert isinstance(result, Tile) and result.words == words and m.used == 30 + words
    assert result.shape == want.shape and result.dtype == want.dtype
    if not m.dry:
        assert value(result) == pytest.approx(want.astype(float))
    del result
    assert m.used == 30  # the last reference went


def in_place(s, c, o):
    """Every in-place update without a temporary, for tiles and arrays alike."""
    s += 1
    s -= c[:, None]
    s *= 0.5
    s /= 2
    np.exp(s, out=s)
    np.add.reduce(s, axis=1, out=c)
    np.maximum(s, 0.7, out=s)
    s[1] *= 3
    s[2:4, 1:] += s[0:2, 1:]
    s[:, 0] = c
    s[...] = s[::-1][::-1]
    o.T[...] = 2
    np.subtract(s, 1, out=o)
    c[0] = 4
    return s, c, o


def test_in_place_updates_and_views_are_free(both):
    m, A, v = both
    s, c, o = m.load(A, None), m.load(v, None), m.zeros(6, 4)
    used = m.used
    in_place(s, c, o)
    assert m.used == used == m.ledger.peak
    want = in_place(X.copy(), X[:, 0].copy(), np.zeros((6, 4)))
    if not m.dry:
        for tile, array in zip((s, c, o), want, strict=True):
            assert value(tile) == pytest.approx(array)


def test_views_cost_nothing_and_live_as_long_as_their_base(both):
    m, A, _ = both
    base = m.load(A, None)
    views = [
        base.T,
        base[1],
        base[:, 2],
        base[1:3, ::2],
        base[None],
        base[..., 0],
        base[0, 0],
        base.reshape(3, 8),
    ]
    shapes = [(4, 6), (4,), (6,), (2, 2), (1, 6, 4), (6,), (), (3, 8)]
    assert [view.shape for view in views] == shapes
    assert [view.shape for view in base.reshape((4, -1))] == [(6,)] * 4
    assert m.used == 24 and all(view.words == 0 for view in views)
    with pytest.raises(TypeError, match="view"):
        views[0].free()
    base.free()
    assert m.used == 0
    for view in views:
        assert not view.alive
        with pytest.raises(UseAfterFree, match="A"):
            view + 1


NEW_FROM_A_TRANSPOSE = {
    "ufunc": lambda t: np.exp(t),
    "copy": lambda t: t.copy(),
    "where": lambda t: np.where(t > 0, t, 1.0),
    "product": lambda t: t @ t.T,
    "sum": lambda t: t[None].sum(axis=0),
}


@pytest.mark.parametrize("make", NEW_FROM_A_TRANSPOSE.values(), ids=list(NEW_FROM_A_TRANSPOSE))
def test_reshape_is_a_view_of_whatever_was_made(make):
    m, A, _ = machine()
    result = make(m.load(A, None).T)
    result.reshape(-1)[...] = 7
    assert (value(result) == 7).all()


def test_a_view_keeps_its_base_in_fast_memory(both):
    m, A, _ = both
    row = m.load(A, None)[0]
    assert m.used == 24 and row.alive
    del row
    assert m.used == 0


def test_accumulating_product_takes_no_room(both):
    m, A, v = both
    a, c = m.load(A, None), m.load(v, None)
    o, r = m.full(6, 6, 1.0), m.zeros(4)
    used = m.used
    assert o.add_matmul(a, a.T) is o and r.add_matmul(c, a) is r
    assert m.used == used == m.ledger.peak
    if not m.dry:
        assert value(o) == pytest.approx(1 + X @ X.T)
        assert value(r) == pytest.approx(X[:, 0] @ X)
    with pytest.raises(ShapeMismatch, match=r"\(6, 6\)"):
        o.add_matmul(a.T, a)
    with pytest.raises(MachineError, match="product of itself"):
        o.add_matmul(o, o)
    with pytest.raises(TypeError, match="two tiles"):
        o.add_matmul(a, 2.0)


def test_row_statistics_in_one_pass_take_no_room():
    m, A, _ = machine()
    with m.row_stats(6) as stats, m.zeros(6, 2) as o:
        used = m.used
        assert used == 2 * 6 + 12
        for j in m.blocks(4, 3):
            with m.load(A, None, j) as s:
                width = j.size
                stats.update(s, o)
                assert m.used == used + 6 * width
        assert value(stats.m) == pytest.approx(X.max(axis=1))
        assert value(stats.l) == pytest.approx(np.exp(X - X.max(axis=1, keepdims=True)).sum(axis=1))
        assert value(stats.lse()) == pytest.approx(np.log(np.exp(X).sum(axis=1)))
    assert m.used == 0


def test_row_statistics_rescale_the_output():
    m, A, _ = machine()
    stats, o = m.row_stats(6), m.zeros(6, 4)
    for part in (slice(0, 2), slice(2, 4)):
        s = m.load(A, None, part)
        v = m.load(A, part)
        stats.update(s, o)
        o.add_matmul(s, v)
    stats.normalise(o)
    P = np.exp(X)
    assert value(o) == pytest.approx(P / P.sum(axis=1, keepdims=True) @ X[:4])
    stats.unnormalise(o)
    stats.normalise(o)
    assert value(o) == pytest.approx(P / P.sum(axis=1, keepdims=True) @ X[:4])


def test_rows_that_saw_no_score_become_zeros_not_nan():
    m, _, _ = machine()
    stats, o, s = m.row_stats(2), m.full(2, 3, 5.0), m.full(2, 4, -np.inf)
    stats.update(s, o)
    assert (value(s) == 0).all()
    stats.normalise(o)
    assert (value(o) == 0).all()
    assert (value(stats.lse()) == -np.inf).all()


def test_row_statistics_check_their_tiles(both):
    m, A, _ = both
    stats = m.row_stats(3)
    with pytest.raises(ShapeMismatch, match=r"A.* has shape \(6, 4\), but the row statistics have 3 rows"):
        stats.update(m.load(A, None))
    with pytest.raises(ShapeMismatch, match="3 rows"):
        stats.normalise(m.zeros(2, 4))
    with pytest.raises(ShapeMismatch, match="3 rows"):
        stats.update(m.zeros(3))
    with pytest.raises(ShapeMismatch, match="s and o must be different tiles"):
        stats.update(s := m.zeros(3, 3), s)
    with pytest.raises(UntrackedArray, match="ndarray"):
        stats.update(np.zeros((3, 2)))
    with pytest.raises(SlowMemoryArithmetic):
        stats.update(A)
    with pytest.raises(ShapeMismatch, match=r"m and l must both have shape \(rows,\)"):
        RowStats(m.zeros(3), m.zeros(2))
    with pytest.raises(UntrackedArray, match="m must be a tile"):
        RowStats(np.zeros(3), m.zeros(3))
    stats.free()
    with pytest.raises(UseAfterFree):
        stats.lse()


def test_single_words_are_tiles_like_any_other(both):
    m, A, _ = both
    total = m.load(A, None).sum()
    total += 1
    total *= total
    assert total.shape == () and total.T.shape == ()
    if not m.dry:
        assert value(total) == pytest.approx((X.sum() + 1) ** 2)
    with pytest.raises(TypeError, match="no length"):
        len(total)


# ---- a full memory ---------------------------------------------------------------------------------------


def test_an_overflow_names_what_is_resident_and_leaves_the_machine_usable(both):
    m, A, _ = both
    m = Machine(60, dry=m.dry)
    A = m.slow("A", X)
    q, o, stats = m.load(A, slice(0, 4)), m.zeros(4, 4), m.row_stats(4)
    with pytest.raises(FastMemoryFull) as caught:
        m.load(A, None)
    assert str(caught.value) == (
        "Out of fast memory: loading A[0:6] needs 24 words, but only 20 of M = 60 are free. In use: "
        "A[0:4] (16 words), zeros (4, 4) (16 words), row maximum m (4 words), row sum l (4 words). "
        "Use smaller tiles, or increase M by at least 4 words."
    )
    assert caught.value.short == 4
    assert m.used == 0 and m.resident == [] and m.free_words == 60
    assert not (q.alive or o.alive or stats.m.alive)
    assert m.load(A, None).alive and m.ledger.peak == 40


def test_an_overflow_by_temporaries_says_so(both):
    m, _, _ = both
    m = Machine(60, dry=m.dry)
    s, c = m.load(m.slow("A", X), None), m.load(m.slow("v", X[:, 0]), None)
    shifted = s - c[:, None]
    with pytest.raises(FastMemoryFull) as caught:
        np.exp(shifted)
    text = str(caught.value)
    assert '(temporary from "A[0:6] - v[0:6]") (24 words)' in text
    assert "np.exp needs 24 words, but only 6 of M = 60 are free" in text
    assert "Free the temporaries or update them in place" in text and "by at least 18 words" in text


def test_what_is_left_by_an_error_is_freed_when_the_run_ends():
    kept = []

    def careless(m, A):
        kept.extend([m, m.load(A, None)])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(careless, M=99, A=X)
    m, tile = kept
    assert m.used == 0 and not tile.alive and m.load(m.slow("B", X), None).alive


# ---- the classes of errors -------------------------------------------------------------------------------


def test_double_free_and_use_after_free(both):
    m, A, _ = both
    tile = m.load(A, 0)
    tile.free()
    with pytest.raises(UseAfterFree, match=r"A\[0:1\] was freed a second time"):
        tile.free()
    B = m.new("B", (1, 4))
    uses = (
        lambda: tile + 1,
        lambda: np.exp(tile),
        lambda: tile.sum(),
        lambda: tile.T,
        lambda: tile[0],
        lambda: tile @ tile.T,
        lambda: tile.reshape(4),
        lambda: tile.copy(),
        lambda: m.store(tile, B, 0),
        lambda: tile.__enter__(),
        lambda: np.where(tile, 1, 0),
        lambda: m.zeros(1, 1).add_matmul(tile, tile),
        lambda: m.zeros(1, 4).__setitem__(0, tile),
        lambda: tile.__setitem__(0, 1.0),
    )
    for use in uses:
        with pytest.raises(
            UseAfterFree, match=r"^Use after free: tile .* but it is no longer in fast memory"
        ):
            use()
    assert "freed" in repr(tile)
    with m.load(A, 0) as inside:
        inside.free()  # earlier than the block ends: allowed
    with pytest.raises(UseAfterFree):
        inside += 1


def test_storing_the_wrong_shape(both):
    m, A, _ = both
    B = m.new("B", (6, 4))
    with pytest.raises(ShapeMismatch, match=r"A\[0:2\] has shape \(2, 4\), but B\[0:3\] has shape \(3, 4\)"):
        m.store(m.load(A, slice(0, 2)), B, slice(0, 3))
    with pytest.raises(ShapeMismatch, match=r"B\[0:2, 0:1\]"):
        m.store(m.load(A, slice(0, 2)), B, slice(0, 2), 0)


def test_reading_what_was_never_written(both):
    m, _, _ = both
    B = m.new("B", (6, 4))
    with pytest.raises(UninitialisedRead, match=r"not every word of B\[0:6\] has been written"):
        m.load(B, None)
    m.store(m.zeros(2, 4), B, slice(0, 2))
    m.load(B, slice(0, 2))
    m.load(B, 1, 3)
    for rows in (slice(0, 3), slice(5, 6), None):
        with pytest.raises(UninitialisedRead, match=r"^Read of uninitialised memory: not every word of B"):
            m.load(B, rows)
    m.store(m.zeros(4, 3), B, slice(2, 6), slice(1, 4))
    m.load(B, slice(2, 6), slice(1, 4))
    with pytest.raises(UninitialisedRead, match=r"B\[2:6\]"):
        m.load(B, slice(2, 6))


def test_bare_arrays_stay_outside(both):
    m, A, _ = both
    tile = m.load(A, None)
    B = m.new("B", (6, 4))
    attempts = (
        lambda: tile + X,
        lambda: X + tile,
        lambda: X @ tile.T,
        lambda: tile @ X.T,
        lambda: tile - [1.0, 2.0, 3.0, 4.0],
        lambda: np.add(tile, 1, out=np.zeros((6, 4))),
        lambda: np.add(X, X, out=tile),
        lambda: tile.sum(axis=0).__iadd__(np.zeros(4)),
        lambda: np.add.reduce(tile, out=np.zeros(4)),
        lambda: tile.__setitem__(0, X[0]),
        lambda: np.where(tile > 0, X, 0),
        lambda: m.full(6, 4, X),
        lambda: m.store(X, B, None),
        lambda: np.multiply(tile, 1j),
    )
    for attempt in attempts:
        with pytest.raises(UntrackedArray, match=r"machine|tile"):
            attempt()


def test_a_tile_is_not_turned_into_a_bare_object(both):
    m, A, _ = both
    tile, word = m.load(A, None), m.load(A, 0, 0)
    attempts = (
        lambda: np.asarray(tile),
        lambda: np.array([tile, tile]),
        lambda: tile.tolist(),
        lambda: word.item(),
        lambda: float(word[0, 0]),
        lambda: int(word),
        lambda: bool(word > 0),
        lambda: [1, 2, 3][word],
        lambda: max(word, 0.0),
        lambda: 1.0 in tile,
        lambda: X.__setitem__(slice(0, 6), tile),
        lambda: copy.copy(tile),
        lambda: copy.deepcopy(tile),
        lambda: pickle.dumps(tile),
    )
    for attempt in attempts:
        with pytest.raises(UntrackedArray, match="converted to a Python or NumPy object"):
            attempt()
    with pytest.raises(TypeError, match=r"np\.linalg|np\.norm|not supported on tiles"):
        np.linalg.norm(tile)
    assert repr(tile) == "Tile(A[0:6], shape (6, 4))"


def test_indexing_that_would_copy_is_refused(both):
    m, A, _ = both
    tile = m.load(A, None)
    for index in ([0, 1], np.array([0, 1]), tile > 0, True, (0, [1])):
        with pytest.raises(TypeError, match=r"integers, slices, None or \.\.\., which return a view"):
            tile[index]
    with pytest.raises(IndexError):
        tile[6]
    with pytest.raises(ValueError, match="without a copy"):
        tile.T.reshape(24)
    with pytest.raises(ValueError, match="without a copy"):
        tile[:, :2].reshape(12)
    with pytest.raises(ValueError, match="reshape"):
        tile.reshape(5, 5)


def test_what_numpy_refuses_is_refused_on_both_machines(both):
    m, A, v = both
    s, c = m.load(A, None), m.load(v, None)
    with pytest.raises(ShapeMismatch, match=r"np\.subtract: shapes \(6, 4\) and \(6,\) cannot be broadcast"):
        s - c
    with pytest.raises(ShapeMismatch, match=r"\(6, 4\) and \(6, 4\) do not match"):
        s @ s
    with pytest.raises(ShapeMismatch, match="assignment"):
        s[0:2] = s[2:5]
    with pytest.raises(ShapeMismatch, match="does not fit"):
        np.add(s, 1, out=c[:1])
    with pytest.raises(ShapeMismatch, match="does not fit"):
        np.add.reduce(s, axis=1, out=s[0])
    with pytest.raises(ValueError, match="axis 2"):
        s.sum(axis=2)
    with pytest.raises(TypeError):
        (s > 0) - (s > 1)  # NumPy does not subtract Booleans
    with pytest.raises(TypeError):
        np.add(s > 0, 0.5, out=s > 1)
    with pytest.raises(TypeError, match="not supported on tiles"):
        np.add.accumulate(s)
    with pytest.raises(TypeError, match="not supported on tiles"):
        np.divmod(s, 2)
    with pytest.raises(TypeError, match="accepts only axis and keepdims"):
        np.add.reduce(s, initial=3.0)
    with pytest.raises(TypeError, match="two tiles"):
        s @ 3.0
    with pytest.raises(TypeError, match="add_matmul"):
        np.matmul(s, s.T, out=s)
    with pytest.raises(MachineError, match="another machine"):
        s + machine(dry=m.dry)[0].zeros(6, 4)
    assert m.used == 30


# ---- slow memory is out of reach ---------------------------------------------------------------------------


def test_slow_arrays_show_name_shape_and_dtype_and_nothing_else():
    _, A, _ = machine()
    public = {name for name in dir(A) if not name.startswith("_")}
    assert public == {"name", "shape", "dtype"}
    assert (A.name, A.shape, A.dtype, repr(A)) == (
        "A",
        (6, 4),
        np.float64,
        "SlowArray(A, shape (6, 4), float64)",
    )
    for name in public:
        with pytest.raises(AttributeError):
            setattr(A, name, None)
    assert not hasattr(A, "T") and not hasattr(A, "_repr_html_") and not hasattr(A, "data")
    assert str(X[1, 1]) not in str(pickle.dumps(A)) and copy.deepcopy(A).shape == (6, 4)


SLOW_ARITHMETIC = {
    "A + 1": lambda A: A + 1,
    "1 - A": lambda A: 1 - A,
    "A @ X.T": lambda A: A @ X.T,
    "X.T @ A": lambda A: X.T @ A,
    "X * A": lambda A: X * A,
    "A += 1": lambda A: operator.iadd(A, 1),
    "A // 2": lambda A: A // 2,
    "2 ** A": lambda A: 2**A,
    "-A": lambda A: -A,
    "+A": lambda A: +A,
    "A < 1": lambda A: A < 1,
    "A[0]": lambda A: A[0],
    "A[0] = 1": lambda A: A.__setitem__(0, 1),
    "A.T": lambda A: A.T,
    "A.sum()": lambda A: A.sum(),
    "A.copy()": lambda A: A.copy(),
    "A.data": lambda A: A.data,
    "np.exp(A)": lambda A: np.exp(A),
    "np.sum(A)": lambda A: np.sum(A),
    "np.asarray(A)": lambda A: np.asarray(A),
    "np.array([A])": lambda A: np.array([A]),
    "list(A)": lambda A: list(A),
    "len(A)": lambda A: len(A),
    "float(A)": lambda A: float(A),
    "bool(A)": lambda A: bool(A),
    "1.0 in A": lambda A: 1.0 in A,
    "range(A)": lambda A: range(A),
    "max(A)": lambda A: max(A),
    "abs(A)": lambda A: abs(A),
}


@pytest.mark.parametrize("use", SLOW_ARITHMETIC.values(), ids=list(SLOW_ARITHMETIC))
def test_arithmetic_on_slow_arrays_says_to_load_first(both, use):
    m, A, _ = both
    with pytest.raises(SlowMemoryArithmetic, match=r"Load a block first: tile = machine\.load\(A, rows\)"):
        use(A)
    assert m.ledger.total == 0


def test_slow_arrays_do_not_mix_with_tiles(both):
    m, A, _ = both
    tile = m.load(A, None)
    for use in (lambda: tile + A, lambda: A @ tile, lambda: np.add(tile, 1, out=A), lambda: tile @ A):
        with pytest.raises((SlowMemoryArithmetic, UntrackedArray)):
            use()


def test_slow_arrays_belong_to_one_machine():
    m, A, _ = machine()
    other = machine()[0]
    for use in (lambda: other.load(A, 0), lambda: other.take(A), lambda: m.load(SlowArray("A", (6, 4)), 0)):
        with pytest.raises(MachineError, match="A belongs to another machine"):
            use()
    with pytest.raises(TypeError, match="expected an array in slow memory, got ndarray"):
        m.load(X, 0)


def nested_run(m, A):
    with m.running():
        pass
    m.take(A)


CHEATS = {
    "take": lambda m, A: m.take(A),
    "slow": lambda m, A: m.slow("B", X),
    "nested run": nested_run,
    "raise M": lambda m, A: setattr(m, "M", 10**9),
    "clear the counts": lambda m, A: setattr(m, "ledger", None),
    "pretend to be empty": lambda m, A: setattr(m, "used", 0),
    "become dry": lambda m, A: setattr(m, "dry", True),
    "stop the trace": lambda m, A: setattr(m, "trace", False),
    "unroll": lambda m, A: setattr(m, "unroll", True),
    "another load": lambda m, A: setattr(m, "load", lambda *a: None),
    "delete M": lambda m, A: delattr(m, "M"),
    "copy the machine": lambda m, A: copy.copy(m),
    "deepcopy the machine": lambda m, A: copy.deepcopy(m),
    "pickle the machine": lambda m, A: pickle.dumps(m),
    "a tile by hand": lambda m, A: Tile(m, "free room", (99, 99), np.zeros((99, 99))),
    "a tile of the same class": lambda m, A: type(m.zeros(1))(m, "x", (9,), np.zeros(9)),
    "a shrunken tile": lambda m, A: setattr(m.zeros(2), "shape", (0,)),
    "a tile with a note": lambda m, A: setattr(m.zeros(2), "stash", X),
    "fill with an array": lambda m, A: m.full(1, 4, X[0]),
    "read a float": lambda m, A: float(m.load(A, 0, 0)),
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=list(CHEATS))
def test_no_public_attribute_gives_words_or_room_uncounted(cheat):
    def empty_afterwards(m, A):
        try:
            cheat(m, A)
        finally:
            reads = m.ledger.reads.get("A", 0)
            m.empty()
            assert reads <= 4

    error = None

    def schedule(m, A):
        nonlocal error
        try:
            empty_afterwards(m, A)
        except AssertionError:
            raise
        except Exception as caught:
            error = caught
        assert m.M == 6 and not m.dry and m.trace
        with pytest.raises(FastMemoryFull):
            m.zeros(7)
        O = m.new("O", (6, 4))
        for i in m.blocks(6, 1):
            with m.load(A, i) as tile:
                m.store(tile, O, i)
        return O

    done = run(schedule, M=6, A=X)
    assert isinstance(error, (MachineError, AttributeError, TypeError)), error
    assert 24 <= done.ledger.reads["A"] <= 28 and done.ledger.peak <= 6


def test_changing_what_a_machine_shows_changes_nothing():
    def schedule(m, A):
        O = m.new("O", (1, 4))
        with m.load(A, 0) as tile:
            m.store(tile, O, 0)
        shown = m.ledger
        for part in (shown.reads, shown.writes, shown.moves, shown.sizes, shown.phases, m.resident):
            part.clear()
        shown.peak = 0
        return O

    ledger = run(schedule, M=6, A=X).ledger
    assert (ledger.reads, ledger.writes, ledger.peak) == ({"A": 4}, {"O": 4}, 4)
    assert len(ledger.moves) == 3 and ledger.sizes == {"A": 24, "O": 4}


def test_hoarded_tiles_do_not_outlive_their_room():
    m, A, _ = machine(M=24)
    kept = [m.load(A, i) for i in range(6)]
    assert m.used == 24
    views = [tile[0] for tile in kept]
    m.empty()
    gc.collect()
    for tile in kept + views:
        with pytest.raises(UseAfterFree):
            tile + 1


def test_public_names_of_a_machine_are_known():
    """Before a public attribute is added here, check that it reveals no uncounted words."""
    m, _, _ = machine()
    assert {name for name in dir(m) if not name.startswith("_")} == {
        *("M", "dry", "unroll", "trace", "max_moves", "ledger", "used", "free_words", "resident"),
        *("slow", "new", "take", "load", "store", "zeros", "full", "row_stats", "empty", "blocks"),
        *("hide", "show"),  # show prints nothing while a check runs
        *("phase", "running"),
    }


# ---- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("M", "error"), [(0, ValueError), (-5, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_bad_M(M, error):
    with pytest.raises(error, match=r"^M must be"):
        Machine(M)


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            np.arange(6).reshape(2, 3),
            TypeError,
            r"Q must have a .* dtype, got int64.*Q\.astype\(np\.float64\)",
        ),
        (np.array([[1.0, np.nan]]), ValueError, "Q holds 1 NaN or infinite"),
        (np.array([[-np.inf, 1.0]]), ValueError, "Q holds 1 NaN or infinite"),
        (np.zeros((0, 4)), ValueError, r"every axis of Q \(shape \(0, 4\)\) must be at least 1, got 0"),
        (
            np.zeros((2, 3, 4)),
            ValueError,
            r"Q must be a vector \(N,\) or a matrix \(N, d\), got shape \(2, 3, 4\)",
        ),
        ([[1.0], [1.0, 2.0]], ValueError, "Q is not an array"),
        (3.0, ValueError, r"Q must be a vector .* got shape \(\)"),
    ],
)
def test_bad_inputs_are_named_on_both_machines(dry, values, error, message):
    with pytest.raises(error, match=message):
        Machine(99, dry=dry).slow("Q", values)


def test_bad_shapes(both):
    m, _, _ = both
    for shape in ((0, 3), (3, -1), (2, 3, 4), (), 5, (2.0, 3)):
        with pytest.raises((ValueError, TypeError), match="B"):
            m.new("B", shape)
    for size in (0, -1, 1.5, True, "3"):
        with pytest.raises((ValueError, TypeError), match=r"^rows must be"):
            m.zeros(size)
        with pytest.raises((ValueError, TypeError), match=r"^cols must be"):
            m.zeros(1, size)
        with pytest.raises((ValueError, TypeError), match=r"^rows must be"):
            m.row_stats(size)
        with pytest.raises((ValueError, TypeError), match=r"^n must be"):
            m.blocks(size, 1)
        with pytest.raises((ValueError, TypeError), match=r"^b must be"):
            m.blocks(5, size)


def test_a_shape_will_do_on_a_dry_machine_only():
    assert Machine(9, dry=True).slow("Q", (5, 2)).shape == (5, 2)
    with pytest.raises(TypeError, match=r"Q must be an array, got the shape \(5, 2\); only a dry machine"):
        run(lambda m, Q: Q, M=9, Q=(5, 2))


def test_what_a_schedule_must_return():
    with pytest.raises(TypeError, match="returned NoneType; it must return the slow array"):
        run(lambda m, A: None, M=9, A=X)
    with pytest.raises(
        TypeError, match="returned a tuple of SlowArray, ndarray; it must return the slow array"
    ):
        run(lambda m, A: (A, X), M=9, A=X)
    assert (run(lambda m, A: A, M=9, A=X).O == X).all()
    assert [o.shape for o in run(lambda m, A, v: (A, v), M=9, A=X, v=X[0]).outputs] == [(6, 4), (4,)]
    assert run(lambda m, A: A, M=9, A=[[1.0, 2.0]]).O.shape == (1, 2)


@pytest.mark.parametrize("dry", [False, True])
def test_an_output_with_holes_is_refused(dry):
    def forgets_the_last_block(m, A):
        O = m.new("O", A.shape)
        for i in m.blocks(6, 1):
            if not i.last:
                with m.load(A, i) as tile:
                    m.store(tile, O, i)
        return O

    with pytest.raises(UninitialisedRead, match="O"):
        run(forgets_the_last_block, M=99, A=X, dry=dry)


# ---- the dry machine ---------------------------------------------------------------------------------------


def test_a_dry_machine_has_no_values():
    m, A, _ = machine(dry=True)
    with pytest.raises(MachineError, match="no values"):
        m.take(A)
    with pytest.raises(MachineError, match="no values"):
        _ = run(lambda m, A: A, M=9, dry=True, A=(3, 3)).O


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("b", range(1, 15))
def test_blocks_cover_the_range_and_representatives_stand_for_them(n, b):
    every = list(Machine(9).blocks(n, b))
    assert [row for block in every for row in range(block.start, block.stop)] == list(range(n))
    assert [block.first for block in every] == [True] + [False] * (len(every) - 1)
    assert [block.last for block in every] == [False] * (len(every) - 1) + [True]
    assert every == list(Machine(9, dry=True, unroll=True).blocks(n, b))
    few = list(Machine(9, dry=True).blocks(n, b))
    assert len(few) == min(3, len(every))
    assert sum(block.times for block in few) == len(every)
    assert sum(block.times * block.size for block in few) == n
    assert (few[0], few[-1]) == (every[0], every[-1])


def test_counting_dry_does_not_get_slower_with_N():
    calls = []

    def schedule(m, A):
        O = m.new("O", A.shape)
        for i in m.blocks(A.shape[0], 3):
            calls.append(i)
            with m.load(A, i) as tile:
                m.store(tile, O, i)
        return O

    ledger = run(schedule, M=99, dry=True, A=(10**9, 5)).ledger
    assert len(calls) == 3 and ledger.reads == {"A": 5 * 10**9} and ledger.peak == 15


def test_a_dry_machine_knows_what_a_whole_loop_has_written():
    def schedule(m, A, *, skip):
        B, O = m.new("B", A.shape), m.new("O", A.shape)
        for i in m.blocks(30, 4):
            with m.load(A, i) as tile:
                if not skip(i):
                    m.store(tile, B, i)
        for i in m.blocks(30, 7):
            with m.load(B, i) as tile:
                m.store(tile, O, i)
        return O

    cases = {
        "done": lambda i: False,
        "no first block": lambda i: i.first,
        "no last block": lambda i: i.last,
        "nothing between": lambda i: not (i.first or i.last),
    }
    for name, skip in cases.items():
        for options in ({}, {"dry": True}, {"dry": True, "unroll": True}):
            given = {"M": 99, "A": np.ones((30, 2)), "skip": skip, **options}
            if name == "done":
                run(schedule, **given)
            else:
                with pytest.raises(UninitialisedRead, match="B"):
                    run(schedule, **given)


def test_ranges_worked_out_by_hand_are_not_refused_dry():
    """A dry run must not raise an error where a real run does not."""

    def shifted(m, A):
        O = m.new("O", A.shape)
        for i in m.blocks(30, 4):
            for j in m.blocks(2, 1):
                with m.load(A, slice(i.start, i.stop), (j.start, j.stop)) as tile:
                    m.store(tile, O, (30 - i.stop, 30 - i.start), j)
        return O

    def by_range(m, A):
        O = m.new("O", A.shape)
        for i in range(0, 30, 4):
            with m.load(A, slice(i, min(30, i + 4))) as tile:
                m.store(tile, O, slice(i, min(30, i + 4)))
        return O

    for schedule in (shifted, by_range):
        real = run(schedule, M=99, A=np.ones((30, 2)))
        assert run(schedule, M=99, A=(30, 2), dry=True).ledger == real.ledger


def test_dry_blocks_used_outside_their_loop_are_refused():
    m, A, _ = machine(dry=True)
    for i in list(m.blocks(6, 1)):
        if i.times > 1:
            with pytest.raises(MachineError, match="valid only inside its own loop"):
                m.load(A, i)
    with pytest.raises(MachineError, match="must be nested, not interleaved"):
        for _i, _j in zip(m.blocks(6, 2), m.blocks(6, 2), strict=True):
            pass
    with m.load(A, 0):
        assert m.ledger.reads == {"A": 4}


def test_leaving_a_loop_early_does_not_spoil_the_count():
    m, A, _ = machine(dry=True)
    for i in m.blocks(6, 1):
        if not i.first:
            break
    with pytest.raises(KeyError):
        for i in m.blocks(6, 1):
            if i.times > 1:
                raise KeyError
    m.load(A, 0).free()
    assert m.ledger.reads == {"A": 4}


# ---- the trace ---------------------------------------------------------------------------------------------


def test_a_trace_may_be_cut_short_and_the_machine_survives():
    m, A, _ = machine(max_moves=3)
    with pytest.raises(TraceFull), m.running():
        for i in m.blocks(6, 1):
            with m.load(A, i):
                pass
    assert len(m.ledger.moves) == 3 and m.used == 0


@pytest.mark.parametrize(
    ("options", "moves"),
    [({}, 2), ({"trace": False}, 0), ({"dry": True}, 0), ({"dry": True, "unroll": True}, 2)],
)
def test_who_keeps_a_trace(options, moves):
    m, A, _ = machine(**options)
    m.load(A, 0).free()
    assert len(m.ledger.moves) == moves


def test_freeing_is_no_reason_to_cut_a_trace_short():
    m, A, _ = machine(max_moves=1)
    m.load(A, 0).free()
    assert m.used == 0 and len(m.ledger.moves) == 1


def test_a_trace_that_nobody_asked_for_is_dropped_when_it_is_long(monkeypatch):
    monkeypatch.setattr("iocourse.machine.machine.TRACE_KEPT", 4)
    kept = {}
    for trace in (None, True):
        m, A, _ = machine(trace=trace)
        for i in m.blocks(6, 1):
            m.load(A, i).free()
        kept[trace] = len(m.ledger.moves)
        assert m.ledger.reads == {"A": 24}
    assert kept == {None: 0, True: 12}


# ---- a loop that never ends --------------------------------------------------------------------------------


def goes_on_for_ever(m, A):
    while True:
        m.load(A, 0).free()


def copies(m, A):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], 1):
        with m.load(A, i) as a:
            m.store(a, Y, i)
    return Y


def test_a_runaway_schedule_is_stopped_and_told_how_to_go_on():
    said = (
        r"^the schedule needs more than 12 loads and stores\. .*"
        r"run\(\.\.\., max_moves=120\), or max_moves=None"
    )
    for dry in (False, True):
        with pytest.raises(MoveLimitExceeded, match=said):
            run(goes_on_for_ever, M=4, A=X, max_moves=12, dry=dry)
    assert run(copies, M=4, A=X, max_moves=12).ledger.total == 48
    assert run(copies, M=4, A=X, max_moves=None).ledger.total == 48
    with pytest.raises(MoveLimitExceeded):
        run(copies, M=4, A=X, max_moves=11)
    with pytest.raises(ValueError, match=r"^max_moves must be at least 1"):
        run(copies, M=4, A=X, max_moves=0)


def test_the_limit_ends_with_the_run_and_what_is_placed_before_does_not_count():
    m, A, _ = machine()
    with pytest.raises(MoveLimitExceeded), m.running(2):
        goes_on_for_ever(m, A)
    for _ in range(4):
        m.load(A, 0).free()
    assert m.ledger.reads == {"A": 24}


# ---- a look at a tile ------------------------------------------------------------------------------------


def test_show_prints_and_neither_counts_nor_keeps(capsys):
    m, A, v = machine(M=8)
    with m.load(A, (0, 2)) as a:
        before = (m.used, m.ledger)
        assert m.show(a) is None and m.show(a[1]) is None
        assert (m.used, m.ledger) == before
    assert capsys.readouterr().out == (
        "A[0:2] (2, 4):\n[[0.  0.1 0.2 0.3]\n [0.4 0.5 0.6 0.7]]\nA[0:2] (4,): [0.4 0.5 0.6 0.7]\n"
    )
    with m.row_stats(1) as stats:
        m.show(stats)
    with m.load(v, (0, 3)) as short:
        short /= 0.3
        m.show(short)
    assert capsys.readouterr().out.splitlines() == [
        "row maximum m (1,): [-inf]",
        "row sum l (1,): [0.]",
        "v[0:3] (3,): [0.     1.3333 2.6667]",
    ]


def test_show_leaves_out_the_middle_of_a_large_tile(capsys):
    m = Machine(10_000)
    m.show(m.zeros(100, 100))
    assert "..." in (said := capsys.readouterr().out) and len(said) < 400


def test_show_has_shapes_on_a_dry_machine_and_refuses_what_is_no_tile(both, capsys):
    m, A, v = both
    tile = m.load(A, 0)
    tile.free()
    with pytest.raises(SlowMemoryArithmetic, match=r"^A is in slow memory.* Load a block first"):
        m.show(A)
    with pytest.raises(UseAfterFree):
        m.show(tile)
    with pytest.raises(UntrackedArray, match=r"^Expected a tile, got ndarray"):
        m.show(X)
    assert capsys.readouterr().out == ""
    m.show(m.load(v, 0))
    assert capsys.readouterr().out == f"v[0:1] (1,): {'no values on a dry machine' if m.dry else '[0.]'}\n"


def test_show_tells_nothing_while_a_check_runs(capsys):
    m, A, _ = machine()
    seen = []
    with (
        m.load(A, 0) as a,
        solutions_blocked(),
        np.printoptions(formatter={"float": lambda x: seen.append(x) or "x"}),
    ):
        m.show(a)
    assert capsys.readouterr().out == "" and not seen


def test_a_schedule_says_which_array_is_wrong():
    from iocourse.schedules import flash2, matmul

    tiles = {"Br": 2, "Bc": 2, "M": 99}
    Q = np.ones((4, 3))
    bad = [
        ({"K": np.ones((4, 2))}, ValueError, r"K has shape \(4, 2\); with Q \(4, 3\) it must be \(4, 3\)"),
        ({"V": np.ones((5, 3))}, ValueError, r"V has shape \(5, 3\); with Q"),
        ({"Q": np.ones(4)}, ValueError, r"Q must have the shape of one head, \(N, d\), got \(4,\)"),
        ({"V": None}, TypeError, "V must be in slow memory"),
        ({"Br": 0}, ValueError, "^Br must be at least 1"),
        ({"Bc": 2.5}, TypeError, "^Bc must be"),
        ({"Bx": 2}, TypeError, "^unknown tile size 'Bx'; the tile sizes of flash2 are Br, Bc"),
    ]
    for wrong, error, message in bad:
        with pytest.raises(error, match=message):
            run(flash2, **{"Q": Q, "K": Q, "V": Q, **tiles, **wrong})
    with pytest.raises(TypeError, match=r"takes Q, K and V, got 2 array\(s\)"):
        run(flash2, Q=Q, K=Q, **tiles)
    with pytest.raises(TypeError, match="needs the tile size"):
        run(flash2, M=99, Q=Q, K=Q, V=Q, Br=2)
    with pytest.raises(ShapeMismatch, match="A has 3 columns but B has 4 rows"):
        run(matmul, M=99, A=Q, B=Q, bm=1, bn=1)
    with pytest.raises(ShapeMismatch, match="B has shape"):
        run(matmul, M=99, A=Q, B=np.ones(3), bm=1, bn=1)
    with pytest.raises(ValueError, match=r"^bm must be"):
        run(matmul, M=99, A=Q, B=Q.T, bm=0, bn=1)


@pytest.mark.parametrize("dry", [False, True])
def test_a_result_with_holes_is_named_as_incomplete(dry):
    def half(m, x):
        y = m.new("y", (4,))
        with m.load(x, (0, 2)) as t:
            m.store(t, y, (0, 2))
        return y

    with pytest.raises(UninitialisedRead, match=r"the result y of shape \(4,\) is incomplete"):
        run(half, M=10, dry=dry, x=np.ones(4))


def test_a_tile_is_made_for_the_rows_that_load_takes():
    m = Machine(20)
    assert m.zeros((3, 6), 2).shape == (3, 2) and m.full((0, 4)).shape == (4,)
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        m.zeros((3, 3))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda m: m.zeros(0, 4),
            "got 0: it is a number of rows; for one row use zeros",
        ),
        (
            lambda m: m.full(-1),
            "got -1: it is a number of rows; for one row use zeros",
        ),
        (
            lambda m: m.row_stats(0),
            "got 0: it is a number of rows; for one row use zeros",
        ),
        (
            lambda m: m.zeros(2, 0),
            "got 0: it is a number of columns; for one column use zeros",
        ),
    ],
)
def test_a_position_in_place_of_a_length_hears_what_a_number_is(made, said):
    with pytest.raises(ValueError, match=said):
        made(Machine(20))


def test_a_memory_one_word_short_is_told_in_the_singular():
    with pytest.raises(FastMemoryFull, match=r"or increase M by at least 1 word\."):
        Machine(3).zeros(4)


# ---- functions for backward and sparse schedules -----------------------------------------------------------


def test_unequal_blocks_of_a_range(both):
    m, _, _ = both
    inside = list(m.blocks((2, 9), 3, alike=False))
    assert [(b.start, b.stop, b.first, b.last) for b in inside] == [
        *[(2, 5, True, False), (5, 8, False, False)],
        (8, 9, False, True),
    ]
    assert all(block.times == 1 for block in inside)
    alike = list(m.blocks((2, 20), 3))
    assert sum(block.times * block.size for block in alike) == 18
    assert len(alike) == (3 if m.dry else 6)
    for bad in ((3, 3), (4, 2), (-1, 5)):
        with pytest.raises(ValueError, match=r"^n must be a number or a range with 0 <= start < stop, got "):
            m.blocks(bad, 2)


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("b", range(1, 9))
def test_blocks_of_a_range_cover_it_on_every_machine(begin, n, b):
    end = begin + n
    every = list(Machine(9).blocks((begin, end), b))
    assert [row for block in every for row in range(block.start, block.stop)] == list(range(begin, end))
    unlike = list(Machine(9, dry=True).blocks((begin, end), b, alike=False))
    assert every == unlike == list(Machine(9, dry=True, unroll=True).blocks((begin, end), b))
    few = list(Machine(9, dry=True).blocks((begin, end), b))
    assert sum(block.times * block.size for block in few) == n and (few[0], few[-1]) == (every[0], every[-1])


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("b", range(1, 15))
def test_with_short_first_the_first_block_is_the_smaller_one_on_every_machine(begin, n, b):
    end = begin + n
    every = list(Machine(9).blocks((begin, end), b, short_first=True))
    assert [row for block in every for row in range(block.start, block.stop)] == list(range(begin, end))
    assert [block.size for block in every] == [n % b] * (n % b > 0) + [b] * (n // b)
    assert [block.first for block in every] == [True] + [False] * (len(every) - 1)
    assert [block.last for block in every] == [False] * (len(every) - 1) + [True]
    assert every == list(Machine(9, dry=True).blocks((begin, end), b, alike=False, short_first=True))
    few = list(Machine(9, dry=True).blocks((begin, end), b, short_first=True))
    assert len(few) == min(3, len(every)) and (few[0], few[-1]) == (every[0], every[-1])
    assert sum(block.times for block in few) == len(every)
    assert sum(block.times * block.size for block in few) == n


def triangle(m, A):
    """Each block of rows loads all rows up to its end, so no two blocks move the same words."""
    O = m.new("O", A.shape)
    for i in m.blocks(A.shape[0], 2, alike=False):
        with m.zeros(i, A.shape[1]) as o:
            for j in m.blocks((0, i.stop), 2):
                with m.load(A, j) as a:
                    o += a[0]
            m.store(o, O, i)
    return O


def test_loops_of_unequal_length_are_counted_dry():
    A = np.ones((9, 2))
    done, dry = run(triangle, M=99, A=A), run(triangle, M=99, A=A.shape, dry=True)
    assert done.ledger == dry.ledger and done.ledger.reads == {"A": 2 * (2 + 4 + 6 + 8 + 9)}
    assert (done.O[:, 0] == [1, 1, 2, 2, 3, 3, 4, 4, 5]).all()


def test_hidden_pairs_become_minus_inf_and_take_no_room(both):
    m, A, _ = both
    s, used = m.load(A, slice(0, 3)), m.used
    m.hide(s, Block(4, 7), Block(3, 7), masks.Causal(8))
    assert m.used == used == m.ledger.peak and m.ledger.total == 12
    if not m.dry:
        want = np.where(np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]), X[:3], -np.inf)
        assert (value(s) == want).all()
    m.hide(s, Block(0, 3), Block(0, 4), masks.Full(8))
    with pytest.raises(
        ShapeMismatch, match=r"A\[0:3\] has shape \(3, 4\), but rows and cols have 2 x 4 pairs"
    ):
        m.hide(s, Block(0, 2), Block(0, 4), masks.Causal(8))
    with pytest.raises(UntrackedArray):
        m.hide(X, Block(0, 6), Block(0, 4), masks.Causal(8))
    s.free()
    with pytest.raises(UseAfterFree):
        m.hide(s, Block(0, 3), Block(0, 4), masks.Causal(8))


def test_probabilities_are_the_softmax_again_in_place(both):
    m, A, _ = both
    L = np.log(np.exp(X).sum(axis=1))
    L[2] = -np.inf  # every score of this row is masked
    s, l = m.load(A, None), m.load(m.slow("L", L), None)
    used = m.used
    assert probabilities(s, l) is s and m.used == used == m.ledger.peak
    if not m.dry:
        want = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
        want[2] = 0
        assert value(s) == pytest.approx(want, rel=1e-14)
        assert value(l) == pytest.approx(L)
    with pytest.raises(
        ShapeMismatch, match=r"A\[0:2\] has shape \(2, 4\), but the row statistics have 6 rows"
    ):
        probabilities(m.load(A, slice(0, 2)), l)
    with pytest.raises(ShapeMismatch, match=r"must both have shape \(rows,\)"):
        probabilities(s, s)
    with pytest.raises(UntrackedArray, match="L must be a tile, got ndarray"):
        probabilities(s, L)
    with pytest.raises(UntrackedArray):
        probabilities(X, l)
    l.free()
    with pytest.raises(UseAfterFree):
        probabilities(s, l)


def test_a_product_less_a_word_a_row_is_multiplied_in_place(both):
    m, A, v = both
    a, c, p = m.load(A, None), m.load(v, None), m.full(6, 6, 2.0)
    used = m.used
    assert p.multiply_by_matmul(a, a.T, less=c) is p and m.used == used == m.ledger.peak
    if not m.dry:
        assert value(p) == pytest.approx(2 * (X @ X.T - X[:, :1]))
    with pytest.raises(ShapeMismatch, match=r"in-place update with .* \(4, 4\) does not fit .* \(6, 6\)"):
        p.multiply_by_matmul(a.T, a, less=c)
    with pytest.raises(ShapeMismatch, match=r"v\[0:2\] has shape \(2,\); .* \(6, 6\) needs one word per row"):
        p.multiply_by_matmul(a, a.T, less=m.load(v, slice(0, 2)))
    with pytest.raises(ShapeMismatch, match="one word per row"):
        p.multiply_by_matmul(a, a.T, less=p)
    with pytest.raises(MachineError, match="product of itself"):
        p.multiply_by_matmul(p, p, less=c)
    with pytest.raises(UntrackedArray):
        p.multiply_by_matmul(a, a.T, less=X[:, 0])
    with pytest.raises(TypeError):
        p.multiply_by_matmul(a, a.T, less=1.0)
    c.free()
    with pytest.raises(UseAfterFree):
        p.multiply_by_matmul(a, a.T, less=c)


def test_row_sums_of_a_product_grow_in_place(both):
    m, A, v = both
    a, c = m.load(A, None), m.load(v, None)
    used = m.used
    assert c.add_row_dots(a, a) is c and m.used == used == m.ledger.peak
    if not m.dry:
        assert value(c) == pytest.approx(X[:, 0] + (X * X).sum(axis=1))
    with pytest.raises(
        ShapeMismatch, match=r"A\[0:6\] \(6, 4\) and A\[0:6\]\.T \(4, 6\) must be matrices of equal shape"
    ):
        c.add_row_dots(a, a.T)
    with pytest.raises(ShapeMismatch, match=r"needs one word per row"):
        c.add_row_dots(m.zeros(2, 4), m.zeros(2, 4))
    with pytest.raises(ShapeMismatch, match=r"must be matrices of equal shape"):
        c.add_row_dots(c, c)
    with pytest.raises(MachineError, match="a sum over itself"):
        a[:, 0].add_row_dots(a, a)
    with pytest.raises(UntrackedArray):
        c.add_row_dots(X, X)
    a.free()
    with pytest.raises(UseAfterFree):
        c.add_row_dots(a, a)


def test_a_vector_of_row_statistics_may_hold_minus_inf():
    m = Machine(99)
    statistics = m.slow("LSE", [-np.inf, 1.0])
    assert (value(m.load(statistics, None)) == [-np.inf, 1.0]).all()
    for bad in ([np.inf, 1.0], [np.nan], [[-np.inf]]):
        with pytest.raises(ValueError, match="holds 1 NaN or infinite"):
            m.slow("LSE", bad)


def test_a_mask_on_a_dry_machine_is_asked_nothing():
    """A dry run has no values, so it does not evaluate the mask pair by pair."""

    class Loud(masks.Causal):
        def sees(self, i, j):
            raise AssertionError

    m = Machine(99, dry=True)
    m.hide(m.zeros(2, 2), Block(0, 2), Block(0, 2), Loud(4))


def test_a_mask_of_ones_own_is_told_positions_and_no_words():
    told = []

    class Spy(masks.Causal):
        def sees(self, i, j):
            told.extend([i.copy(), j.copy()])
            return super().sees(i, j)

    m, A, _ = machine()
    m.hide(m.load(A, (1, 4)), Block(1, 4), Block(0, 4), Spy(6))
    i, j = told
    assert (i.ravel() == [1, 2, 3]).all() and (j.ravel() == [0, 1, 2, 3]).all()
    assert i.dtype.kind == j.dtype.kind == "i"


def test_public_names_of_a_tile_are_known():
    """Before a public name is added here, check that it reveals no uncounted words."""
    m, _, _ = machine()
    assert {name for name in dir(m.zeros(2, 2)) if not name.startswith("_")} == {
        *("name", "shape", "dtype", "ndim", "size", "words", "alive", "free"),
        *("T", "reshape", "sum", "max", "min", "mean", "copy", "dot", "item", "tolist"),
        *("add_matmul", "multiply_by_matmul", "add_row_dots"),
    }
    assert {name for name in dir(m.row_stats(2)) if not name.startswith("_")} == {
        *("m", "l", "free", "update", "normalise", "unnormalise", "lse"),
    }


def test_a_schedule_that_does_not_fit_says_which_tiles_would():
    from iocourse.schedules import flash2, split_backward, window

    def said(schedule, **settings):
        N, d, M = 64, 8, settings.pop("M", 512)
        with pytest.raises(FastMemoryFull) as caught:
            run(schedule, M=M, dry=True, **schedule.shapes(N, d), **settings)
        return str(caught.value)

    text = said(flash2, Br=26, Bc=2)
    assert text.startswith(
        "Out of fast memory: the product Q[0:26] @ K[0:2].T needs 52 words, but only 12 of M = 512 are free. "
        "In use: Q"
    )
    largest = "the largest Br that fits is 24, the largest Bc that fits is 1."
    assert text.endswith(f" For flash2, with the other tile sizes unchanged, {largest}")
    assert said(flash2, Br=64, Bc=2).endswith("the largest Br that fits is 24, no Bc fits.")
    assert " For split_backward, try Br1 = 18, Bc1 = 1, Br2 = 1, Bc2 = 14." in (
        said(split_backward, Br1=40, Bc1=40, Br2=40, Bc2=40)
    )
    assert said(window, M=99, w=3).endswith("no tile size fits; the minimum is M = 131.")


def test_the_largest_tiles_fit_and_the_next_do_not():
    from iocourse.schedules import REGISTRY

    for schedule in REGISTRY.values():
        if schedule.needs:
            continue
        M = 3 * schedule.smallest_M(30, 6)
        given = schedule.tiles(30, 6, M)
        for name, size in schedule.largest_tiles(30, 6, M, **given).items():
            peak = [schedule.cost(30, 6, **{**given, name: size + more}).peak for more in (0, 1)]
            assert size >= given[name] and peak[0] <= M
            assert peak[1] > M or size == 30
    with pytest.raises(ValueError, match=r"^M must be at least 1"):
        schedule.largest_tiles(30, 6, 0, w=3)


def test_hide_takes_blocks_and_pairs_and_names_what_is_neither():
    m = Machine(100)
    s = m.zeros(3, 4)
    m.hide(s, (2, 5), (0, 4), masks.Causal(8))
    other = m.zeros(3, 4)
    m.hide(other, Block(2, 5), Block(0, 4), masks.Causal(8))
    assert (s._data == other._data).all() and np.isneginf(s._data).sum() == 1
    for wrong in (3, (1, 2, 3), [0, 3], None):
        with pytest.raises(TypeError, match=r"^rows must be a Block or \(start, stop\), got"):
            m.hide(s, wrong, (0, 4), masks.Causal(8))


def test_an_array_of_truths_is_an_option_and_the_schedule_says_what_it_wants():
    from iocourse.schedules import block_sparse, flash2

    shapes = dict.fromkeys("QKV", (4, 2))
    K = np.ones((4, 2))
    with pytest.raises(TypeError, match=r"^mask must be one of iocourse.masks, got ndarray"):
        run(block_sparse, M=99, dry=True, **shapes, mask=np.ones((4, 4), dtype=bool), Br=1, Bc=1)
    with pytest.raises(TypeError, match=r"Q must be in slow memory"):
        run(flash2, M=99, Q=K > 0, K=K, V=K, Br=1, Bc=1)


def in_two_cuts(m, A, *, b):
    """A copy of A: blocks of 2b rows, and blocks of b rows within each."""
    O = m.new("O", A.shape)
    for outer in m.blocks(A.shape[0], 2 * b):
        for i in m.blocks((outer.start, outer.stop), b):
            with m.load(A, i) as a:
                m.store(a, O, i)
    return O


@pytest.mark.parametrize(("N", "b"), [(40, 3), (12, 3), (5, 7), (100, 4)])
def test_a_dry_run_counts_blocks_cut_from_blocks(N, b):
    real = run(in_two_cuts, M=2 * b, A=np.ones((N, 2)), b=b)
    dry = run(in_two_cuts, M=2 * b, dry=True, A=(N, 2), b=b)
    assert dry.ledger == real.ledger and real.ledger.total == 4 * N
