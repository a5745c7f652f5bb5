"""The kind `kernel`: a launcher of Triton kernels, tested for its values, words and products.

It is the kind `function` with the properties of every kernel: kernels do the work, they move the words of the
closed form, no load in a loop is completely out of bounds, products keep all bits of their factors, and the
result does not depend on the order of programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..exercise import Case, Draw, Exercise, Property, RunCase, Sample
from ..trials.float32_inputs import FAR, FAR_NAME, LARGE_TOLERANCE
from ..trials.kernel_launch import (
    any_order,
    full_products,
    launch_in_place,
    launches_kernels,
    no_tile_outside,
    words_exactly,
)
from .function import EVERY, Rows, Sentences, function_exercise

O = {("O", EVERY): "O equals exact attention"}
LSE = {("LSE", EVERY): "LSE is the natural logarithm of the row sums"}
FAR_FROM_0 = {("O", FAR): FAR_NAME}
ATTENTION = O | LSE | FAR_FROM_0
MOVES = words_exactly()
# For float32 kernels compared with float64: 128 rounding errors of 2^-24. This is five times the largest
# error of the references, and less than half the error of score gradients with 13 bits.
SINGLE = 2.0**-17


def kernel_exercise(
    id: str,
    results: str,
    draw: Draw,
    sentences: Sentences,
    *,
    loads: str = "",
    words: Property = MOVES,
    also: tuple[Property, ...] = (),
    products: bool = True,
    tolerance: float = SINGLE,
    looser: Mapping[str, float] | None = None,
    rows: Mapping[str, Rows] | None = None,
    run_case: RunCase = launch_in_place,
    compiles: bool = True,
) -> Exercise:
    """Return the exercise of a launcher that returns these results.

    Args:
        id: the exercise, such as "11A".
        results: names of its results, separated by spaces.
        draw: yields the samples, each with its closed form.
        sentences: names of the properties of the values, as in the kind `function`.
        loads: inputs that every case reads completely, for the property "a kernel does the work".
        words: the property of loads and stores: `words_exactly`, or `words_within` if a correct kernel may
            move fewer words than the closed form.
        also: further properties, listed after `words`.
        products: whether the kernel uses tl.dot, whose factors must keep all their bits.
        tolerance: largest error, relative to 1 + max|expected|.
        looser: tolerances of the cases with these tags; scores far from 0 have a default.
        rows: as in the kind `function`.
        run_case: runs one case.
        compiles: whether a solved check shows what the compiler makes of the kernels.

    Raises:
        ValueError: as in the kind `function`, and while the cases are drawn if a sample has no closed form.
    """
    work = (launches_kernels(*loads.split()),) if loads else ()
    precise = (full_products(),) if products else ()
    looser = {FAR: LARGE_TOLERANCE, **(looser or {})}

    def allowed(case: Case) -> float:
        return next((share for tag, share in looser.items() if case.has(tag)), tolerance)

    def with_closed_forms(rng: np.random.Generator) -> Iterator[Sample]:
        for sample in draw(rng):
            if sample.words is None:
                raise ValueError(
                    f"exercise {id}: the case with {dict(sample.sizes)} has no closed form of its words; "
                    "give the sample `words`, a Ledger of iocourse.costs"
                )
            yield sample

    return function_exercise(
        id,
        results,
        with_closed_forms,
        sentences,
        before=work,
        after=(words, *also, no_tile_outside(), *precise, any_order(allowed)),
        tolerance=tolerance,
        looser=looser,
        rows=rows,
        run_case=run_case,
        compiles=compiles,
    )
