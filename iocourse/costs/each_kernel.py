"""Closed forms of the kernels one by one: what a single launch moves. `kernels` and `sliced_kernels` add them
up to passes.
"""

from __future__ import annotations

from ..ledger import Ledger
from ..sizes import check_sizes, positive_int
from .closed_form import ceil_div
from .kernel_masks import Problem, rows_of_delta

WHOLE = ("forward", "fused", "queries", "keys")  # tiles of whole rows: BM, BN
SLICED = (  # tiles that cut d too: BM, BN, BD; the first three write no scores out
    "sliced_forward", "sliced_queries", "sliced_keys",
    "scores", "averages", "weights", "query_gradients", "key_gradients",
)  # fmt: skip
KERNELS = WHOLE + SLICED
# Bytes of a word of what is not in the type of Q, K and V: float32, int32, and booleans. What is added to
# atomically is float32 too.
FLOAT32 = ("LSE", "dLSE", "LSE2", "D", "S", "O_sum", "dQ_sum", "dK_sum", "dV_sum", "O_parts", "LSE_parts")
LISTS = ("order", "spans", "entries", "slots", "cu_q", "cu_k")
WIDTHS = dict.fromkeys(FLOAT32 + LISTS, 4) | {"patterns": 1}

Counts = dict[str, int]


def kernel_words(
    kernel: str, problem: Problem, *, BM: int, BN: int, BD: int | None = None, dlse: bool = False,
    pad: int | None = None,
) -> Ledger:  # fmt: skip
    """Words that one launch of a kernel reads and writes, by array.

    Args:
        kernel: one of `KERNELS`.
        problem: the sizes, and which queries see which keys.
        BM: queries of a tile.
        BN: keys of a tile.
        BD: columns of a slice of d; None for the kernels of `WHOLE`, which have none.
        dlse: for queries, whether D takes off the gradient of LSE.
        pad: for queries, the rows of which it leaves row numbers in multiples; None: BM.

    Raises:
        ValueError: an unknown kernel, or a BD where there is none or none where there is one.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; allowed: {', '.join(KERNELS)}")
    if (BD is None) != (kernel in WHOLE):
        allowed = "None, because its tiles are whole rows" if kernel in WHOLE else "the columns of a slice"
        raise ValueError(f"BD is {BD!r} for {kernel}; allowed: {allowed}")
    columns = problem.d if BD is None else positive_int("BD", BD)
    BM, BN = check_sizes(BM=BM, BN=BN)
    reads, writes = _COUNTS[kernel](problem, BM, BN, columns)
    one = ledger_of(reads, writes, {"dQ_sum": writes["dQ_sum"]} if kernel == "fused" else None)
    return added(one, _prepared(problem, dlse, max(BM, pad or 0))) if kernel == "queries" else one


def row_products(problem: Problem, dlse: bool, *tiles: int, zeros: bool = False) -> Ledger:
    """The kernel of D = rowsum(dO ∘ O) and LSE / log 2, which has no tile of keys.

    2Nd + N read and 2N' written a head, N' being N up to a whole tile of each of `tiles`, queries a tile of
    the kernels that follow; with `zeros` Nd more, those of dQ_sum.
    """
    rows = rows_of_delta(problem.d)
    more = problem.row_products_extra(rows), {"dQ_sum": problem.queries * problem.d} if zeros else {}
    return added(_prepared(problem, dlse, max(rows, *tiles)), ledger_of(*more))


def _prepared(p: Problem, dlse: bool, pad: int) -> Ledger:
    """What D and LSE2 are made of, with a gradient of LSE that too; and both, in whole multiples of `pad`."""
    reads = {"O": p.queries * p.d, "dO": p.queries * p.d, "LSE": p.queries}
    left = dict.fromkeys(("LSE2", "D"), p.whole_rows(pad))
    return ledger_of(reads | ({"dLSE": p.queries} if dlse else {}), left)


def ledger_of(reads: Counts, writes: Counts, atomics: Counts | None = None) -> Ledger:
    """A ledger without a peak."""
    return Ledger(reads=reads, writes=writes, atomics=atomics or {})


def added(*ledgers: Ledger) -> Ledger:
    """The words of several launches, array by array."""
    reads, writes, atomics = (
        _sum([getattr(one, part) for one in ledgers]) for part in ("reads", "writes", "atomics")
    )
    return Ledger(reads=reads, writes=writes, atomics=atomics)


def _sum(counts: list[Counts]) -> Counts:
    names = dict.fromkeys(name for one in counts for name in one)
    return {name: sum(one.get(name, 0) for one in counts) for name in names}


def ledger_bytes(ledger: Ledger, itemsize: int) -> int:
    """Bytes of a kernel's ledger, with `itemsize` bytes for a number of Q, K and V."""
    widths = widths_of(ledger, itemsize)
    counts = [*ledger.reads.items(), *ledger.writes.items()]
    return sum(words * widths[name] for name, words in counts)


