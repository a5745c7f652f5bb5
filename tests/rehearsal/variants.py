"""Every launch the library makes, once, through Triton's JIT and onto a stubbed driver: prints what happened.

    TRITON_INTERPRET=0 PYTHONPATH=. python tests/rehearsal/variants.py

Another Triton goes in front: PYTHONPATH=/path/to/triton-3.6.0:. runs the same with 3.6.0.
"""

import itertools
import json
import sys
import time
import traceback
from functools import partial
from types import SimpleNamespace

import stubbed_gpu
import torch
import triton

from iocourse.bench.gpu.problem import filled
from iocourse.bench.tune import problem, warming
from iocourse.kernels import attention, attention_varlen, decode, using
from iocourse.kernels.backward_keys import backward_keys_kernel
from iocourse.kernels.forward import forward_kernel
from iocourse.kernels.row_products import row_products_kernel
from iocourse.lowrank.tensors.launched import low_rank_backward, low_rank_forward
from iocourse.lowrank.tensors.launched_causal import causal_low_rank_backward, causal_low_rank_forward
from iocourse.monomials import plan

N = 512


def numbers(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def both_passes(attend, H, kv_heads, N, d, dtype=torch.bfloat16):
    """Forward and backward of one attention."""
    q, k, v = (numbers(1, heads, N, d, dtype=dtype).requires_grad_() for heads in (H, kv_heads, kv_heads))
    torch.autograd.grad(attend(q, k, v), (q, k, v), numbers(1, H, N, d, dtype=dtype))


def dense(d, **options):
    both_passes(partial(attention, **options), 2, 2, N, d)


def shared_heads(d):
    both_passes(partial(attention, causal=True, window=(100, 0)), 4, 2, N, d)


def off_the_border(d):
    """N is no multiple of a tile, and float32 takes no descriptors."""
    both_passes(partial(attention, causal="lower_right"), 2, 2, N - 33, d, torch.float32)


def listed(d, deterministic):
    blocks = torch.ones(N // 64, N // 64, dtype=torch.bool).tril()
    both_passes(partial(attention, block_mask=blocks, deterministic=deterministic), 2, 2, N, d)


def packed(d, deterministic):
    cu = torch.tensor([0, 200, N], dtype=torch.int32)
    q, k, v = (numbers(N, 2, d).requires_grad_() for _ in range(3))
    o = attention_varlen(q, k, v, cu, cu, causal=True, deterministic=deterministic)
    torch.autograd.grad(o, (q, k, v), numbers(N, 2, d))


def one_query(d):
    decode(numbers(1, 8, 1, d), *(numbers(1, 2, 4096, d) for _ in range(2)))


def specialised(d, causal):
    """Its descriptor of Q lives in memory that Triton asks for at the launch."""
    attention(*(numbers(1, 2, N, d) for _ in range(3)), causal=causal, specialised=True)


def low_rank(d, g):
    """A state in one block at g = 2, and in several at g = 3."""
    p, size = plan(d, g), (1, 2, N, d)
    q, k, v, do = (numbers(*size, dtype=torch.float32) for _ in range(4))
    weights, variance, shift = torch.ones(p.rank), torch.ones(size[:3]), torch.ones(1, 2, d)
    given = p, weights, variance
    o, den, T = low_rank_forward(q, k, v, *given, shift=shift)
    low_rank_backward(q, k, v, o, den, T, do, *given, shift=shift)
    o, den = causal_low_rank_forward(q, k, v, *given)
    causal_low_rank_backward(q, k, v, o, den, do, *given)


def variants():
    """Each launch variant by its name: 16 bits unless it says otherwise."""
    yes_no = (False, True)
    found = {
        f"d={d} causal={causal} deterministic={fixed}": partial(dense, d, causal=causal, deterministic=fixed)
        for d, causal, fixed in itertools.product((64, 128), yes_no, yes_no)
    }
    found |= {f"d=512 {way}": partial(dense, 512, tile_d=way) for way in ("fused", "materialised")}
    found |= {"d=512 whole rows": partial(dense, 512, tile_d="never")}
    found |= {"d=512 as it chooses, causal": partial(dense, 512, causal=True)}
    found |= {"d=64 shared heads, window": partial(shared_heads, 64)}
    found |= {"d=64 float32, ragged": partial(off_the_border, 64)}
    found |= {f"d=64 block mask, deterministic={fixed}": partial(listed, 64, fixed) for fixed in yes_no}
    found |= {f"d=64 packed, deterministic={fixed}": partial(packed, 64, fixed) for fixed in yes_no}
    found |= {
        f"d={d} specialised, causal={causal}": partial(specialised, d, causal)
        for d, causal in itertools.product((64, 128), yes_no)
    }
    found |= {"decode": partial(one_query, 128)}
    found |= {f"low rank, degree {g}": partial(low_rank, 12, g) for g in (2, 3)}
    return found


def warmed():
    """Launches of two candidates of tune, compiled beforehand: how many, and how many were then on disk."""
    few = [(64, True, "forward", (64, 64, 4, 2)), (64, False, "fused", (64, 64, 4, 1))]
    assert warming.compile_all(stubbed_gpu.ARCH, few, N, "bfloat16") == len(few)
    here = SimpleNamespace(device="cpu")
    problems = [problem.Problem(filled("bfloat16", d, N, causal), here) for d, causal, _, _ in few]
    for kernel in (forward_kernel, row_products_kernel, backward_keys_kernel):
        kernel.device_caches.clear()  # what this process has in memory already
    found = []
    triton.knobs.compilation.listener = lambda **said: found.append(said["cache_hit"])
    for one, (_, _, kernel, tile) in zip(problems, few, strict=True):
        with using(**{kernel: tile}):
            one.run(kernel)
    triton.knobs.compilation.listener = None
    return {"warmed": len(found), "cached": sum(found)}


def main():
    stubbed_gpu.install()
    started, failed, each = time.perf_counter(), {}, {}
    for name, work in variants().items():
        before = time.perf_counter()
        try:
            work()
        except Exception:
            failed[name] = traceback.format_exc(limit=-6)
        each[name] = round(time.perf_counter() - before, 1)
    said = {
        "triton": triton.__version__, "variants": len(each), "failed": failed, "seconds": each,
        "launches": dict(stubbed_gpu.launches), "maps": stubbed_gpu.maps,
    }  # fmt: skip
    said |= {} if failed else warmed()
    said["all_seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(said, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
