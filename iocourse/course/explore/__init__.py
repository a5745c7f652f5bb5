"""Figures of the course, and interactive explorers that draw them.

A figure is a pure function that returns a `Picture` with alternative text (`alt`) and the plotted values as
text (`numbers`). matplotlib is imported when a PNG is drawn, anywidget when an explorer is shown.

All files of `figures/` and `widgets/` are imported automatically. A function registered with `@figure` and a
class registered with `@explorer` become names of this package: `from iocourse.course.explore import bars`.
"""

from __future__ import annotations

from typing import Any

from ...discovery import files_of
from . import figures, widgets
from .draw.picture import FIGURES, Picture
from .widgets.explorer import EXPLORERS, Explorer

for _folder in (figures, widgets):
    files_of(_folder.__name__, _folder.__path__)

_FACES: dict[str, Any] = {
    "FIGURES": FIGURES,
    "Picture": Picture,
    **FIGURES,
    **EXPLORERS,
    **{kind.__name__: kind for kind in Explorer.__subclasses__()},
}
__all__ = sorted(_FACES)

# Calls in copies of lessons of an earlier version, with what replaces them.
_REPLACED = {
    "kernel_tuner": "kernel_explorer",
    "kernel_tuner_picture": "kernel_explorer_picture",
    "roofline_explorer": "kernel_explorer",
    "roofline_explorer_picture": "kernel_explorer_picture",
}


def __getattr__(name: str) -> Any:
    """Return a figure, an explorer or an explorer class by name. Raises AttributeError for other names."""
    try:
        return _FACES[name]
    except KeyError:
        if name in _REPLACED:
            now = f"{_REPLACED[name]}(arch=90, d=64)"
            raise AttributeError(f"explore.{name} was replaced: write `explore.{now}`") from None
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
