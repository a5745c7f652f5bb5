"""Sequences of different lengths on a GPU: packed one behind the other, beside padded ones.

Padding to the longest sequence multiplies the work; `saved` says how often, in FLOP. A packed kernel that is
as good as the padded one is faster by all of it; the figure is the part it reaches, speedup / saved. All is
causal, so that padding at the end changes no result. TFLOP/s count the pairs within the sequences, whoever
computes more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from iocourse.bench import Row
from iocourse.gpu.roofline import TIMES_FORWARD, tflops

from .gpu.contenders import CUDNN, FLASH, OURS, Contender, sdpa
from .gpu.dense import WIDTH
from .gpu.judging import PASSES, Goal, Layout, compared, judged
from .gpu.place import Place, cuda_place
from .gpu.text import text
from .gpu.trial import Given, Keep, normal, times_of
from .gpu.values import exact_head, not_later

if TYPE_CHECKING:
    from torch import Tensor

NAME = "varlen"
HELP = "packed sequences on a GPU beside padded ones: speedup, and padding saved (needs CUDA)"
HEADS = (64, 128)
SEQUENCES = 16
SHORTEST, LONGEST = 128, 8192
KINDS = ("log-uniform", "uniform", "equal")
SEED = 0  # of the lengths, which are the same in every run
PADDED = (FLASH, CUDNN)
PACKED = "varlen_attn"  # PyTorch's own
LAYOUT = Layout(
    ("dtype", "d", "pass"), ("lengths",), "tflops", "TFLOP/s",
    (("saved", "padding saved"), ("ratio", "ours / padded"), ("of_saved", "of it")), FLASH,
    len(KINDS), "one head of the last sequence of every shape",
)  # fmt: skip
GOALS = tuple(
    Goal(
        f"{pass_}, d = {d}: speedup against padded {FLASH} / padding saved", {"pass": pass_, "d": d},
        0.9, 0.75, len(KINDS), figure="of_saved",
    )
    for pass_ in PASSES
    for d in HEADS
)  # fmt: skip


class Shape(NamedTuple):
    """One problem: `sequences` sequences, their lengths drawn as `lengths` says, H heads of size d."""

    dtype: str
    d: int
    H: int
    lengths: str
    sequences: int
    shortest: int
    longest: int


def shapes(quick: bool) -> list[Shape]:
    """Every problem of a run; with `quick` the log-uniform one of d = 128."""
    heads, kinds = ((128,), KINDS[:1]) if quick else (HEADS, KINDS)
    return [
        Shape("bfloat16", d, WIDTH // d, kind, SEQUENCES, SHORTEST, LONGEST) for d in heads for kind in kinds
    ]


def drawn(shape: Shape) -> list[int]:
    """The lengths: log-uniform or uniform between the two limits, or equal, a quarter of the longest."""
    if shape.lengths == "equal":
        return [shape.longest // 4] * shape.sequences
    source = np.random.default_rng(SEED)
    if shape.lengths == "uniform":
        return [int(n) for n in source.integers(shape.shortest, shape.longest + 1, shape.sequences)]
    exponents = source.uniform(log(shape.shortest), log(shape.longest), shape.sequences)
    return [round(float(n)) for n in np.exp(exponents)]


def pairs(lengths: Sequence[int]) -> int:
    """Pairs of a query and a key that is not later, within each sequence."""
    return sum(n * (n + 1) // 2 for n in lengths)


def saved(lengths: Sequence[int]) -> float:
    """FLOP with every sequence as long as the longest, over FLOP without padding."""
    return pairs([max(lengths)] * len(lengths)) / pairs(lengths)


class Packed(NamedTuple):
    """What contenders are told: where each sequence begins, and the longest length."""

    cu: Tensor
    longest: int


class Sequences:
    """q, k, v and dO, normal, packed (T, H, d) and padded (sequences, H, longest, d), the same numbers."""

    def __init__(self, shape: Shape, place: Place, seed: int) -> None:
        """Draw them from the seed."""
        import torch

        self._shape, self._lengths = shape, drawn(shape)
        starts = [sum(self._lengths[:s]) for s in range(len(self._lengths) + 1)]
        arrays = normal((starts[-1], shape.H, shape.d), 4, shape.dtype, place, seed)
        wide = [self._with_padding(x, starts) for x in arrays]
        n = self._lengths[-1]
        self._packed = _given(arrays, lambda x: x[-n:, -1])
        self._padded = _given(wide, lambda x: x[-1, -1, :n])
        cu = torch.tensor(starts, dtype=torch.int32, device=place.device)
        self.seen = Packed(cu, max(self._lengths))

    def _with_padding(self, x: Tensor, starts: Sequence[int]) -> Tensor:
        """(T, H, d) as (sequences, H, longest, d), with zeros behind each sequence."""
        wide = x.new_zeros(len(self._lengths), x.shape[1], max(self._lengths), x.shape[2])
        for s, n in enumerate(self._lengths):
            wide[s, :, :n] = x[starts[s] : starts[s] + n].transpose(0, 1)
        return wide

    def given(self, contender: str) -> Given:
        """Padded for those who need it, packed for the others."""
        return self._padded if contender in PADDED else self._packed

    def reference(self) -> Mapping[str, Tensor]:
        """O, dQ, dK, dV (n, d) of the last head of the last sequence."""
        one, part = self._packed, self._packed.part
        q, k, v = (part(x) for x in one.inputs)
        return exact_head(q, k, v, part(one.do), not_later)

    def figures(self, pass_: str, ms: float) -> Row:
        """TFLOP/s of the pairs there are, tokens, and the FLOP and tokens that padding would multiply."""
        tokens, padded = sum(self._lengths), max(self._lengths) * len(self._lengths)
        work = TIMES_FORWARD[pass_] * 4.0 * self._shape.H * self._shape.d * pairs(self._lengths)
        facts = {"tokens": tokens, "saved": saved(self._lengths), "tokens_saved": padded / tokens}
        return facts | {"tflops": tflops(work, ms)}


def _given(arrays: Sequence[Tensor], part: Callable[[Tensor], Tensor]) -> Given:
    q, k, v, do = arrays
    return Given((q.requires_grad_(), k.requires_grad_(), v.requires_grad_()), do, part)


def contenders() -> dict[str, Contender]:
    """Everyone by name, ours first: packed, PyTorch's own packed kernel, and padded."""

    def padded(name: str, q: Tensor, k: Tensor, v: Tensor, seen: Packed) -> Tensor:
        return sdpa(name, q, k, v, True)

    return {OURS: _ours, PACKED: _varlen_attn} | {name: partial(padded, name) for name in PADDED}


