"""What is said in a terminal: tables, names of files, how far work has come (not in tests), and its end.
And how what is more than text is shown below a cell.
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

PATIENCE = 1.0  # seconds before a word is said
PACE = 0.5  # seconds between two

T = TypeVar("T")

DASH = "–"  # where there is no number
LONGEST = 120  # bytes of a name: a file's may have 255, and something comes before and after


def with_unit(number: int, thing: str) -> str:
    """1 word, 2 words, 4,096 words."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def number(x: float | None, digits: int) -> str:
    """A number with so many digits after the point, a dash where there is none."""
    return DASH if x is None else f"{x:.{digits}f}"


def times_joined(sizes: Iterable[object]) -> str:
    """128×64×4, without those that are None."""
    return "×".join(str(size) for size in sizes if size is not None)


def table(rows: Sequence[Sequence[object]], *, left: int = 1, gap: int = 2, least: Sequence[int] = ()) -> str:
    """Rows of cells in columns as wide as their widest cell, `left` of them to the left, others to the right.

    Args:
        rows: cells, which are shown by `str`; every row has as many as the first.
        left: how many columns stand to the left.
        gap: spaces between columns.
        least: widths that the first columns have at least.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = [max(pair) for pair in zip(widths, [*least, *[0] * len(widths)], strict=False)]
    sides = [str.ljust if at < left else str.rjust for at in range(len(widths))]
    lines = (
        [side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)] for row in cells
    )
    return "\n".join((" " * gap).join(line).rstrip() for line in lines)


def show(data: dict[str, Any], html: str, metadata: dict[str, Any] | None = None) -> None:
    """Show below a cell what is saved with a notebook, `data` by MIME type, and then in its place `html`.

    A page that is read live shows HTML where it has some, and a saved notebook has none: GitHub would show
    nothing else. So a run is compared with what was saved by what comes first. nbval does that with every
    type of text; what takes the place of an output is to it no output.

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
    """The parts that say something, with an empty line between them."""
    return "\n\n".join(filter(None, parts))


def steps(items: Sequence[T], doing: str) -> Iterator[T]:
    """The items one by one, with a bar on standard error while it is a terminal; `doing` names the work."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return iter(items)
    return iter(tqdm(items, desc=doing, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False))


@contextmanager
def progress_meter(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to tell of each piece of work done, out of `total`: a line on standard error says the share.

    Nothing is said of what is over within a second, or where standard error is no terminal.
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
    """Within this block a polite end (SIGTERM, as `timeout` sends it) is as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def display_path(name: str) -> str:
    """The name of a file as it can be shown, and as a file can be called: in one form of Unicode, with ? for
    what would steer a terminal, and cut after 120 bytes.
    """
    stored = name.encode("utf-8", "surrogateescape")
    try:
        decoded = stored.decode("utf-8")
    except UnicodeDecodeError:
        decoded = stored.decode("latin-1")  # as in older archives
    text = printable(unicodedata.normalize("NFC", decoded))
    if len(text.encode()) <= LONGEST:
        return text
    start = text.encode()[: LONGEST - 10].decode("utf-8", "ignore")
    return f"{start}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"  # those with the same start keep apart


def printable(text: str) -> str:
    """The text with ? for what cannot be seen and may steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
