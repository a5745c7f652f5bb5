"""Tests of the guard: library functions that solve exercises raise an error while a check runs.

This holds however they are called, and in whatever order the library and the course were imported.
"""

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
import pydoc
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

from iocourse import bounds, exact, lowrank, masks, schedules
from iocourse.bounds import segments
from iocourse.course import library_answers
from iocourse.course.guard import LibrarySolutionUsed, library_solution, no_calls_into, solutions_blocked
from iocourse.lowrank import largest_error, numpy_backend, paper_gradient, smallest_degree
from iocourse.lowrank.approximation import Approximation
from iocourse.lowrank.polynomials import taylor
from iocourse.machine import Machine, run
from iocourse.monomials import features_vjp, plan

X = np.ones((4, 2))
HEAD = Approximation(plan(2, 2), lowrank.polynomial("taylor", 2))
LOW_RANK = {
    f"numpy_backend.{kind}{name}": partial(getattr(numpy_backend, kind + name), X, X, X, *more)
    for kind in ("", "causal_")
    for name, more in (
        ("forward", (HEAD,)),
        ("backward", (numpy_backend.Forward(X, X[:, 0], np.ones((6, 3))), X, HEAD)),
    )
}
ANSWERS = LOW_RANK | {
    "low-rank attention": lambda: lowrank.attention(X, X, X, degree=2, engine="numpy"),
    "low-rank gradient": lambda: lowrank.gradient(X, X, X, X, degree=2, engine="numpy"),
    "the paper's gradient": lambda: paper_gradient.kronecker(X, X, X, X, HEAD),
    "the same, reassociated": lambda: paper_gradient.associative(X, X, X, X, HEAD),
    "in the paper's notation": lambda: paper_gradient.in_paper_notation(X, np.eye(2), np.eye(2), X, HEAD),
    "largest_error": lambda: largest_error(taylor(2), 1.0),
    "smallest_degree": lambda: smallest_degree(taylor, 1.0, 0.5),
    "features_vjp": lambda: features_vjp(np.ones((6, 4)), np.ones((6, 4)), X, plan(2, 2)),
    "attention": lambda: exact.attention(X, X, X),
    "softmax": lambda: exact.softmax(X),
    "scores": lambda: exact.scores(X, X),
    "log_sum_exp": lambda: exact.log_sum_exp(X),
    "attention_backward": lambda: exact.attention_backward(X, X, X, X),
    "softmax_backward": lambda: exact.softmax_backward(X, X),
    "grad_x": lambda: exact.grad_x(np.eye(2), X, X, X, np.eye(2), X),
    "matmul": lambda: run(schedules.matmul, M=99, A=X, B=X.T, bm=1, bn=1),
    "matmul_tiles": lambda: schedules.matmul_tiles(4, 4, 4, 99),
    "a schedule": lambda: run(schedules.flash2, M=999, Q=X, K=X, V=X, Br=2, Bc=2),
    "its body": lambda: run(schedules.flash2.body, M=999, Q=X, K=X, V=X, Br=2, Bc=2),
    "what one stands for": lambda: schedules.low_rank.approximates.exact({"Q": X, "K": X, "V": X}, g=2),
    "its tiles": lambda: schedules.flash2.tiles(4, 2, 999),
    "the largest that fit": lambda: schedules.flash2.largest_tiles(4, 2, 999, Br=2, Bc=2),
    "its chooser": lambda: schedules.flash_optimal.choose(4, 2, 999),
}


@pytest.mark.parametrize("call", ANSWERS.values(), ids=list(ANSWERS))
def test_a_library_answer_refuses_inside_an_exam_only(call):
    call()
    with (
        solutions_blocked(),
        pytest.raises(
            LibrarySolutionUsed, match="solves the exercise and cannot be called while a check runs"
        ),
    ):
        call()
    call()


def test_every_registered_schedule_refuses():
    for schedule in schedules.REGISTRY.values():
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed, match=schedule.name):
            schedule(Machine(99))
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
            schedule.body(Machine(99))


