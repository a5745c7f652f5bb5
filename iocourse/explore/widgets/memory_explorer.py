"""The map of words against memory as an explorer: M can be dragged, and ticks say what is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...schedules import of_pass
from ..draw.html import as_table, in_html
from ..draw.picture import Picture
from ..facts.memory_map import COMPULSORY_WORDS, bound_label, bounds_of
from ..figures.memory_map import M_at, View, headline, line_of, map_of, rows_at_M, view_of
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import Control, choice, size_slider, tick

SIZES = {"N": ("N (rows)", 1, 2**16, 2), "d": ("d (columns)", 1, 2**8, 2), "M": ("M (words)", 2**2, 2**25, 4)}


@explorer
def memory_explorer(
    N: int = 4096,
    d: int = 64,
    M: int = 16384,
    pass_: str = "forward",
    schedules: Sequence[str] | None = None,
    bounds: Sequence[str] | None = None,
) -> MemoryExplorer | Picture:
    """Words against memory, live: sliders for N, d and M, the pass, and a tick for each schedule and bound.

    It starts with `schedules` and `bounds` ticked, by default those of `memory_map`. Where there are no
    widgets: the picture alone. Raises as `memory_map`.
    """
    view = view_of(N, d, M, pass_, schedules, bounds)
    if without_widgets():
        return map_of(view)
    return MemoryExplorer(view)


class MemoryExplorer(Explorer):
    """The explorer; its controls: N, d, M, pass, and a tick for each schedule and bound of each pass.

    The line at M can be dragged. A tick is called by its pass and name, as in "backward split_backward".
    """

    words_below = True

    def __init__(self, view: View) -> None:
        self._ticks = [one for pass_ in COMPULSORY_WORDS for one in _ticks(pass_, view)]
        sizes = [size_slider(name, *SIZES[name], getattr(view, name)) for name in ("M", "N", "d")]
        super().__init__([*sizes, choice("pass", "pass", list(COMPULSORY_WORDS), view.pass_), *self._ticks])

    @property
    def setting(self) -> View:
        N, d, M, pass_ = self._values("N", "d", "M", "pass")
        ticked = [one for one in self._ticks if one.value and not one.hidden]
        names = [one.name.removeprefix(f"{pass_} ") for one in ticked]
        known = bounds_of(pass_)
        schedules = [name for name in names if name not in known]
        return view_of(N, d, M, pass_, schedules, [name for name in names if name in known])

    @property
    def picture(self) -> Picture:
        return map_of(self.setting)

    def grabs(self) -> Iterable[Grab]:
        return [Grab(*line_of(self.setting), "ew-resize")] if self.svg else []

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind == "move" and self.svg:
            first, last = SIZES["M"][1:3]
            self.controls["M"].move_to(min(max(M_at(self.setting, x), first), last))

    def _stands(self) -> dict[str, Any]:
        return dict(list(self.setting._asdict().items())[:6])

    def _said(self) -> str:
        return as_table(rows_at_M(self.setting))

    def _spoken(self) -> str:
        return " ".join(headline(self.setting)) if self.svg else super()._spoken()

    def _draw(self) -> None:
        try:
            super()._draw()
        except ValueError as nothing:  # every tick is taken away
            self.svg, self.words = "", in_html([f"{str(nothing).capitalize()}."])
            self._show()

    def _fit(self) -> None:
        """Show the ticks of the pass."""
        for one in self._ticks:
            one.hidden = one.name.partition(" ")[0] != self.value("pass")


def _ticks(pass_: str, view: View) -> list[Control]:
    """A tick for each schedule and bound of a pass; those of `view` are set, in its own pass."""
    mine = view if view.pass_ == pass_ else view_of(view.N, view.d, None, pass_)
    schedules = [
        tick(f"{pass_} {s.name}", s.title, s.name in mine.schedules, "schedules") for s in of_pass(pass_)
    ]
    bounds = [
        tick(f"{pass_} {name}", bound_label(name), name in mine.bounds, "bounds") for name in bounds_of(pass_)
    ]
    return schedules + bounds
