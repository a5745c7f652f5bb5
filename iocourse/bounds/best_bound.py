"""The best bound that applies to a pass, and only bounds whose class all its schedules are in."""

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
    """What a bound must know of a mask: its size, and how many pairs, rows and columns are visible."""

    @property
    def N(self) -> int:
        """Queries, and as many keys."""

    @property
    def nnz(self) -> int:
        """Visible pairs (query, key)."""

    @property
    def nonempty_rows(self) -> int:
        """Queries that see a key."""

    @property
    def nonempty_columns(self) -> int:
        """Keys that a query sees."""


# Bounds of all schedules of a pass, and those that hold in a class which `lower_bound` must be told of.
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
    """The best lower bound for a pass and the id of the bound that gives it: (words, id).

    forward max(4Nd, A, B'), backward max(7Nd, C, C_small, C''), gradient max(4Nd + 3d², its forward part),
    tied (K = V) max(3Nd, its relative of A). With `mask`, the same over its visible pairs (Theorem D).
    Evaluated at M + 4, the machine's free registers included.

    The other options tell of a smaller class, in which more is known. `recompute=False`: no score is formed
    twice, so B holds (forward). `given_weights=False`: P is not handed over, so C' holds (backward).
    `whole_rows=True`: rows travel whole, in steps of at most 2d words that no score outlives, so A_rows, E
    and E' hold (forward, backward; for other steps call these with their t). Approximations such as low-rank
    attention (`approximate=True`) form no score: they are in the class of the compulsory traffic alone.
    Raises ValueError for a pass that has no bound here, for `whole_rows` where there is none, or a mask of
    another N.
    """
    chosen = COMPULSORY if mask is None else COMPULSORY_SPARSE
    if pass_ not in chosen:
        there = ", ".join(map(repr, chosen))
        under = "" if mask is None else " under a mask"
        raise ValueError(f"pass_ = {pass_!r} has no lower bound here{under}; there is one for {there}")
    N, d, M = check_sizes(N=N, d=d, M=M)
    recompute, approximate = truth("recompute", recompute), truth("approximate", approximate)
    given_weights, whole_rows = truth("given_weights", given_weights), truth("whole_rows", whole_rows)
    if whole_rows and (mask is not None or pass_ not in WHOLE_ROWS):
        here = f"this is {pass_!r}" if mask is None else "a mask is given"
        raise ValueError(
            "whole_rows=True is a class of the forward and the backward pass without a mask, and "
            f"{here}; leave whole_rows out for the bounds of all schedules"
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
        raise ValueError(f"mask has N = {mask.N} but N = {N}; they must agree")
    return COMPULSORY_SPARSE[pass_](mask.nonempty_rows, mask.nonempty_columns, d)
