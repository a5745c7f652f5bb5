"""Lower bounds: values equal the formulas, regimes are checked, and `lower_bound` chooses the right bound."""

import inspect
import re
from decimal import Decimal, getcontext
from fractions import Fraction
from inspect import ismodule
from itertools import product
from math import floor, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import bounds, costs, masks, schedules
from iocourse.bounds import (
    BOUNDS,
    STATUSES,
    Bound,
    NotProved,
    OnlyAsymptotic,
    OutsideRegime,
    all_products_per_segment,
    compulsory,
    lower_bound,
    matmul,
    products_per_segment,
    square_side,
    theorem_A,
    theorem_A_rows,
    theorem_B,
    theorem_B_prime,
    theorem_C,
    theorem_C_prime,
    theorem_C_second,
    theorem_C_small,
    theorem_E,
    theorem_E_prime,
    theorem_tied,
)
from iocourse.bounds.best_bound import DENSE, MASKED, bounds_by_pass
from iocourse.bounds.bound import CLASSES
from iocourse.bounds.bound import bound as declare
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.machine import FREE_REGISTERS, run
from iocourse.schedules import REGISTRY, matmul_tiles

getcontext().prec = 60
log_sizes = st.builds(lambda e, f: max(1, round(2 ** (e + f))), st.integers(0, 16), st.floats(0, 1))
ASYMPTOTIC = [id for id, bound in BOUNDS.items() if bound.status == "asymptotic only"]
OPEN = [id for id, bound in BOUNDS.items() if bound.status == "open"]
WITH_WORDS = [id for id in BOUNDS if id not in (*ASYMPTOTIC, *OPEN)]


# ---------------------------------------------------------------------- formulas by id
def A(X, d, M, T):
    return T * floor(X / products_per_segment(M + T, d))


def B(X, M, T):
    return T * floor(X / ((M + T) / 3) ** 1.5)


def C(X, d, M, T):
    return T * floor(X / all_products_per_segment(M + T, d))


def over_c(X, first, M, T):
    """Return T⌊X/F(M + T)⌋; F(R) is the maximum over c of first·(R - c)² + √c(R - c)/2, by ternary search."""
    R = M + T

    def products(u):
        return first * (R - u * u) ** 2 + u * (R - u * u) / 2

    low, high = 0.0, sqrt(R)
    for _ in range(150):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if products(a) > products(b) else (a, high)
    return T * floor(X / products(low))


def latent(n, d_k, d_v, M, T):
    return over_c(n * d_v, d_v / (4 * d_k * (d_k + d_v)), M, T)


def E_prime(N, d, M, T):
    R, F = M + T, ((M + T) / 3) ** 1.5
    return (14 * N**2 * d**2 - 3 * N * d * R - 14 * d * F) / (R + 14 * d * F / T)


