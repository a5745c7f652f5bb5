"""Exercises of lesson 01: naive attention, forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ..exercise import (
    Case,
    Property,
    Sample,
    Trial,
    WrongForm,
    exercise,
    snapshot,
    student_call,
    trial_from_error,
    wrong_return,
)
from ..guard import no_calls_into
from ..kinds.function import EVERY, function_exercise
from ..properties import (
    TOLERANCE,
    difference,
    difference_or_scale,
    each,
    exchanged,
    format_apart,
    idle,
    only_where,
    same_answer_for,
    several,
    too_short,
    values,
)
from ..side_effects import WatchedTrial, changed, does_not_modify_inputs
from ..trials.case_inputs import (
    bottomless_queries_and_keys,
    bottomless_scores,
    low_queries_and_keys,
    low_scores,
)

Array = NDArray[np.float64]


# ---------------------------------------------------------------------- running the student's function
# These have softmax, attention or gradients. `iocourse.distributed` is not guarded: lessons 18 and 19 use it.
OTHERS = ("torch", "jax", "tensorflow", "scipy", "iocourse.distributed")


@trial_from_error
def call_and_watch(student: Callable[..., Any], case: Case) -> Trial:
    """Call a plain function with copies of the inputs and record which copies it modifies.

    NumPy's warnings are silenced; overflows are reported by properties.
    """
    inputs = copy.deepcopy(dict(case.inputs))
    with student_call(), no_calls_into(OTHERS, "already has this formula; write yours with NumPy"):
        returned = student(*inputs.values())
    if returned is None:
        raise wrong_return(None, "your function returned None; does it end with a return?")
    seen = changed(case.inputs, inputs)
    value = snapshot(returned)
    return WatchedTrial(case, value=value, returned=(value, returned), changed=seen)


def _numbers(value: Any) -> Array:
    return exact.real_numbers(value)


def _finite(trial: Trial) -> str | None:
    parts = trial.value if isinstance(trial.value, (tuple, list)) else (trial.value,)
    bad = sum(int((~np.isfinite(_numbers(part))).sum()) for part in parts)
    return f"{bad} entries are NaN or infinite" if bad else None


LARGE, BELOW = "large logits", "all below -10³⁹"
STAYS_FINITE = idle(only_where("is finite for large logits", LARGE, _finite))


def _sizes(rng: np.random.Generator) -> tuple[int, int]:
    """Return small (N, d) with N odd and N > d."""
    return int(rng.integers(3, 6)) * 2 + 1, int(rng.integers(2, 6))


# ---------------------------------------------------------------------- 1A softmax
MATRIX, HEIGHTS, HIDDEN = "a matrix", "one row near 10000, the next near -10000", "some scores are -inf"


def _score_matrices(rng: np.random.Generator) -> Iterator[Sample]:
    rows, cols = int(rng.integers(3, 8)), int(rng.integers(8, 12))
    S = 3 * rng.standard_normal((rows, cols))
    height = rng.uniform(-30, 30, (rows, 1))
    hidden = rng.random((rows, cols)) < 0.4
    hidden[:, 0] = False
    for shape in ((rows, cols), (cols, rows), (1, 1), (1, cols), (rows, 1)):
        yield _scores(3 * rng.standard_normal(shape))
    yield _scores(S, MATRIX)
    yield _scores(S + height, MATRIX, "a number added to each row")
    yield _scores(rng.uniform(-1e4, 1e4, (rows, cols)), LARGE, "up to ±10000")
    yield _scores(S + np.where(np.arange(rows) % 2, -1e4, 1e4)[:, None], LARGE, HEIGHTS)
    yield _scores(np.where(hidden, -np.inf, S), HIDDEN)
    yield _scores(low_scores(rng, rows, cols), LARGE, "all of a row near -210, -800 or -30,000")
    below = bottomless_scores(rng, rows, cols)
    yield _scores(below, LARGE, BELOW)
    yield _scores(np.where(hidden, -np.inf, below), LARGE, HIDDEN, f"the others {BELOW}")
    yield _scores(S - 20 * np.arange(cols), "weights down to 1e-60")


def _scores(S: Array, *tags: str) -> Sample:
    sizes = {"rows": len(S), "columns": S.shape[1]}
    return Sample(sizes, {"S": S}, {"P": exact.softmax(S)}, tags=tags)


def _small_weight(trial: Trial) -> str | None:
    """Compare weights by relative error, above the subnormal numbers of float64."""
    got, want = _numbers(trial.value), trial.case.expected
    off = (want > 1e-290) & ~(np.abs(got - want) <= TOLERANCE * want)
    if not off.any():
        return None
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return f"the weight at {list(place)} is {got[place]:.6g}, expected {want[place]:.6g}"


def _row_sums(trial: Trial) -> str | None:
    P = _numbers(trial.value)
    if P.shape != trial.case.inputs["S"].shape:
        return WrongForm(f"got shape {P.shape}, expected {trial.case.inputs['S'].shape}")
    sums = P.sum(axis=1)
    wrong = ~(np.abs(sums - 1) <= TOLERANCE)
    if not wrong.any():
        return None
    found = float(sums[wrong.argmax()])
    short = too_short(trial.value, float(np.abs(sums - 1).max()))
    return f"row {wrong.argmax()} sums to {format_apart(found, 1.0)[0]}{short}"


def _hidden_weight(trial: Trial) -> str | None:
    weights = _numbers(trial.value)[np.isneginf(trial.case.inputs["S"])]
    some = weights[(weights != 0) & ~np.isnan(weights)]  # NaN has another cause
    return f"a score of -inf has the weight {some[0]:.3g}" if some.size else None


def _matrix(trial: Trial) -> str:
    """Return a key that is equal for a matrix and for the same matrix with a constant added to each row."""
    return MATRIX if trial.case.has(MATRIX) else trial.case.label


VALUES = values("values equal exact softmax")
SMALL = each(VALUES.name, _small_weight)
SOFTMAX = function_exercise(
    "1A",
    "P",
    _score_matrices,
    {("P", HEIGHTS): "is correct for rows of very different size"},
    before=(
        replace(VALUES, judge=lambda trials: VALUES.judge(trials) or SMALL.judge(trials)),
        each("every row sums to one", _row_sums),
        STAYS_FINITE,
    ),
    after=(
        same_answer_for("does not change when a constant is added to a row", _matrix),
        idle(only_where("gives a score of -inf the weight 0", HIDDEN, _hidden_weight)),
        does_not_modify_inputs(),
    ),
    run_case=call_and_watch,
)


# ---------------------------------------------------------------------- 1B attention
UNSAID, LOW, OPEN = "causal not given", "far below zero", "no mask"
SHOWN, ONES, EARLY, LATER = "V the identity", "V all ones", "causal mask", "later keys and values replaced"


def _attention_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    N, d = _sizes(rng)
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    K3, V3 = _replaced_after(rng, K, N // 2), _replaced_after(rng, V, N // 2)
    yield _attention(Q, K, V, OPEN)
    yield _attention(Q, K, V, EARLY)
    yield _attention(Q, K3, V3, EARLY, LATER)
    yield _attention(Q, K, np.eye(N), OPEN, SHOWN)
    yield _attention(16 * Q, K, np.eye(N), OPEN, SHOWN, "weights down to 1e-20")
    low_Q, low_K = low_queries_and_keys(rng, N, N, d)
    for mask in (OPEN, EARLY):
        yield _attention(Q, K, np.ones((N, d)), mask, ONES)
        yield _attention(Q[:1], K[:1], V[:1], mask)
        yield _attention(1e2 * Q, 1e2 * _opposed(K, Q), V, mask, LARGE)
        yield _attention(low_Q, low_K, V, mask, LARGE, LOW)
    yield _attention(*bottomless_queries_and_keys(rng, N), V, EARLY, LARGE, BELOW)
    yield _attention(*rng.standard_normal((3, N, d + 1)), UNSAID)


def _attention(Q: Array, K: Array, V: Array, mask: str, *tags: str) -> Sample:
    told = {} if mask == UNSAID else {"causal": mask == EARLY}
    inputs = {"Q": Q, "K": K, "V": V, **told}
    sizes = {"N": len(Q), "d": Q.shape[1]}
    return Sample(sizes, inputs, {"O": exact.attention(Q, K, V, **told)}, tags=(mask, *tags))


def _opposed(K: Array, Q: Array) -> Array:
    """Return the keys with the first one opposed to the first query, so that 10⁴·QKᵀ/√d is -30000 there."""
    return np.concatenate([-3 * Q[:1] / (Q[0] @ Q[0]) * Q.shape[1] ** 0.5, K[1:]])


def _replaced_after(rng: np.random.Generator, array: Array, rows: int) -> Array:
    """Return the array with new numbers in every row from `rows` on."""
    return np.concatenate([array[:rows], rng.standard_normal(array[rows:].shape)])


def _scale_seen(trial: Trial) -> str | None:
    """Fit the scale: if V is the identity, log of the output is scale·QKᵀ plus a constant per row."""
    Q, K = trial.case.inputs["Q"], trial.case.inputs["K"]
    P, raw = _numbers(trial.value), Q @ K.T
    wanted = Q.shape[1] ** -0.5
    if P.shape != raw.shape or not (P > 0).all():
        return "the output is not a matrix of positive weights, although no key is masked"
    x, y = (a - a[:, :1] for a in (raw, np.log(P)))
    scale = float((x * y).sum() / (x * x).sum())
    if np.abs(y - scale * x).max() > 1e-6:
        return "within a row, the weights are not proportional to exponentials of QKᵀ"
    if abs(scale - wanted) <= 1e-6:
        return None
    return f"QKᵀ is multiplied by {scale:.4g}, expected 1/√{Q.shape[1]} = {wanted:.4g}"


def _looks_ahead(trials: Sequence[Trial]) -> str | None:
    """Compare the outputs of queries before the first replaced key."""
    pair = frozenset([EARLY]), frozenset([EARLY, LATER])
    found = [next((t for t in trials if t.case.tags == tags), None) for tags in pair]
    before, after = found
    if before is None or after is None:  # only the trials without a mask, to find the cause of a fault
        return None
    rows = int((before.case.inputs["K"] == after.case.inputs["K"]).all(axis=1).sum())
    one, other = _numbers(before.value), _numbers(after.value)
    seen = difference(other[:rows], one[:rows])
    if seen is None or not np.isfinite(one).all():
        return None
    return f"rows 0 to {rows - 1} change when keys and values from row {rows} on are replaced"


def _first_row(trial: Trial) -> str | None:
    got, want = _numbers(trial.value)[0], trial.case.inputs["V"][0]
    return None if difference(got, want) is None else "the first row of your output is not the first row of V"


def _ones(trial: Trial) -> str | None:
    O = _numbers(trial.value)
    wrong = ~(np.abs(O - 1) <= TOLERANCE)
    if not wrong.any():
        return None
    i = int(np.argwhere(wrong)[0][0])
    return f"the weights of query {i} sum to {O[i][0]:.4g}"


ATTENTION = function_exercise(
    "1B",
    "O",
    _attention_inputs,
    {("O", EVERY): "values equal exact attention"},
    after=(
        only_where("divides the scores by √d", SHOWN, _scale_seen),
        idle(only_where("the weights of the visible keys sum to one", ONES, _ones)),
        idle(Property("no query attends to a later key", _looks_ahead)),
        idle(
            only_where(
                "with the causal mask, the first query attends to the first key only", EARLY, _first_row
            )
        ),
        STAYS_FINITE,
        does_not_modify_inputs(),
    ),
    run_case=call_and_watch,
)


# ---------------------------------------------------------------------- 1C back through softmax
def _weights(rng: np.random.Generator) -> Iterator[Sample]:
    N, cols = _sizes(rng)[0], int(rng.integers(3, 6))
    for shape in ((N, N), (N, cols), (cols, N), (1, 1)):
        P = exact.softmax(2 * rng.standard_normal(shape))
        yield _back(P, rng.standard_normal(shape))
    causal = np.where(np.tri(N, dtype=bool), rng.standard_normal((N, N)), -np.inf)
    yield _back(exact.softmax(causal), rng.standard_normal((N, N)), EARLY)
    P, dP = exact.softmax(rng.standard_normal((N, N))), rng.standard_normal((N, N))
    yield _back(P, dP, MATRIX)
    yield _back(P, dP + rng.uniform(-5, 5, (N, 1)), MATRIX, "a number added to each row of dP")


def _back(P: Array, dP: Array, *tags: str) -> Sample:
    sizes = {"rows": len(P), "columns": P.shape[1]}
    return Sample(sizes, {"P": P, "dP": dP}, {"dS": exact.softmax_backward(P, dP)}, tags=tags)


def _sums_to_zero(trial: Trial) -> str | None:
    dS = _numbers(trial.value)
    if dS.shape != trial.case.inputs["P"].shape:
        return WrongForm(f"got shape {dS.shape}, expected {trial.case.inputs['P'].shape}")
    sums = dS.sum(axis=1)
    worst = int(np.abs(sums).argmax())
    return None if abs(sums[worst]) <= TOLERANCE else f"row {worst} sums to {sums[worst]:.4g}, expected 0"


def _weightless(trial: Trial) -> str | None:
    got = _numbers(trial.value)[trial.case.inputs["P"] == 0]
    return None if (got == 0).all() else f"a masked pair has the gradient {got[got != 0][0]:.4g}"


SOFTMAX_BACKWARD = function_exercise(
    "1C",
    "dS",
    _weights,
    {("dS", EVERY): "values equal the derivative of softmax"},
    after=(
        idle(each("every row of dS sums to zero", _sums_to_zero)),
        same_answer_for("does not change when a constant is added to a row of dP", _matrix),
        idle(only_where("gives a pair of weight 0 the gradient 0", EARLY, _weightless)),
        does_not_modify_inputs(),
    ),
    run_case=call_and_watch,
)


# ---------------------------------------------------------------------- 1D the backward pass
QUIET, FAINT = "dO is zero from the middle on", "the first key has weights near 1e-26"


def _backward_cases(rng: np.random.Generator) -> list[Case]:
    N, d = _sizes(rng)
    Q, K, V, dO = (rng.standard_normal((N, d)) for _ in range(4))
    early = np.where(np.arange(N)[:, None] < N // 2, dO, 0.0)
    low_Q, low_K = low_queries_and_keys(rng, N, N, d)
    found = []
    for mask in (OPEN, EARLY):
        found += [
            _backward_case(Q, K, V, dO, mask),
            _backward_case(Q[:1], K[:1], V[:1], dO[:1], mask),
            _backward_case(1e2 * Q, 1e2 * K, V, dO, mask, LARGE),
            _backward_case(low_Q, low_K, V, dO, mask, LARGE, LOW),
        ]
    found += [
        _backward_case(Q, K, V, early, EARLY, QUIET),
        _backward_case(*_whole_words(rng, N), EARLY, LARGE, BELOW),
        _backward_case(*rng.standard_normal((4, N, d + 1)), UNSAID),
    ]
    Q, K = Q.copy(), K.copy()
    Q[:, 0], K[0, 0] = 1.0, -60 * d**0.5
    return [*found, _backward_case(Q, K, V, dO, OPEN, FAINT)]


def _backward_case(Q: Array, K: Array, V: Array, dO: Array, mask: str, *tags: str) -> Case:
    told = {} if mask == UNSAID else {"causal": mask == EARLY}
    inputs = {"Q": Q, "K": K, "V": V, "dO": dO, **told}
    label = ", ".join([f"N={len(Q)}, d={Q.shape[1]}", mask, *tags])
    want = tuple(exact.attention_backward(Q, K, V, dO, **told))
    return Case(label, inputs, want, tags=frozenset([mask, *tags]))


def _whole_words(rng: np.random.Generator, N: int) -> tuple[Array, Array, Array, Array]:
    """Return inputs with very low scores and integer V and dO: no gradient is rounded; dQ and dK are 0."""
    Q, K = bottomless_queries_and_keys(rng, N)
    V, dO = rng.integers(-9, 10, (2, N, 4)).astype(np.float64)
    return Q, K, V, dO


NAMES = ("dQ", "dK", "dV")


def call_for_three(student: Callable[..., Any], case: Case) -> Trial:
    """Run `call_and_watch`; a number of results other than three is an error."""
    trial = call_and_watch(student, case)
    if trial.error is not None or several(trial.value, 3):
        return trial
    one = not isinstance(trial.value, (tuple, list))
    got = f"one {type(trial.value).__name__}" if one else f"{len(trial.value)} values"
    seen = f"your function returned {got}, expected the three arrays dQ, dK, dV"
    return Trial(case, error=wrong_return(trial.value, seen))


def _three(trial: Trial) -> str | None:
    for name, got, want in zip(NAMES, trial.value, trial.case.expected, strict=True):
        if np.shape(got) != want.shape:
            return f"{name} has shape {np.shape(got)}, expected {want.shape}"
    return None


# Smaller than the error of finite differences (about 1e-11), larger than that of formulas.
DERIVED = 1e-12


def _gradient(k: int) -> Property:
    def judge(trial: Trial) -> str | None:
        got, wanted = trial.value[k], trial.case.expected
        tolerance = TOLERANCE if trial.case.has(LARGE) else DERIVED
        said = difference_or_scale(got, wanted[k], trial.case, tolerance)
        if said and not difference(got, wanted[k]):
            return f"{said}; correct to 9 digits, like finite differences; a formula is correct to 12"
        if not said and k and trial.case.has(FAINT):  # compare this row of dK or dV by relative error
            unit = np.abs(wanted[k][:1]).max()
            said = difference(got[:1] / unit, wanted[k][:1] / unit)
            return said and f"row of the first key, in units of {unit:.3g}: {said}"
        return said and (exchanged(got, wanted, NAMES, k) or said)

    return each(f"{NAMES[k]} equals the exact gradient", judge)


def _steepness(trial: Trial) -> str | None:
    """Compare the slope of the loss under scaling of Q (or K); a missing factor 1/√d changes it by √d."""
    for k, name in enumerate("QK"):
        along = trial.case.inputs[name]
        got = float((along * _numbers(trial.value[k])).sum())
        want = float((along * trial.case.expected[k]).sum())
        if not abs(got - want) <= TOLERANCE * (1 + np.abs(along * trial.case.expected[k]).sum()):
            return f"scaling {name} changes the loss with slope {want:.4g}, but d{name} gives {got:.4g}"
    return None


def _shifted_keys(trial: Trial) -> str | None:
    """Test that the rows of dK sum to zero: adding a vector to every key changes no weight."""
    dK, bound = _numbers(trial.value[1]), 1 + np.abs(trial.case.expected[1]).sum()
    worst = float(np.abs(dK.sum(axis=0)).max())
    return None if worst <= TOLERANCE * bound else f"the rows of dK sum to as much as {worst:.4g}, expected 0"


def _shifted_values(trial: Trial) -> str | None:
    """Compare the column sums of dV and dO: a vector added to every value is added to every output."""
    said = difference(_numbers(trial.value[2]).sum(axis=0), trial.case.inputs["dO"].sum(axis=0))
    return f"column sums of dV compared with those of dO: {said}" if said else None


def _later_keys(trial: Trial) -> str | None:
    start = trial.case.inputs["Q"].shape[0] // 2
    for k in (1, 2):
        if not (_numbers(trial.value[k])[start:] == 0).all():
            return (
                f"{NAMES[k]} is not zero from row {start} on, although only earlier queries have a gradient"
            )
    return None


BACKWARD = exercise(
    "1D",
    cases=_backward_cases,
    properties=(
        idle(each("returns three gradients with the shapes of Q, K and V", _three)),
        *(_gradient(k) for k in range(3)),
        only_where("dQ and dK include the factor 1/√d", OPEN, _steepness),
        idle(each("the rows of dK sum to zero", _shifted_keys)),
        each("the rows of dV have the same sum as the rows of dO", _shifted_values),
        idle(only_where("masked pairs contribute no gradient", QUIET, _later_keys)),
        STAYS_FINITE,
        does_not_modify_inputs(),
    ),
    run_case=call_for_three,
)

EXERCISES = (SOFTMAX, ATTENTION, SOFTMAX_BACKWARD, BACKWARD)
