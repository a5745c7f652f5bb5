"""Selection of the largest lower bound whose class contains all schedules of a pass."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ..machine import FREE_REGISTERS
from ..sizes import check_sizes, truth
from .bound import BOUNDS, Bound

__all__ = ["Pairs", "lower_bound"]


class Pairs(Protocol):
    """Interface of a mask for bounds: its size, and the numbers of visible pairs, rows and columns."""

    @property
    def N(self) -> int:
        """Number of queries, and of keys."""

    @property
    def nnz(self) -> int:
        """Number of visible pairs (query, key)."""

    @property
    def nonempty_rows(self) -> int:
        """Number of queries with a visible key."""

    @property
    def nonempty_columns(self) -> int:
        """Number of keys to which a query attends."""


# Sizes of a problem. A bound requires N, or in its place the numbers of the visible pairs of a mask.
DENSE = ("N", "d", "M")
MASKED = ("nnz", "rows", "columns", "d", "M")


def bounds_by_pass(schedules: str, sizes: Collection[str]) -> dict[str, list[Bound]]:
    """Return the bounds of a class of `CLASSES` that require only these sizes, for each pass that has one."""
    known, found = {*sizes}, dict[str, list[Bound]]()
    for bound in BOUNDS.values():
        if bound.schedules == schedules and known.issuperset(bound.sizes):
            for pass_ in bound.passes:
                found.setdefault(pass_, []).append(bound)
    return found


def lower_bound(
    pass_: str,
    N: int,
    d: int,
    M: int,
    *,
    mask: Pairs | None = None,
    recompute: bool = True,
    approximate: bool = False,
    given_weights: bool = True,
    whole_rows: bool = False,
) -> tuple[int, str]:
    """Return the largest lower bound for a pass and its id: (words, id).

    It is evaluated at M + 4, which includes the machine's free registers. forward: max(4Nd, A, B'); backward:
    max(7Nd, C, C_small, C''); gradient: max(4Nd + 3d², its forward part); tied (K = V): max(3Nd, Theorem A,
    tied). The last five options restrict the class of schedules, for which larger bounds are known.

    Args:
        pass_: "forward", "backward", "gradient" or "tied".
        N: sequence length.
        d: head dimension.
        M: words of fast memory.
        mask: a mask of iocourse.masks; the bounds then hold for its visible pairs (Theorem D).
        recompute: False if no score is computed twice; then B holds (forward).
        approximate: True for approximations such as low-rank attention, which form no scores; only the
            compulsory traffic is compared for them.
        given_weights: False if P is not an input of the schedule; then C' holds (backward).
        whole_rows: True if complete rows are moved, in steps of at most 2d words without scores kept between
            steps; then A_rows, E and E' hold (forward, backward; for other steps call these with their t).

    Raises:
        ValueError: if the pass has no bound, `whole_rows` does not apply, or the mask has another N.
    """
    names = DENSE if mask is None else MASKED
    compulsory = bounds_by_pass("any", names)
    if pass_ not in compulsory:
        there = ", ".join(map(repr, compulsory))
        under = "" if mask is None else " under a mask"
        raise ValueError(f"pass_ must be one of {there}{under}, got {pass_!r}")
    N, d, M = check_sizes(N=N, d=d, M=M)
    recompute, approximate = truth("recompute", recompute), truth("approximate", approximate)
    given_weights, whole_rows = truth("given_weights", given_weights), truth("whole_rows", whole_rows)
    if whole_rows and pass_ not in bounds_by_pass("whole rows", names):
        here = f"pass_={pass_!r}" if mask is None else "a mask"
        raise ValueError(
            "whole_rows=True needs the forward or the backward pass without a mask, "
            f"got {here}. Omit whole_rows for the bounds of all schedules"
        )
    sizes = {"d": d, "M": M + FREE_REGISTERS} | ({"N": N} if mask is None else _visible(mask, N))
    classes = {
        "any": True,
        "exact": not approximate,
        "once": not approximate and not recompute,
        "own weights": not approximate and not given_weights,
        "whole rows": not approximate and whole_rows,
    }
    candidates = {
        bound.id: bound.at(sizes)
        for schedules, holds in classes.items()
        if holds
        for bound in bounds_by_pass(schedules, names).get(pass_, ())
    }
    best = max(candidates, key=candidates.__getitem__)  # the first one in a tie
    return candidates[best], best


def _visible(mask: Pairs, N: int) -> dict[str, int]:
    if not hasattr(mask, "nnz"):
        raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
    if mask.N != N:
        raise ValueError(f"mask must have N = {N}, got a mask with N = {mask.N}")
    return {"nnz": mask.nnz, "rows": mask.nonempty_rows, "columns": mask.nonempty_columns}
