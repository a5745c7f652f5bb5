"""Tests of the check that a lesson's displays agree with the library: the reader, the lines, seeded edits."""

import itertools
import math
import random
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import display_edits
from tools.build import BuildFailed, course, latex
from tools.build.latex import Unreadable
from tools.build.percent_format import parse, side
from tools.build.rules import number_check
from tools.build.rules.display_bindings import REASONS, Binding
from tools.build.rules.display_parts import statements_of
from tools.build.rules.display_sizes import Sizes
from tools.build.rules.displays import problems

ROOT = Path(__file__).parents[2]
PATH = Path("solutions/99_toy.py")
HEAD = "# %% [markdown]\n"


# ---- the reader of LaTeX -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2Nd", 60),
        (r"2Nd\left\lceil \tfrac N{B_r} \right\rceil", 180),
        (r"\dfrac12 N + \frac{3}4d - \frac{1}{2}", Fraction(27, 4)),
        ("N^2d^2 - d^{N - 8}", 891),
        ("-N + d", -7),
        (r"N \cdot d/2", 15),
        ("(N + d)(N - d)", 91),
        (r"\bigl(N\,d\bigr)", 30),
        ("1{,}088 + 2\\,000", 3088),
        ("0.25N", Fraction(5, 2)),
        (r"\sqrt{N - 1} + \sqrt4", 5),
        (r"\lfloor \sqrt{N} \rfloor", 3),
        (r"(N - 6)^{3/2}", 8),
        (r"2^{-d}", Fraction(1, 8)),
        (r"\max\left(N, d,\; 11\right) - \min\{N, d\}", 8),
        (r"\binom{N}{d} + d!", 126),
        (r"\sum_{k=0}^{d} k^2 + 1", 15),
        (r"\underbrace{Nd + 1}_{\text{read, } K_j} d", 93),
        (r"\log_2 (8) + \ln (1)", 3),
        (r"B_{r}' + N'_{kv} + \ell - \lambda", 7),
        (r"W_{\mathrm{B1}} \mathrm{rows} + \text{multiply-adds}", 73),  # style: ok (LaTeX)
    ],
)
def test_what_latex_means(text, value):
    scope = {"N": 10, "d": 3, "Br": 4, "Brprime": 1, "Nprimekv": 5, "ell": 3, "lambda_": 2}
    scope |= {"WB1": 7, "rows": 9, "multiply_adds": 10}
    formula = latex.read(text)
    assert formula.names <= scope.keys()
    found = formula.value({name: Fraction(size) for name, size in scope.items()})
    assert found == value and isinstance(found, int | float | Fraction)


@st.composite
def arithmetic(draw, depth=3):
    """Return (LaTeX, value) of an expression of the sizes a = 2, b = 3 and c = 5."""
    if depth == 0:
        return draw(st.sampled_from([("a", 2), ("b", 3), ("c", 5), ("7", 7), ("12", 12)]))
    (left, x), (right, y) = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    return draw(
        st.sampled_from(
            [
                (f"({left} + {right})", x + y),
                (rf"\left({left} - {right}\right)", x - y),
                (rf"{{{left}}}\,{{{right}}}", x * y),
                (rf"{{{left}}} \cdot {{{right}}}", x * y),
                (rf"\lceil {left} / 3 \rceil" if depth == 1 else rf"\lceil {left} \rceil", _up(x, depth)),
                (rf"\frac{{{left}}}{{1 + ({right})^2}}", Fraction(x) / (1 + y**2)),
                (rf"({left})^2", x**2),
                (rf"\max({left}, {right})", max(x, y)),
                (rf"\lfloor {left} \rfloor", math.floor(x)),
            ]
        )
    )


def _up(x, depth):
    return math.ceil(Fraction(x, 3)) if depth == 1 else math.ceil(x)


@given(arithmetic())
def test_an_expression_has_the_value_of_its_parts(both):
    text, value = both
    scope = {name: Fraction(size) for name, size in (("a", 2), ("b", 3), ("c", 5))}
    assert latex.read(text).value(scope) == value


