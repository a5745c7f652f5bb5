"""Tests of mutation: operators, verdicts on mutants, and checks that must reject them."""

import ast
import json
from dataclasses import replace
from math import ceil

import pytest
from long_runs import many

from iocourse.course.checking import COURSE_WIDE, RUNS
from iocourse.course.exercise import exercises, find
from tests.mutation import __main__ as command
from tests.mutation import cover, report
from tests.mutation import mutants as making
from tests.mutation.__main__ import main
from tests.mutation.equivalent_mutants import changes, why_by_rule, why_equivalent, why_open
from tests.mutation.kernel_operators import FIRST_PROGRAM
from tests.mutation.listed import EQUIVALENT, OPEN
from tests.mutation.mutant_process import ENDED, OUT_OF_TIME, Verdict, verdicts
from tests.mutation.mutants import OPERATORS, Mutant, mutants_of
from tests.mutation.references import (
    INTERPRETED,
    exercise_source,
    sources_of,
)
from tools.build.notebook_execution import cannot_run
from tools.build.recorded_mutants import read_recorded, write_recorded

NUMPY = [one.id for one in exercises().values() if one.lesson[:2] not in INTERPRETED]
LESSONS = sorted({find(exercise).lesson[:2] for exercise in NUMPY})
FIND_HOLES = ("starts", "constants", "comparisons", "parameters", "maxima", "ranges")
# Samples of these mutants and of the listed ones; the weekly `python -m tests.mutation` runs all.
ONE_IN = many(64, 16)
LISTED_ONE_IN = many(12, 3)
ONE_KERNEL_IN = 448  # sample of the mutants of kernels, which are 100 times slower


# ------------------------------------------------------------------ operators
def changed(monkeypatch, operator, source):
    """Return the changed lines that an operator produces from a function."""
    monkeypatch.setattr(making, "exercise_source", lambda exercise_id, *, solved: source)
    return [mutant.after for mutant in mutants_of("made up", [operator])]


@pytest.mark.parametrize(
    ("operator", "line", "after"),
    [
        ("comparisons", "return a < b", ["return a <= b", "return a >= b"]),
        ("arithmetic", "return -a // b", ["return -a / b", "return -a * b", "return a // b"]),
        ("operands", "return a @ b", ["return a", "return b"]),
        ("constants", "return 1", ["return 2", "return 0"]),
        ("constants", "return True", ["return False"]),
        ("starts", "m = -np.inf", ["m = -10000.0", "m = -100.0", "m = 0.0"]),
        ("starts", "m = float('-inf')", ["m = -10000.0", "m = -100.0", "m = 0.0"]),
        (
            "ranges",
            "return range(1, a)",
            ["return range(2, a)", "return range(0, a)", "return range(1, a + 1)", "return range(1, a - 1)"],
        ),
        ("ranges", "return a[b:]", ["return a[b + 1:]", "return a[b - 1:]"]),
        ("maxima", "return max(a, b)", ["return min(a, b)", "return a", "return b", "return max(0.0, b)"]),
        ("maxima", "return a.max()", ["return a.min()", "return 0.0"]),
        ("keywords", "return f(a, mask=b)", ["return f(a)"]),
        ("wrappers", "return f(a.T)", ["return a.T", "return f(a)"]),
        ("conditions", "return a if b else c", ["return a", "return c"]),
        ("conditions", "return a and b", ["return a or b"]),
        ("statements", "a += b", ["pass"]),
        ("parameters", "return a + x", ["return b + x"]),
        ("names", "c = d = a", []),
    ],
)
def test_an_operator_makes_these_lines_of_a_line(monkeypatch, operator, line, after):
    assert changed(monkeypatch, operator, f"def f(a, b, *, x):\n    {line}") == after


def test_loops_run_backwards_and_change_places(monkeypatch):
    source = "def f():\n    for i in a:\n        for j in b:\n            g(i, j)"
    assert changed(monkeypatch, "loops", source) == [
        "for i in reversed(list(a)):",
        "for j in b:\nfor i in a:",
        "for j in reversed(list(b)):",
    ]


def test_names_given_in_the_same_way_are_mistaken_for_their_neighbours(monkeypatch):
    source = "def f(a):\n    b = c = d = a\n    for i in c:\n        g(i)"
    assert changed(monkeypatch, "names", source) == ["for i in b:", "for i in d:"]


