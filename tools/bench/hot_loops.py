"""Hot loops of every shipped kernel on sm_90, in 16 bits, compiled with another Triton than the pinned one.

A GPU machine may have another version of Triton, which may compile a kernel worse. The fingerprints of its
machine code show later whether the kernels that were timed there have changed. Results of the pinned version
are part of `python -m tools.bench resources`. For another version, install it into a separate folder
that Python searches first:

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
    """Compile the kernels with the chosen tiles and return the record; quick: d = 128 only.

    Raises UsageError if torch or triton is missing.
    """
    return resources.record(NAME, *(((ARCH,), (128,), (BYTES,)) if quick else WHOLE_RECORD))
