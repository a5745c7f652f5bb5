"""Tests of lesson 06b: two theorems and their proofs, the cost of a pair, and a mask."""

from itertools import product

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, exact, masks, run, schedules
from iocourse.course import explore
from iocourse.course.exercises import lesson06
from iocourse.course.exercises.lesson06 import constant as predicted_constant

LESSON = Lesson("06b_backward_lower_bounds")
says = LESSON.says
d = 64
LARGE = 64 * d**2  # the M of section 6.10


def at(name, N, d, M, **problem):
    schedule = schedules.get(name)
    return schedule.cost(N, d, **schedule.tiles(N, d, M), **problem)


def constant(words, N, d, M):
    return words * M / (N * d) ** 2


def hidden_part(name, N):
    masked, whole = (at(name, N, d, 16384, **mask).total for mask in ({"mask": masks.Causal(N)}, {}))
    return masked / whole


def test_a_causal_mask_saves_half_in_the_end_and_the_standard_backward_pass_nothing():
    sizes = (256, 1024, 4096, 16384)
    split = [hidden_part("split_backward", N) for N in sizes]
    assert split == sorted(split, reverse=True) and split[-1] > 0.5
    assert all(hidden_part("standard_backward", N) == 1 for N in sizes)
    tiles = schedules.split_backward.tiles(256, d, 16384)
    assert [-(-256 // tiles[name]) for name in ("Br1", "Bc2")] == [4, 5]


def test_the_status_of_the_bounds():
    says("6.10", "both derivations of this course", "are distinct arrays", "distinct arrays, are read, begun")
    says("6.12", r"(4 + 2\sqrt2)N^2d/\sqrt M", "`small_cache_backward` has 10")
    proved = ("C", "C_line", "C_small", "C'", "E", "E'")
    assert {bounds.BOUNDS[name].status for name in proved} == {"proved here"}
    assert bounds.BOUNDS["open_backward"].status == "open"


def test_the_steps_of_the_proof_shown_are_true():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        d_ = int(rng.integers(1, 100))
        R = float(rng.integers(1, 10**6))
        c = float(rng.uniform(0, R))
        left = (R - c) ** 2 / (16 * d_) + c**0.5 * (R - c) / 2
        assert left <= (R + 4 * d_ * d_) ** 2 / (16 * d_) * (1 + 1e-12)
        T = R + 4 * d_ * d_  # with M = R: T = M + 4d²
        products = (R + T + 4 * d_ * d_) ** 2 / (16 * d_)
        assert 3 * d_ / products == pytest.approx(12 * d_**2 / T**2)


def rows_and_columns(d_):
    """Yield all integers η <= β <= γ <= α <= 2d, with σ and τ in steps of 1/d."""
    steps = np.linspace(0, 1, d_ + 1)
    words = range(2 * d_ + 1)
    for alpha, gamma, beta, eta in product(words, repeat=4):
        if eta <= beta <= gamma <= alpha:
            yield from ((eta, beta, gamma, alpha, sigma, tau) for sigma in steps for tau in steps)


def test_the_two_inequalities_of_the_proof():
    says("6.12", r"\frac{(1 + \sigma),R_r}{4}", r"\frac{(2 + \sigma + \tau),R_r}{4}")
    eta, beta, gamma, alpha, sigma, tau = np.array(list(rows_and_columns(4))).T
    some, whole = np.minimum(sigma * alpha, gamma), alpha + gamma + eta
    assert (some <= (1 + sigma) * whole / 4 + 1e-12).all()
    slack = (2 + sigma + tau) * whole / 4 - (some + eta + tau * beta)
    assert slack.min() == pytest.approx(0, abs=1e-12)
    least = (2 + sigma + tau) * alpha + 2 * (sigma - tau) * gamma - 4 * np.minimum(sigma * alpha, gamma)
    assert (4 * slack >= least - 1e-12).all() and (least >= -1e-12).all()


def backward_products(words, pairs):
    """(dV, dQ and dK) products that sets of words allow: words (sets, 7, N) for d = 1, pairs (sets, N, N)."""
    q, k, v, do, dq, dk, dv = (words[:, n].astype(int) for n in range(7))
    weight = pairs | ((q[:, :, None] & k[:, None, :]) == 1)
    slope = pairs | (weight & ((do[:, :, None] & v[:, None, :]) == 1))
    for_dV = np.einsum("nij,ni,nj->n", weight.astype(int), do, dv)
    for_dQ = np.einsum("nij,nj,ni->n", slope.astype(int), k, dq)
    return for_dV, for_dQ + np.einsum("nij,ni,nj->n", slope.astype(int), q, dk)


def test_theorem_C_holds_for_every_set_of_words_of_two_queries_and_two_keys():
    sets = (np.arange(2**18)[:, None] >> np.arange(18) & 1).astype(bool)
    words, pairs = sets[:, :14].reshape(-1, 7, 2), sets[:, 14:].reshape(-1, 2, 2)
    for_dV, others = backward_products(words, pairs)
    do, v = words[:, 3], words[:, 2]
    for_dP = (pairs & do[:, :, None] & v[:, None, :]).sum(axis=(1, 2))
    R = sets.sum(axis=1)
    F = np.array([0.0, *(bounds.all_products_per_segment(r, 1) for r in range(1, 19))])[R]
    assert (for_dV + others).max() == 12 and (for_dV + others <= F + 1e-9).all()
    assert ((for_dV + for_dP) / 2**0.5 + others <= F + 1e-9).all()


def test_the_two_pass_backward_comes_closer_to_both_bounds_and_the_bounds_to_12_and_14():
    over = {"C": [], "E": []}
    for k in range(13, 18):
        words = at("split_backward", 2**k, d, LARGE).total
        for whole_rows, id in ((False, "C"), (True, "E")):
            least, which = bounds.lower_bound("backward", 2**k, d, LARGE, whole_rows=whole_rows)
            assert which == id and least > bounds.BOUNDS["compulsory_backward"](2**k, d) == 7 * 2**k * d
            over[id].append(words / least)
    assert all(ratios == sorted(ratios, reverse=True) for ratios in over.values())
    N, top = 2**22, 1024 * d * d
    for whole_rows, limit in ((False, 12), (True, 14)):
        least, _ = bounds.lower_bound("backward", N, d, top, whole_rows=whole_rows)
        assert constant(least, N, d, top) == pytest.approx(limit, abs=0.05)


def test_the_two_pass_backward_is_in_the_class_of_theorem_E_with_t_2d():
    """In each pass, one row of each of two arrays is loaded at a time on the streamed side."""
    assert schedules.split_backward.tiles(2**16, d, LARGE).items() >= {"Bc1": 1, "Br2": 1}.items()
    for N, M in ((2**14, LARGE), (2**20, LARGE), (4096, 6000)):
        assert at("split_backward", N, d, M).total >= bounds.theorem_E(N, d, M, t=2 * d)


# ---------------------------------------------------------------------- charges of whole rows
@pytest.fixture(scope="module")
def defined():
    space = {"np": np, "run": run, "exact": exact, "schedules": schedules, "bounds": bounds}
    space["measured"] = lambda *_, **__: None
    space["explore"] = explore
    LESSON.define(("my_charges",), space)
    exec(LESSON.code("FUSED = ["), space)
    return space


def test_charges_are_the_rule_of_6_7_pair_by_pair(defined):
    charges = defined["my_charges"]
    assert charges(defined["FUSED"]) == predicted_constant("columns", frozenset({"dQ", "dK", "dV"})) == 16
    first, second = predicted_constant("rows", {"dQ"}), predicted_constant("columns", {"dK", "dV"})
    assert charges(defined["TWO_PASS"]) == first + second == 14


def test_the_two_walks_of_the_text_do_every_task_and_clear_up(defined):
    for walk in (defined["FUSED"], defined["TWO_PASS"]):
        there, left = set(), set(bounds.row_schedules.BACKWARD.tasks)
        for event in walk:
            verb, row = sorted(event.split(), key=lambda word: word in bounds.row_schedules.BACKWARD.rows)
            assert (row in there) == (verb in {"drop", "leaves"})
            there ^= {row}
            left = {task for task in left if not task <= there}
        assert not there and not left


def test_the_walks_shown_are_charged_what_the_text_says(defined):
    """The library, the figure and the reference give the same counts."""
    _, cheapest = bounds.min_pair_cost(bounds.row_schedules.BACKWARD, bounds.row_schedules.LOADS_AND_EXITS)
    for walk, paid in ((defined["FUSED"], 16), (defined["TWO_PASS"], 14), (cheapest, 12)):
        assert lesson06.charges(walk) == defined["my_charges"](walk) == paid
        assert explore.pair_residency(walk).title.endswith(f": charged {paid}")


@pytest.mark.parametrize(
    ("pair", "charged", "least"),
    [
        ("BACKWARD", "LOADS_AND_EXITS", 12),
        ("BACKWARD", "HALVES", 13),
        ("BACKWARD", "WITH_EDGES", 14),
        ("FORWARD", "ENTRIES", 4),
    ],
)
def test_the_cheapest_walks(pair, charged, least):
    whole = bounds.row_schedules
    assert whole.min_pair_cost(getattr(whole, pair), getattr(whole, charged)).cost == least
