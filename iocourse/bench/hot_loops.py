"""The hot loops of the kernels of whole rows on sm_90, for another Triton than the pinned one.

What one Triton compiles well another may not, and a GPU comes with its own. Those of the pinned version are
part of `iocourse bench resources`. For another, install it beside, and let Python find it first:

    pip install --no-deps --target FOLDER triton==3.6.0
    PYTHONPATH=FOLDER iocourse bench hot-loops --json iocourse/data/bench/hot-loops.json
"""

from __future__ import annotations

from typing import Any

from iocourse.bench import circumstances
from iocourse.bench.resources.compiling import compiled, need_compiler, shipped
from iocourse.bench.resources.text import TILED, table_of

NAME = "hot-loops"
HELP = "hot loops of the kernels on sm_90, with the Triton that Python finds first (compiled, no GPU needed)"
ARCH = 90
HEADS = (64, 128, 256)


def run(quick: bool) -> dict[str, Any]:
    """Compile them in 16 bits, plain and causal, with the tiles of the table.

    Args:
        quick: d = 128 only.

    Raises:
        Refused: torch or triton is missing.
    """
    need_compiler()
    heads = (128,) if quick else HEADS
    asked = [one for d in heads for kernel in TILED for one in shipped(ARCH, d, 2, kernel)]
    return {"subject": NAME, **circumstances("triton"), "shipped": compiled(asked)}


def show(result: dict[str, Any]) -> str:
    """One line a kernel."""
    return table_of(result)
