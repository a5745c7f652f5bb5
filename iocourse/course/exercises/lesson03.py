"""Exercises of lesson 03: a row in one pass, its output, merging two parts, log-sum-exp on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import exact
from ...ledger import Ledger
from ..exercise import (
    Case,
    Sample,
    Trial,
    WrongForm,
    exercise,
    student_call,
    trial_from_error,
    wrong_return,
)
from ..kinds.schedule import one_more_of_each_kind, schedule_exercise
from ..properties import (
    difference,
    each,
    idle,
    is_right,
    reads_within,
    same_answer_from,
    several,
    values_in,
)
from ..trials.case_inputs import LEVELS, bottomless_scores, low_scores
from ..trials.streamed_rows import ONE_PASS, SAME_ROW, Array, of_kind, run_streamed

Part = tuple[float, float, Array]
FINITE = ("plain", "rising", "falling", "long")


# ---------------------------------------------------------------------- rows and their cuts
def _sizes(n: int, b: int) -> list[int]:
    """Return the sizes of pieces of b scores that cover n scores; the last may be smaller."""
    return [min(b, n - start) for start in range(0, n, b)]


def _ragged(rng: np.random.Generator, n: int) -> list[int]:
    cuts = np.sort(rng.choice(np.arange(1, n), size=min(4, n - 1), replace=False))
    return [int(size) for size in np.diff([0, *cuts, n])]


def _large_rows(rng: np.random.Generator, n: int) -> list[Array]:
    noise = rng.standard_normal(n)
    return [
        1e4 + noise,
        -1e4 + noise,
        np.where(rng.permutation(n) < n // 2, 1e4, -1e4) + noise,
        np.full(n, 1e4),
        np.full(n, -1e4),
    ]


def _rows(rng: np.random.Generator) -> list[tuple[str, Array, list[int]]]:
    """Return (kind, row, sizes of its pieces): cuts of one row, one score, rising, large and long rows."""
    b = int(rng.integers(3, 7))
    n = 4 * b + 1 + int(rng.integers(b - 1))  # a last piece of 1 to b - 1 scores
    row = 3 * rng.standard_normal(n)
    found = [("plain", row, sizes) for sizes in (_sizes(n, b), [n], _sizes(n, 1), _ragged(rng, n))]
    found.append(("plain", rng.standard_normal(1), [1]))
    rising = np.sort(2 * rng.standard_normal(n))
    found += [("rising", rising, _sizes(n, b)), ("falling", rising[::-1], _sizes(n, b))]
    large_rows = [*_large_rows(rng, n), *low_scores(rng, len(LEVELS), n), *bottomless_scores(rng, 1, n)]
    found += [("large", large, _sizes(n, b)) for large in large_rows]
    found += [("long", rng.standard_normal(size), _sizes(size, 64)) for size in (8_001, 32_001)]
    return found


def _label(kind: str, row: Array, sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:6])) + (", …" if len(sizes) > 6 else "")
    return f"{kind} row of {row.size} scores in pieces of {shown}"


# ---------------------------------------------------------------------- 3A
def running_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of finite rows in many cuts, with their maximum and sum."""
    return [
        _row_case(kind, {"row": row, "sizes": sizes}, _statistics(row)) for kind, row, sizes in _rows(rng)
    ]


def _row_case(kind: str, inputs: dict[str, Any], expected: Any) -> Case:
    """Return a case of a row in pieces; its kind is its tag."""
    label = _label(kind, inputs["row"], inputs["sizes"])
    return Case(label, inputs, expected, tags=frozenset({kind}))


def _statistics(row: Array) -> tuple[float, float]:
    return float(row.max()), float(np.exp(row - row.max()).sum())


def _part_is_right(position: int) -> Callable[[Trial], str | None]:
    def judge(trial: Trial) -> str | None:
        value = trial.value
        pair = several(list(value) if isinstance(value, np.ndarray) and value.ndim else value, 2)
        if pair is None:
            return WrongForm(f"expected a pair (m, l), got {type(value).__name__}")
        return difference(pair[position], trial.case.expected[position])

    return judge


