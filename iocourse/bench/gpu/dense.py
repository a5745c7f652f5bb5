"""Dense attention, full or causal, of one head size and length: a problem for any contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from iocourse.bench import Row
from iocourse.gpu.roofline import flops, tflops

from .contenders import Contender
from .judging import Goal, Layout, compared
from .place import Place
from .trial import Given, Keep, normal, times_of
from .trial import Shape as AnyShape
from .values import exact_head, not_later

if TYPE_CHECKING:
    from torch import Tensor

    from .values import Pairs

TOKENS = 16384
WIDTH = 2048  # H · d, or as near below as whole heads come


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


class Drawn:
    """q, k, v and dO (B, H, N, d), normal; the last head of the last batch is held against float64."""

    def __init__(self, shape: AnyShape, place: Place, seed: int) -> None:
        """Draw them from the seed."""
        one = shape._asdict()
        q, k, v, self._do = normal((one["B"], one["H"], one["N"], one["d"]), 4, shape.dtype, place, seed)
        self._inputs = (q.requires_grad_(), k.requires_grad_(), v.requires_grad_())

    def given(self, contender: str) -> Given:
        """The same for everyone."""
        return Given(self._inputs, self._do, lambda x: x[-1, -1])

    def exact(self, seen: Pairs | None) -> Mapping[str, Tensor]:
        """O, dQ, dK, dV (N, d) of the last head in float64."""
        q, k, v = (x[-1, -1] for x in self._inputs)
        return exact_head(q, k, v, self._do[-1, -1], seen)


class Heads(Drawn):
    """Dense attention, full or causal."""

    def __init__(self, shape: Shape, place: Place, seed: int) -> None:
        """Draw it from the seed."""
        super().__init__(shape, place, seed)
        self._shape, self.seen = shape, shape.causal

    def reference(self) -> Mapping[str, Tensor]:
        """O, dQ, dK, dV (N, d) of the last head."""
        return self.exact(not_later if self._shape.causal else None)

    def figures(self, pass_: str, ms: float) -> Row:
        """TFLOP/s: 4·B·H·N²·d FLOP forward, 2.5 times that backward, half of it if causal."""
        one = self._shape
        work = flops(pass_, B=one.B, H=one.H, N=one.N, d=one.d, causal=one.causal)
        return {"tflops": tflops(work, ms)}


def dense_record(
    subject: str, asked: Sequence[Shape], field: Mapping[str, Contender], place: Place, layout: Layout,
    goals: Sequence[Goal], quick: bool, keep: Keep | None,
) -> Row:  # fmt: skip
    """The record of dense attention: times of every shape asked for, compared and judged."""

    def judge(record: Row) -> Row:
        return {"quick": quick} | compared(record, layout, goals)

    return times_of(subject, asked, Heads, field, place, judge=judge, keep=keep)
