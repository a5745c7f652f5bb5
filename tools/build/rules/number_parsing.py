r"""Parse the numbers in a lesson's text, and decide which of them are claims that need evidence.

A number is a claim if it has three digits or more, or if it looks like a measurement: it has a decimal point,
is followed by a unit of `UNITS`, or preceded by "factor (of)". It is measured, too, if the unit is one of
`MEASURES`, after "factor (of)" or "ratio is", in a list before a measured number, if it has decimals in a
table or is a share ("0.64 of the bytes"), with decimals in a sentence of `RECORDED`, and in a product of
sizes, such as the tile 128 × 64, which is one number.
The following numbers are not claims:

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
from dataclasses import dataclass, replace
from decimal import Decimal

DIGITS = 3
# Units of measurement and comparison. A product with a letter, 64 × d, is a formula and compares nothing.
MEASURES = (
    r"%|percent|per cent|×(?! ?\$?\\?[A-Za-zα-ω](?:[_^]\S+)?(?![\w']))|times\b|-?fold\b"
    r"|[munµμ]?s\b|(?:milli|micro)?seconds?\b|hours?\b|[KMGT]i?B\b|[KMGT]B/s|[MGTP]?FLOPs?\b|[GM]Hz"
    r"|(?:clock )?cycles?\b|clocks?\b|bytes?\b|SMs?\b"
    r"|registers?\b|warps?\b|threads?\b|stages?\b|instructions?\b|programs?\b"
    r"|multiprocessors?\b"  # style: ok (a unit that a text may have)
)
UNITS = rf"{MEASURES}|words?|bits?|tokens?|features?|operations?"
WORDS = (
    "lesson|section|exercise|prediction|equation|formula|theorem|lemma|proposition|corollary|definition"
    "|algorithm|table|figure|chapter|appendix|step"
)
PRODUCTS = "[Tt]riton|CUDA|PTX|I?Python|NumPy|PyTorch|torch|ptxas|driver|versions?|capability|RTX"

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
_POWER = r"\d{1,2}\^(?:\{-?\d{1,2}\}|\d{1,2})(?!\d)"
_EXEMPT = (
    re.compile(r"\]\([^)\s]*\)|https?://\S+|\b\d{4}\.\d{4,5}\b|\bdoi 10\.\S+"),
    re.compile(r"(?<![\d.])\d+\.\d+\.\d+"),
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
_BEFORE_UNIT = r"(?:\\?[, ~$})]|\\text\{)*"
_UNIT = re.compile(rf"{_BEFORE_UNIT}(?:{UNITS})")
_MEASURE = re.compile(rf"{_BEFORE_UNIT}(?:{MEASURES})")
_SIZE = re.compile(rf"(?: × | ?\\times ?)(?P<size>{_THOUSANDS}|\d+)(?![\d.,]?\d|\^| ?[×%])")
_LETTER = re.compile(r"[A-Za-z_]")
# Words of a sentence whose numbers come from a record, a data sheet or a default.
RECORDED = re.compile(
    r"\b(?:[ABH][12]00|H20|L4|T4|GPUs?|NVIDIA|cuDNN|SDPA|FlexAttention|PyTorch|TFLOP/s|measured|timed"
    r"|records?|recorded|defaults?|the library)\b"
)
_WORDS = re.compile(rf"{_BEFORE_UNIT}(?:words?|operations?)\b")
_CHIP = re.compile(r"\b(?:[ABH][12]00|H20|L4|T4)\b")
_LISTED = re.compile(r"[$~]*(?:,? and |, | or | to |(?: \|)? ?[-–/] ?)(?:about |up to )?[$~]*")
_IN_SUM = re.compile(r"[⌉)}A-Za-z] [-+−] $")  # N + 1 times
_OVER_NAME = re.compile(r"/(?![\d ])")  # the factor 1/√d
# A line that does not end its sentence, before one that is not a list item, heading, table or display.
_SOFT_BREAK = re.compile(r"(?<![.:!?|\n])\n(?=[ \t]*(?!\d+\. )[^\s|#$<>*\"\[\-])")
_SHARE = re.compile(r" of (?:the|its?|all|what|this|that)\b")
_FACTOR = re.compile(r"(?:factors? (?:of |is )?|\bratios? (?:of |is |are ))(?:about |nearly )?\$?$")


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
        measured: True if it has a unit of measurement or comparison, so that it must be bound or listed.
        others: the further sizes of a product of sizes: 64 of 128 × 64.
    """

    text: str
    value: Decimal
    place: Decimal
    line: int = 0
    sentence: str = ""
    claims: bool = True
    measured: bool = False
    others: tuple[Decimal, ...] = ()

    def same(self, other: Numeral) -> bool:
        """Return True if both have the same magnitude and the same last digit, in any spelling."""
        sizes = self.others == other.others
        return sizes and abs(self.value) == abs(other.value) and self.place == other.place

    def rounds(self, value: Decimal) -> bool:
        """Return True if `value`, rounded to the last written digit, is this number."""
        return any(abs(one - self.value) <= self.place / 2 for one in (value, abs(value)))


