"""Algorithm boxes of the lessons: the words of their lines equal the closed form and the ledger of a run.

A box is a markdown table below the comment `<!-- algorithm NAME -->`, where NAME is a schedule:

    | | **Name of the schedule.** Resident: $Q_i$, $O_i$. Streamed: $K_j$, $V_j$. | words |
    | --- | :--- | ---: |
    | 1 | **for** each query block $i$ | |
    | 2 | &emsp; load $Q_i$ | $Nd$ |

A line that moves words contains `load` or `store`, followed by its arrays. Its words are those of the whole
run, in terms of N, d, tile sizes such as $B_r$ and numbers of blocks such as $T_r$. The words of several
arrays in one line are divided between them in proportion to their sizes.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from iocourse import run, schedules
from iocourse.costs import ceil_div
from tools.build.percent_format import Cell, parse

pytestmark = pytest.mark.quick

SOURCES = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9]*.py"))
MARK = re.compile(r"<!-- algorithm (\w+) -->")
HEAD = re.compile(r"Resident: (.+?)\. Streamed: (.+?)\.")
MOVES = re.compile(r"\b(load|store)\s+(\$[^$]+\$(?:(?:,? and |, )\$[^$]+\$)*)")
SYMBOL = re.compile(r"\\ell|d?[A-Za-z]")
LETTERS = {r"\ell": "l", "L": "LSE"}
OPERANDS = {"m": "maxima", "l": "sums"}  # row statistics that a schedule is passed instead of creating them
ALONG_D = ("Bd",)  # tiles that divide the columns; all others divide the N rows
LEAST, MOST = 8, 10  # lines


@dataclass(frozen=True)
class Box:
    """One box of a lesson.

    Attributes:
        schedule: name of the schedule.
        cell: position of its markdown cell in the lesson.
        below: text of this cell below the table.
        rows: cells of each row of the table, the first two of them its head.
    """

    schedule: str
    cell: int
    below: str
    rows: list[list[str]]

    @property
    def lines(self) -> list[list[str]]:
        return self.rows[2:]


def boxes_of(cells: list[Cell]) -> list[Box]:
    found = []
    for n, cell in enumerate(cells):
        text = "\n".join(cell.lines) if cell.kind == "markdown" else ""
        for mark in MARK.finditer(text):
            table = re.match(r"\n+((?:\|.*\|\n?)*)", text[mark.end() :])
            rows = [[part.strip() for part in row[1:-1].split("|")] for row in table[1].splitlines()]
            below = text[mark.end() + table.end() :]
            found.append(Box(mark[1], n, below, rows))
    return found


def names_in(text: str) -> list[str]:
    """Names that the ledger has for the symbols of a text: O for $O_i$, l for $\\ell$."""
    symbols = (re.sub(r"_(\{.*?\}|.)$", "", symbol) for symbol in re.findall(r"\$([^$]+)\$", text))
    return [LETTERS.get(symbol, symbol) for symbol in symbols]


def arrays_in(text: str, arrays: list[str]) -> list[str]:
    """Names of `arrays`, those of a ledger, for the symbols of a text."""
    return [OPERANDS.get(name, name) if name not in arrays else name for name in names_in(text)]


def value_of(formula: str, sizes: dict[str, int]) -> int:
    """Evaluate sums and products such as $2T_rNd$ or $(T_c + 1)(Nd + 2N)$."""
    plain = re.sub(r"\\,|[${}\s]", "", formula)
    tokens = re.findall(r"\d+|[A-Z]_[a-z]\d?|[A-Za-z]|\^|\S", plain)
    code, last = "", ""
    for token in tokens:
        factor = token in sizes or token.isdigit() or token == "("
        if not factor and token not in "+-)^":
            raise ValueError(f"{token!r} in {formula} is not a size or an operation")
        code += " * " if factor and last and last not in "+-(^" else ""
        code += "**" if token == "^" else str(sizes.get(token, token))
        last = token
    return eval(code, {"__builtins__": {}})


# ------------------------------------------------------------------ faults of one box
def faults_of_form(box: Box):
    """Yield what is wrong with the head and the lines."""
    if len(box.rows) < 2 or [len(row) for row in box.rows] != [3] * len(box.rows):
        yield "not a table of three columns"
        return
    heads = HEAD.findall(box.rows[0][1])
    if not re.match(r"\*\*.+?\.?\*\*", box.rows[0][1]) or not heads or box.rows[0][2] != "words":
        yield "the head must be **Name.** Resident: …. Streamed: …. | words"
    if box.rows[1] != ["---", ":---", "---:"]:
        yield "the second row must be --- | :--- | ---:"
    if not LEAST <= len(box.lines) <= MOST:
        yield f"{len(box.lines)} lines, expected {LEAST} to {MOST}"
    if [line[0] for line in box.lines] != [str(n) for n in range(1, len(box.lines) + 1)]:
        yield "the lines are not numbered 1, 2, 3, …"
    loaded, used = set(), set()
    for n, text, words in box.lines:
        moves = MOVES.findall(text)
        used |= {symbol for math in re.findall(r"\$([^$]+)\$", text) for symbol in SYMBOL.findall(math)}
        if len(re.findall(r"\b(?:load|store)", text)) != bool(words) or len(moves) != bool(words):
            yield f"line {n}: words belong to a line with one load or store and its arrays"
        loaded |= {name for kind, arrays in moves if kind == "load" for name in names_in(arrays)}
    for resident, streamed in heads:
        stay, stream = set(names_in(resident)), set(names_in(streamed))
        if both := stay & stream:
            yield f"resident and streamed: {sorted(both)}"
        if missing := stream - loaded:
            yield f"streamed, but no line loads it: {sorted(missing)}"
        if missing := stay - {LETTERS.get(symbol, symbol) for symbol in used}:
            yield f"resident, but in no line: {sorted(missing)}"


def faults_of_words(box: Box, rng: np.random.Generator):
    """Yield each difference to the closed form and to a run, at one random size with partial last blocks."""
    schedule = schedules.get(box.schedule)
    N, d = map(int, rng.integers((11, 5), (60, 20)))
    tiles = {name: int(rng.integers(2, 4 if name in ALONG_D else 9)) for name in schedule.tile_names}
    sizes = {"N": N, "d": d}
    for name, size in tiles.items():
        sizes |= {f"B_{name[1:]}": size, f"T_{name[1:]}": ceil_div(d if name in ALONG_D else N, size)}
    closed = schedule.cost(N, d, **tiles)
    ledger = run(schedule, M=closed.peak, dry=True, **schedule.shapes(N, d), **tiles).ledger
    moved = {"load": Counter(), "store": Counter()}
    total = 0
    for n, text, words in box.lines:
        for kind, arrays in MOVES.findall(text):
            names = arrays_in(arrays, ledger.arrays)
            if missing := [name for name in names if name not in ledger.arrays]:
                yield f"line {n}: {missing} not in the ledger, which has {ledger.arrays}"
                return
            value = value_of(words, sizes)
            total += value
            whole = sum(closed.sizes[name] for name in names)
            for name in names:
                moved[kind][name] += Fraction(value * closed.sizes[name], whole)
    here = f"at N = {N}, d = {d}, {tiles}"
    if total != closed.total:
        yield f"{total} words in all, closed form {closed.total} {here}"
    for kind, measured in (("load", ledger.reads), ("store", ledger.writes)):
        for name in ledger.arrays:
            if moved[kind][name] != measured.get(name, 0):
                yield f"{kind} {name}: {moved[kind][name]} words, ledger {measured.get(name, 0)} {here}"
    for _, streamed in HEAD.findall(box.rows[0][1]):
        for name in arrays_in(streamed, ledger.arrays):
            if ledger.reads.get(name, 0) <= closed.sizes[name]:
                yield f"{name} is called streamed, but is read once at most {here}"


def faults_of_place(box: Box, cells: list[Cell]):
    """Yield why the box is too early: above the check of its exercise, or above a prediction's answer."""
    own = (cell.name for cell in cells if f"def my_{box.schedule}(" in "\n".join(cell.lines))
    exercise = next((name for name in own if name.startswith("ex-")), "")
    checks = [cell.name for cell in cells[: box.cell] if "check" in cell.tags]
    if not checks or (exercise and exercise.replace("ex-", "check-") not in checks):
        yield "the box is above the check of its exercise"
    rest = "\n".join([box.below, *("\n".join(cell.lines) for cell in cells[box.cell + 1 :])])
    section = rest.partition("\n## ")[0]
    if "**Predict**" in section or "measured(" in section:
        yield "a prediction of its section is below the box"


