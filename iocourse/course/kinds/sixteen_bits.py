"""The kind `sixteen_bits`: a forward kernel in float16 and bfloat16, tested for rounding and machine code.

Values cannot show whether a kernel uses the tensor cores, and the machine code cannot show whether it is
correct. So values are compared within the error that rounding to 16 bits allows, and the compiled kernel must
multiply 16-bit numbers on tensor cores, spill no registers in its inner loop and need few instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np

from ...gpu import Resources
from ..exercise import Case, Exercise, Property, Trial, WrongForm, exercise
from ..properties import each, format_apart, only_where, several
from ..trials.compiled_launch import Target, in_compiled_code
from ..trials.kernel_launch import (
    KernelTrial,
    any_order,
    launch_in_place,
    launches_kernels,
    no_tile_outside,
    words_exactly,
)
from ..trials.sixteen_bit_inputs import LARGE_SCORES, TYPES, allowed_errors, sixteen_bit_attention, type_of

RESULTS = ("O", "LSE")
ORDER_TOLERANCE = 2.0**-7  # of any_order; a program that reads another one's words is wrong by far more
INNER_SIZE = 2  # products per pair of tiles: the scores, and the product with V


def sixteen_bit_exercise(id: str, targets: Sequence[Target], *, words: Property | None = None) -> Exercise:
    """Return the exercise of a launcher `(Q, K, V, causal, BM, BN) -> O, LSE` for 16-bit tensors.

    Args:
        id: the exercise, such as "11F".
        targets: types and architectures for which it is compiled, with the limit of instructions per score.
        words: the property of loads and stores.
    """

    def cases(rng: np.random.Generator) -> list[Case]:
        found = sixteen_bit_attention(rng)
        return [
            Case(
                one.label,
                one.inputs,
                tuple(one.results[name] for name in RESULTS),
                budget=one.words,
                tags=one.tag_set,
            )
            for one in found
        ]

    values = (
        *(
            only_where(f"O is correct in {dtype}", _ordinary(dtype), lambda trial: _within(trial, 0))
            for dtype in TYPES
        ),
        only_where("large scores lose no bits", LARGE_SCORES, lambda trial: _within(trial, 0)),
        each("LSE is not rounded to 16 bits", lambda trial: _within(trial, 1)),
    )

    def right(trials: Sequence[Trial]) -> bool:
        return all(prop.judge(trials) is None for prop in values)

    return exercise(
        id,
        cases=cases,
        properties=(
            launches_kernels("Q", "K", "V"),
            *values,
            words or words_exactly("moves exactly the words of the blocks that are not empty"),
            no_tile_outside(),
            in_compiled_code(TENSOR_CORES, targets, right, _sixteen_bit_products),
            in_compiled_code("the inner loop spills no registers", targets, right, _no_spill),
            in_compiled_code("the inner loop needs few instructions", targets, right, _few_instructions),
            any_order(lambda case: ORDER_TOLERANCE),
        ),
        run_case=launch_in_place,
        compiles=True,
    )


# ------------------------------------------------------------------ values
def _ordinary(dtype: str) -> Callable[[Case], bool]:
    return lambda case: case.has(dtype) and not case.has(LARGE_SCORES)


def _within(trial: Trial, k: int) -> str | None:
    """Return the first element of result number k that differs by more than rounding allows."""
    found = several(trial.value, len(RESULTS))
    if found is None:
        return WrongForm(f"expected {len(RESULTS)} results: {', '.join(RESULTS)}")
    got, want, allowed = np.asarray(found[k]), trial.case.expected[k], allowed_errors(trial.case)[k]
    if got.shape != want.shape:
        return WrongForm(f"{RESULTS[k]} has shape {got.shape}, expected {want.shape}")
    if said := _other_type(trial, k):
        return said
    wrong = ~(abs(got - want) <= allowed)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    mine, right = format_apart(float(got[where]), float(want[where]))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements of {RESULTS[k]} differ by more than rounding allows, "
        f"first at {list(where)}: got {mine}, expected {right}, allowed error {allowed[where]:.2g}"
    )


def _other_type(trial: Trial, k: int) -> str | None:
    """Return a message if O has another type than Q, or LSE another one than float32."""
    if trial.returned is None:
        return None
    kinds = {"float16": "float16", "bfloat16": "int16"}  # NumPy has bfloat16 only as bits
    wanted = kinds[type_of(trial.case)] if k == 0 else "float32"
    got = str(trial.returned[1][k].dtype)
    if got == wanted:
        return None
    names = {"int16": "bfloat16"}
    return WrongForm(f"{RESULTS[k]} is {names.get(got, got)}, expected {names.get(wanted, wanted)}")


# ------------------------------------------------------------------ machine code
TENSOR_CORES = "both products multiply 16-bit numbers on tensor cores, with float32 sums"
NARROW = {"fp16": "float16", "bf16": "bfloat16"}
CAST = "cast p to the type of v, and leave q, k and v as they were loaded"


def _sizes(trial: KernelTrial) -> tuple[int, int, int]:
    inputs = trial.case.inputs
    return inputs["BM"], inputs["BN"], inputs["Q"].shape[1]


def _sixteen_bit_products(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    BM, BN, d = _sizes(trial)
    if found.hot_loop is None:
        return "the machine code has no loop that multiplies"
    done = found.hot_loop.multiply_adds(found.warps)
    due = INNER_SIZE * BM * BN * d
    if done == {(target.dtype, "float32"): due}:
        return None
    factors = {kind: n for (kind, _), n in done.items() if kind != target.dtype}
    sums = {kind for _, kind in done if kind != "float32"}
    if factors:
        kinds = " and ".join(factors)
        return f"{sum(factors.values()) / due:.0%} of the multiply-adds have {kinds} factors; {CAST}"
    if sums:
        return (
            f"{done[target.dtype, 'float16'] / due:.0%} of the multiply-adds have float16 sums; "
            "keep scores and acc in float32"
        )
    share = done.get((target.dtype, "float32"), 0) / due
    return f"{1 - share:.0%} of the multiply-adds do not run on tensor cores; {CAST}"


def _no_spill(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    spills = 0 if found.hot_loop is None else found.hot_loop.spills
    if spills:
        return (
            f"{spills} loads and stores of spilled registers per iteration, "
            f"with {found.registers} registers per thread"
        )
    return None


def _few_instructions(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    BM, BN, _ = _sizes(trial)
    if (loop := found.hot_loop) is None:
        return None
    threads = 32 * found.warps
    per_score = loop.instructions * threads / (BM * BN)
    version = metadata.version("triton")
    limit = target.instructions.get(version, max(target.instructions.values()))
    if per_score <= limit:
        return None
    seen = {
        "compares floating-point numbers (tl.exp does, tl.exp2 does not)": loop.named("FSETP"),
        "compares positions, as a mask does": loop.named("ISETP"),
        "multiplies floating-point numbers": loop.named("FMUL"),
    }
    causes = [
        f"{n * threads / (BM * BN):.1f} per score it {what}"
        for what, n in seen.items()
        if 2 * n * threads >= BM * BN
    ]
    return f"{per_score:.1f} instructions per score, expected at most {limit:g}" + (
        f": {'; '.join(causes)}" if causes else ""
    )
