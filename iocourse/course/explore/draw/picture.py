"""Display list of a figure with two renderers: SVG for live widgets, PNG for notebooks and static pages.

A `Picture` is a list of rectangles, polygons, texts and rasters, in pixels with y pointing downwards. Public
figure functions register with `@figure`.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from html import escape
from io import BytesIO
from typing import Any, ParamSpec

from ....console import display_then_replace
from ....data.records import NONE_YET, record_source
from ....doctor import install_command
from .palette import INK, PAPER, QUIET, Dash
from .text import image

Point = tuple[float, float]
Segment = tuple[Point, Point]

FAMILY = "DejaVu Sans"  # included in matplotlib
FONT = f"{FAMILY}, Verdana, sans-serif"  # Verdana has the same widths
SMALL, NORMAL, LARGE = 12.0, 13.0, 16.0  # text sizes in pixels
HATCH_STEP = 7.0
COLOURS = (256, 128, 64, 32)  # palette sizes of a PNG, tried in this order until SMALL_ENOUGH is met
SMALL_ENOUGH = 60_000  # bytes per PNG
PIXELS_PER_UNIT = 1.5  # of the PNG: sharp on high-resolution screens


@dataclass(frozen=True)
class Rect:
    """A rectangle with its upper left corner at (x, y); `hatch` is drawn in `ink` over `fill`."""

    x: float
    y: float
    width: float
    height: float
    fill: str = ""
    hatch: str = ""
    stroke: str = ""
    line: float = 1.0
    ink: str = INK


@dataclass(frozen=True)
class Poly:
    """A polyline, or a filled polygon if `fill` is given."""

    points: tuple[Point, ...]
    stroke: str = INK
    line: float = 1.5
    dash: Dash = ()
    fill: str = ""


@dataclass(frozen=True)
class Text:
    """One line of text. (x, y) lies on its baseline, at its start, middle or end (`anchor`)."""

    x: float
    y: float
    text: str
    size: float = NORMAL
    anchor: str = "start"
    colour: str = INK
    bold: bool = False
    turned: bool = False  # rotated by 90 degrees, reading upwards


@dataclass(frozen=True)
class Raster:
    """`columns` x `rows` pixels of colour, 3 bytes each, stretched over a rectangle without smoothing."""

    # <!-- 3 as definition -->

    x: float
    y: float
    width: float
    height: float
    columns: int
    rows: int
    pixels: bytes


Element = Rect | Poly | Text | Raster


@dataclass(frozen=True)
class Picture:
    """A figure with text: `alt` describes it in sentences, `numbers` lists the plotted values.

    A notebook displays an SVG image in HTML with `alt` as its alternative text, and saves a PNG for front
    ends without HTML. The plain-text form is title, `alt` and `numbers`.

    Raises:
        ValueError: `title`, `alt` or `numbers` is empty.
    """

    width: float
    height: float
    title: str
    alt: str
    numbers: str
    elements: tuple[Element, ...]

    def __post_init__(self) -> None:
        for name in ("title", "alt", "numbers"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} of a picture must not be empty")

    @property
    def text(self) -> str:
        """Title, alternative text and numbers, one below the other."""
        return f"{self.title}\n{self.alt}\n{self.numbers}"

    def __repr__(self) -> str:
        return self.text

    def to_svg(self) -> str:
        """Return the figure as an SVG element with title and description."""
        body = "".join(_SVG[type(element)](element) for element in self.elements)
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" width="{_n(self.width)}" '
            f'style="max-width:100%;height:auto;background:{PAPER}" font-family="{FONT}">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.alt)}</desc>"
            f'<rect width="100%" height="100%" fill="{PAPER}"/>{body}</svg>'
        )

    def to_html(self) -> str:
        """Return the SVG as an HTML `<img>` with `alt` as its alternative text."""
        svg = base64.b64encode(self.to_svg().encode("utf-8")).decode("ascii")
        size = {"width": round(self.width), "height": round(self.height)}
        return image("image/svg+xml", svg, self.alt, title=self.title, **size)

    def to_png(self) -> bytes:
        """Return the figure as PNG bytes, drawn by matplotlib without a window; identical on every call.

        Raises:
            ModuleNotFoundError: matplotlib is not installed. `to_svg` does not need it.
        """
        return _few_colours(self.to_pixels())

    def to_pixels(self, scale: float = PIXELS_PER_UNIT) -> Any:
        """Return the rendered pixels, (rows, columns, 3) bytes, with `scale` pixels per display-list unit."""
        # <!-- 3 as definition -->
        return _pixels(self, scale)

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the representations that a notebook saves: PNG and plain text, no HTML."""
        png = base64.b64encode(self.to_png()).decode("ascii")
        shown = {"alt": self.alt, "width": round(self.width), "height": round(self.height)}
        return {"image/png": png, "text/plain": self.text}, {"image/png": shown}

    def _ipython_display_(self) -> None:
        """Display the figure and print its numbers below it.

        The numbers are printed because a front end that shows the image hides the plain text. HTML is sent
        because JupyterLab and Colab show a PNG without its alternative text.
        """
        data: dict[str, Any]
        try:
            data, metadata = self._repr_mimebundle_()
        except ModuleNotFoundError as error:  # the page shows the SVG, and a saved notebook the text alone
            print(error)
            data, metadata = {"text/plain": self.text}, {}
        display_then_replace(data, self.to_html(), metadata)
        print(self.numbers)


