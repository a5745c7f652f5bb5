"""What can go wrong between ranks, each with a name of its own. Every message names the rank."""

from __future__ import annotations

from collections.abc import Sequence


class RankError(RuntimeError):
    """Something that ranks may not do, or that one of them did not survive."""


class RankFailed(RankError):
    """A rank raised an error of its own, which is this one's cause."""


class Mismatch(RankError):
    """Two ranks that must make the same call made different ones."""


class Deadlock(RankError):
    """No rank can go on: each waits for another that will not answer."""


class ChangedWhileSent(RankError):
    """An array was changed between `start_shift` and `wait()`: on a network that is a race."""


class TimedOut(RankError):
    """A rank got no answer from another within the time that was allowed."""


def naming_the_late(failure: RankError, late: Sequence[int]) -> RankError:
    """The error of one who waited, and behind it the ranks that had not ended by then."""
    if not late:
        return failure
    ranks = f"rank {', '.join(map(str, late))}"
    return TimedOut(f"{failure}; {ranks} had not ended: still computing? Then give more time by timeout=…")


class CannotShip(TypeError):
    """Something that a schedule uses cannot be sent to another process."""


class Stopped(BaseException):
    """Ends a rank because another one failed; no `except Exception` of a schedule catches it."""
