"""Few words moved by an answer that does not do its work are not reached, so they earn nothing."""

import numpy as np
import pytest
from harness import drawn

from iocourse.course.checking import judge
from iocourse.course.exercise import NotReached, find
from iocourse.course.points import points_of

MOST_FOR_THE_FORM = 0.2


def maximum_of_the_first_piece(pieces):
    s = next(pieces)
    return s.max(), np.exp(s - s.max()).sum()


def output_of_the_first_piece(pieces):
    s, v = next(pieces)
    p = np.exp(s - max(s.max(), -1e300))
    return p @ v / max(p.sum(), 1e-300)


def stores_without_work(n):
    return [f"store p{j}" for j in range(1, n + 1)]


def as_many_pebbles_as_words(d):
    moves = [
        f"{kind} {x}{l}"
        for l in range(1, d + 1)
        for kind, x in (("load", "a"), ("load", "b"), ("compute", "p"))
    ]
    sums = ["p1", *(f"s_{l}" for l in range(2, d)), "s"]
    return [*moves, *(f"compute {total}" for total in sums[1:]), "store s"]


def all_rows(N, d, M):
    return N, 1


def all_of_the_product(m, n, k, M):
    return m, n


WITHOUT_WORK = {  # the exercise, the answer, and the properties that are not reached
    "3A": (maximum_of_the_first_piece, 2),
    "3B": (output_of_the_first_piece, 2),
    "5B": (stores_without_work, 2),
    "2C": (all_of_the_product, 2),
    "4D": (all_rows, 1),
}


@pytest.mark.parametrize("exercise_id", WITHOUT_WORK)
def test_few_words_without_work_are_not_reached(exercise_id):
    exercise, (answer, count) = find(exercise_id), WITHOUT_WORK[exercise_id]
    verdicts = judge(exercise, answer, drawn(exercise_id))
    assert sum(isinstance(said, NotReached) for _, said in verdicts) == count
    points = points_of(exercise, verdicts)
    assert not points.traffic and points.total <= MOST_FOR_THE_FORM * exercise.importance


def test_results_that_are_stored_count_although_too_many_pebbles_are_used():
    """The limit M is another property; but words moved with more pebbles are not few."""
    exercise = find("5A")
    said = dict(judge(exercise, as_many_pebbles_as_words, drawn("5A")))
    legal, stored, words = (prop.name for prop in exercise.properties[1:])
    assert "all M = 3 red pebbles are in use" in said[legal]
    assert said[stored] is None and said[words].startswith("the pebbling is not legal")


def test_a_ratio_that_depends_on_the_sizes_says_nothing_on_bytes():
    exercise = find("0A")
    said = dict(judge(exercise, lambda Nq, Nk, d: d * (Nq + 2 * Nk), drawn("0A")))
    assert isinstance(said["counts each word once, in words and not in bytes"], NotReached)
