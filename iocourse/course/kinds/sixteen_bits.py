"""The kind `sixteen_bits`: a forward kernel in float16 and bfloat16, tested for rounding and machine code.

Values cannot show whether a kernel uses the tensor cores, and the machine code cannot show whether it is
correct. So values are compared within the error that rounding to 16 bits allows, and the compiled kernel must
multiply 16-bit numbers on tensor cores, spill no registers in its inner loop and need few instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata

import numpy as np

from ...gpu import Resources, chip_of
from ...gpu.hot_loop import Loop
from ..exercise import Better, Case, Exercise, FirstCause, Trial, WrongForm, exercise
from ..properties import each, format_apart, only_where, several
from ..trials.compiled_launch import Target, in_compiled_code
from ..trials.float32_inputs import FAR, FAR_NAME
from ..trials.kernel_launch import (
    KernelTrial,
    any_order,
    launch_in_place,
    launches_kernels,
    no_tile_outside,
    words_exactly,
)
from ..trials.sixteen_bit_inputs import (
    LARGE_SCORES,
    SINGLE,
    TYPES,
    allowed_errors,
    sixteen_bit_attention,
    type_of,
)
from .function import case_of

RESULTS = ("O", "LSE")
ORDER_TOLERANCE = 2.0**-7  # of any_order; a program that reads another one's words is wrong by far more
OF_SIXTEEN_BITS = 2.0**-8 / SINGLE  # an error of at most this many allowed errors is one of rounding
INNER_SIZE = 2  # products per pair of tiles: the scores, and the product with V


def sixteen_bit_exercise(id: str, targets: Sequence[Target]) -> Exercise:
    """Return the exercise of a launcher `(Q, K, V, causal, BM, BN) -> O, LSE` for 16-bit tensors.

    Args:
        id: the exercise, such as "11F".
        targets: types and architectures for which it is compiled, with the limit of instructions per score.
    """

    def cases(rng: np.random.Generator) -> list[Case]:
        return [case_of(id, RESULTS, sample) for sample in sixteen_bit_attention(rng)]

    values = (
        *(
            only_where(f"O is correct in {dtype}", _ordinary(dtype), lambda trial: _within(trial, 0))
            for dtype in TYPES
        ),
        only_where("large scores lose no bits", LARGE_SCORES, lambda trial: _within(trial, 0)),
        only_where(FAR_NAME, FAR, lambda trial: _within(trial, 0)),
        each("LSE has the precision of float32", lambda trial: _within(trial, 1)),
    )

    narrow = each(TENSOR_CORES, _wide_factors)  # seen without the compiler, which takes long for such kernels
    compiled = in_compiled_code(TENSOR_CORES, targets, _sixteen_bit_products, after=(*values, narrow))
    products = replace(compiled, judge=lambda trials: narrow.judge(trials) or compiled.judge(trials))
    fits = in_compiled_code("registers and shared memory suffice", targets, _fits, after=(products,))
    return exercise(
        id,
        cases=cases,
        properties=(
            launches_kernels("Q", "K", "V"),
            *values,
            words_exactly("moves exactly the words of the blocks that are not empty"),
            no_tile_outside(),
            products,
            fits,
            in_compiled_code(
                "the inner loop needs few instructions", targets, _few_instructions, after=(fits,)
            ),
            any_order(lambda case: ORDER_TOLERANCE),
        ),
        run_case=launch_in_place,
        compiles=True,
    )


# ------------------------------------------------------------------ values
def _ordinary(dtype: str) -> Callable[[Case], bool]:
    return lambda case: case.has(dtype) and not case.has(LARGE_SCORES) and not case.has(FAR)


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
    seen = (
        f"{int(wrong.sum())} of {wrong.size} elements of {RESULTS[k]} differ by more than rounding allows, "
        f"first at {list(where)}: got {mine}, expected {right}, allowed error {allowed[where]:.2g}"
    )
    if k == 1 and (abs(got - want) <= OF_SIXTEEN_BITS * allowed).all():
        return FirstCause(f"{seen}. Scores, or weights before they are added, are rounded to 16 bits")
    return seen


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
WIDE = {"fp32", "fp64"}  # as Triton names them
CAST = "cast p to the type of v, and leave q, k and v as they were loaded"


def _sizes(trial: KernelTrial) -> tuple[int, int, int]:
    inputs = trial.case.inputs
    return inputs["BM"], inputs["BN"], inputs["Q"].shape[1]


def _wide_factors(trial: Trial) -> str | None:
    wide = trial.factors & WIDE if isinstance(trial, KernelTrial) else set()
    if not wide:
        return None
    return (
        "tl.dot multiplies float32 factors, which run as TF32, at half the rate of float16, or with "
        f'input_precision="ieee" without tensor cores; {CAST}'
    )


def _sixteen_bit_products(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    BM, BN, d = _sizes(trial)
    if found.hot_loop is None:
        return "the machine code has no loop that multiplies"
    done = found.hot_loop.multiply_adds(found.warps)
    due = INNER_SIZE * BM * BN * d
    if done == {(target.dtype, "float32"): due}:
        return None
    copies = sum(done.values()) / due
    if copies > 1:
        return (
            f"the inner loop contains {copies:g} copies of the products, because of a branch in it: run one "
            "loop over full blocks and another one over partial blocks"
        )
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


def _fits(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    limit = chip_of(target.arch).shared_bytes
    if found.shared_bytes > limit:
        return (
            f"the kernel cannot start: it needs {found.shared_bytes / 1024:.0f} KB of shared memory, and a "
            f"program has at most {limit // 1024} KB. Use fewer stages"
        )
    spills = 0 if found.hot_loop is None else found.hot_loop.spills
    if not spills:
        return None
    return (
        f"{spills} loads and stores of spilled registers per iteration, with {found.registers} registers per "
        f"thread and {found.warps} warps"
    )


def _few_instructions(found: Resources, trial: KernelTrial, target: Target) -> str | None:
    assert found.hot_loop is not None  # it has products
    BM, BN, _ = _sizes(trial)
    of_scores = 32 * found.warps / (BM * BN)  # instructions per thread -> instructions per score
    each_score = found.hot_loop.instructions * of_scores
    newest = [*target.instructions.values()][-1]
    needed, most = target.instructions.get(metadata.version("triton"), newest)
    if each_score > most:
        causes = "; ".join(_causes(found.hot_loop, of_scores))
        return f"{each_score:.1f} instructions per score, expected at most {most:g}" + (
            f": {causes}" if causes else ""
        )
    if each_score > needed + 0.5:
        causes = "".join(f"; {one}" for one in _causes(found.hot_loop, of_scores))
        return Better(f"{each_score:.1f} instructions per score, where {needed:.1f} are enough{causes}")
    return None


def _causes(loop: Loop, of_scores: float) -> Iterator[str]:
    """Yield a clause per kind of instruction of which a good kernel has fewer."""
    counts = {opcode: loop.named(opcode) * of_scores for opcode in ("FSETP", "ISETP", "FMUL")}
    if counts["FSETP"] >= 0.5:
        yield f"{counts['FSETP']:.1f} of them compare scores, as tl.exp does and tl.exp2 does not"
    if counts["ISETP"] >= 0.5:
        yield f"{counts['ISETP']:.1f} of them compare positions, for a mask that full blocks do not need"
    if counts["FMUL"] >= 1.8 and counts["FSETP"] < 0.5:  # tl.exp multiplies, too
        yield (
            f"{counts['FMUL']:.1f} of them multiply; the scale and the subtraction of the maximum can be one "
            "multiply-add"
        )
