"""Tests of docs/guide/reading-the-code.md: its files and names exist (test_printed_examples.py runs it)."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from printed_examples import examples

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "reading-the-code.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTION = re.compile(
    r"^## \d\. .*?: `(?P<file>[\w/]+\.py)`$\n(?P<text>.*?)(?=^## )", re.DOTALL | re.MULTILINE
)
SECTIONS = dict(SECTION.findall(TEXT))
EXAMPLES = examples(PAGE)


@cache
def names_in(file: Path) -> set[str]:
    """Return the names that a file defines or imports; methods as Class.name and as name."""
    tree, found = ast.parse(file.read_text(encoding="utf-8")), set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
            found |= methods | {f"{node.name}.{method}" for method in methods}
    return found


def file_with(names: list[str]) -> str:
    """The file of the package that has most of these names, for the message."""
    files = sorted((ROOT / "iocourse").rglob("*.py"))
    best = max(files, key=lambda file: len(names_in(file) & {*names}))
    found = [name for name in names if name in names_in(best)]
    return f"{best.relative_to(ROOT).as_posix()} has {', '.join(found)}" if found else "no file has its names"


def test_five_files_and_an_example_for_each():
    assert (
        len(SECTIONS) == len(EXAMPLES) == TEXT.count("\n**Question:**") == TEXT.count("<summary>Answer") == 5
    )


@pytest.mark.parametrize("file", SECTIONS)
def test_the_file_and_the_names_to_look_at_exist(file):
    path = ROOT / file
    items = re.findall(r"^\d\. (.*)$", SECTIONS[file], re.MULTILINE)
    names = re.findall(r"`([\w.]+)`", "\n".join(items))
    assert len(items) >= 3 and len(names) >= 3
    assert path.is_file(), f"{PAGE.name}: there is no {file}; {file_with(names)}"
    for name in names:
        assert name in names_in(path), f"{PAGE.name}: {file} has no {name}; {file_with([name])}"


@pytest.mark.parametrize("file", re.findall(r"`((?:iocourse|tests|docs|tools)/[\w/]+\.\w+)`", TEXT))
def test_every_other_file_it_names_exists(file):
    assert (ROOT / file).is_file()