def widths_of(ledger: Ledger, itemsize: int) -> Counts:
    """Bytes of a word of each array in a kernel's ledger."""
    names = [*ledger.reads, *ledger.writes]
    return dict.fromkeys(names, itemsize) | WIDTHS | dict.fromkeys(ledger.atomics, 4)


def _forward(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    rows, met = p.queries * p.d, p.keys_met(BM, BN) * p.d
    return {"Q": rows, "K": met, "V": met} | p.rows_extra(BM, BN), {"O": rows, "LSE": p.queries}


def _queries(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    """Without what D and LSE2 take, which is `_prepared`."""
    rows, met = p.queries * p.d, p.keys_met(BM, BN) * p.d
    return {"Q": rows, "K": met, "V": met} | p.rows_extra(BM, BN), {"dQ": rows}


def _keys(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    rows, met = p.keys * p.d, p.queries_met(BM, BN) * p.d
    numbers = dict.fromkeys(("LSE2", "D"), p.row_numbers_met(BM, BN))
    reads = {"K": rows, "V": rows, "Q": met, "dO": met, **numbers}
    return reads | p.columns_extra(BM, BN), {"dK": rows, "dV": rows}


def _fused(p: Problem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    reads, writes = _keys(p, BM, BN, BD)
    added = {"dQ_sum": p.queries_met(BM, BN) * p.d}
    return reads | added, writes | added


def _sliced_forward(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN), p.keys_met(BM, BN) * p.d
    between = {"O_sum": (again - p.rows_hit(BM, BN)) * p.d}
    reads = {"Q": again * p.d, "K": met, "V": met} | between
    return reads, between | {"O": p.queries * p.d, "LSE": p.queries}


def _sliced_queries(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN), p.keys_met(BM, BN) * p.d
    between = {"dQ_sum": (again - p.rows_hit(BM, BN)) * p.d}
    numbers = dict.fromkeys(("LSE2", "D"), p.whole_rows(BM))
    reads = {"Q": again * p.d, "dO": again * p.d, "K": 2 * met, "V": met, **numbers}
    return reads | between, between | {"dQ": p.queries * p.d}


def _sliced_keys(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.columns_again(BM, BN), p.queries_met(BM, BN)
    between = dict.fromkeys(("dK_sum", "dV_sum"), (again - p.columns_hit(BM, BN)) * p.d)
    rows = {"K": again * p.d, "V": again * p.d, "Q": 2 * met * p.d, "dO": 2 * met * p.d}
    numbers = dict.fromkeys(("LSE2", "D"), p.row_numbers_met(BM, BN))
    return rows | numbers | between, between | dict.fromkeys(("dK", "dV"), p.keys * p.d)


def _scores(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    reads = {"Q": p.rows_again(BM, BN) * p.d, "K": p.keys_met(BM, BN) * p.d}
    return reads, {"S": p.pairs_met(BM, BN), "LSE": p.queries}


def _averages(p: Problem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    slices = ceil_div(p.d, BD)
    reads = {"S": slices * p.pairs_met(BM, BN), "V": p.keys_met(BM, BN) * p.d, "LSE": slices * p.queries}
    return reads, {"O": p.queries * p.d}


def _weights(p: Problem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN) * p.d, p.keys_met(BM, BN) * p.d
    numbers = dict.fromkeys(("LSE2", "D"), p.whole_rows(BM))
    reads = {"Q": again, "dO": again, "K": met, "V": met, **numbers}
    return reads, dict.fromkeys(("P", "dS"), p.pairs_met(BM, BN))


def _query_gradients(p: Problem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    reads = {"dS": ceil_div(p.d, BD) * p.pairs_met(BM, BN), "K": p.keys_met(BM, BN) * p.d}
    return reads, {"dQ": p.queries * p.d}


def _key_gradients(p: Problem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    weights, met = ceil_div(p.d, BD) * p.pairs_met_by_keys(BM, BN), p.queries_met(BM, BN) * p.d
    return {"P": weights, "dS": weights, "Q": met, "dO": met}, dict.fromkeys(("dK", "dV"), p.keys * p.d)


_COUNTS = {
    "forward": _forward,
    "queries": _queries,
    "keys": _keys,
    "fused": _fused,
    "sliced_forward": _sliced_forward,
    "sliced_queries": _sliced_queries,
    "sliced_keys": _sliced_keys,
    "scores": _scores,
    "averages": _averages,
    "weights": _weights,
    "query_gradients": _query_gradients,
    "key_gradients": _key_gradients,
}
