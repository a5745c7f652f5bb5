"""Exercises of lesson 19: rows and sequences balanced by work, pooling, clips, and grouped positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ...console import with_unit
from ...costs import ceil_div
from ...distributed import RankLedger, load_balance
from ...distributed.layouts import blocks_of
from ..exercise import Case, NotReached, Trial, exercise, run_function, student_call, trial_from_error
from ..kinds.distributed import FAR, RankSample, distributed_exercise, normal_arrays
from ..properties import LARGE, Form, idle, whole
from ..trials.case_inputs import bottomless_queries_and_keys, low_queries_and_keys
from ..trials.rank_runs import FEW, holds_within, in_time, rank_words_within

Array = NDArray[np.float64]


# ------------------------------------------------------------------ 19A the owner of a row
def _owner_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of one, two and several ranks, with blocks of one, few and many rows."""
    P = int(rng.integers(3, 7))
    shapes = [(6, 1), (4 * int(rng.integers(2, 9)), 2), (2 * P, P), (2 * P * int(rng.integers(2, 9)), P)]
    shapes += [(2 * (P + 2) * 150, P + 2)]
    return [Case(f"N={N}, P={P}", {"N": N, "P": P}) for N, P in shapes]


@trial_from_error
def _play_owner(student: Callable[..., Any], case: Case) -> Trial:
    """Return a trial with the ranks of all rows, from one call per row."""
    N, P = case.inputs["N"], case.inputs["P"]
    with student_call():
        return Trial(case, value=[student(t, N, P) for t in range(N)])


def _owners(trial: Trial) -> NDArray[np.int64] | None:
    """Return the rank of every row or position, or None for a wrong form."""
    return _checked_owners(trial.value, trial.case.inputs["P"])


def _checked_owners(value: Any, P: int) -> NDArray[np.int64] | None:
    if not isinstance(value, (list, tuple, np.ndarray)):
        return None
    found = [whole(one, least=0) for one in value]
    return np.array(found) if all(one is not None and one < P for one in found) else None


OWNERS = Form("assigns every row to one of the P ranks", _owners, "an integer from 0 to P - 1 per row")


