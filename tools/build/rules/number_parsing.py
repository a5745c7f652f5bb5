r"""Parse the numbers in a lesson's text, and decide which of them are claims that need evidence.

A number is a claim if it has three digits or more, or if it looks like a measurement: it has a decimal point,
is followed by a unit of `UNITS`, or preceded by "factor (of)". The following numbers are not claims:

* references: a number after a word of `WORDS` (section 4.5), a label in brackets or quotes, such as (4.1),
  that belongs to a heading or a `\tag` of the course, and the numbers of headings and lists;
* the literature: links, arXiv ids, DOIs, years from 1900 to 2030 (except 2000, and not in a formula);
* names: digits next to a letter (float32, sm_90, H100), and versions of the names in `PRODUCTS`;
* typesetting of formulas (`\tag`, the columns of an array), powers of small numbers (2^{20}, 10^{-6});
* facts of an exercise, "3 of 5" and minutes, which other rules check.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

DIGITS = 3
UNITS = (
    r"%|percent|per cent|×|times|-?fold|[munµμ]?s\b|seconds?|hours?|[KMGT]i?B\b|[KMGT]B/s|[MGT]?FLOP"
    r"|[GM]Hz|words?|bytes?|bits?|tokens?|features?|operations?"
)
WORDS = (
    "lesson|section|exercise|prediction|equation|formula|theorem|lemma|proposition|corollary|definition"
    "|algorithm|table|figure|chapter|appendix|step"
)
PRODUCTS = "Triton|CUDA|PTX|Python|NumPy|PyTorch|torch|ptxas|driver|versions?|capability|RTX"

_THOUSANDS = r"\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)"
_TIMES = r"\s*(?:\\cdot|\\times|×|·)\s*"
_POWER_OF_TEN = rf"(?:e(?P<e>[+-]?\d+)(?!\w)|{_TIMES}10\^(?:\{{(?P<braced>-?\d+)\}}|(?P<power>\d)))?"
_SCALES = {"thousand": 3, "million": 6, "billion": 9}
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>(?<![\w)}}$.])[-−])?(?P<whole>{_THOUSANDS}|\d+)(?P<rest>\.\d+)?{_POWER_OF_TEN}"
    rf"(?:[ ~]+(?P<scale>{'|'.join(_SCALES)})\b)?"
)
_LABEL = r"\d+\.\d+[a-z]?"
_AND = r"(?:,? and |, | or | to |[-–])"
_COUNT = r"\(?\d+(?:\.\d+)*[a-z]?\)?"
_POWER = r"\d{1,2}\^(?:\{-?\d{1,2}\}|\d)(?!\d)"
_EXEMPT = (
    re.compile(r"\]\([^)\s]*\)|https?://\S+|\b\d{4}\.\d{4,5}\b|\bdoi 10\.\S+"),
    re.compile(r"\\tag\{[^}]*\}|\\begin\{array\}\{[^}]*\}|\\\\\[[^\]]*\]"),
    re.compile(rf"(?<![\d.,])(?<!\d\\cdot)(?<!\d \\cdot )(?<!\d \\times )(?<!\d × ){_POWER}"),
    re.compile(rf"\b(?:{WORDS})s?[ ~]+{_COUNT}(?:{_AND}{_COUNT}(?![\w%×]))*", re.IGNORECASE),
    re.compile(rf"^#+ {_LABEL}|^\d+\. ", re.MULTILINE),
    re.compile(r"\b\d of 5\b|\b\d+ minutes?\b|^\*\*Minutes\*\*: \d+", re.MULTILINE),
    re.compile(rf"\b(?:{PRODUCTS})[ ~]+\d+(?:\.\d+)*(?:{_AND}\d+(?:\.\d+)*)*"),
)
_YEAR = re.compile(r"(?<![\d.,])(?!2000)(?:19\d\d|20[0-2]\d|2030)(?!\d|[.,]\d)")
_FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", re.DOTALL)
_ITEM = re.compile(rf"\({_LABEL}(?:{_AND}{_LABEL})*\)|\"{_LABEL}\"")
_UNIT = re.compile(rf"(?:\\?[, ~$}})]|\\text\{{)*(?:{UNITS})")
_LETTER = re.compile(r"[A-Za-z_]")
_FACTOR = re.compile(r"factors? (?:of |is )?(?:about |nearly )?\$?$")


@dataclass(frozen=True)
class Numeral:
    r"""A number as written in a text.

    Attributes:
        text: the characters, such as ``16\,384`` or ``3.4 million``.
        value: its value; a number without a sign is a magnitude.
        place: the value of the last written digit, which distinguishes 4.10 from 4.1.
        line: its line, counted from 0.
        sentence: the sentence that contains it.
        claims: True if it needs evidence.
    """

    text: str
    value: Decimal
    place: Decimal
    line: int = 0
    sentence: str = ""
    claims: bool = True

    def same(self, other: Numeral) -> bool:
        """Return True if both have the same magnitude and the same last digit, in any spelling."""
        return abs(self.value) == abs(other.value) and self.place == other.place

    def rounds(self, value: Decimal) -> bool:
        """Return True if `value`, rounded to the last written digit, is this number."""
        return any(abs(one - self.value) <= self.place / 2 for one in (value, abs(value)))


def numerals(lines: Sequence[str], labels: Collection[str] = ()) -> Iterator[Numeral]:
    """Yield the numbers of a markdown cell; `labels` are the labels, such as 4.1, that are not claims."""
    text = "\n".join(lines)
    masked = _masked(text, labels)
    formulas = _formulas(masked)
    for found in _NUMBER.finditer(masked):
        if not _is_name(masked, found, formulas):
            value, place = _read(found)
            line, sentence = text.count("\n", 0, found.start()), _sentence(text, found.start())
            yield Numeral(found[0], value, place, line, sentence, _claims(masked, found))


def values(text: str) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield (value, place) of every number in an output or a line of code, signed and as a magnitude."""
    for found in _NUMBER.finditer(re.sub(r"(?<=\d)_(?=\d{3})", ",", text)):
        value, place = _read(found)
        yield from ((value, place), (abs(value), place))


