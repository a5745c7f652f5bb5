"""The table of lesson 17b under one's hand: sliders for d and g over the record."""

from __future__ import annotations

from typing import NamedTuple

from ...data.recorded import recorded
from ..draw.html import in_html
from ..draw.picture import Picture
from ..draw.record import Record
from ..facts.records.lowrank import compared, degrees, sizes
from ..figures.lowrank_row import lowrank_row, lowrank_row_words
from .explorer import Explorer, explorer, without_widgets
from .panel import by_name, slider


class Row(NamedTuple):
    """Columns and degree."""

    d: int
    g: int


@explorer
def lowrank_table(d: int = 12, g: int = 3) -> LowrankTable | Picture:
    """Sliders for d and g over the shipped record of `iocourse bench lowrank`; nothing is measured.

    Where there are no widgets, or no record: the picture alone. Raises as `lowrank_row`.
    """
    record = recorded("lowrank")
    picture = lowrank_row(record, d, g)
    return picture if record is None or without_widgets() else LowrankTable(record, d, g)


class LowrankTable(Explorer):
    """The explorer; its controls: d, g. Degree offers what was measured at d."""

    def __init__(self, record: Record, d: int, g: int) -> None:
        self._record = record
        controls = [slider("d", "d (columns)", sizes(record), d)]
        super().__init__([*controls, slider("g", "degree g", degrees(record, d), g)])

    @property
    def setting(self) -> Row:
        """Where the controls stand."""
        return Row(*self._values("d", "g"))

    @property
    def picture(self) -> Picture:
        return lowrank_row(self._record, *self.setting)

    def _after(self, name: str) -> None:
        if name == "d":
            control, found = self.controls["g"], degrees(self._record, self.value("d"))
            control.offered = by_name(found)
            control.value = max(g for g in found if g <= max(control.value, found[0]))

    def _said(self) -> str:
        return in_html([lowrank_row_words(compared(self._record, *self.setting))])