# The formulas in floating point; T is passed if the bound has it.
FORMULAS = {
    "compulsory": lambda N, d: 4 * N * d,
    "A": lambda N, d, M, T: A(N * N * d, d, M, T),
    "A_large": lambda N, d, M: 4 * N**2 * d**2 / (M + d**2) - (M + d**2),
    "A_small": lambda N, d, M: 2 * N**2 * d / sqrt(M) - 2 * M,
    "B": lambda N, d, M, T: B(2 * N * N * d, M, T) - N**2,
    "B_line": lambda N, d, M: 4 * N**2 * d / sqrt(M) - 2 * M - N**2,
    "B'": lambda N, d, M, T: C(2 * N * N * d, d, M, T) - N**2,
    "B'_line": lambda N, d, M: 4 * N**2 * d / (sqrt(M) * (1 + 9 * sqrt(M) / (16 * d))) - 2 * M - N**2,
    "compulsory_backward": lambda N, d: 7 * N * d,
    "C": lambda N, d, M, T: C(3 * N * N * d, d, M, T),
    "C_line": lambda N, d, M: 12 * N**2 * d**2 / (M + 4 * d**2) - (M + 4 * d**2),
    "C_small": lambda N, d, M, T: C((2 + sqrt(2)) * N * N * d, d, M, T) - N**2,
    "C'": lambda N, d, M, T: over_c((2 + 1.5 * sqrt(3)) * N**2 * d, 9 / (64 * d), M, T) - 2 * N**2,
    "C'_line": lambda N, d, M: (
        (4 + 3 * sqrt(3)) * N**2 * d / (sqrt(M) * (1 + 81 * sqrt(M) / (64 * d))) - 2 * M - 2 * N**2
    ),
    "C''": lambda N, d, M, T: over_c(4 * N**2 * d, 3 * sqrt(3) / (32 * d), M, T) - N**2,
    "C''_line": lambda N, d, M: (
        8 * N**2 * d / (sqrt(M) * (1 + 27 * sqrt(3) * sqrt(M) / (32 * d))) - 2 * M - N**2
    ),
    "A_rows": lambda N, d, M, t: 4 * N**2 * d**2 / (M + t),
    "E": lambda N, d, M, t: 14 * N**2 * d**2 / (M + t) - 3 * N * d,
    "E'": E_prime,
    "compulsory_tied": lambda N, d: 3 * N * d,
    "tied": lambda N, d, M, T: over_c(N**2 * d, 1 / (8 * d), M, T),
    "latent": latent,
    "low_rank": lambda N, d, r, M: 2 * r * N * d**2 / M - M - r * d,
    "compulsory_gradient": lambda N, d: 4 * N * d + 3 * d * d,
    "gradient_forward": lambda N, d, M, T: A(N * N * d, d, M, T) - N * d,
    "compulsory_sparse": lambda rows, columns, d: d * (2 * rows + 2 * columns),
    "compulsory_sparse_backward": lambda rows, columns, d: d * (3 * rows + 4 * columns),
    "D": lambda nnz, d, M, T: A(nnz * d, d, M, T),
    "D_B": lambda nnz, d, M, T: B(2 * nnz * d, M, T) - nnz,
    "D_B'": lambda nnz, d, M, T: C(2 * nnz * d, d, M, T) - nnz,
    "D_C": lambda nnz, d, M, T: C(3 * nnz * d, d, M, T),
    "D_C'": lambda nnz, d, M, T: over_c((2 + 1.5 * sqrt(3)) * nnz * d, 9 / (64 * d), M, T) - 2 * nnz,
    "D_C''": lambda nnz, d, M, T: over_c(4 * nnz * d, 3 * sqrt(3) / (32 * d), M, T) - nnz,
    "D_C_small": lambda nnz, d, M, T: C((2 + sqrt(2)) * nnz * d, d, M, T) - nnz,
    "matmul": lambda m, n, k, M: max(2 * m * n * k / sqrt(M) - 2 * M, m * k + k * n + m * n),
    "saha_ye": lambda N, d, M: N**2 * d**2 / (4 * (M + d**2)) - M,
    "saha_ye_small": lambda N, d, M: 2 * N**2 * d / sqrt(M) - 2 * M - N**2,
    "theta_attention": lambda N, d, M: min(N**2 * d**2 / M, N**2 * d / sqrt(M)),
    "omega_fast_matmul": lambda N, d, M: min(N**2 * d**2 / M, N**2),
    "theta_gradient": lambda N, d, M: min((N**2 * d**2 + N * d**3) / M, (N**2 * d + N * d**2) / sqrt(M)),
    "open_backward": lambda N, d, M: 14 * N**2 * d**2 / M,
    "open_backward_small": lambda N, d, M: 10 * N**2 * d / sqrt(M),
    "omega_sparse": lambda Z_input, Z_QK, M: min(Z_input**2 / M, Z_input * sqrt(Z_QK) / sqrt(M)),
}
SIZES = [
    dict(N=4099, d=61, M=17001, T=19999, rows=4000, columns=3001, nnz=10**6 + 3, m=999, n=777, k=501),
    dict(N=5003, d=67, M=901, T=1777, rows=5, columns=3001, nnz=10**7 + 19, m=333, n=1777, k=2501),
    dict(N=5003, d=31, M=901, T=1777, rows=5, columns=301, nnz=10**7 + 19, m=333, n=1777, k=251),
    dict(N=3, d=2, M=50, T=7, rows=0, columns=0, nnz=0, m=1, n=2, k=3),
]


