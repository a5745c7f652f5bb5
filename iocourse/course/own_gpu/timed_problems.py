"""Problems on which the kernels of lessons 10 to 13 are timed: inputs, exact values, FLOP, words and records.

Each problem is large enough to occupy a GPU. Values are compared at the timed size, with exact attention in
float64 in one random row of every 64; other rows must be finite. Inputs and references are made by torch on
the device of the kernels, so they need no second copy on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

# Largest error over the largest entry. A float32 product with 10 explicit bits (TF32) has about 3e-4.
SINGLE, HALF = 2.0**-14, 2.0**-8
GROUP = 64  # rows per sampled row
Sizes = Mapping[str, int]
Tensor = Any  # torch is imported in the second process only
Errors = dict[str, tuple[float, float]]  # largest error and largest entry, by result


@dataclass(frozen=True)
class Inputs:
    """Arguments of a launcher, and the function that compares its results with exact values."""

    arguments: tuple[Any, ...]
    errors: Callable[..., Errors]


@dataclass(frozen=True)
class Recorded:
    """A recorded measurement that can be compared: its text, rate and source; or why there is none."""

    text: str
    rate: float | None = None
    source: str = ""


@dataclass(frozen=True)
class TimedProblem:
    """The problem on which one exercise is timed.

    Attributes:
        results: names of the results, separated by spaces.
        sizes: sizes of the timed problem, in the order in which they are printed.
        inputs: makes the inputs at these sizes on a device.
        words: closed form of the words that the kernels load and store.
        flop: FLOP of the products; None for kernels without products.
        recorded: the comparable measurement on the H200.
        dtype: type of the inputs, in torch's names.
        remark: further facts about the problem, such as its mask.
        allowed: largest error over the largest entry of a result.
        small: sizes for the interpreter, in which tests run the problem.
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
    small: Sizes = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Type, sizes and remark in one line."""
        sizes = (f"{name} = {size:,}" for name, size in self.sizes.items())
        return ", ".join(filter(None, (self.dtype, *sizes, self.remark)))

    def requested_bytes(self, sizes: Sizes) -> int:
        """Return the bytes that the kernels request, by the closed form."""
        return ledger_bytes(self.words(sizes), 2 if self.dtype == "float16" else 4)


@dataclass
class Draw:
    """Normal random tensors on a device, equal in every run."""

    device: str
    dtype: str = "float32"

    def __post_init__(self) -> None:
        import torch

        self._torch = torch
        self._generator = torch.Generator(self.device).manual_seed(10)

    def normal(self, *shape: int) -> Tensor:
        """Return a tensor of normal random numbers."""
        made = self._torch.randn(shape, generator=self._generator, device=self.device)
        return made.to(getattr(self._torch, self.dtype))

    def rows(self, n: int) -> Tensor:
        """Return one random row of every `GROUP`, and the last row."""
        first = self._torch.arange(0, n, GROUP, device=self.device)
        step = self._torch.randint(GROUP, first.shape, generator=self._generator, device=self.device)
        last = self._torch.tensor([n - 1], device=self.device)
        return self._torch.cat([(first + step).clamp(max=n - 1), last])


def compared(**pairs: tuple[Tensor, Tensor]) -> Errors:
    """Return the largest error and the largest entry of each pair of a result and its exact values."""
    return {
        name: (float((got.double() - want).abs().max()), float(want.abs().max()))
        for name, (got, want) in pairs.items()
    }


# ------------------------------------------------------------------ lesson 10
def _transpose_inputs(at: Sizes, draw: Draw) -> Inputs:
    X = draw.normal(at["rows"], at["columns"])
    return Inputs((X, at["BM"], at["BN"]), lambda Y: {"Y": (float((Y - X.T).abs().max()), 1.0)})


def _softmax_inputs(at: Sizes, draw: Draw) -> Inputs:
    X, rows = draw.normal(at["rows"], at["n"]), draw.rows(at["rows"])

    def errors(Y: Tensor) -> Errors:
        sums = Y.sum(dim=1)
        exact = X[rows].double().softmax(dim=1)
        return compared(Y=(Y[rows], exact)) | compared(sums=(sums, sums.double().new_ones(sums.shape)))

    return Inputs((X, at["BLOCK"]), errors)


def _product_inputs(at: Sizes, draw: Draw) -> Inputs:
    A, B, rows = draw.normal(at["m"], at["k"]), draw.normal(at["k"], at["n"]), draw.rows(at["m"])
    tile = at["BM"], at["BN"], at["BK"]
    return Inputs((A, B, *tile), lambda C: compared(C=(C[rows], A[rows].double() @ B.double())))


# ------------------------------------------------------------------ lessons 11 and 13: forward passes
def exact_rows(Q: Tensor, K: Tensor, V: Tensor, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return rows of O and LSE in float64 for some rows of Q, (…, rows, d); seen: the visible pairs."""
    q, k, v = Q.double(), K.double(), V.double()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(dim=-1) @ v, scores.logsumexp(dim=-1)


