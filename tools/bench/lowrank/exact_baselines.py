"""Exact softmax attention on the CPU: fast baselines for times, and accurate references for errors.

Scores are q·k, not scaled again, as in the published protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.lowrank.error_certificates import machine_memory
from tools.bench.lowrank.timing import lap

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_WORDS = (2**15, 2**16, 2**17, 2**18)  # scores in memory at a time, sizes that fit in the caches
WHOLE_TO = 5120  # n up to which the complete matrix of scores is also tried
TRIED_ROWS = 1024  # queries with which the fastest block size is found
FLOAT64_TO = 5120  # n up to which the reference is float64; beyond that it is SDPA in float32
LARGE, LARGE_MEMORY = 40_960, 12 * 10**9  # from this n on, in-place is skipped if there are fewer bytes


class InPlace:
    """In-place softmax attention exp(QKᵀ) V / sums, without a running maximum and without allocations.

    A block of rows of scores is computed, exponentiated in place, summed and multiplied by V.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, block: int) -> None:
        """Allocate the buffers for `block` rows of scores."""
        import torch

        self._q, self._kt, self._v = q, k.T, v
        self._scores = torch.empty(min(block, len(q)), len(k))
        self._sums = torch.ones(len(q), 1)
        self._o = torch.empty(len(q), v.shape[1])

    def __call__(self, rows: int | None = None) -> Tensor:
        """Compute O (n, d), or only its first `rows` rows."""
        import torch

        for some in _blocks(rows or len(self._q), len(self._scores)):
            scores, sums, o = self._exponentials(some), self._sums[some], self._o[some]
            torch.sum(scores, 1, keepdim=True, out=sums)
            torch.mm(scores, self._v, out=o)
            o.div_(sums)
        return self._o

    def _exponentials(self, some: slice) -> Tensor:
        import torch

        scores = self._scores[: some.stop - some.start]
        return torch.mm(self._q[some], self._kt, out=scores).exp_()


def _blocks(n: int, step: int) -> list[slice]:
    return [slice(at, min(at + step, n)) for at in range(0, n, step)]


class InPlaceGradient:
    """In-place gradient of softmax attention without allocations; each score is computed once.

    One buffer has the weights of a block of rows and another their gradients. From these the block's O and dQ
    and its part of dK and dV are computed. dO must be known in advance, which autograd cannot assume.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, do: Tensor, block: int) -> None:
        """Allocate the buffers for `block` rows of weights."""
        import torch

        self._q, self._k, self._v, self._do = q, k, v, do
        self._weights, self._changes = (torch.empty(min(block, len(q)), len(k)) for _ in range(2))
        self._sums = torch.empty(min(block, len(q)), 1)
        self._o, self._dq, self._dk, self._dv = (torch.empty_like(x) for x in (do, q, k, v))

    def __call__(self, rows: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Compute dQ, dK, dV (n, d), or only the part from the first `rows` rows of Q."""
        self._dk.zero_()
        self._dv.zero_()
        for some in _blocks(rows or len(self._q), len(self._weights)):
            self._block(some)
        return self._dq, self._dk, self._dv

    def _block(self, some: slice) -> None:
        import torch

        count = some.stop - some.start
        weights, changes, sums = self._weights[:count], self._changes[:count], self._sums[:count]
        do, o = self._do[some], self._o[some]
        torch.mm(self._q[some], self._k.T, out=weights)
        torch.sum(weights.exp_(), 1, keepdim=True, out=sums)
        weights.div_(sums)
        torch.mm(weights, self._v, out=o)
        self._dv.addmm_(weights.T, do)
        torch.mm(do, self._v.T, out=changes)
        torch.sum(o.mul_(do), 1, keepdim=True, out=sums)
        changes.sub_(sums).mul_(weights)
        torch.mm(changes, self._k, out=self._dq[some])
        self._dk.addmm_(changes.T, self._q[some])


InPlaceWork = InPlace | InPlaceGradient


class Best(NamedTuple):
    """The fastest in-place exact attention, or None if it is skipped, and a note on its block or the skip."""

    attend: Callable[[], Any] | None
    note: str


