"""Explorers of traffic: against the fast memory with a draggable M, and between ranks with a draggable P."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....distributed.time_model import COMPARED, grids_of
from ....gpu.chips import LINKS
from ....schedules import of_pass
from ..draw.text import html_table, in_html
from ..figures import distributed_traffic, traffic_map
from ..models.memory_regimes import COMPULSORY_WORDS, bound_label, bounds_of, search_all
from .controls import Control, choice, size_slider, tick
from .explorer import Explorer, Grab, Shown, explorer

# ---------------------------------------------------------------------- between two memories
TRAFFIC_CONTROLS = (
    size_slider("M", "M (words of fast memory)", 2**2, 2**25, 4),
    size_slider("N", "N (sequence length)", 1, 2**16, 2),
    size_slider("d", "d (head dimension)", 1, 2**8, 2),
    choice("pass", "pass", list(COMPULSORY_WORDS)),
)


@explorer
class TrafficExplorer(Explorer):
    """Interactive `traffic_map`: traffic against fast memory.

    Drag the line at M or use the controls N, d, M and pass. Each schedule and bound of a pass has a check box
    named by pass and schedule, such as "backward split_backward". Initially those of `schedules` and `bounds`
    are checked; None: the ones of `traffic_map`. Raises the errors of `traffic_map`.
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
        view = traffic_map.view_of(N, d, M, pass_, schedules, bounds)
        traffic_map.draw_traffic_map(view)  # raises if nothing is selected
        search_all()  # in advance, so that no key press waits for it
        super().__init__(view, [*TRAFFIC_CONTROLS, *_ticks(view)], **{"pass": view.pass_})

    @property
    def state(self) -> traffic_map.TrafficMapView:
        """Sizes, pass, and the checked schedules and bounds."""
        N, d, M, pass_ = (self.value(name) for name in ("N", "d", "M", "pass"))
        return traffic_map.view_of(N, d, M, pass_, self._ticked("schedules"), self._ticked("bounds"))

    def _ticked(self, group: str) -> list[str]:
        ticks = (one for one in self.controls.values() if one.group == group and not one.hidden)
        return [one.name.partition(" ")[2] for one in ticks if one.value]

    def shown(self) -> Shown:
        view = self.state
        try:
            picture = traffic_map.draw_traffic_map(view)
        except ValueError as nothing:  # no box is checked
            return Shown(None, in_html([f"{str(nothing).capitalize()}."]))
        line = Grab(*traffic_map.line_at_M(view), "ew-resize")
        spoken = " ".join(traffic_map.traffic_map_headline(view))
        return Shown(picture, html_table(traffic_map.rows_at_M(view)), spoken, [line])

    def _dragged(self, x: float, y: float) -> dict[str, int]:
        return {"M": traffic_map.M_at(self.state, x)}

    def _fit(self) -> None:
        """Show the check boxes of the selected pass."""
        for one in self.controls.values():
            one.hidden = one.kind == "tick" and one.name.partition(" ")[0] != self.value("pass")


def _ticks(view: traffic_map.TrafficMapView) -> Iterator[Control]:
    """Yield a check box for each schedule and bound of each pass; those of `view` are checked."""
    for pass_ in COMPULSORY_WORDS:
        mine = view if view.pass_ == pass_ else traffic_map.view_of(view.N, view.d, None, pass_)
        for s in of_pass(pass_):
            yield tick(f"{pass_} {s.name}", s.title, s.name in mine.schedules, group="schedules")
        for name in bounds_of(pass_):
            yield tick(f"{pass_} {name}", bound_label(name), name in mine.bounds, group="bounds")


# ---------------------------------------------------------------------- between ranks
FEWEST = "least traffic"
LINK_NAMES = {f"{link.name}, {link.gbytes_per_s:g} GB/s": name for name, link in LINKS.items()}
DISTRIBUTED_CONTROLS = (
    choice("pass_", "pass", list(COMPARED)),
    size_slider("P", "P (ranks)", 1, 256, 2),
    Control("list", "a", "a (grid rows)", {FEWEST: None}),
    size_slider("N", "N (sequence length)", 1, 2**20, 1),
    size_slider("d", "d (head dimension)", 1, 256, 2),
    size_slider("H", "H (heads)", 1, 128, 2),
    choice("link", "link", LINK_NAMES),
)


def _grids(P: int) -> dict[str, int | None]:
    """Return the grid rows a for P ranks, by name."""
    return {FEWEST: None, **{f"{a:,}": a for a in grids_of(P)}}


@explorer
class DistributedExplorer(Explorer):
    """Interactive `distributed_traffic`: traffic, memory and modelled time of distributed schedules.

    Drag the line at P or use the controls `pass_`, `P`, `a`, `N`, `d`, `H` and `link`. The options of `a` are
    the divisors of P; None selects the grid with the least traffic. Raises the errors of
    `distributed_traffic`.
    """

    ahead = ("pass_", "N", "d", "H")

    def __init__(
        self,
        pass_: str = "forward",
        P: int = 16,
        *,
        N: int = 131072,
        d: int = 128,
        H: int = 16,
        a: int | None = None,
        link: str = "nvlink4",
    ) -> None:
        view = distributed_traffic.DistributedTrafficView(pass_, P, a, N, d, H, link).checked()
        grids = _grids(view.P)
        controls = (replace(c, offered=grids) if c.name == "a" else c for c in DISTRIBUTED_CONTROLS)
        super().__init__(view, controls)

    def shown(self) -> Shown:
        """Return the figure, which contains all text, and the draggable line at P."""
        line = Grab(*distributed_traffic.line_at_P(self.state), "ew-resize")
        spoken = " ".join(distributed_traffic.distributed_traffic_headline(self.state))
        return Shown(distributed_traffic.draw_distributed_traffic(self.state), "", spoken, [line])

    def _dragged(self, x: float, y: float) -> dict[str, int]:
        return {"P": distributed_traffic.P_at(self.state, x)}

    def _fit(self) -> None:
        self.controls["a"].offer(_grids(self.value("P")))
