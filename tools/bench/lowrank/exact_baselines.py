"""Exact softmax attention on the CPU: fast baselines for times, and accurate references for errors.

Scores are q·k, not scaled again, as in the published protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from iocourse.lowrank.error_certificates import machine_memory
from tools.bench.lowrank import exact_kernel
from tools.bench.lowrank.timing import Work, lap

if TYPE_CHECKING:
    from torch import Tensor

SDPA, PADDED, IN_PLACE = "SDPA", "SDPA, padded", "in place"
PADDED_TO = 16  # columns; SDPA is slow for the columns beyond the last multiple of this number
BLOCK_WORDS = (2**15, 2**16, 2**17, 2**18)  # scores in memory at a time, sizes that fit in the caches
WHOLE_TO = 5120  # n up to which the complete matrix of scores is also tried
TRIED_ROWS = 1024  # queries with which the fastest block size is found
FLOAT64_TO = 5120  # n up to which the reference is float64; beyond that it is SDPA in float32
LARGE, LARGE_MEMORY = 40_960, 12 * 10**9  # from this n on, in-place is skipped if there are fewer bytes

InPlace = Callable[..., Any]  # takes a number of rows, by default all


def forward_runs(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> dict[str, Work]:
    """Return the exact runs of the forward pass by name: complete calls, but the padding is not timed.

    In-place runs would also compute the masked half of the pairs, so there are none with a causal mask.
    Compiled loops, on one thread, need Numba and scores within their range.
    """
    kernel = partial(exact_kernel.forward, causal=causal)
    return _runs((q, k, v), causal, partial(partial, sdpa, causal=causal), in_place, kernel)


def gradient_runs(q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool = False) -> dict[str, Work]:
    """Return the exact runs of both passes by name, as in `forward_runs`."""
    kernel = partial(exact_kernel.gradient, causal=causal)
    return _runs((q, k, v, do), causal, partial(_by_autograd, causal=causal), in_place_gradient, kernel)


def _runs(
    inputs: Sequence[Tensor], causal: bool, by_torch: Callable[..., Work],
    made_in_place: Callable[..., InPlace], kernel: Callable[..., Any],
) -> dict[str, Work]:  # fmt: skip
    q, k, v = inputs[:3]
    runs = {SDPA: by_torch(*inputs)}
    if q.shape[1] % PADDED_TO or v.shape[1] % PADDED_TO:
        runs[PADDED] = by_torch(*map(padded, inputs))
    if not causal and fits(len(q)):
        runs[IN_PLACE] = fastest(partial(made_in_place, *inputs), len(q), len(k))
    arrays = [x.detach().numpy() for x in inputs]
    if exact_kernel.installed() and exact_kernel.score_bound(*arrays[:2]) <= exact_kernel.MOST:
        runs[exact_kernel.NAME] = partial(kernel, *arrays)
    return runs


def padded(x: Tensor) -> Tensor:
    """Return x with columns of zeros up to a multiple of PADDED_TO, which change no score."""
    from torch.nn.functional import pad

    return pad(x, (0, -x.shape[1] % PADDED_TO))


def _by_autograd(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool) -> Work:
    import torch

    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    return lambda: torch.autograd.grad(sdpa(inputs[0], inputs[1], inputs[2], causal), inputs, do)


def in_place(q: Tensor, k: Tensor, v: Tensor, block: int) -> InPlace:
    """Return in-place attention exp(QKᵀ) V / sums, without a running maximum and without allocations.

    A block of rows of scores is computed, exponentiated in place, summed and multiplied by V.
    """
    import torch

    scores = torch.empty(min(block, len(q)), len(k))
    sums, o = torch.empty(len(q), 1), torch.empty(len(q), v.shape[1])

    def run(rows: int = len(q)) -> Tensor:
        for at in range(0, rows, block):
            some = slice(at, min(at + block, rows))
            weights = torch.mm(q[some], k.T, out=scores[: some.stop - at]).exp_()
            torch.sum(weights, 1, keepdim=True, out=sums[some])
            torch.mm(weights, v, out=o[some]).div_(sums[some])
        return o

    return run


def in_place_gradient(q: Tensor, k: Tensor, v: Tensor, do: Tensor, block: int) -> InPlace:
    """Return the in-place gradient (dQ, dK, dV) without allocations; each score is computed once.

    One buffer has the weights of a block of rows and another their gradients. From these the block's O and dQ
    and its part of dK and dV are computed. dO must be known in advance, which autograd cannot assume.
    """
    import torch

    both = torch.empty(2, min(block, len(q)), len(k))
    all_sums = torch.empty(min(block, len(q)), 1)
    o, dq, dk, dv = (torch.empty_like(x) for x in (do, q, k, v))

    def run(rows: int = len(q)) -> tuple[Tensor, Tensor, Tensor]:
        dk.zero_()
        dv.zero_()
        for at in range(0, rows, block):
            some = slice(at, min(at + block, rows))
            (weights, changes), sums = both[:, : some.stop - at], all_sums[: some.stop - at]
            torch.mm(q[some], k.T, out=weights)
            torch.sum(weights.exp_(), 1, keepdim=True, out=sums)
            weights.div_(sums)
            torch.mm(weights, v, out=o[some])
            dv.addmm_(weights.T, do[some])
            torch.mm(do[some], v.T, out=changes)
            torch.sum(o[some].mul_(do[some]), 1, keepdim=True, out=sums)
            changes.sub_(sums).mul_(weights)
            torch.mm(changes, k, out=dq[some])
            dk.addmm_(changes.T, q[some])
        return dq, dk, dv

    return run


def fits(n: int, memory: int | None = None) -> bool:
    """Return False if in-place attention of n tokens is skipped; memory: bytes of the machine."""
    return n < LARGE or (machine_memory() if memory is None else memory) >= LARGE_MEMORY


def fastest(make: Callable[[int], InPlace], n: int, n_k: int) -> InPlace:
    """Return in-place attention, made by a number of rows per block, with the number that is fastest here."""
    blocks = {max(1, min(n, words // n_k)) for words in BLOCK_WORDS} | ({n} if n <= WHOLE_TO else set())
    took = {block: _seconds_a_row(make(block), n, block) for block in sorted(blocks)}
    return make(min(took, key=lambda block: took[block]))


def _seconds_a_row(attend: InPlace, n: int, block: int) -> float:
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
