"""A changed record, default or data sheet names every sentence that it makes false.

Twenty changes are drawn with a fixed seed. For each, an oracle of this file evaluates all declarations and
compares their values with the written numbers; the build must name each sentence that is no longer true.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iocourse.data import records
from iocourse.gpu import CHIPS, choices
from tools.build.percent_format import parse
from tools.build.rules import declared_numbers, number_check, number_pages
from tools.build.rules.number_check import CheckedText, Passage

ROOT = Path(__file__).parents[2]
# Declarations that can read a record, a default or a data sheet.
READING = re.compile(
    r"<!-- .*\b(?:rows?|speeds|mean|device|goal|tile|launch|load_record|choice|choices|CHIPS|LINKS"
    r"|roofline|gpu|kernels)\b.* -->"
)
DECLARATION = re.compile(r'<!-- (?P<left>"[^"]*"|\S.*?) (?P<sign>=|if) (?P<right>.*\S) -->')
NAMES = re.compile(r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*")
Change = Callable[[pytest.MonkeyPatch, Path], None]
Path_ = tuple[str | int, ...]  # of a value in a record


@dataclass(frozen=True)
class Text:
    """A lesson, page or module that has a declaration of `READING`."""

    name: str
    passages: list[Passage]
    shown: number_check.Evidence
    labels: set[str]

    def problems(self) -> list[tuple[int, str]]:
        """Return what the build reports of this text."""
        return CheckedText(self.passages, self.labels, self.shown).problems


@cache
def texts() -> list[Text]:
    """Return every text of the project that reads a record, a default or a data sheet."""
    lessons = {path: parse(path.read_text(encoding="utf-8"), path) for path in ROOT.glob("solutions/*.py")}
    labels = number_check.course_labels(list(lessons.values()))
    found = []
    for path, cells in sorted(lessons.items()):
        if READING.search(path.read_text(encoding="utf-8")):
            solved = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
            passages, shown = number_check.lesson_passages(cells, solved)
            found.append(Text(path.name, passages, shown, labels))
    for path, passages in number_pages.text_passages(ROOT):
        if any(READING.search("\n".join(passage.lines)) for passage in passages):
            found.append(Text(path.name, passages, [], labels))
    return found


# ---- the oracle --------------------------------------------------------------------------------------------


def false_numbers(names: Collection[str] = ()) -> set[tuple[str, int, str]]:
    """Return (text, first line of the passage, written number or words) of what is not true at present.

    names: the texts to evaluate; by default all.
    """
    chosen = [text for text in texts() if not names or text.name in names]
    return {found for text in chosen for found in _false_in(text)}


def _false_in(text: Text) -> Iterator[tuple[str, int, str]]:
    known: dict[str, Any] = {}
    for passage in text.passages:
        for line in passage.lines:
            declared = DECLARATION.fullmatch(line.strip().removeprefix("# "))
            if not declared or line.strip().startswith("<!-- ("):
                continue
            left, right = declared["left"], declared["right"]
            parts = [left] if left.startswith('"') else left.split(", ")
            values = _values(right, len(parts), known)
            if NAMES.fullmatch(left):
                known |= dict(zip(parts, values, strict=True)) if values else {}
                continue
            for n, part in enumerate(parts):
                if values is None or not _is_true(part, values[n]):
                    yield text.name, passage.line, part.strip('"')


def _values(expression: str, wanted: int, known: dict[str, Any]) -> list[Any] | None:
    """Return the values of an expression; None if it raises an error, as it then confirms nothing."""
    names = declared_numbers.used_names(expression)
    try:
        declared_numbers.import_submodules(declared_numbers.parse(expression))
        scope = {name: known[name] if name in known else declared_numbers.look_up(name) for name in names}
        value = eval(expression, scope)
        return [value] if wanted == 1 else list(value)
    except Exception:
        return None


def _is_true(written: str, value: Any) -> bool:
    if written.startswith('"'):
        return bool(value)
    plain = re.sub(r"(?<=\d)(?:,|\{,\}|\\,)(?=\d{3})", "", written).replace("−", "-")
    if " × " in plain or r"\times" in plain:
        return tuple(value) == tuple(int(size) for size in re.split(r" ?(?:×|\\times) ?", plain))
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", plain):
        return True  # a power of ten, which no declaration of a record has
    half = 0.5 * 10.0 ** -len(plain.partition(".")[2]) * (1 + 1e-9)
    return min(abs(float(value) - float(plain)), abs(abs(float(value)) - float(plain))) <= half


# ---- the changes -------------------------------------------------------------------------------------------


class Watched(dict):  # type: ignore[type-arg]
    """A part of a record that notes which of its numbers are read."""

    def __init__(self, part: dict[str, Any], at: Path_, read: set[Path_]) -> None:
        super().__init__({key: watched(value, (*at, key), read) for key, value in part.items()})
        self.at, self.read = at, read

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is float:
            self.read.add((*self.at, key))
        return value


def watched(value: Any, at: Path_, read: set[Path_]) -> Any:
    """Return a copy of a record that notes in `read` the places of the floats that are taken from it."""
    if isinstance(value, dict):
        return Watched(value, at, read)
    if isinstance(value, list):
        return [watched(one, (*at, n), read) for n, one in enumerate(value)]
    return value


def fields_read(monkeypatch: pytest.MonkeyPatch) -> dict[Path_, set[str]]:
    """Return the places of all numbers in records that declarations read, with the names of their texts."""
    readers: dict[Path_, set[str]] = {}
    load = records.load_record
    for text in texts():
        read: set[Path_] = set()
        with monkeypatch.context() as patch:
            patch.setattr(records, "load_record", lambda name, read=read: watched(load(name), (name,), read))
            false_numbers([text.name])
        for at in read:
            readers.setdefault(at, set()).add(text.name)
    return readers


def shuffled(fields: Collection[Path_]) -> list[Path_]:
    """Return the fields in a random order in which the records alternate."""
    drawn = random.Random(56).sample(sorted(fields, key=str), len(fields))
    before: Counter[str | int] = Counter()
    turn = {}
    for at in drawn:
        turn[at] = before[at[0]]
        before[at[0]] += 1
    return sorted(drawn, key=lambda at: turn[at])


def times_1_3(at: Path_) -> Change:
    """Return the change that multiplies one number of a record by 1.3."""

    def change(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        shutil.copytree(ROOT / "iocourse" / "data" / "bench", folder / "bench")
        file = folder / "bench" / f"{at[0]}.json"
        record = json.loads(file.read_text(encoding="utf-8"))
        part = record
        for key in at[1:-1]:
            part = part[key]
        part[at[-1]] *= 1.3
        file.write_text(json.dumps(record), encoding="utf-8")
        monkeypatch.setattr(records, "resources", SimpleNamespace(files=lambda package: folder))

    return change


def another_tile(place: tuple[int, int, int], kernel: str) -> Change:
    """Return the change of the default tile of a kernel for an architecture, d and bytes per number."""
    arch, d, itemsize = place
    case = choices.Case(arch, itemsize, d)

    def changed(row: choices.Choice) -> choices.Choice:
        cases = [case._replace(mask=mask) for mask in choices.MASKS]
        decides = row.name == kernel and arch in row.where["arch"] and itemsize in row.where["itemsize"]
        return row._replace(value=[16, 256, 8, 1]) if decides and any(map(row.covers, cases)) else row

    return _other_rows(changed)


def _other_rows(changed: Callable[[choices.Choice], choices.Choice]) -> Change:
    """Return the change of the rows of choices.json by a function of one row."""
    read_rows = choices.read_rows

    def change(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        from iocourse.kernels.host import choices as of_kernels

        for module in (choices, of_kernels):
            monkeypatch.setattr(module, "read_rows", lambda: [changed(row) for row in read_rows()])
        _forget()

    return change


def another_chip(arch: int, field: str) -> Change:
    """Return the change that doubles a number of a data sheet."""
    twice = replace(CHIPS[arch], **{field: 2 * getattr(CHIPS[arch], field)})
    return lambda monkeypatch, folder: monkeypatch.setitem(CHIPS, arch, twice)


def another_choice(name: str, old: str, new: str) -> Change:
    """Return the change of a value of a choice to another one, in every row."""
    return _other_rows(lambda row: row._replace(value=new) if (row.name, row.value) == (name, old) else row)


def changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Change, Collection[str]]]:
    """Yield what is changed, the change, and the texts that may read it (none: any text): ten changes of
    defaults and data sheets, then those of records.
    """
    tiles = [
        ((90, 64, 2), "forward"),
        ((90, 128, 2), "forward"),
        ((90, 64, 2), "fused"),
        ((90, 64, 2), "keys"),
    ]
    for place, kernel in tiles:
        yield f"tile {place} {kernel}", another_tile(place, kernel), ()
    for arch, field in ((90, "shared_bytes"), (90, "registers"), (80, "shared_bytes")):
        yield f"{arch} {field}", another_chip(arch, field), ()
    for name, old, new in (
        ("backward pass", "two-pass", "fused"),
        ("backward pass", "materialised", "slices"),
        ("forward pass", "slices", "complete rows"),
    ):
        yield f"{name} {old}", another_choice(name, old, new), ()
    fields = fields_read(monkeypatch)
    for at in shuffled(fields):
        yield "/".join(map(str, at)), times_1_3(at), fields[at]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear what the library remembers of records and defaults, before and after a change."""
    monkeypatch.setattr(records, "json", SimpleNamespace(loads=cache(json.loads)))  # each text is parsed once
    _forget()
    yield
    _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("iocourse"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "").startswith("iocourse"):
                    value.cache_clear()


