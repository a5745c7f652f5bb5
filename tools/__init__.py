"""What makes the course and its records, and is not part of the package: run from the root of a checkout.

`python -m tools.build` writes the notebooks and pages from their sources, `tools.bench WHAT` measures,
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
        The exit code: the command's own, 2 for bad arguments, which are named in one line.
    """
    print_anything()
    arguments = parser.parse_args(argv)
    return run_command(parser.prog, lambda: command(arguments))