def labels_of(text: str) -> set[str]:
    """Return the labels of the headings and equations in a text."""
    return {
        label
        for pattern in (rf"^#+ ({_LABEL})", rf"\\tag\{{({_LABEL})")
        for label in re.findall(pattern, text, re.MULTILINE)
    }


def _masked(text: str, labels: Collection[str]) -> str:
    """Return the text with spaces in place of every number that is not a claim."""
    for pattern in _EXEMPT:
        text = pattern.sub(_blank, text)
    text = _ITEM.sub(lambda m: _blank(m) if set(re.findall(_LABEL, m[0])) <= set(labels) else m[0], text)
    formulas = _formulas(text)
    return _YEAR.sub(lambda m: m[0] if _inside(m.start(), formulas) else _blank(m), text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n$`]", " ", found[0])


def _formulas(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in _FORMULA.finditer(text)]


def _inside(at: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start < at < end for start, end in spans)


def _is_name(text: str, found: re.Match[str], formulas: Sequence[tuple[int, int]]) -> bool:
    """Return True if the digits are part of a name, such as L6-v2, or 7B outside a formula."""
    if re.search(r"[A-Za-z]-$", text[max(found.start() - 2, 0) : found.start()]):
        return True
    letter = _LETTER.match(text, found.end()) and not _UNIT.match(text, found.end())
    return bool(letter) and not _inside(found.start(), formulas)


def _claims(text: str, found: re.Match[str]) -> bool:
    digits = sum(character.isdigit() for character in found["whole"] + (found["rest"] or ""))
    if digits >= DIGITS or found["rest"] or found["scale"]:
        return True
    before = text[max(found.start() - 40, 0) : found.start()]
    return bool(_UNIT.match(text, found.end()) or _FACTOR.search(before))


def _read(found: re.Match[str]) -> tuple[Decimal, Decimal]:
    """Return the value of a number and the value of its last written digit."""
    whole, rest = re.sub(r"\D", "", found["whole"]), found["rest"] or ""
    shift = int(found["e"] or found["braced"] or found["power"] or 0) + _SCALES.get(found["scale"], 0)
    value = Decimal(whole + rest).scaleb(shift)
    return -value if found["sign"] else value, Decimal(1).scaleb(shift - len(rest[1:]))


def _sentence(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].split("\n", 1)[0]
    ends = [start, *(start + found.end() for found in re.finditer(r"(?<=[.!?:])\s+|$", line))]
    return text[max(end for end in ends if end <= at) : min(end for end in ends if end > at)].rstrip()
