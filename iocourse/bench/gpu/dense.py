"""Dense attention, full or causal, of one head size and length: a problem for any contender."""

from __future__ import annotations

from typing import NamedTuple

from .place import Place
from .problem import TOKENS, WIDTH, Problem, heads
from .values import not_later


class Shape(NamedTuple):
    """One problem: q, k, v are (B, H, N, d)."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    causal: bool


def filled(dtype: str, d: int, N: int, causal: bool) -> Shape:
    """The shape of 16,384 tokens with heads so that H · d = 2048."""
    return Shape(dtype, d, N, TOKENS // N, WIDTH // d, causal)


def dense(shape: Shape, place: Place, seed: int) -> Problem:
    """Draw it from the seed; where it is causal half of the FLOP count."""
    pairs, share = (not_later, 0.5) if shape.causal else (None, 1.0)
    return heads(shape, place, seed, shape.causal, pairs, share)