def numerals(lines: Sequence[str], labels: Collection[str] = ()) -> Iterator[Numeral]:
    """Yield the numbers of a markdown cell; `labels` are the labels, such as 4.1, that are not claims."""
    text = "\n".join(lines)
    masked = _masked(text, labels)
    formulas = _formulas(masked)
    read: list[tuple[Numeral, int, int]] = []  # with its first and last character
    read_to = 0  # the end of the last number
    for found in _NUMBER.finditer(masked):
        if found.start() >= read_to and not _is_name(masked, found, formulas):
            value, place = _read(found)
            read_to, others = _further_sizes(masked, found)
            line, sentence = text.count("\n", 0, found.start()), sentence_at(text, found.start())
            number = masked[found.start() : read_to]
            measured = bool(others) or _measures(masked, found) or _recorded(masked, found, sentence, labels)
            one = Numeral(number, value, place, line, sentence, _claims(masked, found), measured, others)
            read.append((one, found.start(), read_to))
    unit = False  # of the number to the right: in "1.08 to 1.46 ×" it is that of both
    for n in range(len(read) - 1, -1, -1):
        one, _, end = read[n]
        listed = n + 1 < len(read) and _LISTED.fullmatch(masked, end, read[n + 1][1])
        unit = one.measured or bool(unit and listed)
        read[n] = (replace(one, measured=unit, claims=one.claims or unit), *read[n][1:])
    yield from (one for one, _, _ in read)


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
    return bool(_UNIT.match(text, found.end())) or _measures(text, found)


def _measures(text: str, found: re.Match[str]) -> bool:
    before = text[max(found.start() - 40, 0) : found.start()]
    if _IN_SUM.search(before) or _OVER_NAME.match(text, found.end()):
        return False
    coefficient = re.match(r"[A-Za-z\\]", text[found.end() : found.end() + 1])
    if _MEASURE.match(text, found.end()) or (_FACTOR.search(before) and not coefficient):
        return True
    in_a_table = text.startswith("|", text.rfind("\n", 0, found.start()) + 1)  # its unit is in the head
    return bool(found["rest"]) and ((in_a_table and not coefficient) or bool(_SHARE.match(text, found.end())))


def _recorded(text: str, found: re.Match[str], sentence: str, labels: Collection[str]) -> bool:
    """Return True for a number with decimals in a sentence about a record, and for the words of a chip."""
    if found["rest"]:
        return found[0] not in labels and RECORDED.search(sentence) is not None
    return bool(_WORDS.match(text, found.end()) and _CHIP.search(sentence))


def _further_sizes(text: str, found: re.Match[str]) -> tuple[int, tuple[Decimal, ...]]:
    """Return the end of a product of sizes that begins with an integer, and the sizes after the first."""
    end, sizes = found.end(), []
    integer = not found["rest"] and found[0] == found["whole"]
    while integer and (size := _SIZE.match(text, end)):
        end = size.end()
        sizes.append(Decimal(re.sub(r"\D", "", size["size"])))
    return end, tuple(sizes)


def _read(found: re.Match[str]) -> tuple[Decimal, Decimal]:
    """Return the value of a number and the value of its last written digit."""
    whole, rest = re.sub(r"\D", "", found["whole"]), found["rest"] or ""
    shift = int(found["e"] or found["braced"] or found["power"] or 0) + _SCALES.get(found["scale"], 0)
    value = Decimal(whole + rest).scaleb(shift)
    return -value if found["sign"] else value, Decimal(1).scaleb(shift - len(rest[1:]))


def sentence_at(text: str, at: int) -> str:
    """Return the sentence of a text that contains the character at a position; it may have several lines."""
    text = _SOFT_BREAK.sub(" ", text)
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].split("\n", 1)[0]
    ends = [start, *(start + found.end() for found in re.finditer(r"[.!?:][)\"*]*\s+|$", line))]
    sentence = text[max(end for end in ends if end <= at) : min(end for end in ends if end > at)]
    return " ".join(sentence.split())
