"""Closed forms of the Triton kernels in `iocourse.kernels`: the words that their loads and stores move.

They are the forms of `flash2`, `split_backward` and `fused_backward`, extended to many heads, Nq ≠ Nk, and
masks in units of tiles, because a partial tile is loaded completely. The kernels that cut d into slices have
the forms of `small_cache_fused` and `small_cache`, and of their backward passes. The peak is 0, because the
compiler determines the registers and bytes that a program uses.

`kernel_words` counts one launch; a pass is the sum of its launches. The problem defines which queries attend
to which keys: a band, a block mask or packed sequences (`kernel_masks`).
"""

from __future__ import annotations

from dataclasses import replace

from ..ledger import Ledger
from ..sizes import check_sizes, positive_int
from .closed_form import ceil_div
from .kernel_masks import KernelProblem as KernelProblem
from .kernel_masks import rows_of_delta

WHOLE = ("forward", "fused", "queries", "keys")  # tiles of complete rows: BM, BN
SLICED = (  # tiles that also cut d: BM, BN, BD; the first three do not store scores
    "sliced_forward", "sliced_queries", "sliced_keys",
    "scores", "averages", "weights", "query_gradients", "key_gradients",
)  # fmt: skip
KERNELS = WHOLE + SLICED
# Bytes per word of arrays whose type is not that of Q, K and V: float32, int32 and Boolean. Targets of atomic
# additions are float32 too.
FLOAT32 = ("LSE", "dLSE", "LSE2", "D", "S", "O_sum", "dQ_sum", "dK_sum", "dV_sum", "O_parts", "LSE_parts")
LISTS = ("order", "spans", "entries", "slots", "cu_q", "cu_k")
WIDTHS = dict.fromkeys(FLOAT32 + LISTS, 4) | {"patterns": 1}

Counts = dict[str, int]
Pair = tuple[int, int]  # BM, BN
Triple = tuple[int, int, int]  # BM, BN, BD


