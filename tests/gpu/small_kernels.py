"""Small kernels as a user might write them, in a module that `gpu.resources` can compile."""

import triton
import triton.language as tl


@triton.jit
def twice(x):
    return x + x


@triton.jit(do_not_specialize=["n"])
def double_kernel(source, target, n, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, twice(tl.load(source + at, mask=at < n)), mask=at < n)


@triton.jit
def uneven_kernel(source, BLOCK: tl.constexpr):
    tl.store(source + tl.arange(0, BLOCK), 0.0)


@triton.jit
def product_kernel(a, b, c, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))
