"""Tests of exercise kind `choice`: invalid declarations, failing properties, and its cases."""

from itertools import product

import numpy as np
import pytest

from iocourse import costs
from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import Sample, Trial, find
from iocourse.course.kinds.choice import choice_exercise, tile_form
from iocourse.ledger import Ledger

IDS = ("2C", "4D", "7D", "9A")
BEST = "no tile that fits moves fewer words"
FITS, FORM = "the tile fits in M words", "returns two positive integers"


def problems(rng):
    yield from (Sample(sizes, sizes) for sizes in ({"N": 12, "M": 4}, {"N": 12, "M": 1}))


def tiles(N, M):
    return ({"b": b, "c": 1} for b in range(1, N + 1))


def words(tile, N, M):
    return Ledger(reads={"A": N * -(-N // tile["b"])}, peak=tile["b"] * tile["c"])


PARTS = {"among": tiles, "moves": words, "fits": FITS}


def declared(**changed):
    return choice_exercise("2C", problems, tile_form("b", "c"), **{**PARTS, **changed})


def failures(exercise, function, seed=0):
    return failed_properties(judge(exercise, function, seed))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("among", "exercise 2C has no exact result: pass among, a function of the inputs"),
        ("moves", "exercise 2C has no closed form: pass moves, a function of a choice"),
    ],
)
def test_a_choice_without_an_oracle_or_a_closed_form_is_refused(missing, said):
    parts = {name: part for name, part in PARTS.items() if name != missing}
    with pytest.raises(ValueError, match=said):
        choice_exercise("2C", problems, tile_form("b", "c"), **parts)


def test_a_case_in_which_nothing_fits_is_refused():
    exercise = declared(among=lambda N, M: iter([{"b": 2, "c": 1}]))
    with pytest.raises(ValueError, match="2C: no possible choice fits in the case 'N=12, M=1'"):
        exercise.cases(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda N, M: (M, 1), {}),
        (
            lambda N, M: (min(N, M + 1), 1),
            {FITS: "b=5, c=1 needs 5 words, but M = 4 ("},
        ),
        (lambda N, M: (1, 1), {BEST: "b=1, c=1 moves 144 words, the minimum is 36 (N=12, M=4)"}),
        (lambda N, M: 3, {FORM: "expected a tile (b, c), got 3"}),
        (
            lambda N, M: (0, 1),
            {FORM: "expected a tile (b, c), got (0"},
        ),
    ],
)
def test_each_property_of_the_kind_fails_for_a_made_up_answer(answer, said):
    found = failures(declared(), answer)
    assert found.keys() == said.keys()
    assert all(found[name].startswith(text) for name, text in said.items())


def test_a_clue_and_another_unit_are_printed():
    named = declared(unit="bytes", clue=lambda tile: f" with b={tile['b']}")
    said = failures(named, lambda N, M: (1, 1))[BEST]
    assert said == "b=1, c=1 moves 144 bytes, the minimum is 36 with b=4 (N=12, M=4)"


@pytest.mark.parametrize("id", IDS)
def test_every_case_has_tags_and_no_property_asks_about_no_case(id):
    exercise = find(id)
    cases = exercise.cases(np.random.default_rng(0))
    assert all(case.tags is not None for case in cases)
    for prop in exercise.properties:
        assert prop.judge([Trial(case, value="neither") for case in cases]), prop.name


def test_the_best_tile_of_4D_is_the_best_of_all_tiles():
    for seed in range(3):
        for case in find("4D").cases(np.random.default_rng(seed)):
            N, d, M = (case.inputs[name] for name in ("N", "d", "M"))
            every = (costs.flash_optimal(N, d, Br=Br, Bc=Bc) for Br in range(1, N + 1) for Bc in (1, 2, 3, N))
            assert case.expected == min(ledger.total for ledger in every if ledger.peak <= M)


def test_the_best_tile_of_2C_is_the_best_of_all_tiles():
    for case in find("2C").cases(np.random.default_rng(0)):
        m, n, k, M = (case.inputs[name] for name in ("m", "n", "k", "M"))
        sides = product(range(1, m + 1), range(1, n + 1))
        fitting = ((bm, bn) for bm, bn in sides if bm * bn + bm + bn <= M and (bm < 40 or bn < 40))
        assert case.expected == min(costs.matmul(m, n, k, bm=bm, bn=bn).total for bm, bn in fitting)
