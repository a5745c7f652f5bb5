"""Pictures that can be touched: pure figure functions, and explorers around them.

A figure is a `Picture`: it has `alt` (what it shows, in sentences) and `numbers` (the values behind it).
matplotlib is imported when a PNG is made, anywidget when an explorer is shown.

Each file of `figures/` and `widgets/` is found by itself: what it registers with `@figure` or `@explorer` is
a name of this package, `from iocourse.explore import bars`, without another line anywhere.
"""

from __future__ import annotations

from typing import Any

from ..discovery import files_of
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


def __getattr__(name: str) -> Any:
    """A figure, an explorer or its class, by name."""
    try:
        return _FACES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
