"""A problem: its tensors, what a query sees, and what a time at it means; and those of dense attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.gpu.roofline import TIMES_FORWARD, flops, tflops
from tools.bench import Row
from tools.bench.gpu.place import Place

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # for modules that are read where torch may be absent

Pairs = Callable[[Tensor, Tensor], Tensor]  # positions i and j, which broadcast -> whether i sees j
FLEX = "FlexAttention"  # which is told what the reference is told
TOKENS = 16384
WIDTH = 2048  # H · d, or as near below as whole heads come
MASKS = (False, True)  # causal


class Given(NamedTuple):
    """What one contender gets."""

    inputs: Sequence[Tensor]  # q, k, v, in the layout it takes
    do: Tensor  # gradient of O
    seen: Any  # what a query sees, as it is told
    part: Callable[[Tensor], Tensor]  # cuts a result or gradient to the (rows, d) of the reference


@dataclass(frozen=True)
class Problem:
    """One problem, drawn."""

    given: Given  # what contenders get
    pairs: Pairs | None  # which query of the part sees which key; None: all see all
    figures: Callable[[str, float], Row]  # what a pass and its milliseconds mean: a row's rates
    others: Mapping[str, Given] = field(default_factory=dict)  # what those get who take or are told another

    def given_to(self, contender: str) -> Given:
        """The inputs of one contender."""
        return self.others.get(contender, self.given)


def normal(sizes: tuple[int, ...], count: int, dtype: str, place: Place, seed: int) -> list[Tensor]:
    """So many normal tensors of a type from the seed, on the place's device."""
    import torch

    source = torch.Generator(place.device).manual_seed(seed)
    options = {"generator": source, "device": place.device, "dtype": getattr(torch, dtype)}
    return [torch.randn(sizes, **options) for _ in range(count)]


def not_later(i: Tensor, j: Tensor) -> Tensor:
    """A causal mask: query i sees key j ≤ i."""
    return j <= i


def rates(forward_flop: float, **facts: Any) -> Callable[[str, float], Row]:
    """A row's TFLOP/s, from the FLOP of the forward pass, and facts that stand beside it."""
    return lambda pass_, ms: facts | {"tflops": tflops(TIMES_FORWARD[pass_] * forward_flop, ms)}


def heads(
    shape: Any, place: Place, seed: int, seen: Any, pairs: Pairs | None, share: float = 1.0, **facts: Any
) -> Problem:
    """Normal q, k, v and dO (B, H, N, d); the last head of the last batch is held against float64.

    Contenders are told what is `seen`, the reference by `pairs`; the FLOP of a `share` of all pairs count.
    `facts` are more of each row that has a time.
    """
    *inputs, do = normal((shape.B, shape.H, shape.N, shape.d), 4, shape.dtype, place, seed)
    work = share * flops("forward", B=shape.B, H=shape.H, N=shape.N, d=shape.d)
    given = Given(inputs, do, seen, lambda x: x[-1, -1])
    return Problem(given, pairs, rates(work, **facts), {FLEX: given._replace(seen=pairs)})


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


def dense_shapes(types: Sequence[str], heads: Sequence[int], lengths: Sequence[int]) -> list[Shape]:
    """Every one of these, full and causal."""
    return [filled(*one) for one in product(types, heads, lengths, MASKS)]


def dense(shape: Shape, place: Place, seed: int) -> Problem:
    """Draw it from the seed; where it is causal half of the FLOP count."""
    pairs, share = (not_later, 0.5) if shape.causal else (None, 1.0)
    return heads(shape, place, seed, shape.causal, pairs, share)
