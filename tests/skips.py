"""Conditions under which tests do not run, with reasons: `python -m tests.skips` lists them from the sources.

unless_installed("furo")    skips the calling module where a package is missing
hidden(reasons)             the reasons that must not occur in CI
listed()                    every condition in the sources of the tests
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
# With CI=true on Linux a test may be skipped only for these reasons: the start of the reason, and why CI does
# not run the test. On macOS and Windows the workflow installs neither torch nor Triton, so tests are skipped.
ALLOWED_IN_CI = {
    "no CUDA GPU": "the runners of CI have no GPU",
    "4 GB of address space": "the machine limits the memory of a process",
    "the variables that simulate another processor": "the processor is not an x86-64",
    "this processor has no AVX2": "the processor is as old as the simulated one",
    "seen on Linux, with Python 3.11 and 3.12": "the test concerns these versions of Python",
    "IOCOURSE_LITE names no folder": "jupyterlite.yml builds the pages and runs this test",
    "no weights": "the model is needed only to make the stored attention heads again",
    "no recorded run": "there is no record to test yet",
    "the goals were renewed from another record": "the test concerns an older record",
    "no git checkout to compare with": "an archive of the sources has no list of tracked files",
    "torch has no negative strides": "this combination of parameters does not exist",
    "a gradient that autograd brings": "this combination of parameters does not exist",
}
MISSING = ("pytest.importorskip", "skips.unless_installed")
SKIPPED = ("pytest.skip", "pytest.xfail", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")
BY_NAME = "files that run only by their names"
SKIP = "skipped tests"
MARKED = {
    "quick": "-m quick runs only tests with this marker",
    "security": "the summary prints a red line if these tests were skipped",
}


def unless_installed(*packages: str) -> None:
    """Skip the module that calls this unless all of these are installed.

    Tests import them where they use them: every worker imports every module, and runs a share of the tests.
    """
    for name in packages:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed: the extra `test` brings it", allow_module_level=True)


def hidden(reasons: Iterable[str]) -> list[str]:
    """Return the reasons of skips that must not occur in CI, sorted; none elsewhere."""
    if os.environ.get("CI") != "true" or not sys.platform.startswith("linux"):
        return []
    return sorted({reason for reason in reasons if not reason.startswith(tuple(ALLOWED_IN_CI))})


# ---- the list --------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """A place in the tests that decides whether a test runs."""

    kind: str
    reason: str
    condition: str
    place: str

    @property
    def in_ci(self) -> str:
        """The rule of CI for a test that is skipped for this reason."""
        allowed = [why for start, why in ALLOWED_IN_CI.items() if self.reason.startswith(start)]
        return f"allowed in CI, because {allowed[0]}" if allowed else "fails a run in CI on Linux"


def listed(folder: Path = HERE) -> list[Condition]:
    """Return all conditions in the files of a folder of tests, sorted."""
    return sorted({one for path in folder.rglob("*.py") for one in _conditions(path, folder)})


def _conditions(path: Path, folder: Path) -> Iterator[Condition]:
    tree, name = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(folder.parent).as_posix()
    if not path.name.startswith("test_") and any(map(_is_test, tree.body)):
        yield Condition(BY_NAME, " ".join((ast.get_docstring(tree) or "").split()), "", name)
    for node, guards, test in _guarded(tree):
        place, called = f"{name}:{getattr(node, 'lineno', 1)}", isinstance(node, ast.Call)
        what = _dotted(node.func if called else node)
        condition = " and ".join(guards)
        if called and what in MISSING:
            for package in node.args:
                yield Condition(SKIP, f"{_text(package)} is not installed", condition, place)
        elif called and what in SKIPPED:
            reason = [one.value for one in node.keywords if one.arg == "reason"] or node.args
            own = [ast.unparse(one) for one in node.args if one not in reason]
            yield Condition(SKIP, _text(reason[0]) if reason else "", " and ".join([*own, *guards]), place)
        elif isinstance(node, ast.Import) and node.names[0].name == "skip_without_interpreter":
            yield Condition(SKIP, "Triton cannot interpret kernels", "import skip_without_interpreter", place)
        elif called and what == "many":
            few, every = map(ast.unparse, node.args)
            yield Condition("samples", "IOCOURSE_LONG=1 runs all", f"{few} instead of {every}", place)
        elif isinstance(node, ast.Attribute) and what.removeprefix("pytest.mark.") in MARKED:
            marker = what.removeprefix("pytest.mark.")
            yield Condition(f"tests marked {marker}", MARKED[marker], "", place)
        elif isinstance(node, ast.Return) and test and guards:
            yield Condition("tests that end early", "the remaining lines do not apply", condition, place)


def _guarded(tree: ast.Module) -> Iterator[tuple[ast.AST, tuple[str, ...], bool]]:
    """Yield each node below a module, the conditions of the `if`s around it, and whether it is in a test."""
    waiting: list[tuple[ast.AST, tuple[str, ...], bool]] = [(tree, (), False)]
    while waiting:
        node, guards, test = waiting.pop()
        body = node.body if isinstance(node, ast.If) else []
        for child in ast.iter_child_nodes(node):
            around, inside = (*guards, ast.unparse(node.test)) if child in body else guards, test
            if isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
                around, inside = (), isinstance(child, ast.FunctionDef) and _is_test(child)
            waiting.append((child, around, inside))
            yield waiting[-1]


def _dotted(node: ast.AST) -> str:
    """Return a name with its attributes, such as pytest.mark.skip; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def _text(node: ast.expr) -> str:
    """Return the text of a string, with the expressions in it, or the source of another expression."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return re.sub(r"^f(['\"])(.*)\1$", r"\2", ast.unparse(node), flags=re.DOTALL)
    return ast.unparse(node)


def main() -> None:
    """Print the conditions by kind and reason."""
    found = listed()
    for kind in sorted({one.kind for one in found}):
        of_kind = [one for one in found if one.kind == kind]
        print(f"{kind}: {len(of_kind)}")
        for reason in sorted({one.reason for one in of_kind}):
            alike = [one for one in of_kind if one.reason == reason]
            print(f"  {reason}{f' ({alike[0].in_ci})' if kind == SKIP else ''}")
            for one in alike:
                print(f"    {one.place}{f': {one.condition}' if one.condition else ''}")


if __name__ == "__main__":
    main()