@pytest.mark.parametrize("id", BOUNDS)
def test_every_bound_is_its_formula(id):
    formula, bound, evaluated = FORMULAS[id], BOUNDS[id], 0
    for sizes in SIZES:
        sizes = sizes | {"Z_input": sizes["N"] * 7, "Z_QK": sizes["N"] * 91}
        sizes |= {"t": 3 * sizes["d"], "r": 91, "d_k": sizes["d"], "d_v": sizes["d"] // 2 + 1}
        given_ = {name: sizes[name] for name in inspect.signature(formula).parameters}
        value = formula(**given_)
        if id not in WITH_WORDS:
            try:
                assert bound.order(**given_) == pytest.approx(value)
            except OutsideRegime:
                continue
        else:
            try:
                words = bound(**given_)
            except OutsideRegime:
                continue
            assert isinstance(words, int)
            assert max(0, value) - 1 <= words <= max(0, value) * (1 + 1e-12)
        evaluated += 1
    assert evaluated


@pytest.mark.parametrize("id", WITH_WORDS)
@settings(max_examples=20)
@given(data=st.data())
def test_every_bound_is_an_integer(id, data):
    """A float would be rounded: it holds 53 bits, and words are counted to the last."""
    sizes = {name: data.draw(log_sizes) for name in inspect.signature(FORMULAS[id]).parameters}
    try:
        words = BOUNDS[id](**sizes)
    except OutsideRegime:
        return
    assert type(words) is int and type(BOUNDS[id].evaluate(**sizes)) is int


def test_every_bound_has_a_formula_here_and_says_what_it_is():
    assert set(FORMULAS) == set(BOUNDS)
    for id, bound in BOUNDS.items():
        assert bound.id == id and bound.status in STATUSES and bound.passes
        assert bound.title and bound.source and bound.regime and bound.holds_for
        assert bound.formula.startswith("W ") and "Q " not in bound.formula
        assert bound.formula.count("{") == bound.formula.count("}")
    assert "not about a mask" in BOUNDS["omega_sparse"].not_about
    assert "a score more than once" in BOUNDS["B"].not_about
    sparse = [bound for id, bound in BOUNDS.items() if id == "D" or id.startswith("D_")]
    assert len(sparse) >= 7 and all("not their positions" in bound.not_about for bound in sparse)


# Computed with independent code, in floating point and with a separate search over T.
@pytest.mark.parametrize(
    ("id", "sizes", "words"),
    [
        ("A", (64, 8, 512), 1728),
        ("B", (64, 8, 512), 1664),
        ("compulsory", (64, 8), 2048),
        ("C", (64, 8, 512), 4368),
        ("compulsory_backward", (64, 8), 3584),
        ("A", (64, 32, 300), 15000),
        ("B", (64, 32, 300), 25904),
    ],
)
def test_golden_values(id, sizes, words):
    assert BOUNDS[id](*sizes) == words


@pytest.mark.parametrize(("M", "b", "c"), [(4096, 3.97, 6.79), (16384, 3.94, 6.74), (65536, 3.88, 6.66)])
def test_the_constants_of_small_fast_memory(M, b, c):
    N, d = 2**22, 4096
    unit = N * N * d / sqrt(M)
    assert theorem_B_prime(N, d, M) / unit == pytest.approx(b, abs=6e-3)
    assert theorem_A(N, d, M) / unit == pytest.approx(2, abs=1e-3)
    assert theorem_C_small(N, d, M) / unit == pytest.approx(c, abs=6e-3)
    assert BOUNDS["C"](N, d, M) < theorem_C_small(N, d, M)


def test_the_constants_of_small_fast_memory_with_P_made_and_with_P_handed_over():
    N, d = 2**40, 2**16
    M = 256
    unit = N * N * d / sqrt(M)
    assert theorem_C_prime(N, d, M) / unit == pytest.approx(4 + 3 * sqrt(3), abs=6e-3)
    assert theorem_C_second(N, d, M) / unit == pytest.approx(8, abs=6e-3)
    assert BOUNDS["open_backward_small"].order(N, d, M) / unit == 10


def test_which_of_the_backward_bounds_is_the_largest():
    """P computed: C' up to 0.4d², C_small up to 0.5d², then C. P possibly an input: C'' up to 0.16d²."""
    N, d = 2**30, 256

    def largest(part, *ids):
        return max(ids, key=lambda id: BOUNDS[id](N, d, int(part * d * d)))

    own = ("C", "C_small", "C'", "C''")
    wanted = {0.02: "C'", 0.4: "C'", 0.42: "C_small", 0.47: "C_small", 0.51: "C", 4: "C"}
    assert {part: largest(part, *own) for part in wanted} == wanted
    handed = {0.02: "C''", 0.15: "C''", 0.17: "C_small", 0.51: "C"}
    assert {part: largest(part, "C", "C_small", "C''") for part in handed} == handed


def test_whole_rows_have_14_and_where_scores_are_kept_nearly():
    N, d = 2**50, 64
    for factor, prime in ((10**4, 10.21), (10**6, 12.636), (10**8, 13.547)):
        M = factor * d * d
        unit = (N * d) ** 2 / M
        assert theorem_E(N, d, M) / unit == pytest.approx(14, abs=1e-3)
        assert theorem_A_rows(N, d, M) / unit == pytest.approx(4, abs=1e-3)
        assert theorem_E_prime(N, d, M) / unit == pytest.approx(prime, abs=6e-3)


@given(log_sizes, log_sizes, log_sizes, log_sizes)
def test_the_best_segment_of_E_prime_is_nearly_the_best_of_all(N, d, M, T):
    assert theorem_E_prime(N, d, M, T=T) <= theorem_E_prime(N, d, M) * 1.01 + 1


@given(log_sizes, log_sizes, log_sizes)
def test_a_latent_cache_as_wide_as_its_values_is_tied(N, d, M):
    assert BOUNDS["latent"](N * N, d, d, M) == theorem_tied(N, d, M)
    line = 2 * (N * d) ** 2 // (M + d * d) - (M + d * d)
    assert theorem_tied(N, d, M, T=M + d * d) >= line - 1


@given(*[st.integers(1, 2**12)] * 4)
def test_the_latent_cache_has_its_closed_line(n, d_k, d_v, M):
    d_v = min(d_k, d_v)
    a = Fraction(d_k * (d_k + d_v), 2 * d_v) ** 2
    line = n * d_k * (d_k + d_v) / (M + a) - (M + a)
    assert BOUNDS["latent"](n, d_k, d_v, M, T=M + floor(a)) >= line - 3 - line * Fraction(1, 10**6)


def test_tied_arrays_are_outside_theorem_A():
    """A schedule with K = V = X moves half of Theorem A's bound, so the classes require distinct arrays."""
    N, d, M = 2**20, 64, 2**18
    words = REGISTRY["shared_key_value"].count(N, d, M).total
    assert theorem_tied(N, d, M + 4) < words < theorem_A(N, d, M + 4)
    assert words / theorem_tied(N, d, M + 4) < 1.05
    for bound in BOUNDS.values():
        if bound.status == "proved here" and "small fast" not in bound.title and bound.id not in OUT_OF_TIED:
            assert "distinct arrays" in bound.holds_for, bound.id


OUT_OF_TIED = {"compulsory_tied", "tied", "latent", "compulsory_sparse", "compulsory_sparse_backward"}


def test_B_prime_beats_A_up_to_about_d_squared():
    N, d = 2**22, 4096
    words = {
        x: (theorem_B_prime(N, d, int(x * d * d)), theorem_A(N, d, int(x * d * d))) for x in (0.5, 1, 1.5)
    }
    assert [b > a for b, a in words.values()] == [True, True, False]
    assert [w / N**2 for w in words[1]] == pytest.approx([2.12, 2.00], abs=6e-3)
    assert [w / N**2 for w in words[1.5]] == pytest.approx([1.42, 1.60], abs=6e-3)


def test_the_constants_of_large_fast_memory():
    N, d = 2**22, 64
    for factor in (16, 64):
        M = factor * d * d
        assert theorem_A(N, d, M) * M / (N * d) ** 2 == pytest.approx(4 * factor / (factor + 1), rel=1e-3)
        assert theorem_C(N, d, M) * M / (N * d) ** 2 > 12 * factor / (factor + 4)


# ---------------------------------------------------------------------- integers, regimes, order
@given(*[st.integers(1, 2**30)] * 4)
def test_theorems_A_and_B_are_evaluated_without_rounding(N, d, M, T):
    R, products = M + T, N * N * d
    segments, rest = divmod(theorem_A(N, d, M, T=T), T)
    assert rest == 0
    if 3 * d * d <= R:
        assert segments == products / Fraction((R + d * d) ** 2, 16 * d) // 1
    else:
        assert segments**2 * R**3 <= 27 * products**2 < (segments + 1) ** 2 * R**3
    segments, rest = divmod(theorem_B(N, d, M, T=T) + N * N, T)
    assert rest == 0 or theorem_B(N, d, M, T=T) == 0
    if theorem_B(N, d, M, T=T):
        assert segments**2 * R**3 <= 108 * products**2 < (segments + 1) ** 2 * R**3


def close_below(words, exact):
    """Assert that `words` is the integer `exact` rounded down, or 0 if that is negative."""
    return words <= max(Decimal(0), exact) < words + Decimal("1.001")


@given(*[st.integers(1, 2**30)] * 3)
def test_closed_lines_are_rounded_down_never_up(N, d, M):
    N_, d_, M_ = Decimal(N), Decimal(d), Decimal(M)
    root = M_.sqrt()
    assert close_below(BOUNDS["B_line"](N, d, M), 4 * N_**2 * d_ / root - 2 * M_ - N_**2)
    shown = 4 * N_**2 * d_ / (root * (1 + 9 * root / (16 * d_))) - 2 * M_ - N_**2
    words = BOUNDS["B'_line"](N, d, M)
    assert words <= max(Decimal(0), shown) and words >= shown * (1 - Decimal("1e-8")) - 1 - N_**2 / 10**8
    assert BOUNDS["C_line"](N, d, M) <= max(0, 12 * Fraction((N * d) ** 2, M + 4 * d * d) - M - 4 * d * d)
    if d * d <= M:
        assert close_below(BOUNDS["A_large"](N, d, M), 4 * (N_ * d_) ** 2 / (M_ + d_**2) - M_ - d_**2)
    else:
        assert close_below(BOUNDS["A_small"](N, d, M), 2 * N_**2 * d_ / root - 2 * M_)


@given(log_sizes, log_sizes, log_sizes)
def test_the_theorems_are_at_least_their_closed_lines_and_the_lines_fall_with_M(N, d, M):
    line = BOUNDS["A_large" if d * d <= M else "A_small"](N, d, M)
    assert theorem_A(N, d, M) >= line
    assert theorem_B(N, d, M) >= BOUNDS["B_line"](N, d, M)
    small_memory = min(M, 4 * d * d) == M
    if small_memory:
        assert theorem_B_prime(N, d, M) >= BOUNDS["B'_line"](N, d, M)
    else:
        assert theorem_C(N, d, M) >= BOUNDS["C_line"](N, d, M)
    assert theorem_C_prime(N, d, M, T=2 * M) >= BOUNDS["C'_line"](N, d, M) * (1 - 1e-8) - 1
    assert theorem_C_second(N, d, M, T=2 * M) >= BOUNDS["C''_line"](N, d, M) * (1 - 1e-8) - 1
    for id in ("B_line", "B'_line", "C_line", "C'_line", "C''_line"):
        assert BOUNDS[id](N, d, M + 1) <= BOUNDS[id](N, d, M) <= BOUNDS[id](2 * N, d, M)


@pytest.mark.parametrize(
    ("id", "inside", "outside"),
    [("A_large", 256, 255), ("A_small", 256, 257), ("saha_ye", 256, 255), ("saha_ye_small", 256, 257)],
)
def test_outside_its_regime_a_bound_says_so(id, inside, outside):
    assert isinstance(BOUNDS[id](10**4, 16, inside), int)
    sign = "≥" if inside > outside else "≤"
    with pytest.raises(OutsideRegime, match=rf"^{id} is stated for M {sign} d², got M = {outside}, d = 16"):
        BOUNDS[id](10**4, 16, outside)


def test_relatives_outside_their_regime_say_so():
    assert BOUNDS["low_rank"](1025, 8, 165, 1024) == 2 * 165 * 1025 * 64 // 1024 - 1024 - 165 * 8
    for M in (31, 1025):
        with pytest.raises(
            OutsideRegime, match=rf"^low_rank is stated for d²/2 ≤ M < N, got M = {M}, N = 1025"
        ):
            BOUNDS["low_rank"](1025, 8, 165, M)
    with pytest.raises(OutsideRegime, match=r"^latent is stated for d_v ≤ d_k, got d_k = 8, d_v = 9"):
        BOUNDS["latent"](100, 8, 9, 64)


@pytest.mark.parametrize("id", ASYMPTOTIC)
def test_a_bound_without_a_constant_is_no_number_of_words(id):
    needed = dict.fromkeys(inspect.signature(BOUNDS[id].evaluate).parameters, 64)
    with pytest.raises(OnlyAsymptotic, match=f"^{id} has a constant that its source does not state"):
        BOUNDS[id](**needed)
    assert BOUNDS[id].order(**needed) > 0


@pytest.mark.parametrize("id", OPEN)
def test_an_open_question_is_no_number_of_words(id):
    with pytest.raises(NotProved, match=f"^{id} is an open question, not a theorem"):
        BOUNDS[id](64, 64, 64)
    assert BOUNDS[id].order(64, 64, 64) > 0 and not BOUNDS[id].in_words


def test_what_is_open_lies_between_a_theorem_and_a_schedule():
    N, d = 2**22, 64
    for id, theorem, name, M in (
        ("open_backward", "C", "split_backward", 256 * d * d),
        ("open_backward_small", "C'", "small_cache_backward", 64),
    ):
        schedule = REGISTRY[name]
        words = schedule.cost(N, d, **schedule.tiles(N, d, M)).total
        assert BOUNDS[theorem](N, d, M) < BOUNDS[id].order(N, d, M) < words


@pytest.mark.parametrize("id", ["theta_attention", "theta_gradient"])
def test_an_order_outside_its_regime_says_so(id):
    assert BOUNDS[id].order(64, 8, 512) > 0
    with pytest.raises(OutsideRegime, match=rf"^{id} is stated for M ≤ Nd, got M = 513, N = 64, d = 8"):
        BOUNDS[id].order(64, 8, 513)


def test_a_mask_of_another_kind_is_named():
    with pytest.raises(TypeError, match=r"^mask must be one of iocourse.masks, got ndarray"):
        lower_bound("forward", 8, 4, 64, mask=np.ones((8, 8), dtype=bool))


def test_a_bound_with_its_constants_has_no_order():
    for id in WITH_WORDS:
        with pytest.raises(ValueError, match=rf"unknown constants, but those of {re.escape(id)} are known"):
            BOUNDS[id].order(64, 64, 64)


def test_a_bound_that_says_nothing_is_zero():
    assert theorem_A(3, 2, 1000) == theorem_B(3, 2, 1000) == theorem_C_small(3, 2, 1000) == 0
    assert BOUNDS["A_large"](3, 2, 1000) == BOUNDS["D"](0, 2, 1000) == 0


def test_every_bound_refuses_while_a_check_runs():
    with solutions_blocked():
        for bound in BOUNDS.values():
            for face in (bound, bound.order):
                with pytest.raises(LibrarySolutionUsed, match=re.escape(bound.id)):
                    face(64, 64, 64)
        for call in (lambda: lower_bound("forward", 64, 8, 512), lambda: products_per_segment(64, 8)):
            with pytest.raises(LibrarySolutionUsed):
                call()


EVALUATED_WITH_T = [
    *(theorem_A, theorem_B, theorem_B_prime, theorem_C, theorem_C_small, theorem_C_prime, theorem_C_second),
    *(theorem_E_prime, theorem_tied),
]


@pytest.mark.parametrize("name", ["N", "d", "M", "T"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError)])
@pytest.mark.parametrize("theorem", EVALUATED_WITH_T, ids=lambda bound: bound.id)
def test_bad_sizes_are_named(theorem, name, value, error):
    with pytest.raises(error, match=rf"^{name} must be"):
        theorem(**{"N": 8, "d": 4, "M": 64, "T": 10, name: value})


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_bad_counts_are_named(value, error):
    with pytest.raises(error, match=r"^nnz must be"):
        BOUNDS["D"](value, 4, 64)
    with pytest.raises(error, match=r"^rows must be"):
        BOUNDS["compulsory_sparse"](value, 4, 64)