def best_in_place(q: Tensor, k: Tensor, v: Tensor, memory: int | None = None) -> Best:
    """Return in-place softmax attention with the block size that is fastest here; memory: in bytes."""
    return _best(partial(InPlace, q, k, v), len(q), len(k), memory)


def best_gradient(q: Tensor, k: Tensor, v: Tensor, do: Tensor, memory: int | None = None) -> Best:
    """Return the in-place gradient with the block size that is fastest here; memory: in bytes."""
    return _best(partial(InPlaceGradient, q, k, v, do), len(q), len(k), memory)


def _best(make: Callable[[int], InPlaceWork], n: int, n_k: int, memory: int | None) -> Best:
    memory = machine_memory() if memory is None else memory
    if n >= LARGE and memory < LARGE_MEMORY:
        return Best(None, f"skipped at n = {n:,}, which wants 12 GB of memory; here are {memory / 1e9:.1f}")
    blocks = {max(1, min(n, words // n_k)) for words in BLOCK_WORDS} | ({n} if n <= WHOLE_TO else set())
    tried = {block: make(block) for block in sorted(blocks)}
    took = {block: _seconds_a_row(one, n, block) for block, one in tried.items()}
    block = min(took, key=lambda one: took[one])
    return Best(tried[block], "the whole matrix" if block == n else f"{block:,} rows of scores at a time")


def _seconds_a_row(attend: InPlaceWork, n: int, block: int) -> float:
    """Return the minimum of three runs in seconds per row; of long inputs only some rows are computed."""
    rows = min(n, max(TRIED_ROWS, block))
    return min(lap(partial(attend, rows)) for _ in range(3)) / rows


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Call PyTorch's scaled_dot_product_attention on one head (n, d) without scaling the scores."""
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (x[None, None] for x in (q, k, v))
    found: Tensor = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)[0, 0]
    return found


def truth(q: Tensor, k: Tensor, v: Tensor, do: Tensor | None = None, causal: bool = False) -> list[Tensor]:
    """Return [O], or [O, dQ, dK, dV] if dO is given, of exact softmax attention; float64 up to n = 5120."""
    import torch

    kind = torch.float64 if len(q) <= FLOAT64_TO else torch.float32
    inputs = [x.to(kind, copy=True).requires_grad_(do is not None) for x in (q, k, v)]
    o = sdpa(inputs[0], inputs[1], inputs[2], causal)
    if do is None:
        return [o]
    return [o.detach(), *torch.autograd.grad(o, inputs, do.to(kind))]


def sampled_truth(q: Tensor, k: Tensor, v: Tensor, do: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return O and dQ (rows, d) of some queries in float64, computed one query at a time."""
    import torch

    k, v = k.double(), v.double()
    o, dq = (torch.empty(len(rows), x.shape[1], dtype=torch.float64) for x in (v, k))
    for at, row in enumerate(rows.tolist()):
        p = (k @ q[row].double()).softmax(0)
        o[at] = p @ v
        g = do[row].double()
        dq[at] = (p * (v @ g - o[at] @ g)) @ k
    return o, dq


# --- stand-in for the runs of another change: to be replaced by it at the merge ----------------------------
def forward_runs(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> dict[str, Callable[[], object]]:
    """Return exact forward passes by name."""
    runs: dict[str, Callable[[], object]] = {"SDPA": partial(sdpa, q, k, v, causal)}
    if q.shape[1] % 16:
        runs["SDPA, padded"] = partial(_padded, q, k, v, causal)
    if not causal and (best := best_in_place(q, k, v)).attend:
        runs["in place"] = best.attend
    return runs


def gradient_runs(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool = False
) -> dict[str, Callable[[], object]]:
    """Return exact forward and backward passes by name."""
    import torch

    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    runs: dict[str, Callable[[], object]] = {
        "SDPA": lambda: torch.autograd.grad(sdpa(*inputs, causal), inputs, do)
    }
    if q.shape[1] % 16:
        runs["SDPA, padded"] = lambda: torch.autograd.grad(_padded(*inputs, causal), inputs, do)
    if not causal and (best := best_gradient(q, k, v, do)).attend:
        runs["in place"] = best.attend
    return runs


def _padded(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    from torch.nn.functional import pad

    d = q.shape[1]
    return sdpa(*(pad(x, (0, -d % 16)) for x in (q, k, v)), causal)[:, :d]