def _ours(q: Tensor, k: Tensor, v: Tensor, seen: Packed) -> Tensor:
    from iocourse.kernels import attention_varlen

    return attention_varlen(q, k, v, seen.cu, seen.cu, longest=(seen.longest, seen.longest), causal=True)


def _varlen_attn(q: Tensor, k: Tensor, v: Tensor, seen: Packed) -> Tensor:
    """FlashAttention for packed sequences, which newer versions of PyTorch have."""
    from torch.nn.attention.varlen import varlen_attn

    o: Tensor = varlen_attn(q, k, v, seen.cu, seen.cu, seen.longest, seen.longest, window_size=(-1, 0))
    return o


def run(quick: bool, keep: Keep | None = None) -> Row:
    """Time every contender at every shape; `quick`: one batch of lengths at d = 128, and no goal is judged.

    Raises Refused where there is no GPU, or kernels are interpreted.
    """
    place = cuda_place(NAME)
    return measured(shapes(quick), contenders(), place, quick=quick, keep=keep)


def measured(
    asked: Sequence[Shape], field: Mapping[str, Contender], place: Place, *, quick: bool = False,
    keep: Keep | None = None,
) -> Row:  # fmt: skip
    """The record: lengths, rows, errors, means and goals of every shape asked for, on this place."""
    about = {"quick": quick, "lengths": {shape.lengths: drawn(shape) for shape in asked}}

    def judge(record: Row) -> Row:
        record = compared(record, LAYOUT, ())
        rows = [_with_part(row) for row in record["rows"]]
        return about | record | {"rows": rows, "goals": judged(rows, GOALS)}

    return times_of(NAME, asked, Sequences, field, place, judge=judge, keep=keep)


def _with_part(row: Row) -> Row:
    """`of_saved`: how much of the padding saved is speed gained, where the rival has a time too."""
    if row.get("ratio") is None:
        return row
    return row | {"of_saved": row["ratio"] / row["saved"]}


def show(result: Row) -> str:
    """TFLOP/s, means, errors, refusals, the goals, and where it was measured."""
    return text(result, LAYOUT)
