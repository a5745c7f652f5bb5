"""Low rank: modules loaded by its import, memory of a call, and use after a fork."""

import importlib.util
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import dense_attention
import pytest

from iocourse import lowrank
from iocourse.monomials import rank_of

ROOT = Path(__file__).parents[2]


def python(code):
    """Run code in a fresh interpreter and return the words that it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


# ---- importing -------------------------------------------------------------------------------------------


def test_importing_it_loads_neither_torch_nor_numba():
    code = """
import sys
import iocourse.lowrank as lowrank
from iocourse.lowrank import per_head, paper_gradient, numpy_backend
import numpy as np
X = np.ones((5, 2))
lowrank.gradient(X, X, X, X, degree=2, engine="numpy")
lowrank.advise(X, X)
print(*sorted({"torch", "numba", "llvmlite", "triton"} & set(sys.modules)))
"""
    assert python(code) == []


def test_arrays_need_no_torch_and_numba_none_either():
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


def test_numba_does_not_bring_torch():
    needs("numba")
    code = """
import sys
import iocourse.lowrank as lowrank
import numpy as np
X = np.ones((5, 2))
lowrank.attention(X, X, X, degree=2, engine="numba")
print("numba" in sys.modules, "torch" in sys.modules)
"""
    assert python(code) == ["True", "False"]


# ---- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_numpy_takes_no_more_than_what_it_gives_back_and_a_tile(causal):
    n, d, degree = 20_000, 8, 3
    Q, K, V, dO = (X.astype("f4") for X in dense_attention.draw(0, (), n, n, d, d, size=0.5))
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
RESIDENT = """
import resource, sys
import numpy as np
import iocourse.lowrank as lowrank

engine, causal, n, d, degree = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3]), 12, 3
options = dict(degree=degree, polynomial=sys.argv[4], causal=causal, engine=engine.split()[-1])

def work(n):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, d), np.float32) * np.float32(0.7) for _ in range(4)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if engine.startswith("torch"):
        import torch
        torch.set_num_threads(1)
        Q, K, V = (torch.from_numpy(X).requires_grad_() for X in arrays[:3])
        O = lowrank.attention(Q, K, V, **options)
        O.backward(torch.from_numpy(arrays[3]))
    else:
        lowrank.gradient(*arrays, **options)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

work(7000)  # loads, compiles and allocates everything that is needed once
print(work(n) * 1024)
"""


def grown(engine, causal, n, polynomial="taylor"):
    """Return the bytes by which a fresh process grows for O and the gradient of n tokens."""
    command = [sys.executable, "-c", RESIDENT, engine, str(causal), str(n), polynomial]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


in_kilobytes = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ru_maxrss is in other units elsewhere"
)


@in_kilobytes
@pytest.mark.parametrize(
    "engine, causal", [("numba", False), ("numba", True), ("torch torch", True), ("torch numba", False)]
)
def test_a_process_grows_by_what_comes_back_and_half(engine, causal):
    """NumPy is tested above, and torch without causal attention below with a smaller limit."""
    needs(*({"numba", "torch"} & set(engine.split())))
    n = 40_000
    one, rank = 4 * n * 12, rank_of(12, 3)
    inputs, outputs = 4 * one, 4 * one  # Q, K, V, dO; O, dQ, dK, dV
    states, tile = 4 * 2 * rank * 13, 4 * 4 * rank * 256
    if engine == "torch torch":
        from iocourse.lowrank.torch_passes import CPU_WORDS

        tile = 2 * 4 * CPU_WORDS
    allowed = 1.5 * (inputs + outputs + states + tile) - inputs
    assert grown(engine, causal, n) < allowed
    assert allowed < 4 * n * rank  # one matrix n × rank


@in_kilobytes
def test_torch_has_two_tiles_of_features_and_no_copy_of_what_comes_back():
    needs("torch")
    from iocourse.lowrank.torch_passes import CPU_WORDS

    n = 200_000
    one, tile = 4 * n * 12, 4 * CPU_WORDS
    outputs = 4 * one  # O, dQ, dK, dV
    assert grown("torch torch", False, n, "hermite") < outputs + 3 * tile < outputs + one


# ---- processes -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_threads_of_its_own():
    """A thread pool inherited from the parent would block the child forever."""
    needs("numba")
    code = """
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
    assert python(code) == ["0"]


FROM_A_READ_ONLY_FOLDER = """
import numpy as np
from numba.core import caching
caching.CacheImpl._locator_classes = []  # as if neither this folder nor the home is writeable
from iocourse.lowrank.numba_backend import causal_loops, loops
print(loops.sum_of_squares(np.ones((2, 2))), loops.sum_of_squares(np.ones((2, 2), np.float32)))
"""


def test_numba_compiles_without_a_folder_for_the_result_and_says_so_once():
    needs("numba")
    done = subprocess.run(
        [sys.executable, "-c", FROM_A_READ_ONLY_FOLDER], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["4.0", "4.0"], done.stderr
    assert done.stderr.startswith("iocourse.lowrank: Numba compiles the passes for this type of numbers,")
    assert done.stderr.count("\n") == 1