def _band(at: Sizes) -> tuple[int, int]:
    return 1 - at["window"], 0


def _lists(at: Sizes) -> tuple[Any, ...]:
    return lists_of(_pairs(at), at["BM"], at["BN"])


def _pairs(at: Sizes) -> Any:
    """Return the Boolean pairs (N, N) of a causal window."""
    return np.tri(at["N"], dtype=bool) & ~np.tri(at["N"], k=-at["window"], dtype=bool)


def _forward_inputs(between: Callable[[Sizes], tuple[Any, ...]], at: Sizes, draw: Draw) -> Inputs:
    """Return Q, K, V (N, d) and further arguments; with the size `window`, a causal window is visible."""
    import torch

    Q, K, V = (draw.normal(at["N"], at["d"]) for _ in "QKV")
    rows = draw.rows(at["N"])
    before = rows[:, None] - torch.arange(at["N"], device=draw.device)
    seen = (before >= 0) & (before < at["window"]) if "window" in at else None
    more = (torch.from_numpy(x).to(draw.device) if isinstance(x, np.ndarray) else x for x in between(at))

    def errors(O: Tensor, LSE: Tensor) -> Errors:
        exact = exact_rows(Q[rows], K, V, seen)
        return compared(O=(O[rows], exact[0]), LSE=(LSE[rows], exact[1]))

    return Inputs((Q, K, V, *more, at["BM"], at["BN"]), errors)


def _heads_inputs(at: Sizes, draw: Draw) -> Inputs:
    Q = draw.normal(at["B"], at["H"], at["N"], at["d"])
    K, V = (draw.normal(at["B"], at["H_kv"], at["N"], at["d"]) for _ in "KV")
    rows, group = draw.rows(at["N"]), at["H"] // at["H_kv"]

    def errors(O: Tensor) -> Errors:
        of_heads = (x.repeat_interleave(group, dim=1) for x in (K, V))
        return compared(O=(O[:, :, rows], exact_rows(Q[:, :, rows], *of_heads)[0]))

    return Inputs((Q, K, V, at["BM"], at["BN"]), errors)


def _forward_words(at: Sizes) -> Ledger:
    low, high = _band(at) if "window" in at else (None, None)
    heads = {name: at[name] for name in ("B", "H", "H_kv") if name in at}
    problem = KernelProblem(at["N"], at["N"], at["d"], low=low, high=high, **heads)
    words = attention_forward(problem, BM=at["BM"], BN=at["BN"])
    if heads:
        del words.writes["LSE"]  # exercise 11D does not store it
    return words


def _listed_words(at: Sizes) -> Ledger:
    problem = BlockLists(at["N"], at["N"], at["d"], pairs=_pairs(at)[None, None])
    return attention_forward(problem, BM=at["BM"], BN=at["BN"])


def _forward_flop(at: Sizes) -> float:
    """Return 4d FLOP per visible pair: two products."""
    pairs = sum(min(i + 1, at["window"]) for i in range(at["N"])) if "window" in at else at["N"] ** 2
    return 4.0 * at.get("B", 1) * at.get("H", 1) * pairs * at["d"]


