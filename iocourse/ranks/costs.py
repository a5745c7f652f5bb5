"""What a schedule between ranks must receive, send and hold: closed forms, for every rank and any N."""

from __future__ import annotations

from collections.abc import Callable

from .ledger import RankLedger

Form = Callable[..., RankLedger]
FORMS: dict[str, Form] = {}


def form_of(name: str) -> Form:
    """The closed form of the schedule of that name. Raises LookupError where there is none."""
    if name not in FORMS:
        raise LookupError(
            f"there is no closed form for {name}: iocourse/ranks/costs.py has {', '.join(FORMS)}"
        )
    return FORMS[name]
