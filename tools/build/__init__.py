"""The build: notebooks and generated parts of pages from their sources, and the rules of every lesson.

To read it from the ground up: `source` (the cells of a file and their two sides), `rules.evening` (words and
minutes), `announcements` (what a lesson says of its exercises), `lesson` (both notebooks of a source),
`execution` (running them), `first_cell`, `course` (writing and checking all of it). Beside these are `pages`
and `guide` (what the build writes into pages), `links` (the notebooks for Colab) and the other `rules`.
"""


class BuildFailed(Exception):
    """A source, a cell or an output is at fault; nothing was written (exit code 1)."""
