"""The error for what a user can correct."""


class UsageError(Exception):
    """A wrong argument, or a command in the wrong place (exit code 2)."""
