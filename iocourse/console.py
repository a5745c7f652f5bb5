"""Terminal output: tables, file names, a progress meter (silent under test) and clean exit on SIGTERM.

`display_then_replace` displays HTML below a notebook cell.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

PATIENCE = 1.0  # seconds before the progress meter appears
PACE = 0.5  # seconds between its updates

T = TypeVar("T")

DASH = "–"  # printed in place of a missing number
LONGEST = 120  # bytes of a name; a file name may have 255, including what is added before and after


def with_unit(number: int, thing: str) -> str:
    """Return a number with its unit in singular or plural: 1 word, 2 words, 4,096 words."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def number(x: float | None, digits: int) -> str:
    """Return x with `digits` digits after the point, or a dash for None."""
    return DASH if x is None else f"{x:.{digits}f}"


def times_joined(sizes: Iterable[object]) -> str:
    """Return the sizes that are not None joined by ×."""
    return "×".join(str(size) for size in sizes if size is not None)


def table(rows: Sequence[Sequence[object]], *, left: int = 1, gap: int = 2, least: Sequence[int] = ()) -> str:
    """Return the rows as text in aligned columns: the first `left` left-aligned, the others right-aligned.

    Args:
        rows: cells, printed with `str`; every row has as many as the first.
        left: number of left-aligned columns.
        gap: spaces between columns.
        least: minimum widths of the first columns.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = [max(pair) for pair in zip(widths, [*least, *[0] * len(widths)], strict=False)]
    sides = [str.ljust if at < left else str.rjust for at in range(len(widths))]
    lines = (
        [side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)] for row in cells
    )
    return "\n".join((" " * gap).join(line).rstrip() for line in lines)


def display_then_replace(data: dict[str, Any], html: str, metadata: dict[str, Any] | None = None) -> None:
    """Display `data` (by MIME type) below a cell, and then replace it by `html`.

    Live pages show the HTML. Saved notebooks keep only `data`, because GitHub would show nothing but HTML.
    nbval ignores the replacement of an output, so it compares a run with the saved `data`.

    Raises:
        NotImplementedError: in a terminal. IPython then prints the text itself.
    """
    from IPython import get_ipython
    from IPython.core.displaypub import DisplayPublisher
    from IPython.display import display

    shell: Any = get_ipython()
    if shell is None or type(shell.display_pub) is DisplayPublisher:
        raise NotImplementedError
    first = display(data, metadata=metadata, raw=True, display_id=True)
    first.update(data | {"text/html": html}, metadata=metadata, raw=True)


def paragraphs(*parts: str) -> str:
    """Join the parts that are not empty with an empty line between them."""
    return "\n\n".join(filter(None, parts))


def with_progress_bar(items: Sequence[T], doing: str) -> Iterator[T]:
    """Return an iterator over the items, with a progress bar `doing` if standard error is a terminal."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return iter(items)
    return iter(tqdm(items, desc=doing, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False))


@contextmanager
def progress_meter(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Context manager of a function to call with each amount of work done; prints the percentage of `total`.

    Prints to standard error, only if it is a terminal and the work takes more than a second.
    """
    done, due, said = 0, monotonic() + PATIENCE, ""

    def tell(piece: int) -> None:
        nonlocal done, due, said
        done += piece
        now = monotonic()
        if now >= due:
            due, said = now + PACE, f"{doing}: {100 * done // total} %"
            print(f"\r{said}", end="", file=sys.stderr, flush=True)

    try:
        yield tell if sys.stderr.isatty() else lambda piece: None
    finally:
        if said:
            print(f"\r{' ' * len(said)}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Context manager: inside its block SIGTERM (sent by `timeout`, for example) acts like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def display_path(name: str) -> str:
    """Return a file name that is safe to print and to use for a file.

    It is NFC-normalised, has ? in place of control characters, and is shortened to 120 bytes.
    """
    # <!-- 120 = console.LONGEST -->
    stored = name.encode("utf-8", "surrogateescape")
    try:
        decoded = stored.decode("utf-8")
    except UnicodeDecodeError:
        decoded = stored.decode("latin-1")  # as in older archives
    text = printable(unicodedata.normalize("NFC", decoded))
    if len(text.encode()) <= LONGEST:
        return text
    start = text.encode()[: LONGEST - 10].decode("utf-8", "ignore")
    return (
        f"{start}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"  # names with the same start stay distinct
    )


def printable(text: str) -> str:
    """Return the text with ? in place of characters that are not printable and may control a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
