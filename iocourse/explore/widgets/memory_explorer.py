"""The map of words against memory as a widget: sliders, a pass, and ticks for what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedules import PASSES, of_pass
from ..draw.picture import Picture
from ..facts.memory_map import bound_label, bounds_of
from ..figures.memory_map import View, map_of, rows_at_M, view_of
from .explorer import Explorer, as_table, choice, explorer, in_html, size_slider, without_widgets, wrapped

SIZES = {
    "N": ("N (rows)", 1, 2**16, 2),
    "d": ("d (columns)", 1, 2**8, 2),
    "M": ("M (words)", 2**2, 2**25, 4),
}


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
    """The widget. `view` is what its controls ask for, `picture` what it shows.

    Controls are plain ipywidgets in `controls`, by name (N, d, M, pass); `ticks` holds a checkbox for each
    schedule and each bound by pass and name. `words` and `view_box` are the HTML widgets they write to.
    """

    def __init__(self, view: View) -> None:
        import ipywidgets as widgets

        self.words, self.view_box = widgets.HTML(), widgets.HTML()
        self.controls = {name: size_slider(*SIZES[name], getattr(view, name)) for name in SIZES}
        self.controls["pass"] = choice(PASSES, view.pass_, "pass")
        self.ticks = {pass_: _ticks(pass_, view) for pass_ in PASSES}
        self._choices, self._offered = widgets.VBox(), ""
        for control in (*self.controls.values(), *self._every_tick()):
            control.observe(self._changed, "value")
        sizes = widgets.VBox([self.controls["pass"], wrapped(self.controls[name] for name in SIZES)])
        self.box = widgets.VBox([sizes, self._choices, self.view_box, self.words])
        self._draw()

    @property
    def view(self) -> View:
        """What the controls ask for."""
        N, d, M, pass_ = (self.controls[name].value for name in ("N", "d", "M", "pass"))
        schedules, bounds = (
            [name for name, tick in self.ticks[pass_][kind].items() if tick.value]
            for kind in ("schedules", "bounds")
        )
        return view_of(N, d, M, pass_, schedules, bounds)

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return map_of(self.view)

    def __repr__(self) -> str:
        stands = [f"{name}={value!r}" for name, value in self.view._asdict().items()][:6]
        return f"MemoryExplorer({', '.join(stands)})"

    def _every_tick(self) -> list[Any]:
        return [tick for kinds in self.ticks.values() for named in kinds.values() for tick in named.values()]

    def _changed(self, _change: Any) -> None:
        if not self._quiet:
            self._draw()

    def _draw(self) -> None:
        view = self.view
        self._offer(view.pass_)
        try:
            self.view_box.value = map_of(view).to_svg()
        except ValueError as nothing:  # every tick is taken away
            self.view_box.value, self.words.value = "", in_html([f"{str(nothing).capitalize()}."])
            return
        self.words.value = as_table(rows_at_M(view))

    def _offer(self, pass_: str) -> None:
        """Show the ticks of a pass."""
        import ipywidgets as widgets

        if pass_ != self._offered:
            self._offered = pass_
            self._choices.children = tuple(
                wrapped([widgets.Label(f"{kind}:", layout=widgets.Layout(width="80px")), *named.values()])
                for kind, named in self.ticks[pass_].items()
            )


def _ticks(pass_: str, view: View) -> dict[str, dict[str, Any]]:
    """A checkbox for each schedule and bound of a pass; those of `view` are ticked, in its own pass."""
    mine = view if view.pass_ == pass_ else view_of(view.N, view.d, None, pass_)
    schedules = {s.name: _tick(s.name, s.name in mine.schedules) for s in of_pass(pass_)}
    bounds = {name: _tick(bound_label(name), name in mine.bounds) for name in bounds_of(pass_)}
    return {"schedules": schedules, "bounds": bounds}


def _tick(label: str, value: bool) -> Any:
    import ipywidgets as widgets

    return widgets.Checkbox(
        value=value, description=label, indent=False, layout=widgets.Layout(width="auto", margin="0 14px 0 0")
    )
