"""The kind `kernel`: a launcher of Triton kernels, judged by its values, its words and its products.

It is the kind `function` with what every kernel must have: kernels do the work, they move the words of the
closed form, no tile that they load lies wholly outside, products keep all bits of their factors, and the
order of programs does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..exercise import Case, Exercise, Property, RunCase
from ..sample import Draw, Sample
from ..trials.float32_inputs import FAR, FAR_NAME, LARGE_TOLERANCE
from ..trials.kernel_launch import (
    any_order,
    full_products,
    launch_in_place,
    launches_kernels,
    no_tile_outside,
    words_exactly,
)
from .function import EVERY, Sentences, function

O = {("O", EVERY): "O equals exact attention"}
LSE = {("LSE", EVERY): "LSE is the natural logarithm of the row sums"}
FAR_FROM_0 = {("O", FAR): FAR_NAME}
ATTENTION = O | LSE | FAR_FROM_0
MOVES = words_exactly()
# Of float32 kernels against float64: 128 rounding errors of 2^-24, five times what ours are off by at most
# and less than half of what score gradients in 13 bits are off by.
SINGLE = 2.0**-17


def kernel(
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
    run_case: RunCase = launch_in_place,
) -> Exercise:
    """Return the exercise of a launcher that returns `results` (names separated by spaces).

    Args:
        id: the exercise, such as "11A".
        results: names of what it returns, separated by spaces.
        draw: yields the samples, each with its closed form.
        sentences: names of the properties about values, as the kind `function` has them.
        loads: inputs that every case needs completely, for the property "a kernel does the work".
        words: the property about loads and stores: `words_exactly`, or `words_within` where fewer words than
            the closed form can be right.
        also: properties of this exercise only, which are read after those about words.
        products: whether the kernel uses tl.dot, whose factors must keep all their bits.
        tolerance: of a difference, as a share of 1 + max|expected|.
        looser: tolerances of the cases with these tags; scores far from 0 have theirs.
        run_case: how a case is tried.

    Raises:
        ValueError: as the kind `function`, and by drawing the cases where a sample has no closed form.
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

    return function(
        id,
        results,
        with_closed_forms,
        sentences,
        before=work,
        after=(words, *also, no_tile_outside(), *precise, any_order(allowed)),
        tolerance=tolerance,
        looser=looser,
        run_case=run_case,
    )