def kernel_words(
    kernel: str, problem: KernelProblem, *, BM: int, BN: int, BD: int | None = None, dlse: bool = False,
    pad: int | None = None,
) -> Ledger:  # fmt: skip
    """Return the words that one launch of a kernel reads and writes, by array.

    Args:
        kernel: one of `KERNELS`.
        problem: the sizes, and which queries attend to which keys.
        BM: queries per tile.
        BN: keys per tile.
        BD: columns per slice of d; None for the kernels of `WHOLE`, which do not slice d.
        dlse: for the kernel "queries", True if the gradient of LSE is subtracted from D.
        pad: for the kernel "queries", D and LSE2 are written padded to a multiple of this; None: BM.

    Raises:
        ValueError: an unknown kernel, or BD passed to a kernel of `WHOLE` or missing for another.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    if (BD is None) != (kernel in WHOLE):
        allowed = "None, because its tiles are complete rows" if kernel in WHOLE else "the columns of a slice"
        raise ValueError(f"BD must be {allowed}, for kernel {kernel}; got {BD!r}")
    columns = problem.d if BD is None else positive_int("BD", BD)
    BM, BN = check_sizes(BM=BM, BN=BN)
    reads, writes = _COUNTS[kernel](problem, BM, BN, columns)
    one = Ledger(reads, writes, atomics={"dQ_sum": writes["dQ_sum"]} if kernel == "fused" else {})
    return sum_ledgers(one, _prepared(problem, dlse, max(BM, pad or 0))) if kernel == "queries" else one


def row_products(problem: KernelProblem, dlse: bool, *tiles: int, zeros: bool = False) -> Ledger:
    """Return the words of the kernel that computes D = rowsum(dO ∘ O) and LSE / log 2.

    Per head it reads 2Nd + N words and writes 2N', where N' is N padded to a multiple of each of `tiles`, the
    queries per tile of the kernels that follow. With `zeros` it also writes Nd zeros to dQ_sum.
    """
    rows = rows_of_delta(problem.d)
    more = problem.row_products_extra(rows), {"dQ_sum": problem.queries * problem.d} if zeros else {}
    return sum_ledgers(_prepared(problem, dlse, max(rows, *tiles)), Ledger(*more))


def _prepared(p: KernelProblem, dlse: bool, pad: int) -> Ledger:
    """Return the words read for D and LSE2, and the words written: both padded to a multiple of `pad`."""
    reads = {"O": p.queries * p.d, "dO": p.queries * p.d, "LSE": p.queries}
    left = dict.fromkeys(("LSE2", "D"), p.whole_rows(pad))
    return Ledger(reads | ({"dLSE": p.queries} if dlse else {}), left)


# ------------------------------------------------------------------ passes
def attention_forward(problem: KernelProblem, *, BM: int, BN: int) -> Ledger:
    """Return the words of the forward pass (O and LSE).

    For one head without a mask: Nd + 2Nd⌈N/BM⌉ read, Nd + N written.
    """
    return kernel_words("forward", problem, BM=BM, BN=BN)


def attention_split_backward(
    problem: KernelProblem, *, queries: Pair, keys: Pair, dlse: bool = False, needed: str = "qkv"
) -> Ledger:
    """Return the words of the two-pass backward pass: dQ, D and LSE / log 2, then dK and dV.

    `queries` and `keys` are the (BM, BN) of the two kernels. For one head without a mask:
    4Nd + N + 2Nd⌈N/BM⌉ + 2N' and 4Nd + ⌈N/BN⌉(2Nd + 2N') words, where N' is N padded to complete tiles of
    both kernels. needed: the inputs that need gradients, of "qkv". Without "q" the kernel of D replaces the
    first one (`row_products`); with "q" alone there is no second one.
    """
    first, second = _needed(needed)
    if first:
        pad = keys[0] if second else None
        begin = kernel_words("queries", problem, BM=queries[0], BN=queries[1], dlse=dlse, pad=pad)
    else:
        begin = row_products(problem, dlse, keys[0])
    return sum_ledgers(begin, *[kernel_words("keys", problem, BM=keys[0], BN=keys[1])] * second)


def _needed(needed: str) -> tuple[bool, bool]:
    """Return True if the kernel of dQ is needed, and True if the one of dK and dV is."""
    if not needed or not set(needed) <= set("qkv"):
        raise ValueError(f"needed must be letters of 'qkv', the inputs that need gradients, got {needed!r}")
    return "q" in needed, needed != "q"


def attention_fused_backward(problem: KernelProblem, *, BM: int, BN: int, dlse: bool = False) -> Ledger:
    """Return the words of the fused backward pass: D, LSE / log 2 and zeros, then dK, dV, dQ in one kernel.

    dQ is added atomically; each addition is one read and one write. For one head without a mask:
    3Nd + N + 2N', then 4Nd + ⌈N/BN⌉(4Nd + 2N') words, where N' is N padded to a multiple of BM. dQ_sum is
    always float32; torch scales and casts it, which is not counted.
    """
    return sum_ledgers(
        row_products(problem, dlse, BM, zeros=True), kernel_words("fused", problem, BM=BM, BN=BN)
    )


def attention_decode(
    problem: KernelProblem, *, parts: int, tiles: int = 1, last_merges: bool = False
) -> Ledger:  # fmt: skip
    """Return the words of a decode step with split-KV: one query per head, Nk keys in `parts`, then a merge.

    Per tile of query heads that share K and V (`tiles`, one for up to 64 heads) 2·B·H_kv·Nk·d words are read;
    per part B·H·(d + 1) words are written and read back. With `last_merges` each of the B·H_kv·tiles·parts
    programs also increments a counter (int32, one read and one write), and the last of a tile resets it to 0.
    """
    parts, tiles = check_sizes(parts=parts, tiles=tiles)
    p, met, rows = problem, problem.keys * tiles, problem.queries
    found = {"O_parts": parts * rows * p.d, "LSE_parts": parts * rows}
    counters = p.B * p.H_kv * tiles if last_merges else 0
    arrived = {"arrived": counters * parts} if last_merges else {}
    return Ledger(
        reads={"Q": parts * rows * p.d, "K": met * p.d, "V": met * p.d, **found, **arrived},
        writes={**found, "O": rows * p.d, "LSE": rows, **{name: n + counters for name, n in arrived.items()}},
        atomics=arrived,
    )


# ------------------------------------------------------------------ passes that cut d into slices
# A tile of queries reloads its rows of Q for each tile of keys, because Q is not resident (see `rows_again`).
# The forms do not depend on the width of a slice, except where scores are read once per slice.
_ANY = 16  # columns per slice for kernels whose counts do not depend on it


def _words(kernel: str, problem: KernelProblem, tile: Pair | Triple) -> Ledger:
    BD = tile[2] if len(tile) == 3 else _ANY
    return kernel_words(kernel, problem, BM=tile[0], BN=tile[1], BD=BD)


def sliced_forward(problem: KernelProblem, *, BM: int, BN: int) -> Ledger:
    """Return the words of the fused split-d forward pass.

    For one head without a mask: Nd⌈N/BN⌉ + 2Nd⌈N/BM⌉ read for the scores and V; Nd(⌈N/BN⌉ - 1) read and as
    many written for O_sum, which holds O between tiles of keys; Nd + N written for O and LSE.
    """
    return _words("sliced_forward", problem, (BM, BN))


def sliced_backward(
    problem: KernelProblem, *, queries: Pair, keys: Pair, dlse: bool = False, needed: str = "qkv"
) -> Ledger:
    """Return the words of the fused split-d backward pass: D, then dQ by queries, then dK and dV by keys.

    `queries` and `keys` are the (BM, BN) of the two kernels. The first reads Q and dO once per tile of keys,
    V once and K twice per tile of queries; the second reads K and V once per tile of queries, Q and dO twice
    per tile of keys. needed: the inputs that need gradients, of "qkv"; a kernel of no needed gradient is not
    launched.
    """
    first, second = _needed(needed)
    return sum_ledgers(
        row_products(problem, dlse, *[queries[0]] * first, *[keys[0]] * second),
        *[_words("sliced_queries", problem, queries)] * first,
        *[_words("sliced_keys", problem, keys)] * second,
    )


def scores_forward(problem: KernelProblem, *, scores: Pair, averages: Triple) -> Ledger:
    """Return the words of the split-d forward pass with scores materialised.

    For one head without a mask: Nd⌈N/BN⌉ + Nd⌈N/BM⌉ read and N² written for S, which is read once per slice
    of O. Empty tiles of a mask are neither written nor read.
    """
    return sum_ledgers(_words("scores", problem, scores), _words("averages", problem, averages))


def scores_backward(
    problem: KernelProblem,
    *,
    weights: Pair,
    query_gradients: Triple,
    key_gradients: Triple,
    dlse: bool = False,
    needed: str = "qkv",
) -> Ledger:
    """Return the words of the split-d backward pass: D; P and dS (2N² written); then dQ, dK, dV by slices.

    needed: the inputs that need gradients, of "qkv". A kernel of no needed gradient is not launched, and for
    "q" alone P is not written.
    """
    first, second = _needed(needed)
    stored = _words("weights", problem, weights)
    if not second:
        stored = replace(stored, writes={"dS": stored.writes["dS"]})
    return sum_ledgers(
        row_products(problem, dlse, weights[0]),
        stored,
        *[_words("query_gradients", problem, query_gradients)] * first,
        *[_words("key_gradients", problem, key_gradients)] * second,
    )


# ------------------------------------------------------------------ the backward kernels of lesson 12
# They read LSE and D without padding, one value per row; the kernels of the library scale and pad both first.
def delta_plain(problem: KernelProblem) -> Ledger:
    """Return the words of the kernel of D, (12.1): 2Nd + N per head."""
    rows = problem.queries * problem.d
    return Ledger({"O": rows, "dO": rows}, {"D": problem.queries})


def dq_plain(problem: KernelProblem, BM: int, BN: int) -> Ledger:
    """Return the words of the kernel of dQ, (6.10): 4Nd + 2N + 2Nd⌈N/BM⌉ per head without a mask."""
    met, rows = problem.keys_met(BM, BN) * problem.d, problem.queries * problem.d
    reads = {"Q": rows, "O": rows, "dO": rows, "LSE": problem.queries, "K": met, "V": met}
    return Ledger(reads, {"D": problem.queries, "dQ": rows})


def dkdv_plain(problem: KernelProblem, BM: int, BN: int) -> Ledger:
    """Return the words of the kernel of dK and dV, (6.10): 4Nd + ⌈N/BN⌉(2Nd + 2N) per head without a mask."""
    met, columns = problem.queries_met(BM, BN), problem.keys * problem.d
    reads = dict.fromkeys(("Q", "dO"), met * problem.d) | dict.fromkeys(("LSE", "D"), met)
    return Ledger(reads | dict.fromkeys(("K", "V"), columns), {"dK": columns, "dV": columns})


def fused_backward_plain(problem: KernelProblem, BM: int, BN: int) -> Ledger:
    """Return the words of the fused kernel with that of D, (12.2): 6Nd + N + ⌈N/BN⌉(4Nd + 2N) per head.

    The formula is for no mask.
    """
    shares = {"dQ": problem.queries_met(BM, BN) * problem.d}
    return sum_ledgers(
        delta_plain(problem), dkdv_plain(problem, BM, BN), Ledger(shares, shares, atomics=shares)
    )


# ------------------------------------------------------------------ ledgers
def sum_ledgers(*ledgers: Ledger) -> Ledger:
    """Return the sum of the words of several launches, per array."""

    def total(part: str) -> Counts:
        counts = [getattr(one, part) for one in ledgers]
        names = dict.fromkeys(name for one in counts for name in one)
        return {name: sum(one.get(name, 0) for one in counts) for name in names}

    return Ledger(reads=total("reads"), writes=total("writes"), atomics=total("atomics"))


def ledger_bytes(ledger: Ledger, itemsize: int) -> int:
    """Return the bytes of a kernel's ledger, with `itemsize` bytes per element of Q, K and V."""
    widths = widths_of(ledger, itemsize)
    counts = [*ledger.reads.items(), *ledger.writes.items()]
    return sum(words * widths[name] for name, words in counts)


