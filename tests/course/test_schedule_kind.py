"""Tests of exercise kind `schedule`: invalid declarations, failing properties, and its cases."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from iocourse import exact
from iocourse.course.checking import HeldWithRemark, failed_properties, judge, read_first, report
from iocourse.course.exercise import Better, Sample, Trial, exercises, find
from iocourse.course.kinds.schedule import ScheduleCase, schedule_exercise
from iocourse.course.properties import LARGE, reads, values, values_in, writes
from iocourse.ledger import Ledger
from tests.mutation.references import INTERPRETED, build, exercise_source

IDS = ("2A", "2B", "2D", "3D", "4A", "4B", "4C", "4E", "6B", "6D", "7A", "7B", "7C", "7F")
IDS = (*IDS, "8B", "8C", "9C", "9D", "15C", "15E", "16C")


def samples(rng):
    A = rng.standard_normal((5, 4))
    yield from (Sample({"N": 5, "b": b}, {"A": A, "b": b}, tags=("ragged",) if 5 % b else ()) for b in (2, 5))


def words(N, b):
    return Ledger(reads={"A": 20}, writes={"Y": 20}, peak=4 * min(b, N), sizes={"A": 20, "Y": 20})


def doubled(A, b):
    return 2 * A


PARTS = {
    "equals": doubled,
    "moves": words,
    "values": (values("Y is 2A"), values_in("a ragged block is right", "ragged")),
    "words": (*reads(A="once"), *writes(Y="once")),
}


def declared(**changed):
    return schedule_exercise("2A", samples, **{**PARTS, **changed})


def doubles(m, A, *, b):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], b):
        with m.load(A, i) as a:
            a *= 2.0
            m.store(a, Y, i)
    return Y


def failures(exercise, function, seed=0):
    return failed_properties(judge(exercise, function, seed))


# ---------------------------------------------------------------------- invalid declarations
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("equals", "exercise 2A has no exact result: pass equals, a function of the inputs"),
        ("moves", "exercise 2A has no closed form: pass moves, a function of the sizes"),
        ("values", "exercise 2A has no property of its values: pass values"),
        ("words", "exercise 2A has no property of its words: pass words"),
    ],
)
def test_a_schedule_without_an_oracle_a_budget_or_sentences_is_refused(missing, said):
    parts = {name: part for name, part in PARTS.items() if name != missing}
    with pytest.raises(ValueError, match=said):
        schedule_exercise("2A", samples, **parts)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"equals": lambda A, b: None},
            "the case 'N=5, b=2, ragged' has no exact result; equals must",
        ),
        ({"moves": lambda N, b: Ledger(peak=3)}, "has no words; moves must return it"),
        ({"moves": lambda N, b: Ledger(reads={"A": 20})}, "has no footprint; moves must return it"),
    ],
)
def test_a_case_without_a_result_words_or_a_footprint_is_refused(changed, said):
    with pytest.raises(ValueError, match=f"exercise 2A: .*{said}"):
        declared(**changed).cases(np.random.default_rng(0))


# ---------------------------------------------------------------------- failing properties
def loads_twice(m, A, *, b):
    for i in m.blocks(A.shape[0], b):
        m.load(A, i).free()
    return doubles(m, A, b=b)


def loads_nothing(m, A, *, b):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], b):
        m.store(m.zeros(i, A.shape[1]), Y, i)
    return Y


def makes_a_second_block(m, A, *, b):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], b):
        with m.load(A, i) as a, 2.0 * a as y:
            m.store(y, Y, i)
    return Y


def keeps_the_last_row(m, A, *, b):
    Y = m.new("Y", A.shape)
    for i in m.blocks(A.shape[0], b):
        with m.load(A, i) as a:
            if i.last:
                a[:-1] *= 2.0
            else:
                a *= 2.0
            m.store(a, Y, i)
    return Y


TOTAL = "moves no more words than the closed form"
LOADED = "loads every word of its inputs"


@pytest.mark.parametrize(
    ("answer", "fails"),
    [
        (doubles, set()),
        (loads_twice, {"A is read once", TOTAL}),
        (loads_nothing, {"Y is 2A", "a ragged block is right", LOADED}),
        (makes_a_second_block, {"fits in fast memory"}),
        (keeps_the_last_row, {"Y is 2A", "a ragged block is right"}),
    ],
)
def test_each_property_of_the_kind_fails_for_a_made_up_answer(answer, fails):
    assert set(failures(declared(), answer)) == fails


def test_the_allowance_is_beyond_the_footprint():
    roomy = declared(spare=lambda N, b: 4 * min(b, N))
    assert [case.M for case in roomy.cases(np.random.default_rng(0))] == [16, 40]
    assert failures(roomy, makes_a_second_block) == {}


# ---------------------------------------------------------------------- the cause is named
def test_facts_reach_the_result_and_the_closed_form():
    def drawn(rng):
        yield Sample({"N": 5}, {"A": np.ones((5, 4)), "b": 2}, facts={"times": 3.0})

    found = schedule_exercise(
        "2A",
        drawn,
        **{**PARTS, "equals": lambda A, b, times: times * A, "moves": lambda N, b, times: words(N, b)},
    )
    assert (found.cases(np.random.default_rng(0))[0].expected == 3.0).all()


@pytest.mark.parametrize(
    ("asked", "handed_in", "said"),
    [
        ("4A", "4B", "your outer loop is over keys: Q is read 6 times ("),
        ("4B", "4A", "your outer loop is over queries: K is read 7 times ("),
        ("4C", "4B", "your outer loop is over keys: "),
    ],
)
def test_another_loop_order_is_named_first(asked, handed_in, said):
    found = failures(find(asked), build(handed_in, exercise_source(handed_in, solved=True)))
    assert found[read_first(find(asked), found)].startswith(said)


def test_a_product_in_exchanged_tiles_is_told_so():
    def exchanged(m, A, B, *, bm, bn):
        (rows, depth), columns = A.shape, B.shape[1]
        C = m.new("C", (rows, columns))
        for i in m.blocks(rows, bn):
            for j in m.blocks(columns, bm):
                with m.zeros(i, j) as c:
                    for k in m.blocks(depth, 1):
                        with m.load(A, i, k) as a, m.load(B, k, j) as b:
                            c.add_matmul(a, b)
                    m.store(c, C, i, j)
        return C

    found = failures(find("2B"), exchanged)
    assert found[read_first(find("2B"), found)].startswith("your tiles of C have bn rows and bm columns: ")


# ---------------------------------------------------------------------- fewer words than the budget
def test_fewer_words_than_the_closed_form_are_accepted_and_said_to_be():
    generous = declared(moves=lambda N, b: replace(words(N, b), reads={"A": 20, "Y": 1}))
    verdicts = judge(generous, doubles, 0)
    assert all(said is None for _, said in verdicts)
    (held,) = (name for name, _ in verdicts if isinstance(name, HeldWithRemark))
    assert held.remark == "fewer than the closed form, 40 words instead of 41 (N=5, b=2, ragged)"
    assert f"holds  {TOTAL}: fewer than the closed form" in report(generous, verdicts, 0)
    assert not any(isinstance(name, HeldWithRemark) for name, _ in judge(declared(), doubles, 0))


# ---------------------------------------------------------------------- all exercises of the kind
def test_these_are_all_its_exercises():
    assert {one.id for one in exercises().values() if isinstance(first_case(one), ScheduleCase)} == set(IDS)


def first_case(exercise):
    return exercise.cases(np.random.default_rng(0))[0] if exercise.lesson[:2] not in INTERPRETED else None


@pytest.mark.parametrize("id", IDS)
def test_a_case_has_one_tag_at_most_and_room_for_its_closed_form(id):
    for seed in range(5):
        for case in find(id).cases(np.random.default_rng(seed)):
            assert case.tags is not None and len(case.tags) <= 1
            assert case.M >= case.budget.peak > 0


def filled(value, number):
    parts = [np.full(np.shape(part), number) for part in (value if isinstance(value, tuple) else (value,))]
    return tuple(parts) if isinstance(value, tuple) else parts[0]


@pytest.mark.parametrize("id", IDS)
def test_no_property_asks_about_no_case(id):
    """A property without a case, or without two cases with the same input, would hold for every answer."""
    exercise = find(id)
    cases = exercise.cases(np.random.default_rng(0))
    wrong = [Trial(case, filled(case.expected, np.nan), case.budget) for case in cases]
    idler = [Trial(case, case.expected, Ledger()) for case in cases]
    mover = [Trial(case, case.expected, twice(case)) for case in cases]
    for prop in exercise.properties:
        said = [prop.judge(trials) for trials in (wrong, idler, mover)]
        assert any(one and not isinstance(one, Better) for one in said), prop.name


def twice(case):
    """Return a run with doubled traffic, one more scratch array and one word too many in fast memory."""
    budget, more = case.budget, 2 * case.budget.total
    names = {*budget.reads, *budget.writes}
    reads, writes = (
        {name: 2 * got.get(name, more) for name in names} for got in (budget.reads, budget.writes)
    )
    return Ledger(reads, writes, peak=case.M + 1, sizes={**budget.sizes, "scratch": more})


@pytest.mark.parametrize("id", [id for id in IDS if id[0] in "4789" and id not in ("7A", "9C", "9D")])
def test_a_forward_schedule_is_tried_on_scores_that_need_their_maximum(id):
    """In some cases exp overflows, in some all scores are very negative, in some below finite sentinels."""
    for seed in range(5):
        hard = [case for case in find(id).cases(np.random.default_rng(seed)) if case.has(LARGE)]
        assert len(hard) == 3 and all(np.isfinite(case.expected).all() for case in hard)
        over, below, bottom = (exact.scores(case.inputs["Q"], case.inputs["K"]) for case in hard)
        assert over.max() > 1e4 and over.min() < -1e4
        assert -40_000 < below.min() < -29_000 and below.max() < -190 and bottom.max() < -1e11


@pytest.mark.parametrize("id", ["6B", "6D", "9C", "9D"])
def test_a_backward_schedule_is_tried_on_scores_that_overflow_without_L(id):
    for seed in range(5):
        (case,) = (case for case in find(id).cases(np.random.default_rng(seed)) if case.has(LARGE))
        assert case.inputs["LSE"].max() > 1e3 and all(np.isfinite(part).all() for part in case.expected)


def finite_maximum(m, Q, K, V, *, Br, Bc, least):
    """FA-2 order with its own row statistics, whose maximum starts at a finite number."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            stats.m[:] = least
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


