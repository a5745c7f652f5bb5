"""Tests of exercise kind `distributed`: values computed from sizes, and errors that name the cause."""

import numpy as np
import pytest

from iocourse import distributed as ranks
from iocourse import exact
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.kinds.distributed import FAR, distributed_exercise, normal_arrays, shards
from iocourse.course.properties import LARGE
from iocourse.course.trials.rank_runs import FEW, RAGGED, rank_case, receives

WORDS = (receives("keys once", "K"),)
OF_THE_KIND = ("18A", "18B", "18C", "18D", "19C", "19D")


def sample(*shape, tag=""):
    return lambda rng: iter([(tag, shape[0], normal_arrays(rng, "Q K V", *shape[1:]))])


def drawn(made, seed=0):
    return made.cases(np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"form": "rign"}, "form must be one of ring, "),
        ({"form": None}, "form must be one of ring, "),
        ({"result": None}, "result must be a function of the inputs, such as exact.attention, got None"),
        ({"words": ()}, "words is empty; pass a property of words, such as receives(name, 'K', 'V')"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(given, told):
    whole = {"form": "ring", "result": exact.attention, "words": WORDS} | given
    with pytest.raises(ValueError) as refused:
        distributed_exercise("18A", whole["form"], whole["result"], shards, whole["words"])
    assert f"exercise 18A: {told}" in str(refused.value)
    if "form" in given:
        assert str(refused.value).endswith(f"returns a RankLedger, got {given['form']!r}")


def test_a_property_of_a_tag_that_no_case_has_is_refused_when_cases_are_drawn():
    made = distributed_exercise("18A", "ring", exact.attention, sample(4, 8, 3), WORDS, where=FAR)
    with pytest.raises(ValueError, match=f"no case has the tag '{LARGE}' of '{LARGE} neither overflow"):
        drawn(made)


@pytest.mark.parametrize(
    ("P", "N", "tag", "label"),
    [
        (4, 8, "", "P=4, N=8, d=3"),
        (4, 9, "", f"{RAGGED}, P=4, N=9, d=3"),
        (4, 3, "", f"{FEW}, P=4, N=3, d=3"),
        (4, 3, "hard", "hard, P=4, N=3, d=3"),
    ],
)
def test_a_case_has_one_difficulty_which_its_label_begins_with(P, N, tag, label):
    (case,) = drawn(distributed_exercise("18A", "ring", exact.attention, sample(P, N, 3, tag=tag), WORDS))
    difficulty = label.split(", P=")[0] if not label.startswith("P=") else None
    assert (case.label, case.tags) == (label, frozenset([difficulty] if difficulty else []))


def test_heads_queries_and_options_are_said_as_sizes():
    Q, K = np.ones((2, 3)), np.ones((6, 3))
    assert rank_case("decode", 3, {"Q": Q, "K": K, "V": K}).label == "P=3, N=6, queries=2, d=3"
    X = np.ones((6, 4, 3))
    assert rank_case("ulysses", 2, {"Q": X, "K": X, "V": X}).label == "P=2, N=6, H=4, d=3"
    assert rank_case("grid", 4, {"Q": K, "K": K, "V": K, "a": 2}).label == f"{RAGGED}, P=4, N=6, d=3, a=2"


def test_a_closed_form_is_a_schedules_name_or_a_function_of_the_inputs():
    given = normal_arrays(np.random.default_rng(0), "Q K V", 12, 3) | {"c": 3}
    ledger = ranks.RankLedger({"K": 7}, {"K": 7}, 7)
    named, own = rank_case("ring", 4, given), rank_case(lambda P, Q, K, V, c: ledger, 4, given)
    assert named.budget == ranks.get("ring").ledgers(4, 12, 3) and own.budget == (ledger,) * 4


def test_large_scores_reach_10_000_in_every_row():
    given = normal_arrays(np.random.default_rng(0), "Q K V", 7, 4, large=True)
    scores = given["Q"] @ given["K"].T / 2
    assert scores.max(axis=1) == pytest.approx(np.full(7, 10_000.0))


@pytest.mark.parametrize("id", OF_THE_KIND)
def test_cases_are_even_and_ragged_for_several_numbers_of_ranks_each_with_a_closed_form(id):
    for seed in range(5):
        cases = drawn(find(id), seed)
        assert len({case.P for case in cases}) >= 3
        assert id == "19C" or any(case.P > 2 and len(case.inputs["K"]) % case.P == 0 for case in cases)
        assert id == "19D" or any(
            len(case.inputs["K"]) % case.P for case in cases
        )  # a rank has complete clips
        assert all(len(case.budget) == case.P and len(case.tags) <= 1 for case in cases)


def test_a_function_that_gathers_moves_what_its_closed_form_does_not_have():
    def gather(me, Q, K, V):
        return ranks.attend(Q, *me.all_gather(k=K, v=V))[0]

    said = dict(judge(find("18A"), gather, 0))
    assert (
        "rank 0 receives 0 words of K, expected "
        in said["every rank receives K and V of the other ranks once"]
    )