# ---------------------------------------------------------------------- declarations
def test_an_unknown_class_or_status_is_refused():
    declared = {name: "" for name in ("id", "title", "formula", "source", "regime", "holds_for")}
    with pytest.raises(ValueError, match=r"^schedules of .* must be one of any, exact, .* got 'all'"):
        declare(**declared, passes=(), status="claimed", schedules="all")
    with pytest.raises(ValueError, match=r"^status of .* must be one of proved here, .* got 'proved'"):
        declare(**declared, passes=(), status="proved")


# The words of `holds_for` that restrict a class.
RESTRICTED = {
    "none of them twice": "once",
    "without P as an input": "own weights",
    "are read, started, merged, stored and freed as a whole": "whole rows",
}


def test_the_class_of_a_bound_is_that_of_its_text():
    for bound in BOUNDS.values():
        stated = {name for words, name in RESTRICTED.items() if words in bound.holds_for}
        assert stated >= {bound.schedules} - {"", "any", "exact"}, bound.id
        assert not (stated and bound.schedules in ("any", "exact")), bound.id


def test_lower_bound_takes_bounds_with_constants_that_hold_for_every_M():
    taken = [bound for bound in BOUNDS.values() if bound.schedules]
    assert {bound.schedules for bound in taken} == set(CLASSES)
    for bound in taken:
        assert bound.status in ("proved here", "published") and bound.regime.startswith("every M"), bound.id
        assert {*bound.sizes} <= {*DENSE} or {*bound.sizes} <= {*MASKED}, bound.id
        assert (bound.schedules == "any") == bound.id.startswith("compulsory") == ("M" not in bound.sizes)
    for sizes in (DENSE, MASKED):
        compulsory = bounds_by_pass("any", sizes)
        assert all(len(found) == 1 for found in compulsory.values())
        assert {pass_ for name in CLASSES for pass_ in bounds_by_pass(name, sizes)} == {*compulsory}