def test_every_sentence_is_true_today():
    assert false_numbers() == set()


def test_each_change_names_the_sentences_that_it_makes_false(monkeypatch, tmp_path, fresh):
    """A number of a record that changes no written number, such as one of a minimum, is drawn again."""
    pytest.importorskip("triton")
    named: dict[str, int] = {}
    for n, (what, change, readers) in enumerate(changes(monkeypatch)):
        with monkeypatch.context() as patch:
            _forget()
            change(patch, tmp_path / str(n))
            false = false_numbers(readers)
            if false or "/" not in what:
                named[what] = len(false)
            for text in texts():
                expected = {(line, number) for name, line, number in false if name == text.name}
                if expected:
                    _expect(text, expected, what)
        if len(named) == 20:
            break
    assert len(named) == 20 and sum(map(bool, named.values())) >= 15, named
    assert sum(named.values()) >= 30, named


def _expect(text: Text, expected: set[tuple[int, str]], what: str) -> None:
    """Fail unless the build names a sentence for each number, with its line."""
    problems = text.problems()
    for first, number in expected:
        passage = next(one for one in text.passages if one.line == first)
        last = first + len(passage.lines)
        shorter = number.removesuffix(".0").replace("{,}", ",")
        near = [message.replace("{,}", ",") for line, message in problems if first <= line < last]  # LaTeX
        assert any(shorter in message for message in near), (
            f"{what}: {text.name}:{first}: nothing names {number}"
        )