def faults(box: Box, cells: list[Cell]) -> list[str]:
    found = [*faults_of_form(box), *faults_of_place(box, cells)]
    rng = np.random.default_rng(44)
    return found or [fault for _ in range(25) for fault in faults_of_words(box, rng)]


# ------------------------------------------------------------------ tests
LESSONS = {path.name.split("_")[0]: parse(path.read_text(encoding="utf-8"), path) for path in SOURCES}
BOXES = [(lesson, box) for lesson, cells in LESSONS.items() for box in boxes_of(cells)]


@pytest.mark.parametrize(("lesson", "box"), BOXES, ids=[f"{number}-{box.schedule}" for number, box in BOXES])
def test_the_lines_hold(lesson, box):
    assert faults(box, LESSONS[lesson]) == []


def test_both_loop_orders_of_lesson_04_have_a_box():
    assert {"flash2", "flash1"} <= {box.schedule for lesson, box in BOXES if lesson == "04"}


def changed(cells, old, new):
    """The cells with `old` replaced in the first cell that has it."""
    n = next(n for n, cell in enumerate(cells) if old in "\n".join(cell.lines))
    text = "\n".join(cells[n].lines).replace(old, new, 1)
    return [*cells[:n], Cell("markdown", tuple(text.split("\n"))), *cells[n + 1 :]]


