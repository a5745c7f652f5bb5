"""Tests of first use without a lesson: names, argument order, options, and clear error messages."""

import copy
import importlib.util
import inspect
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import iocourse
from iocourse import bounds, costs, exact, lowrank, masks, pebbling, run, schedules
from iocourse.cli import main
from iocourse.ledger import Ledger
from iocourse.machine import FastMemoryFull, Machine
from iocourse.schedules import PASSES, REGISTRY, best, flash1, flash2, low_rank

X = np.random.default_rng(0).standard_normal((6, 4))
ROOT = Path(iocourse.__file__).parents[1]


def python(code):
    """Run this code in a new Python process and return its output."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- rooms -----------------------------------------------------------------------------------------------


def test_rooms_are_reached_after_import_iocourse_and_not_loaded_before():
    said = python(
        "import sys, iocourse\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('iocourse.')}\n"
        "print(*sorted(rooms), sorted({'torch', 'triton', 'matplotlib', 'numba'} & set(sys.modules)))\n"
        "print(iocourse.schedules.flash2, iocourse.bounds.lower_bound('forward', 8, 4, 64))\n"
        "from iocourse import course; print(course is iocourse.course)\n"
    )
    first, second, third = said.splitlines()
    assert first == "console exact ledger machine sizes []"
    assert second == "schedule flash2(m, Q, K, V, Br, Bc) (128, 'compulsory')" and third == "True"


def test_dir_lists_the_rooms_and_what_is_none_is_said():
    folders = {path.parent.name for path in Path(iocourse.__file__).parent.glob("*/__init__.py")}
    assert len(folders) > 10 and folders | {"exact", "masks", "Ledger", "run"} <= set(dir(iocourse))
    with pytest.raises(AttributeError, match=r"iocourse has no flash9; its submodules are .*schedules"):
        _ = iocourse.flash9
    assert not hasattr(iocourse, "_selftest")
    with pytest.raises(AttributeError, match=r"iocourse.schedules has no flash9; its schedules are .*flash2"):
        _ = schedules.flash9


def test_a_room_that_lacks_something_says_what():
    code = "import sys; sys.modules['torch'] = sys.modules['triton'] = None\nimport iocourse\n"
    assert python(code + "print(hasattr(iocourse, 'kernels'))") == "False\n"
    said = python(code + "try: iocourse.kernels\nexcept AttributeError as error: print(error)")
    assert said.startswith("iocourse.kernels cannot be loaded: ") and "torch" in said
    assert (
        python(code + "try: from iocourse import kernels\nexcept ImportError as error: print('no')") == "no\n"
    )


EXPLORE = "iocourse.explore moved: write `from iocourse.course import explore`"
MOVED = {
    "from iocourse import explore": EXPLORE,
    "from iocourse.explore import bars": EXPLORE,
    "import iocourse.explore.models": EXPLORE,
    "import iocourse; iocourse.explore": EXPLORE,
    "import iocourse.grade": "iocourse.grade moved: write `from iocourse.course import grade`",
    "import iocourse.solution_guard": (
        "iocourse.solution_guard moved: write `from iocourse.course import guard`"
    ),
    "from iocourse.data import misleading_table": (
        "iocourse.data.misleading_table moved: write `from iocourse.course import misleading_table`"
    ),
    "from iocourse.kernels.host.dispatch import choose_variant": (
        "iocourse.kernels.host.dispatch moved: write `from iocourse.kernels.host import choices`"
    ),
}


@pytest.mark.parametrize("line", MOVED)
def test_a_module_that_moved_is_named_in_one_line_and_none_is_left_behind(line):
    told = "try:\n    {}\nexcept (ImportError, AttributeError) as error:\n    print(error)\n"
    left = "import sys; print(sorted({'iocourse.explore', 'iocourse.course'} & set(sys.modules)))"
    said, modules = python(told.format(line) + left).splitlines()
    assert said == f"{MOVED[line]}. In your copies of the lessons, `iocourse lab --update` does it"
    assert modules == "[]"


@pytest.mark.parametrize(
    ("room", "old", "new"),
    [
        ("kernels", "Tile", "TileConfig"),
        ("kernels", "SlicedTile", "SlicedTileConfig"),
        ("sweeps", "State", "StoredMatrices"),
        ("sweeps", "moves", "transitions"),
    ],
)
def test_a_name_of_an_earlier_version_is_named_in_one_line(room, old, new):
    if room == "kernels":
        pytest.importorskip("triton", reason="triton is not installed: the extra `triton` brings it")
    module = importlib.import_module(f"iocourse.{room}")
    with pytest.raises(ImportError, match=rf"^iocourse\.{room}\.{old} is now iocourse\.{room}\.{new}$"):
        exec(f"from iocourse.{room} import {old}")
    assert hasattr(module, new) and not hasattr(module, "flash9")


def test_the_empty_folder_of_a_moved_module_is_no_package(tmp_path):
    """An updated checkout keeps the folder, with what Python had compiled there."""
    (tmp_path / "explore" / "__pycache__").mkdir(parents=True)
    code = f"import iocourse; iocourse.__path__.append({str(tmp_path)!r})\n"
    code += "try: from iocourse import explore\nexcept ImportError as error: print(error)"
    assert python(code).startswith(EXPLORE)


def test_where_a_moved_module_is_exists():
    for old, new in iocourse._MOVED.items():
        assert importlib.util.find_spec(new) is not None
        assert not hasattr(iocourse, old.rpartition(".")[2])


@pytest.mark.parametrize("room", [exact, masks])
def test_all_lists_what_a_room_makes_public(room):
    made = {
        name
        for name, value in vars(room).items()
        if name[0] != "_" and getattr(value, "__module__", "") == room.__name__
    }
    assert made <= set(room.__all__) and all(hasattr(room, name) for name in room.__all__)
    assert "library_solution" not in room.__all__ and "positive_int" not in room.__all__


# ---- orders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pass_", PASSES)
def test_best_takes_the_pass_where_lower_bound_takes_it(pass_):
    found = best(pass_, 64, 8, 512)
    assert (
        found == best(64, 8, 512, pass_) == best(64, 8, 512, pass_=pass_) == best(64, 8, M=512, pass_=pass_)
    )
    assert found == best(pass_=pass_, N=64, d=8, M=512) == best(pass_, N=64, d=8, M=512)
    assert found.schedule.pass_ == pass_
    assert (
        list(inspect.signature(best).parameters) == list(inspect.signature(bounds.lower_bound).parameters)[:4]
    )


def test_best_is_of_the_forward_pass_where_none_is_named():
    assert best(64, 8, 512) == best(N=64, d=8, M=512) == best("forward", 64, 8, 512)
    for wrong in ((64, 8), ("forward", 64, 8), ("forward", 64, 8, 512, 1), ()):
        with pytest.raises(TypeError):
            best(*wrong)
    with pytest.raises(ValueError, match="pass_ must be one of forward, backward, gradient, tied, got 5"):
        best(64, 8, 512, 5)


# ---- counting in one step --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_count_is_the_closed_form_with_the_tiles_it_picks(schedule):
    problem = {"mask": {"mask": masks.Causal(40)}, "w": {"w": 3}, "g": {"g": 2}}
    problem = problem.get("".join(schedule.needs), {})
    least = schedule.smallest_M(40, 4, **problem)
    for M in (least, 3 * least):
        tiles = schedule.tiles(40, 4, M, **problem)
        assert schedule.count(40, 4, M, **problem) == schedule.cost(40, 4, **tiles, **problem)
    with pytest.raises(ValueError, match=rf"\. It needs at least M = {least:,}$"):
        schedule.count(40, 4, least - 1, **problem)


def test_count_takes_tiles_and_options_and_refuses_what_does_not_fit():
    assert flash2.count(64, 8, 512, Br=16, Bc=4, lse=True) == flash2.cost(64, 8, Br=16, Bc=4, lse=True)
    assert flash2.count(64, 8, 512, Br=16) == flash2.cost(64, 8, Br=16, Bc=flash2.tiles(64, 8, 512)["Bc"])
    said = (
        "flash2 with Br = 64, Bc = 1 needs 1,232 words, 720 more than M = 512; with the other tile sizes "
        "unchanged, the largest Br that fits is 26, no Bc fits"
    )
    with pytest.raises(ValueError) as error:
        flash2.count(64, 8, 512, Br=64)
    assert str(error.value) == said
    with pytest.raises(TypeError, match="unknown tile size 'Bx'"):
        flash2.count(64, 8, 512, Bx=1)


def test_a_difference_calls_a_closed_form_only_what_is_one():
    one, two = (run(s, M=999, Q=X, K=X, V=X, Br=2, Bc=2).ledger for s in (flash1, flash2))
    assert repr(two - costs.flash1(6, 4, Br=2, Bc=2)).startswith("Q read 1×, closed form says 3×\n")
    assert repr(two - one).startswith("Q read 1×, the other 3×\n")
    forms = flash2.count(6, 4, 999) - flash1.count(6, 4, 999)
    for difference in (two - one, forms, costs.flash2(6, 4, Br=2, Bc=2) - one):
        assert difference and "closed form" not in repr(difference) and "the other" in repr(difference)
    again = Ledger.from_json(two.to_json())
    assert again.measured and two.copy().measured and not costs.flash2(6, 4, Br=2, Bc=2).measured


# ---- pickles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_a_pickled_schedule_is_the_registrys_own(schedule):
    assert pickle.loads(pickle.dumps(schedule)) is schedule is copy.deepcopy(schedule)


def test_a_pickled_error_keeps_its_message_and_its_advice():
    with pytest.raises(FastMemoryFull) as caught:
        run(flash2, M=50, Q=X, K=X, V=X, Br=6, Bc=6)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is FastMemoryFull and str(again) == str(caught.value) and "For flash2, " in str(again)
    assert (again.short, again.asked) == (caught.value.short, caught.value.asked)
    plain = FastMemoryFull("full", 3, "a tile")
    assert str(pickle.loads(pickle.dumps(plain))) == "full"


# ---- options ---------------------------------------------------------------------------------------------

TRUTHS = {
    "exact.attention": lambda no: exact.attention(X, X, X, causal=no),
    "exact.attention_backward": lambda no: exact.attention_backward(X, X, X, X, causal=no),
    "exact.scores": lambda no: exact.scores(X, X, causal=no),
    "lowrank.attention": lambda no: lowrank.attention(X / 2, X, X, degree=2, causal=no, polynomial="taylor"),
    "lowrank.gradient": lambda no: lowrank.gradient(X / 2, X, X, X, degree=2, causal=no, polynomial="taylor"),
    "masks.BlockMask": lambda no: masks.BlockMask(4, np.ones((2, 2), bool), 2, causal=no),
    "BlockMask, allow_empty": lambda no: masks.BlockMask(4, np.ones((2, 2), bool), 2, allow_empty=no),
    "a schedule's lse": lambda no: flash2.cost(6, 4, Br=2, Bc=2, lse=no),
    "a closed form's lse": lambda no: costs.flash2(6, 4, Br=2, Bc=2, lse=no),
    "Machine, dry": lambda no: Machine(9, dry=no),
    "Machine, unroll": lambda no: Machine(9, dry=True, unroll=no),
    "run, trace": lambda no: run(flash2, M=999, Q=X, K=X, V=X, Br=2, Bc=2, trace=no),
    "lower_bound, recompute": lambda no: bounds.lower_bound("forward", 8, 4, 64, recompute=no),
    "lower_bound, approximate": lambda no: bounds.lower_bound("forward", 8, 4, 64, approximate=no),
    "lower_bound, given_weights": lambda no: bounds.lower_bound("backward", 8, 4, 64, given_weights=no),
    "lower_bound, whole_rows": lambda no: bounds.lower_bound("backward", 8, 4, 64, whole_rows=no),
    "against_bound, whole_rows": lambda no: schedules.against_bound(flash2, 8, 4, 64, whole_rows=no),
    "against_bound": lambda no: schedules.against_bound(flash2, 8, 4, 64, recompute=no),
    "crossing": lambda no: schedules.break_even_length(8, 2, 4096, whole_rows=no),
    "optimum, recompute": lambda no: pebbling.optimum(pebbling.dot(2), 4, recompute=no),
    "optimum, slide": lambda no: pebbling.optimum(pebbling.dot(2), 4, slide=no),
    "pebbling.matmul": lambda no: pebbling.matmul(2, 2, 2, fma=no),
    "pebbling.attention": lambda no: pebbling.attention(2, 2, fma=no),
}


@pytest.mark.parametrize("call", TRUTHS.values(), ids=list(TRUTHS))
def test_an_option_is_true_or_false_and_nothing_else(call):
    for value in (True, False, np.True_, np.False_):
        call(value)
    for value in ("no", 1, 0, None if call not in (TRUTHS["run, trace"],) else "", [], np.ones(1, bool)):
        with pytest.raises(TypeError, match="must be True or False"):
            call(value)


def test_gradient_shows_the_options_of_attention():
    ours, theirs = (inspect.signature(f).parameters for f in (lowrank.gradient, lowrank.attention))
    shared = list(theirs)[3:-2]
    assert list(theirs)[-2:] == ["state", "return_state"]  # a state has no gradient
    assert list(ours) == ["Q", "K", "V", "dO", *shared]
    assert all(ours[name].default == theirs[name].default for name in shared)
    with pytest.raises(TypeError, match="radios"):
        lowrank.gradient(X, X, X, X, degree=2, radios=3)


@pytest.mark.parametrize("wrong", [X > 0, X + 1j, X.astype("U9")], ids=["bool", "complex", "text"])
def test_advice_is_given_on_real_numbers(wrong):
    for Q, K, name in ((wrong, X, "Q"), (X, wrong, "K")):
        with pytest.raises(TypeError, match=rf"^{name} must have a real dtype \(float or int\), got .*$"):
            lowrank.advise(Q, K)
    for name, value in itertools.product(("error", "scale"), (True, 0.5j, "0.5")):
        with pytest.raises(TypeError, match=f"^{name} must be a number, got .*$"):
            lowrank.advise(X, X, **{name: value})
    assert lowrank.advise(X.astype(np.float32), (3 * X).astype(int)).n == 6


# ---- large numbers and plain refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, s in REGISTRY.items() if not s.needs and s.pass_ == "forward"]
)
def test_products_that_overflow_are_refused_in_the_words_of_exact(name):
    large = X * 1e200
    with pytest.raises(ValueError) as said:
        exact.attention(large, large, X)
    tiles = dict.fromkeys(REGISTRY[name].tile_names, 2)
    with pytest.raises(ValueError) as ours:
        run(REGISTRY[name], M=999, Q=large, K=large, V=X, **tiles)
    assert str(ours.value) == str(said.value) and "overflow float64" in str(said.value)
    got = run(flash2, M=999, Q=large, K=X * 1e-200, V=X, Br=2, Bc=2).O
    assert exact.max_abs_error(got, exact.attention(large, X * 1e-200, X)) < 1e-12


def test_a_ledger_is_taken_from_ledgers_only():
    for wrong in (3, "a ledger", None):
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = Ledger() - wrong


def test_json_that_is_nested_too_deeply_is_no_ledger():
    with pytest.raises(ValueError, match=r"not a ledger written by Ledger\.to_json: RecursionError"):
        Ledger.from_json("[" * 200_000 + "]" * 200_000)


@pytest.mark.parametrize("F", [bounds.products_per_segment, bounds.all_products_per_segment])
def test_a_segment_needs_words_and_coordinates(F):
    for sizes, name in (((64, 0), "d"), ((0, 8), "R")):
        with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0"):
            F(*sizes)
    with pytest.raises(TypeError, match=r"^d must be an integer of at least 1"):
        F(64, 2.5)


LARGE = 10**23


@pytest.mark.parametrize(
    "mask", [f"window:{LARGE}", f"strided:{LARGE}", f"bigbird:{LARGE},1,1", f"bigbird:1,{LARGE},{LARGE}"]
)
def test_a_mask_of_enormous_numbers_is_that_of_large_ones(capsys, mask):
    asked = [
        "count",
        "block_sparse",
        "--N",
        "60",
        "--d",
        "8",
        "--M",
        "512",
        "--block",
        "7",
        "--run",
        "--mask",
    ]
    said = []
    for name in (mask, mask.replace(str(LARGE), "9")):
        assert main([*asked, name]) == 0
        said.append(capsys.readouterr().out.replace(name, ""))
    assert said[0] == said[1]
    assert main([*asked, f"random:0.25,{LARGE}"]) == 0


def test_what_no_memory_holds_is_one_line(capsys, monkeypatch):
    def run(*asked, **named):
        raise MemoryError("Unable to allocate 72.8 PiB")

    monkeypatch.setattr("iocourse.schedules.report.run", run)
    assert main(["count", "naive", "--N", "9", "--d", "4", "--M", "512", "--run"]) == 2
    assert capsys.readouterr().err == "iocourse count: not enough memory: Unable to allocate 72.8 PiB\n"


def test_a_reader_who_has_seen_enough_ends_it_quietly():
    many = f"{sys.executable} -m iocourse count --list --json | head -1; echo ${{PIPESTATUS[0]}}"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", many], capture_output=True, text=True, env=env)
    assert done.stdout == "[\n0\n" and done.stderr == ""
    closed = f"{sys.executable} -m iocourse count --list >&-; echo $?"  # nothing to write to at all
    done = subprocess.run(["bash", "-c", closed], capture_output=True, text=True, env=env)
    assert "Traceback" not in done.stderr


def test_an_approximation_is_counted_like_the_others():
    assert low_rank.count(64, 4, 999, g=2).total == 4 * 64 * 4