@given(st.fractions(0, 10**9))
def test_the_root_of_a_square_is_exact_and_others_are_close(x):
    root = latex.read(r"\sqrt x").value({"x": x * x})
    assert root == x
    again = latex.read(r"\sqrt x \sqrt x").value({"x": x})
    assert latex.equal(again, x) and latex.floor(latex.read(r"(\sqrt x)^2").value({"x": x})) == math.floor(x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QK^\\top", "'\\\\top' cannot be read after Q K ^"),
        ("2N +", "the end cannot be read after 2 N +"),
        ("(N + d", "the end cannot be read after ( N + d; expected )"),
        ("N) + d", "') cannot be read after N"),
        (r"\frac{N}{d", "expected }"),
        (r"\max_k s", "'_' cannot be read after \\max; expected ( or \\{"),
        (r"\sum_k s_k", "expected {"),
        ("N/2P", "'P' after a / can be read in two ways; write \\frac"),
        (r"\log N d", "'d' after a logarithm can be read in two ways"),
        (r"N \oslash d", "'\\\\oslash' cannot be read after N"),
        ("", "the end cannot be read at the beginning"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(Unreadable) as refused:
        latex.read(text)
    assert message.replace("') ", "')' ") in str(refused.value)


# ---- the statements of a display -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "statements"),
    [
        (r"W_2 = Nd + N, \qquad \text{footprint } 2d .", ["W2 = Nd + N", "footprint = 2d"]),
        (r"W = a = b \approx c", ["W = a", "W = b", "W ~ c"]),
        (r"W \ge a = b", ["W >= a", "W >= b"]),
        (r"\frac{W M}N \to 8 \text{ or } 4", ["fracWMN ~ 8", "fracWMN ~ 4"]),
        (r"N + 1 \quad \text{words, with the footprint } d", [" = N + 1", "footprint = d"]),
        (r"\text{rows: } N, \qquad \text{slices: } d", ["rows = N", "slices = d"]),
        (r"W \ge N \quad (M \ge d^2), \qquad t \le d", ["W >= N if M>=d^2", "t <= d"]),
        (r"W = N \qquad \text{for every integer } T \ge 1 .", ["W = N if T>=1"]),
        (r"W = N \quad \text{for } 1 < M \le N", ["W = N if 1<M if M<=N"]),
        (r"W = N, \quad \text{for a square } b = M", ["W = N", "b = M"]),
        (
            r"F(R) = \begin{cases} a & R \ge 3, \\[1ex] b & \text{otherwise} \end{cases}",
            ["F(R) = a if R>=3", "F(R) = b"],
        ),
        (r"\max(N, d) = \text{words of } Q", [r"max(N,d) = \text{words of }Q"]),
    ],
)
def test_what_a_display_states(text, statements):
    def told(one):
        conditions = "".join(
            f" if {latex.text_of(c.left)}{c.sign}{latex.text_of(c.right)}" for c in one.conditions
        )
        return f"{one.name} {one.sign} {latex.text_of(one.right)}{conditions}"

    assert [told(one) for one in statements_of(text)] == statements


# ---- binding lines -------------------------------------------------------------------------------------
F3 = r"W_3 = 2Nd + 2Nd\lceil N/B_r \rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + B_c d"
WORDS = "(99.1) W_3 = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total"
PEAK = "(99.1) footprint = costs.flash_optimal(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N"


def source(display, *lines, tag=r" \tag{99.1}"):
    text = f"$$ {display} .{tag} $$"
    return HEAD + "\n".join(f"# {line}" for line in (text, *(f"<!-- {one} -->" for one in lines))) + "\n"


def said(display, *lines, tag=r" \tag{99.1}"):
    """Return the messages on a lesson with one display and these lines, without the file name."""
    found = problems(parse(source(display, *lines, tag=tag), PATH), PATH)
    return [one.removeprefix(f"{PATH}:") for one in found]


def test_a_display_that_agrees_has_no_fault():
    assert said(F3, WORDS, PEAK) == []
    assert said(F3, WORDS.replace("99.1", "above"), PEAK.replace("99.1", "above"), tag="") == []
    assert said(F3, "(99.1) not evaluated: definition") == []
    assert said(F3, WORDS, "(99.1) footprint = not evaluated: definition") == []
    assert said("W = 3N", tag="") == []  # a display without a tag needs no line


def test_a_difference_is_told_with_sizes_and_both_values():
    (message,) = said(F3.replace("2Nd +", "3Nd +"), WORDS, PEAK)
    assert message.startswith(r"3: (99.1) W3 = 3Nd + 2Nd\lceil N/B_r\rceil: is ")
    assert ", but costs.flash_optimal(N, d, Br=Br, Bc=Bc).total is " in message
    assert all(f"{name} = " in message.split(", for ")[1] for name in ("N", "d", "Br", "Bc"))


A_LARGE = r"W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2)"
A_LINE = "W >= bounds.theorem_A_large(N, d, M) rounded down where M >= d**2"
F_LINE = "= bounds.products_per_segment(M + 1, 4) with F = lambda R: bounds.products_per_segment(R, 4)"


@pytest.mark.parametrize(
    ("display", "line"),
    [
        (A_LARGE, A_LINE),
        (r"W \approx 3Nd", "W ~ costs.flash2(N, d, Br=N, Bc=1).total within 0.3"),
        (r"F(M + 1)", F_LINE),
        (r"2Nd + 2Ndk", "= costs.flash2(N, d, Br=Br, Bc=1).total with k = math.ceil(N / Br)"),
        (r"Nd + 3Nd = 4Nd", "bounds.compulsory(N, d) = 4 * N * d"),
        (r"W \le N \quad (N \le d)", "W <= masks.Causal(N).N + 0 * d where d < 3 and N <= d"),
    ],
)
def test_each_part_of_a_line_is_used(display, line):
    """The same line without one of its parts is refused."""
    tried = f"(99.1) {line}"
    assert said(display, tried) == []
    for word in (" rounded down", " within 0.3", " with ", " where "):
        if word in line:
            rest = " where M >= d**2" if word == " rounded down" else ""
            assert said(display, tried.split(word)[0] + rest)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([WORDS], "2: (99.1) footprint = is not compared with the library: write <!-- (99.1) footprint = e"),
        ([], "2: (99.1) W3 = is not compared with the library"),
        (
            [WORDS.replace("99.1", "99.2")],
            "3: no display above this line in its cell has the tag 99.2; the tags",
        ),
        ([WORDS.replace("99.1", "above")], "3: (above) needs a display without a tag above this line in its"),
        ([WORDS.replace("W_3", "W_4")], "3: the display has W3 =, footprint =, but this line has 'W4 ='"),
        ([WORDS.replace(" = ", " >= ")], "3: the display has W3 =, footprint =, but this line has 'W3 >='"),
        (
            [PEAK, PEAK],
            "3: footprint = has 1 right sides and 2 lines: write one line for each, or one for all",
        ),
        ([PEAK, "(99.1) not evaluated: definition"], "4: the whole display is listed with a reason"),
        (["(99.1) not evaluated: dull"], f"3: unknown reason 'dull'; expected {', '.join(REASONS)}"),
        (
            [WORDS.replace("optimal", "optimum")],
            "flash_optimum(N, d, Br=Br, Bc=Bc).total raises AttributeErr",
        ),
        ([WORDS.replace("costs.", "cost.")], "unknown name cost; expected np, "),
        (["(99.1) W_3 = 2 * N * d * (1 + costs.ceil_div(N, Br))"], "calls nothing of the library: write the"),
        (["(99.1) W_3 = 2 * N * d"], "2 * N * d calls nothing of the library"),
        ([PEAK.split(" where")[0]], "footprint = B_r(2d + 2 + B_c) + B_cd: is "),
        (
            [PEAK.replace("Br <= N", "N > 10**6")],
            "holds for 0 of 6000 sizes drawn, 0 of them different: write",
        ),
        ([f"{PEAK} and N == d == Br == Bc == 1"], "sizes drawn, 1 of them different"),
        ([PEAK.replace("Br <= N", "Br <=")], "Br <= and Bc <= N is not valid Python"),
        ([f"{WORDS} within a bit"], ".total within a bit is not valid Python"),
        (
            [f"{WORDS} within little"],
            "3: within little is not a number: write the relative difference, as in",
        ),
        ([f"{WORDS} with N"], "3: with N cannot be read: write name = expression, separated by commas"),
        ([f"{WORDS} with B_r = 3"], "with B_r: not used; the names of the formula are Br, N, d"),
        (
            ["(99.1) W_3: costs.flash2(N, d)"],
            "3: <!-- (99.1) W_3: costs.flash2(N, d) --> cannot be read: write",
        ),
        ([WORDS.replace(".total", "")], "the expression must give a number, got Ledger"),
    ],
)
def test_a_faulty_line_is_named_with_what_to_write(lines, message):
    found = said(F3, *lines)
    assert any(message in one for one in found), found


