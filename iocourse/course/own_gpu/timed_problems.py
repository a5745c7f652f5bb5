"""Problems on which `iocourse gpu` times kernels: inputs, exact values, FLOP, words and recorded runs.

Each is large enough to occupy a GPU. torch makes the inputs and the exact values, in float64, on the device
of the kernels. In forward passes one random row of every 64 is compared, because all would need N² words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ... import costs
from ...costs.kernel_masks import BlockLists
from ...costs.kernels import (
    KernelProblem,
    attention_forward,
    delta_plain,
    dkdv_plain,
    dq_plain,
    fused_backward_plain,
    ledger_bytes,
)
from ...data.records import load_record, record_source
from ...ledger import Ledger
from ..exercises.lesson13 import lists_of

# Allowed error over the largest entry. A float32 product with 10 explicit bits (TF32) has about 3e-4.
SINGLE, HALF = 2.0**-14, 2.0**-8
STEP = 64  # rows of which one is compared
Sizes = Mapping[str, int]
Tensor = Any  # torch is imported in the second process only
Errors = dict[str, float]


@dataclass(frozen=True)
class Inputs:
    """Arguments of a launcher, and the function that compares its results with the exact values."""

    arguments: tuple[Any, ...]
    errors: Callable[..., Errors]


@dataclass(frozen=True)
class Recorded:
    """A recorded run that can be compared, with its rate and source; or the reason why there is none."""

    text: str
    rate: float | None = None
    source: str = ""


@dataclass(frozen=True)
class TimedProblem:
    """The problem on which one exercise is timed.

    Attributes:
        results: names of the results, separated by spaces.
        sizes: sizes and tile, in the order in which they are printed.
        inputs: makes the inputs at these sizes on a device.
        words: closed form of the words that the kernels load and store.
        flop: FLOP of the products; None for kernels without products.
        recorded: the comparable run on the H200.
        dtype: type of the inputs, in torch's names.
        remark: what else determines the work, such as a mask.
        allowed: largest allowed error over the largest entry of a result.
    """

    results: str
    sizes: Sizes
    inputs: Callable[[Sizes, Draw], Inputs]
    words: Callable[[Sizes], Ledger]
    flop: Callable[[Sizes], float] | None
    recorded: Callable[[], Recorded]
    dtype: str = "float32"
    remark: str = ""
    allowed: float = SINGLE

    @property
    def unit(self) -> str:
        """Unit of the rate: TFLOP/s, or GB/s for kernels without products."""
        return "TFLOP/s" if self.flop else "GB/s"

    @property
    def text(self) -> str:
        """Type, sizes and remark in one line."""
        sizes = (f"{name} = {size:,}" for name, size in self.sizes.items())
        return ", ".join(filter(None, (self.dtype, *sizes, self.remark)))

    def requested_bytes(self, sizes: Sizes) -> int:
        """Return the bytes that the kernels request, by the closed form."""
        return ledger_bytes(self.words(sizes), 2 if self.dtype == "float16" else 4)


class Draw:
    """Random inputs on a device, the same in every run."""

    def __init__(self, device: str, dtype: str) -> None:
        import torch

        self.torch, self.device, self.dtype = torch, device, getattr(torch, dtype)
        self._generator = torch.Generator(device).manual_seed(10)

    def normal(self, *shape: int) -> Tensor:
        """Return a tensor of normal random numbers."""
        return self.torch.randn(shape, generator=self._generator, device=self.device).to(self.dtype)

    def rows(self, n: int) -> Tensor:
        """Return the indices of one random row of every 64."""
        first = self.torch.arange(0, n, STEP, device=self.device)
        more = self.torch.randint(STEP, first.shape, generator=self._generator, device=self.device)
        return (first + more).clamp(max=n - 1)


def compared(**pairs: tuple[Tensor, Tensor]) -> Errors:
    """Return the largest error over the largest entry, for each pair of a result and its exact values."""
    return {
        name: float((got.double() - exact).abs().max() / exact.abs().max())
        for name, (got, exact) in pairs.items()
    }


# ------------------------------------------------------------------ lesson 10
def _transpose_inputs(at: Sizes, draw: Draw) -> Inputs:
    X = draw.normal(at["rows"], at["columns"])
    return Inputs((X, at["BM"], at["BN"]), lambda Y: compared(Y=(Y, X.T)))


def _softmax_inputs(at: Sizes, draw: Draw) -> Inputs:
    X, rows = draw.normal(at["rows"], at["n"]), draw.rows(at["rows"])
    return Inputs((X, at["BLOCK"]), lambda Y: compared(Y=(Y[rows], X[rows].double().softmax(dim=1))))


def _product_inputs(at: Sizes, draw: Draw) -> Inputs:
    A, B, rows = draw.normal(at["m"], at["k"]), draw.normal(at["k"], at["n"]), draw.rows(at["m"])
    tile = at["BM"], at["BN"], at["BK"]
    return Inputs((A, B, *tile), lambda C: compared(C=(C[rows], A[rows].double() @ B.double())))


# ------------------------------------------------------------------ lessons 11 and 13: forward passes
def _forward_inputs(further: Callable[[Sizes], tuple[Any, ...]], at: Sizes, draw: Draw) -> Inputs:
    """Return Q, K, V and further arguments; with the size `window`, the last `window` keys are visible."""
    heads = [(at["B"], at[h]) if "B" in at else () for h in ("H", "H_kv", "H_kv")]
    Q, K, V = (draw.normal(*some, at["N"], at["d"]) for some in heads)
    more = (draw.torch.from_numpy(x).to(draw.device) if isinstance(x, np.ndarray) else x for x in further(at))
    rows = draw.rows(at["N"])
    before = rows[:, None] - draw.torch.arange(at["N"], device=draw.device)
    unseen = (before < 0) | (before >= at["window"]) if "window" in at else before < -at["N"]

    def errors(O: Tensor, LSE: Tensor | None = None) -> Errors:
        group = at["H"] // at["H_kv"] if "B" in at else 1
        k, v = (x.repeat_interleave(group, dim=-3) if group > 1 else x for x in (K.double(), V.double()))
        scores = Q[..., rows, :].double() @ k.transpose(-1, -2) * at["d"] ** -0.5
        scores = scores.masked_fill(unseen, float("-inf"))
        sums = {} if LSE is None else {"LSE": (LSE[rows], scores.logsumexp(dim=-1))}
        return compared(O=(O[..., rows, :], scores.softmax(dim=-1) @ v), **sums)

    return Inputs((Q, K, V, *more, at["BM"], at["BN"]), errors)


def _pairs(at: Sizes) -> Any:
    """Return the visible pairs (N, N) of a causal window, as a NumPy array."""
    return np.tri(at["N"], dtype=bool) & ~np.tri(at["N"], k=-at["window"], dtype=bool)


def _forward_words(at: Sizes) -> Ledger:
    band = {"low": 1 - at["window"], "high": 0} if "window" in at else {}
    heads = {name: at[name] for name in ("B", "H", "H_kv") if name in at}
    words = attention_forward(
        KernelProblem(at["N"], at["N"], at["d"], **band, **heads), BM=at["BM"], BN=at["BN"]
    )
    if heads:
        del words.writes["LSE"]  # exercise 11D does not store it
    return words


def _listed_words(at: Sizes) -> Ledger:
    problem = BlockLists(at["N"], at["N"], at["d"], pairs=_pairs(at)[None, None])
    return attention_forward(problem, BM=at["BM"], BN=at["BN"])


def _forward_flop(at: Sizes) -> float:
    """Return the FLOP of two products: 4d per visible pair."""
    N, window = at["N"], at.get("window", 0)
    pairs = sum(min(i + 1, window) for i in range(N)) if window else N**2
    return 4.0 * at.get("B", 1) * at.get("H", 1) * pairs * at["d"]


# ------------------------------------------------------------------ lesson 12: backward passes
def _row_products_inputs(at: Sizes, draw: Draw) -> Inputs:
    O, dO = (draw.normal(at["H"], at["N"], at["d"]) for _ in "OO")
    return Inputs((O, dO, at["BM"]), lambda D: compared(D=(D, (O.double() * dO.double()).sum(dim=2))))


def _backward_inputs(takes: str, returns: str, at: Sizes, draw: Draw) -> Inputs:
    """Return inputs of a kernel of the backward pass, (H, N, d) and (H, N); nothing is masked."""
    of = {name: draw.normal(at["H"], at["N"], at["d"]) for name in ("Q", "K", "V", "dO")}
    q, k, v = (of[name].double().requires_grad_() for name in "QKV")
    scores = q @ k.transpose(1, 2) * at["d"] ** -0.5
    O = scores.softmax(dim=2) @ v
    gradients = draw.torch.autograd.grad(O, (q, k, v), of["dO"].double())
    exact = dict(zip(("dQ", "dK", "dV"), gradients, strict=True)) | {"O": O.detach()}
    exact |= {"LSE": scores.detach().logsumexp(dim=2), "D": (exact["O"] * of["dO"]).sum(dim=2)}
    of |= {name: exact[name].to(draw.dtype) for name in ("O", "LSE", "D")}
    names = returns.split()

    def errors(*got: Tensor) -> Errors:
        return compared(**{name: (x, exact[name]) for name, x in zip(names, got, strict=True)})

    return Inputs((*(of[name] for name in takes.split()), at["BM"], at["BN"]), errors)


def _problem(at: Sizes) -> KernelProblem:
    return KernelProblem(at["N"], at["N"], at["d"], H=at["H"], H_kv=at["H"])


# ------------------------------------------------------------------ recorded runs
def _copy() -> Recorded:
    record = load_record("roofs")
    if record is None:
        return Recorded("not recorded")
    size = record["problem"].partition("copy of ")[2].partition(",")[0]
    text = f"torch copies {size} (no kernel of this exercise)"
    return Recorded(text, 1000 * record["copy_tb_s"], record_source(record))


def _answer(name: str, what: str) -> Recorded:
    """Return the recorded forward pass of this name; `what` describes it for students."""
    record = load_record("answers") or {"rows": []}
    row = next((one for one in record["rows"] if one["answer"] == name), None)
    if row is None:
        return Recorded("not recorded")
    return Recorded(f"{what}: {row['ms']:.3f} ms", row["tflops"], record_source(record))


def _not_recorded() -> Recorded:
    return Recorded("not recorded in float32")


# ------------------------------------------------------------------ the problems
Further = Callable[[Sizes], tuple[Any, ...]]
Words = Callable[[Sizes], Ledger]
_SINGLE = {"N": 8192, "d": 64, "BM": 64, "BN": 32}
_WINDOW = {"N": 8192, "d": 64, "window": 1024, "BM": 64, "BN": 32}
_HALF = {"N": 32768, "d": 64, "BM": 128, "BN": 64}
_single = partial(_answer, "float32 ieee 64x32 w4", "a float32 forward kernel of this size and tile")
_reference = partial(_answer, "reference", "the reference answer of 11F")


def _forward(
    sizes: Sizes, further: Further, results: str = "O LSE", words: Words = _forward_words,
    recorded: Callable[[], Recorded] = _not_recorded, remark: str = "not causal", **more: Any,
) -> TimedProblem:  # fmt: skip
    inputs = partial(_forward_inputs, further)
    return TimedProblem(results, sizes, inputs, words, _forward_flop, recorded, remark=remark, **more)


def _backward(takes: str, returns: str, form: Callable[..., Ledger], products: int) -> TimedProblem:
    return TimedProblem(
        returns,
        {"H": 8, "N": 2048, "d": 64, "BM": 32, "BN": 32},
        partial(_backward_inputs, takes, returns),
        lambda at: form(_problem(at), at["BM"], at["BN"]),
        lambda at: 2.0 * products * at["H"] * at["N"] ** 2 * at["d"],
        _not_recorded,
        remark=f"not causal, {products} products",
    )


PROBLEMS: dict[str, TimedProblem] = {
    "10B": TimedProblem(
        "Y", {"rows": 8192, "columns": 8192, "BM": 64, "BN": 64}, _transpose_inputs,
        lambda at: Ledger({"X": at["rows"] * at["columns"]}, {"Y": at["rows"] * at["columns"]}),
        None, _copy, allowed=0.0,
    ),
    "10C": TimedProblem(
        "Y", {"rows": 4096, "n": 16384, "BLOCK": 2048}, _softmax_inputs,
        lambda at: Ledger({"X": 2 * at["rows"] * at["n"]}, {"Y": at["rows"] * at["n"]}), None, _copy,
    ),
    "10D": TimedProblem(
        "C", {"m": 4096, "n": 4096, "k": 4096, "BM": 64, "BN": 64, "BK": 32}, _product_inputs,
        lambda at: costs.matmul(at["m"], at["n"], at["k"], bm=at["BM"], bn=at["BN"]),
        lambda at: 2.0 * at["m"] * at["n"] * at["k"], _not_recorded,
    ),
    "11A": _forward(_SINGLE, lambda at: (), recorded=_single),
    "11B": _forward(_SINGLE, lambda at: (False,), recorded=_single),
    "11C": _forward(_WINDOW, lambda at: (1 - at["window"], 0), remark="causal"),
    "11D": _forward(
        {"B": 2, "H": 8, "H_kv": 2, "N": 2048, "d": 64, "BM": 64, "BN": 32}, lambda at: (), results="O"
    ),
    "11F": _forward(_HALF, lambda at: (False,), recorded=_reference, dtype="float16", allowed=HALF),
    "12A": TimedProblem(
        "D", {"H": 64, "N": 4096, "d": 64, "BM": 32}, _row_products_inputs,
        lambda at: delta_plain(_problem(at)), None, _copy,
    ),
    "12B": _backward("Q K V O dO LSE", "dQ D", dq_plain, 3),
    "12C": _backward("Q K V dO LSE D", "dK dV", dkdv_plain, 4),
    "12D": _backward("Q K V O dO LSE", "dQ dK dV", fused_backward_plain, 5),
    "13C": _forward(
        _WINDOW, lambda at: lists_of(_pairs(at), at["BM"], at["BN"]), words=_listed_words,
        remark="causal, as lists",
    ),
}  # fmt: skip
