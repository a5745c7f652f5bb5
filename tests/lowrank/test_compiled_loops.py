"""Loops compiled by Numba: ragged sizes, threads, their exponential, and where and when they are compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
from dense_attention import NAMES, agree, by, draw, off, options_of

from iocourse import lowrank
from iocourse.lowrank import error_certificates, numba_backend

pytest.importorskip("numba")

from iocourse.lowrank.numba_backend import causal, checks, dense, products, tiles

# Widths around multiples of the columns and of the tokens that one loop takes.
SIZES = [(1, 1, 1, 1), (9, 23, 2, 3), (130, 67, 5, 7), (64, 500, 8, 8), (41, 27, 3, 12), (41, 17, 7, 27)]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-11)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n, n_k, d, d_v", [*SIZES, (70, 90, 20, 25), (333, 333, 12, 12)])
def test_ragged_sizes_equal_the_passes_of_numpy(n, n_k, d, d_v, causal, dtype, tolerance):
    arrays = draw(1, (), n, n if causal else n_k, d, d_v, size=0.5)
    for degree in (1, 2, 3) if d > 8 else (1, 2, 3, 5):
        options = options_of("hermite", causal, key_variance=0.2) | {"degree": degree}
        found = by("numba", *(X.astype(dtype) for X in arrays), **options)
        agree(found, by("numpy", *arrays, **options), tolerance, arrays[3])


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_more_than_rounding(threads, dtype, tolerance):
    arrays = draw(6, (2,), 25_000, 17_000, 3, 2, dtype)
    one, more = (lowrank.gradient(*arrays, degree=3, engine="numba", threads=count) for count in (1, threads))
    for name, a, b in zip(NAMES, one, more, strict=True):
        assert off(b, a) < tolerance, name
    assert not np.array_equal(one.dK, more.dK)  # the sums were really split


@pytest.mark.parametrize("low, high", [(-20, 5), (-79, 3), (-1e-3, 1e-3), (-50, 85)])
def test_the_exponential_of_float32(low, high):
    """Causal weights within a tile are exact, also above 80, where another loop computes the exponential."""
    x = np.linspace(low, high, 60, dtype=np.float32)[:, None]
    options = options_of("taylor", causal=True) | {"degree": 2, "scale": 1.0, "engine": "numba"}
    weights = lowrank.attention(np.ones_like(x), x, np.eye(len(x), dtype=np.float32), **options)[-1]
    wanted = np.exp(x[:, 0].astype(np.float64) - x.max())
    np.testing.assert_allclose(weights, wanted / wanted.sum(), rtol=6e-7, atol=1e-37)


@pytest.mark.parametrize("bad", [(0, -0.6), (1, 1.6), (2, np.inf), (2, np.nan), "den", None])
def test_the_check_of_an_output(bad):
    """The output is within the range of V, extended by half, and every denominator is large enough."""
    V = np.array([[0.0, 0.0, 5.0], [1.0, 1.0, 6.0]])
    O, den = np.array([[-0.4, 1.4, 5.0], [0.0, 1.0, 6.0]]), np.array([6.0, 5.0 if bad != "den" else 4.9])
    if isinstance(bad, tuple):
        O[1, bad[0]] = bad[1]
    assert numba_backend.output_fine(O, den, V, 5.0) == (bad is None)
    if bad != "den":
        within = error_certificates.within(*map(error_certificates.extent, (O, V)))
        assert (within and np.isfinite(O).all()) == (bad is None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_start_at_a_cache_line(dtype):
    """Vectors across two cache lines take longer."""
    for columns in (16, 64, 256):
        X = products.aligned(3, columns, np.empty(1, dtype))
        assert X.shape == (3, columns) and X.dtype == dtype
        assert all(row.ctypes.data % 64 == 0 for row in X)


def compiled_types():
    """Return the signatures for which each loop has been compiled."""
    functions = [f for module in (causal, checks, dense, products, tiles) for f in vars(module).values()]
    return {f: f.signatures for f in functions if hasattr(f, "signatures")}


@pytest.mark.parametrize("causal", [False, True])
def test_loops_are_compiled_once_whether_arrays_may_be_written_or_not(causal):
    """Read-only arrays do not cause another compilation, although Numba treats them as another type."""
    arrays, options = draw(8, (), 40, 40, 4, 4), {"degree": 2, "causal": causal, "key_variance": 0.4}
    wanted, before = by("numba", *arrays, **options), compiled_types()
    copies = [X.copy() for X in arrays]
    for X in arrays:
        X.flags.writeable = False
    np.testing.assert_equal(by("numba", *arrays, **options), wanted)
    assert compiled_types() == before and any(before.values())
    np.testing.assert_equal(arrays, copies)


FORKED = """
import os, signal, sys, warnings
import numpy as np
import iocourse.lowrank as lowrank
warnings.simplefilter("ignore")
X = np.ones((20_000, 2))
def work():
    return lowrank.attention(X, X, X, degree=2, threads=2, engine="numba").sum()
work()
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if work() == 40_000 else 1)  # style: ok (code)
print(os.waitpid(child, 0)[1])
"""
FROM_A_READ_ONLY_FOLDER = """
import numpy as np
from numba.core import caching
caching.CacheImpl._locator_classes = []  # as if neither this folder nor the home is writeable
from iocourse.lowrank.numba_backend import causal, checks
print(checks.sum_of_squares(np.ones(4)), checks.sum_of_squares(np.ones(4, np.float32)))
"""


def python(code):
    """Run code in a fresh interpreter and return its output and its messages."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_threads_of_its_own():
    """A thread pool inherited from the parent would block the child forever."""
    assert python(FORKED)[0] == "0\n"


def test_numba_compiles_without_a_folder_for_the_result_and_says_so_once():
    found, messages = python(FROM_A_READ_ONLY_FOLDER)
    assert found == "4.0 4.0\n"
    assert messages.startswith("iocourse.lowrank: Numba compiles the passes for this type of numbers,")
    assert messages.count("\n") == 1
