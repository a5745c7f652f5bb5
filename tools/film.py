"""Write pictures as one animated PNG; a program without support for animation shows the first picture.

`python -m tools.film` draws the animation that opens the course, `course/explore/two_memories.png` of the
package. The format is W3C, Portable Network Graphics, third edition (2025), 11.3.6.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from iocourse.course.explore.draw.picture import Picture, Raster, chunk
from iocourse.course.explore.figures.two_memories import FILM, sides, steps_of, two_memories_picture

SCALE = 1.25  # output pixels per pixel of a picture
COLOURS = 63  # colours of an animation, without the transparent one, which shows the previous picture
THROUGH = COLOURS  # palette index of the transparent colour
FRAME, HOLD, END = (
    90,
    1500,
    4000,
)  # milliseconds of a picture, of the end of the first run, of the last picture
PLAYS = 3  # repetitions; after these the animation stops, because endless motion disturbs a reader


class Frame(NamedTuple):
    """A picture and its duration in milliseconds."""

    picture: Picture
    ms: int


def opening() -> list[Frame]:
    """Return the frames of the two memories: the end of both runs as a summary, then both step by step.

    After the end of the shorter run every second step is omitted, and the others are shown twice as long.
    """
    first, second = sorted(steps_of(side) for side in sides())
    frames = [Frame(two_memories_picture(), END)]
    frames += [Frame(two_memories_picture(step), FRAME) for step in range(first)]
    frames += [Frame(two_memories_picture(first), HOLD)]
    frames += [Frame(two_memories_picture(step), 2 * FRAME) for step in range(first + 2, second, 2)]
    return [*frames, Frame(two_memories_picture(second), END)]


def film(frames: Sequence[Frame], plays: int = PLAYS) -> bytes:
    """Return the pictures as an animated PNG, the same bytes on every call.

    Args:
        frames: one or more frames of one size; the first is shown where animation is not supported.
        plays: number of repetitions.

    Raises:
        ValueError: there are no frames, or they differ in size.
    """
    if not frames or len({(frame.picture.width, frame.picture.height) for frame in frames}) != 1:
        raise ValueError(f"frames must be one or more pictures of one size, got {len(frames)}")
    indices, palette = _few_colours(frames)
    height, width = indices[0].shape
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", head),
            chunk(b"acTL", struct.pack(">II", len(frames), plays)),
            chunk(b"PLTE", palette.tobytes()),
            chunk(b"tRNS", b"\xff" * THROUGH + b"\0"),
            *_chunks(indices, [frame.ms for frame in frames]),
            chunk(b"IEND", b""),
        ]
    )


def _packed(pixels: np.ndarray) -> np.ndarray:
    """Return pixels of 3 bytes as 24-bit integers."""
    red, green, blue = np.moveaxis(pixels.astype(np.int32), -1, 0)
    packed: np.ndarray = red << 16 | green << 8 | blue
    return packed


def _words(picture: Picture) -> set[int]:
    """Return the colours of the rasters of a picture, where every pixel is data."""
    rasters = (element.pixels for element in picture.elements if isinstance(element, Raster))
    found = [np.unique(_packed(np.frombuffer(pixels, np.uint8).reshape(-1, 3))) for pixels in rasters]
    return {int(colour) for one in found for colour in one}


def _few_colours(frames: Sequence[Frame]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the palette indices of each picture, and the palette (COLOURS + 1, 3).

    Colours of rasters are exact; the others are the most frequent ones.
    """
    pictures = [_packed(frame.picture.to_pixels(SCALE)) for frame in frames]
    often = Counter[int]()
    for one in pictures:
        often.update(dict(zip(*(part.tolist() for part in np.unique(one, return_counts=True)), strict=True)))
    exact = set[int]().union(*(_words(frame.picture) for frame in frames))
    ranked = sorted(often, key=lambda colour: (colour not in exact, -often[colour], colour))
    kept, found = _channels(ranked[:COLOURS]), sorted(often)
    apart = ((_channels(found)[:, None] - kept[None]) ** 2).sum(axis=2)
    nearest = apart.argmin(axis=1).astype(np.uint8)
    palette = np.zeros((COLOURS + 1, 3), np.uint8)
    palette[: len(kept)] = kept
    return [nearest[np.searchsorted(found, one)] for one in pictures], palette


def _channels(colours: Sequence[int]) -> np.ndarray:
    found = np.array(colours)
    return np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)


def _chunks(pictures: Sequence[np.ndarray], times: Sequence[int]) -> Iterator[bytes]:
    """Yield the PNG chunks: the complete first picture, then the changed rectangle of each other picture."""
    number = 0
    for at, (picture, ms) in enumerate(zip(pictures, times, strict=True)):
        shown, (top, left) = picture, (0, 0)
        if at:
            shown, (top, left) = _changed(pictures[at - 1], picture)
        height, width = shown.shape
        control = struct.pack(">IIIIIHHBB", number, width, height, left, top, ms, 1000, 0, at > 0)
        yield chunk(b"fcTL", control)
        rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in shown), 9)
        yield chunk(b"fdAT", struct.pack(">I", number + 1) + rows) if at else chunk(b"IDAT", rows)
        number += 2 if at else 1


def _changed(before: np.ndarray, picture: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the smallest rectangle with all changed pixels and its position; one pixel without changes."""
    differs = before != picture
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return np.full((1, 1), THROUGH, np.uint8), (0, 0)
    box = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    return np.where(differs[box], picture[box], np.uint8(THROUGH)), (int(rows[0]), int(columns[0]))


if __name__ == "__main__":
    target = Path(str(resources.files("iocourse.course.explore").joinpath(FILM)))
    print(f"{target}: {target.write_bytes(film(opening())):,} bytes")