def titled(
    title: str, size: tuple[float, float], alt: str, numbers: str, elements: Iterable[Element]
) -> Picture:
    """Return a Picture with `title` as its heading, widened if the title is longer than the given width."""
    width = max(size[0], 36 + 1.08 * text_width(title, LARGE))
    drawn = (Text(18, 28, title, LARGE, bold=True), *elements)
    return Picture(width, size[1], title, alt, numbers, drawn)


# ---------------------------------------------------------------------- the list of figures
P = ParamSpec("P")
Draws = Callable[P, Picture]

FIGURES: dict[str, Callable[..., Picture]] = {}
EXAMPLES: dict[str, list[Callable[[], Picture]]] = {}


def figure(draw: Draws[P]) -> Draws[P]:
    """Register a figure function under its name in `FIGURES`, from which the tests take all figures."""
    FIGURES[draw.__name__] = draw
    return draw


def example(*arguments: Any, **named: Any) -> Callable[[Draws[P]], Draws[P]]:
    """Register a call for the tests to draw: write `@example(3, title="Three")` above `@figure`."""

    def keep(draw: Draws[P]) -> Draws[P]:
        EXAMPLES.setdefault(draw.__name__, []).append(partial(draw, *arguments, **named))
        return draw

    return keep


# ---------------------------------------------------------------------- figures of a recorded run
Record = Mapping[str, Any]


def source_of(record: Record, also: str = "") -> str:
    """Return the source line of a record: device, versions, date, `also`, and a note for a quick run."""
    if "date" not in record:
        return "measured just now"
    return record_source(dict(record)) + also + (", a quick run" if record.get("quick") else "")


def none_yet(title: str, subject: str) -> Picture:
    """Return the placeholder figure for a missing record of `python -m tools.bench SUBJECT`."""
    said = f"{NONE_YET}: `python -m tools.bench {subject}` makes one"
    alt = f"{title}: nothing is drawn, because there is {said}."
    return titled(title, (480.0, 80.0), alt, f"0 rows: {said}", [Text(18, 58, said, NORMAL, colour=QUIET)])


# ---------------------------------------------------------------------- helpers for figures
_NARROW, _WIDE = set("iljI.,:;|'[]()!ft "), set("mwMWQO@×→≥≤½")


def text_width(text: str, size: float) -> float:
    """Return the estimated width of a text line in pixels, rather too large than too small."""
    return size * sum(0.40 if c in _NARROW else 0.90 if c in _WIDE else 0.65 for c in text)


def centred(y: float, size: float) -> float:
    """Return the baseline of a line of text whose vertical centre is y."""
    return y + 0.36 * size


def hatch_lines(rect: Rect) -> list[Segment]:
    """Return the hatch lines of a rectangle. Their phase is global, so adjacent equal hatches join."""
    lines: list[Segment] = []
    if rect.hatch in ("/", "x"):
        lines += _diagonals(rect, rising=True)
    if rect.hatch in ("\\", "x"):
        lines += _diagonals(rect, rising=False)
    if rect.hatch == "-":
        lines += [((rect.x, y), (rect.x + rect.width, y)) for y in _marks(rect.y, rect.height)]
    if rect.hatch == "|":
        lines += [((x, rect.y), (x, rect.y + rect.height)) for x in _marks(rect.x, rect.width)]
    if rect.hatch == ".":
        columns, rows = list(_marks(rect.x, rect.width)), list(_marks(rect.y, rect.height))
        lines += [((max(rect.x, x - 1), y), (x, y)) for x in columns for y in rows]
    return lines


