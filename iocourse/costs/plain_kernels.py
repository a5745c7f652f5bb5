"""Closed forms of the backward kernels that lesson 12 writes: LSE and D are read as they lie, one number for
each row that there is. The library's own kernels prepare both (`each_kernel`).
"""

from __future__ import annotations

from ..ledger import Ledger
from .each_kernel import added, ledger_of
from .kernel_masks import Problem


def delta_plain(problem: Problem) -> Ledger:
    """(12.1): 2Nd + N words a head."""
    rows = problem.queries * problem.d
    return ledger_of({"O": rows, "dO": rows}, {"D": problem.queries})


def dq_plain(problem: Problem, BM: int, BN: int) -> Ledger:
    """The first bracket of (6.10): 4Nd + 2N + 2Nd⌈N/BM⌉ words a head without a mask."""
    met, rows = problem.keys_met(BM, BN) * problem.d, problem.queries * problem.d
    reads = {"Q": rows, "O": rows, "dO": rows, "LSE": problem.queries, "K": met, "V": met}
    return ledger_of(reads, {"D": problem.queries, "dQ": rows})


def dkdv_plain(problem: Problem, BM: int, BN: int) -> Ledger:
    """The second bracket of (6.10): 4Nd + ⌈N/BN⌉(2Nd + 2N) words a head without a mask."""
    met, columns = problem.queries_met(BM, BN), problem.keys * problem.d
    reads = dict.fromkeys(("Q", "dO"), met * problem.d) | dict.fromkeys(("LSE", "D"), met)
    return ledger_of(reads | dict.fromkeys(("K", "V"), columns), {"dK": columns, "dV": columns})


def fused_backward_plain(problem: Problem, BM: int, BN: int) -> Ledger:
    """(12.2), D's own launch included: 6Nd + N + ⌈N/BN⌉(4Nd + 2N) words a head without a mask."""
    shares = {"dQ": problem.queries_met(BM, BN) * problem.d}
    return added(delta_plain(problem), dkdv_plain(problem, BM, BN), ledger_of(shares, shares, shares))
