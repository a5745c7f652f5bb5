"""Colours, hatches and dash patterns of all figures. Two areas or lines differ in at least two of them.

The colours are Okabe and Ito's (Color Universal Design, 2008), safe for the common forms of colour blindness.
"""

from __future__ import annotations

from typing import NamedTuple

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"

# Colours of thin lines, for which the five bright colours above are too faint: BLUE and these have a contrast
# of at least 3 to 1 to every background below (WCAG 2.2).
RUST = "#D54F00"
FOREST = "#005A4A"
ROSE = "#BF4F80"
OLIVE = "#665300"
INDIGO = "#3A2BB0"
MAROON = "#5A1E00"

INK = "#1A1A1A"
QUIET = "#595959"  # 7:1 on white
GRID = "#D9D9D9"
PAPER = "#FFFFFF"

Dash = tuple[float, ...]


class Fill(NamedTuple):
    r"""The style of an area: a colour and a hatch ("", "/", "\", "-", "|", "x", ".")."""

    colour: str
    hatch: str


class Stroke(NamedTuple):
    """The style of a line: colour, dash pattern in pixels, marker."""

    colour: str
    dash: Dash
    marker: str


STROKES = (
    Stroke(RUST, (), "circle"),
    Stroke(BLUE, (9, 4), "square"),
    Stroke(FOREST, (3, 3), "triangle"),
    Stroke(ROSE, (12, 3, 3, 3), "diamond"),
    Stroke(OLIVE, (6, 2), "cross"),
    Stroke(INDIGO, (2, 4), "plus"),
    Stroke(MAROON, (14, 5), "star"),
)
BOUND = Stroke(BLACK, (), "")
FLOOR = Stroke(QUIET, (2, 3), "")
BOUNDS = (  # without markers, to distinguish bounds from schedules
    FLOOR,
    BOUND,
    Stroke(QUIET, (12, 3), ""),
    Stroke(QUIET, (7, 2, 2, 2), ""),
    Stroke(BLACK, (2, 2), ""),
    Stroke(QUIET, (5, 2), ""),
    Stroke(BLACK, (8, 3), ""),
    Stroke(BLACK, (5, 2, 1, 2), ""),
    Stroke(BLACK, (14, 3, 2, 3, 2, 3), ""),
    Stroke(QUIET, (14, 3, 2, 3, 2, 3), ""),
    Stroke(BLACK, (1, 4), ""),
)
REGIMES = {  # light enough for every line to stand out; each area is labelled
    "nothing fits": "#F2F2F2",
    "blocked products": "#FFF4E0",
    "N × N stored": "#F7EDF4",
    "row blocks": "#E8F3FB",
    "compulsory": "#E9F6EF",
}
FORBIDDEN = "#DCDCDC"  # below a lower bound
SUM = "#A6A6A6"  # the bar of a total
WRONG = "#8F3B00"  # vermilion dark enough for text

FILLS = (
    Fill(SKY, ""),
    Fill(ORANGE, "/"),
    Fill(YELLOW, "."),
    Fill(GREEN, "-"),
    Fill(PURPLE, "\\"),
    Fill(BLUE, "|"),
    Fill(VERMILION, "x"),
)
ARRAY_FILLS = {
    "Q": Fill(SKY, ""),
    "K": Fill(ORANGE, "/"),
    "V": Fill(YELLOW, "."),
    "O": Fill(GREEN, "-"),
    "accumulator": Fill(GREEN, "|"),
    "row statistics": Fill(BLUE, "|"),
    "scores": Fill(PURPLE, "\\"),
    "temporary": Fill("#BDBDBD", "x"),
    "S": Fill(PURPLE, "."),
    "P": Fill(VERMILION, "x"),
    "m": Fill(BLUE, "|"),
    "l": Fill(BLUE, "|"),
    "LSE": Fill(BLUE, "|"),
    "D": Fill(BLUE, "-"),
    "dO": Fill(VERMILION, "/"),
    "dQ": Fill(SKY, "x"),
    "dK": Fill(ORANGE, "x"),
    "dV": Fill(YELLOW, "x"),
    "dP": Fill(PURPLE, "-"),
    "dS": Fill(PURPLE, "x"),
}
TOO_MUCH = Fill(VERMILION, "x")


def fill_of(kind: str, position: int) -> Fill:
    """Return the fill of an array or kind of tile; other names get the `position`-th general fill."""
    return ARRAY_FILLS.get(kind, FILLS[position % len(FILLS)])


def stroke_of(position: int) -> Stroke:
    """Return the `position`-th stroke; after the last, colours repeat with another dash and marker."""
    again, place = divmod(position, len(STROKES))
    return STROKES[(place + again) % len(STROKES)]._replace(colour=STROKES[place].colour)


_RAMP = ("#F7FBFF", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B")  # ColorBrewer Blues, from light to dark


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ramp(share: float) -> str:
    """Return a blue from light (0) to dark (1) for a share from 0 to 1; the order is kept in greyscale."""
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    k = min(int(place), len(_RAMP) - 2)
    low, high = _channels(_RAMP[k]), _channels(_RAMP[k + 1])
    mixed = (round(a + (b - a) * (place - k)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{value:02X}" for value in mixed)


def ink_on(colour: str) -> str:
    """Return black or white, whichever contrasts more with `colour`: always 4.58 or more (WCAG 2.2)."""
    return BLACK if contrast(BLACK, colour) > contrast(PAPER, colour) else PAPER


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(share: float) -> float:
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)
