"""Selection of the largest lower bound whose class contains all schedules of a pass."""

from __future__ import annotations

from typing import Protocol

from ..machine import FREE_REGISTERS
from ..sizes import check_sizes, truth
from .backward import (
    compulsory_backward,
    compulsory_gradient,
    gradient_forward,
    theorem_C,
    theorem_C_prime,
    theorem_C_second,
    theorem_C_small,
)
from .bound import Bound
from .forward import compulsory, theorem_A, theorem_B, theorem_B_prime
from .relatives import compulsory_tied, theorem_tied
from .row_schedules import theorem_A_rows, theorem_E, theorem_E_prime
from .sparse import (
    compulsory_sparse,
    compulsory_sparse_backward,
    theorem_D,
    theorem_D_B,
    theorem_D_B_prime,
    theorem_D_C,
    theorem_D_C_prime,
    theorem_D_C_second,
    theorem_D_C_small,
)


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


# Bounds of all schedules of a pass, and those of smaller classes, which are options of `lower_bound`.
SEGMENT: dict[str, tuple[Bound, ...]] = {
    "forward": (theorem_A, theorem_B_prime),
    "backward": (theorem_C, theorem_C_small, theorem_C_second),
    "gradient": (gradient_forward,),
    "tied": (theorem_tied,),
}
SEGMENT_SPARSE: dict[str, tuple[Bound, ...]] = {
    "forward": (theorem_D, theorem_D_B_prime),
    "backward": (theorem_D_C, theorem_D_C_small, theorem_D_C_second),
}
ONCE: dict[str, tuple[Bound, ...]] = {"forward": (theorem_B,)}
ONCE_SPARSE: dict[str, tuple[Bound, ...]] = {"forward": (theorem_D_B,)}
OWN_WEIGHTS: dict[str, tuple[Bound, ...]] = {"backward": (theorem_C_prime,)}
OWN_WEIGHTS_SPARSE: dict[str, tuple[Bound, ...]] = {"backward": (theorem_D_C_prime,)}
WHOLE_ROWS: dict[str, tuple[Bound, ...]] = {
    "forward": (theorem_A_rows,),
    "backward": (theorem_E, theorem_E_prime),
}
COMPULSORY = {
    "forward": compulsory,
    "backward": compulsory_backward,
    "gradient": compulsory_gradient,
    "tied": compulsory_tied,
}
COMPULSORY_SPARSE = {"forward": compulsory_sparse, "backward": compulsory_sparse_backward}


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
            compulsory traffic holds for them.
        given_weights: False if P is not an input of the schedule; then C' holds (backward).
        whole_rows: True if complete rows are moved, in steps of at most 2d words without scores kept between
            steps; then A_rows, E and E' hold (forward, backward; for other steps call these with their t).

    Raises:
        ValueError: if the pass has no bound, `whole_rows` does not apply, or the mask has another N.
    """
    chosen = COMPULSORY if mask is None else COMPULSORY_SPARSE
    if pass_ not in chosen:
        there = ", ".join(map(repr, chosen))
        under = "" if mask is None else " under a mask"
        raise ValueError(f"pass_ must be one of {there}{under}, got {pass_!r}")
    N, d, M = check_sizes(N=N, d=d, M=M)
    recompute, approximate = truth("recompute", recompute), truth("approximate", approximate)
    given_weights, whole_rows = truth("given_weights", given_weights), truth("whole_rows", whole_rows)
    if whole_rows and (mask is not None or pass_ not in WHOLE_ROWS):
        here = f"pass_={pass_!r}" if mask is None else "a mask"
        raise ValueError(
            "whole_rows=True needs the forward or the backward pass without a mask, "
            f"got {here}. Omit whole_rows for the bounds of all schedules"
        )
    floor = chosen[pass_].id
    candidates = {floor: _compulsory(pass_, N, d, mask)}
    if not approximate:
        pairs = (N,) if mask is None else (mask.nnz,)
        bounds = _segment_bounds(pass_, mask is not None, recompute, given_weights)
        bounds += WHOLE_ROWS[pass_] if whole_rows else ()
        candidates |= {bound.id: bound(*pairs, d, M + FREE_REGISTERS) for bound in bounds}
    best = max(candidates, key=candidates.__getitem__)
    return candidates[best], best


def _segment_bounds(pass_: str, masked: bool, recompute: bool, given_weights: bool) -> tuple[Bound, ...]:
    bounds = (SEGMENT_SPARSE if masked else SEGMENT)[pass_]
    if not recompute:
        bounds += (ONCE_SPARSE if masked else ONCE).get(pass_, ())
    if not given_weights:
        bounds += (OWN_WEIGHTS_SPARSE if masked else OWN_WEIGHTS).get(pass_, ())
    return bounds


def _compulsory(pass_: str, N: int, d: int, mask: Pairs | None) -> int:
    if mask is None:
        return COMPULSORY[pass_](N, d)
    if not hasattr(mask, "nnz"):
        raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
    if mask.N != N:
        raise ValueError(f"mask must have N = {N}, got a mask with N = {mask.N}")
    return COMPULSORY_SPARSE[pass_](mask.nonempty_rows, mask.nonempty_columns, d)
