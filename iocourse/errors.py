"""Error for mistakes that the user can correct."""


class UsageError(Exception):
    """A wrong argument, or a command run in the wrong folder; the command line exits with code 2."""