def _pair_is_right(trial: Trial) -> str | None:
    return _part_is_right(0)(trial) or _part_is_right(1)(trial)


RUNNING = exercise(
    "3A",
    cases=running_cases,
    properties=(
        each("m is the largest score of the whole row", _part_is_right(0)),
        of_kind("l is the sum of e^(s - m) over the whole row", FINITE, _part_is_right(1)),
        SAME_ROW,
        of_kind("scores of ±10,000 neither overflow nor vanish", ("large",), _pair_is_right),
        *ONE_PASS,
    ),
    run_case=run_streamed,
)


# ---------------------------------------------------------------------- 3B
def _masked_rows(rng: np.random.Generator) -> list[tuple[str, Array, list[int]]]:
    """Return rows with the first, a middle or the last piece masked, single scores masked, or all masked."""
    b = int(rng.integers(2, 5))
    n = 4 * b
    row = rng.standard_normal(n)
    masks = [np.arange(n) // b == k for k in (0, 2, 3)] + [np.arange(n) < 2 * b, np.arange(n) % 3 == 0]
    found = [("masked", np.where(mask, -np.inf, row), _sizes(n, b)) for mask in masks]
    for level in LEVELS:
        late = np.where(masks[0], -np.inf, row + level)  # carrying 0 out of the masked piece hides the rest
        found.append(("masked", late, _sizes(n, b)))
    for mask in (masks[0], masks[4]):  # every finite score below what is taken for minus infinity
        found.append(("masked", np.where(mask, -np.inf, bottomless_scores(rng, 1, n)[0]), _sizes(n, b)))
    ends = np.where(np.arange(9) % 3 == 1, rng.standard_normal(9), -np.inf)
    found.append(("masked", ends, [3, 3, 3]))  # each piece begins and ends with a masked score
    return [*found, ("empty", np.full(n, -np.inf), _sizes(n, b)), ("empty", np.full(1, -np.inf), [1])]


def attention_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of finite and masked rows of scores with values (n, d), and their weighted mean."""
    rows = _rows(rng) + _masked_rows(rng)
    V = 2 + rng.standard_normal((max(row.size for _, row, _ in rows), int(rng.integers(2, 6))))
    return [_attention_case(kind, row, sizes, V[: row.size]) for kind, row, sizes in rows]


def _attention_case(kind: str, row: Array, sizes: list[int], V: Array) -> Case:
    inputs = {"row": row, "sizes": sizes, "V": V}
    return _row_case(kind, inputs, exact.softmax(row) @ V)


ATTENTION = exercise(
    "3B",
    cases=attention_cases,
    properties=(
        of_kind("o is the softmax-weighted mean of the values", ("plain", "long"), is_right),
        of_kind("rescales the sum and the output when the maximum rises", ("rising",), is_right),
        of_kind("keeps the running maximum if a piece has no larger score", ("falling",), is_right),
        SAME_ROW,
        of_kind("scores of ±10,000 neither overflow nor vanish", ("large",), is_right),
        of_kind("a masked piece adds nothing, at any position", ("masked",), is_right),
        idle(of_kind("a fully masked row gives zeros", ("empty",), is_right)),
        *ONE_PASS,
    ),
    run_case=run_streamed,
)


# ---------------------------------------------------------------------- 3C
@dataclass(frozen=True)
class Merges:
    """Results of merging the parts a, b, c and the empty part e; `changed`: an argument was modified."""

    a_b: Any
    b_a: Any
    ab_c: Any
    a_bc: Any
    e_a: Any
    a_e: Any
    e_e: Any
    changed: bool = False


def _part(s: Array, V: Array) -> Part:
    """Return (m, l, o) of scores and values, with o not divided by l; (-inf, 0, 0) if all are masked."""
    m = float(s.max(initial=-np.inf))
    p = np.exp(s - m) if m > -np.inf else np.zeros_like(s)
    return m, float(p.sum()), p @ V


def merge_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of three parts of a row: ordinary, equal scores, distant maxima, all very low."""
    d = int(rng.integers(2, 6))
    rows = [("plain", list(3 * rng.standard_normal((3, 5)))), ("plain", list(np.full((3, 2), 1.5)))]
    rows.append(("plain", [rng.standard_normal(1), rng.standard_normal(7), rng.standard_normal(3)]))
    far = rng.permutation([-1e4, 0.0, 1e4])
    rows.append(("large", [top + rng.standard_normal(4) for top in far]))
    rows += [("large", list(level + rng.standard_normal((3, 4)))) for level in LEVELS]
    rows.append(("large", list(bottomless_scores(rng, 1, 12).reshape(3, 4))))
    rows.append(("masked", [rng.standard_normal(4), np.full(3, -np.inf), rng.standard_normal(4)]))
    for tops in ((0.0, -12.0, -16.0), (-16.0, 0.0, -12.0)):  # weights of 10⁻⁵ and 10⁻⁷ still count
        rows.append(("plain", [top - rng.exponential(size=4) for top in tops]))
    return [_merge_case(rng, d, kind, parts) for kind, parts in rows]


def _merge_case(rng: np.random.Generator, d: int, kind: str, rows: list[Array]) -> Case:
    Vs = [2 + rng.standard_normal((s.size, d)) for s in rows]
    parts = [_part(s, V) for s, V in zip(rows, Vs, strict=True)]
    both = _part(np.concatenate(rows[:2]), np.concatenate(Vs[:2]))
    whole = _part(np.concatenate(rows), np.concatenate(Vs))
    label = f"{kind} parts with m = " + ", ".join(f"{m:.3g}" for m, _, _ in parts)
    expected = {"two": both, "three": whole}
    return Case(label, {"parts": parts}, expected, tags=frozenset({kind}))


@trial_from_error
def play_merge(student: Callable[..., Any], case: Case) -> Trial:
    """Merge copies of the parts in every order and grouping, and with the empty part."""
    changed = False

    def merge(x: Any, y: Any) -> Any:
        nonlocal changed
        x, y = _copy(x), _copy(y)
        before = _copy(x), _copy(y)
        made = student(x, y)
        changed |= not all(_identical(new, old) for new, old in zip((x, y), before, strict=True))
        return _as_part(_copy(made))

    a, b, c = case.inputs["parts"]
    e = (-np.inf, 0.0, np.zeros_like(a[2]))
    with student_call():
        made = Merges(
            a_b=merge(a, b),
            b_a=merge(b, a),
            ab_c=merge(merge(a, b), c),
            a_bc=merge(a, merge(b, c)),
            e_a=merge(e, a),
            a_e=merge(a, e),
            e_e=merge(e, e),
        )
    return Trial(case, replace(made, changed=changed))


def _copy(part: Any) -> Any:
    if not isinstance(part, tuple | list):
        return part
    return tuple(np.copy(x) if isinstance(x, np.ndarray) else x for x in part)


def _identical(new: Any, old: Any) -> bool:
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(new, old, strict=True))


