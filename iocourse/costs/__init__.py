"""What each schedule must cost: closed forms in words, as functions of the sizes and the tiles.

A function marked `@form` in a file of `forms/` is found without being listed, and is `costs.<name>`. It
returns a `Ledger` whose `peak` is the footprint, the exact number of words of fast memory the schedule needs.
The formulas are stated for the loop orders in `iocourse.schedules`; a property test holds that machine and
formula agree to the word.
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
    """The closed form called `name`. Raises LookupError that says how to write one."""
    if name not in FORMS:
        raise LookupError(
            f"there is no closed form costs.{name}: write def {name}(N, d, *, <tiles>) -> Ledger, marked "
            "@form, in a file of iocourse/costs/forms/"
        )
    return FORMS[name]


def __getattr__(name: str) -> Form:
    """What a type checker is told of the closed forms; asked for one that is missing, the names there are."""
    raise AttributeError(f"there is no closed form costs.{name}; there are {', '.join(FORMS)}")
