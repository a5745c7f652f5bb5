"""Tests of the package layers of CONTRIBUTING.md: a library that does not know the course, and no cycles."""

import ast
from functools import cache
from pathlib import Path

import pytest

import iocourse
from iocourse import cli

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "iocourse"

# A layer may import the layers before it, and itself.
ROOMS = (
    "errors", "files", "sizes", "console", "discovery", "ledger", "exact", "masks", "monomials", "machine",
    "costs", "bounds", "sweeps", "pebbling", "schedules", "data", "gpu", "doctor", "kernels", "traffic",
    "lowrank", "distributed", "count", "profile", "cli", "__main__", "course",
)  # fmt: skip
# In these folders a part imports only parts that stand before it, and itself.
FLOORS = {
    "course.explore": ("draw", "models", "figures", "widgets"),
    "course": ("guard", "explore", "exercises", "grade"),
}
# What a check runs may not contain an answer: no figure, no kernel, no schedule that can be run. Lesson 17
# compares the closed forms of schedules, with their tiles.
CHECKS = ("exercises", "kinds", "trials")
ANSWERS = ("iocourse.course.explore", "iocourse.kernels", "iocourse.lowrank", "iocourse.schedules")
FILES = sorted(path for path in HOUSE.rglob("*.py"))


def module_of(path: Path) -> str:
    """Return the dotted module name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports anywhere, also in functions or for types only."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else base for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name for name in found if name in MODULES)


def room_of(module: str) -> str:
    """Return the subpackage of a module; "" for `iocourse` itself."""
    return module.split(".")[1] if "." in module else ""


def test_every_room_is_in_the_picture():
    assert {room_of(module) for module in MODULES} - {""} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_room_imports_only_rooms_above_it(path):
    room = room_of(module_of(path))
    above = {"", *ROOMS[: ROOMS.index(room) + 1]} if room else {"", *ROOMS}
    assert {name for name in imports(path) if room_of(name) not in above} == set()


@pytest.mark.parametrize("room", FLOORS)
def test_folders_of_a_room_import_only_those_before_them(room):
    order = FLOORS[room]
    for at, part in enumerate(order):
        inside, below = f"iocourse.{room}.{part}.", [f"iocourse.{room}.{name}." for name in order[at + 1 :]]
        ours = [path for name, path in MODULES.items() if f"{name}.".startswith(inside)]
        assert ours
        for path in ours:
            assert not [name for name in imports(path) if f"{name}.".startswith(tuple(below))], path


@pytest.mark.parametrize("part", CHECKS)
def test_what_a_check_runs_imports_no_answer(part):
    ours = [path for name, path in MODULES.items() if f"{name}.".startswith(f"iocourse.course.{part}.")]
    assert ours
    for path in ours:
        found = {name for name in imports(path) if f"{name}.".startswith(tuple(f"{one}." for one in ANSWERS))}
        assert found <= ({"iocourse.schedules"} if path.name == "lesson17.py" else set()), path


def test_the_library_names_the_course_in_one_place_only():
    """The command line looks the commands of the course up; and the package tells where moved modules are."""
    found = set()
    for name, path in MODULES.items():
        if room_of(name) == "course":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        found |= {(name, text) for text in texts if isinstance(text, str) and "iocourse.course" in text}
        found |= {(name, one) for one in imports(path) if room_of(one) == "course"}
    assert {(name, text) for name, text in found if name != "iocourse"} == {("iocourse.cli", cli.COURSE)}
    moved = {place for place in iocourse._MOVED.values() if place.startswith("iocourse.course")}
    assert {text for name, text in found if name == "iocourse"} == moved


def test_no_two_files_import_each_other_by_any_way_round():
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " imports ".join((*way[way.index(module) :], module))
        if module in done:
            return
        for name in sorted(imports(MODULES[module])):
            if MODULES[name].name != "__init__.py":  # a face gathers what stands in its folder
                visit(name, (*way, module))
        done.add(module)

    for module in sorted(MODULES):
        if MODULES[module].name != "__init__.py":
            visit(module, ())


def test_one_spelling_of_low_rank_in_file_names():
    found = {path.relative_to(HOUSE).as_posix() for path in FILES if "low_rank" in path.name}
    # A schedule's file has its name, and the first of these is in the contract.
    assert found == {"schedules/low_rank.py", "schedules/low_rank_backward.py"}
