"""Exercises of lesson 14: bytes of a decode step, roofline, merging parts, packed sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ...costs.kernel_masks import PackedSequences
from ...costs.kernels import KernelProblem, attention_forward
from ...ledger import Ledger
from ..exercise import Better, Case, Property, Sample, Trial, WrongForm, run_function
from ..kinds.function import EVERY, function_exercise
from ..kinds.kernel import kernel_exercise
from ..properties import as_traffic, budget_of, difference, each, idle, several, single
from ..trials.float32_inputs import (
    FAR,
    FAR_NAME,
    LARGE_TOLERANCE,
    TOLERANCE,
    Single,
    far_apart,
    normal,
)
from ..trials.kernel_launch import ProgramsTrial, launch_and_count_programs, words_within
from .lesson14_tuning import EXERCISES as TUNING


def run_pair(student: Callable[..., Any], case: Case) -> Trial:
    """Run a function of 14A or 14B; an array of one axis counts as the tuple of its elements."""
    trial = run_function(student, case)
    row = isinstance(trial.value, np.ndarray) and trial.value.ndim == 1
    return replace(trial, value=tuple(trial.value)) if row else trial


# ------------------------------------------------------------------ 14A one token
ONE, BATCH, SHARED, SHORT = "one head", "sequences and heads", "keys shared", "a short cache"


def steps(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one head with 4 bytes per word, several sequences and heads with more bytes than a 32-bit integer
    can hold, heads that share keys, and a cache so short that queries and outputs matter.
    """
    # <!-- 4 as definition -->
    N, b, few = int(rng.integers(1000, 9000)), int(rng.integers(2, 6)), int(rng.integers(1, 30))
    for B, H, H_kv, n, d, itemsize in [
        (1, 1, 1, N, 64, 4),
        (b, 16, 16, 2**17 + N, 128, 2),
        (1, 32, 8, N, 128, 2),
        (b, 32, 1, few, 80, 4),
    ]:
        bandwidth = float(rng.integers(300, 8000))
        sizes = {
            "B": B,
            "H": H,
            "H_kv": H_kv,
            "N": n,
            "d": d,
            "itemsize": itemsize,
            "gbytes_per_s": bandwidth,
        }
        moved = _decode_bytes(B, H, H_kv, n, d, itemsize)
        results = {"bytes": moved, "microseconds": moved / bandwidth / 1e3}
        tag = SHORT if n < H else SHARED if H_kv < H else BATCH if H > 1 else ONE
        yield Sample(sizes, sizes, results, None, (tag,))


def _decode_bytes(B: int, H: int, H_kv: int, N: int, d: int, itemsize: int) -> int:
    """Return the bytes of K and V of all key heads and of one query and output per head, formula (14.7)."""
    return itemsize * (2 * B * H_kv * N * d + 2 * B * H * d)


def _in_microseconds(trial: Trial) -> str | None:
    """Compare the time with that of the student's own bytes, so that a fault in the bytes is one fault."""
    found = [single(one) for one in several(trial.value, 2, numbers=True) or ()]
    if not found or not all(isinstance(one, Real) for one in found):  # a Fraction is a number, too
        return WrongForm("expected 2 numbers: bytes, microseconds")
    moved, time = map(float, found)
    wanted = moved / trial.case.inputs["gbytes_per_s"] / 1e3
    return difference(time, wanted, wanted="expected for your bytes:")


STEP = function_exercise(
    "14A",
    "bytes microseconds",
    steps,
    {
        ("bytes", ONE): "the bytes of one head are correct",
        ("bytes", BATCH): "counts one cache per sequence and head",
        ("bytes", SHARED): "counts shared keys once",
        ("bytes", SHORT): "counts queries and outputs",
    },
    after=(idle(each("the time is in microseconds", _in_microseconds)),),
    run_case=run_pair,
)


# ------------------------------------------------------------------ 14B memory-bound or compute-bound
MEMORY, PRODUCTS = "memory", "products"
BOUND_BY = {MEMORY: "memory-bound", PRODUCTS: "compute-bound"}
STEP_TAG = "decode step"
FLOP = {"forward": lambda n: 4 * n**2, "backward": lambda n: 10 * n**2, "decode": lambda n: 4 * n}


