"""Exercises of lesson 14: a decode step in bytes, the roof that limits, merging parts, packed texts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ...costs.kernel_masks import PackedSequences
from ...costs.kernels import KernelProblem, attention_forward
from ...ledger import Ledger
from ..exercise import Case, Trial, WrongForm, exercise
from ..properties import budget_of, each, idle, part, several, values_in
from ..trials.float32_inputs import (
    FAR,
    FAR_NAME,
    LARGE_TOLERANCE,
    TOLERANCE,
    Single,
    far_apart,
    log_sums,
    normal,
    output,
)
from ..trials.kernel_launch import full_products, launch_in_place, launches_kernels, words_exactly


def _label(sizes: dict[str, Any], *more: str) -> str:
    return ", ".join([*more, *(f"{name}={value}" for name, value in sizes.items())])


# ------------------------------------------------------------------ 14A one token
ONE, BATCH, SHARED = "one head", "texts and heads", "keys shared"


def _step_cases(rng: np.random.Generator) -> list[Case]:
    """One head, of 4 bytes a word; several texts and heads, each with its own keys, beyond 2^31 bytes;
    heads that share keys; a short cache.
    """
    N, B = int(rng.integers(1000, 9000)), int(rng.integers(2, 6))
    shapes = [
        (ONE, 1, 1, 1, N, 64, 4),
        (BATCH, B, 16, 16, 2**17 + N, 128, 2),
        (SHARED, 1, 32, 8, N, 128, 2),
        (f"{SHARED}, a short cache", B, 32, 1, int(rng.integers(1, 30)), 80, 4),
    ]
    return [_step_case(*shape, float(rng.integers(300, 8000))) for shape in shapes]


def _step_case(
    label: str, B: int, H: int, H_kv: int, N: int, d: int, itemsize: int, gbytes_per_s: float
) -> Case:
    sizes = {"B": B, "H": H, "H_kv": H_kv, "N": N, "d": d, "itemsize": itemsize, "gbytes_per_s": gbytes_per_s}
    moved = _decode_bytes(B, H, H_kv, N, d, itemsize)
    return Case(_label(sizes, label), sizes, (moved, moved / gbytes_per_s / 1e3))


def _decode_bytes(B: int, H: int, H_kv: int, N: int, d: int, itemsize: int) -> int:
    """K and V of the heads of keys, a query and an output of every head: (14.2)."""
    return itemsize * (2 * B * H_kv * N * d + 2 * B * H * d)


STEP_PARTS = ("bytes", "microseconds")
STEP = exercise(
    "14A",
    cases=_step_cases,
    properties=(
        part("the bytes of one head are right", STEP_PARTS, 0, ONE),
        part("every text and every head has a cache of its own", STEP_PARTS, 0, BATCH),
        part("keys that heads share are read once", STEP_PARTS, 0, SHARED),
        part("queries and outputs are counted: a short cache shows it", STEP_PARTS, 0, "a short cache"),
        part("the time is in microseconds", STEP_PARTS, 1),
    ),
)


# ------------------------------------------------------------------ 14B which roof
MEMORY, PRODUCTS = "memory", "products"
FLOP = {"forward": lambda n: 4 * n**2, "backward": lambda n: 10 * n**2, "decode": lambda n: 4 * n}


def _roof_cases(rng: np.random.Generator) -> list[Case]:
    """Each pass on either side of the bend, the bend in various places, keys shared or not, words of 2 bytes
    and of 4.
    """
    found = []
    for pass_, memory_N, products_N in (("forward", 60, 6000), ("backward", 40, 5000), ("decode", 4000, 0)):
        peak = float(rng.integers(200, 1000))
        bandwidth = peak * float(rng.uniform(4, 7))  # the roof bends at 140 to 250 FLOP a byte
        extra = int(rng.integers(0, 40))
        found.append(_roof_case(pass_, 1, 8, 8, memory_N + extra, 128, peak, bandwidth))
        found.append(_roof_case(pass_, 2, 8, 2, memory_N // 2 + extra, 64, peak, bandwidth, itemsize=4))
        if products_N:
            found.append(_roof_case(pass_, 3, 16, 4, products_N + extra, 64, peak, bandwidth))
        else:  # a chip that is slow at products, and one head of keys for all
            found.append(_roof_case(pass_, 3, 64, 1, memory_N, 128, peak / 50, bandwidth))
    return found


def _roof_case(
    pass_: str, B: int, H: int, H_kv: int, N: int, d: int, peak: float, bandwidth: float, *, itemsize: int = 2
) -> Case:
    sizes = {"B": B, "H": H, "H_kv": H_kv, "N": N, "d": d, "itemsize": itemsize}
    inputs = {"pass_": pass_, **sizes, "tflops": peak, "gbytes_per_s": bandwidth}
    multiplying = FLOP[pass_](N) * B * H * d / (peak * 1e6)
    moving = _least_bytes(pass_, sizes) / (bandwidth * 1e3)
    limit = MEMORY if moving > multiplying else PRODUCTS
    label = _label(sizes | {"peak": round(peak), "bandwidth": round(bandwidth)}, pass_, f"limit {limit}")
    return Case(label, inputs, (max(moving, multiplying), limit))


def _least_bytes(pass_: str, sizes: dict[str, int]) -> int:
    """Each array of the pass once, without row sums."""
    B, H, H_kv, N, d, itemsize = sizes.values()
    if pass_ == "decode":
        return _decode_bytes(B, H, H_kv, N, d, itemsize)
    arrays = 2 if pass_ == "forward" else 4  # of queries: Q, O, and dO, dQ; as many of keys
    return itemsize * arrays * B * (H + H_kv) * N * d


def _limit(trial: Trial) -> str | None:
    found = several(trial.value, 2)
    if found is None:
        return WrongForm("expected 2 results: a time, a limit")
    got, want = found[1], trial.case.expected[1]
    return None if got == want else f"yours {got!r}, expected {want!r}"


ROOF_PARTS = ("a time", "a limit")
ROOF = exercise(
    "14B",
    cases=_roof_cases,
    properties=(
        part("forward, limited by memory", ROOF_PARTS, 0, f"forward, limit {MEMORY}"),
        part("forward, limited by products", ROOF_PARTS, 0, f"forward, limit {PRODUCTS}"),
        part("backward, limited by memory", ROOF_PARTS, 0, f"backward, limit {MEMORY}"),
        part("backward, limited by products", ROOF_PARTS, 0, f"backward, limit {PRODUCTS}"),
        part("a decode step", ROOF_PARTS, 0, "decode"),
        each("the limit is named", _limit),
    ),
)


# ------------------------------------------------------------------ 14C a kernel that merges
GROUPS, EMPTY, NOTHING, LARGE, LOW = (
    "heads that share keys",
    "some parts without a key",
    "all parts without a key",
    "±200",
    "all parts below -1e25",
)
LARGE_NAME = f"log-sum-exps of {LARGE} neither overflow nor vanish"


def _merge_cases(rng: np.random.Generator) -> list[Case]:
    """One part; more parts than a row has words; a number that is no power of two; groups; parts that saw
    nothing; large sums, of a number of parts that leaves lanes over.
    """
    odd = int(rng.choice([3, 5, 6, 7]))
    return [
        _merge_case(rng, "one head", 2, 1, 1, 16),
        _merge_case(rng, "one head", 1, 16 + odd, 1, 16),
        _merge_case(rng, GROUPS, 2, odd, 4, 16),
        _merge_case(rng, GROUPS, 3, 8, 2, 64),
        _merge_case(rng, EMPTY, 2, odd, 2, 16, empty=0.4),
        _merge_case(rng, NOTHING, 2, 4, 2, 16, empty=1.0),
        _merge_case(rng, LARGE, 2, odd, 2, 16, shift=200.0),
        _merge_case(rng, LARGE, 2, odd, 1, 16, shift=-200.0),
        _merge_case(rng, LOW, 1, odd, 1, 16, shift=-1e25, step=1e23),
        _merge_case(rng, f"{LARGE} in turn", 1, odd, 2, 16, shift=-200.0, in_turn=True),
    ]


def _merge_case(
    rng: np.random.Generator, label: str, pairs: int, parts: int, group: int, d: int, *,
    empty: float = 0.0, shift: float = 0.0, in_turn: bool = False, step: float = 0.0,
) -> Case:  # fmt: skip
    """`empty` is the share of parts that saw no key: if any did, the first, and never the second unless all
    did. `shift` is added to every log-sum-exp, or with `in_turn` added and subtracted part by part. With
    `step` each part lies so much below another: the first of them has all the weight.
    """
    O_parts = normal(rng, pairs, parts, group, d)
    L_parts = 2 * normal(rng, pairs, parts, group) + np.float32(shift)
    if in_turn:
        L_parts[:, 1::2] -= np.float32(2 * shift)
    L_parts -= np.float32(step) * rng.permutation(parts)[:, None]
    blind = rng.random(L_parts.shape) < empty
    if 0 < empty < 1:
        blind[:, 0], blind[:, 1] = True, False
    O_parts[blind], L_parts[blind] = 0, -np.inf
    name = f"{label}, pairs={pairs}, parts={parts}, group={group}, d={d}"
    rows = pairs * group
    budget = Ledger(
        reads={"O_parts": O_parts.size, "LSE_parts": L_parts.size}, writes={"O": rows * d, "LSE": rows}
    )
    inputs = {"O_parts": O_parts, "LSE_parts": L_parts}
    return Case(name, inputs, _merged(O_parts.astype(float), L_parts.astype(float)), budget=budget)


def _merged(O: NDArray[np.float64], L: NDArray[np.float64]) -> tuple[Any, Any]:
    """(14.6) in float64, over axis 1; nothing seen at all: 0 and -∞."""
    top = L.max(axis=1, keepdims=True)
    weights = np.exp(L - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=1)
    with np.errstate(divide="ignore"):
        together = top[:, 0] + np.log(total)
    return (weights[..., None] * O).sum(axis=1) / np.where(total == 0, 1.0, total)[..., None], together


def _ordinary(case: Case) -> bool:
    return not any(label in case.label for label in (LARGE, LOW, NOTHING))


MERGE = exercise(
    "14C",
    cases=_merge_cases,
    properties=(
        output("O of one head is right", "one head"),
        output("parts of one head are found between those of others", GROUPS),
        log_sums("LSE is the log-sum-exp of all parts", _ordinary),
        output("a part without a key has no weight", EMPTY),
        output("no part with a key: O = 0", NOTHING),
        log_sums("no part with a key: LSE = -∞", NOTHING),
        output(LARGE_NAME, LARGE, LARGE_TOLERANCE),
        output("parts that are all low are merged as others are", LOW, LARGE_TOLERANCE),
        log_sums("LSE is right there too", LARGE, LARGE_TOLERANCE),
        launches_kernels("O_parts", "LSE_parts"),
        words_exactly(),
    ),
    run_case=launch_in_place,
)


# ------------------------------------------------------------------ 14D packed texts
ALONE, SEVERAL, NONE, HEADS = "one text", "texts of several lengths", "empty texts", "several heads"


def _packed_cases(rng: np.random.Generator) -> list[Case]:
    """One text; several; empty ones first, last and between; heads side by side; BM and BN unequal; scores
    far from 0.
    """
    n = int(rng.integers(1, 15))
    return [
        _packed_case(rng, ALONE, [33], 1, 16, 16, 32),  # one key left over
        _packed_case(rng, SEVERAL, [40 + n, 3, 32, n], 1, 16, 32, 16),  # one text is a tile of queries
        _packed_case(rng, SEVERAL, [n, 48, 20], 1, 32, 16, 32),
        _packed_case(rng, NONE, [0, 20 + n, 0, 0, 9, 0], 1, 16, 16, 16),
        _packed_case(rng, f"{HEADS}, {SEVERAL}", [n, 33, 16], 3, 16, 16, 16),
        *(_packed_case(rng, FAR, [4, 18], 1, 16, 32, 16) for _ in range(2)),  # the same sizes, other numbers
    ]


def _packed_case(
    rng: np.random.Generator, label: str, lengths: list[int], H: int, d: int, BM: int, BN: int
) -> Case:
    tokens = sum(lengths)
    Q, K, V = normal(rng, 3, tokens, H, d)
    if label == FAR:
        Q, K = (x.swapaxes(0, 1) for x in far_apart(Q.swapaxes(0, 1), K.swapaxes(0, 1)))
    cu = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    O = np.zeros((tokens, H, d))
    for a, b in pairwise(cu):
        if a < b:
            O[a:b] = _heads(Q[a:b], K[a:b], V[a:b])
    pairs = tuple((n, n) for n in lengths)
    problem: KernelProblem = PackedSequences(tokens, tokens, d, H=H, H_kv=H, lengths=pairs)
    budget = attention_forward(problem, BM=BM, BN=BN)
    budget.reads["cu"] = budget.reads.pop("cu_q")
    del budget.reads["cu_k"], budget.writes["LSE"]
    inputs = {"Q": Q, "K": K, "V": V, "cu": cu, "longest": max(lengths), "BM": BM, "BN": BN}
    name = f"{label}, lengths={lengths}, H={H}, d={d}, BM={BM}, BN={BN}"
    return Case(name, inputs, O, budget=budget)


def _heads(Q: Single, K: Single, V: Single) -> NDArray[np.float64]:
    """Attention of every head of one text, (n, H, d), in float64."""
    q, k, v = (x.astype(np.float64).transpose(1, 0, 2) for x in (Q, K, V))
    return np.asarray(exact.attention(q, k, v)).transpose(1, 0, 2)


def _rows_exactly(trial: Trial) -> str | None:
    """Q, K, V and what is written to the word, `cu` at most; nothing else is read."""
    budget = budget_of(trial)
    for array in ("Q", "K", "V"):
        got, want = trial.ledger.reads.get(array, 0), budget.reads[array]
        if got != want:
            return f"{array}: yours reads {got:,} words, the texts' own rows are {want:,}"
    numbers, allowed = trial.ledger.reads.get("cu", 0), budget.reads["cu"]
    if numbers > allowed:
        return f"cu: yours reads {numbers:,} words, allowed are {allowed:,}"
    others = set(trial.ledger.reads) - {"Q", "K", "V", "cu"}
    if others:
        return f"yours also reads {', '.join(sorted(others))}"
    if trial.ledger.written != budget.written:
        return f"yours writes {trial.ledger.written:,} words, O has {budget.written:,}"
    return None


PACKED = exercise(
    "14D",
    cases=_packed_cases,
    properties=(
        values_in("one text is right", ALONE, TOLERANCE),
        values_in("texts of several lengths are right", SEVERAL, TOLERANCE),
        values_in("empty texts change nothing", NONE, TOLERANCE),
        values_in("heads that lie side by side are told apart", HEADS, TOLERANCE),
        values_in(FAR_NAME, FAR, LARGE_TOLERANCE),
        launches_kernels("Q", "K", "V"),
        idle(each("no word of padding or of a neighbour is read", _rows_exactly)),
        full_products(),
    ),
    run_case=launch_in_place,
)

EXERCISES = (STEP, ROOF, MERGE, PACKED)
