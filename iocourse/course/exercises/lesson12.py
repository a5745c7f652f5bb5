"""Exercises of lesson 12: D, dQ, dK and dV as Triton kernels, the fused backward pass, and autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact, traffic
from ...costs.kernels import KernelProblem, dkdv_plain, dq_plain, fused_backward_plain
from ...doctor.triton_missing import require_triton
from ...ledger import Ledger, PhaseTotal
from ..exercise import Case, Property, Trial, WrongForm, exercise, snapshot, trial_from_error
from ..properties import budget_of, difference_or_scale, each, idle, only_where
from ..trials.kernel_launch import (
    as_shared_arrays,
    full_products,
    kernels_compute,
    launch,
    launch_and_count_programs,
    launches_kernels,
    nothing_in_vain,
    words_exactly,
)

Array = NDArray[Any]
Arrays = dict[str, Any]
TOLERANCE = 2e-4  # of float32 kernels, with scores near -100 too: 20 times what the reference is off by
RAGGED, CAUSAL, LOW, STRIDED = "a ragged last tile", "causal", "scores near -100", "dO with strides"
HEADS = "two heads"
FAR = "scores at -10^24 and below"


# ------------------------------------------------------------------ inputs and right answers
def _inputs(
    rng: np.random.Generator,
    H: int,
    N: int,
    d: int,
    *,
    causal: bool = False,
    low: bool = False,
    far: bool = False,
) -> Arrays:
    """Q, K, V, O, dO (H, N, d), LSE and D (H, N), float32, and what a backward pass makes of them."""
    Q, K, V, dO = rng.standard_normal((4, H, N, d)).astype(np.float32)
    if low:
        Q[:] = Q / 4 + 5
        K[:] = K / 4 - 80 / d  # 5 · 80 / √d is 100 at d = 16
    if far:
        _every_second_row_far_below_0(Q, K)
    return {"Q": Q, "K": K, "V": V, "dO": dO} | _right(Q, K, V, dO, causal)


def _every_second_row_far_below_0(Q: Array, K: Array) -> None:
    """Q and K (H, N, d), whose even rows of scores stay ordinary. The odd ones begin at -2^85 / √d, some
    -10^25, and every further key is far below: a single weight is 1, which no rounding of float32 moves.

    What stands there for a hidden score, and is larger, has all the weight. Only dQ is that exact: a rounding
    error in such a row of dS meets a row of Q in dK.
    """
    K[:, :, 0] = 1 + np.arange(K.shape[1]) / 8
    Q[:, :, 0] = 0
    Q[:, 1::2] = 0
    Q[:, 1::2, 0] = -(2.0**85)


def _right(Q: Array, K: Array, V: Array, dO: Array, causal: bool) -> Arrays:
    """O, LSE, D and the gradients in float64, head by head; those a kernel takes in as float32."""
    heads = [_of_one_head(*parts, causal) for parts in zip(Q, K, V, dO, strict=True)]
    found = {name: np.stack([head[name] for head in heads]) for name in heads[0]}
    return found | {name: found[name].astype(np.float32) for name in ("O", "LSE", "D")}


def _of_one_head(Q: Array, K: Array, V: Array, dO: Array, causal: bool) -> Arrays:
    Q, K, V, dO = (x.astype(np.float64) for x in (Q, K, V, dO))
    S = exact.scores(Q, K)
    S = np.where(np.tri(len(Q), dtype=bool), S, -np.inf) if causal else S
    O = exact.softmax(S) @ V
    gradients = exact.attention_backward(Q, K, V, dO, causal=causal)._asdict()
    return {"O": O, "LSE": exact.log_sum_exp(S), "D": (dO * O).sum(axis=1), **gradients}


def _label(H: int, N: int, d: int, *facts: str) -> str:
    heads = (HEADS,) if H == 2 else ()
    return ", ".join([f"H={H}, N={N}, d={d}", *heads, *filter(None, facts)])


# ------------------------------------------------------------------ properties
def parts_where(name: str, outputs: Sequence[str], concerned: str = "") -> Property:
    """All results are exact in the cases whose label holds `concerned`; a message names the first that is
    not.
    """

    def judge(trial: Trial) -> str | None:
        got = trial.value if isinstance(trial.value, tuple) else (trial.value,)
        if trial.value is None:
            return WrongForm("your function returned None; does it end with a return?")
        if len(got) != len(outputs):
            return WrongForm(f"expected {len(outputs)} results ({', '.join(outputs)}), got {len(got)}")
        wrong = (
            f"{output}: {complaint}"
            for output, value, want in zip(outputs, got, trial.case.expected, strict=True)
            if (complaint := difference_or_scale(value, want, trial.case, TOLERANCE))
        )
        return next(wrong, None)

    return only_where(name, concerned, judge)


def added_atomically() -> Property:
    """dQ is added to by atomics, each word as often as the closed form says; nothing else is."""

    def judge(trial: Trial) -> str | None:
        got, want = sum(trial.ledger.atomics.values()), sum(budget_of(trial).atomics.values())
        return None if got == want else f"yours adds {got:,} words atomically, the formula says {want:,}"

    return each("dQ is added to atomically", judge)


# ------------------------------------------------------------------ 12A: D
def row_cases(rng: np.random.Generator) -> list[Case]:
    """Whole and ragged blocks, two heads, one row, O and dO that lie in memory in other orders, and a call
    that leaves BM as it is given, twice with other numbers.
    """
    d, BM = 16, 32
    N = int(rng.integers(33, 63))
    return [
        _row_case(rng, 1, 2 * BM, d, BM, plain=True),
        _row_case(rng, 2, N, d, BM, RAGGED, plain=True),
        _row_case(rng, 2, N + 1, d, 16, RAGGED, STRIDED),
        *(_row_case(rng, 1, 1, 2 * d, None, RAGGED) for _ in range(2)),
    ]


def _row_case(
    rng: np.random.Generator, H: int, N: int, d: int, BM: int | None, *facts: str, plain: bool = False
) -> Case:
    O, dO = rng.standard_normal((2, H, N, d)).astype(np.float32)
    if not plain:
        dO = np.ascontiguousarray(dO.transpose(1, 0, 2)).transpose(1, 0, 2)  # heads within a row
        O = np.pad(O.transpose(1, 0, 2), ((0, 0), (0, 0), (0, 5))).transpose(1, 0, 2)  # and room behind them
        O = O[:, :, :d]
    want = (O.astype(np.float64) * dO).sum(axis=2)
    budget = Ledger(reads={"O": H * N * d, "dO": H * N * d}, writes={"D": H * N})
    tile = {} if BM is None else {"BM": BM}
    label = f"{_label(H, N, d, *facts)}, BM={BM or 'as given'}"
    return Case(label, {"O": O, "dO": dO, **tile}, (want,), budget=budget)


# ------------------------------------------------------------------ 12B to 12D: the kernels
def tiled_cases(
    names: Sequence[str], outputs: Sequence[str], budget: Callable[[KernelProblem, int, int], Ledger]
) -> Callable[[np.random.Generator], list[Case]]:
    """Cases for a kernel with tiles of BM queries and BN keys.

    Args:
        names: the arrays that the student's function takes, in its order; BM, BN and causal follow.
        outputs: the arrays that it returns.
        budget: its closed form.
    """

    def case(rng: np.random.Generator, H: int, N: int, BM: int, BN: int, *facts: str, d: int = 16) -> Case:
        causal = CAUSAL in facts
        arrays = _inputs(rng, H, N, d, causal=causal, low=LOW in facts, far=FAR in facts)
        given = {name: arrays[name] for name in names} | {"BM": BM, "BN": BN, "causal": causal}
        problem = KernelProblem(N, N, d, high=0 if causal else None, H=H, H_kv=H)
        return Case(
            f"{_label(H, N, d, *facts)}, BM={BM}, BN={BN}",
            given,
            tuple(arrays[name] for name in outputs),
            budget=budget(problem, BM, BN),
        )

    def cases(rng: np.random.Generator) -> list[Case]:
        N = int(rng.integers(33, 47))
        return [
            case(rng, 1, 64, 32, 32, d=32),
            case(rng, 2, N, 16, 32, RAGGED, *(() if "dK" in outputs else (FAR,))),
            case(rng, 1, N + 16, 32, 16, RAGGED, CAUSAL),
            case(rng, 2, N, 16, 32, RAGGED, CAUSAL),
            case(rng, 1, 33, 16, 16, RAGGED, LOW),  # one row, and one key, left over
            case(rng, 1, 1, 16, 16, RAGGED),
            case(rng, 1, 3, 32, 16, RAGGED),  # all keys, and more queries in a tile than columns
            case(rng, 1, 3, 32, 16, RAGGED),  # other numbers of the same sizes
        ]

    return cases


def _kernel_properties(outputs: Sequence[str], *inputs: str) -> tuple[Property, ...]:
    named = f"{', '.join(outputs[:-1])} and {outputs[-1]}"
    return (
        launches_kernels(*inputs),
        parts_where(f"{named} are exact", outputs),
        parts_where("every head is exact", outputs, HEADS),
        parts_where("ragged tiles are exact", outputs, RAGGED),
        parts_where("a causal mask hides what it must", outputs, CAUSAL),
        parts_where("scores near -100 overflow nowhere", outputs, LOW),
        words_exactly(),
        full_products(),
    )


# ------------------------------------------------------------------ 12E: under autograd
def autograd_cases(rng: np.random.Generator) -> list[Case]:
    """A stored dO; one that is transposed in memory; one word shown everywhere, as the gradient of a sum.

    The first leaves `causal` as it is given. A second layer of the same sizes, alike or not in what it hides,
    comes before the backward pass in some; the last two have the sizes of others, and other numbers.
    """
    N = int(rng.integers(33, 48))
    return [
        _autograd_case(rng, 2, 32, None),
        _autograd_case(rng, 1, N, True, RAGGED, layer=False),
        _autograd_case(rng, 2, 32, True, STRIDED, layer=True),
        _autograd_case(rng, 1, N, False, RAGGED, STRIDED, everywhere=True),
        _autograd_case(rng, 1, N, True, RAGGED),
    ]


def _autograd_case(
    rng: np.random.Generator,
    H: int,
    N: int,
    causal: bool | None,
    *facts: str,
    everywhere: bool = False,
    layer: bool | None = None,
) -> Case:
    """With `layer`, another layer of other numbers, causal or not, comes between the two passes."""
    d = 16
    Q, K, V, dO = rng.standard_normal((4, H, N, d)).astype(np.float32)
    dO = np.broadcast_to(np.float32(1), dO.shape) if everywhere else dO
    right = _right(Q, K, V, dO, bool(causal))
    if STRIDED in facts and not everywhere:
        dO = np.ascontiguousarray(dO.transpose(2, 1, 0)).transpose(2, 1, 0)
    given = {} if causal is None else {"causal": causal}
    second = {} if layer is None else {"layer": (rng.standard_normal((3, H, N, d)).astype(np.float32), layer)}
    between = "" if layer is None else f"before its backward pass a second layer, causal={layer}"
    label = _label(H, N, d, *facts, CAUSAL if causal else "", between)
    wanted = tuple(right[name] for name in ("O", "dQ", "dK", "dV"))
    return Case(label, {"Q": Q, "K": K, "V": V, "dO": dO, **given, **second}, wanted)


@trial_from_error
def differentiate(student: Callable[..., Any], case: Case) -> Trial:
    """O and the gradients by autograd, every launch counted; where torch computes, it is refused.

    Where the case has a `layer`, the function is applied to that too before the backward pass. The trial's
    ledger has the phases forward and backward, and as `peak` the words kept in between.
    """
    require_triton()
    import torch

    inputs = case.inputs
    leaves = [torch.from_numpy(inputs[name].copy()).requires_grad_() for name in ("Q", "K", "V")]
    gradient = _as_autograd_has_it(inputs["dO"])
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with kernels_compute(), traffic.count(dO=gradient) as ledger:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            O = _one_tensor(student(*leaves, *_given(inputs, "causal")))
        forward = PhaseTotal(ledger.read, ledger.written)
        _keep_attributes(O, keep)
        for arrays, causal in _given(inputs, "layer"):
            student(*(torch.from_numpy(x.copy()).requires_grad_() for x in arrays), causal)
        before = PhaseTotal(ledger.read, ledger.written)
        gradients = torch.autograd.grad(O, leaves, gradient)
    backward = PhaseTotal(ledger.read - before.read, ledger.written - before.written)
    ledger.phases.update(forward=forward, backward=backward)
    ledger.peak = sum(kept.values())
    shared = as_shared_arrays((O, *gradients))
    value = tuple(x.detach().double().numpy() for x in (O, *gradients))
    return Trial(case, value=value, ledger=ledger, returned=(snapshot(shared), shared))


def _given(inputs: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """The input of this name alone, or nothing."""
    return (inputs[name],) if name in inputs else ()


def _as_autograd_has_it(dO: Array) -> Any:
    """A tensor with the strides of the array; a number shown everywhere stays one number in memory."""
    import torch

    if not any(dO.strides):
        return torch.from_numpy(np.array([dO.flat[0]])).expand(dO.shape)
    return torch.from_numpy(dO.copy(order="K"))


def _one_tensor(O: Any) -> Any:
    if not hasattr(O, "data_ptr"):
        raise TypeError(f"expected O alone, one tensor; got a {type(O).__name__}")
    return O


def _keep_attributes(O: Any, keep: Callable[[Any], Any]) -> None:
    """Tensors that were hung on ctx, past save_for_backward, are kept too."""
    for value in vars(O.grad_fn).values() if hasattr(O.grad_fn, "__dict__") else ():
        for tensor in _tensors_in(value):
            keep(tensor)


def _tensors_in(value: Any) -> Iterator[Any]:
    if hasattr(value, "data_ptr"):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)


def keeps_little() -> Property:
    """Q, K, V, O and LSE are kept for the backward pass, 4Nd + N words a head, and nothing else."""

    def judge(trial: Trial) -> str | None:
        H, N, d = trial.case.inputs["Q"].shape
        allowed = 4 * H * N * d + H * N
        kept = trial.ledger.peak
        return (
            None if kept <= allowed else f"yours keeps {kept:,} words, 4Nd + N for each head are {allowed:,}"
        )

    return idle(each("keeps Q, K, V, O and LSE alone", judge))


def both_passes_launch() -> Property:
    """Kernels read the inputs of each pass in full and write at least its outputs."""

    def judge(trial: Trial) -> str | None:
        words = int(np.size(trial.case.inputs["Q"]))
        for phase, inputs, outputs in (("forward", 3, 1), ("backward", 4, 3)):
            moved = trial.ledger.phases[phase]
            if moved.read < inputs * words or moved.written < outputs * words:
                return (
                    f"{phase}: your kernels read {moved.read:,} words and write {moved.written:,}; "
                    f"{inputs} arrays in and {outputs} out have {inputs * words:,} and {outputs * words:,}"
                )
        return None

    return idle(each("kernels do the work, forward and backward", judge))


GRADIENTS = ("O", "dQ", "dK", "dV")


EXERCISES = (
    exercise(
        "12A",
        cases=row_cases,
        properties=(
            launches_kernels("O", "dO"),
            parts_where("D is exact", ("D",)),
            parts_where("every head is exact", ("D",), HEADS),
            parts_where("a ragged last tile is exact", ("D",), RAGGED),
            parts_where("O and dO may lie in memory in any order of rows and heads", ("D",), STRIDED),
            words_exactly(),
            nothing_in_vain(),
        ),
        run_case=launch_and_count_programs,
    ),
    exercise(
        "12B",
        cases=tiled_cases(("Q", "K", "V", "O", "dO", "LSE"), ("dQ", "D"), dq_plain),
        properties=_kernel_properties(("dQ", "D"), "Q", "K", "V", "O", "dO", "LSE"),
        run_case=launch,
    ),
    exercise(
        "12C",
        cases=tiled_cases(("Q", "K", "V", "dO", "LSE", "D"), ("dK", "dV"), dkdv_plain),
        properties=_kernel_properties(("dK", "dV"), "Q", "K", "V", "dO", "LSE", "D"),
        run_case=launch,
    ),
    exercise(
        "12D",
        cases=tiled_cases(("Q", "K", "V", "O", "dO", "LSE"), ("dQ", "dK", "dV"), fused_backward_plain),
        properties=(
            *_kernel_properties(("dQ", "dK", "dV"), "Q", "K", "V", "O", "dO", "LSE"),
            added_atomically(),
        ),
        run_case=launch,
    ),
    exercise(
        "12E",
        cases=autograd_cases,
        properties=(
            both_passes_launch(),
            parts_where("O and the three gradients are exact", GRADIENTS),
            parts_where("a causal mask hides what it must, in both passes", GRADIENTS, CAUSAL),
            parts_where("dO may have any strides", GRADIENTS, STRIDED),
            keeps_little(),
        ),
        run_case=differentiate,
    ),
)