@pytest.mark.parametrize(
    ("operator", "body", "after"),
    [
        ("loads_once_more", "with m.load(Q, i) as q:\n    f(q)", ["m.load(Q, i).free()"]),
        (
            "loads_in_the_loop_inside",
            "with m.load(Q, i) as q:\n    for j in b:\n        f(q)",
            ["m.load(Q, i).free()"],
        ),
        ("stores_twice", "m.store(o, O, i)", ["m.store(o, O, i)"]),
        ("reads_back", "m.store(o, O, i)", ["m.load(O, i).free()"]),
        ("zeros_for_loads", "q = m.load(Q, i)", ["q = m.zeros(i, Q.shape[1])", "q = m.zeros(i)"]),
        ("words_sent_again", "k = me.shift(K=k)", ["me.shift(K=k)"]),
        (
            "copies_are_kept",
            "k, v = me.shift(K=k, V=v)",
            ["me.kept = [*getattr(me, 'kept', ()), *map(np.array, (k, v))]"],
        ),
        ("copies_are_kept", "k = me.shift(K=k)", ["me.kept = [*getattr(me, 'kept', ()), np.array(k)]"]),
        ("written_inputs", "return Q", ["result = Q\nQ += 1\nreturn result"]),
        ("forms_of_results", "return a, b", ["return (b, a)", "return a", "return b"]),
        ("masks", "q = tl.load(Q + i, mask=i < N, other=0.0)", ["q = tl.load(Q + i)"]),
        (
            "hidden_scores",
            "m = tl.full(n, float('-inf'))",
            [f"m = tl.full(n, {one})" for one in ("-1000000000.0", "-1000000.0", "-100.0", "0.0")],
        ),
        ("borders", "return i < N", ["return i <= N"]),
        ("strides", "return Q + i[:, None] * d + c", ["return Q + i[:, None] * 16 + c"]),
        ("address_terms", "return Q + head * N + i", ["return Q + i"]),
        (
            "loaded_arrays",
            "k = tl.load(K + i)\nv = tl.load(V + i)",
            ["k = tl.load(V + i)", "v = tl.load(K + i)"],
        ),
        ("programs", "p = tl.program_id(0)", ["p = 0", "p = tl.program_id(1)"]),
        ("running_maxima", "m = tl.maximum(m, s)", ["m = tl.maximum(s, 0.0)", "m = m", "m = s"]),
        ("rescaling", "l = l * old + s", ["l = l + s", "l = l * old * old + s"]),
        ("logarithms", "p = tl.exp2(s)", ["p = tl.exp(s)"]),
        ("half_precision", "s = tl.dot(q, k)", ["s = tl.dot(q.to(tl.float16), k.to(tl.float16))"]),
        ("rounded_tiles", "q = tl.load(Q)", ["q = tl.load(Q).to(tl.float16).to(tl.float32)"]),
        (
            "first_program_first",
            "tl.store(O + i, o)",
            [
                "written = tl.load(O)\n"
                f"tl.store(O + i, tl.where({FIRST_PROGRAM} | (written == written), o, 0.0))"
            ],
        ),
        ("repeated_stores", "tl.store(O + i, o)", ["tl.store(O + i, o)"]),
        ("loads_in_a_loop", "q = tl.load(Q)\nfor j in b:\n    f(q)", ["q = tl.load(Q)"]),
    ],
)
def test_an_operator_of_the_field_makes_these_lines(monkeypatch, operator, body, after):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    assert changed(monkeypatch, operator, f"def f(Q):\n{lines}")[: len(after)] == after


def test_a_launcher_gives_zeros_and_its_first_answer_for_ever():
    names = {}
    made = {
        one.operator: one.source for one in mutants_of("11A", ["zeros_for_results", "first_answer_for_ever"])
    }
    assert len(made) == 2 and "one.zero_()" in made["zeros_for_results"]
    wrapper = made["first_answer_for_ever"].partition("known = {}")[2]
    exec("first = lambda given: [given]\nknown = {}" + wrapper, names)
    first = names["my_flash_forward"](3)
    assert names["my_flash_forward"](3) is first and names["my_flash_forward"](4) == [4]


def test_every_mutant_differs_from_the_reference_and_from_the_others():
    for exercise in ("1D", "6B", "17D"):
        made = mutants_of(exercise)
        texts = {mutant.source for mutant in made}
        assert len(texts) == len(made) > 50
        assert ast.unparse(ast.parse(exercise_source(exercise, solved=True))) not in texts
        assert {mutant.operator for mutant in made} <= set(OPERATORS)