EVERY_OPTION = {"recompute": False, "given_weights": False}
OMITTED = [one for one in BOUNDS.values() if one.in_words and not one.schedules and {*one.sizes} <= {*DENSE}]


@pytest.mark.parametrize("bound", OMITTED, ids=lambda bound: bound.id)
def test_no_bound_that_lower_bound_omits_is_larger(bound):
    """A bound without a class is a weaker form of one that has a class, up to rounding."""
    compared = 0
    for N, d, M in product((64, 4096, 2**40), (4, 64, 1024), (16, 500, 4096, 2**18, 2**26)):
        for pass_ in bound.passes:
            try:
                words = bound(N, d, M + FREE_REGISTERS)
            except OutsideRegime:
                continue
            compared += 1
            assert words <= lower_bound(pass_, N, d, M, **EVERY_OPTION)[0] * (1 + 1e-3), (N, d, M)
    assert compared >= 6


def test_a_bound_is_a_public_name_of_the_package_and_a_helper_is_not():
    named = {name for name in dir(bounds) if isinstance(getattr(bounds, name), Bound)}
    assert {getattr(bounds, name).id for name in named} == {
        id for id, bound in BOUNDS.items() if bound.status != "open"
    }
    for name in named:
        assert getattr(bounds, name).evaluate.__name__ == name
    others = {"BOUNDS", "STATUSES", "Bound", "NotProved", "OnlyAsymptotic", "OutsideRegime", "Pairs"}
    others |= {
        "all_products_per_segment",
        "lower_bound",
        "min_pair_cost",
        "products_per_segment",
        "square_side",
    }
    assert set(bounds.__all__) == named | others
    files = {name for name, one in vars(bounds).items() if ismodule(one)}
    assert {name for name in dir(bounds) if name[:2] != "__"} == named | others | files