def triple_difference(got: Any, want: Part) -> str | None:
    """Return None if `got` equals the triple (m, l, o) `want`, otherwise the first difference."""
    if not isinstance(got, tuple) or len(got) != 3:
        return WrongForm(f"expected a triple (m, l, o), got {type(got).__name__}")
    for name, g, w in zip(("m", "l", "o"), got, want, strict=True):
        complaint = difference(g, w)
        if complaint:
            return f"{name}: {complaint}"
    return None


def _halves_are_right(trial: Trial) -> str | None:
    return triple_difference(trial.value.a_b, trial.case.expected["two"])


def _either_order(trial: Trial) -> str | None:
    complaint = triple_difference(trial.value.b_a, _as_part(trial.value.a_b))
    return complaint and complaint.replace("got", "b with a gives").replace("expected", "a with b")


def _any_grouping(trial: Trial) -> str | None:
    for way, got in (("(a, b), c", trial.value.ab_c), ("a, (b, c)", trial.value.a_bc)):
        complaint = triple_difference(got, trial.case.expected["three"])
        if complaint:
            return f"merged as {way}, compared with the complete row: {complaint}"
    return None


def _empty_changes_nothing(trial: Trial) -> str | None:
    a = trial.case.inputs["parts"][0]
    e = (-np.inf, 0.0, np.zeros_like(a[2]))
    made = trial.value
    ways = (("empty with a", made.e_a, a), ("a with empty", made.a_e, a), ("empty with empty", made.e_e, e))
    complaints = (f"{way}: {bad}" for way, got, want in ways if (bad := triple_difference(got, want)))
    return next(complaints, None)


