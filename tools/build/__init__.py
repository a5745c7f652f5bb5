"""The build: notebooks and generated parts of pages from their sources, and the rules of every lesson."""


class BuildFailed(Exception):
    """A source, a cell or an output is at fault; nothing was written (exit code 1)."""
