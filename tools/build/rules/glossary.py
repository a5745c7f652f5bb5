"""Check the glossary of the notation page against the lessons: every term is defined where the page states.

A row of the table holds a term of the course, the terms of the literature, the lesson that defines it,
and its meaning; commas separate variants. In the lessons of `STRICT` a definition is the term in italics
(once) or, without italics, in bold; italics of the term are in no other of these lessons. That lesson
also has one of the literature's terms, and the lessons of `STRICT` together use the term at least three
times. For other lessons, the term occurs in the named lesson.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.build.percent_format import parse, shown, side

PAGE = Path("lessons") / "notation.md"
STRICT = re.compile(r"0\d")  # lessons whose definitions are in italics
WORDS = "In the literature's words"  # begins the line of a lesson that connects its terms with published ones
LEAST = 3  # uses of a term in the lessons of STRICT
_TITLE, _HEADER = "## Glossary", "| Term | In the literature | Lesson | Meaning |"
_CODE = re.compile(r"<!--.*?-->|\]\([^)]*\)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One row of the glossary and its line of the page."""

    line: int
    terms: tuple[str, ...]
    literature: tuple[str, ...]  # without sources, which are in brackets
    lesson: str


def problems(root: Path) -> list[str]:
    """Return ``file:line: message`` for each row that the lessons do not confirm. No page: no rows."""
    path = root / PAGE
    if not path.exists() or _TITLE not in (page := path.read_text(encoding="utf-8")):
        return []
    texts = {
        file.stem.split("_")[0]: text_of(file) for file in sorted((root / "solutions").glob("[0-9]*.py"))
    }
    found = [
        f"solutions/{name}_*.py: the lesson has no line '{WORDS}': add it to the take-away"
        for name, text in texts.items()
        if STRICT.match(name) and f"**{WORDS}**" not in text
    ]
    rows = list(rows_of(page))
    if not rows:
        found.append(f"{PAGE.as_posix()}: the glossary has no rows below {_HEADER!r}")
    for row in rows:
        found += (f"{PAGE.as_posix()}:{row.line}: {said}" for said in _faults(row, texts))
    return found


def rows_of(page: str) -> Iterator[Row]:
    """Yield the rows of the table below the heading Glossary."""
    lines = page.splitlines()
    start = lines.index(_TITLE)
    for n, line in enumerate(lines[start + 1 :], start + 2):
        if line.startswith("## "):
            return
        if line.startswith("| ") and line != _HEADER and not line.startswith("| ---"):
            term, literature, lesson, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            others = [one for one in re.sub(r" ?\([^)]*\)", "", literature).split(", ") if one]
            yield Row(
                n,
                tuple(term.replace("`", "").split(", ")),
                tuple(others),
                lesson,
            )


def text_of(source: Path) -> str:
    """Return the Markdown of a student's notebook, on one line, without comments and targets of links."""
    cells = parse(source.read_text(encoding="utf-8"), source)
    texts = [
        "\n".join(side(cell, solved=False))
        for cell in cells
        if cell.kind == "markdown" and shown(cell, solved=False)
    ]
    return " ".join(_CODE.sub("", "\n".join(texts)).split())


def _faults(row: Row, texts: Mapping[str, str]) -> Iterator[str]:
    if row.lesson not in texts:
        yield f"lesson {row.lesson!r} does not exist; name the lesson that defines {', '.join(row.terms)}"
        return
    strict = {name: text for name, text in texts.items() if STRICT.match(name)}
    for term in row.terms:
        if row.lesson not in strict:
            if not _used(term, texts[row.lesson]):
                yield f"{term!r} does not occur in lesson {row.lesson}; name the lesson that defines it"
            continue
        defined = [name for name, text in strict.items() for _ in _marked(term, "*").findall(text)]
        bold = not defined and _marked(term, "**").search(strict[row.lesson])
        if defined != [row.lesson] and not bold:
            where = ", ".join(defined) or "no lesson"
            yield f"*{term}* must be in italics once, where lesson {row.lesson} defines it; found in {where}"
        if (uses := sum(map(len, (_used(term, text) for text in strict.values())))) < LEAST:
            yield f"{term!r} is used {uses} times in lessons 00 to 09b, expected at least {LEAST}"
    known = row.literature
    if row.lesson in strict and known and not any(_used(one, texts[row.lesson]) for one in known):
        yield f"lesson {row.lesson} names none of {', '.join(known)}; add one to the line '{WORDS}'"


def _marked(term: str, stars: str) -> re.Pattern[str]:
    mark = re.escape(stars)
    return re.compile(rf"(?<!\*){mark}{_pattern(term)}{mark}(?!\*)", re.IGNORECASE)


def _used(term: str, text: str) -> list[str]:
    return re.findall(rf"\b{_pattern(term)}\b", text, re.IGNORECASE)


def _pattern(term: str) -> str:
    """Return a pattern of the term that allows a plural and either dash or hyphen."""
    return re.sub(r"\\?[-–]", "[-–]", re.escape(term)) + "(?:s|es)?"
