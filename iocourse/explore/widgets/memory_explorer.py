"""The map of words against memory as a widget: sliders, a pass, and ticks for what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...schedules import of_pass
from ..draw.html import as_table, in_html
from ..draw.picture import Picture
from ..facts.memory_map import COMPULSORY_WORDS, bound_label, bounds_of
from ..figures.memory_map import View, map_of, rows_at_M, view_of
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

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

    It starts with `schedules` and `bounds` ticked, by default those of `memory_map`. Where the environment
    variable IOCOURSE_WIDGETS is 0: the picture alone. Raises as `memory_map`.
    """
    view = view_of(N, d, M, pass_, schedules, bounds)
    if without_widgets():
        return map_of(view)
    return MemoryExplorer(view)


class MemoryExplorer(Explorer):
    """The widget; its controls: N, d, M, pass; `ticks` holds those of schedules and bounds, by pass."""

    def __init__(self, view: View) -> None:
        import ipywidgets as widgets

        self.ticks = {pass_: _ticks(pass_, view) for pass_ in COMPULSORY_WORDS}
        self._choices, self._offered = widgets.VBox(), ""
        controls = {name: ui.size_slider(*SIZES[name], getattr(view, name)) for name in SIZES}
        super().__init__(controls | {"pass": ui.choice(COMPULSORY_WORDS, view.pass_, "pass")})
        for kinds in self.ticks.values():
            for tick in (tick for named in kinds.values() for tick in named.values()):
                tick.observe(partial(self._changed, "tick"), "value")

    @property
    def setting(self) -> View:
        N, d, M, pass_ = self._values("N", "d", "M", "pass")
        schedules, bounds = (
            [name for name, tick in self.ticks[pass_][kind].items() if tick.value]
            for kind in ("schedules", "bounds")
        )
        return view_of(N, d, M, pass_, schedules, bounds)

    @property
    def picture(self) -> Picture:
        return map_of(self.setting)

    def _stands(self) -> dict[str, Any]:
        return dict(list(self.setting._asdict().items())[:6])

    def _arranged(self) -> list[Any]:
        sizes = ui.column([self.controls["pass"], ui.wrapped(self._named(*SIZES))])
        return [sizes, self._choices, self.view, self.words]

    def _said(self) -> str:
        return as_table(rows_at_M(self.setting))

    def _draw(self) -> None:
        try:
            super()._draw()
        except ValueError as nothing:  # every tick is taken away
            self.view.value, self.words.value = "", in_html([f"{str(nothing).capitalize()}."])

    def _fit(self) -> None:
        """Show the ticks of the pass."""
        import ipywidgets as widgets

        pass_ = self.controls["pass"].value
        if pass_ != self._offered:
            self._offered = pass_
            self._choices.children = tuple(
                ui.wrapped([widgets.Label(f"{kind}:", layout=widgets.Layout(width="80px")), *named.values()])
                for kind, named in self.ticks[pass_].items()
            )


def _ticks(pass_: str, view: View) -> dict[str, dict[str, Any]]:
    """A checkbox for each schedule and bound of a pass; those of `view` are ticked, in its own pass."""
    mine = view if view.pass_ == pass_ else view_of(view.N, view.d, None, pass_)
    schedules = {s.name: _tick(s.title, s.name in mine.schedules) for s in of_pass(pass_)}
    bounds = {name: _tick(bound_label(name), name in mine.bounds) for name in bounds_of(pass_)}
    return {"schedules": schedules, "bounds": bounds}


def _tick(label: str, value: bool) -> Any:
    import ipywidgets as widgets

    return ui.checkbox(label, value, indent=False, layout=widgets.Layout(width="auto", margin="0 14px 0 0"))
