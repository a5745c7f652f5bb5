"""Tests of exercise kind `function`: cases from samples, properties from sentences, and all its exercises."""

import numpy as np
import pytest

from iocourse.course.checking import judge, read_first
from iocourse.course.exercise import Sample, exercises
from iocourse.course.kinds.function import EVERY, TOGETHER, function_exercise

SUM, SIGN = {("total", EVERY): "the total is right"}, {("total", "below 0"): "numbers below 0 count"}


def samples(rng):
    for n, low in ((3, 0), (4, -9)):
        x = rng.integers(1, 9, n) + low
        yield Sample({"n": n}, {"x": x}, {"total": x.sum()}, tags=("below 0",) if low else ())


def made(sentences, results="total", draw=samples):
    """Return an exercise of this kind, with the texts of 14A."""
    return function_exercise("14A", results, draw, sentences)


def first(about, answer):
    """Return the names of the failed properties, and the one to read first."""
    failed = {name: said for name, said in judge(about, answer, 0) if said is not None}
    return list(failed), read_first(about, failed) if failed else None


def test_cases_have_the_sizes_and_the_tags_of_their_samples():
    plain, low = made(SUM | SIGN).cases(np.random.default_rng(0))
    assert (plain.label, low.label) == ("n=3", "n=4, below 0")
    assert (plain.tags, low.tags) == (frozenset(), {"below 0"})
    assert plain.expected == plain.inputs["x"].sum() and plain.budget is None


def test_the_sentence_of_a_tag_is_read_first_unless_plain_cases_are_wrong_too():
    about = made(SUM | SIGN)
    assert first(about, np.sum) == ([], None)
    both = ["the total is right", "numbers below 0 count"]
    assert first(about, lambda x: np.abs(x).sum()) == (both, both[1])
    assert first(about, lambda x: x.sum() + 1) == (both, both[0])


def test_all_results_together_are_named_and_their_number_is_told():
    def both(rng):
        yield from (Sample({"n": n}, {"n": n}, {"half": n / 2, "double": 2 * n}) for n in (4, 6))

    about = made({(TOGETHER, EVERY): "both are right"}, "half double", both)

    def said(answer):
        return judge(about, answer, 0)[0][1]

    assert said(lambda n: (n / 2, 2 * n)) is None
    assert said(lambda n: (n / 2, n)) == "double: got 4, expected 8 (n=4)"
    assert said(lambda n: (2 * n, n / 2)).startswith("half: got double; return half, double in this order")
    assert said(lambda n: (n,)) == "expected 2 results (half, double), got 1 (n=4)"
    assert "returned None" in said(lambda n: None)
    alone = made({(TOGETHER, EVERY): "the total is right"})
    assert judge(alone, lambda x: 0, 0)[0][1].startswith("total: got 0, expected ")


def test_looser_cases_are_asked_by_their_own_sentence_alone():
    about = function_exercise("14A", "total", samples, SUM | SIGN, tolerance=1e-9, looser={"below 0": 1.0})
    assert first(about, lambda x: x.sum() + (0.1 if x[0] < 0 else 0)) == ([], None)
    assert first(about, lambda x: x.sum() + 0.1)[0] == ["the total is right"]


@pytest.mark.parametrize(
    ("sentences", "results", "message"),
    [
        (SUM, "", "exercise 14A has no results: give what is judged"),
        ({}, "total", "exercise 14A has no sentences"),
        ({("mean", EVERY): "the mean is right"}, "total", "a sentence about 'mean'; its results are total"),
    ],
)
def test_a_declaration_without_results_or_sentences_is_refused(sentences, results, message):
    with pytest.raises(ValueError, match=message):
        made(sentences, results)


def test_a_sample_without_its_exact_result_is_refused():
    about = made(SUM, draw=lambda rng: [Sample({"n": 1}, {"x": np.ones(1)}, {"mean": 1.0})])
    with pytest.raises(ValueError, match="exercise 14A: the case 'n=1' has no exact result 'total'"):
        about.cases(np.random.default_rng(0))


def test_a_sentence_that_asks_nothing_is_refused():
    about = made(SUM | {("total", "ragged"): "ragged numbers count"})
    with pytest.raises(
        ValueError, match="no case has the tag 'ragged', so 'ragged numbers count' tests nothing"
    ):
        about.cases(np.random.default_rng(0))


OF_THE_KIND = [
    one.id
    for one in exercises().values()
    if one.cases.__qualname__.startswith(f"{function_exercise.__qualname__}.")
]


@pytest.mark.parametrize("exercise_id", OF_THE_KIND)
def test_the_label_of_a_case_shows_its_tags_and_every_sentence_has_a_case(exercise_id):
    """Drawing the cases raises if a sentence has no case."""
    for seed in range(5):
        for case in exercises()[exercise_id].cases(np.random.default_rng(seed)):
            assert all(tag in case.label.split(", ") or case.label.endswith(tag) for tag in case.tags)
            assert case.expected is not None
