"""No schedule may beat a lower bound of its class; each bound is what its formula says."""

import inspect
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import costs, schedules
from iocourse.bounds import (
    BOUNDS,
    compulsory,
    lower_bound,
    matmul,
    products_per_segment,
    square_side,
    theorem_A,
)
from iocourse.machine import run
from iocourse.schedules import REGISTRY, matmul_tiles

STATUSES = {"proved here", "published", "asymptotic only", "open"}
log_sizes = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 16), st.floats(0, 1))


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_no_forward_schedule_beats_theorem_A(schedule):
    tried = 0

    @settings(max_examples=400)
    @given(log_sizes, log_sizes, st.lists(log_sizes, min_size=4, max_size=4), st.integers(1, 10**6))
    def attack(N, d, drawn, T):
        nonlocal tried
        tried += 1
        form = schedule.cost(N, d, **dict(zip(schedule.tile_names, drawn, strict=False)))
        picked = schedule.cost(N, d, **schedule.tiles(N, d, form.peak))
        for ledger in (form, picked):  # its own footprint is the M at which a schedule looks best
            M = ledger.peak + 4
            assert ledger.total >= theorem_A(N, d, M)
            assert ledger.total >= theorem_A(N, d, M, T=T)
            assert ledger.total >= lower_bound("forward", N, d, ledger.peak)[0]

    attack()
    print(f"{schedule.name}: {tried} (N, d, M), twice each")
    assert tried >= 300


def test_no_blocked_product_beats_its_bound():
    tried = 0

    @settings(max_examples=400)
    @given(*[log_sizes] * 5)
    def attack(m, n, k, bm, bn):
        nonlocal tried
        tried += 1
        form = costs.matmul(m, n, k, bm=bm, bn=bn)
        assert form.total >= matmul(m, n, k, form.peak + 4)
        if m <= 4096 and n <= 4096:
            best = costs.matmul(m, n, k, **matmul_tiles(m, n, k, form.peak))
            assert best.total >= matmul(m, n, k, best.peak + 4)

    attack()
    print(f"matmul: {tried} (m, n, k, M)")
    assert tried >= 300


def test_F3_is_within_a_fifth_of_theorem_A_where_the_issue_asks():
    N, d, M = 8192, 64, 58368
    tiles = schedules.flash_optimal.tiles(N, d, M)
    ledger = run(schedules.flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
    ratio = ledger.total / theorem_A(N, d, M)
    print(
        f"F3 at N={N}, d={d}, M={M}: {ledger.total:,} words, bound {theorem_A(N, d, M):,}, ratio {ratio:.4f}"
    )
    assert ledger.total == 20_971_520
    assert 1 <= ratio <= 1.20


def test_golden_values():
    assert (theorem_A(64, 8, 512), theorem_A(64, 32, 300)) == (1728, 15000)
    assert compulsory(64, 8) == 2048
    assert lower_bound("forward", 64, 8, 512) == (2048, "compulsory")
    assert lower_bound("forward", 64, 32, 300)[1] == "A"


@given(*[st.integers(1, 2**30)] * 4)
def test_theorem_A_is_evaluated_without_rounding(N, d, M, T):
    segments, rest = divmod(theorem_A(N, d, M, T=T), T)
    assert rest == 0
    R, products = M + T, N * N * d
    if 3 * d * d <= R:
        assert segments == products / Fraction((R + d * d) ** 2, 16 * d) // 1
    else:
        assert segments**2 * R**3 <= 27 * products**2 < (segments + 1) ** 2 * R**3
    assert segments == pytest.approx(products / products_per_segment(R, d), rel=1e-9, abs=1)


def test_matmul_bound_terms():
    assert matmul(100, 100, 100, 10**6) == 3 * 100**2  # compulsory
    assert matmul(1000, 1000, 1000, 400) == 2 * 1000**3 // 20 - 800
    assert [square_side(M) for M in (3, 7, 8, 15, 35)] == [1, 1, 2, 3, 5]


@pytest.mark.parametrize("id", BOUNDS)
def test_every_bound_can_be_evaluated_by_id_and_says_where_it_comes_from(id):
    bound = BOUNDS[id]
    needed = [p.name for p in inspect.signature(bound.evaluate).parameters.values() if p.default is p.empty]
    words = bound(**dict.fromkeys(needed, 64))
    assert bound.id == id and isinstance(words, int) and words > 0
    assert bound.title and bound.formula and bound.source and bound.regime and bound.status in STATUSES


@pytest.mark.parametrize("name", ["N", "d", "M", "T"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError)])
def test_bad_sizes_are_named(name, value, error):
    with pytest.raises(error, match=rf"^{name} must be"):
        theorem_A(**{"N": 8, "d": 4, "M": 64, "T": 10, name: value})


def test_a_pass_without_a_bound_is_refused():
    with pytest.raises(ValueError, match=r"pass_ = 'sideways' .* 'forward'"):
        lower_bound("sideways", 8, 4, 64)
    with pytest.raises(ValueError, match=r"^M must be"):
        lower_bound("forward", 8, 4, 0)
