"""One launch in a separate process, for a profiler: `python -m tools.bench.one_launch JSON`.

The process warms up, and then launches once between cudaProfilerStart and cudaProfilerStop, so that a
profiler that waits for these calls records exactly one launch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from iocourse import kernels, traffic
from iocourse.ledger import Ledger
from iocourse.profile import LaunchRequest
from tools.bench.program_order import order_of

Launch = Callable[[], Any]
WARM_UPS = 2


def prepared(asked: LaunchRequest, device: str, dtype: torch.dtype) -> tuple[Launch, dict[str, Tensor]]:
    """Return the launch as a function, and its tensors by their names in a ledger."""
    packed = asked.what == "packed"  # concatenated sequences, (N, heads, d)

    def normal(heads: int, rows: int) -> Tensor:
        sizes = (rows, heads) if packed else (asked.batch, heads, rows)
        return torch.randn(*sizes, asked.d, device=device, dtype=dtype)

    q = normal(asked.heads, 1 if asked.what == "decode" else asked.N)
    k, v = (normal(asked.kv_heads, asked.N) for _ in range(2))
    named = {"Q": q, "K": k, "V": v}
    if asked.what == "decode":
        return lambda: kernels.decode(q, k, v, parts=asked.parts), named
    if packed:
        cu = torch.tensor([0, *accumulate(asked.lengths)], dtype=torch.int32, device=device)
        told: Any = {"longest": (max(asked.lengths),) * 2, "causal": asked.causal}
        return lambda: kernels.attention_varlen(q, k, v, cu, cu.clone(), **told), named
    options = _options(asked, q, k)
    if asked.what.endswith("backward"):
        o, do = kernels.attention(*(x.requires_grad_() for x in (q, k, v)), **options), torch.randn_like(q)
        named |= {"O": o, "dO": do}
        return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True), named
    return lambda: kernels.attention(q, k, v, **options), named


def _options(asked: LaunchRequest, q: Tensor, k: Tensor) -> dict[str, Any]:
    if asked.what == "block-sparse":
        return {"block_mask": kernels.tiled_mask(asked.mask, q, k)}
    way = asked.what.removeprefix("small-cache-").removesuffix("-backward") if asked.sliced else "never"
    return {"causal": asked.causal, "tile_d": way, "deterministic": asked.what == "split-backward"}


def ledger(asked: LaunchRequest) -> Ledger:
    """Count the launch in the interpreter and return its ledger."""
    launch, named = prepared(asked, "cpu", getattr(torch, asked.dtype))
    with traffic.count(**named) as counted:
        launch()
    return counted


def once(launch: Launch, profiler: Any, wait: Callable[[], Any]) -> None:
    """Warm up, then launch once with the profiler on."""
    for _ in range(WARM_UPS):
        launch()
    wait()
    profiler.start()
    launch()
    wait()
    profiler.stop()


def main(text: str) -> None:
    """Run the launch that the JSON object `{"question": …, "tiles": …, "order": …}` describes."""
    given = json.loads(text)
    asked = LaunchRequest(**given["question"])
    with kernels.using(**given["tiles"]), order_of(given["order"]):
        launch, _ = prepared(asked, "cuda", getattr(torch, asked.dtype))
        once(launch, torch.cuda.profiler, torch.cuda.synchronize)


if __name__ == "__main__":
    main(sys.argv[1])
