"""Exercises of lessons 11 and 11b: the forward pass, its two loops, bands, many heads, and a repair."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import exact
from ...costs.kernels import KernelProblem, attention_forward
from ...ledger import Ledger
from ..exercise import Case, exercise
from ..properties import values_in
from ..trials.float32_inputs import (
    FAR,
    FAR_NAME,
    LARGE_TOLERANCE,
    TOLERANCE,
    Single,
    attention_of,
    far_apart,
    log_sums,
    near,
    normal,
    output,
)
from ..trials.kernel_launch import (
    full_products,
    launch_and_count_masks,
    launch_in_place,
    launches_kernels,
    masks_only,
    words_exactly,
)


def _one_tile(case: Case) -> bool:
    return bool(case.inputs["BN"] >= len(case.inputs["K"])) and near(case)


def _expected(
    Q: Single, K: Single, V: Single, low: int | None = None, high: int | None = None
) -> tuple[Any, Any]:
    """O and LSE where query i sees key j if low ≤ j - i ≤ high."""
    apart = np.arange(len(K))[None, :] - np.arange(len(Q))[:, None]
    above = apart >= (-len(Q) if low is None else low)
    return attention_of(Q, K, V, above & (apart <= (len(K) if high is None else high)))


def _words(Q: Single, K: Single, BM: int, BN: int, low: int | None = None, high: int | None = None) -> Ledger:
    return attention_forward(KernelProblem(len(Q), len(K), Q.shape[1], low, high), BM=BM, BN=BN)


def _sizes(case: dict[str, Any]) -> str:
    return f"N={len(case['Q'])}, d={case['Q'].shape[1]}, BM={case['BM']}, BN={case['BN']}"


FORWARD_PASS = (
    output("O equals exact attention", near),
    log_sums("LSE is the natural logarithm of the row sums", near),
    output(FAR_NAME, FAR, LARGE_TOLERANCE),
    launches_kernels("Q", "K", "V"),
    words_exactly(),
    full_products(),
)


# ------------------------------------------------------------------ 11A the inner loop
def _forward_cases(rng: np.random.Generator) -> list[Case]:
    """Ragged in rows, in keys, in both, and with one key left over; one tile of keys; tiles larger than N;
    scores far from 0; other numbers of the same sizes.
    """
    n = int(rng.integers(1, 15))
    small = (n, 16, 32, 16)
    shapes = [(64 + n, 16, 32, 16), (96, 32, 32, 32), (65, 64, 16, 32), (30, 16, 16, 32), small, small]
    found = [_forward_case(normal(rng, 3, N, d), BM, BN) for N, d, BM, BN in shapes]
    return [*found, _forward_case(_far(rng, 32 + n, 16), 32, 16, FAR)]


def _far(rng: np.random.Generator, N: int, d: int) -> Single:
    """Q, K, V (3, N, d) with scores far from 0."""
    Q, K, V = normal(rng, 3, N, d)
    return np.stack([*far_apart(Q, K), V])


def _forward_case(QKV: Single, BM: int, BN: int, label: str = "") -> Case:
    inputs = {**dict(zip("QKV", QKV, strict=True)), "BM": BM, "BN": BN}
    name = ", ".join(part for part in (_sizes(inputs), label) if part)
    return Case(name, inputs, _expected(*QKV), budget=_words(QKV[0], QKV[1], BM, BN))


FORWARD = exercise(
    "11A",
    cases=_forward_cases,
    properties=(
        output("O is right where one tile holds all keys", _one_tile),
        *FORWARD_PASS,
    ),
    run_case=launch_in_place,
)


# ------------------------------------------------------------------ 11B two loops
CAUSAL, FULL = "causal", "full"


def _loop_cases(rng: np.random.Generator) -> list[Case]:
    """Causal and not, ragged and not, with one key left over, tiles wide, square and high; many whole tiles
    in most; and a small causal one with scores far from 0.
    """
    n = int(rng.integers(1, 15))
    shapes = [
        (CAUSAL, 96 + n, 64, 16, 16),
        (FULL, 65, 64, 32, 16),
        (CAUSAL, 96, 64, 16, 32),
        (CAUSAL, 96 + n, 16, 32, 32),
        (CAUSAL, 65, 64, 32, 16),
        (FULL, 64, 16, 32, 32),
        *[(CAUSAL, n, 64, 16, 16)] * 2,  # the same sizes, other numbers
    ]
    found = [_loop_case(label, normal(rng, 3, N, d), BM, BN) for label, N, d, BM, BN in shapes]
    return [*found, _loop_case(FAR, _far(rng, 20, 64), 16, 16)]


def _loop_case(label: str, QKV: Single, BM: int, BN: int) -> Case:
    high = None if label == FULL else 0
    inputs = {**dict(zip("QKV", QKV, strict=True)), "causal": label != FULL, "BM": BM, "BN": BN}
    budget = _words(QKV[0], QKV[1], BM, BN, high=high)
    return Case(
        f"{label}, {_sizes(inputs)}", inputs, _expected(QKV[0], QKV[1], QKV[2], high=high), budget=budget
    )


def cut_tiles(case: Case) -> int:
    """Tiles that hold a pair that is seen and one that is not, or a key that does not exist."""
    N, BM, BN = len(case.inputs["Q"]), case.inputs["BM"], case.inputs["BN"]
    columns = -(-N // BN) * BN
    i, j = np.arange(N)[:, None], np.arange(columns)[None, :]
    seen = (j < N) & ((j <= i) | (not case.inputs["causal"]))
    tiles = [seen[a : a + BM, b : b + BN] for a in range(0, N, BM) for b in range(0, columns, BN)]
    return sum(bool(tile.any() and not tile.all()) for tile in tiles)


LOOPS = exercise(
    "11B",
    cases=_loop_cases,
    properties=(
        output("O is right without a causal mask", FULL),
        output("O is right under a causal mask", CAUSAL),
        log_sums("LSE is the natural logarithm of the row sums", near),
        output(FAR_NAME, FAR, LARGE_TOLERANCE),
        launches_kernels("Q", "K", "V"),
        words_exactly("tiles that no query sees are not loaded"),
        masks_only(cut_tiles),
        full_products(),
    ),
    run_case=launch_and_count_masks,
)


# ------------------------------------------------------------------ 11C rows that see nothing
NOTHING, LATE = "rows that see nothing", "rows that see their first key late"


def _band_cases(rng: np.random.Generator) -> list[Case]:
    """Rows that never see a key, rows that see none in their first tile, and bands that hide little. For a
    tile of queries just behind the last key that a band shows, first and last key are the same, within a
    tile; and one last tile has a single key. Rows far from 0 see their first key late.
    """
    n, w = int(rng.integers(2, 8)), int(rng.integers(3, 8))
    shapes = [
        (LATE, 48 + n, 48 + n, -w, 0, 32, 16),
        (LATE, 56, 56, -w, w, 16, 32),
        (NOTHING, 40 + n, 16 + n, -64, -24, 16, 16),  # causal, keys aligned to the right
        (NOTHING, 40, 16 - w, -w, 2, 16, 16),
        (NOTHING, 17, 48, -64, -16, 64, 16),  # the last query sees the first key, and that is all
        *[("few queries", n, 48, -64, 48 - n, 16, 16)] * 2,  # the same sizes, other numbers
        ("no mask at all", 33, 33, -64, 64, 16, 32),
        (FAR, 34, 34, -w, w, 16, 16),
    ]
    return [_band_case(rng, *shape) for shape in shapes]


def _band_case(
    rng: np.random.Generator, label: str, Nq: int, Nk: int, low: int, high: int, BM: int, BN: int
) -> Case:
    d = 32 if label == "no mask at all" else 16
    Q, K, V = normal(rng, Nq, d), normal(rng, Nk, d), normal(rng, Nk, d)
    Q, K = far_apart(Q, K) if label == FAR else (Q, K)
    inputs = {"Q": Q, "K": K, "V": V, "low": low, "high": high, "BM": BM, "BN": BN}
    name = f"{label}, Nq={Nq}, Nk={Nk}, low={low}, high={high}, BM={BM}, BN={BN}"
    return Case(name, inputs, _expected(Q, K, V, low, high), budget=_words(Q, K, BM, BN, low, high))


BAND = exercise(
    "11C",
    cases=_band_cases,
    properties=(
        output("O is right where every row sees a key in every tile", "no mask at all"),
        output("a row that sees its first key late is right", LATE),
        output("a row that sees nothing has O = 0", NOTHING),
        log_sums("a row that sees nothing has LSE = -∞", NOTHING),
        output("O equals exact attention", near),
        log_sums("LSE is the natural logarithm of the row sums", near),
        output(FAR_NAME, FAR, LARGE_TOLERANCE),
        words_exactly(),
        full_products(),
    ),
    run_case=launch_in_place,
)


# ------------------------------------------------------------------ 11D many heads
SHARED, LAYOUT = "keys shared", "other layouts"
PLAIN, APART = "contiguous", "room between rows"


def _head_cases(rng: np.random.Generator) -> list[Case]:
    """One head; several; K and V shared by groups, by all; batches; other layouts, one for each tensor;
    scores far from 0.
    """
    n = int(rng.integers(1, 15))
    shapes = [
        ("one head", 1, 1, 1, 40 + n),
        ("several heads", 2, 2, 2, 17),  # a key more than a tile has, and d of another size than it
        (SHARED, 1, 4, 2, 20),
        (SHARED, 2, 2, 1, 16 + n),
        (f"{LAYOUT}, {SHARED}", 2, 4, 2, 20),
        (FAR, 1, 1, 1, 18),
        (FAR, 1, 1, 1, 18),  # other numbers of the same sizes
    ]
    return [_head_case(rng, *shape) for shape in shapes]


def _head_case(rng: np.random.Generator, label: str, B: int, H: int, H_kv: int, N: int) -> Case:
    d, BM, BN = {"one head": (16, 16, 32), "several heads": (32, 16, 16)}.get(label, (16, 32, 16))
    layouts: tuple[str | int, ...] = (3, APART, 5) if LAYOUT in label else (PLAIN, PLAIN, PLAIN)
    Q, K, V = (
        _heads(rng, layout, B, heads, N, d) for layout, heads in zip(layouts, (H, H_kv, H_kv), strict=True)
    )
    Q, K = far_apart(Q, K) if label == FAR else (Q, K)
    k, v = (np.repeat(x, H // H_kv, axis=1).astype(np.float64) for x in (K, V))
    want = exact.attention(Q.astype(np.float64), k, v)
    budget = attention_forward(KernelProblem(N, N, d, B=B, H=H, H_kv=H_kv), BM=BM, BN=BN)
    budget.writes["LSE"] = 0  # this one keeps no log-sum-exp
    name = f"{label}, B={B}, H={H}, H_kv={H_kv}, N={N}"
    return Case(name, {"Q": Q, "K": K, "V": V, "BM": BM, "BN": BN}, want, budget=budget)


def _heads(rng: np.random.Generator, layout: str | int, B: int, H: int, N: int, d: int) -> Single:
    """(B, H, N, d): contiguous; with room between the rows; or heads behind tokens, cut out of rows so many
    times as long. No two of Q, K, V and an O made like Q then share a stride.
    """
    if isinstance(layout, str):
        return normal(rng, B, H, N, d if layout == PLAIN else d + 4)[..., :d]
    return normal(rng, B, N, H, layout * d)[..., :d].transpose(0, 2, 1, 3)


HEADS = exercise(
    "11D",
    cases=_head_cases,
    properties=(
        values_in("one head is right", "one head", TOLERANCE),
        values_in("each head meets its own keys", "several heads", TOLERANCE),
        values_in("heads that share keys are right", SHARED, TOLERANCE),
        values_in("strides are taken from the tensors", LAYOUT, TOLERANCE),
        values_in("O equals exact attention", near, TOLERANCE),
        values_in(FAR_NAME, FAR, LARGE_TOLERANCE),
        words_exactly(),
        full_products(),
    ),
    run_case=launch_in_place,
)

# ------------------------------------------------------------------ 11E a kernel to repair
ALONE = "one tile of keys"


def _repair_cases(rng: np.random.Generator) -> list[Case]:
    """All causal: one tile of keys; tiles wide, square and high, ragged and whole, with one key left over;
    other numbers of the same sizes; scores far from 0.
    """
    n = int(rng.integers(1, 15))
    shapes = [
        (n, 16, 32, 16, ALONE),
        (96 + n, 16, 32, 16, ""),
        (65, 32, 16, 32, ""),
        (64, 16, 32, 32, ""),
        *[(32 + n, 16, 16, 16, "")] * 2,
    ]
    found = [_repair_case(normal(rng, 3, N, d), BM, BN, label) for N, d, BM, BN, label in shapes]
    return [*found, _repair_case(_far(rng, 20, 16), 16, 16, FAR)]


def _repair_case(QKV: Single, BM: int, BN: int, label: str) -> Case:
    Q, K, V = QKV
    inputs = {"Q": Q, "K": K, "V": V, "BM": BM, "BN": BN}
    name = ", ".join(part for part in (_sizes(inputs), label) if part)
    return Case(name, inputs, _expected(Q, K, V, high=0), budget=_words(Q, K, BM, BN, high=0))


REPAIR = exercise(
    "11E",
    cases=_repair_cases,
    properties=(
        output("O is right where one tile holds all keys", ALONE),
        *FORWARD_PASS,
    ),
    run_case=launch_in_place,
)

EXERCISES = (FORWARD, LOOPS, BAND, HEADS, REPAIR)
