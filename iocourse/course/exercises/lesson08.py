"""Exercises of lesson 08: traffic of a mask, a schedule that skips empty blocks, a window, an order.

Part b (08b): a bound from the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import costs, exact, masks
from ...ledger import Ledger
from ..bound_ratio import attention_comparison
from ..exercise import Case, Property, Sample, Trial, exercise
from ..kinds.function import EVERY, function_exercise
from ..kinds.schedule import schedule_exercise
from ..properties import (
    BLOCK_SIZE,
    LARGE,
    Form,
    as_general,
    budget_of,
    every_input_loaded,
    idle,
    reads,
    same_answer_for,
    total_within,
    values,
    values_in,
    writes,
)
from ..trials.case_inputs import hard_scores, named

Array = np.ndarray
Tiles = NDArray[np.bool_]


# ------------------------------------------------------------------ 8A the traffic of a grid of blocks
EQUAL, RAGGED, UNLIKE, HIDDEN = "equal blocks", "ragged last block", "different blocks", "row of empty blocks"


LONG = 20_000_001  # rows of a block; float32 and small integer types cannot represent it


def _grid(rng: np.random.Generator, rows: int, columns: int) -> Tiles:
    """Return a grid with about half of the blocks visible, one or more per row, and at least one empty."""
    tiles = rng.random((rows, columns)) < 0.5
    tiles[np.arange(rows), rng.integers(columns, size=rows)] = True
    tiles[0, :2] = [True, False]
    return tiles


def grids(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield grids of equal blocks, a visible ragged last block, different blocks of queries and keys, a row
    of empty blocks, and blocks of millions of rows.
    """
    n, B, d = int(rng.integers(5, 9)), int(rng.integers(6, 12)), int(rng.integers(3, 9))
    equal, ragged = [B] * n, [B] * (n - 1) + [int(rng.integers(1, B - 1))]
    heights, widths = [3, B, 1, B + 4, 2], [B, 7, 3]
    square, corner, hidden = _grid(rng, n, n), _grid(rng, n, n), _grid(rng, n, n)
    corner[-1, -1], corner[-1, 0] = True, False
    hidden[int(rng.integers(1, n))] = False
    for tag, tiles, tall, wide in [
        (EQUAL, square, equal, equal),
        (RAGGED, corner, ragged, ragged),
        (UNLIKE, _grid(rng, 5, 3), heights, [*widths[:2], sum(heights) - sum(widths[:2])]),
        (UNLIKE, _grid(rng, 5, 3), heights, widths),  # fewer keys than queries
        (HIDDEN, hidden, equal, equal),
        ("all blocks visible", np.ones((n, n), dtype=bool), ragged, ragged),
        ("one block", np.ones((1, 1), dtype=bool), [B], [B]),
        ("long blocks", np.ones((2, 2), dtype=bool), [LONG] * 2, [LONG] * 2),
    ]:
        met = sum(wide[J] for _, J in np.argwhere(tiles))
        inputs = {"tiles": tiles, "heights": tall, "widths": wide, "d": d}
        sizes = {"tiles": "{}x{}".format(*tiles.shape), "d": d}
        yield Sample(sizes, inputs, {"words": 2 * d * (sum(tall) + met)}, tags=(tag,))


COUNT = function_exercise(
    "8A",
    "words",
    grids,
    {
        ("words", EQUAL): "is correct for equal blocks",
        ("words", RAGGED): "is correct for a smaller last block",
        ("words", UNLIKE): "is correct when queries and keys have different blocks",
        ("words", HIDDEN): "counts the queries and outputs of a row of empty blocks",
        ("words", EVERY): "is exact for every grid",
    },
)


# ------------------------------------------------------------------ 8B skipping empty blocks
CAUSAL, EMPTY = "causal", "rows that attend to no key"
NEEDED = "only where a block of queries needs it"
LARGE_VALUES = values_in(f"{LARGE} neither overflow nor vanish", LARGE)


