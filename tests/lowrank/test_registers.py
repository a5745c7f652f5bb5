"""Passes in vector registers: their small language, ragged sizes, and their checks of inputs and outputs."""

import dense_attention
import numpy as np
import pytest
from long_runs import many

from iocourse import lowrank
from iocourse.lowrank import numba_backend, per_head

if not numba_backend._found():
    pytest.skip("Numba is not installed", allow_module_level=True)
if not numba_backend._kernels("registers.writer").here():
    pytest.skip("these passes are for AVX-512 or AVX2", allow_module_level=True)

from iocourse.lowrank.numba_backend.registers import calls, rows, writer
from iocourse.lowrank.numba_backend.registers.writer import Compiled, Program

KINDS = ("numbers", "numbers", "word")
BAD = [np.nan, np.inf, -np.inf]


@pytest.fixture(autouse=True, scope="module", params=writer.here(), ids=lambda kind: f"{kind.lanes} lanes")
def lanes(request):
    """Kind of vector register; every test runs with each kind that this processor supports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "here", lambda: (request.param,))
        calls.compiled.cache_clear()
        yield request.param.lanes
    calls.compiled.cache_clear()


def run(write, found, given, many=0):
    """Compile write(p, found, given, many) as a function and call it with these arrays."""
    p = Program(writer.here()[0])
    write(p, *p.begin("f", KINDS))
    p.end()
    code = Compiled(p, {"f": KINDS})
    code.functions["f"](calls.address(found), calls.address(given), many)
    return found


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- the language ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [0, 1, 7])
def test_a_fold_carries_vectors_and_a_loop_counts(many, lanes):
    def write(p, found, given, many):
        total = p.fold(0, many, 1, lambda i, x: [x[0] + given.vector(i * lanes)], p.zeros(1))
        found.put(0, total[0])
        with p.loop(0, many, 2) as i:
            found.put_number(i + lanes, p.as_number(i))

    given = drawn(8, lanes)
    found = run(write, np.full(lanes + 8, -1, np.float32), given, many)
    np.testing.assert_allclose(found[:lanes], given[:many].sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[lanes:], [i if i < many and i % 2 == 0 else -1 for i in range(8)])


@pytest.mark.parametrize("d", [1, 3, 4, 6, 17])
@pytest.mark.parametrize("first, count", [(0, 40), (32, 40), (39, 40)])
def test_rows_are_turned_and_turned_back(d, first, count, lanes):
    def write(p, found, given, many):
        columns = rows.columns_of(p, given, d, p.word(first), p.word(count - 1))
        rows.put_columns(p, found, p.word(first), p.word(count), [x + p.vector(1.0) for x in columns])

    given, guard = drawn(count, d), 7.0
    found = run(write, np.full((count + 2 * lanes, d), guard, np.float32), given)
    inside = slice(first, min(first + lanes, count))
    np.testing.assert_array_equal(found[inside], given[inside] + 1)
    assert (np.delete(found, np.r_[inside], axis=0) == guard).all()  # no other memory is written


@pytest.mark.parametrize("many", [1, 5, 16, 26])
def test_sums_of_lanes_are_added_in_order(many, lanes):
    def write(p, found, given, _):
        rows.add_sums(found, [given.vector(i * lanes) for i in range(many)], p.vector(0.0))

    given = drawn(many, lanes)
    found = run(write, np.ones(many + 2, np.float32), given)
    np.testing.assert_allclose(found[:many], 1 + given.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[many:], 1)


def test_the_exponential(lanes):
    from iocourse.lowrank.numba_backend.registers import causal
    from iocourse.lowrank.numba_backend.registers.steps import RegisterBlocking

    def write(p, found, given, _):
        for at in range(0, 16, lanes):
            found.put(at, causal.exponential(RegisterBlocking(p, 1, 2, 1), given.vector(at)))

    x = np.array(
        [-300, -86.5, -20, -1, -1e-3, 0, 1e-3, 0.3, 1, 5, 20, 80, 88, 95, np.inf, np.nan], np.float32
    )
    found = run(write, np.empty(16, np.float32), x)
    np.testing.assert_allclose(found[1:13], np.exp(x[1:13].astype(np.float64)), rtol=1e-6)
    assert 0 <= found[0] < 2e-38 and np.isinf(found[13:15]).all() and np.isnan(found[15])


# ---- values ----------------------------------------------------------------------------------------------

# For each width of keys and of values the passes are compiled.
SIZES = [(1, 1, 1, 1), (1, 1, 2, 3), (9, 23, 2, 3), (130, 67, 5, 7), (64, 500, 8, 8), (70, 90, 20, 25)]
SIZES += many([], [(41, 27, 3, 2), (333, 333, 12, 12), (41, 17, 7, 27)])


@pytest.mark.parametrize("n, n_k, d, d_v", SIZES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("degree", [2, 3, 5])
def test_ragged_sizes_equal_the_plain_passes(n, n_k, d, d_v, causal, degree):
    arrays = dense_attention.draw(1, (), n, n if causal else n_k, d, d_v, np.float32, size=0.5)
    options = {"degree": degree, "causal": causal} | ({"key_variance": 0.2} if causal else {})
    assert calls.suits(arrays[0], arrays[2], degree)
    found = lowrank.gradient(*arrays, **options)
    wanted = lowrank.gradient(*(X.astype(np.float64) for X in arrays), engine="numpy", **options)
    dense_attention.agree(found, wanted, 2e-5, arrays[3])


@pytest.mark.parametrize("causal", [False, True])
def test_numba_still_computes_the_same_in_float32(causal, monkeypatch):
    arrays = dense_attention.draw(2, (), 300, 300, 6, 5, np.float32, size=0.5)
    options = {"degree": 3, "causal": causal, "polynomial": "taylor"}
    found = lowrank.gradient(*arrays, **options)
    monkeypatch.setattr(numba_backend, "in_registers", lambda *_: False)
    plain = lowrank.gradient(*arrays, **options)
    dense_attention.agree(found, plain, 3e-6, arrays[3])
    assert not np.array_equal(found.dK, plain.dK)  # a different implementation was used


def test_threads_take_spans_of_their_own():
    arrays = dense_attention.draw(3, (), 25_001, 17_003, 3, 2, np.float32)
    one, more = (lowrank.gradient(*arrays, degree=3, threads=threads) for threads in (1, 3))
    dense_attention.agree(more, one, 1e-5, arrays[3])
    assert not np.array_equal(one.dK, more.dK)


@pytest.mark.parametrize(
    "kind, d, d_v, degree", [("f8", 4, 4, 2), ("f4", 4, 4, 1), ("f4", 40, 4, 2), ("f4", 4, 40, 2)]
)
def test_what_they_are_not_made_for_is_left_to_numba(kind, d, d_v, degree):
    assert not calls.suits(np.empty((3, d), kind), np.empty((3, d_v), kind), degree)


def test_where_an_array_lies():
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    for some in (X, X[1:], X[::-1], X[:, 2:], np.empty(0, np.float32)):
        assert calls.address(some) == some.ctypes.data


# ---- guards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("row", [0, 63, 98])
@pytest.mark.parametrize("name", ["Q", "K", "V"])
def test_an_entry_that_is_not_finite_is_seen_on_the_way(name, row, bad, causal):
    arrays = dict(zip("QKV", dense_attention.draw(4, (), 99, 99, 4, 3, np.float32), strict=False))
    arrays[name][row, 1] = bad
    options = {"degree": 2, "causal": causal} | ({"key_variance": 0.2} if causal else {})
    with pytest.raises(ValueError, match=f"^{name} has an entry that is not finite in row {row}$"):
        lowrank.attention(*arrays.values(), **options)


def judged(values, outputs, least, m=3):
    """Return the result of `judge` for extents of V, and of O and the denominators, with 0 if O is finite."""
    run = calls.compiled("causal", 4, m).functions["judge"]
    extents = [np.array([*low, *(-x for x in high), *rest], np.float32)
               for low, high, *rest in (values, outputs)]  # fmt: skip
    return run(calls.address(extents[0]), calls.address(extents[1]), least) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_what_a_pass_saw(causal, threads, monkeypatch):
    monkeypatch.setattr(numba_backend, "SPAN", 40)
    Q, K, V, dO = dense_attention.draw(5, (), 99, 99, 4, 3, np.float32)
    options = per_head.Options(degree=2, polynomial="taylor", causal=causal)
    more = () if causal else (threads,)
    f, s, fine = (calls.causal_forward if causal else calls.forward)(
        Q, K, V, per_head.fixed_approximation(4, options, 2), *more
    )
    assert fine
    back = calls.causal_backward if causal else calls.backward
    assert back(Q, K, V, f, dO, s, *more)[1]
    dO[98, 0] = np.inf
    assert not back(Q, K, V, f, dO, s, *more)[1]
    V[97, 2] = np.inf
    assert not (calls.causal_forward if causal else calls.forward)(Q, K, V, s, *more)[2]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_denominator_that_is_too_small_is_not_fine(threads, monkeypatch):
    """Test one key with a logit of -20, at which the polynomial of degree 3 is very negative."""
    monkeypatch.setattr(numba_backend, "SPAN", 40)
    Q, K, V = np.full((99, 1), 1, np.float32), np.zeros((99, 1), np.float32), np.zeros((99, 3), np.float32)
    s = per_head.fixed_approximation(1, per_head.Options(degree=3, polynomial="taylor", scale=1.0), 3)
    assert calls.forward(Q, K, V, s, threads)[2]
    K[7] = -20
    f, _, fine = calls.forward(Q, K, V, s, threads)
    assert f.den.min() < 0 and not fine


def test_an_output_beyond_its_values_is_not_fine():
    values = [0.0, 0.0], [1.0, 1.0]
    for low, high, fine in ((0.0, 1.0, True), (-0.4, 1.4, True), (-0.6, 1.0, False), (0.0, 1.6, False)):
        for column in (0, 1):
            lows, highs = [0.0, 0.0, 5.0], [1.0, 1.0, 6.0]
            lows[column], highs[column] = low, high
            assert judged(values, (lows, highs, 0.0), 5.0) == fine
    inside = [0.0, 0.0, 5.0], [1.0, 1.0, 6.0]
    assert judged(values, (*inside, 0.0), 5.0) and not judged(values, (*inside, 0.0), 5.001)
    assert not judged(values, (*inside, np.nan), 5.0)
    assert not judged(values, (inside[0], [1.0, 1.0, np.inf], 0.0), 5.0)
    assert not judged(values, (inside[0], [1.0, np.nan, 6.0], 0.0), 5.0)


@pytest.mark.parametrize(
    "guard, fine",
    [((0, 1, 0, 2), True), ((0, 1, 0, 2.1), False), ((np.nan, 1, 0, 1), False), ((0, 1, np.nan, 1), False)],
)
def test_gradients_are_fine_where_they_are_finite_and_not_too_large(guard, fine):
    """Σ |dV| is at most twice Σ |dO| if weights may have both signs."""
    s = per_head.fixed_approximation(4, per_head.Options(degree=3, polynomial="taylor"), 3)
    assert calls._fine(guard, s) == fine
    even = per_head.fixed_approximation(4, per_head.Options(degree=2, polynomial="taylor"), 2)
    assert calls._fine((0, 1, 0, 9), even)