def widths_of(ledger: Ledger, itemsize: int) -> Counts:
    """Return the bytes per word of each array in a kernel's ledger."""
    names = [*ledger.reads, *ledger.writes]
    return dict.fromkeys(names, itemsize) | WIDTHS | dict.fromkeys(ledger.atomics, 4)


# ------------------------------------------------------------------ what each kernel reads and writes
def _forward(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    rows, met = p.queries * p.d, p.keys_met(BM, BN) * p.d
    return {"Q": rows, "K": met, "V": met} | p.rows_extra(BM, BN), {"O": rows, "LSE": p.queries}


def _queries(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    """Return reads and writes, by array, of the kernel of dQ, without computing D and LSE2.

    `_prepared` returns those: reads of O, dO and LSE, writes of D and LSE2.
    """
    rows, met = p.queries * p.d, p.keys_met(BM, BN) * p.d
    return {"Q": rows, "K": met, "V": met} | p.rows_extra(BM, BN), {"dQ": rows}


def _keys(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    rows, met = p.keys * p.d, p.queries_met(BM, BN) * p.d
    numbers = dict.fromkeys(("LSE2", "D"), p.row_numbers_met(BM, BN))
    reads = {"K": rows, "V": rows, "Q": met, "dO": met, **numbers}
    return reads | p.columns_extra(BM, BN), {"dK": rows, "dV": rows}


def _fused(p: KernelProblem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    reads, writes = _keys(p, BM, BN, BD)
    added = {"dQ_sum": p.queries_met(BM, BN) * p.d}
    return reads | added, writes | added


def _sliced_forward(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN), p.keys_met(BM, BN) * p.d
    between = {"O_sum": (again - p.rows_hit(BM, BN)) * p.d}
    reads = {"Q": again * p.d, "K": met, "V": met} | between
    return reads, between | {"O": p.queries * p.d, "LSE": p.queries}


def _sliced_queries(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN), p.keys_met(BM, BN) * p.d
    between = {"dQ_sum": (again - p.rows_hit(BM, BN)) * p.d}
    numbers = dict.fromkeys(("LSE2", "D"), p.whole_rows(BM))
    reads = {"Q": again * p.d, "dO": again * p.d, "K": 2 * met, "V": met, **numbers}
    return reads | between, between | {"dQ": p.queries * p.d}


def _sliced_keys(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.columns_again(BM, BN), p.queries_met(BM, BN)
    between = dict.fromkeys(("dK_sum", "dV_sum"), (again - p.columns_hit(BM, BN)) * p.d)
    rows = {"K": again * p.d, "V": again * p.d, "Q": 2 * met * p.d, "dO": 2 * met * p.d}
    numbers = dict.fromkeys(("LSE2", "D"), p.row_numbers_met(BM, BN))
    return rows | numbers | between, between | dict.fromkeys(("dK", "dV"), p.keys * p.d)


def _scores(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    reads = {"Q": p.rows_again(BM, BN) * p.d, "K": p.keys_met(BM, BN) * p.d}
    return reads, {"S": p.pairs_met(BM, BN), "LSE": p.queries}


def _averages(p: KernelProblem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    slices = ceil_div(p.d, BD)
    reads = {"S": slices * p.pairs_met(BM, BN), "V": p.keys_met(BM, BN) * p.d, "LSE": slices * p.queries}
    return reads, {"O": p.queries * p.d}


def _weights(p: KernelProblem, BM: int, BN: int, _: int) -> tuple[Counts, Counts]:
    again, met = p.rows_again(BM, BN) * p.d, p.keys_met(BM, BN) * p.d
    numbers = dict.fromkeys(("LSE2", "D"), p.whole_rows(BM))
    reads = {"Q": again, "dO": again, "K": met, "V": met, **numbers}
    return reads, dict.fromkeys(("P", "dS"), p.pairs_met(BM, BN))


def _query_gradients(p: KernelProblem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
    reads = {"dS": ceil_div(p.d, BD) * p.pairs_met(BM, BN), "K": p.keys_met(BM, BN) * p.d}
    return reads, {"dQ": p.queries * p.d}


def _key_gradients(p: KernelProblem, BM: int, BN: int, BD: int) -> tuple[Counts, Counts]:
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