def test_a_bound_formula_that_cannot_be_read_is_named_with_its_token():
    (message,) = said(r"W = 4Nd\top", "(99.1) W = bounds.compulsory(N, d)")
    assert message.startswith(r"3: (99.1) W = 4Nd\top: '\\top' cannot be read after 4 N d. Write LaTeX that")


def test_a_condition_of_the_display_is_a_part_of_where():
    display, line = rf"{A_LARGE} \quad (M \ge d^2)", f"(99.1) {A_LINE}"
    assert said(display, line) == [] == said(display, line + " and N > 3")
    for shown in (r"M \ge d^3", r"M \le d^2", r"N \ge d^2", "M = d^2", r"M \ge 1"):
        (message,) = said(display.replace(r"M \ge d^2", shown), line)
        assert "write it after where, joined by and" in message
    always = r"W = 4Nd \qquad \text{for every } N \ge 1"
    assert said(always, "(99.1) W = bounds.compulsory(N, d) where N >= 1") == []
    assert said(always, "(99.1) W = bounds.compulsory(N, d) where d >= 1")


def test_an_expression_as_left_side_belongs_to_the_only_formula_with_its_sign():
    line = "(99.1) bounds.compulsory(N, d) <= 4 * N * d"
    assert said(r"4Nd \le Nd + 3Nd, \qquad W = N", line, "(99.1) W = not evaluated: definition") == []
    (message,) = said(r"4Nd \le 4Nd, \qquad Nd \le Nd", line)
    assert "the display has 4Nd <=, Nd <=, but this line has 'bounds.compulsory(N,d) <='" in message


