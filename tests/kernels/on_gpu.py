"""Compiled kernels against float64 on this machine's GPU: a script of its own, because a process interprets
or compiles.

`test_on_gpu` runs it with TRITON_INTERPRET=0. Each line it prints is one configuration that failed.
"""

import itertools
import math
import sys
from typing import Any

import oracle
import torch

from iocourse.kernels import attention, attention_with_lse

CASES = [
    # Nq, Nk, heads, options
    (512, 512, (4, 4), {}),
    (512, 512, (4, 4), {"causal": True}),
    (1000, 1000, (4, 2), {"causal": True}),
    (333, 1111, (4, 1), {"causal": "lower_right"}),
    (1111, 333, (2, 2), {"causal": "lower_right"}),
    (777, 777, (2, 2), {"window": (100, 0), "causal": True}),
    (640, 640, (2, 2), {"window": (65, 130)}),
    (1, 2000, (8, 2), {}),
    (129, 1, (2, 2), {"scale": -0.3}),
]
SIZES = [
    (torch.bfloat16, 64),
    (torch.bfloat16, 128),
    (torch.float16, 128),
    (torch.float16, 80),
    (torch.float16, 256),
]
SIZES += [(torch.float32, 64), (torch.float32, 40)]


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def worst(dtype: torch.dtype, d: int, case: tuple[Any, ...], deterministic: bool) -> str:
    """What is wrong with one configuration, or ""."""
    n_q, n_k, (H, H_kv), options = case
    q, do = numbers(2, n_q, H, d, dtype=dtype).transpose(1, 2), numbers(2, H, n_q, d, dtype=dtype)
    k, v = (numbers(2, H_kv, n_k, d, dtype=dtype) for _ in range(2))
    allowed = oracle.seen(n_q, n_k, options.get("causal", False), options.get("window")).cuda()
    scale = options.get("scale")

    def kernels(*leaves: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return attention_with_lse(*leaves, **options, deterministic=deterministic)

    got = oracle.results(kernels, q, k, v, do, None)
    want = oracle.results(
        lambda *x: oracle.exact(*x, allowed, scale), *(x.double() for x in (q, k, v)), do, None
    )
    eager = oracle.results(lambda *x: oracle.eager(*x, allowed, scale), q, k, v, do, None)
    floor = oracle.float32_terms(q, k, v, do, None, allowed, scale)
    for name, one, exactly, pytorch, least in zip(got._fields, got, want, eager, floor, strict=True):
        bound = 2 * oracle.error(pytorch, exactly) + oracle.rounding(exactly, one.dtype) + float(least)
        if not oracle.error(one, exactly) <= bound or math.isnan(bound):
            return f"{name} errs by {oracle.error(one, exactly):.3g}, allowed {bound:.3g}"
    return ""


def same_bits() -> str:
    """The deterministic backward pass twice on the same inputs."""
    q, k, v, do = (numbers(2, 4, 2048, 128, dtype=torch.bfloat16) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    runs = [torch.autograd.grad(attention(*leaves, deterministic=True), leaves, do) for _ in range(3)]
    equal = all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))
    return "" if equal else "deterministic=True differs between runs"


def far_apart() -> str:
    """A view whose last element lies beyond 2³¹ elements."""
    step = 2**31 // 60
    memory = torch.zeros(64 * step, dtype=torch.float16, device="cuda")
    far = memory.as_strided((1, 1, 64, 64), (0, 0, step, 1)).copy_(numbers(1, 1, 64, 64, dtype=torch.float16))
    near = far.clone(memory_format=torch.contiguous_format)
    return "" if torch.equal(attention(far, far, far), attention(near, near, near)) else "64-bit offsets fail"


def compiled() -> str:
    """torch.compile with its own back end, forward and backward."""
    q, k, v = (numbers(1, 2, 300, 64, dtype=torch.float16).requires_grad_() for _ in range(3))

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (attention(q * 1.5, k, v, causal=True, deterministic=True).float() ** 2).sum()

    plain = torch.autograd.grad(loss(q, k, v), (q, k, v))
    fast = torch.autograd.grad(torch.compile(loss, fullgraph=True)(q, k, v), (q, k, v))
    near = all(torch.allclose(a, b, atol=2e-2, rtol=2e-2) for a, b in zip(plain, fast, strict=True))
    return "" if near else "torch.compile changes the gradients"


def main() -> int:
    torch.manual_seed(0)
    failed = 0
    for (dtype, d), case, deterministic in itertools.product(SIZES, CASES, (False, True)):
        wrong = worst(dtype, d, case, deterministic)
        if wrong:
            failed += 1
            print(f"{dtype} d={d} {case} deterministic={deterministic}: {wrong}", flush=True)
    for check in (same_bits, far_apart, compiled):
        wrong = check()
        failed += bool(wrong)
        print(wrong or f"{check.__name__}: holds", flush=True)
    print(f"{failed} failed on {torch.cuda.get_device_name()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
