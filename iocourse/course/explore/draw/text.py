"""Text of figures and widgets: numbers as text, and images, paragraphs and tables as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import floor, log10

# ---------------------------------------------------------------------- numbers
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def words(value: float) -> str:
    """Format a number: integers with thousands separators, other numbers with at least three digits."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figures(value: float, count: int = 3) -> str:
    """Format a number rounded to `count` significant digits."""
    return words(float(f"{value:.{count}g}"))


def duration(microseconds: float) -> str:
    """Format a time with three significant digits: "3.33 µs", "71.2 ms" or "1.5 s"."""
    # <!-- 3.33, 71.2, 1.5 as input -->
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if float(f"{microseconds:.3g}") >= size:
            return f"{figures(microseconds / size)} {unit}"
    return f"{figures(microseconds)} µs"


def tick_label(value: float, base: int | None = None) -> str:
    """Format the value of a tick: 16,384 or 5·10⁶ or 0.25."""
    if base == 10 and (value >= 1e5 or value < 1e-3):
        power = floor(log10(value) + 1e-9)
        lead = round(value / 10.0**power, 2)
        return ("" if lead == 1 else f"{lead:g}·") + "10" + str(power).translate(_SUPERSCRIPTS)
    return words(value)


def big(count: int) -> str:
    """Format an integer: exactly below 10¹², with three significant digits from there on."""
    return f"{count:,}" if count < 10**12 else tick_label(float(f"{count:.3g}"), 10)


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence: "Q", "Q and K" or "Q, K and V"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


# ---------------------------------------------------------------------- HTML
def image(
    kind: str, data: str, alt: str, *, title: str = "", width: int | None = None, height: int | None = None
) -> str:
    """Return an `<img>` element with alternative text that embeds `data` (base64) of the MIME type `kind`.

    Unlike an inline SVG it does not share ids and fonts with the page. It is also shown in a notebook that is
    not trusted, where front ends remove SVG elements but keep their text.
    """
    named = {"alt": alt, "title": title, "width": width, "height": height}
    attributes = "".join(f' {name}="{escape(str(value))}"' for name, value in named.items() if value)
    return f'<img{attributes} style="max-width:100%;height:auto" src="data:{kind};base64,{data}">'


def bold(text: str, really: bool = True) -> str:
    """Return HTML text in bold if `really`, otherwise unchanged."""
    return f"<b>{text}</b>" if really else text


def paragraph(lines: Iterable[str]) -> str:
    """Return lines of HTML as one paragraph in the style of an explorer.

    An empty line keeps its height, so that a remark that appears or disappears does not move the figure.
    """
    shown = "<br>".join(line or "&nbsp;" for line in lines)
    return f'<div style="font-size:14px;line-height:1.5">{shown}</div>'


def in_html(lines: Iterable[str]) -> str:
    """Return plain lines as an HTML paragraph with the first line in bold."""
    first, *others = (escape(line) for line in lines)
    return paragraph([bold(first), *others])


def html_table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of text as an HTML table: the first row is the header, cells are right-aligned."""
    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in body]
    look = "font-size:13px;line-height:1.4;text-align:right;border-collapse:separate;border-spacing:18px 1px"
    return f'<table style="{look}">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'