def parts_of_schedules():
    """Every function that two schedules share: public, and given the machine first."""
    for info in pkgutil.iter_modules(schedules.__path__):
        module = importlib.import_module(f"{schedules.__name__}.{info.name}")
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__
            if own and name[0] != "_" and next(iter(inspect.signature(function).parameters), "") == "m":
                yield function


def test_every_part_of_a_schedule_refuses():
    found = list(parts_of_schedules())
    assert len(found) >= 10
    for function in found:
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed, match=function.__name__):
            function(Machine(99))


def choosers():
    """Every function of the schedules' modules that picks tiles, however it is reached."""
    for info in pkgutil.iter_modules(schedules.__path__):
        module = importlib.import_module(f"{schedules.__name__}.{info.name}")
        yield from (f for name, f in vars(module).items() if name.endswith("_tiles") and name[0] != "_")


@pytest.mark.parametrize("chooser", dict.fromkeys(choosers()), ids=lambda f: f.__qualname__)
def test_no_choice_of_tiles_is_given_away(chooser):
    problem = {"mask": {"mask": masks.Causal(8)}, "w": {"w": 2}, "g": {"g": 2}}
    named = inspect.signature(chooser).parameters
    sizes = [8] * (len(named) - 1 - sum(name in problem for name in named)) + [512]
    asked = next((problem[name] for name in named if name in problem), {})
    chooser(*sizes, **asked)
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed, match=chooser.__name__):
        chooser(*sizes, **asked)


def test_exams_nest_and_end_with_an_error():
    with solutions_blocked():
        with pytest.raises(RuntimeError, match="mine"), solutions_blocked():
            raise RuntimeError("mine")
        with pytest.raises(LibrarySolutionUsed):
            exact.softmax(X)
    exact.softmax(X)


def test_a_thread_is_no_way_out():
    seen = []

    def work():
        try:
            seen.append(exact.softmax(X))
        except LibrarySolutionUsed as error:
            seen.append(error)

    with solutions_blocked():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert isinstance(seen[0], LibrarySolutionUsed)


def test_source_signature_and_help_are_those_of_the_function_as_it_was_written():
    assert "softmax(scores(" in inspect.getsource(exact.attention)
    assert "o.add_matmul(s, v)" in inspect.getsource(schedules.flash2)
    assert list(inspect.signature(schedules.flash2).parameters)[:4] == ["m", "Q", "K", "V"]
    assert exact.attention.__doc__.startswith("Return O = softmax")
    assert "m: Machine, Q: SlowArray" in inspect.getsource(schedules.flash2.body)
    assert "attention(Q: 'ArrayLike', K: 'ArrayLike'" in pydoc.render_doc(
        exact.attention, renderer=pydoc.plaintext
    )


def test_a_marked_function_keeps_its_name():
    @library_solution
    def double(x: int) -> int:
        """Twice x."""
        return 2 * x

    assert (double(3), double.__name__, double.__doc__) == (6, "double", "Twice x.")
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed, match=r"test_guard.*double"):
        double(3)


@pytest.mark.parametrize("id", bounds.BOUNDS)
def test_a_bound_refuses_however_it_is_reached(id):
    bound = bounds.BOUNDS[id]
    for way in (bound, bound.order, bound.evaluate):
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
            way(8, 4, 64)


def test_the_arithmetic_behind_the_bounds_refuses():
    for name, function in vars(segments).items():
        if name[0] != "_" and getattr(function, "__module__", "") == segments.__name__:
            with solutions_blocked(), pytest.raises(LibrarySolutionUsed, match=name):
                function()


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("numpy", lambda: X.dot(X.T)),  # known by the type of its object, as it names no module
        ("numpy", lambda: np.dot(X, X.T)),
        ("numpy.linalg", lambda: np.linalg.norm(X)),
        ("math", lambda: math.exp(0.0)),
        ("dict", lambda: dict.fromkeys("ab")),  # by the object it belongs to
        ("builtins", lambda: [].append(1)),
        ("builtins", lambda: abs(-1)),
    ],
)
def test_a_call_into_a_module_is_refused_though_it_is_written_in_c(module, call):
    with (
        pytest.raises(LibrarySolutionUsed, match=rf"^{module}\..* is out$"),
        no_calls_into((module,), "is out"),
    ):
        call()
    with no_calls_into(("collections", f"{module}.nothing"), "is out"):
        call()