def _marks(start: float, length: float) -> Iterator[float]:
    first = int(start // HATCH_STEP) + 1
    last = int((start + length) // HATCH_STEP)
    return (k * HATCH_STEP for k in range(first, last + 1) if k * HATCH_STEP < start + length)


def _diagonals(rect: Rect, *, rising: bool) -> list[Segment]:
    """Return the lines x + y = c (rising on the page) or x - y = c, clipped to the rectangle."""
    left, right, top, bottom = rect.x, rect.x + rect.width, rect.y, rect.y + rect.height
    low, high = (left + top, right + bottom) if rising else (left - bottom, right - top)
    sign = 1 if rising else -1
    found: list[Segment] = []
    for c in _marks(low, high - low):
        ends = (c - top, c - bottom) if rising else (c + bottom, c + top)
        start, stop = max(left, min(ends)), min(right, max(ends))
        if start < stop:
            found.append(((start, sign * (c - start)), (stop, sign * (c - stop))))
    return found


# ---------------------------------------------------------------------- SVG
def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg_rect(r: Rect) -> str:
    stroke = f' stroke="{r.stroke}" stroke-width="{_n(r.line)}"' if r.stroke else ""
    box = (
        f'<rect x="{_n(r.x)}" y="{_n(r.y)}" width="{_n(max(r.width, 0))}" height="{_n(max(r.height, 0))}" '
        f'fill="{r.fill or "none"}"{stroke}/>'
    )
    lines = hatch_lines(r)
    if not lines:
        return box
    path = "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for (a, b), (c, d) in lines)
    return f'{box}<path d="{path}" stroke="{r.ink}" stroke-width="{_n(_hatch_width(r))}" fill="none"/>'


def _hatch_width(rect: Rect) -> float:
    return 1.6 if rect.hatch == "." else 0.8


def _svg_poly(p: Poly) -> str:
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in p.points)
    dash = f' stroke-dasharray="{" ".join(map(_n, p.dash))}"' if p.dash else ""
    tag = "polygon" if p.fill else "polyline"
    return (
        f'<{tag} points="{points}" fill="{p.fill or "none"}" stroke="{p.stroke or "none"}" '
        f'stroke-width="{_n(p.line)}" stroke-linejoin="round"{dash}/>'
    )


def _svg_text(t: Text) -> str:
    bold = ' font-weight="bold"' if t.bold else ""
    turn = f' transform="rotate(-90 {_n(t.x)} {_n(t.y)})"' if t.turned else ""
    return (
        f'<text x="{_n(t.x)}" y="{_n(t.y)}" font-size="{_n(t.size)}" text-anchor="{t.anchor}" '
        f'fill="{t.colour}"{bold}{turn}>{escape(t.text)}</text>'
    )


def _svg_raster(r: Raster) -> str:
    data = base64.b64encode(_raster_png(r)).decode("ascii")
    return (
        f'<image x="{_n(r.x)}" y="{_n(r.y)}" width="{_n(r.width)}" height="{_n(r.height)}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )


def _raster_png(raster: Raster) -> bytes:
    stride = 3 * raster.columns
    rows = (raster.pixels[k * stride : (k + 1) * stride] for k in range(raster.rows))
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 1)  # ten times as fast as level 9
    head = struct.pack(">IIBBBBB", raster.columns, raster.rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a PNG chunk: length, kind, body and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


_SVG: dict[type, Any] = {Rect: _svg_rect, Poly: _svg_poly, Text: _svg_text, Raster: _svg_raster}


# ---------------------------------------------------------------------- PNG
_POINTS = 0.72  # points per unit of the display list, which is 1/100 inch


def _pixels(picture: Picture, scale: float) -> Any:
    import numpy as np

    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise install_command.missing("matplotlib", "course", "a figure as PNG") from error

    # matplotlib settings of the caller must not change a figure of the course.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        canvas = _Canvas(picture, scale)
        for element in picture.elements:
            _PNG[type(element)](canvas, element)
        return np.asarray(canvas.renderer.buffer_rgba())[..., :3]


class _Canvas:
    """Matplotlib's Agg renderer in the coordinates of a picture.

    It does not use matplotlib's axes and artists, because creating them takes longer than painting.
    """

    def __init__(self, picture: Picture, scale: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.transforms import Bbox, BboxTransformFrom, BboxTransformTo

        size = picture.width / 100, picture.height / 100
        self.figure = Figure(figsize=size, dpi=100 * scale, facecolor=PAPER)
        self.renderer: Any = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self.figure.patch.draw(self.renderer)
        self.across, self.down = (0, picture.width), (picture.height, 0)
        own = BboxTransformFrom(Bbox(list(zip(self.across, self.down, strict=True))))
        self.place = own + BboxTransformTo(self.figure.bbox)  # y downwards
        self.matrix = self.place.get_matrix()

    def area(self, path: Any, fill: str, stroke: str, line: float, matrix: Any) -> None:
        """Draw a closed path, transformed by `matrix`."""
        from matplotlib.colors import to_rgba
        from matplotlib.transforms import Affine2D

        pen = self._pen(stroke, line if stroke else 0.0, "miter", "butt")
        self.renderer.draw_path(pen, path, Affine2D(matrix), to_rgba(fill) if fill else None)

    def line(self, p: Poly) -> None:
        """Draw the polyline of a Poly without fill."""
        from matplotlib.path import Path
        from matplotlib.transforms import Affine2D

        pen = self._pen(p.stroke, p.line, "round", "butt" if p.dash else "projecting")
        if p.dash:
            pen.set_dashes(0, [length * _POINTS for length in p.dash])
        self.renderer.draw_path(pen, Path(p.points), Affine2D(self.matrix))

    def _pen(self, stroke: str, line: float, join: str, cap: str) -> Any:
        pen = self.renderer.new_gc()
        pen.set_foreground(stroke or PAPER)
        pen.set_linewidth(line * _POINTS)
        pen.set_joinstyle(join)
        pen.set_capstyle(cap)
        return pen


def _few_colours(seen: Any) -> bytes:
    """Return the pixels as a PNG with a palette, which is a third of the size and holds no date or version.

    The most frequent colours, those of areas and lines, are exact. The others, at the edges of letters, are
    replaced by the nearest of them.
    """
    import numpy as np

    red, green, blue = np.moveaxis(seen.astype(np.int32), -1, 0)
    packed = red << 16 | green << 8 | blue
    found, place, counts = _unique(packed.ravel())
    channels = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    frequent = channels[np.argsort(-counts, kind="stable")].astype(float)  # products are fast
    for number in COLOURS:
        kept = frequent[:number]
        # squared distances minus the squared norm of each row
        apart = (kept * kept).sum(axis=1) - 2 * channels @ kept.T
        nearest = apart.argmin(axis=1).astype(np.uint8)
        png = _palette_png(nearest[place.reshape(packed.shape)], kept.astype(np.uint8).tobytes())
        if len(png) <= SMALL_ENOUGH:
            break
    return png


def _unique(values: Any) -> tuple[Any, Any, Any]:
    """Return the sorted unique values, the index of each entry in them, and the count of each.

    Like `np.unique`, but it sorts only the first entry of each run of equal values.
    """
    import numpy as np

    starts = np.flatnonzero(np.diff(values, prepend=-1))
    lengths = np.diff(starts, append=len(values))
    found, place = np.unique(values[starts], return_inverse=True)
    return found, np.repeat(place, lengths), np.bincount(place, lengths).astype(int)


def _palette_png(pixels: Any, palette: bytes) -> bytes:
    from PIL import Image  # a dependency of matplotlib

    image, out = Image.fromarray(pixels), BytesIO()
    image.putpalette(palette)
    image.save(out, "PNG", compress_level=8)
    return out.getvalue()


def _png_rect(canvas: _Canvas, r: Rect) -> None:
    import numpy as np
    from matplotlib.collections import LineCollection
    from matplotlib.path import Path

    box = np.array([[max(r.width, 0), 0, r.x], [0, max(r.height, 0), r.y], [0, 0, 1]])
    canvas.area(Path.unit_rectangle(), r.fill, r.stroke, r.line, canvas.matrix @ box)
    if lines := hatch_lines(r):
        drawn = LineCollection(lines, colors=r.ink, linewidths=_hatch_width(r) * _POINTS)
        drawn.set_transform(canvas.place)
        drawn.draw(canvas.renderer)


def _png_poly(canvas: _Canvas, p: Poly) -> None:
    from matplotlib.path import Path

    if p.fill:
        outline = Path([*p.points, p.points[0]], closed=True)
        canvas.area(outline, p.fill, p.stroke, p.line, canvas.matrix)
    else:
        canvas.line(p)


def _png_text(canvas: _Canvas, t: Text) -> None:
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=FAMILY, size=t.size * _POINTS, weight="bold" if t.bold else "normal")
    x, y = canvas.place.transform((t.x, t.y))
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[t.anchor]
    if before:
        before *= canvas.renderer.get_text_width_height_descent(t.text, font, False)[0]
    x, y = (x, y - before) if t.turned else (x - before, y)
    pen = canvas.renderer.new_gc()
    pen.set_foreground(t.colour)
    canvas.renderer.draw_text(pen, x, canvas.renderer.height - y, t.text, font, 90 * t.turned)


def _png_raster(canvas: _Canvas, r: Raster) -> None:
    import numpy as np

    pixels = np.frombuffer(r.pixels, np.uint8).reshape(r.rows, r.columns, 3)
    axes = canvas.figure.add_axes((0, 0, 1, 1))
    extent = (r.x, r.x + r.width, r.y + r.height, r.y)
    stretched = axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest")
    axes.set(xlim=canvas.across, ylim=canvas.down)
    stretched.draw(canvas.renderer)


_PNG: dict[type, Any] = {Rect: _png_rect, Poly: _png_poly, Text: _png_text, Raster: _png_raster}


# ---------------------------------------------------------------------- arguments that several figures take
def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


def check_count(name: str, values: Sized, most: int) -> None:
    """Raise ValueError unless `values` has 1 to `most` entries, the number that a figure can show."""
    if not 1 <= len(values) <= most:
        raise ValueError(f"{name} must have 1 to {most} entries, got {len(values)}")
