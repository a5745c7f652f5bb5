"""The page on kernels: every sentence about a measurement has a declaration that quotes it or its numbers."""

import re
from pathlib import Path

import pytest

from tools.build.percent_format import is_declaration
from tools.build.rules.number_pages import page_passages

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "kernels.md").read_text(encoding="utf-8")
MEASURED = re.compile(r"\b(?:measured|timed|records?|recorded|H200|times as fast|faster|slower)\b")
FACTS = PAGE[: PAGE.index("## For users of SDPA")]  # the rest names arguments and steps
# Sentences that state how something is done, with words that each of them contains.
PROCEDURES = (
    "records registers, spills, shared memory",  # what a command does
    "The records are in `…`",  # a place
    "and the reason: timed, with the record",  # what a choice consists of
    "Nothing is timed or compiled during a call",
    "The two were not timed in one run",  # of two records, which the sentence before it names
    "set from these records",
    "A goal is evaluated if all its shapes are timed",
)


def sentences(passages):
    """Yield (sentence, its passage's declarations) of the passages of a page."""
    for passage in passages:
        lines = [line.strip() for line in passage.lines]
        text = " ".join(line for line in lines if not is_declaration(line))
        declared = [line for line in lines if is_declaration(line)]
        for sentence in re.split(r"(?<=[.!?*)]) (?=[A-Z*`])", text):
            yield sentence, declared


def bound(sentence, declared):
    """Return True if a declaration quotes words of the sentence or declares a number that it has."""
    for line in declared:
        quoted = re.match(r'<!-- "([^"]+)" if ', line)
        if quoted and " ".join(quoted[1].split()) in sentence:
            return True
        numbers = re.match(r"<!-- ((?:[\d.,]*\d(?: × \d+)*(?:, )?)+) = ", line)
        if numbers and any(
            re.search(rf"(?<![\d.,]){re.escape(one)}(?![\d]|[.,]\d)", sentence)
            for one in numbers[1].split(", ")
        ):
            return True
    return False


def unbound(text):
    """Return the sentences about a measurement that no declaration binds."""
    return [
        sentence
        for sentence, declared in sentences(page_passages(text))
        if MEASURED.search(sentence)
        and not any(words in sentence for words in PROCEDURES)
        and not bound(sentence, declared)
    ]


def test_every_sentence_about_a_measurement_is_bound():
    assert unbound(FACTS) == []


def test_each_listed_procedure_is_on_the_page():
    text = " ".join(sentence for sentence, _ in sentences(page_passages(FACTS)))
    assert [words for words in PROCEDURES if words not in text] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It was measured on an H200.\n", 1),
        ('It was measured on an H200.\n<!-- "was measured" if True -->\n', 0),
        ('It was measured on an H200.\n<!-- "was timed" if True -->\n', 1),
        ("It is 1.29 times as fast. It is slower at 2.\n<!-- 1.29 = x -->\n", 1),
        ("It is 1.29 times as fast.\n<!-- 1.2 = x -->\n", 1),
        ("A sentence about something else.\n", 0),
    ],
)
def test_a_sentence_without_a_declaration_is_found(text, count):
    assert len(unbound(text)) == count