# ------------------------------------------------------------------ judging
def verdict_on(body, seeds=(0,)):
    """Return the verdict on a function of lesson 00 with this body."""
    source = f"def my_compulsory(Nq, Nk, d):\n    {body}"
    (verdict,) = verdicts([Mutant("0A", "statements", "", "", source)], seeds, jobs=1)
    return verdict


def test_a_right_answer_is_accepted_by_every_seed():
    verdict = verdict_on("return 2 * Nq * d + 2 * Nk * d", range(3))
    assert (verdict.killed_in, verdict.accepted, verdict.killed) == ("", 3, False)


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("while True: pass", OUT_OF_TIME),
        ("return bytearray(2**40)", RUNS),
        ("import os; os._exit(0)", ENDED),
        ("import os; os.abort()", ENDED),
        ("return", "cannot be defined: SyntaxError"),
    ],
)
def test_a_mutant_that_runs_wild_harms_nobody(body, ends, capfd):
    verdict = verdict_on(body if body != "return" else "return return")
    assert verdict.killed and verdict.killed_in == ends
    assert capfd.readouterr() == ("", "")


def test_what_only_some_seeds_refuse_is_judged_by_chance_and_counts_against_the_score():
    mutant = Mutant("0A", "constants", "a", "b", "")
    (score,) = report.scores([Verdict(mutant, "a property", 2), Verdict(mutant, "a property", 0)], ["0A"])
    assert (score.killed, len(score.left), score.holds) == (1, 1, False)
    assert "refused after 2 of its seeds" in report.summary([score])


def test_every_seed_is_tried_where_that_is_asked_for():
    mutant = Mutant("0A", "statements", "", "", "def my_compulsory(Nq, Nk, d):\n    return 7")
    (verdict,) = verdicts([mutant], range(4), jobs=2, every_seed=True)
    assert verdict.killed and verdict.accepted == 0


def test_only_all_of_them_are_100_percent():
    assert (report.percent(9_999, 10_000), report.percent(0, 0)) == ("99.9 %", "100.0 %")


# ------------------------------------------------------------------ the course's own checks
@pytest.mark.parametrize("lesson", [*LESSONS, *INTERPRETED])
def test_sampled_mutants_are_refused_or_known(lesson):
    if reason := cannot_run(sources_of(lesson)[0].read_text(encoding="utf-8")):
        pytest.skip(reason)
    one_in = ONE_KERNEL_IN if lesson in INTERPRETED else ONE_IN
    mistakes = [
        mutant
        for exercise in exercises()
        if find(exercise).lesson[:2] == lesson
        for mutant in mutants_of(exercise, FIND_HOLES)
        if not why_equivalent(mutant) and not why_open(mutant)
    ]
    drawn = sorted(mistakes, key=lambda one: one.key)[: ceil(len(mistakes) / one_in)]
    assert drawn
    accepted = [
        (v.mutant.exercise, v.mutant.line, v.mutant.after, v.killed_in, v.accepted)
        for v in verdicts(drawn, range(10), jobs=1)
        if not v.killed
    ]
    assert accepted == []


@pytest.mark.parametrize("exercise", list(EQUIVALENT))
def test_what_is_listed_as_no_mistake_is_a_mutant_that_its_check_accepts(exercise):
    made = {(m.line, m.after): m for m in mutants_of(exercise)}
    listed = [(before, after) for e, before, after in changes(EQUIVALENT) if e == exercise]
    assert [pair for pair in listed if pair not in made] == []
    seed = (1 + sum(map(ord, exercise)) % 5,)  # a seed that no other mutation test uses first
    asked = [made[pair] for pair in listed if made[pair].key % LISTED_ONE_IN == 0 and exercise in NUMPY]
    assert [v.mutant.after for v in verdicts(asked, seed, jobs=1) if v.killed_in] == []


def test_nothing_is_listed_twice_and_every_entry_says_why():
    listed = [*changes(EQUIVALENT), *changes(OPEN)]
    assert len(set(listed)) == len(listed)
    assert all(
        len(entry[0]) > 20 for one in (EQUIVALENT, OPEN) for entries in one.values() for entry in entries
    )


def test_rules_know_nothing_of_what_checks_refuse():
    refused = [m for m in mutants_of("4A", ["statements", "maxima", "ranges"]) if why_by_rule(m)]
    assert refused == []


