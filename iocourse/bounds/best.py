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
    theorem_C_small,
)
from .bound import Bound
from .forward import compulsory, compulsory_tied, theorem_A, theorem_B, theorem_B_prime
from .sparse import (
    compulsory_sparse,
    compulsory_sparse_backward,
    theorem_D,
    theorem_D_B,
    theorem_D_B_prime,
    theorem_D_C,
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


SEGMENT: dict[str, tuple[Bound, ...]] = {
    "forward": (theorem_A, theorem_B_prime),
    "backward": (theorem_C, theorem_C_small),
    "gradient": (gradient_forward,),
    "tied": (),
}
SEGMENT_SPARSE: dict[str, tuple[Bound, ...]] = {
    "forward": (theorem_D, theorem_D_B_prime),
    "backward": (theorem_D_C, theorem_D_C_small),
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
) -> tuple[int, str]:
    """The best lower bound for a pass and the id of the bound that gives it: (words, id).

    forward max(4Nd, A, B'), and B where `recompute` is False: for schedules that form no score twice.
    backward max(7Nd, C, C_small), gradient max(4Nd + 3d², its forward part). With `mask`, the same over its
    visible pairs (Theorem D). Evaluated at M + 4, the machine's free registers included. Approximations
    such as low-rank attention (`approximate=True`) form no score: they are in the class of the compulsory
    traffic alone.
    Raises ValueError for a pass that has no bound here, or a mask of another N.
    """
    chosen = COMPULSORY if mask is None else COMPULSORY_SPARSE
    if pass_ not in chosen:
        there = ", ".join(map(repr, chosen))
        under = "" if mask is None else " under a mask"
        raise ValueError(f"pass_ = {pass_!r} has no lower bound here{under}; there is one for {there}")
    N, d, M = check_sizes(N=N, d=d, M=M)
    recompute, approximate = truth("recompute", recompute), truth("approximate", approximate)
    registers = M + FREE_REGISTERS
    candidates = (
        _dense(pass_, N, d, registers, recompute)
        if mask is None
        else _sparse(pass_, N, d, registers, mask, recompute)
    )
    if approximate:
        floor = chosen[pass_].id
        return candidates[floor], floor
    best = max(candidates, key=candidates.__getitem__)
    return candidates[best], best


def _dense(pass_: str, N: int, d: int, M: int, recompute: bool) -> dict[str, int]:
    once = () if recompute or pass_ != "forward" else (theorem_B,)
    floor = COMPULSORY[pass_]
    return {floor.id: floor(N, d)} | {bound.id: bound(N, d, M) for bound in SEGMENT[pass_] + once}


def _sparse(pass_: str, N: int, d: int, M: int, mask: Pairs, recompute: bool) -> dict[str, int]:
    if not hasattr(mask, "nnz"):
        raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
    if mask.N != N:
        raise ValueError(f"mask has N = {mask.N} but N = {N}; they must agree")
    once = () if recompute or pass_ != "forward" else (theorem_D_B,)
    floor = COMPULSORY_SPARSE[pass_]
    words = floor(mask.nonempty_rows, mask.nonempty_columns, d)
    return {floor.id: words} | {bound.id: bound(mask.nnz, d, M) for bound in SEGMENT_SPARSE[pass_] + once}
