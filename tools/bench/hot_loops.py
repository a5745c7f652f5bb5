"""The hot loops of every shipped kernel on sm_90, in 16 bits, for another Triton than the pinned one.

What one Triton compiles well another may not, and a GPU comes with its own. Those of the pinned version are
part of `python -m tools.bench resources`. For another, install it beside, and let Python find it first:

    pip install --no-deps --target FOLDER triton==3.6.0
    PYTHONPATH=FOLDER python -m tools.bench hot-loops --json iocourse/data/bench/hot-loops.json
"""

from __future__ import annotations

from tools.bench import Row, resources

NAME = "hot-loops"
HELP = "hot loops of the kernels on sm_90, with the Triton that Python finds first (compiled, no GPU needed)"
ARCH, BYTES = 90, 2
WHOLE_RECORD = (ARCH,), resources.HEADS, (BYTES,)  # architectures, head sizes, widths
show = resources.show


def run(quick: bool) -> Row:
    """Compile them with the tiles of the tables; `quick`: those of d = 128 only.

    Raises UsageError where torch or triton is missing.
    """
    return resources.record(NAME, *(((ARCH,), (128,), (BYTES,)) if quick else WHOLE_RECORD))
