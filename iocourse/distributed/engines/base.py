"""What an engine does for one rank: it posts what leaves, and later hands over what came."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Call(NamedTuple):
    """A call of a rank, as far as all ranks that take part must agree on it."""

    kind: str  # "shift", "all_gather", "all_to_all" or "message"
    names: tuple[str, ...]
    detail: str = ""  # what else must agree, as it is written in the call: "by=2"

    def __str__(self) -> str:
        return f"{self.kind}({', '.join([*self.names, self.detail] if self.detail else self.names)})"


class Group(NamedTuple):
    """Ranks that call together; `key` is another for each group."""

    members: tuple[int, ...]  # in the numbers of the whole run
    key: tuple[Any, ...] = ()


class Parcel(NamedTuple):
    """What one rank posts in one call: arrays by rank, in the order of the call's names; None is nothing."""

    call: Call
    group: Group
    number: int  # how many calls this rank has made before in this group; of messages, between these two
    outgoing: dict[int, tuple[Any, ...]]
    sources: tuple[int, ...]
    role: str = ""  # "send" or "recv" where the call is a message

    def __str__(self) -> str:
        return str(self.call._replace(kind=self.role or self.call.kind))


Shapes = tuple[tuple[int, ...] | None, ...]  # of the arrays of a call; None is nothing
Place = tuple[tuple[Any, ...], int, str]  # of a call among all those of a rank
Plan = dict[Place, dict[int, Shapes]]  # what arrives in each call, by the rank that sends it


def place_of(parcel: Parcel) -> Place:
    """Where in its rank's life a call stands."""
    return parcel.group.key, parcel.number, parcel.role


def shape_of(array: Any) -> tuple[int, ...] | None:
    """The shape of what was sent, None of nothing."""
    return None if array is None else tuple(array.shape)


class Link(Protocol):
    """One rank's end of an engine. Ranks are numbers in the whole run."""

    def post(self, parcel: Parcel) -> None:
        """Let the parcel's arrays, which are copies, leave. Does not wait."""

    def collect(self, parcel: Parcel) -> dict[int, tuple[Any, ...]]:
        """Wait for what the ranks `sources` post in the same call, and hand it over."""

    def finish(self) -> None:
        """The rank's schedule has returned: let what it sent leave."""
