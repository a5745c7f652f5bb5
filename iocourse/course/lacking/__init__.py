"""A lesson where torch or triton is missing: what needs neither runs, the rest says what to install."""

from __future__ import annotations

from ...doctor.needs_triton import NeedsTriton
from .. import nbgrader_mode
from ..missing_packages import Cells
from .stand_ins import StandIn, what_to_do


def stand_in(missing: NeedsTriton) -> StandIn:
    """Something in the place of what cannot be imported; prints the line that says what to install.

    From here on a cell that needs it ends with that line, not with a traceback. Only in a notebook that
    somebody reads: elsewhere, and where the notebook is judged (nbgrader, IOCOURSE_STRICT=1), `missing` is
    raised.
    """
    shell = Cells.notebook()
    if shell is None or nbgrader_mode.counts():
        raise missing
    print(what_to_do())
    Cells.watched(shell)
    return StandIn()
