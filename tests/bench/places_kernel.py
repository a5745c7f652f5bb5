"""A Triton kernel that stores the places of its programs, for tests of their order."""

import iocourse.kernels  # noqa: F401  # isort: skip  # before triton
import triton  # isort: skip
import triton.language as tl  # isort: skip

from tools.bench.program_order import with_names


def _place(program, shape, LAST_FIRST):
    """Replaced by the function that a test passes to `using`."""
    raise NotImplementedError


@triton.jit
def places_kernel(OUT, shape, LAST_FIRST: tl.constexpr):
    tile, pair, batch, head = _place(tl.program_id(0), shape, LAST_FIRST)
    at = OUT + 4 * tl.program_id(0)
    tl.store(at, tile)
    tl.store(at + 1, pair)
    tl.store(at + 2, batch)
    tl.store(at + 3, head)


def using(place):
    """Return the kernel with this function for the place of a program."""
    return with_names(places_kernel, _place=place)