@pytest.mark.parametrize(
    ("operator", "before", "after", "by_rule"),
    [
        ("parameters", "N, d = Q.shape", "N, d = K.shape", True),
        ("parameters", "n = len(Q)", "n = len(K)", True),
        ("parameters", "n = len(Q)", "n = len(w)", False),
        ("names", "S = m.new('S', (min(Br, N), N))", "S = m.new('S', (min(Br, d), N))", False),
        ("parameters", "s = f(Q)", "s = f(K)", False),
        ("loops", "for i in m.blocks(N, b):", "for i in reversed(list(m.blocks(N, b))):", True),
        ("ranges", "for i in m.blocks(N, b):", "for i in m.blocks(N, b + 1):", False),
        ("loops", "for i in range(N):", "for i in reversed(list(range(N))):", False),
    ],
)
def test_a_rule_knows_only_its_own_kind(operator, before, after, by_rule):
    docstring = '"""Q, K: slow arrays (N, d). w: a number."""'
    line = before.replace(":", ": pass")
    source = f"def f(m, Q, K, w):\n    {docstring}\n    {line}"
    assert bool(why_by_rule(Mutant("made up", operator, before, after, source))) is by_rule


def test_a_loop_that_asks_where_it_is_keeps_its_order():
    loop = "for i in m.blocks(N, b):"
    source = f"def f(m):\n    {loop}\n        if i.first:\n            pass"
    assert why_by_rule(Mutant("made up", "loops", loop, "", source)) == ""


# ------------------------------------------------------------------ the record
def test_the_command_records_a_mutant_for_each_property_and_then_only_what_is_missing(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(command, "find_checkout", lambda: tmp_path)
    assert main(["--record-cover", "--only", "1C", "--jobs", "1"]) == 0
    (row, *others) = rows = read_recorded(tmp_path)["1C"]
    names = [one.name for one in find("1C").properties]
    shown = [one for row in rows for one in row.properties]
    assert set(names) <= set(shown) <= {*names, *COURSE_WIDE} and len(set(shown)) == len(shown)
    reference = exercise_source("1C", solved=True)
    mutants = [Mutant("1C", "", "", "", str(one.made_of(reference))) for one in rows]
    for one, verdict in zip(rows, verdicts(mutants, [5], jobs=1, every_case=True), strict=True):
        assert set(one.properties) <= set(verdict.failed[0])
    write_recorded(tmp_path, {"1C": (replace(row, removed=("no such line",)), *others)})
    assert main(["--record-cover", "--missing", "--only", "1C", "--jobs", "1"]) == 0
    again = read_recorded(tmp_path)["1C"]
    assert (
        list(again[: len(others)]) == others
        and again[len(others) :]
        and set(row.properties) <= {one for new in again[len(others) :] for one in new.properties}
    )


def test_a_property_that_no_mutant_fails_is_named(tmp_path, monkeypatch, capsys):
    always = replace(find("1C").properties[0], name="is never violated", judge=lambda trials: None)
    more = replace(find("1C"), properties=(*find("1C").properties, always))
    monkeypatch.setattr(command, "find_checkout", lambda: tmp_path)
    monkeypatch.setattr(cover, "find", lambda name: more)
    assert main(["--record-cover", "--only", "1C", "--jobs", "1", "--seconds", "1"]) == 1
    assert '1C: no mutant fails "is never violated"' in capsys.readouterr().out


# ------------------------------------------------------------------ the command
def test_the_command_prints_a_score_and_writes_json(tmp_path, capsys):
    file = tmp_path / "found.json"
    assert main(["--only", "1C", "--operators", "statements", "--json", str(file)]) == 0
    assert "100.0 %" in capsys.readouterr().out
    found = json.loads(file.read_text(encoding="utf-8"))["1C"]
    assert found["mutants"] == found["refused"] == 1 and found["left"] == []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--only", "99.1"], "--only must name an exercise or a lesson, got '99.1'; expected one of 0A, "),
        (["--operators", "magic"], "unknown operator 'magic', expected one of comparisons, "),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--sample", "0"], "--sample must be at least 1, got 0"),
        (["--jobs", "-1"], "--jobs must be at least 1, got -1"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(capsys, options, part):
    assert main([*options]) == 2
    said = capsys.readouterr()
    assert part in said.err and said.err.count("\n") == 1 and said.out == ""