def sparse_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield causal masks in two tilings, gaps, a window of tokens, rows without keys, and no mask.

    The window has a larger d than the others. The last samples are the first one with `hard_scores`. With d
    of at least 6, a key and its value do not fit together if blocks have one query and one key.
    """
    B, d = int(rng.integers(3, 6)), int(rng.integers(6, 10))
    N = 6 * B - 1
    QKV = rng.standard_normal((3, N, d))
    longer = rng.standard_normal((3, N, d + 1))
    diagonal, gaps = masks.causal(N, B), masks.random(N, B, 0.4, seed=int(rng.integers(10**6)))
    empty = np.array(gaps.tiles)
    empty[2:4] = False
    some = masks.BlockMask(N, empty, B, allow_empty=True)
    asked: list[tuple[str, np.ndarray, masks.Mask, int, int]] = [
        (CAUSAL, QKV, diagonal, B, B),
        (CAUSAL, QKV, diagonal, B + 2, 2),
        ("gaps", QKV, gaps, B, B),
        ("gaps", QKV, gaps, 2 * B, 3 * B),
        (EMPTY, QKV, some, B, 2),
        ("no mask", QKV, masks.Full(N), B + 1, B),
        ("gaps", QKV, gaps, 1, 1),
        ("window of tokens", longer, masks.Window(N, B + 1), B, B - 1),
        ("one query", QKV[:, :1], masks.causal(1, 2), 2, 2),
    ]
    found = [_sparse_sample(*one) for one in asked]
    yield from [*found, *hard_scores(rng, found[0])]


def _sparse_sample(words: str, QKV: np.ndarray, mask: masks.Mask, Br: int, Bc: int) -> Sample:
    _, N, d = QKV.shape
    tiles = {"Br": Br, "Bc": Bc}
    tag = words if words in (CAUSAL, EMPTY) else ""
    inputs = {**named("Q K V", QKV), "mask": mask, **tiles}
    return Sample({"N": N, "d": d, **tiles}, inputs, tags=(tag,), prefix=words)


def _masked_attention(Q: Array, K: Array, V: Array, mask: masks.Mask, **_: int) -> Array:
    return exact.attention(Q, K, V, mask=mask.additive())


def _blocks_from_row_0(N: int, d: int, *, mask: masks.Mask, Br: int, Bc: int) -> Ledger:
    """Return `costs.block_sparse` for blocks from row 0 on, as `m.blocks(N, Br)` yields them.

    The short block is the last one, even where it loads fewer keys as the first one. The footprint is
    enough for both.
    """
    form = costs.block_sparse(N, d, mask=mask, Br=Br, Bc=Bc)
    runs = [
        (min(start + Br, N) - start, stop - begin)
        for start in range(0, N, Br)
        for begin, stop in mask.columns(start, min(start + Br, N)) or [(0, 0)]
    ]
    keys = dict.fromkeys("KV", d * sum(length for _, length in runs))
    peaks = [r * (2 * d + 2 + min(length, Bc)) + min(length, Bc) * d for r, length in runs]
    return replace(form, reads=form.reads | keys, peak=max(form.peak, *peaks))


def _a_tile_of_scores(N: int, Br: int, Bc: int, **_: Any) -> int:
    """Return the allowance: one more tile of scores and four words per row."""
    return min(Br, N) * (min(Bc, N) + 4)


def _same_problem(trial: Trial) -> tuple[bytes, bytes]:
    inputs = trial.case.inputs
    return inputs["Q"].tobytes(), inputs["mask"].pairs().tobytes()


# ------------------------------------------------------------------ 8C a window
WIDE, ALONE = "the window holds every key", "w = 0"


def window_inputs(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield narrow and wide windows and w = 0; in some, d is so large that one key too many does not fit.

    With d of at least 7 and w = 0, a key that has left the window but still has a name does not fit.
    """
    N, w, d = int(rng.integers(20, 28)), int(rng.integers(2, 5)), int(rng.integers(7, 11))
    sizes = [(N, 16, w), (N, d, 1), (2 * w + 1, d, w), (2 * w, 20, w)]
    sizes += [(N, d, 0), (N, d, N + 3), (7, d, 6), (1, d, 2)]
    for n, e, v in sizes:
        yield _window_sample(rng, n, e, v)
    yield from hard_scores(rng, _window_sample(rng, N, 16, w))