def passes(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield each pass on both sides of the ridge point, for several chips, shared keys, and 2 or 4 bytes per
    word.
    """
    # <!-- 2, 4 as definition -->
    for pass_, memory_N, products_N in (("forward", 60, 6000), ("backward", 40, 5000), ("decode", 4000, 0)):
        peak = float(rng.integers(200, 1000))
        bandwidth = peak * float(rng.uniform(4, 7))  # ridge point at 140 to 250 FLOPs per byte
        extra = int(rng.integers(0, 40))
        yield _roof(pass_, 1, 8, 8, memory_N + extra, 128, peak, bandwidth)
        yield _roof(pass_, 2, 8, 2, memory_N // 2 + extra, 64, peak, bandwidth, itemsize=4)
        if products_N:
            yield _roof(pass_, 3, 16, 4, products_N + extra, 64, peak, bandwidth)
        else:  # a GPU with few FLOP/s, and one key head
            yield _roof(pass_, 3, 64, 1, memory_N, 128, peak / 50, bandwidth)


def _roof(
    pass_: str, B: int, H: int, H_kv: int, N: int, d: int, peak: float, bandwidth: float, *, itemsize: int = 2
) -> Sample:
    sizes = {"B": B, "H": H, "H_kv": H_kv, "N": N, "d": d, "itemsize": itemsize}
    multiplying = FLOP[pass_](N) * B * H * d / (peak * 1e6)
    moving = _least_bytes(pass_, sizes) / (bandwidth * 1e3)
    limit = MEMORY if moving > multiplying else PRODUCTS
    return Sample(
        sizes | {"peak": round(peak), "bandwidth": round(bandwidth)},
        {"pass_": pass_, **sizes, "tflops": peak, "gbytes_per_s": bandwidth},
        {"time": max(moving, multiplying), "limit": limit},
        None,
        (STEP_TAG if pass_ == "decode" else f"{BOUND_BY[limit]} {pass_} pass",),
    )


def _least_bytes(pass_: str, sizes: dict[str, int]) -> int:
    """Return the bytes of each array of the pass once, without row statistics."""
    B, H, H_kv, N, d, itemsize = sizes.values()
    if pass_ == "decode":
        return _decode_bytes(B, H, H_kv, N, d, itemsize)
    arrays = 2 if pass_ == "forward" else 4  # Q, O, and dO, dQ per query; the same number per key
    return itemsize * arrays * B * (H + H_kv) * N * d


def _limit(trial: Trial) -> str | None:
    found = several(trial.value, 2, numbers=True)
    if found is None:
        return WrongForm("expected 2 results: time, limit")
    got, want = found[1], trial.case.expected[1]
    return None if got == want else f"got {got!r}, expected {want!r}"


ROOF = function_exercise(
    "14B",
    "time limit",
    passes,
    {
        ("time", tag): f"is correct for a {tag}"
        for tag in (
            *(f"{bound} {pass_} pass" for pass_ in ("forward", "backward") for bound in BOUND_BY.values()),
            STEP_TAG,
        )
    },
    after=(each("returns the correct limit", _limit),),
    run_case=run_pair,
)


# ------------------------------------------------------------------ 14C a merge kernel
ALONE, GROUPS, EMPTY, NOTHING, LARGE, LOW = (
    "one head",
    "heads that share keys",
    "some parts without keys",
    "all parts without keys",
    "±200",
    "all parts below -1e25",
)


def merges(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one part, more parts than a row has words, numbers that are not powers of two, groups, parts
    without keys, and large log-sum-exps. Where all parts have no keys, or large log-sum-exps, there are
    masked lanes.
    """
    odd = int(rng.choice([3, 5, 6, 7]))
    yield _merge(rng, ALONE, 2, 1, 1, 16)
    yield _merge(rng, ALONE, 1, 16 + odd, 1, 16)
    yield _merge(rng, GROUPS, 2, odd, 4, 16)
    yield _merge(rng, GROUPS, 3, 8, 2, 64)
    yield _merge(rng, EMPTY, 2, odd, 2, 16, empty=0.4)
    yield _merge(rng, NOTHING, 2, odd, 2, 16, empty=1.0)
    yield _merge(rng, LARGE, 2, odd, 2, 16, shift=200.0)
    yield _merge(rng, LARGE, 2, odd, 1, 16, shift=-200.0)
    yield _merge(rng, LOW, 1, odd, 1, 16, shift=-1e25, step=1e23)
    yield _merge(rng, LARGE, 1, odd, 2, 16, shift=-200.0, in_turn=True)


def _merge(
    rng: np.random.Generator, difficulty: str, pairs: int, parts: int, group: int, d: int, *,
    empty: float = 0.0, shift: float = 0.0, in_turn: bool = False, step: float = 0.0,
) -> Sample:  # fmt: skip
    """Return a sample of partial results.

    `empty` is the fraction of the parts without keys; the first part is one of them, the second only if all
    are. `shift` is added to every log-sum-exp, or with `in_turn` alternately added and subtracted. `step` is
    a distance of the log-sum-exps, so that one part has all the weight.
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
    rows = pairs * group
    inputs = {"O_parts": O_parts, "LSE_parts": L_parts}
    return Sample(
        {"pairs": pairs, "parts": parts, "group": group, "d": d},
        inputs,
        dict(zip(("O", "LSE"), _merged(O_parts.astype(float), L_parts.astype(float)), strict=True)),
        Ledger(reads={name: x.size for name, x in inputs.items()}, writes={"O": rows * d, "LSE": rows}),
        (difficulty,),
    )


def _merged(O: NDArray[np.float64], L: NDArray[np.float64]) -> tuple[Any, Any]:
    """Return (14.5) in float64 over axis 1; 0 and -∞ if no part has a key."""
    top = L.max(axis=1, keepdims=True)
    weights = np.exp(L - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=1)
    with np.errstate(divide="ignore"):
        together = top[:, 0] + np.log(total)
    return (weights[..., None] * O).sum(axis=1) / np.where(total == 0, 1.0, total)[..., None], together


# Zeros, or -∞ everywhere, have these properties too.
TRIVIAL = "O is 0 when no part has a key", "LSE is -∞ when no part has a key"
MERGE = kernel_exercise(
    "14C",
    "O LSE",
    merges,
    {
        ("O", ALONE): "O is correct for one head",
        ("O", GROUPS): "finds the parts of a head between those of other heads",
        ("LSE", EVERY): "LSE is the log-sum-exp of all parts",
        ("O", EMPTY): "a part without keys has weight 0",
        ("O", NOTHING): TRIVIAL[0],
        ("LSE", NOTHING): TRIVIAL[1],
        ("O", LARGE): f"log-sum-exps of {LARGE} neither overflow nor vanish",
        ("O", LOW): "O is correct when all log-sum-exps are very negative",
        ("LSE", LARGE): "LSE is correct for log-sum-exps of ±200",
    },
    loads="LSE_parts",  # rows of O_parts of a part without keys need not be read
    words=words_within("moves no more words than the closed form", "the words of all parts"),
    products=False,
    looser={LARGE: LARGE_TOLERANCE, LOW: LARGE_TOLERANCE, NOTHING: TOLERANCE},
)
MERGE = replace(MERGE, properties=tuple(idle(p) if p.name in TRIVIAL else p for p in MERGE.properties))


# ------------------------------------------------------------------ 14D packed sequences
SINGLE_TEXT, SEVERAL, NONE, HEADS = "one sequence", "several lengths", "empty sequences", "several heads"


def packed(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one sequence, several, empty ones first, last and between, adjacent heads, unequal BM and BN, and
    scores far from 0.
    """
    n = int(rng.integers(1, 15))
    for lengths, H, d, BM, BN in [
        ([33], 1, 16, 16, 32),  # one key left over
        ([40 + n, 3, 32, n], 1, 16, 32, 16),  # one sequence is a tile of queries
        ([n, 48, 20], 1, 32, 16, 32),
        ([0, 20 + n, 0, 0, 9, 0], 1, 16, 16, 16),
        ([n, 33, 16], 3, 16, 16, 16),
    ]:
        difficulty = HEADS if H > 1 else NONE if 0 in lengths else SEVERAL if lengths[1:] else SINGLE_TEXT
        yield _packed(rng, difficulty, lengths, H, d, BM, BN)
    for _ in range(2):  # the same sizes, other numbers
        yield _packed(rng, FAR, [4, 18], 1, 16, 32, 16)


def _packed(
    rng: np.random.Generator, difficulty: str, lengths: list[int], H: int, d: int, BM: int, BN: int
) -> Sample:
    tokens = sum(lengths)
    Q, K, V = normal(rng, 3, tokens, H, d)
    if difficulty == FAR:
        Q, K = (x.swapaxes(0, 1) for x in far_apart(Q.swapaxes(0, 1), K.swapaxes(0, 1)))
    cu = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    O = np.zeros((tokens, H, d))
    for a, b in pairwise(cu):
        if a < b:
            O[a:b] = _heads(Q[a:b], K[a:b], V[a:b])
    pairs = tuple((n, n) for n in lengths)
    problem: KernelProblem = PackedSequences(tokens, tokens, d, H=H, H_kv=H, lengths=pairs)
    words = attention_forward(problem, BM=BM, BN=BN)
    words.reads["cu"] = words.reads.pop("cu_q")
    del words.reads["cu_k"], words.writes["LSE"]
    tile = {"BM": BM, "BN": BN}
    return Sample(
        {"lengths": lengths, "H": H, "d": d, **tile},
        {"Q": Q, "K": K, "V": V, "cu": cu, "longest": max(lengths), **tile},
        {"O": O},
        words,
        (difficulty,),
    )


def _heads(Q: Single, K: Single, V: Single) -> NDArray[np.float64]:
    """Return the attention of every head of one sequence, (n, H, d), in float64."""
    q, k, v = (x.astype(np.float64).transpose(1, 0, 2) for x in (Q, K, V))
    return np.asarray(exact.attention(q, k, v)).transpose(1, 0, 2)


def _rows_exactly(trial: Trial) -> str | None:
    """Compare the words of Q, K, V and O exactly and those of `cu` as a limit; nothing else may be read."""
    budget = budget_of(trial)
    for array in ("Q", "K", "V"):
        got, want = trial.ledger.reads.get(array, 0), budget.reads[array]
        if got != want:
            return f"reads {got:,} words of {array}, expected {want:,}: the rows of the sequences"
    numbers, allowed = trial.ledger.reads.get("cu", 0), budget.reads["cu"]
    if numbers > allowed:
        return f"reads {numbers:,} words of cu, expected at most {allowed:,}"
    others = set(trial.ledger.reads) - {"Q", "K", "V", "cu"}
    if others:
        return f"also reads {', '.join(sorted(others))}"
    if trial.ledger.written != budget.written:
        return f"writes {trial.ledger.written:,} words, expected {budget.written:,}"
    return None


def _rows_in_order() -> Property:
    """Return the property of `_rows_exactly`, with a remark if programs of one head do not start together."""
    name = "moves exactly the words of the sequences, and no padding"

    def judge(trials: Sequence[Trial]) -> str | None:
        complaint = each(name, _rows_exactly).judge(trials)
        if complaint is None and any(map(_scattered, trials)):
            return Better(
                "but the programs of one head and sequence do not start one after the other, so the keys "
                "that they share may be evicted from L2 between two of them (lesson 14c)"
            )
        return complaint

    return as_traffic(Property(name, judge))


def _scattered(trial: Trial) -> bool:
    """Return True if a program of another head or sequence starts between two of one head and sequence."""
    stores = np.array(trial.stores if isinstance(trial, ProgramsTrial) else (), dtype=np.int64)
    if not stores.size:
        return False
    _, H, d = trial.case.inputs["Q"].shape
    words = (stores - stores.min()) // 4  # the first word of O is stored by some program
    sequence = np.searchsorted(trial.case.inputs["cu"], words // (H * d), side="right")
    order = [one for one, _ in groupby(zip(sequence.tolist(), (words // d % H).tolist(), strict=True))]
    return len(set(order)) < len(order)


PACKED = kernel_exercise(
    "14D",
    "O",
    packed,
    {
        ("O", SINGLE_TEXT): "is correct for one sequence",
        ("O", SEVERAL): "is correct for sequences of different lengths",
        ("O", NONE): "empty sequences change nothing",
        ("O", HEADS): "is correct for heads that are adjacent in memory",
        ("O", FAR): FAR_NAME,
    },
    loads="Q K V",
    words=_rows_in_order(),
    run_case=launch_and_count_programs,
)

EXERCISES = (*TUNING, MERGE, PACKED, STEP, ROOF)  # in the order of the lessons
