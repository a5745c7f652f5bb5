"""Tests of the package layers of CONTRIBUTING.md: imports go upwards only, no cycles, short listings."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "iocourse"

# A layer may import the layers before it, and itself.
ROOMS = (
    "errors", "files", "sizes", "solution_guard", "console", "discovery", "ledger", "exact", "masks",
    "monomials", "machine", "costs", "bounds", "sweeps", "pebbling", "schedules", "data", "gpu", "doctor",
    "kernels", "traffic", "lowrank", "distributed", "explore", "course", "grade", "count", "profile", "cli",
    "__main__",
)  # fmt: skip
# Within a layer of several folders, each imports only those before it.
FLOORS = {
    "explore": ("draw", "models", "figures", "widgets"),
}
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
    for at, folder in enumerate(order):
        below = tuple(f"iocourse.{room}.{name}." for name in order[at + 1 :])
        for path in (HOUSE / room / folder).rglob("*.py"):
            assert not [name for name in imports(path) if f"{name}.".startswith(below)], path


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