# ------------------------------------------------------------------ lesson 12: backward passes
def _backward_inputs(takes: str, returns: str, at: Sizes, draw: Draw) -> Inputs:
    """Return the inputs of a kernel of the backward pass, (H, N, d) and (H, N); nothing is masked.

    O, LSE and D are computed per head in float32. The exact gradients use the same LSE and D.
    """
    import torch

    rows = draw.rows(at["N"])
    of = {name: draw.normal(at["H"], at["N"], at["d"]) for name in ("Q", "K", "V", "dO")}
    scale = at["d"] ** -0.5
    if set(takes.split()) & {"LSE", "D"}:
        heads = [_forward_pass(q, k, v, scale) for q, k, v in zip(of["Q"], of["K"], of["V"], strict=True)]
        of["O"], of["LSE"] = (torch.stack(parts) for parts in zip(*heads, strict=True))
    else:
        of["O"] = draw.normal(at["H"], at["N"], at["d"])
    of["D"] = (of["O"] * of["dO"]).sum(dim=2)

    def errors(**got: Tensor) -> Errors:
        exact = {name: _gradient[name](of, rows, scale) for name in got}
        return compared(**{name: (x[:, rows], exact[name]) for name, x in got.items()})

    names = returns.split()
    arguments = tuple(of[name] for name in takes.split())
    tile = (at["BM"], at["BN"]) if "BN" in at else (at["BM"],)
    return Inputs((*arguments, *tile), lambda *got: errors(**dict(zip(names, got, strict=True))))


