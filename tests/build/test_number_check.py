"""Tests of the check that every number in a lesson's text is in an output, in code, or declared."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.errors import UsageError
from tools.build import course
from tools.build.percent_format import parse, side
from tools.build.rules import declared_numbers
from tools.build.rules.number_check import NOWHERE, course_labels, problems
from tools.build.rules.number_parsing import labels_of, numerals

ROOT = Path(__file__).parents[2]
HEAD = "# %% [markdown]\n"
PATH = Path("solutions/00_toy.py")


def claims(*lines, labels=()):
    return [one.text for one in numerals(lines, labels) if one.claims]


def showing(*outputs, code=""):
    return {"cells": [{"cell_type": "code", "source": [code], "outputs": list(outputs)}]}


def notebook(code="", *texts):
    return showing(*({"name": "stdout", "text": [text]} for text in texts), code=code)


def found(text, solved=None, labels=()):
    """Return the messages on a lesson whose markdown is `text`, without the file name."""
    source = HEAD + "".join(f"# {line}\n" for line in text.splitlines())
    said = problems(parse(source, PATH), solved or notebook(), PATH, labels)
    return [one.removeprefix(f"{PATH}:") for one in said]


# ---- which numbers are claims --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It moves 8,832 words.", "8,832"),
        (r"These are $N = 16\,384$ rows.", r"16\,384"),
        (r"So $4Nd = 2{,}097{,}152$.", "2{,}097{,}152"),
        ("In 12.3 ms", "12.3"),
        ("near to 4.10, a little above", "4.10"),
        ("2.6× as fast", "2.6"),
        ("7× as fast", "7"),
        ("$7$ times the words", "7"),  # style: ok (a claim, as a lesson may write it)
        ("85 % of them", "85"),
        ("85 percent of them", "85"),
        ("by a factor of $2$", "2"),
        ("about 3 million rows", "3 million"),
        ("they differ by $1.5 \\cdot 10^{-12}$", "1.5 \\cdot 10^{-12}"),
        ("from −63.8 on", "−63.8"),
        ("a row of $512d$ words", "512"),
        ("The gain of 4.8 is not section (4.1)", "4.8"),
    ],
)
def test_what_is_a_claim(text, number):
    assert claims(text, labels={"4.1", "4.8"}) == [number]


@pytest.mark.parametrize(
    "text",
    [
        "as in section 4.5, and sections 4.6 and 4.9, and Theorem 12.1",
        'by (4.1), and by (4.1, 4.8) too, and `predict("4.8")`',
        "## 4.1 Keys outside",
        "$$ W = 2Nd . \\tag{4.1} $$",
        "Dao, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135), in 1981",
        "float32 on sm_90, an H100, all-MiniLM-L6-v2, FlashAttention-2, Triton 3.6 to 3.9",
        "up to $2^{20}$, or $10^{-12}$, in 12 rows",
        "difficulty 3 of 5 · 20 minutes",
        "**Minutes**: 110, of which 58 are for the exercises.",
        "1. first, 12 rows",
    ],
)
def test_what_is_none(text):
    assert claims(text, labels={"4.1", "4.8"}) == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It takes 12.3 ms and 5 µs.", ["12.3", "5"]),
        ("from 1.08 to 1.46 times as fast", ["1.08", "1.46"]),
        ("6 percent, 228 KB and $50$ MB", ["6", "228", "50"]),
        ("a factor of $2$, at 400 TFLOP/s and 4,800 GB/s", ["2", "400", "4,800"]),
        ("the ratios are 1.33 and 1.06, a ratio of $2$, where the ratio is $3N/(8d)$", ["1.33", "2"]),
        ("a tile of 128 × 64, in 4 warps", ["128 × 64", "4"]),
        (r"a tile of $128 \times 64$", [r"128 \times 64"]),
        ("132 SMs read 545,259,520 bytes", ["132", "545,259,520"]),
        ("| pass | 1.29 (4) |", ["1.29"]),
        ("0.64 of the bytes", ["0.64"]),
        ("an array of 64 × d numbers, 2 × N rows, 8,832 words, 12 rows, $64 \\cdot 32$", []),
        ("0.64 in all", []),
        ("The H200 took 28.0 and 0.54, at 64 rows, in 4.5", ["28.0", "0.54"]),
        ("The H200 holds 123,648 words", ["123,648"]),
        (r"the factor $1/\sqrt d$, read $d - 1$ times, ⌈N/Bc⌉ + 1 times", []),
        ("| row | $2.5d^2$ |", []),
    ],
)
def test_which_numbers_are_measured(text, numbers):
    assert [one.text for one in numerals([text], {"4.5"}) if one.measured] == numbers


def test_a_product_of_sizes_is_one_number():
    (one,) = numerals(["a tile of 128 × 64 numbers"])
    assert (one.value, one.others) == (128, (64,))
    assert not one.same(next(numerals(["128 × 32"]))) and not one.same(next(numerals(["128"])))


def test_an_item_that_nobody_carries_is_a_claim():
    assert claims("(a factor, 1.07) (1.07)", labels={"1.7"}) == ["1.07", "1.07"]


def test_labels_are_those_of_headings_and_equations():
    assert labels_of("## 4.1 Keys\n$$ x \\tag{4.2} $$\n**Exercise 4C** Title, see 4.4") == {"4.1", "4.2"}


# ---- how a number is read ------------------------------------------------------------------------------


@given(st.integers(2031, 10**15))  # from the last year on
def test_a_number_is_the_same_in_every_spelling(value):
    plain = f"{value:,}"
    spelled = [str(value), plain, f"${plain.replace(',', '{,}')}$", f"${plain.replace(',', chr(92) + ',')}$"]
    assert {one.value for text in spelled for one in numerals([text])} == {Decimal(value)}


@given(st.decimals(1, 10**9, places=6), st.integers(1, 4))
def test_a_number_is_borne_out_by_what_rounds_to_it_and_by_nothing_else(value, places):
    (written,) = numerals([f"{value:,.{places}f}"])
    assert written.rounds(value)
    assert not written.rounds(value + 2 * written.place) and not written.rounds(value - 2 * written.place)


def test_a_text_that_shows_a_sign_wants_it_and_another_takes_magnitudes():
    assert not found("down to −63.8 in all", notebook("", "-63.81"))
    assert not found("63.8 in all", notebook("", "-63.81"))
    assert found("down to −63.8 in all", notebook("", "63.81"))


def test_fewer_digits_do_not_bear_out_more():
    assert not found("a constant of 4.1", notebook("", "4.097"))
    assert found("a constant of 4.100", notebook("", "4.1"))


# ---- where a number may stand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solved",
    [
        notebook("N = 8_832"),
        notebook("", "8,832 words"),
        notebook("", "8832.31"),
        showing({"data": {"text/plain": ["8,832"]}, "output_type": "execute_result"}),
        showing({"data": {}, "metadata": {"image/png": {"alt": "It moves 8,832 words"}}}),
    ],
)
def test_code_outputs_and_the_words_beside_a_picture_bear_a_number_out(solved):
    assert not found("It moves 8,832 words.", solved)
    assert found("It moves 8,833 words.", solved)


def test_a_number_that_is_nowhere_is_named_with_line_and_sentence():
    assert found("One line.\nTwo more. It moves 8,833 words. A third.", notebook("", "8,832")) == [
        f'3: 8,833 {NOWHERE}: "It moves 8,833 words."'
    ]


def test_the_text_itself_bears_nothing_out():
    assert len(found("8,832 words, that is 8,832 words.")) == 2


# ---- declarations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declaration",
    [
        "8,832 = costs.flash1(64, 8, Br=16, Bc=16).total",
        "8,832 = sum(k * 92 for k in (64, 32))",
        "8,832 = np.int64(92) * 96",
        "8,832, 800 = (lambda one: (one.total, one.peak))(costs.flash1(64, 8, Br=16, Bc=16))",
    ],
)
def test_an_expression_bears_its_number_out(declaration):
    assert not found(f"8,832 words on 800.\n<!-- 800 = 8 * 10**2 -->\n<!-- {declaration} -->")


def test_a_rounded_value_is_enough():
    assert not found("a factor of 1.53\n<!-- 1.53 = 46 / 30 -->")


def test_names_hold_for_later_lines_and_cells_and_numbers_too():
    cells = (
        ("Words.", "<!-- f1 = costs.flash1(64, 8, Br=16, Bc=16) -->"),
        ("8,832 words on 800.", "<!-- 8,832, 800 = f1.total, f1.peak -->"),
        ("8,832 again.",),
    )
    source = "\n".join(HEAD + "\n".join(f"# {line}" for line in lines) + "\n" for lines in cells)
    assert problems(parse(source, PATH), notebook(), PATH, ()) == []


def test_a_number_is_not_borne_out_before_it_is_declared():
    source = f"{HEAD}# 8,832 words.\n\n{HEAD}# 8,832 words.\n# <!-- 8,832 = 96 * 92 -->\n"
    (said,) = problems(parse(source, PATH), notebook(), PATH, ())
    assert said.startswith(f"{PATH}:2: 8,832 is not in an output or a line of code")


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("8,832 = 96 *", "96 * is not valid Python"),
        ("8,832 = (96, 92)", "(96, 92) is a constant: write an expression"),
        ("8,832 = 8832", "8832 is a constant: write an expression that computes the number"),
        ("8,832 = 8831 + 1", "8831 in 8831 + 1 does not appear elsewhere in this lesson"),
        ("8,833 = 96 * 92 + 1", "8,833 is declared but does not appear in this cell"),
        ("8832: 96 * 92", "a declaration must have the form <!-- 8,832 = expression -->, on a separate line"),
        (
            "8,832 words = 96 * 92",
            "the left side must be numbers or names, separated by a comma and a space, got '8,832 words'",
        ),
        ("f = 96 * 92", "the name f is declared but never used"),
        ("8,832 from a paper", "a paper must be a link in the text of this lesson"),
        ("8,832 if bounds", "a condition is for quoted words, got 8,832; write <!-- 8,832 = … -->"),
        ('"moves" = 3', 'quoted words take a condition, <!-- "moves" if expression -->'),
        ('"moves" if 3 > 2', "3 > 2 must read a record, a default or the library"),
        ('"reads" if bounds is None', '"reads" is declared but does not appear in this cell'),
    ],
)
def test_a_faulty_declaration_is_named_with_its_line(declaration, message):
    said = found(f"It moves 8,832 words.\n<!-- {declaration} -->", notebook("", "8,832"))
    assert len(said) == 1 and said[0].startswith(f"3: {message}"), said


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("8,832 = 96 * 91", "96 * 91 gives 8,736, but the text has 8,832"),
        ("8,832 = 96 * 92 - 1 / 2", "96 * 92 - 1 / 2 gives 8,831.5, but the text has 8,832"),
        ("8,832 = 96 / 0", "96 / 0 raises ZeroDivisionError: division by zero"),
        ("8,832 = flash1.total", "unknown name flash1; expected np, "),
        ("8,832 = 96 > 0", "96 > 0 must give a finite real number, got True"),
        ("8,832 = [96, 92]", "[96, 92] must give a finite real number, got [96, 92]"),
        ('"moves" if bounds is None', 'bounds is None is False, but the text has "moves"'),
        ('"moves" if bounds', "bounds must be True or False, got <module"),
    ],
)
def test_a_false_declaration_names_the_sentence_and_its_line(declaration, message):
    said = found(f"Words.\nIt moves 8,832 words.\n<!-- {declaration} -->", notebook("", "8,832"))
    assert len(said) == 1 and said[0].startswith(f"3: {message}"), said
    assert said[0].endswith(': "It moves 8,832 words."')


def test_one_wrong_value_is_one_message():
    assert len(found("It moves 8,832 words.\n<!-- 8,832 = 96 * 91 -->")) == 1


def test_a_quoted_number_has_a_link_that_the_reader_sees():
    link = "https://arxiv.org/abs/2408.13233"
    assert not found(f"It printed 4.673, see [the paper]({link}).\n<!-- 4.673 from {link} -->")
    assert found(f"It printed 4.673.\n<!-- 4.673 from {link} -->")


@pytest.mark.parametrize("value", [None, True, "8832", float("nan"), 1j, np.ones(2)])
def test_what_is_no_number(value):
    assert declared_numbers.as_decimal(value) is None


@pytest.mark.parametrize("value", [3, 3.0, np.float64(3), np.int32(3), np.array(3)])
def test_what_is_one(value):
    assert declared_numbers.as_decimal(value) == 3


def test_neither_notebook_shows_a_declaration():
    (cell,) = parse(HEAD + "# 800 words.\n# <!-- 800 = 8 * 100 -->\n# <!-- a remark -->\n", PATH)
    for solved in (True, False):
        assert side(cell, solved=solved) == ("800 words.", "<!-- a remark -->")


# ---- measured numbers and claims ------------------------------------------------------------------------


PRINTS = notebook("print(3)", "It took 12 ms, 64 and 32 numbers")
READS = notebook("rows = load_record('attention')\nprint(rows)", "It took 12 ms")


@pytest.mark.parametrize(
    ("text", "declaration"),
    [
        ("It moves 3.2 × the words.", "3.2 = costs.flash1(64, 8, Br=16, Bc=16).total / 2760"),
        ("A tile of 128 × 64.", '128 × 64 = tile("forward", 90, 64, mask="packed")'),
        ("It has 62,914,560 bytes.", '62,914,560 = device("attention")["l2_bytes"]'),
        ("Take a fast memory of 48 KB.", "48 as input"),
        ("1 KB has 1,024 bytes.", "1, 1,024 as definition"),
        ("It took 12 ms.", "12 as output"),
        ("A tile of 64 × 32.", "64 × 32 as output"),
        ("By default it reads K.", '"By default" if bounds is not None'),
        ("The fastest axis is the last.", '"fastest" as definition'),
        ("It takes 3 ms, see [a page](https://a.org/b).", "3 from https://a.org/b"),
    ],
)
def test_a_measured_number_or_claim_is_bound_or_listed_in_its_cell(text, declaration):
    assert found(f"{text}\n<!-- {declaration} -->", PRINTS) == []
    (said, *_) = found(text, PRINTS)
    assert " is not bound: write below it" in said or " has no condition: write below it" in said
    assert text.split("\n")[0][:20] in said


def test_another_cell_does_not_bind_a_measured_number():
    source = f"{HEAD}# 50 % of it.\n# <!-- 50 = 10**2 / 2 -->\n\n{HEAD}# Again 50 %.\n"
    (said,) = problems(parse(source, PATH), notebook(), PATH, ())
    assert said.startswith(f"{PATH}:6: 50 is not bound: write below it <!-- 50 = expression -->")


@pytest.mark.parametrize(
    ("text", "declaration", "message"),
    [
        ("It took 12 ms.", "12 as guess", "12 is listed as guess; expected definition, input, output"),
        ("It took 13 ms.", "13 as output", "13 is not printed in the same section"),
        ("A tile of 64 × 16.", "64 × 16 as output", "64 × 16 is not printed in the same section"),
        ("It took 3 ms.", "3 as output", "3 has one digit, which any output may have"),
        (
            "A GPU is 2 times as big.",
            "2 as definition",
            '2 is not listed as definition, because its sentence has "GPU"',
        ),
        ("48 KB of it.", "48 as definition", "48 is not a definition: a unit"),
        ("On an H100 228 KB.", "228 as input", '228 is not listed as input, because its sentence has "H100"'),
        ("The H200 has 48 KB.", "48 = 6 * 8", "6 * 8 reads no record, default or function of the library"),
        (
            "A tile of 128 × 32.",
            '128 × 32 = tile("forward", 90, 64, mask="packed")',
            'tile("forward", 90, 64',
        ),
        ("The H200 is the fastest.", '"fastest" as definition', '"fastest" is not a definition, because'),
        (
            "By default it reads.",
            '"By default" as output',
            '"By default" takes a condition, or as definition',
        ),
    ],
)
def test_a_number_that_a_record_could_give_is_not_listed(text, declaration, message):
    said = found(f"{text}\n<!-- {declaration} -->", PRINTS)
    assert len(said) == 1 and message in said[0], said


def test_a_condition_is_for_the_sentences_with_its_words():
    text = "It is the fastest kernel.\nThis is the fastest, too."
    (said,) = found(f'{text}\n<!-- "the fastest kernel" if bounds is not None -->')
    assert said.startswith('3: "fastest" has no condition') and said.endswith('"This is the fastest, too."')


def test_a_declared_number_is_not_one_with_another_sign():
    assert not found("None or -1: in 1 GiB.\n<!-- 1 = bounds.compulsory(4, 4) / 64 -->")


def test_what_needs_a_package_that_is_missing_is_not_evaluated(monkeypatch):
    def gone(name):
        raise ImportError(f"no module {name}")

    text = 'A tile of 16 × 16.\n<!-- size = tile("forward", 90, 64) -->\n<!-- 16 × 16 = size[:2] -->'
    monkeypatch.setattr(declared_numbers, "look_up", gone)
    assert any("no module tile" in message for message in found(text))
    monkeypatch.setattr(declared_numbers, "missing", lambda: ("triton",))
    assert not found(text)


def test_output_of_a_cell_that_reads_a_record_lists_nothing():
    text = "It took 12 ms.\n<!-- 12 as output -->"
    assert not found(text, PRINTS)
    assert found(text, READS)
    closed = notebook("from iocourse.costs.kernels import delta_plain\nprint(delta_plain)", "12")
    assert not found(text, closed)
    own = notebook("load_record = str\nprint(load_record('12'))", "It took 12 ms")
    assert not found(text, own)
    closed = notebook("from iocourse.costs.kernels import delta_plain\nprint(delta_plain)", "12")
    assert not found(text, closed)


# ---- the lessons ---------------------------------------------------------------------------------------


def test_a_number_changed_in_a_lesson_is_found():
    """Change one digit of lesson 04 and require one message on it."""
    path = ROOT / "solutions" / "04_flash_forward.py"
    solved = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
    sources = [one.read_text(encoding="utf-8") for one in sorted(path.parent.glob("0[34]*.py"))]
    labels = course_labels([parse(one, path) for one in sources])
    text = path.read_text(encoding="utf-8")
    changed = text.replace("8,832 words for", "8,833 words for")
    assert changed != text and problems(parse(text, path), solved, path, labels) == []
    (said,) = problems(parse(changed, path), solved, path, labels)
    assert ": 8,833 is not in an output or a line of code" in said


def test_release_check_says_it(tmp_path, monkeypatch):
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    for folder in ("solutions", "lessons"):
        (tmp_path / folder).mkdir()
    source = (ROOT / "solutions" / "04_flash_forward.py").read_text(encoding="utf-8")
    (tmp_path / "solutions" / "04_flash_forward.py").write_text(
        source.replace("8,832 words for", "8,833 words for")
    )
    stored = (ROOT / "solutions" / "04_flash_forward.ipynb").read_text(encoding="utf-8")
    (tmp_path / "solutions" / "04_flash_forward.ipynb").write_text(stored, encoding="utf-8")
    for only in ((), ("04",)):
        said = [one for one in course.check(tmp_path, only=only) if "8,833" in one]
        assert len(said) == 1 and "solutions/04_flash_forward.py:" in said[0]
    with pytest.raises(UsageError, match="no source 05"):
        course.check(tmp_path, only=("05",))


def test_release_check_of_one_lesson_is_about_that_lesson():
    assert course.check(ROOT, only=("00",)) == []
