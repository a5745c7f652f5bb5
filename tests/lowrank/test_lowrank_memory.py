"""Low rank: modules loaded by its import, and memory of a call."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from dense_attention import draw

from iocourse import lowrank
from iocourse.monomials import rank_of

ROOT = Path(__file__).parents[2]


def python(code):
    """Run code in a fresh interpreter and return the words that it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LOADED = """
import sys
import numpy as np
import iocourse.lowrank as lowrank
from iocourse.lowrank import per_head, paper_gradient, numpy_backend
X = np.ones((5, 2))
lowrank.gradient(X, X, X, X, degree=2, engine="{engine}")
lowrank.advise(X, X)
print(*sorted({{"torch", "numba", "triton"}} & set(sys.modules)))
"""


@pytest.mark.parametrize("engine, loaded", [("numpy", []), ("numba", ["numba"])])
def test_arrays_load_no_torch_and_numba_only_if_requested(engine, loaded):
    pytest.importorskip(engine)
    assert python(LOADED.format(engine=engine)) == loaded


def test_arrays_need_neither_torch_nor_numba():
    code = """
import sys
sys.modules["torch"] = sys.modules["triton"] = sys.modules["numba"] = None
import iocourse.lowrank as lowrank
import numpy as np
X = np.ones((5, 2))
print(lowrank.attention(X, X, X, degree=2).sum())
try:
    lowrank.attention(X, X, X, degree=2, engine="numba")
except ImportError as error:
    print("numba" in str(error) and "pip install" in str(error))
"""
    assert python(code) == ["10.0", "True"]


@pytest.mark.parametrize("causal", [False, True])
def test_numpy_takes_no_more_than_what_it_gives_back_and_a_tile(causal):
    n, d, degree = 20_000, 8, 3
    Q, K, V, dO = (X.astype("f4") for X in draw(0, (), n, n, d, d, size=0.5))
    rank = rank_of(d, degree)
    states, tile = 2 * rank * (d + 1), 4 * rank * 256
    tracemalloc.start()
    lowrank.gradient(Q, K, V, dO, degree=degree, polynomial="taylor", causal=causal, engine="numpy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    inputs = Q.nbytes * 4
    allowed = 1.5 * (2 * inputs + 4 * (states + tile)) - inputs  # the inputs were allocated before
    assert peak < allowed < 4 * n * rank  # an n × rank array would exceed it by far


# The maximum resident set is per process, so each engine runs in a fresh one.
GROWN = """
import resource
import numpy as np
import iocourse.lowrank as lowrank

def work(n):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, 12), np.float32) * np.float32(0.7) for _ in range(4)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if "{engine}".startswith("torch"):
        import torch
        torch.set_num_threads(1)
        Q, K, V = (torch.from_numpy(X).requires_grad_() for X in arrays[:3])
        lowrank.attention(Q, K, V, **{options}).backward(torch.from_numpy(arrays[3]))
    else:
        lowrank.gradient(*arrays, **{options})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

work(7000)  # loads, compiles and allocates everything that is needed once
print(work({n}) * 1024)
"""
RANK, WORDS = rank_of(12, 3), 1 << 19  # torch_passes.CPU_WORDS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize(
    "engine, causal, n, tile",
    [
        ("numba", False, 40_000, 4 * RANK * 256),
        ("numba", True, 40_000, 4 * RANK * 256),
        ("torch numba", False, 40_000, 4 * RANK * 256),
        ("torch torch", True, 40_000, 2 * WORDS),
        ("torch torch", False, 200_000, 3 * WORDS),
    ],
)
def test_a_process_grows_by_what_comes_back_and_half(engine, causal, n, tile):
    """NumPy is tested above. Torch without causal attention makes no copy of O, dQ, dK and dV."""
    for module in engine.split():
        pytest.importorskip(module)
    inputs = outputs = 4 * n * 12  # words of Q, K, V, dO, and of O, dQ, dK, dV
    allowed = 1.5 * (inputs + outputs + 2 * RANK * 13 + tile) - inputs
    options = {"polynomial": "taylor"}
    if (engine, causal) == ("torch torch", False):
        allowed, options = outputs + tile, {"polynomial": "hermite"}
        assert allowed < outputs + n * 12
    options |= {"degree": 3, "causal": causal, "engine": engine.split()[-1]}
    (grown,) = python(GROWN.format(engine=engine, options=options, n=n))
    assert int(grown) < 4 * allowed
    assert allowed < n * RANK  # one matrix n × rank