def _window_sample(rng: np.random.Generator, N: int, d: int, w: int) -> Sample:
    tag = ALONE if w == 0 else WIDE if w >= N - 1 else ""
    inputs = {**named("Q K V", rng.standard_normal((3, N, d))), "w": w}
    return Sample({"N": N, "d": d, "w": w}, inputs, tags=(tag,))


def _attention_in_window(Q: Array, K: Array, V: Array, w: int) -> Array:
    return exact.attention(Q, K, V, mask=masks.Window(len(Q), w).additive())


def _row_of_scores(N: int, d: int, w: int) -> int:
    """Return the allowance: a row of d words, a row of scores, and four words."""
    return d + min(2 * w + 1, N) + 4


# ------------------------------------------------------------------ 8D an order of the tokens
D_OF_ORDER = 8  # head dimension for the comparison of orders; it scales all of them equally


def bucket_pairs(buckets: NDArray[Any], *, causal: bool) -> Tiles:
    """Return (N, N) pairs: a token attends to the tokens of its bucket; with `causal`, not to later ones."""
    same = buckets[:, None] == buckets[None, :]
    return np.asarray(same & np.tri(len(buckets), dtype=bool) if causal else same)


def _order_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of scattered buckets of complete tiles, with and without a causal mask.

    In the last case two buckets have equal sizes and equal sums of positions.
    """
    B = int(rng.integers(3, 6))
    sizes: list[tuple[list[int], bool]] = [
        ([1] * 6, False),
        ([3, 1, 2], False),
        ([4, 2, 3], True),
        ([1] * 7, True),
        ([5], True),
    ]
    found = [_scattered_case(rng, B, parts, causal) for parts, causal in sizes]
    return [*found, _order_case(np.resize([0, 1, 1, 0], 4 * B), B, causal=False)]


def _scattered_case(rng: np.random.Generator, B: int, parts: list[int], causal: bool) -> Case:
    buckets = np.repeat(np.arange(len(parts)), [B * part for part in parts])
    return _order_case(rng.permutation(buckets), B, causal=causal)


def _order_case(buckets: NDArray[Any], B: int, *, causal: bool) -> Case:
    pairs = bucket_pairs(buckets, causal=causal)
    together = np.argsort(buckets, kind="stable")
    kind = f"{CAUSAL}, " if causal else ""
    label = f"{kind}buckets of {', '.join(map(str, np.bincount(buckets)))}, tiles of {B}"
    budget = words_in_order(pairs, together, B)
    tags = frozenset({CAUSAL} if causal else ())
    return Case(label, {"pairs": pairs}, expected=(buckets, B), budget=budget, tags=tags)


def words_in_order(pairs: Tiles, order: NDArray[Any], B: int) -> Ledger:
    """Return the ledger of buffer reuse with tokens in this order, for B × B blocks with a visible pair."""
    mask = masks.covering_blocks(pairs[np.ix_(order, order)], B)
    return costs.block_sparse(mask.N, D_OF_ORDER, mask=mask, Br=B, Bc=1)


def _order(trial: Trial) -> NDArray[Any] | None:
    """Return the result if it contains each token once."""
    if isinstance(trial.value, (tuple, list)) and any(np.ndim(one) for one in trial.value):
        return None
    given = np.asarray(trial.value)
    N = len(trial.case.inputs["pairs"])
    whole = given.dtype.kind in "iu" and given.shape == (N,)
    return given if whole and (np.sort(given) == np.arange(N)).all() else None


AN_ORDER = Form("returns every token once", _order, "an arrangement of the tokens 0 … N - 1")


def _together(trial: Trial, order: NDArray[Any]) -> str | None:
    buckets = trial.case.expected[0][order]
    stretches, there_are = 1 + int((buckets[1:] != buckets[:-1]).sum()), int(buckets.max()) + 1
    return None if stretches == there_are else f"{there_are} buckets are in {stretches} pieces"


def _below_the_diagonal(trial: Trial, order: NDArray[Any]) -> str | None:
    above = int(np.triu(trial.case.inputs["pairs"][np.ix_(order, order)], k=1).sum())
    return (
        f"{above} pairs are above the diagonal: a token is before one that it attends to" if above else None
    )


def _few_words(trial: Trial, order: NDArray[Any]) -> str | None:
    got = words_in_order(trial.case.inputs["pairs"], order, trial.case.expected[1]).total
    least = budget_of(trial).total
    return None if got <= least else f"moves {got:,} words, but {least:,} are possible"


ORDER_PROPERTIES: Sequence[Property] = (
    AN_ORDER.kept(),
    AN_ORDER.must("the tokens of a bucket are adjacent", _together),
    idle(AN_ORDER.must("keeps all pairs of a causal mask below the diagonal", _below_the_diagonal, CAUSAL)),
    AN_ORDER.must("moves no more words than sorted buckets", _few_words),
)

ORDER = exercise(
    "8D",
    cases=_order_cases,
    properties=tuple(ORDER_PROPERTIES),
)


# ------------------------------------------------------------------ 8E a bound from the pairs
PAIRS_DECIDE, WORDS_DECIDE, UNASKED = "bound from pairs", "compulsory traffic", "some without a pair"


def pairs_and_memories(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield M from d² to all inputs, queries and keys without a visible pair, and a mask without pairs."""
    N, d = int(rng.integers(60, 80)), int(rng.integers(3, 7))
    half, few = rng.random((N, N)) < 0.5, np.eye(N, dtype=bool)
    no_queries, no_keys = half.copy(), half.copy()
    no_queries[: int(rng.integers(5, 15))] = False
    no_keys[:, : int(rng.integers(20, 30))] = False
    for pairs, M in [
        (half, d**2),
        (masks.Causal(N).pairs(), 2 * d**2),
        (few, d**2),
        (half, 2 * N * d),
        (half, 40 * N * d),
        (no_queries, 2 * N * d),
        (no_keys, 2 * N * d),
        (no_keys & no_queries, d**2),
        (np.zeros((N, N), dtype=bool), d**2),
    ]:
        rows, nnz = int(pairs.any(axis=0).sum() + pairs.any(axis=1).sum()), int(pairs.sum())
        once, by_pairs = 2 * d * rows, 4 * nnz * d * d / (M + d * d) - (M + d * d)
        tag = UNASKED if rows < 2 * N else PAIRS_DECIDE if by_pairs > once else WORDS_DECIDE
        inputs, sizes = {"pairs": pairs, "d": d, "M": M}, {"pairs": f"{nnz:,}", "N": N, "d": d, "M": M}
        yield Sample(sizes, inputs, {"words": max(once, by_pairs)}, tags=(tag,))