@pytest.mark.parametrize("least", [-1e4, -1e9, -1e11])
def test_a_finite_number_for_minus_infinity_is_refused(least):
    student = partial(finite_maximum, least=least)
    assert f"{LARGE} neither overflow nor vanish" in failures(find("4A"), student)
    assert failures(find("4A"), partial(finite_maximum, least=-np.inf)) == {}


def test_a_finite_number_for_a_hidden_score_is_refused():
    source = exercise_source("8B", solved=True)
    hide = next(line for line in source.splitlines() if "m.hide(" in line)
    indent = hide[: len(hide) - len(hide.lstrip())]
    wrong = source.replace(hide, f"{hide}\n{indent}s *= 1.0; np.maximum(s, -1e9, out=s)")
    assert f"{LARGE} neither overflow nor vanish" in failures(find("8B"), build("8B", wrong))


def test_blocks_wider_than_asked_that_fit_are_accepted_with_praise():
    source = exercise_source("7B", solved=True)
    wider = source.replace("m.blocks(N, Bc)", "m.blocks(N, Bc + (Br > 4))")
    assert wider != source
    verdicts = judge(find("7B"), build("7B", wider), 0)
    assert [name for name, said in verdicts if said is not None] == []
    assert any(isinstance(name, HeldWithRemark) for name, _ in verdicts)
