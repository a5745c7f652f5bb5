"""Tests of the registry: a schedule is one file and its closed form; errors name the file that is wrong."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import iocourse
from iocourse import costs, distributed, schedules
from iocourse.distributed.schedules.registry import ORDER as RANK_ORDER
from iocourse.schedules import PASSES, REGISTRY
from iocourse.schedules.registry import ORDER

PACKAGE = Path(iocourse.__file__).parent

FORM = '''
from ...ledger import Ledger
from ...sizes import check_sizes
from ..closed_form import closed_form, form

@form
def toy(N: int, d: int, *, Br: int, Bc: int) -> Ledger:
    """Q once, K and V once for each block of rows."""
    check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c, passes = min(Br, N), min(Bc, N), -(-N // Br)
    return closed_form(
        reads={"Q": N * d, "K": N * d * passes, "V": N * d * passes},
        writes={"O": N * d},
        peak=r * (2 * d + 2 + c) + c * d,
        shapes=dict.fromkeys("QKVO", (N, d)),
    )
'''

SCHEDULE = '''
from .registry import schedule

def toy_tiles(N, d, M):
    return {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}

@schedule(pass_="forward", regime="every M", source="a test", tiles=toy_tiles)
def toy(m, Q, K, V, *, Br, Bc):
    """Rows stay, keys pass."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:
                    s = q @ k.T
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
'''


@pytest.fixture
def library(tmp_path):
    """A copy of the library to add files to, and a way to run a line of Python in it."""
    shutil.copytree(PACKAGE, tmp_path / "iocourse", ignore=shutil.ignore_patterns("__pycache__"))

    def run(code, **files):
        for name, text in files.items():
            folder = {"costs": "costs/forms"}.get(name, name)
            (tmp_path / "iocourse" / folder / "toy.py").write_text(text)
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_a_new_schedule_is_one_file_and_its_closed_form(library):
    code = """
import inspect, numpy as np
from iocourse import costs, run, schedules
from iocourse.cli import main
from iocourse.course.explore.models.schedule_selection import ROW_TILED
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.schedules import toy
names = list(schedules.REGISTRY)
assert schedules.toy is toy is schedules.REGISTRY["toy"]
assert names.index("toy") == names.index("resident_keys") + 1
assert all("toy" in names for names in (schedules.__all__, dir(schedules), costs.__all__, dir(costs)))
assert toy in schedules.of_pass("forward")
assert "toy" in ROW_TILED and "m.blocks(N, Br)" in inspect.getsource(toy)
X = np.random.default_rng(0).standard_normal((9, 4))
assert run(toy, M=99, Q=X, K=X, V=X, **toy.tiles(9, 4, 99)).ledger == costs.toy(9, 4, **toy.tiles(9, 4, 99))
for answer in (toy.body, toy.choose, inspect.getmodule(toy.body).toy_tiles):
    try:
        with solutions_blocked(): answer()
    except LibrarySolutionUsed: continue
    raise SystemExit("a chooser or a body can be called while a check runs")
asked = "count toy --N 30 --d 4 --M 99 --run"
raise SystemExit(main(["count", "--list"]) or main(asked.split()))
"""
    done = library(code, schedules=SCHEDULE, costs=FORM)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    listed = [line.split()[0] for line in lines[1:] if line]
    at = listed.index("toy")  # after the dense schedules of its pass
    assert listed[at - 1 : at + 2] == ["resident_keys", "toy", "standard_backward"]
    assert "toy at N=30, d=4, M=99, tiles Br=8, Bc=1" in lines
    assert any(line.startswith("emulator: the same words moved") for line in lines)


BROKEN = {
    "no closed form": (
        {"schedules": SCHEDULE},
        "schedules/toy.py is broken: missing closed form costs.toy: add def toy(N, d, ",
    ),
    "another closed form": (
        {"schedules": SCHEDULE.replace(", Bc):", "):"), "costs": FORM},
        "schedules/toy.py is broken: costs.toy takes Br, Bc, but the schedule toy takes Br",
    ),
    "no schedule": (
        {"schedules": "def toy(m, Q, K, V): ...", "costs": FORM},
        "schedules/toy.py registers no schedule toy. Decorate the function toy with @schedule",
    ),
    "another name": (
        {
            "schedules": SCHEDULE.replace("def toy(", "def other("),
            "costs": FORM.replace("def toy(", "def other("),
        },
        "schedules/toy.py registers no schedule toy",
    ),
    "a typing error": (
        {"schedules": SCHEDULE.replace("return O", "return O)"), "costs": FORM},
        "schedules/toy.py is broken: unmatched ')'",
    ),
    "an unknown pass": (
        {"schedules": SCHEDULE.replace('"forward"', '"sideways"'), "costs": FORM},
        "schedules/toy.py is broken: pass_ must be one of forward, backward",
    ),
    "a broken closed form": (
        {"schedules": SCHEDULE, "costs": FORM + "\n1/0\n"},
        "costs/forms/toy.py is broken: division by zero",
    ),
    "a closed form twice": (
        {"schedules": SCHEDULE, "costs": FORM + FORM.replace("toy", "flash2")},
        "costs/forms/toy.py is broken: iocourse.costs.forms.forward and iocourse.costs.forms.toy both define "
        "flash2",
    ),
}


@pytest.mark.parametrize(("files", "said"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_wrong_with_a_file_is_said_with_its_name(library, files, said):
    done = library("import iocourse.schedules", **files)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: iocourse/{said}")


def test_the_order_is_by_pass_and_then_that_of_the_table():
    """Dense schedules by pass, then those with more arguments; within these the order of `ORDER`."""
    groups = [(bool(s.needs), list(PASSES).index(s.pass_)) for s in REGISTRY.values()]
    assert groups == sorted(groups)
    for group in set(groups):
        names = [name for name, of in zip(REGISTRY, groups, strict=True) if of == group]
        listed = [name for name in ORDER if name in names]
        assert names == listed + sorted(set(names) - set(listed))
    by_pass = [s.name for s in distributed.schedules.REGISTRY.values() if s.name in RANK_ORDER]
    assert by_pass == list(RANK_ORDER)


def test_the_tables_of_the_order_name_schedules_once():
    assert set(ORDER) <= set(REGISTRY) and len(set(ORDER)) == len(ORDER)
    assert set(RANK_ORDER) <= set(distributed.REGISTRY) and len(set(RANK_ORDER)) == len(RANK_ORDER)


def test_among_equal_costs_best_is_the_schedule_that_comes_first_in_the_order():
    N, d, M = 128, 1, 16
    tied = [s for s in schedules.of_pass("forward") if s.smallest_M(N, d) <= M]
    costs_of = {s.name: s.cost(N, d, **s.tiles(N, d, M)) for s in tied}
    least = min((cost.total, cost.peak) for cost in costs_of.values())
    equal = [name for name, cost in costs_of.items() if (cost.total, cost.peak) == least]
    assert len(equal) > 1 and schedules.best("forward", N, d, M).schedule.name == equal[0]


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_a_schedule_is_reached_under_its_name(schedule):
    assert getattr(schedules, schedule.name) is schedule is schedules.get(schedule.name)
    assert schedule.name in schedules.__all__ and schedule.name in dir(schedules)
    assert getattr(costs, schedule.name) is schedule.cost_form is costs.FORMS[schedule.name]
    assert schedule.name in costs.__all__ and schedule.name in dir(costs)
    assert inspect.getsourcefile(inspect.unwrap(schedule)).endswith(f"schedules/{schedule.name}.py")


def test_a_closed_form_that_is_not_there():
    with pytest.raises(AttributeError, match=r"unknown closed form costs\.flash9; known forms are .*flash2"):
        _ = costs.flash9