# ---------------------------------------------------------------------- largest bound of a pass
@given(log_sizes, log_sizes, log_sizes)
def test_lower_bound_is_the_largest_of_its_class_at_M_plus_4(N, d, M):
    def largest(*ids):
        values = {id: BOUNDS[id](N, d, M + 4) for id in ids if not id.startswith("compulsory")}
        values |= {id: BOUNDS[id](N, d) for id in ids if id.startswith("compulsory")}
        return max(values.values()), {id for id, words in values.items() if words == max(values.values())}

    for pass_, recompute, ids in (
        ("forward", True, ("compulsory", "A", "B'")),
        ("forward", False, ("compulsory", "A", "B'", "B")),
        ("backward", True, ("compulsory_backward", "C", "C_small", "C''")),
        ("backward", False, ("compulsory_backward", "C", "C_small", "C''")),
        ("gradient", True, ("compulsory_gradient", "gradient_forward")),
        ("tied", True, ("compulsory_tied", "tied")),
    ):
        words, id = lower_bound(pass_, N, d, M, recompute=recompute)
        best, names = largest(*ids)
        assert words == best and id in names
        own = {"backward": ("C'",)}.get(pass_, ())
        best, names = largest(*ids, *own)
        words, id = lower_bound(pass_, N, d, M, recompute=recompute, given_weights=False)
        assert words == best and id in names
        if pass_ in ("forward", "backward"):
            best, names = largest(*ids, *{"forward": ("A_rows",), "backward": ("E", "E'")}[pass_])
            words, id = lower_bound(pass_, N, d, M, recompute=recompute, whole_rows=True)
            assert words == best and id in names


