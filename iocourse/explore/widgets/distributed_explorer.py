"""Schedules between ranks as an explorer: sizes, ranks, grid and link; the line at P can be dragged."""

from __future__ import annotations

from dataclasses import replace

from ...distributed.time_model import COMPARED, grids_of
from ...gpu.chips import LINKS
from ..figures.distributed_traffic import P_at, View, headline, line_of, map_of
from .controls import Control, choice, size_slider
from .explorer import Explorer, Grab, Shown, explorer

FEWEST = "fewest words"
LINK_NAMES = {f"{link.name}, {link.gbytes_per_s:g} GB/s": name for name, link in LINKS.items()}
CONTROLS = (
    choice("pass_", "pass", list(COMPARED)),
    size_slider("P", "P (ranks)", 1, 256, 2),
    Control("list", "a", "a (rows of grids)", {FEWEST: None}),
    size_slider("N", "N (rows)", 1, 2**20, 1),
    size_slider("d", "d (columns)", 1, 256, 2),
    size_slider("H", "H (heads)", 1, 128, 2),
    choice("link", "link", LINK_NAMES),
)


def _grids(P: int) -> dict[str, int | None]:
    """The grids of P ranks, by name."""
    return {FEWEST: None, **{f"{a:,}": a for a in grids_of(P)}}


def _with_grids(control: Control, P: int) -> Control:
    """The control, and if it is that of the grid, with those of P ranks."""
    return replace(control, offered=_grids(P)) if control.name == "a" else control


@explorer
class DistributedExplorer(Explorer):
    """Words, memory and modelled time of each schedule between ranks, above the lower bound.

    Its controls: `pass_`, `P`, `a`, `N`, `d`, `H`, `link`. `a` offers the divisors of P; None takes the
    grid with the fewest words. Raises as `distributed_traffic`.
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
        view = View(pass_, P, a, N, d, H, link).checked()
        super().__init__(view, [_with_grids(one, view.P) for one in CONTROLS])

    def shown(self) -> Shown:
        """All words are in the picture."""
        line = Grab(*line_of(self.setting), "ew-resize")
        return Shown(map_of(self.setting), "", " ".join(headline(self.setting)), [line])

    def _dragged(self, x: float, y: float) -> dict[str, int]:
        return {"P": P_at(self.setting, x)}

    def _fit(self) -> None:
        self.controls["a"].offer(_grids(self.value("P")))
