"""Closed forms of the Triton kernels that cut d into slices: F6 and F5 of the emulator, and their backward
passes.

A tile of queries reads its rows of Q again for each tile of keys, because no row of Q stays. `Problem` says
how many that are. The forms do not depend on the width of a slice, except where scores are read once for
each.
"""

from __future__ import annotations

from ..ledger import Ledger
from .kernels import Problem, ledger_of, row_products, sum_of
from .parts import ceil_div

Pair = tuple[int, int]  # BM, BN
Triple = tuple[int, int, int]  # BM, BN, BD


def sliced_forward(problem: Problem, *, BM: int, BN: int) -> Ledger:
    """F6: Nd⌈N/BN⌉ + 2Nd⌈N/BM⌉ read for the scores and V, and O kept in O_sum between tiles of keys,
    Nd(⌈N/BN⌉ - 1) read and as much written; Nd + N written. For one head and no mask.
    """
    p, d = problem, problem.d
    again, met = p.rows_again(BM, BN), p.keys_met(BM, BN)
    between = {"O_sum": (again - p.rows_hit(BM, BN)) * d}
    return ledger_of(
        reads={"Q": again * d, "K": met * d, "V": met * d, **between},
        writes={**between, "O": p.queries * d, "LSE": p.queries},
    )


def sliced_backward(problem: Problem, *, queries: Pair, keys: Pair, dlse: bool = False) -> Ledger:
    """D; dQ row by row; dK and dV column by column. `queries` and `keys` are the (BM, BN) of two kernels.

    The first sweep reads Q and dO once for each tile of keys, V once and K twice for each tile of queries;
    the second reads K and V once for each tile of queries, Q and dO twice for each tile of keys.
    """
    p, d = problem, problem.d
    again, met = p.rows_again(*queries), p.keys_met(*queries)
    dq = {"dQ_sum": (again - p.rows_hit(*queries)) * d}
    first = {
        "Q": again * d,
        "dO": again * d,
        "K": 2 * met * d,
        "V": met * d,
        "LSE": p.queries,
        "D": p.queries,
    }
    back, met = p.columns_again(*keys), p.queries_met(*keys)
    sums = (back - p.columns_hit(*keys)) * d
    dkv = {"dK_sum": sums, "dV_sum": sums}
    second = {"K": back * d, "V": back * d, "Q": 2 * met * d, "dO": 2 * met * d, "LSE": met, "D": met}
    return ledger_of(
        reads=sum_of(row_products(p, dlse), first, dq, second, dkv),
        writes={"D": p.queries, **dq, "dQ": p.queries * d, **dkv, "dK": p.keys * d, "dV": p.keys * d},
    )


def scores_forward(problem: Problem, *, scores: Pair, averages: Triple) -> Ledger:
    """F5: Nd⌈N/BN⌉ + Nd⌈N/BM⌉ read and N² written for S, which is read once for each slice of O.

    For one head and no mask; a mask's unseen tiles are neither written nor read.
    """
    p, d = problem, problem.d
    slices = ceil_div(d, averages[2])
    return ledger_of(
        reads={
            "Q": p.rows_again(*scores) * d,
            "K": p.keys_met(*scores) * d,
            "S": slices * p.pairs_met(*averages[:2]),
            "V": p.keys_met(*averages[:2]) * d,
            "LSE": slices * p.queries,
        },
        writes={"S": p.pairs_met(*scores), "LSE": p.queries, "O": p.queries * d},
    )


def scores_backward(
    problem: Problem, *, weights: Pair, query_gradients: Triple, key_gradients: Triple, dlse: bool = False
) -> Ledger:
    """B5: D; P and dS written, 2N² words; then dQ from dS, and dK and dV from dS and P, a slice at a time."""
    p, d = problem, problem.d
    again, met, pairs = p.rows_again(*weights), p.keys_met(*weights), p.pairs_met(*weights)
    made = {"Q": again * d, "dO": again * d, "K": met * d, "V": met * d, "LSE": p.queries, "D": p.queries}
    tile = query_gradients[:2]
    rows = {"dS": ceil_div(d, query_gradients[2]) * p.pairs_met(*tile), "K": p.keys_met(*tile) * d}
    tile = key_gradients[:2]
    read = ceil_div(d, key_gradients[2]) * p.pairs_met_by_keys(*tile)
    columns = {"P": read, "dS": read, "Q": p.queries_met(*tile) * d, "dO": p.queries_met(*tile) * d}
    return ledger_of(
        reads=sum_of(row_products(p, dlse), made, rows, columns),
        writes={
            "D": p.queries, "P": pairs, "dS": pairs,
            "dQ": p.queries * d, "dK": p.keys * d, "dV": p.keys * d,
        },
    )  # fmt: skip
