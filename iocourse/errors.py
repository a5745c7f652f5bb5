"""Errors that a user can correct, and the text of any error in one line."""


class UsageError(Exception):
    """A wrong argument, or a command run in the wrong folder; the command line exits with code 2."""


def error_text(error: BaseException) -> str:
    """Return the error in one line: its type and its message, or its type if `str(error)` itself fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"
