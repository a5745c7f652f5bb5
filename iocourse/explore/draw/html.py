"""Text beside a picture, as HTML: a paragraph of lines, a table."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def bold(text: str, really: bool = True) -> str:
    """Text in bold, where it `really` is to be."""
    return f"<b>{text}</b>" if really else text


def paragraph(lines: Iterable[str]) -> str:
    """Lines of HTML as the text beside a picture."""
    return f'<div style="font-size:14px;line-height:1.5">{"<br>".join(lines)}</div>'


def in_html(lines: Iterable[str]) -> str:
    """Plain lines as the text beside a picture, the first in bold."""
    first, *others = (escape(line) for line in lines)
    return paragraph([bold(first), *others])


def as_table(rows: Iterable[Iterable[str]]) -> str:
    """Rows of text as a table, the first row in bold; numbers to the right."""
    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in body]
    look = "font-size:13px;line-height:1.4;text-align:right;border-collapse:separate;border-spacing:18px 1px"
    return f'<table style="{look}">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'
