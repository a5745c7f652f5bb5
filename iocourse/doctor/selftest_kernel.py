"""Self-test of Triton for `iocourse doctor`: run one kernel with a known result and print the result.

`iocourse.doctor` runs this file in a separate process with TRITON_INTERPRET=1, because Triton reads that
variable once, when a kernel is defined.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_of_squares(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add x[i]² for i < n. The loop bound is only known at run time, as in every attention kernel."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)  # (BLOCK,)
    for start in range(0, n, BLOCK):
        index = start + tl.arange(0, BLOCK)  # (BLOCK,)
        x = tl.load(x_ptr + index, mask=index < n, other=0.0)  # (BLOCK,)
        total += x * x
    tl.store(out_ptr, tl.sum(total, axis=0))


def answer(n: int) -> float:
    """Return 0² + 1² + … + (n - 1)², computed by the kernel."""
    out = torch.empty(1)
    sum_of_squares[(1,)](torch.arange(n, dtype=torch.float32), out, n, BLOCK=16)
    return float(out[0])


if __name__ == "__main__":
    print(answer(100))
