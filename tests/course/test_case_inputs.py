"""Tests of the inputs of cases: the range of the scores in each row."""

import numpy as np
import pytest

from iocourse.course.trials import case_inputs
from iocourse.course.trials.case_inputs import LEVELS

RNG = np.random.default_rng(1)
FEW = 8.0  # standard deviations: rows of 40 standard normal numbers reach 4, sums of two less than 8


def lies_at(scores, levels):
    """Return True if the scores of each row are within a few units of its level, and not all equal."""
    wanted = np.resize(np.array(levels), (len(scores), 1))
    return (np.abs(scores - wanted) < FEW).all() and (np.ptp(scores, axis=1) > 0).all()


def test_low_scores_lie_at_their_levels_in_turn():
    scores = case_inputs.low_scores(RNG, 7, 40)
    assert scores.shape == (7, 40) and lies_at(scores, LEVELS)


@pytest.mark.parametrize("d", [2, 5, 64])
@pytest.mark.parametrize("levels", [LEVELS, (-300.0,), (-20.0, -90_000.0)])
def test_queries_and_keys_have_the_scores_of_their_levels(d, levels):
    Q, K = case_inputs.low_queries_and_keys(RNG, 7, 40, d, levels=levels)
    assert (Q.shape, K.shape) == ((7, d), (40, d)) and lies_at(Q @ K.T / d**0.5, levels)
    longest = [np.linalg.norm(rows, axis=1).max() for rows in (Q, K)]
    assert abs(longest[0] - longest[1]) < 2 * d**0.5 + FEW  # the scale is shared by queries and keys


def test_bottomless_scores_are_whole_multiples_that_nothing_rounds():
    scores = case_inputs.bottomless_scores(RNG, 3, 5) / case_inputs.BOTTOM
    assert (np.sort(scores, axis=1) == np.arange(1, 6)).all() and case_inputs.BOTTOM < -1e39
    Q, K = case_inputs.bottomless_queries_and_keys(RNG, 6)
    scores = Q @ K.T / 2 / case_inputs.BOTTOM
    assert (np.sort(scores, axis=1) == np.arange(1, 7)).all() and (scores == scores[0]).all()
