"""Closed forms: the exact traffic and footprint of each schedule as a function of its sizes and tile sizes.

A function decorated with `@form` in a file of `forms/` becomes `costs.<name>`; no list of files is needed. It
returns a `Ledger` whose `peak` is the footprint, the exact number of words of fast memory the schedule needs.
The formulas are for the loop orders of `iocourse.schedules`; a property test checks that machine and formula
agree exactly.
"""

from ..discovery import files_of
from . import forms
from .closed_form import FORMS, Form, best_pair, best_sizes, ceil_div, distinct_sizes, form, largest_square

files_of(forms.__name__, forms.__path__)
files_of(__name__, __path__)
globals().update(FORMS)

__all__ = ["FORMS", "Form", "best_pair", "best_sizes", "ceil_div", "distinct_sizes", "form", "form_of"]
__all__ += ["largest_square", *sorted(FORMS)]


def form_of(name: str) -> Form:
    """Return the closed form `name`. Raises LookupError that explains how to add one."""
    if name not in FORMS:
        raise LookupError(
            f"missing closed form costs.{name}: add def {name}(N, d, *, <tiles>) -> Ledger, decorated with "
            "@form, to a file of iocourse/costs/forms/"
        )
    return FORMS[name]


def __getattr__(name: str) -> Form:
    """Raise AttributeError that lists the closed forms; the annotation is for type checkers."""
    raise AttributeError(f"unknown closed form costs.{name}; known forms are {', '.join(FORMS)}")