LEAST = function_exercise(
    "8E",
    "words",
    pairs_and_memories,
    {
        ("words", PAIRS_DECIDE): "is correct where the visible pairs determine the bound",
        ("words", WORDS_DECIDE): "is correct where the compulsory traffic determines the bound",
        ("words", UNASKED): "counts no query and no key without a visible pair",
        ("words", EVERY): "is correct for every mask",
    },
)

EXERCISES = (
    COUNT,
    schedule_exercise(
        "8B",
        sparse_inputs,
        equals=_masked_attention,
        moves=_blocks_from_row_0,
        spare=_a_tile_of_scores,
        values=(
            values(),
            values_in("a key after the query has weight 0", CAUSAL),
            values_in("a row that attends to no key has O = 0", EMPTY),
            same_answer_for(BLOCK_SIZE, _same_problem),
            LARGE_VALUES,
        ),
        loads=replace(every_input_loaded("Q"), name="loads every query"),
        words=(*reads(Q="once", K=NEEDED, V=NEEDED), *writes(O="once")),
        comparison=attention_comparison(
            "forward", N=8192, d=64, every_block=True, mask=masks.causal(8192, 512), Br=512, Bc=32
        ),
    ),
    schedule_exercise(
        "8C",
        window_inputs,
        equals=_attention_in_window,
        moves=costs.window,
        spare=_row_of_scores,
        values=(
            # the scale does not matter in a window of one key
            as_general(values_in("values equal exact attention", ""), lambda case: not case.tags),
            values_in("a window of one key gives its value", ALONE),
            values_in("a window over all keys gives full attention", WIDE),
            LARGE_VALUES,
        ),
        words=(
            *reads(K="once", V="once", Q="once"),
            *writes(O="once"),
        ),
        total=total_within("moves at most 4Nd words for every w"),
        comparison=attention_comparison("forward", N=256, d=64, every_block=True, w=8),
    ),
    ORDER,
    LEAST,
)
