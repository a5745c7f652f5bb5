"""Lower bounds on the memory traffic in words, each with its source and its status (proved, published, …).

A bound holds for every schedule of its class and every fast memory of M words in its regime. `BOUNDS` has
all of them by id. `lower_bound` returns the largest one that applies, evaluated at M + 4, because four scalar
registers are free on the machine.
"""

# A bound is written once, where it is defined: `bound` adds its function to the names that `import *` takes.
# BOUNDS keeps the order of these imports, which is the order of the course.
# ruff: noqa: F403, I001
from .bound import *
from .forward import *
from .backward import *
from .row_schedules import *
from .relatives import *
from .sparse import *
from .literature import *
from .segments import *
from .best_bound import *

# Set through globals(), because type checkers would take a computed __all__ for an empty one.
globals()["__all__"] = sorted(
    name for name, one in globals().items() if name[0] != "_" and not hasattr(one, "__spec__")
)
