"""The examples on pages: code, followed by "It prints:" and the output.

`python tests/printed_examples.py` runs them all and prints their outputs as a JSON list.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SAYS = "It prints:"
EXAMPLE = re.compile(
    rf"^```(python|bash)\n((?:(?!```).)*)^```\n\n{SAYS}\n\n(?:<!-- output -->\n)?```text\n(.*?)^```",
    re.DOTALL | re.MULTILINE,
)


class Example(NamedTuple):
    """An example: its page (relative to the checkout), language, code, and the output on the page."""

    page: str
    language: str
    code: str
    output: str


def pages() -> list[Path]:
    """Return every page of the checkout."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("lessons/*.md")])


def examples(page: Path) -> list[Example]:
    """Return the examples of a page, in order."""
    name = page.relative_to(ROOT).as_posix()
    return [Example(name, *found) for found in EXAMPLE.findall(page.read_text(encoding="utf-8"))]


def can_run(example: Example) -> bool:
    """Return False if an example imports Triton where it is not installed."""
    return not re.search(r"\bimport .*\btriton\b", example.code) or find_spec("triton") is not None


def printed(example: Example) -> str:
    """Run an example and return what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if example.language == "python":
            file = f"<example of {example.page}>"
            # Triton reads the source of a kernel by its file name.
            linecache.cache[file] = len(example.code), None, example.code.splitlines(keepends=True), file
            exec(compile(example.code, file, "exec"), {"__name__": "__main__"})
        else:
            from iocourse.cli import main

            program, *arguments = shlex.split(example.code)
            assert program == "iocourse" and main(arguments) == 0
    return said.getvalue()


if __name__ == "__main__":
    print(json.dumps([printed(one) for page in pages() for one in examples(page) if can_run(one)]))
