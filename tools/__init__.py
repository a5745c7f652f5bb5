"""Programs that make the course and its records. They are not part of the package; run them in a checkout.

`python -m tools.build` writes the notebooks and pages from their sources, `python -m tools.bench` measures,
`python -m tools.heads` extracts the attention heads of a trained model. docs/guide/tools.md lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from iocourse.cli import Parser, print_anything, run_command


def run_main(
    parser: Parser, command: Callable[[argparse.Namespace], int], argv: Sequence[str] | None = None
) -> int:
    """Parse `argv`, by default the arguments of the process, and run the command on them.

    Returns:
        The exit code of the command; 2 for invalid arguments, after a one-line message.
    """
    print_anything()
    arguments = parser.parse_args(argv)
    return run_command(parser.prog, lambda: command(arguments))