# ------------------------------------------------------------------ no order of imports opens a hole
COURSE = """
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.course.library_answers import ANSWERS
"""
SCRIPT = """
import importlib, sys
from types import FunctionType

OPTIONAL = ("iocourse.kernels", "iocourse.lowrank.numba", "iocourse.lowrank.torch", "triton")


def load():
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            assert name.startswith(OPTIONAL), name


def held():
    # Every function that a module of the library holds, also those of other modules.
    named = sys.modules.items()
    modules = [module for name, module in named if name[:9] == "iocourse." and ".course" not in name]
    return [value for module in modules for value in vars(module).values() if isinstance(value, FunctionType)]


ORDER

answers = set()
for name, listed in ANSWERS.items():
    module = sys.modules.get(name)
    if module is not None and isinstance(listed, str):
        assert all(isinstance(getattr(module, one), FunctionType) for one in listed.split()), name
        answers |= {(getattr(module, one).__module__, one) for one in listed.split()}
    elif module is not None:
        assert all(isinstance(function, FunctionType) for function, _ in listed(module)), name
        answers |= {(f.__module__, f.__qualname__) for f, instead in listed(module) if instead is None}
refused = 0
for function in [*first, *held()]:
    if (function.__module__, function.__qualname__) in answers:
        try:
            with solutions_blocked():
                function()
        except LibrarySolutionUsed:
            refused += 1
print(refused, sum((f.__module__, f.__qualname__) in answers for f in [*first, *held()]))
"""
ORDERS = {
    "the library first": f"load(); first = held(){COURSE}",
    "the course first": f"{COURSE}load(); first = []",
    "the library in a check": f"{COURSE}first = []\nwith solutions_blocked(): load()",
    "everything twice": f"""{COURSE}
load()
for name in [name for name in sys.modules if name.partition(".")[0] == "iocourse"]:
    del sys.modules[name]
load(); first = held(){COURSE}""",
    "the library twice": f"""{COURSE}
load(); first = held()
for name in ("iocourse.exact", "iocourse.lowrank.numpy_backend", "iocourse.sweeps"):
    importlib.reload(sys.modules[name])
    first += held()
    del sys.modules[name]
load()""",
}


def in_a_new_process(script):
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_imports_leaves_an_answer_open(order):
    script = SCRIPT.replace("MODULES", repr(list(library_answers.ANSWERS))).replace("ORDER", ORDERS[order])
    refused, held = map(int, in_a_new_process(script))
    assert refused == held > 100


def test_the_course_imported_inside_a_count_guards_the_counts_after_it():
    pytest.importorskip("triton", reason="triton is not installed: the extra `triton` brings it")
    said = in_a_new_process("""
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch
from iocourse import kernels, traffic
from iocourse.kernels.backward_delta import row_products_kernel
x = torch.ones(1, 1, 16, 16)
with traffic.count() as before:
    from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
    kernels.attention(x, x, x)
print(before.total > 0)
for call in (lambda: kernels.attention(x, x, x), lambda: row_products_kernel[(1,)](x, x, x)):
    for around in (traffic.count, __import__("contextlib").nullcontext):
        with around():
            try:
                with solutions_blocked():
                    call()
            except LibrarySolutionUsed:
                print("refused")
""")
    assert said == ["True", *["refused"] * 4]


def test_copies_of_a_name_are_the_same_function():
    stored = pickle.loads(pickle.dumps(exact.softmax))
    for other in (copy.copy(exact.softmax), copy.deepcopy(exact.softmax), stored):
        with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
            other(X)
