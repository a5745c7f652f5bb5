"""Every launch the library makes, once, through Triton's JIT and onto a stubbed driver: prints what happened.

    TRITON_INTERPRET=0 PYTHONPATH=. python tests/gpu_launches/every_launch.py

Compiling takes the time. So dense attention at 64 and 128 has the tiles of the table, and every two of its
options together once; what is another kind of launch and not another size has small heads and tiles. That the
tiles of the tables fit, `bench resources` has recorded, and tests/gpu holds that record to the code.

Another Triton goes in front: PYTHONPATH=/path/to/triton-3.6.0:. runs the same with 3.6.0.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from functools import partial

import stub_driver
import torch
import triton

from iocourse.kernels import attention, attention_varlen, decode, tiled_mask, using
from iocourse.kernels.backward_delta import row_products_kernel
from iocourse.kernels.backward_dkdv import backward_keys_kernel
from iocourse.kernels.forward import forward_kernel
from iocourse.kernels.host.choices import SLICED, WHOLE, replaced
from iocourse.kernels.split_kv_decode import merge_kernel, parts_kernel
from tools.bench import tiles, warming
from tools.bench.contest import SPLIT_KV, work_of
from tools.bench.contests import CONTESTS
from tools.bench.problems import Cached, filled

N = 512
SLICES = dict.fromkeys(SLICED, (32, 32, 64, 4, 2))  # by pointers: no box depends on their sizes
TINY = dict.fromkeys(WHOLE, (16, 16, 4, 1))  # without tensor cores each product is written out
SMALL = {
    "forward": (64, 32, 4, 1),
    "fused": (32, 64, 4, 1),
    "queries": (64, 32, 4, 1),
    "keys": (32, 64, 4, 1),
}


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
    """Shapes where N is not a multiple of a tile; float32 does not use descriptors."""
    with using(**TINY):
        both_passes(partial(attention, causal="lower_right"), 2, 2, N - 33, d, torch.float32)


def listed(d, deterministic):
    blocks, q = torch.ones(N // 64, N // 64, dtype=torch.bool).tril(), numbers(1, 2, N, d)
    mask = tiled_mask(blocks, q, q)
    both_passes(partial(attention, block_mask=mask, deterministic=deterministic), 2, 2, N, d)


def packed(d, deterministic):
    cu = torch.tensor([0, 200, N], dtype=torch.int32)
    q, k, v = (numbers(N, 2, d).requires_grad_() for _ in range(3))
    o = attention_varlen(q, k, v, cu, cu, causal=True, deterministic=deterministic)
    torch.autograd.grad(o, (q, k, v), numbers(N, 2, d))


def one_query(d, merged_by):
    with replaced({"decode step": merged_by}):
        decode(numbers(1, 8, 1, d), *(numbers(1, 2, 4096, d) for _ in range(2)))


def sliced(way):
    """All causal: what one of them has compiled, the next takes."""
    with using(**SLICES):
        dense(512, causal=True, tile_d=way)


def in_small_tiles(work, *arguments):
    with using(**SMALL):
        work(16, *arguments)


def variants():
    """Return each launch variant by its name, in 16 bits unless the name has another type."""
    yes_no = (False, True)
    found = {
        f"d={d} causal={causal} deterministic={fixed}": partial(dense, d, causal=causal, deterministic=fixed)
        for d, causal, fixed in ((64, False, False), (64, True, True), (128, True, False), (128, False, True))
    }
    ways = {"fused": "fused", "materialised": "materialised", "whole rows": "never", "as it chooses": None}
    found |= {f"d=512 causal {name}": partial(sliced, way) for name, way in ways.items()}
    found |= {"shared heads, window": partial(in_small_tiles, shared_heads)}
    found |= {"float32, ragged": partial(off_the_border, 16)}
    for fixed in yes_no:
        found[f"block mask, deterministic={fixed}"] = partial(in_small_tiles, listed, fixed)
        found[f"packed, deterministic={fixed}"] = partial(in_small_tiles, packed, fixed)
    for way in ("second launch", "last program"):
        found[f"decode, merged by {way}"] = partial(one_query, 128, way)
    return found


def warmed():
    """Launches of two candidates of tune and of a decode step, compiled beforehand: how many, and how many
    were then on disk, where nothing else is.
    """
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TRITON_CACHE_DIR"] = empty
        return warmed_and_found()


def forget():
    """Empty the caches of this process, so that a kernel is looked for on disk."""
    for kernel in (forward_kernel, row_products_kernel, backward_keys_kernel, parts_kernel, merge_kernel):
        kernel.device_caches.clear()


def warmed_and_found():
    forget()  # a kernel that a variant has launched would not be written to the empty folder
    few = [
        (filled("bfloat16", 64, N, causal), kernel, (64, 64, 4, stages))
        for causal, kernel, stages in ((True, "forward", 2), (False, "fused", 1))
    ]
    step = warming.Wanted("merging", Cached("bfloat16", 128, 4096, 1, 8, 2), SPLIT_KV)
    for one in few:
        tiles.compile_one(stub_driver.ARCH, *one)
    assert not (reason := warming.compile_one(stub_driver.ARCH, stub_driver.PROCESSORS, *step)), reason
    tiles.normal = lambda sizes, count, *_: [numbers(*sizes) for _ in range(count)]
    problems = [tiles.Problem(shape, "cpu") for shape, _, _ in few]
    forget()
    found = []
    triton.knobs.compilation.listener = lambda **said: found.append(said["cache_hit"])
    for one, (_, kernel, tile) in zip(problems, few, strict=True):
        with using(**{kernel: tile}):
            one.run(kernel)
    contest = CONTESTS[step.step]
    given = contest.problem(step.shape, "cpu", 0).given_to(step.contender)
    work_of(contest.contenders(None)[step.contender], given, "forward")()
    triton.knobs.compilation.listener = None
    return {"warmed": len(found), "cached": sum(found)}


def main():
    stub_driver.install()
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
        "launches": dict(stub_driver.launches), "maps": stub_driver.maps,
    }  # fmt: skip
    said |= {} if failed else warmed()
    said["all_seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(said, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