def test_a_formula_within_a_sentence_is_bound_as_it_stands_there():
    line = "<!-- ($4Nd + N$) = costs.flash2(N, d, Br=N, Bc=1, lse=True).total -->"

    def in_sentence(formula, *more):
        cells = parse(
            HEAD + "\n".join(f"# {one}" for one in (f"It keeps {formula} words.", *more)) + "\n", PATH
        )
        assert side(cells[0], solved=True) == (f"It keeps {formula} words.",)
        return problems(cells, PATH)

    assert in_sentence("$4Nd + N$", line) == [] == in_sentence("$4Nd + N$")
    (message,) = in_sentence("$3Nd + N$", line)
    assert message.endswith(
        "3: the formula $4Nd + N$ does not stand above this line in its cell: write it as there"
    )
    (message,) = in_sentence("$3Nd + N$", line.replace("4Nd", "3Nd"))
    assert "3: ($3Nd + N$) = 3Nd + N: is " in message


def test_right_sides_that_differ_take_a_line_each():
    display, first, second = (
        r"W \ge 4Nd \ge 3Nd",
        "W >= bounds.compulsory(N, d)",
        "W >= 3 * bounds.compulsory(N, d) // 4",
    )
    assert said(display, f"(99.1) {first}", f"(99.1) {second}") == []
    assert len(said(display, f"(99.1) {first}")) == 1
    assert len(said(display, f"(99.1) {second}", f"(99.1) {first}")) == 2


