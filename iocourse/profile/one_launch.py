"""One launch in a process of its own: `python -m iocourse.profile.one_launch JSON`.

Interpreted (TRITON_INTERPRET=1) it prints the launch's ledger. Compiled it warms up, and then launches once
between cudaProfilerStart and cudaProfilerStop, so that a profiler that waits for these sees one launch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .. import kernels, traffic
from .question import Question, of_facts

Launch = Callable[[], Any]
WARM_UPS = 2


def prepared(asked: Question, device: str, dtype: torch.dtype) -> tuple[Launch, dict[str, Tensor]]:
    """The launch as a function, and its tensors by the names they have in a ledger."""
    if asked.what == "packed":
        return _packed(asked, device, dtype)
    B, N, d = asked.batch, asked.N, asked.d
    n_q = 1 if asked.what == "decode" else N
    q = torch.randn(B, asked.heads, n_q, d, device=device, dtype=dtype)
    k, v = (torch.randn(B, asked.kv_heads, N, d, device=device, dtype=dtype) for _ in range(2))
    named = {"Q": q, "K": k, "V": v}
    if asked.what == "decode":
        return lambda: kernels.decode(q, k, v, parts=asked.parts), named
    options = _options(asked, q, k)
    if asked.what.endswith("backward"):
        return _backward(q, k, v, options)
    return lambda: kernels.attention(q, k, v, **options), named


def _options(asked: Question, q: Tensor, k: Tensor) -> dict[str, Any]:
    if asked.what == "block-sparse":
        return {"block_mask": kernels.tiled_mask(asked.mask, q, k)}
    way = asked.what.removeprefix("small-cache-") if asked.sliced else "never"
    options = {"causal": asked.causal, "tile_d": way}
    return options | ({"deterministic": True} if asked.what == "split-backward" else {})


def _backward(
    q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]
) -> tuple[Launch, dict[str, Tensor]]:  # fmt: skip
    inputs = [x.requires_grad_() for x in (q, k, v)]
    o, do = kernels.attention(q, k, v, **options), torch.randn_like(q)
    named = {"Q": q, "K": k, "V": v, "O": o, "dO": do}
    return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True), named


def _packed(asked: Question, device: str, dtype: torch.dtype) -> tuple[Launch, dict[str, Tensor]]:
    starts = list(accumulate(asked.lengths, initial=0))
    cu = torch.tensor(starts, dtype=torch.int32, device=device)
    q = torch.randn(asked.N, asked.heads, asked.d, device=device, dtype=dtype)
    k, v = (torch.randn(asked.N, asked.kv_heads, asked.d, device=device, dtype=dtype) for _ in range(2))
    longest = (max(asked.lengths),) * 2
    named = {name: x.transpose(0, 1)[None] for name, x in (("Q", q), ("K", k), ("V", v))}
    return lambda: kernels.attention_varlen(
        q, k, v, cu, cu.clone(), longest=longest, causal=asked.causal
    ), named


def ledger(asked: Question) -> str:
    """The launch's ledger as JSON. bfloat16 is counted as float16: as wide, and the interpreter has it."""
    dtype = torch.float32 if asked.dtype == "float32" else torch.float16
    launch, named = prepared(asked, "cpu", dtype)
    with traffic.count(**named) as counted:
        launch()
    return counted.to_json()


def once(launch: Launch, profiler: Any, wait: Callable[[], Any]) -> None:
    """Warm up, then launch once while the profiler looks."""
    for _ in range(WARM_UPS):
        launch()
    wait()
    profiler.start()
    launch()
    wait()
    profiler.stop()


def main(text: str) -> None:
    """Launch what the JSON object asks for: {"question": …, "tiles": …}."""
    given = json.loads(text)
    asked = of_facts(given["question"])
    with kernels.using(**given["tiles"]):
        if kernels.INTERPRETED:
            print(ledger(asked))
        else:
            launch, _ = prepared(asked, "cuda", getattr(torch, asked.dtype))
            once(launch, torch.cuda.profiler, torch.cuda.synchronize)


if __name__ == "__main__":
    main(sys.argv[1])
