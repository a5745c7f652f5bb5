"""The table of lesson 17b under one's hand: sliders for d and g over the record."""

from __future__ import annotations

from typing import NamedTuple

from ...data.records import load_record
from ..draw.text import in_html
from ..figures.lowrank_results import lowrank_times, lowrank_times_words
from ..models.lowrank_record import compared, degrees, sizes
from .controls import by_name, slider
from .explorer import Explorer, Shown, explorer


class Row(NamedTuple):
    """Columns and degree."""

    d: int
    g: int


@explorer
class LowrankTable(Explorer):
    """Sliders for d and g over the shipped record of `python -m tools.bench lowrank`; nothing is measured.

    Degree offers what was measured at d. Where there is no record: a picture that says so, and no sliders.
    Its controls: d, g. Raises as `lowrank_times`.
    """

    def __init__(self, d: int = 12, g: int = 3) -> None:
        self._record = load_record("lowrank")
        controls = []
        if self._record:
            known = degrees(self._record, d)
            controls = [slider("d", "d (columns)", sizes(self._record)), slider("g", "degree g", known)]
        super().__init__(Row(d, g), controls)

    def shown(self) -> Shown:
        picture = lowrank_times(self._record, *self.setting)
        known = self._record and compared(self._record, *self.setting)
        return Shown(picture, in_html([lowrank_times_words(known) if known else picture.alt]))

    def _after(self, name: str) -> None:
        if name == "d":
            self.controls["g"].offer(by_name(degrees(self._record or {}, self.value("d"))))
