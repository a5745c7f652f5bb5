"""What low rank is held against: attention in linear time as others do it, each in a few lines of NumPy.

Every entry of `FIELD` takes q, k (n, d), v (n, d_v), a number of features m and a generator, and gives O
(n, d_v), about softmax(QKᵀ)V; scores are not scaled again. They differ in their features alone:

- `favor`: random ones that are positive and right on average;
- `nystrom`: the exponential itself, at some of the keys;
- `wildcat`: the same at keys that are picked and weighted with care;
- `sata`: the monomials of Taylor's polynomial, each once;
- `elu`: as many as there are columns; it does not try to be softmax.

Beside them the course's own is: known features, own coefficients, certificates and gradient.
"""

from collections.abc import Callable

import numpy as np

from .elu import elu
from .favor import favor
from .linear_attention import Rows
from .nystrom import nystrom
from .sata import sata
from .wildcat import wildcat

Attend = Callable[[Rows, Rows, Rows, int, np.random.Generator], Rows]

FIELD: dict[str, Attend] = {
    "SATA": sata,
    "WildCat": wildcat,
    "Nyström": nystrom,
    "FAVOR+": favor,
    "elu + 1": elu,
}

__all__ = ["FIELD", "Attend", "elu", "favor", "nystrom", "sata", "wildcat"]