def test_a_bound_that_is_0_for_almost_all_sizes_is_not_compared():
    (message,) = said(r"W \ge N - M", "(99.1) W >= max(0, bounds.compulsory(N, 1) // 4 - M) where M > N")
    assert "is 0 for all but 0 sizes drawn: write a condition with larger sizes" in message


def test_sizes_are_ragged():
    sizes = list(Sizes(Binding(1, "W", "=", right="N + Br"), ["N + Br"], []).drawn())
    assert all(size >= 1 for scope in sizes for size in scope.values())
    for kind in (
        lambda N, Br: N % Br,
        lambda N, Br: N % Br == 0 and 1 < Br < N,
        lambda N, Br: Br > N,
        lambda N, Br: Br == 1 < N,
        lambda N, Br: N == 1,
        lambda N, Br: N > 10_000,
    ):
        assert sum(bool(kind(**scope)) for scope in sizes) > 100


def test_neither_notebook_shows_a_line_and_the_check_of_numbers_skips_it():
    (cell,) = parse(source(F3, WORDS, PEAK), PATH)
    shown = (f"$$ {F3} . \\tag{{99.1}} $$",)
    assert side(cell, solved=True) == side(cell, solved=False) == shown
    assert number_check.problems([cell], {"cells": []}, PATH, {"99.1"}) == []


# ---- the lessons ---------------------------------------------------------------------------------------
LESSONS = sorted((ROOT / "solutions").glob("[0-9]*.py"))
DISPLAYS = [pair for path in LESSONS for pair in display_edits.displays_of_lesson(path)]
BOUND = [(display, lines) for display, lines in DISPLAYS if display_edits.is_bound(lines)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_displays_of_a_lesson_agree_with_the_library(path):
    assert problems(parse(path.read_text(encoding="utf-8"), path), path) == []


def test_fifty_edits_of_bound_displays_are_found():
    """An edit of a listed formula is drawn again, and so is the one that changes no value."""
    rng = random.Random(50)
    kinds = itertools.cycle(("digit", "exponent", "sign", "rounding", "name", "dropped"))
    missed = []
    for kind in itertools.islice(kinds, 50):
        edited = None
        while edited is None:
            display, lines = rng.choice(BOUND)
            found = [text for one, text in display_edits.edits(display.latex) if one == kind]
            found = [one for one in found if display_edits.changes_a_bound_formula(display, one, lines)]
            found = [one for one in found if r"\binom{d+g}{d}" not in one]  # equal to \binom{d+g}{g}
            edited = rng.choice(found) if found else None
        if not display_edits.is_found(display, edited, lines):
            missed.append(edited)
    assert missed == []


def test_each_numbered_display_has_a_line():
    """At least 110 displays are compared with the library; the others with a tag are listed with a reason."""
    assert len(BOUND) >= 110
    assert [display.tag for display, lines in DISPLAYS if display.tag and not lines] == []


@pytest.mark.parametrize("command", [course.check, course.write])
def test_the_build_stops_at_a_display_that_differs(tmp_path, command):
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    for folder in ("solutions", "lessons"):
        (tmp_path / folder).mkdir()
    name = "04b_debugging_a_schedule"
    text = (ROOT / "solutions" / f"{name}.py").read_text(encoding="utf-8")
    assert text.count("2B_c d + B_r(2d + 2 + B_c)") == 1
    changed = text.replace("2B_c d + B_r(2d + 2 + B_c)", "3B_c d + B_r(2d + 2 + B_c)")
    (tmp_path / "solutions" / f"{name}.py").write_text(changed, encoding="utf-8")
    if command is course.check:
        (message,) = [one for one in course.check(tmp_path, only=("04b",)) if "(4.10)" in one]
    else:
        with pytest.raises(BuildFailed) as stopped:
            course.write(tmp_path, only=("04b",))
        message = str(stopped.value)
        assert not list((tmp_path / "lessons").iterdir())
    assert (
        message.startswith(f"solutions/{name}.py:") and "costs.flash1(N, d, Br=Br, Bc=Bc).peak is" in message
    )
