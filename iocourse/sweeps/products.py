"""What a pass consists of: its products of matrices, and what each of them needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Product(NamedTuple):
    """One product of matrices: it makes an N x N matrix from two arrays, or uses one to add to an output."""

    matrix: str  # (N, N)
    row: str  # (N, d), on the side of the queries
    column: str  # (N, d), on the side of the keys
    output: str = ""  # the one of the two that is added to; none where the matrix is made
    after: str = ""  # the output that must be done before


@dataclass(frozen=True)
class Task:
    """A pass: its products, the two N x N factors of dS, and the matrices stored at the start."""

    products: tuple[Product, ...]
    factors: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    @property
    def outputs(self) -> frozenset[str]:
        """The arrays (N, d) to be done."""
        return frozenset(product.output for product in self.products) - {""}


FORWARD = (Product("S", "Q", "K"), Product("S", "O", "V", output="O"))
BACKWARD = (
    Product("P", "Q", "K"),
    Product("dP", "dO", "V"),
    Product("dS", "dQ", "K", output="dQ"),
    Product("dS", "Q", "dK", output="dK"),
    Product("P", "dO", "dV", output="dV"),
)
GRADIENT = (  # forward, which leaves dO = O - E, and then dQ
    *FORWARD,
    Product("dP", "dO", "V", after="O"),
    Product("dS", "dQ", "K", output="dQ"),
)
TIED = (Product("S", "Q", "X"), Product("S", "O", "X", output="O"))  # forward with K = V = X
TASKS = {
    "forward": Task(FORWARD),
    "backward": Task(BACKWARD, factors=frozenset({"P", "dP"})),
    "given": Task(BACKWARD, factors=frozenset({"P", "dP"}), given=frozenset({"P"})),  # P of the forward pass
    "gradient": Task(GRADIENT, factors=frozenset({"S", "dP"})),
    "tied": Task(TIED),
}