def test_lower_bound_names_the_bound_that_gives_it():
    assert lower_bound("forward", 64, 8, 512) == (2048, "compulsory")
    assert lower_bound("forward", 64, 32, 300)[1] == "B'"
    assert lower_bound("forward", 64, 32, 300, recompute=False)[1] == "B"
    assert lower_bound("forward", 8192, 64, 58368)[1] == "A"
    assert lower_bound("backward", 64, 8, 512)[1] == "C"
    assert lower_bound("backward", 8192, 64, 512)[1] == "C''"
    assert lower_bound("backward", 8192, 64, 1024)[1] == "C_small"
    assert lower_bound("backward", 8192, 64, 1024, given_weights=False)[1] == "C'"
    assert lower_bound("backward", 2**20, 64, 2**18, whole_rows=True)[1] == "E"
    assert lower_bound("forward", 2**20, 64, 2**18, whole_rows=True)[1] == "A_rows"
    assert lower_bound("tied", 8192, 64, 58368)[1] == "tied"
    assert lower_bound("tied", 64, 8, 10**5) == (3 * 64 * 8, "compulsory_tied")
    assert lower_bound("gradient", 64, 8, 10**5) == (4 * 64 * 8 + 3 * 64, "compulsory_gradient")


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 3000), st.booleans(), st.booleans())
def test_a_mask_that_hides_nothing_has_the_dense_bounds(N, d, M, recompute, given_weights):
    told = {"recompute": recompute, "given_weights": given_weights}
    for pass_ in ("forward", "backward"):
        dense, sparse = (lower_bound(pass_, N, d, M, mask=mask, **told) for mask in (None, masks.Full(N)))
        assert dense[0] == sparse[0]
        assert sparse[1].startswith("D" if not dense[1].startswith("compulsory") else "compulsory_sparse")