def _same_rows(trial: Trial, owners: NDArray[np.int64]) -> str | None:
    N, P = trial.case.inputs["N"], trial.case.inputs["P"]
    return _unequal(owners, P, N // P, "row")


def _unequal(owners: NDArray[np.int64], P: int, share: int, thing: str) -> str | None:
    """Return a message about the first rank with a wrong number of rows or positions."""
    counts = np.bincount(owners, minlength=P).tolist()
    off = next((rank for rank, count in enumerate(counts) if count != share), None)
    return None if off is None else f"rank {off} has {with_unit(counts[off], thing)}, expected {share}"


def _same_work(trial: Trial, owners: NDArray[np.int64]) -> str | None:
    P = trial.case.inputs["P"]
    pairs = np.bincount(owners, weights=np.arange(1, len(owners) + 1), minlength=P)
    most, mean = int(pairs.argmax()), pairs.mean()
    if pairs[most] <= 1.01 * mean:
        return None
    return f"rank {most} has {pairs[most]:,.0f} pairs, {pairs[most] / mean:.3f} times the mean"


def _few_words(trial: Trial, owners: NDArray[np.int64]) -> str | None:
    """Test the total number of key rows that the ranks receive; a rank that has all rows receives none."""
    if unequal := _same_rows(trial, owners):
        return NotReached(unequal)
    N, P = trial.case.inputs["N"], trial.case.inputs["P"]
    lacking = sum(int(owned[-1]) + 1 - len(owned) for owned in map(_rows_of(owners), range(P)) if len(owned))
    allowed = (3 * P - 3) * N // 4
    if lacking <= allowed:
        return None
    return f"the ranks receive {lacking:,} rows of keys in total, expected at most {allowed:,} (zigzag)"


def _rows_of(owners: NDArray[np.int64]) -> Callable[[int], NDArray[np.int64]]:
    return lambda rank: np.flatnonzero(owners == rank)


OWNER = exercise(
    "19A",
    cases=_owner_cases,
    properties=(
        OWNERS.kept(),
        OWNERS.must("every rank has the same number of rows", _same_rows),
        OWNERS.must("every rank has the same work", _same_work),
        idle(OWNERS.must("receives no more keys than zigzag", _few_words)),
    ),
    run_case=in_time(_play_owner),
)


# ------------------------------------------------------------------ 19B sequences on ranks
ONE_TEXT = "one sequence"
FAIR, SPARING = 1.02, 1.1  # allowed ratios to the placement of the library


def _placement_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of one rank, one sequence, equal lengths, short sequences, and a few long ones.

    In some, the work of a sequence is exactly one share, slightly more, or slightly more than two shares.
    """
    P = int(rng.integers(3, 7))
    return [
        _placement_case("one rank", rng.integers(1, 90, size=5), 1),
        _placement_case(ONE_TEXT, rng.integers(200, 900, size=1), P),
        _placement_case("equal lengths", np.full(3 * P, int(rng.integers(50, 99))), P),
        _placement_case("a little more than a share", np.array([20, *[1] * 200]), 2),
        _placement_case("a share to the pair", np.array([2, 1, 1, 1]), 2),
        _placement_case("a bit more than two shares", np.array([820, *[50] * 600]), 8),
        _placement_case("short sequences", _drawn(rng, 0.6, P), P),
        _placement_case("long and short sequences", _drawn(rng, 1.5, P + 1), P + 1),
        _placement_case("long and short sequences", _drawn(rng, 1.8, P + 3), P + 3),
    ]


def _drawn(rng: np.random.Generator, sigma: float, P: int) -> NDArray[np.int64]:
    """Return log-normal lengths, twelve per rank, drawn until they can be balanced."""
    while True:
        lengths = rng.lognormal(np.log(120), sigma, size=12 * P).astype(np.int64) + 1
        if _known_imbalance(lengths.tolist(), P) < 1.05:
            return lengths


def _known_imbalance(lengths: list[int], P: int) -> float:
    """Return the larger imbalance of largest part first and longest sequence first; both are correct."""
    return max(load_balance.imbalance(load_balance.split_texts(lengths, P).pairs), _longest_first(lengths, P))


def _longest_first(lengths: list[int], P: int) -> float:
    """Return the imbalance of `split_texts` with the longest sequence first."""
    sizes = sorted((length * (length + 1) for length in lengths), reverse=True)
    load = np.zeros(P)
    for work in sizes:
        parts = min(P, ceil_div(P * work, sum(sizes)))
        load[np.argsort(load, kind="stable")[:parts]] += work / parts
    return load_balance.imbalance(load.tolist())


def _placement_case(label: str, lengths: NDArray[np.int64], P: int) -> Case:
    texts = [int(length) for length in lengths]
    words = sum(load_balance.split_texts(texts, P).words(1))
    known = _known_imbalance(texts, P), words
    said = f"{label}, {with_unit(len(texts), 'sequence')}, P={P}"
    return Case(said, {"lengths": texts, "P": P}, expected=known, tags=frozenset([label]))


def _placement(trial: Trial) -> load_balance.Placement | None:
    """Return the result as pieces of sequences, each in the zigzag layout."""
    lengths, P = trial.case.inputs["lengths"], trial.case.inputs["P"]
    if not isinstance(trial.value, (list, tuple)) or len(trial.value) != len(lengths):
        return None
    pieces = list[load_balance.Piece]()
    for text, (length, homes) in enumerate(zip(lengths, trial.value, strict=True)):
        owners = _checked_owners(homes, P)
        if owners is None or not len(owners) or len(set(owners.tolist())) < len(owners):
            return None
        cut = [blocks_of("zigzag", length, len(owners), part) for part in range(len(owners))]
        pieces += [load_balance.Piece(text, int(rank), rows) for rank, rows in zip(owners, cut, strict=True)]
    return load_balance.Placement(P, tuple(pieces))


PLACED = Form(
    "assigns a list of ranks to every sequence",
    _placement,
    "per sequence, a list of one or more different ranks from 0 to P - 1",
)


def _even_work(trial: Trial, placed: load_balance.Placement) -> str | None:
    got, known = load_balance.imbalance(placed.pairs), trial.case.expected[0]
    if got <= FAIR * known:
        return None
    busiest = int(np.argmax(placed.pairs))
    return f"rank {busiest} has {got:.3f} times the mean work, but {known:.3f} is possible"


def _sparing(trial: Trial, placed: load_balance.Placement) -> str | None:
    got, known = sum(placed.words(1)), trial.case.expected[1]
    if got <= SPARING * known:
        return None
    return f"the ranks receive {got // 2:,} rows of keys, but {known // 2:,} are enough with fewer splits"


PLACEMENT = exercise(
    "19B",
    cases=_placement_cases,
    properties=(
        PLACED.kept(),
        PLACED.must("splits a single sequence over all ranks", _even_work, ONE_TEXT),
        PLACED.must("balances the work as far as the lengths allow", _even_work),
        idle(PLACED.must("splits no sequence unnecessarily", _sparing)),
    ),
    run_case=in_time(run_function),
)


# ------------------------------------------------------------------ 19C pooling
LOW = "scores near -10,000"


def _pools(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield one rank, one and several learned queries, ragged shards, ranks without frames, and scores far
    from 0, also with a rank without frames.
    """
    d = int(rng.integers(3, 9))
    yield "", 1, _frames(rng, 1, 7, d)
    yield "", 4, _frames(rng, 1, int(rng.integers(40, 90)), d)
    yield "", 3, _frames(rng, 5, 23, d + 1)
    yield "", 5, _frames(rng, 2, 3, d)
    large = _frames(rng, 2, 17, d)
    Q, K = large["Q"], large["K"]  # the largest score of the first query is not that of the others
    Q[0] *= 10_000 * np.sqrt(d) / (Q[0] @ K.T).max()
    yield LARGE, 3, large
    Q, K = low_queries_and_keys(rng, 2, 3, d, levels=(-10_000.0,))
    yield LOW, 4, {"Q": Q, "K": K, "V": rng.standard_normal(K.shape)}
    Q, K = bottomless_queries_and_keys(rng, 3)  # every log-sum-exp below what is taken for minus infinity
    yield LARGE, 4, {"Q": Q[:2], "K": K, "V": rng.standard_normal(K.shape)}


def _frames(rng: np.random.Generator, queries: int, n: int, d: int) -> dict[str, Any]:
    return normal_arrays(rng, "Q", queries, d) | normal_arrays(rng, "K V", n, d)


POOLING = distributed_exercise(
    "19C",
    "decode",
    exact.attention,
    _pools,
    (rank_words_within("every rank sends at most m(d + 1) words to each other rank"),),
    values="values equal exact attention over all frames",
    where={
        FEW: "a rank without frames has weight 0",
        **FAR,
        LOW: "low scores and a rank without frames give no sum of 0",
    },
    shared=("Q",),
)


# ------------------------------------------------------------------ 19D clips
def _clips(rng: np.random.Generator) -> Iterator[RankSample]:
    """Yield one rank, one and several clips per rank, clips of one row, and very low scores."""
    P, d = int(rng.integers(3, 6)), int(rng.integers(3, 9))
    sizes = [(1, 3, 4, d), (P, 1, 5, d), (P, int(rng.integers(2, 5)), 3, d + 1), (2, 4, 1, d)]
    for ranks, clips, c, columns in sizes:
        tag = "one clip per rank" if clips == 1 else "clips of one row" if c == 1 else "clips of several rows"
        yield tag, ranks, normal_arrays(rng, "Q K V", ranks * clips * c, columns) | {"c": c}
    Q, K = bottomless_queries_and_keys(rng, 12)
    yield "clips of several rows", 2, {"Q": Q, "K": K, "V": rng.standard_normal(K.shape), "c": 3}


def _under_the_mask(Q: Array, K: Array, V: Array, c: int) -> Array:
    clip, first = np.arange(len(Q)) // c, np.arange(len(Q)) % c == 0
    return exact.attention(Q, K, V, mask=np.where((clip[:, None] == clip) | first, 0.0, -np.inf))


def _first_rows(P: int, Q: Array, K: Array, V: Array, c: int) -> RankLedger:
    """Return the ledger: the rank receives the first rows of all other ranks and sends its own to each."""
    words = Q.shape[1] * (len(Q) // P // c) * (P - 1)
    return RankLedger({"K": words, "V": words}, {"K": words, "V": words}, 2 * words)


CLIPS = distributed_exercise(
    "19D",
    _first_rows,
    _under_the_mask,
    _clips,
    (
        rank_words_within("sends and receives only first rows"),
        holds_within("holds only the first rows of other ranks"),
    ),
    values="values equal exact attention under the mask",
)


# ------------------------------------------------------------------ 19E positions grouped by their keys
def _group_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of one rank, complete groups, groups of which more than half is visible, and many."""
    P = int(rng.integers(3, 6))
    return [
        _group_case(rng, "one group", 1, 6, 1, 0.55),
        _group_case(rng, "complete groups", P, 5, 1, 1.0),
        _group_case(rng, "parts of groups", 2, 3, 0, 0.6),
        _group_case(rng, "parts of groups", P, 9, 2, 0.55),
        _group_case(rng, "parts of groups, no common keys", P + 2, 7, 0, 0.55),
    ]


def _group_case(
    rng: np.random.Generator, label: str, P: int, size: int, seen_by_all: int, share: float
) -> Case:
    """Return a case of P hidden groups with `seen_by_all` common keys each.

    A position attends to itself, to the common keys, and to more than half of the other keys of its group;
    one position per group attends to the complete group. Position 0 is a common key, if there are any, and
    position 1 is in another group.
    """
    group = _hidden_groups(rng, P, size)
    everybody = np.zeros(P * size, dtype=bool)
    for one in range(P):
        of_group = np.flatnonzero(group == one)
        everybody[rng.choice(of_group[of_group > 0], size=seen_by_all, replace=False)] = True
    if seen_by_all:
        everybody[[np.flatnonzero(everybody & (group == group[0]))[0], 0]] = False, True
    mask, sees_all = np.tile(everybody, (P * size, 1)), rng.integers(size, size=P)
    for a in range(P * size):
        own = np.flatnonzero((group == group[a]) & ~everybody)
        whole_group = a == np.flatnonzero(group == group[a])[sees_all[group[a]]]
        count = len(own) if whole_group else max(len(own) // 2 + 1, round(share * len(own)))
        mask[a, rng.choice(own, size=count, replace=False)] = True
        mask[a, a] = True
    if (mask.all(axis=0) != everybody).any():  # another common key by chance: draw again
        return _group_case(rng, label, P, size, seen_by_all, share)
    said, known = f"{label}, h={P * size}, P={P}", lacks_at_least(mask, P)
    return Case(said, {"mask": mask, "P": P}, expected=known, tags=frozenset([label]))


def _hidden_groups(rng: np.random.Generator, P: int, size: int) -> NDArray[np.int64]:
    """Return the group of each position; the first two differ if there are several groups."""
    group = rng.permutation(np.repeat(np.arange(P), size))
    other = int(np.argmax(group != group[0]))  # the first of another group, or 0
    if other:
        group[[1, other]] = group[[other, 1]]
    return group


def lacks_at_least(mask: NDArray[np.bool_], P: int) -> int:
    """Return the bound (19.8) on the positions that some rank receives in any grouping."""
    return max(0, int(mask.sum(axis=1).max()) - len(mask) // P)


def lacked(mask: NDArray[np.bool_], owners: NDArray[np.int64], P: int) -> list[int]:
    """Return, per rank, the number of positions that its queries attend to and that it does not have."""
    return [int((mask[owners == rank].any(axis=0) & (owners != rank)).sum()) for rank in range(P)]


def _positions(trial: Trial) -> NDArray[np.int64] | None:
    owners = _owners(trial)
    return owners if owners is not None and len(owners) == len(trial.case.inputs["mask"]) else None


POSITIONS = Form(
    "assigns every position to one of the P ranks",
    _positions,
    "an integer from 0 to P - 1 per position",
)


def _same_share(trial: Trial, owners: NDArray[np.int64]) -> str | None:
    P = trial.case.inputs["P"]
    return _unequal(owners, P, len(owners) // P, "position")


def _few_lacked(trial: Trial, owners: NDArray[np.int64]) -> str | None:
    """Test the positions that a rank receives; a rank that has all positions receives none."""
    if unequal := _same_share(trial, owners):
        return NotReached(unequal)
    lacks = lacked(trial.case.inputs["mask"], owners, trial.case.inputs["P"])
    worst, least = int(np.argmax(lacks)), trial.case.expected
    if lacks[worst] <= least:
        return None
    return f"rank {worst} receives {with_unit(lacks[worst], 'position')}, but the bound is {least}"


GROUPS = exercise(
    "19E",
    cases=_group_cases,
    properties=(
        POSITIONS.kept(),
        idle(POSITIONS.must("every rank has the same number of positions", _same_share)),
        POSITIONS.must("finds groups that attend to complete groups", _few_lacked, "complete groups"),
        POSITIONS.must("no rank receives more than the bound", _few_lacked),
    ),
    run_case=in_time(run_function),
)

EXERCISES = (OWNER, PLACEMENT, POOLING, CLIPS, GROUPS)
