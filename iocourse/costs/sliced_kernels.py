"""Closed forms of the Triton kernels that cut d into slices: F6 and F5 of the emulator, and their backward
passes.

A tile of queries reads its rows of Q again for each tile of keys, because no row of Q stays. `Problem` says
how many that are. The forms do not depend on the width of a slice, except where scores are read once for
each.
"""

from __future__ import annotations

from ..ledger import Ledger
from .each_kernel import added, kernel_words, row_products
from .kernel_masks import Problem

Pair = tuple[int, int]  # BM, BN
Triple = tuple[int, int, int]  # BM, BN, BD
_ANY = 16  # columns of a slice where their number changes no count


def _words(kernel: str, problem: Problem, tile: Pair | Triple) -> Ledger:
    BD = tile[2] if len(tile) == 3 else _ANY
    return kernel_words(kernel, problem, BM=tile[0], BN=tile[1], BD=BD)


def sliced_forward(problem: Problem, *, BM: int, BN: int) -> Ledger:
    """F6: Nd⌈N/BN⌉ + 2Nd⌈N/BM⌉ read for the scores and V, and O kept in O_sum between tiles of keys,
    Nd(⌈N/BN⌉ - 1) read and as much written; Nd + N written. For one head and no mask.
    """
    return _words("sliced_forward", problem, (BM, BN))


def sliced_backward(problem: Problem, *, queries: Pair, keys: Pair, dlse: bool = False) -> Ledger:
    """D; dQ row by row; dK and dV column by column. `queries` and `keys` are the (BM, BN) of two kernels.

    The first sweep reads Q and dO once for each tile of keys, V once and K twice for each tile of queries;
    the second reads K and V once for each tile of queries, Q and dO twice for each tile of keys.
    """
    return added(
        row_products(problem, dlse, queries[0], keys[0]),
        _words("sliced_queries", problem, queries),
        _words("sliced_keys", problem, keys),
    )


def scores_forward(problem: Problem, *, scores: Pair, averages: Triple) -> Ledger:
    """F5: Nd⌈N/BN⌉ + Nd⌈N/BM⌉ read and N² written for S, which is read once for each slice of O.

    For one head and no mask; a mask's unseen tiles are neither written nor read.
    """
    return added(_words("scores", problem, scores), _words("averages", problem, averages))


def scores_backward(
    problem: Problem, *, weights: Pair, query_gradients: Triple, key_gradients: Triple, dlse: bool = False
) -> Ledger:
    """B5: D; P and dS written, 2N² words; then dQ from dS, and dK and dV from dS and P, a slice at a time."""
    return added(
        row_products(problem, dlse, weights[0]),
        _words("weights", problem, weights),
        _words("query_gradients", problem, query_gradients),
        _words("key_gradients", problem, key_gradients),
    )