FAULTS = {  # in the box of flash2 in lesson 04
    "too many words": ("| $2T_r Nd$ |", "| $2T_c Nd$ |", "words in all, closed form"),
    "words of another array": ("load $Q_i$", "load $K_i$", "load Q: 0 words, ledger"),
    "unknown array": ("load $Q_i$", "load $P_i$", "['P'] not in the ledger"),
    "words without a move": ("&emsp; load $Q_i$", "&emsp; take $Q_i$", "one load or store and its arrays"),
    "no words": ("&emsp; store $O_i$ | $Nd$ |", "&emsp; store $O_i$ | |", "one load or store and its arrays"),
    "a line less": ("| 1 | **for** each query block $i$ | |\n", "", "the lines are not numbered"),
    "a line more": ("| 9 | &emsp; divide", "| 9 | | |\n| 9 | &emsp; divide", "11 lines, expected 8 to 10"),
    "no streamed arrays": (" Streamed: $K_j$, $V_j$.", "", "the head must be"),
    "resident is streamed": ("Streamed: $K_j$, $V_j$.", "Streamed: $K_j$, $Q_i$.", "and streamed: ['Q']"),
    "streamed is resident": (
        "Resident: $Q_i$, $O_i$, $m$, $\\ell$. Streamed: $K_j$, $V_j$.",
        "Resident: $V_j$, $O_i$, $m$, $\\ell$. Streamed: $K_j$, $Q_i$.",
        "Q is called streamed, but is read once at most",
    ),
    "never loaded": ("Streamed: $K_j$, $V_j$.", "Streamed: $K_j$, $S_j$.", "no line loads it: ['S']"),
    "resident but not used": ("Resident: $Q_i$, $O_i$", "Resident: $Q_i$, $X_i$", "in no line: ['X']"),
    "a column less": ("| words |", "|", "not a table of three columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_box_is_found(name):
    old, new, message = FAULTS[name]
    cells = changed(LESSONS["04"], old, new)
    box = next(box for box in boxes_of(cells) if box.schedule == "flash2")
    assert message in "\n".join(faults(box, cells))


@pytest.mark.parametrize(
    ("below", "message"),
    [
        ("ex-4A", "above the check of its exercise"),
        ("predict", "a prediction of its section is below the box"),
    ],
)
def test_a_box_that_is_too_early_is_found(below, message):
    cells = LESSONS["04"]
    box = next(box for box in boxes_of(cells) if box.schedule == "flash2")
    at = next(n for n, cell in enumerate(cells) if below in (cell.name, *cell.tags))
    assert message in "\n".join(faults(replace(box, cell=at - 1, below=""), cells))


@pytest.mark.parametrize("formula", ["$2T_x Nd$", "$N/d$", "$N$ words"])
def test_words_must_be_a_formula_of_sizes(formula):
    with pytest.raises((ValueError, SyntaxError)):
        value_of(formula, {"N": 7, "d": 3, "T_r": 2})


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("$Nd$", 21),
        ("$2T_r Nd$", 84),
        ("$(T_r + 1)(Nd + 2N)$", 105),
        ("$T_{r}N\\,d - N^2$", -7),
        ("$N(2d)$", 42),
    ],
)
def test_words_are_evaluated(formula, value):
    assert value_of(formula, {"N": 7, "d": 3, "T_r": 2}) == value