TRIPLE = "a merge must return a triple (m, l, o)"


def _as_part(value: Any) -> Part:
    if not isinstance(value, tuple) or len(value) != 3:
        raise wrong_return(value, f"{TRIPLE}, got {_kind(value)}")
    if np.ndim(value[0]) or np.ndim(value[1]):
        shapes = ", ".join(str(np.shape(one)) for one in value)
        raise wrong_return(value, f"{TRIPLE}, where m and l are numbers; got shapes {shapes}")
    return value


def _kind(value: Any) -> str:
    """Describe a value that is not a triple."""
    name = type(value).__name__
    return f"{len(value)} results" if isinstance(value, tuple) else name


def _inputs_kept(trial: Trial) -> str | None:
    return "a part that was passed in was modified" if trial.value.changed else None


MERGE = exercise(
    "3C",
    cases=merge_cases,
    properties=(
        of_kind(
            "merging two parts gives the result of both together", ("plain", "masked"), _halves_are_right
        ),
        each("the result does not depend on the order of the parts", _either_order),
        of_kind(
            "the result does not depend on the grouping of the parts", ("plain", "masked"), _any_grouping
        ),
        each("merging with (-inf, 0, 0) changes nothing", _empty_changes_nothing),
        of_kind("maxima 10,000 apart neither overflow nor vanish", ("large",), _any_grouping),
        idle(each("does not modify its inputs", _inputs_kept)),
    ),
    run_case=play_merge,
)


# ---------------------------------------------------------------------- 3D
def row_lse_cost(N: int, n: int, *, Br: int, Bc: int) -> Ledger:
    """Return the closed form: S is read once, one word per row is written, and the peak is r·c + 2r words."""
    r, c = min(Br, N), min(Bc, n)
    return Ledger(reads={"S": N * n}, writes={"L": N}, peak=r * c + 2 * r, sizes={"S": N * n, "L": N})


def lse_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield scores (N, n) in several ragged tilings, one row, scores of ±10,000, and extremely low scores.

    The last have a sample for themselves, because the tolerance depends on the largest value. Rows are longer
    than fast memory if the tiles are smaller than the row.
    """
    Br, Bc = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    N, n = 2 * Br + 1, 40 * Bc + 1
    S = 3 * rng.standard_normal((N, n))
    tilings = [(Br, Bc), (1, 1), (Br + 1, Bc + 2), (N + 3, n + 3), (Br, 10 * Br)]
    large = 1e4 * rng.choice([-1.0, 1.0], size=(N, n)) + rng.standard_normal((N, n))
    large[0], large[1] = -1e4, 1e4
    large[2:] = low_scores(rng, N - 2, n)
    below = bottomless_scores(rng, Br, n)
    asked = [*((S, r, c, "plain") for r, c in tilings), (S[:1], Br, Bc, "plain")]
    for scores, r, c, kind in [*asked, (large, Br, Bc, "large"), (below, Br, Bc, "large")]:
        sizes = {"N": len(scores), "n": n, "Br": r, "Bc": c}
        yield Sample(sizes, {"S": scores, "Br": r, "Bc": c}, tags=(kind,), prefix=f"{kind} scores")


def _log_sums(S: Array, **_: int) -> Array:
    return exact.log_sum_exp(S)


LSE = schedule_exercise(
    "3D",
    lse_inputs,
    equals=_log_sums,
    moves=row_lse_cost,
    spare=one_more_of_each_kind,
    values=(
        values_in("L is m + log l of every row", "plain"),
        same_answer_from("S"),
        values_in("scores of ±10,000 neither overflow nor vanish", "large"),
    ),
    words=(reads_within("S", "S is read once"),),
)

EXERCISES = (RUNNING, ATTENTION, MERGE, LSE)