def _forward_pass(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    scores = q @ k.T * scale
    return scores.softmax(dim=1) @ v, scores.logsumexp(dim=1)


def _weights(of: Mapping[str, Tensor], scale: float, i: Any, j: Any) -> tuple[Tensor, Tensor]:
    """Return weights and score gradients in float64 for the queries i and the keys j (rows or a slice)."""
    q, k, v, do = (of[name][:, at].double() for name, at in (("Q", i), ("K", j), ("V", j), ("dO", i)))
    p = (q @ k.transpose(1, 2) * scale - of["LSE"][:, i, None]).exp()
    return p, p * (do @ v.transpose(1, 2) - of["D"][:, i, None])


ALL = slice(None)
_gradient: dict[str, Callable[[Mapping[str, Tensor], Tensor, float], Tensor]] = {
    "D": lambda of, rows, _: (of["O"].double() * of["dO"].double()).sum(dim=2)[:, rows],
    "dQ": lambda of, rows, scale: _weights(of, scale, rows, ALL)[1] @ of["K"].double() * scale,
    "dK": lambda of, rows, scale: (
        _weights(of, scale, ALL, rows)[1].transpose(1, 2) @ of["Q"].double() * scale
    ),
    "dV": lambda of, rows, scale: _weights(of, scale, ALL, rows)[0].transpose(1, 2) @ of["dO"].double(),
}


def _backward_problem(at: Sizes) -> KernelProblem:
    return KernelProblem(at["N"], at["N"], at["d"], H=at["H"], H_kv=at["H"])


def _product_flop(products: int, at: Sizes) -> float:
    """Return the FLOP of this number of products of (N, d) by (d, N), or (N, N) by (N, d), per head."""
    return 2.0 * products * at["H"] * at["N"] ** 2 * at["d"]


# ------------------------------------------------------------------ records
def _copy() -> Recorded:
    record = load_record("roofs")
    if record is None:
        return Recorded("not recorded")
    return Recorded("copy of 4 GiB by torch", 1000 * record["copy_tb_s"], record_source(record))


def _answer(name: str) -> Recorded:
    """Return the recorded kernel of this name: an answer to exercise 11F, or its float32 version."""
    record = load_record("answers")
    row = next((one for one in record["rows"] if one["answer"] == name), None) if record else None
    if record is None or row is None:
        return Recorded("not recorded")
    of_all = str(record["problem"]).partition(";")[0]  # float32 rows have another N
    problem = f"N = {row['N']:,}" if "N" in row else of_all
    text = f"forward pass, {name}, {problem}: {row['ms']:.3f} ms"
    return Recorded(text, row["tflops"], record_source(record))


def _no_record(reason: str) -> Callable[[], Recorded]:
    return lambda: Recorded(f"not recorded: {reason}")


_ORDINARY = _no_record("all records of this pass have 16 bits and use tensor cores")
_SINGLE = {"N": 8192, "d": 64, "BM": 64, "BN": 32}
_HALF = {"N": 32768, "d": 64, "BM": 128, "BN": 64}
_HEADS = {"H": 4, "N": 4096, "d": 64, "BM": 64, "BN": 32}
_SMALL, _SMALL_HEADS = (
    {"N": 70, "d": 16, "BM": 16, "BN": 16},
    {"H": 2, "N": 70, "d": 16, "BM": 16, "BN": 16},
)
_WINDOW = {"N": 8192, "d": 64, "window": 1024, "BM": 64, "BN": 32}
_HALF_PROBLEM = TimedProblem(
    "O LSE", _HALF, partial(_forward_inputs, lambda at: (False,)), _forward_words, _forward_flop,
    partial(_answer, "reference"), dtype="float16", remark="not causal", allowed=HALF, small=_SMALL,
)  # fmt: skip

PROBLEMS: dict[str, TimedProblem] = {
    "10B": TimedProblem(
        "Y", {"rows": 8192, "columns": 8192, "BM": 64, "BN": 64}, _transpose_inputs,
        lambda at: Ledger({"X": at["rows"] * at["columns"]}, {"Y": at["rows"] * at["columns"]}), None,
        _copy, allowed=0.0, small={"rows": 40, "columns": 24, "BM": 16, "BN": 16},
    ),
    "10C": TimedProblem(
        "Y", {"rows": 4096, "n": 16384, "BLOCK": 2048}, _softmax_inputs,
        lambda at: Ledger({"X": 2 * at["rows"] * at["n"]}, {"Y": at["rows"] * at["n"]}), None, _copy,
        small={"rows": 5, "n": 70, "BLOCK": 32},
    ),
    "10D": TimedProblem(
        "C", {"m": 4096, "n": 4096, "k": 4096, "BM": 64, "BN": 64, "BK": 32}, _product_inputs,
        lambda at: costs.matmul(at["m"], at["n"], at["k"], bm=at["BM"], bn=at["BN"]),
        lambda at: 2.0 * at["m"] * at["n"] * at["k"],
        _no_record("the recorded product has 16 bits and uses tensor cores"),
        small={"m": 40, "n": 33, "k": 50, "BM": 16, "BN": 16, "BK": 16},
    ),
    "11A": TimedProblem(
        "O LSE", _SINGLE, partial(_forward_inputs, lambda at: ()), _forward_words, _forward_flop,
        partial(_answer, "float32 ieee 64x32 w4"), remark="not causal", small=_SMALL,
    ),
    "11B": TimedProblem(
        "O LSE", _SINGLE, partial(_forward_inputs, lambda at: (False,)), _forward_words, _forward_flop,
        partial(_answer, "float32 ieee 64x32 w4"), remark="not causal", small=_SMALL,
    ),
    "11C": TimedProblem(
        "O LSE", _WINDOW, partial(_forward_inputs, _band), _forward_words, _forward_flop, _ORDINARY,
        remark="causal", small={**_SMALL, "window": 20},
    ),
    "11D": TimedProblem(
        "O", {"B": 2, "H": 8, "H_kv": 2, "N": 2048, "d": 64, "BM": 64, "BN": 32}, _heads_inputs,
        _forward_words, _forward_flop, _ORDINARY, small={**_SMALL, "B": 1, "H": 2, "H_kv": 1},
    ),
    "11F": _HALF_PROBLEM,
    "11G": _HALF_PROBLEM,
    "12A": TimedProblem(
        "D", {"H": 64, "N": 4096, "d": 64, "BM": 32}, partial(_backward_inputs, "O dO", "D"),
        lambda at: delta_plain(_backward_problem(at)), None, _copy,
        small={"H": 2, "N": 70, "d": 16, "BM": 16},
    ),
    "12B": TimedProblem(
        "dQ D", _HEADS, partial(_backward_inputs, "Q K V O dO LSE", "dQ D"),
        lambda at: dq_plain(_backward_problem(at), at["BM"], at["BN"]), partial(_product_flop, 3),
        _ORDINARY, remark="not causal, 3 products", small=_SMALL_HEADS,
    ),
    "12C": TimedProblem(
        "dK dV", _HEADS, partial(_backward_inputs, "Q K V dO LSE D", "dK dV"),
        lambda at: dkdv_plain(_backward_problem(at), at["BM"], at["BN"]), partial(_product_flop, 4),
        _ORDINARY, remark="not causal, 4 products", small=_SMALL_HEADS,
    ),
    "12D": TimedProblem(
        "dQ dK dV", _HEADS, partial(_backward_inputs, "Q K V O dO LSE", "dQ dK dV"),
        lambda at: fused_backward_plain(_backward_problem(at), at["BM"], at["BN"]),
        partial(_product_flop, 5), _ORDINARY, remark="not causal, 5 products", small=_SMALL_HEADS,
    ),
    "13C": TimedProblem(
        "O LSE", _WINDOW, partial(_forward_inputs, _lists), _listed_words, _forward_flop, _ORDINARY,
        remark="causal, as lists",
        small={**_SMALL, "window": 20},
    ),
}  # fmt: skip
