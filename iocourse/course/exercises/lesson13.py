"""Exercises of lesson 13: a mask as lists, a kernel that loops over a list, the tile with the fewest bytes,
outputs in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.closed_form import ceil_div
from ...costs.kernel_masks import BlockLists
from ...costs.kernels import KernelProblem, attention_forward, sliced_forward
from ..exercise import Better, Case, Property, Sample, Trial, WrongForm, exercise
from ..guard import library_solution
from ..kinds.kernel import ATTENTION, kernel_exercise
from ..properties import Form, as_traffic, budget_of, difference, each, idle, is_number, only_where, several
from ..trials.float32_inputs import FAR, attention_of, far_apart, normal
from ..trials.kernel_launch import (
    KernelTrial,
    heavy_first,
    launch_and_count_programs_and_masks,
    masks_only,
    words_exactly,
)

Array = NDArray[Any]
Lists = tuple[Array, Array, Array, Array, Array]
WIDE = {"LSE", "O_sum"}  # float32 whatever the inputs are


# ------------------------------------------------------------------ 13A the tile with the fewest bytes
WHOLE, SLICES, UNFIT = "complete rows are best", "slices are best", "the best does not fit"
ROUNDED = f"{WHOLE}, because ragged tiles count fully"
TileSizes = dict[str, Any]


def bytes_of(tile: TileSizes, N: int, d: int, itemsize: int) -> int:
    """Return the bytes that the forward pass of one head moves with this tile (sliced if it has BD)."""
    problem = KernelProblem(N, N, d)
    form = attention_forward if tile["BD"] is None else sliced_forward
    ledger = form(problem, BM=tile["BM"], BN=tile["BN"])
    counts = [*ledger.reads.items(), *ledger.writes.items()]
    return sum(words * (4 if name in WIDE else itemsize) for name, words in counts)


def fits(tile: TileSizes, limit: int) -> bool:
    """Return whether nothing is spilled and the tile fits in shared memory."""
    return bool(tile["spill_bytes"] == 0 and tile["shared_bytes"] <= limit)


def _tile(BM: int, BN: int, BD: int | None = None, spilled: int = 0, shared: int = 40_000) -> TileSizes:
    return {"BM": BM, "BN": BN, "BD": BD, "spill_bytes": spilled, "shared_bytes": shared}


def _choice_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases in which complete rows or slices are best, in 16 and 32 bits, with ragged N.

    In some, the tile with the fewest bytes spills or does not fit; in some, ragged tiles decide the choice.
    """
    limit = int(rng.integers(50, 200)) * 1024
    n, d = int(rng.integers(1, 60)), int(rng.choice([40, 96, 200]))
    slices = [_tile(64, 64, 16), _tile(32, 128, 32), _tile(128, 128, 64, spilled=8)]
    small, large = [_tile(16, 64), _tile(16, 16)], [_tile(64, 32), _tile(32, 64)]
    lost = [_tile(128, 128, spilled=int(rng.integers(4, 900))), _tile(128, 32, shared=limit + 1)]
    exactly = [_tile(32, 16), _tile(64, 16, shared=limit)]
    asked = [
        (WHOLE, [*large, *slices], 1024, d, 2),
        (SLICES, [*small, *slices], 1024, d, 2),
        (WHOLE, [*slices, *large], 1000 + n, d, 4),
        (SLICES, [*slices[:2], *small], 700 + n, d + n, 4),
        (f"{UNFIT}, {WHOLE}", [*lost, *slices, *large], 500 + n, d, 2),
        (f"{UNFIT}, {SLICES}", [*lost, *small, *slices], 500 + n, d + 1, 2),
        (f"{UNFIT}, {WHOLE}", [*lost, *exactly], 900 + n, d, 2),
        (f"keys within one tile, {SLICES}", [_tile(32, 16), _tile(64, 64, 16)], 32 + n // 2, d, 2),
        (ROUNDED, [_tile(32, 32), _tile(64, 128, 32), _tile(64, 64, 32)], 575, 40, 2),
        (ROUNDED, [_tile(128, 64, 16), _tile(32, 32)], 130, 200, 2),
        ("one tile of queries", [_tile(64, 64, 16), _tile(16, 16), _tile(64, 32, spilled=16)], 1 + n, d, 2),
    ]
    return [_choice_case(label, tiles, limit, N, width, size) for label, tiles, N, width, size in asked]


def _choice_case(label: str, tiles: list[TileSizes], limit: int, N: int, d: int, itemsize: int) -> Case:
    least = min(bytes_of(tile, N, d, itemsize) for tile in tiles if fits(tile, limit))
    inputs = {"tiles": tiles, "limit": limit, "N": N, "d": d, "itemsize": itemsize}
    return Case(f"{label}, N={N}, d={d}, itemsize={itemsize}", inputs, least)


def _chosen(trial: Trial) -> tuple[TileSizes, float] | None:
    found = several(trial.value, 2)
    return (found[0], found[1]) if found and found[0] in trial.case.inputs["tiles"] else None


A_CHOICE = Form("", _chosen, "one of the tiles, unchanged, and its bytes")


def _must_fit(trial: Trial, choice: tuple[TileSizes, float]) -> str | None:
    tile, limit = choice[0], trial.case.inputs["limit"]
    return None if fits(tile, limit) else f"{tile} spills or does not fit in {limit:,} bytes of shared memory"


def _bytes_at(trial: Trial, tile: TileSizes) -> int:
    N, d, itemsize = (trial.case.inputs[name] for name in ("N", "d", "itemsize"))
    return bytes_of(tile, N, d, itemsize)


def _right_bytes(slices: bool) -> Callable[[Trial, tuple[TileSizes, float]], str | None]:
    def judge(trial: Trial, choice: tuple[TileSizes, float]) -> str | None:
        tile, moved = choice
        if (tile["BD"] is not None) != slices:
            return None
        right = _bytes_at(trial, tile)
        complaint = difference(moved, right, 0.0)
        return f"got {moved:,}, expected {right:,}" if complaint and is_number(moved) else complaint

    return judge


def _least(trial: Trial, choice: tuple[TileSizes, float]) -> str | None:
    got, least = _bytes_at(trial, choice[0]), trial.case.expected
    return None if got <= least else f"the tile moves {got:,} bytes, but another one moves {least:,}"


CHOICE = exercise(
    "13A",
    cases=_choice_cases,
    properties=(
        A_CHOICE.must("returns no tile that spills or does not fit", _must_fit),
        A_CHOICE.must("the bytes of complete rows are exact", _right_bytes(slices=False)),
        A_CHOICE.must("the bytes of slices are exact", _right_bytes(slices=True)),
        A_CHOICE.must("returns the tile that moves the fewest bytes", _least),
    ),
)


# ------------------------------------------------------------------ 13B a mask as lists
LATE_QUERIES, LATE_KEYS = "queries end within a tile", "keys end within a tile"
PARTS = ("spans", "entries", "slots", "patterns", "order")


def _in_tiles(pairs: Array, BM: int, BN: int, beyond: bool) -> Array:
    """Return the mask in tiles (rows, columns, BM, BN).

    Pairs of out-of-bounds queries have the value `beyond`; those of out-of-bounds keys are False.
    """
    rows, columns = ceil_div(pairs.shape[0], BM), ceil_div(pairs.shape[1], BN)
    full = np.zeros((rows * BM, columns * BN), bool)
    full[: len(pairs), : pairs.shape[1]] = pairs
    full[len(pairs) :] = beyond
    return full.reshape(rows, BM, columns, BN).transpose(0, 2, 1, 3)


@library_solution
def lists_of(pairs: Array, BM: int, BN: int) -> Lists:
    """Return spans, entries, slots, patterns and order of a mask (Nq, Nk), as defined in lesson 13."""
    tiles = _in_tiles(pairs, BM, BN, beyond=False)
    hit = np.asarray(tiles.any((2, 3)))
    whole = np.asarray(_in_tiles(pairs, BM, BN, beyond=True).all((2, 3)))
    spans: list[Any] = []
    entries: list[Any] = []
    slots: list[Any] = []
    patterns: list[Any] = []
    for row in range(len(tiles)):
        plain, cut = np.flatnonzero(hit[row] & whole[row]), np.flatnonzero(hit[row] & ~whole[row])
        spans.append([len(entries), len(entries) + len(plain), len(entries) + len(plain) + len(cut)])
        entries += [*plain, *cut]
        slots += [0] * len(plain) + list(range(len(patterns), len(patterns) + len(cut)))
        patterns += [tiles[row, column] for column in cut]
    order = np.argsort(-hit.sum(1), kind="stable")
    made = np.array(patterns, np.uint8).reshape(-1, BM, BN)
    numbers = (np.array(part, np.int32) for part in (spans, entries, slots))
    return *numbers, made, order.astype(np.int32)  # type: ignore[return-value]


def _some_blocks(rng: np.random.Generator, Nq: int, Nk: int, block: int) -> Array:
    """Return pairs with about half of the blocks visible: the first column (except in the empty second row),
    and a gap in the first row.
    """
    blocks = rng.random((ceil_div(Nq, block), ceil_div(Nk, block))) < 0.5
    blocks[:, 0] = True
    blocks[0, 1:3] = [False, True][: blocks.shape[1] - 1]
    blocks[1 % len(blocks)] = False
    return np.repeat(np.repeat(blocks, block, 0), block, 1)[:Nq, :Nk]


def _causal(n: int) -> Array:
    return np.tri(n, dtype=bool)


def _lists_cases(rng: np.random.Generator) -> list[Case]:
    """Return masks of blocks of the size of a tile, smaller and larger, causal, single pairs, and ragged."""
    n = int(rng.integers(1, 15))
    some = _some_blocks(rng, 96, 96, 16)
    single = rng.random((64, 64)) < 0.002
    single[5, 40] = True
    asked = [
        ("blocks of a tile", some, 16, 16),
        ("blocks smaller than a tile", some, 32, 16),
        ("blocks smaller than a tile", some, 16, 48),
        ("causal", _causal(64), 16, 32),
        ("single pairs", single, 16, 16),
        ("all pairs visible", np.ones((48, 64), bool), 16, 32),
        ("no pair visible", np.zeros((32, 32), bool), 16, 16),
        (LATE_QUERIES, np.ones((32 + n, 64), bool), 16, 32),
        (LATE_QUERIES, _some_blocks(rng, 48 + n, 64, 16), 32, 16),
        (LATE_KEYS, np.ones((48, 32 + n), bool), 16, 16),
        (LATE_KEYS, _some_blocks(rng, 64, 64 + n, 16), 16, 32),
        (f"{LATE_QUERIES}, {LATE_KEYS}", _causal(80 + n), 32, 32),
    ]
    return [_lists_case(*one) for one in asked]


def _lists_case(label: str, pairs: Array, BM: int, BN: int) -> Case:
    inputs = {"pairs": pairs, "BM": BM, "BN": BN}
    size = f"{pairs.shape[0]} queries, {pairs.shape[1]} keys, BM={BM}, BN={BN}"
    late = {LATE_QUERIES: pairs.shape[0] % BM, LATE_KEYS: pairs.shape[1] % BN}
    tags = frozenset(tag for tag, over in late.items() if over)
    return Case(", ".join(filter(None, (label, size))), inputs, lists_of(pairs, BM, BN), tags=tags)


def _shapes(trial: Trial) -> str | None:
    """Return a message about the first part with a wrong length or type, or None."""
    if not isinstance(trial.value, (tuple, list)) or len(trial.value) != len(PARTS):
        return WrongForm(f"expected a tuple of five results: {', '.join(PARTS)}")
    for name, part, want in zip(PARTS, trial.value, trial.case.expected, strict=True):
        try:
            got = np.asarray(part)
        except ValueError:
            return WrongForm(f"{name} has parts of different shapes, expected shape {want.shape}")
        shape, kind = got.shape, got.dtype
        other_number = name == "patterns" and shape[1:] == want.shape[1:]
        if shape != want.shape and not other_number and not (want.size == 0 and got.size == 0):
            return WrongForm(f"{name} has shape {shape}, expected {want.shape}")
        if kind.kind not in "iub" and got.size:
            return WrongForm(f"{name} has dtype {kind}, expected integers")
        if name != "patterns" and kind.itemsize < 4 and got.size:
            return WrongForm(f"{name} has dtype {kind}, which is too small for long lists; use int32")
        if name == "patterns" and got.size and got.max() > 1:
            return WrongForm(f"patterns has the value {got.max()}, expected 0 and 1")
    return None


def _lengths(trials: Sequence[Trial]) -> str | None:
    """Return `_shapes` of the first wrong case, or a message about patterns that no partial block has, or a
    remark if equal partial blocks share a pattern.
    """
    complaint = each("", lambda trial: _shapes(trial) or _unused_patterns(trial)).judge(trials)
    if complaint is None and any(len(t.value[3]) < len(t.case.expected[3]) for t in trials):
        return Better("fewer patterns than partial blocks: equal blocks share one")
    return complaint


def _unused_patterns(trial: Trial) -> str | None:
    """Test that there are no more patterns than partial blocks in the lists."""
    spans, patterns = np.asarray(trial.value[0]), np.asarray(trial.value[3])
    partial = int((spans[:, 2] - spans[:, 1]).sum())
    if len(patterns) <= partial or len(patterns) <= len(trial.case.expected[3]):
        return None
    return f"patterns has shape {patterns.shape}, but your lists have {partial} partial blocks"


def _of_the_lists(name: str, judge: Callable[[Trial], str | None], label: str = "") -> Property:
    """Return a property of lists with the correct shapes, in the cases with this tag."""
    return only_where(name, label, lambda trial: _shapes(trial) or judge(trial))


def _rebuilt(trial: Trial) -> Array:
    """Return the pairs (rows · BM, columns · BN) that a kernel would use, including out-of-bounds keys."""
    spans, entries, slots, patterns, _ = (np.asarray(part) for part in trial.value)
    pairs, BM, BN = (trial.case.inputs[name] for name in ("pairs", "BM", "BN"))
    seen = np.zeros((ceil_div(pairs.shape[0], BM), BM, ceil_div(pairs.shape[1], BN), BN), bool)
    for row, (begin, cut, end) in enumerate(spans):
        for step in range(begin, end):
            seen[row, :, entries[step]] |= True if step < cut else patterns[slots[step]] != 0
    return seen.reshape(seen.shape[0] * BM, -1)


def _beyond(trial: Trial) -> str | None:
    """Return a message about the first number in the lists that is out of bounds, or None."""
    spans, entries, slots, patterns, _ = (np.asarray(part) for part in trial.value)
    columns = ceil_div(trial.case.inputs["pairs"].shape[1], trial.case.inputs["BN"])
    for row, (begin, cut, end) in enumerate(spans):
        if not (begin == cut == end or 0 <= begin <= cut <= end <= len(entries)):
            return f"row {row} has the span {begin}, {cut}, {end}, but there are {len(entries)} entries"
        for name, numbers, first, limit, there in (
            ("entries", entries, begin, columns, "columns of blocks"),
            ("slots", slots, cut, len(patterns), "patterns"),
        ):
            for step in range(first, end):
                if not 0 <= numbers[step] < limit:
                    return f"{name}[{step}] is {numbers[step]}, but there are {limit} {there}"
    return None


def _same_pairs(trial: Trial) -> str | None:
    """Test that all numbers are in bounds and that the lists have the pairs of the mask."""
    if beyond := _beyond(trial):
        return beyond
    pairs = trial.case.inputs["pairs"]
    seen = _rebuilt(trial)[: len(pairs)]
    want = np.zeros_like(seen)
    want[:, : pairs.shape[1]] = pairs
    wrong = np.argwhere(seen != want)
    if not len(wrong):
        return None
    i, j = wrong[0]
    there = "" if j < pairs.shape[1] else ", which is out of bounds"
    verb = "attends to" if seen[i, j] else "does not attend to"
    said = f"{len(wrong)} pairs differ: in your lists, query {i} {verb} key {j}{there}"
    return f"{said} ({_block_of(trial, i, j)})"


def _block_of(trial: Trial, i: int, j: int) -> str:
    """Return a clause on how the lists have the block of this pair."""
    spans, entries, slots = (np.asarray(part) for part in trial.value[:3])
    row, column = i // trial.case.inputs["BM"], j // trial.case.inputs["BN"]
    begin, cut, end = spans[row]
    step = next((step for step in range(begin, end) if entries[step] == column), None)
    kind = "not listed" if step is None else "full" if step < cut else f"partial, with pattern {slots[step]}"
    return f"row {row}, column {column} of blocks: {kind}"


def _full_first(trial: Trial) -> str | None:
    """Test that the first entries of each row are its full blocks, and that no other entry is full."""
    spans, entries = (np.asarray(part) for part in trial.value[:2])
    right, listed = trial.case.expected[:2]
    for row, ((begin, cut, end), (first, last, _)) in enumerate(zip(spans, right, strict=True)):
        full = {*listed[first:last].tolist()}
        if late := full.intersection(entries[cut:end].tolist()):
            return f"row {row} of blocks has the full block in column {min(late)} among the partial ones"
        if other := {*entries[begin:cut].tolist()} - full:
            return f"row {row} of blocks has column {min(other)} among the full blocks, but it is not full"
    return None


def _cut_where_needed(trial: Trial) -> str | None:
    """Test that each row of blocks has the correct numbers of full and partial entries."""
    got, want = (np.diff(np.asarray(spans), axis=1) for spans in (trial.value[0], trial.case.expected[0]))
    wrong = np.flatnonzero((got != want).any(axis=1))
    if not len(wrong):
        return None
    row = wrong[0]
    return (
        f"row {row} of blocks has {got[row, 0]} full and {got[row, 1]} partial ones, "
        f"expected {want[row, 0]} and {want[row, 1]}"
    )


def _heavy_first(trial: Trial) -> str | None:
    spans, order = np.asarray(trial.value[0]), np.asarray(trial.value[4])
    if sorted(order.tolist()) != list(range(len(spans))):
        return f"order is {order.tolist()}, expected each of the {len(spans)} rows once"
    work = (np.asarray(trial.case.expected[0])[:, 2] - np.asarray(trial.case.expected[0])[:, 0])[order]
    return None if (np.diff(work) <= 0).all() else f"in this order the rows have {work.tolist()} blocks"


LISTS = exercise(
    "13B",
    cases=_lists_cases,
    properties=(
        Property("the five parts have the lengths that the mask requires", _lengths, idle=True),
        _of_the_lists("full blocks are first in their row and have no pattern", _full_first),
        _of_the_lists("lists exactly the visible pairs", _same_pairs),
        _of_the_lists("out-of-bounds queries do not make a block partial", _cut_where_needed, LATE_QUERIES),
        _of_the_lists("out-of-bounds keys make a block partial", _same_pairs, LATE_KEYS),
        _of_the_lists("rows with more blocks are first in the order", _heavy_first),
    ),
)


# ------------------------------------------------------------------ 13C a loop over a list
PLAIN, CUT, EMPTY = "full blocks only", "partial blocks", "rows that attend to no key"
CAUSAL = "causal mask"


def listed(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield full and partial blocks, rows and columns without pairs, ragged queries and keys, tiles that are
    not square, and scores far from 0. d differs from BN, because masked tiles are counted by size.
    """
    n = int(rng.integers(1, 15))
    holes = _some_blocks(rng, 64 + n, 64 + n, 16)
    blind = holes.copy()
    blind[36:46], blind[:, 40:44] = False, False  # rows without keys in partial blocks
    gaps = _some_blocks(rng, 64, 64, 16)
    gaps[16:32] = gaps[:16]  # every row has a key
    late = np.zeros((48, 48 + n), bool)
    late[:, 40:] = True
    late[3:9, 2] = True  # most rows have no key in a partial block and their first key in a later one
    for pairs, BM, BN, d in [
        (np.ones((32, 48), bool), 16, 16, 32),
        (gaps, 16, 16, 32),
        (_causal(64 + n), 32, 16, 32),
        (blind, 16, 32, 16),
        (late, 16, 16, 32),
        (_some_blocks(rng, 96, 64, 32), 32, 32, 16),
    ]:
        yield _listed(rng, pairs, BM, BN, d)
    for _ in range(2):  # the same sizes, other numbers
        yield _listed(rng, np.ones((12, 18), bool), 16, 16, 32, far=True)


def _listed(rng: np.random.Generator, pairs: Array, BM: int, BN: int, d: int, far: bool = False) -> Sample:
    Nq, Nk = pairs.shape
    Q, K, V = normal(rng, Nq, d), normal(rng, Nk, d), normal(rng, Nk, d)
    Q, K = far_apart(Q, K) if far else (Q, K)
    lists = dict(zip(PARTS, _shuffled(rng, lists_of(pairs, BM, BN)), strict=True))
    blind = not pairs.any(axis=1).all()
    causal = Nq == Nk and np.array_equal(pairs, _causal(Nq))
    return Sample(
        {"queries": Nq, "keys": Nk, "BM": BM, "BN": BN},
        {"Q": Q, "K": K, "V": V, **lists, "BM": BM, "BN": BN},
        dict(zip(("O", "LSE"), attention_of(Q, K, V, pairs), strict=True)),
        attention_forward(BlockLists(Nq, Nk, d, pairs=pairs[None, None]), BM=BM, BN=BN),
        (FAR if far else EMPTY if blind else CUT if len(lists["patterns"]) else PLAIN, CAUSAL * causal),
    )


def _shuffled(rng: np.random.Generator, lists: Lists) -> Lists:
    """Return lists of the same mask with full blocks, partial blocks and patterns in another order."""
    spans, entries, slots, patterns, order = (part.copy() for part in lists)
    for begin, cut, end in spans:
        for first, last in ((begin, cut), (cut, end)):
            moved = first + rng.permutation(last - first)
            entries[first:last], slots[first:last] = entries[moved], slots[moved]
    places = rng.permutation(len(patterns)).astype(np.int32)  # pattern k moves to places[k]
    shuffled = np.empty_like(patterns)
    shuffled[places] = patterns
    return spans, entries, places[slots] if len(places) else slots, shuffled, order


def without_keys(case: Case) -> NDArray[np.bool_]:
    """Return which rows of a case attend to no key."""
    return np.asarray(np.isneginf(case.expected[1]))


def partial_blocks(case: Case) -> int:
    """Return the number of partial blocks in the lists of a case."""
    spans = case.inputs["spans"]
    return int((spans[:, 2] - spans[:, 1]).sum())


LISTED = kernel_exercise(
    "13C",
    "O LSE",
    listed,
    {
        ("O", PLAIN): "O is correct when all blocks are full",
        ("O", CUT): "applies the patterns of partial blocks",
        ("O", EMPTY): "a row that attends to no key has O = 0",
        ("LSE", EMPTY): "a row that attends to no key has LSE = -∞",
        **ATTENTION,
    },
    loads="Q",
    words=words_exactly("moves exactly the words of the closed form, lists included"),
    also=(masks_only(partial_blocks), heavy_first()),
    rows={EMPTY: without_keys},
    run_case=launch_and_count_programs_and_masks,
)


# ------------------------------------------------------------------ 13D outputs in slices
ONE, RAGGED_D, LARGE = "one tile of keys", "d ends within a slice", "scores that grow"


def sliced(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one and several tiles of keys, d that slices divide or not, rising scores, N smaller than a tile,
    and scores far from 0.
    """
    n = int(rng.integers(1, 15))
    rising = normal(rng, 3, 64, 32)
    # The maximum grows by 3 with every tile of keys. A steeper rise makes older sums vanish, and scores so
    # large that their rounding errors exceed the tolerance (with 4.0 for one right answer in 600).
    rising[0, :, 0], rising[1, :, 0] = 1.0, np.arange(64)
    yield _sliced(normal(rng, 3, 16, 32), 16, 32, 16)
    yield _sliced(normal(rng, 3, 64, 64), 32, 16, 32)
    yield _sliced(normal(rng, 3, 33, 32), 16, 32, 32)  # one key in the last tile
    yield _sliced(normal(rng, 3, 48 + n, 33), 32, 32, 16)
    yield _sliced(normal(rng, 3, 40, 17 + n), 16, 16, 64)
    yield _sliced(rising, 32, 16, 16, LARGE)
    for x in normal(rng, 2, 3, n, 16):  # the same sizes, other numbers
        yield _sliced(x, 16, 16, 16)
    yield _sliced(np.stack([*far_apart(*normal(rng, 2, 18, 16)), normal(rng, 18, 16)]), 16, 16, 16, FAR)


def _sliced(QKV: Array, BM: int, BN: int, BD: int, difficulty: str = "") -> Sample:
    N, d = QKV[0].shape
    tile = {"BM": BM, "BN": BN, "BD": BD}
    hard = difficulty or (RAGGED_D if d % BD else ONE if N <= BN and d > BD else "")
    return Sample(
        {"N": N, "d": d, **tile},
        {**dict(zip("QKV", QKV, strict=True)), **tile},
        dict(zip(("O", "LSE"), attention_of(*QKV), strict=True)),
        sliced_forward(KernelProblem(N, N, d), BM=BM, BN=BN),
        (hard,) if hard else (),
    )


def _sums_travel() -> Property:
    """Return the property that exactly O, LSE and the partial sums between two tiles are written."""

    def judge(trial: Trial) -> str | None:
        got, want = trial.ledger.written, budget_of(trial).written
        return None if got == want else f"writes {got:,} words, expected {want:,}"

    return as_traffic(each("stores partial sums only between two tiles of keys", judge))


def _sums_apart() -> Property:
    """Return the property that partial sums are in other memory than the results.

    An array that holds sums is both read and written. The results are only written, each word once.
    """

    def judge(trial: Trial) -> str | None:
        budget, ledger = budget_of(trial), trial.ledger
        want = sum(budget.writes[name] for name in ("O", "LSE"))
        got = sum(words for name, words in ledger.writes.items() if not ledger.reads.get(name))
        if got >= want or ledger.written < want:
            return None
        return (
            f"{got:,} words are written to arrays that are not read, expected {want:,}, those of O and LSE. "
            "Keep partial sums in a separate array, because in 16 bits O would round them"
        )

    return idle(each("keeps partial sums out of the results", judge))


def _no_tile_of_complete_rows() -> Property:
    """Return the property that no factor of a product is larger than BM, BN and BD."""

    def judge(trial: Trial) -> str | None:
        most = max(trial.case.inputs[name] for name in ("BM", "BN", "BD"))
        widest = trial.widest if isinstance(trial, KernelTrial) else 0
        return f"a factor of tl.dot has {widest} rows or columns" if widest > most else None

    return idle(each("no tile is larger than BM, BN and BD", judge))


SLICED = kernel_exercise(
    "13D",
    "O LSE",
    sliced,
    {
        ("O", ONE): "O is correct when one tile holds all keys",
        ("O", LARGE): "rescales partial sums that are already stored",
        ("O", RAGGED_D): "O is correct when slices do not divide d",
        **ATTENTION,
    },
    loads="Q K V",
    words=replace(words_exactly(), general=True),  # the property of the partial sums is read first
    also=(_sums_travel(), _sums_apart(), _no_tile_of_complete_rows()),
)


EXERCISES = (LISTS, LISTED, CHOICE, SLICED)
