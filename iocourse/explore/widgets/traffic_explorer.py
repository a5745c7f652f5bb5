"""The map of words against memory as an explorer: M can be dragged, and ticks say what is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...schedules import of_pass
from ..draw.text import as_table, in_html
from ..figures.traffic_map import M_at, View, headline, line_of, map_of, rows_at_M, view_of
from ..models.traffic_map import COMPULSORY_WORDS, bound_label, bounds_of, search_all
from .controls import Control, choice, size_slider, tick
from .explorer import Explorer, Grab, Shown, explorer

CONTROLS = (
    size_slider("M", "M (words)", 2**2, 2**25, 4),
    size_slider("N", "N (rows)", 1, 2**16, 2),
    size_slider("d", "d (columns)", 1, 2**8, 2),
    choice("pass", "pass", list(COMPULSORY_WORDS)),
)


@explorer
class TrafficExplorer(Explorer):
    """Words against memory, live: sliders for N, d and M, the pass, and a tick for each schedule and bound.

    It starts with `schedules` and `bounds` ticked, by default those of `traffic_map`. The line at M can be
    dragged. Its controls: N, d, M, pass, and for each pass a tick for each schedule and bound, called by both
    names, as in "backward split_backward". Raises as `traffic_map`.
    """

    words_below = True
    ahead = ("N", "d")

    def __init__(
        self,
        N: int = 4096,
        d: int = 64,
        M: int = 16384,
        pass_: str = "forward",
        schedules: Sequence[str] | None = None,
        bounds: Sequence[str] | None = None,
    ) -> None:
        view = view_of(N, d, M, pass_, schedules, bounds)
        map_of(view)  # which refuses to draw nothing
        search_all()  # so that no key has to wait for it
        super().__init__(view, [*CONTROLS, *_ticks(view)], **{"pass": view.pass_})

    @property
    def setting(self) -> View:
        """Sizes, the pass, and what is ticked of it."""
        N, d, M, pass_ = (self.value(name) for name in ("N", "d", "M", "pass"))
        return view_of(N, d, M, pass_, self._ticked("schedules"), self._ticked("bounds"))

    def _ticked(self, group: str) -> list[str]:
        ticks = (one for one in self.controls.values() if one.group == group and not one.hidden)
        return [one.name.partition(" ")[2] for one in ticks if one.value]

    def shown(self) -> Shown:
        view = self.setting
        try:
            picture = map_of(view)
        except ValueError as nothing:  # every tick is taken away
            return Shown(None, in_html([f"{str(nothing).capitalize()}."]))
        line = Grab(*line_of(view), "ew-resize")
        return Shown(picture, as_table(rows_at_M(view)), " ".join(headline(view)), [line])

    def _dragged(self, x: float, y: float) -> dict[str, int]:
        return {"M": M_at(self.setting, x)}

    def _fit(self) -> None:
        """Show the ticks of the pass."""
        for one in self.controls.values():
            one.hidden = one.kind == "tick" and one.name.partition(" ")[0] != self.value("pass")


def _ticks(view: View) -> Iterator[Control]:
    """A tick for each schedule and bound of each pass; those of `view` are set, in its own pass."""
    for pass_ in COMPULSORY_WORDS:
        mine = view if view.pass_ == pass_ else view_of(view.N, view.d, None, pass_)
        for s in of_pass(pass_):
            yield tick(f"{pass_} {s.name}", s.title, s.name in mine.schedules, group="schedules")
        for name in bounds_of(pass_):
            yield tick(f"{pass_} {name}", bound_label(name), name in mine.bounds, group="bounds")