def test_a_mask_counts_by_its_pairs_rows_and_columns():
    N, d, M = 4096, 64, 16384
    causal = masks.Causal(N)
    words, id = lower_bound("forward", N, d, M, mask=causal)
    assert (words, id) == (BOUNDS["D"](N * (N + 1) // 2, d, M + 4), "D")
    assert 0.45 < words / lower_bound("forward", N, d, M)[0] < 0.55
    diagonal = masks.Window(N, 0)
    assert lower_bound("forward", N, d, M, mask=diagonal) == (4 * N * d, "compulsory_sparse")
    assert lower_bound("backward", N, d, M, mask=diagonal) == (7 * N * d, "compulsory_sparse_backward")
    half = masks.BlockMask(64, [[True], [False]], 32, 64, allow_empty=True)
    assert lower_bound("forward", 64, 8, 10**5, mask=half)[0] == 8 * (2 * 32 + 2 * 64)
    assert lower_bound("backward", 64, 8, 10**5, mask=half)[0] == 8 * (3 * 32 + 4 * 64)
    assert lower_bound("forward", 512, 64, 64, mask=masks.Causal(512), recompute=False)[1] == "D_B"


def test_what_has_no_bound_is_refused():
    with pytest.raises(
        ValueError, match=r"pass_ must be one of 'forward', 'backward', 'gradient', .* got 'sideways'"
    ):
        lower_bound("sideways", 8, 4, 64)
    with pytest.raises(
        ValueError, match=r"pass_ must be one of 'forward', 'backward' under a mask, got 'gradient'"
    ):
        lower_bound("gradient", 8, 4, 64, mask=masks.Causal(8))
    with pytest.raises(
        ValueError, match=r"^whole_rows=True needs the forward .*'gradient'\. Omit whole_rows"
    ):
        lower_bound("gradient", 8, 4, 64, whole_rows=True)
    with pytest.raises(
        ValueError, match=r"^whole_rows=True needs the forward .*got a mask\. Omit whole_rows"
    ):
        lower_bound("forward", 8, 4, 64, mask=masks.Causal(8), whole_rows=True)
    with pytest.raises(ValueError, match=r"^mask must have N = 8, got a mask with N = 9"):
        lower_bound("forward", 8, 4, 64, mask=masks.Causal(9))
    with pytest.raises(ValueError, match=r"^M must be"):
        lower_bound("forward", 8, 4, 0)


# ---------------------------------------------------------------------- matrix product and buffer reuse
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


def test_matmul_bound_terms():
    assert matmul(100, 100, 100, 10**6) == 3 * 100**2  # compulsory
    assert matmul(1000, 1000, 1000, 400) == 2 * 1000**3 // 20 - 800
    assert [square_side(M) for M in (3, 7, 8, 15, 35)] == [1, 1, 2, 3, 5]


def test_F3_is_within_a_fifth_of_theorem_A_where_the_issue_asks():
    N, d, M = 8192, 64, 58368
    tiles = schedules.flash_optimal.tiles(N, d, M)
    ledger = run(schedules.flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
    ratio = ledger.total / theorem_A(N, d, M)
    print(f"flash_optimal at N={N}, d={d}, M={M}: {ledger.total:,} words, ratio {ratio:.4f} to Theorem A")
    assert ledger.total == 20_971_520
    assert 1 <= ratio <= 1.20
    assert compulsory(N, d) < theorem_A(N, d, M)
