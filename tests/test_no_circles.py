"""Data walks one way: no file of the library imports another that imports it back, for types or for work."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import iocourse

ROOT = Path(iocourse.__file__).parent
FILES = {
    ".".join(("iocourse", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported(name, path):
    """The files of the library that this one names in an import at its top level, `if TYPE_CHECKING` too."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.Module(outside_functions(ast.parse(path.read_text())), [])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                found = next((m for m in (f"{module}.{alias.name}", module) if m in FILES), name)
                yield found


def outside_functions(tree):
    """The statements of a file but for its functions, where an import is put off until it is needed."""
    return [part for part in tree.body if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]


def circle(files):
    """A ring of files that import one another, or None."""
    edges = {name: {other for other in imported(name, path) if other != name} for name, path in files.items()}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_two_files_import_each_other():
    assert len(FILES) > 200
    assert circle(FILES) is None


@pytest.mark.parametrize("line", ["from .run import run", "from iocourse.machine import run"])
def test_a_circle_would_be_found_even_for_types(tmp_path, line):
    closed = tmp_path / "tiles.py"
    source = FILES["iocourse.machine.tiles"].read_text()
    closed.write_text(f"{source}\nif TYPE_CHECKING:\n    {line}\n")
    found = circle(FILES | {"iocourse.machine.tiles": closed})
    assert found is not None and "iocourse.machine.tiles" in found
