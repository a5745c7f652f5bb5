"""What is known about the exercises of lesson 13: mistakes, other right answers, cheats.

Some right answers are kernels of their own; so this file needs torch and triton.
"""

import numpy as np
from harness import FINITE, Mutant, Suite, called, finite, kept_by_shape

from iocourse import kernels
from iocourse.costs.kernels import KernelProblem, attention_forward, sliced_forward
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises.lesson13 import lists_of

# isort: split
import torch
import triton
import triton.language as tl

from iocourse.kernels.host.tile_table import Tile, Tiles
from iocourse.kernels.jit_helpers import Rows, Seeing, Shape, Slicing
from iocourse.kernels.sliced_head_dim import sliced_forward_kernel

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
WORK = "a kernel does the work"
O, LSE = "O equals exact attention", "LSE is the natural logarithm of the row sums"
FAR, FULL = "scores far from 0 neither overflow nor vanish", "float32 is multiplied as float32"
START = 'm = tl.full((BM,), float("-inf")'


# ---------------------------------------------------------------------- 13A
FITS = "a tile that spills or does not fit is not taken"
ROWS, SLICES = "the bytes of whole rows are exact", "the bytes of slices are exact"
LEAST = "the tile that moves the fewest bytes is taken"


def by_closed_forms(tiles, room, N, d, itemsize):
    """The library's ledgers, with the width of each array."""
    best = None
    for tile in tiles:
        if tile["spill_bytes"] or tile["shared_bytes"] > room:
            continue
        form = sliced_forward if tile["BD"] else attention_forward
        ledger = form(KernelProblem(N, N, d), BM=tile["BM"], BN=tile["BN"])
        ledger.itemsizes = dict.fromkeys("QKVO", itemsize) | {"O_sum": 4, "LSE": 4}
        if best is None or ledger.bytes < best[1]:
            best = tile, ledger.bytes
    return best


def sorted_by_bytes(tiles, room, N, d, itemsize):
    """Bytes as a NumPy number, ceilings by NumPy, the least by sorting."""

    def moved(tile):
        rows, keys = np.ceil(N / tile["BM"]), np.ceil(N / tile["BN"])
        if not tile["BD"]:
            return itemsize * N * d * (2 + 2 * rows) + 4 * N
        return N * d * (itemsize * (1 + keys + 2 * rows) + 8 * keys - 8) + 4 * N

    fit = [tile for tile in tiles if not tile["spill_bytes"] and tile["shared_bytes"] <= room]
    best = sorted(fit, key=moved)[0]
    return dict(best), np.int64(moved(best))


def largest_rows(tiles, room, N, d, itemsize):
    """The most rows of queries, without counting: it takes square tiles of slices over whole rows."""
    fit = [t for t in tiles if not t["spill_bytes"] and t["shared_bytes"] <= room]
    best = max(fit, key=lambda tile: tile["BM"])
    return best, by_closed_forms([best], room, N, d, itemsize)[1]


def by_leading_terms(tiles, room, N, d, itemsize):
    """The choice for a long sequence, as in (13.3); its bytes are exact."""

    def leading(tile):
        if tile["BD"] is None:
            return 2 * itemsize / tile["BM"]
        return itemsize * (1 / tile["BN"] + 2 / tile["BM"]) + 8 / tile["BN"]

    fit = [t for t in tiles if not t["spill_bytes"] and t["shared_bytes"] <= room]
    best = min(fit, key=leading)
    return best, by_closed_forms([best], room, N, d, itemsize)[1]


def a_tile_of_its_own(tiles, room, N, d, itemsize):
    return {"BM": 1024, "BN": 1024, "BD": None, "spill_bytes": 0, "shared_bytes": 0}, 0


CHOICE = Suite(
    id="13A",
    mutants=(
        Mutant(
            "tiles-of-any-fraction",
            LEAST,
            (
                "best = min(good, key=bytes_moved)",
                "def smooth(tile):\n"
                '        rows, keys = N / tile["BM"], N / tile["BN"]\n'
                '        if tile["BD"] is None:\n'
                "            return itemsize * (2 * N * d + 2 * N * d * rows) + 4 * N\n"
                "        inputs = itemsize * (N * d + N * d * keys + 2 * N * d * rows)\n"
                "        return inputs + 8 * N * d * (keys - 1) + 4 * N\n\n"
                "    best = min(good, key=smooth)",
            ),
        ),
        Mutant("tiles-thrown-away", RUNS, ("best = min(", "tiles[:] = good\n    best = min(")),
        Mutant("spills-taken", FITS, ('tile["spill_bytes"] == 0 and ', "")),
        Mutant("too-large-taken", FITS, (' and tile["shared_bytes"] <= room', "")),
        Mutant("room-not-reached", LEAST, ('["shared_bytes"] <= room', '["shared_bytes"] < room')),
        Mutant("most-for-least", LEAST, ("min(good", "max(good")),
        Mutant("rounded-down", ROWS, ('-(-N // tile["BM"])', 'N // tile["BM"]')),
        Mutant("LSE-forgotten", ROWS, ("* rows) + 4 * N", "* rows)")),
        Mutant("LSE-as-wide-as-inputs", ROWS, ("* rows) + 4 * N", "* rows) + itemsize * N")),
        Mutant("V-forgotten", ROWS, ("2 * N * d + 2 * N * d * rows", "2 * N * d + N * d * rows")),
        Mutant("sums-as-wide-as-inputs", SLICES, ("8 * N * d * (keys", "2 * itemsize * N * d * (keys")),
        Mutant("sums-one-way", SLICES, ("8 * N * d * (keys", "4 * N * d * (keys")),
        Mutant("sums-once-too-often", SLICES, ("(keys - 1)", "keys")),
        Mutant("Q-stays", SLICES, ("N * d * keys + 2", "N * d + 2")),
        Mutant(
            "slices-never",
            LEAST,
            ("for tile in tiles if tile", 'for tile in tiles if tile["BD"] is None and tile'),
        ),
        Mutant("bytes-alone", FITS, ("return best, bytes_moved(best)", "return bytes_moved(best)")),
    ),
    right=(by_closed_forms, sorted_by_bytes),
    cheats=(
        (largest_rows, LEAST),
        (by_leading_terms, LEAST),
        (a_tile_of_its_own, FITS),
        (sliced_forward, OWN),
    ),
)


# ---------------------------------------------------------------------- 13B
LENGTHS = "the five parts have the lengths that the mask asks for"
PAIRS = "every pair that is seen is listed, and no other"
FIRST = "whole tiles come first and need no pattern"
QUERIES, KEYS = "queries past the last make no tile cut", "keys past the last make a tile cut"
HEAVY = "heavy rows come first"


def tile_by_tile(pairs, BM, BN):
    """No padding: slices of the mask, cut off at its end; cut tiles from right to left."""
    Nq, Nk = pairs.shape
    spans, entries, slots, patterns = [], [], [], []
    for at in range(0, Nq, BM):
        whole, cut = [], []
        for j in range(0, Nk, BN):
            tile = pairs[at : at + BM, j : j + BN]
            if tile.all() and j + BN <= Nk:
                whole.append(j // BN)
            elif tile.any():
                cut.insert(0, j // BN)
        begin = len(entries)
        spans.append((begin, begin + len(whole), begin + len(whole) + len(cut)))
        entries.extend(whole + cut)
        slots.extend([7] * len(whole))
        for column in cut:
            pattern = np.zeros((BM, BN), dtype=bool)
            part = pairs[at : at + BM, column * BN : (column + 1) * BN]
            pattern[: part.shape[0], : part.shape[1]] = part
            slots.append(len(patterns))
            patterns.append(pattern)
    order = sorted(range(len(spans)), key=lambda row: spans[row][0] - spans[row][2])
    return spans, entries, slots, np.array(patterns).reshape(-1, BM, BN), order


def sorted_by_kind(pairs, BM, BN):
    """One sort of all tiles that are hit: by row, then whole before cut, then by column."""
    rows, columns = -(-pairs.shape[0] // BM), -(-pairs.shape[1] // BN)
    beyond = ((0, rows * BM - pairs.shape[0]), (0, 0)), ((0, 0), (0, columns * BN - pairs.shape[1]))

    def tiles(queries_beyond):
        full = np.pad(np.pad(pairs, beyond[0], constant_values=queries_beyond), beyond[1])
        return full.reshape(rows, BM, columns, BN).transpose(0, 2, 1, 3)

    if queries := beyond[0][0][1]:
        missing = tiles(False)
        missing[-1, :, BM - queries :] = True
        cut = ~missing.all((2, 3))
    else:
        cut = ~tiles(False).all((2, 3))
    seen = tiles(False)
    row, column = np.nonzero(seen.any((2, 3)))
    place = np.lexsort((column, cut[row, column], row))
    row, column = row[place], column[place]
    is_cut = cut[row, column]
    ends = np.searchsorted(row, np.arange(rows), side="right")
    begins = np.searchsorted(row, np.arange(rows))
    cuts = np.array([np.sum(is_cut[a:b]) for a, b in zip(begins, ends, strict=True)], dtype=int)
    slots = np.cumsum(is_cut) - 1
    spans = np.stack([begins, ends - cuts, ends], axis=1)
    return spans, column, slots, seen[row[is_cut], column[is_cut]], np.argsort(begins - ends)


def by_the_library(pairs, BM, BN):
    """What `attention` makes of the mask."""
    seen = torch.from_numpy(np.array(pairs))
    q, k = (torch.empty(1, 1, n, 1) for n in pairs.shape)
    mask = kernels.tiled_mask(lambda b, h, i, j: seen[i, j], q, k)
    lists = mask.lists(Tiles(*[Tile(BM, BN)] * 4), torch.device("cpu"), 1, False)[:5]
    spans, entries, slots, patterns, order = (part.numpy() for part in lists)
    return spans[0, 0], entries, slots, patterns, order[0, 0]


def counted_from_the_right(pairs, BM, BN):
    """Entries below 0, which NumPy takes for places from the end; for a kernel they lie before K."""
    spans, entries, slots, patterns, order = map(np.asarray, tile_by_tile(pairs, BM, BN))
    return spans, entries - -(-pairs.shape[1] // BN), slots, patterns, order


def patterns_from_the_right(pairs, BM, BN):
    spans, entries, slots, patterns, order = map(np.asarray, tile_by_tile(pairs, BM, BN))
    return spans, entries, slots - len(patterns), patterns, order


def every_tile_cut(pairs, BM, BN):
    """Right values, and a pattern for each tile."""
    rows, columns = -(-pairs.shape[0] // BM), -(-pairs.shape[1] // BN)
    full = np.zeros((rows * BM, columns * BN), dtype=bool)
    full[: pairs.shape[0], : pairs.shape[1]] = pairs
    patterns = full.reshape(rows, BM, columns, BN).swapaxes(1, 2).reshape(-1, BM, BN)
    spans = [(row * columns, row * columns, (row + 1) * columns) for row in range(rows)]
    return spans, list(range(columns)) * rows, list(range(rows * columns)), patterns, list(range(rows))


LISTS = Suite(
    id="13B",
    mutants=(
        Mutant(
            "mask-used-up", RUNS, ("return (np.array(spans", "pairs[:] = False\n    return (np.array(spans")
        ),
        Mutant(
            "unseen-listed",
            LENGTHS,
            ("hit, whole = tiles.any(axis=(2, 3))", "hit, whole = tiles.any(axis=(2, 3)) | True"),
        ),
        Mutant("any-for-all", PAIRS, ("unasked.reshape(shape).all(", "unasked.reshape(shape).any(")),
        Mutant(
            "whole-tiles-with-patterns",
            LENGTHS,
            ("hit[row] & whole[row])", "hit[row] & False)"),
            ("hit[row] & ~whole[row]", "hit[row]"),
        ),
        Mutant("cut-first", PAIRS, ("entries += [*plain, *cut]", "entries += [*cut, *plain]")),
        Mutant("queries-past-the-last-cut", QUERIES, ("unasked[Nq:] = True", "pass")),
        Mutant(
            "keys-past-the-last-whole",
            KEYS,
            ("unasked[Nq:] = True ", "unasked[Nq:] = unasked[:, Nk:] = True "),
        ),
        Mutant("slots-begin-again", PAIRS, ("len(patterns) + k for k", "k for k")),
        Mutant("spans-begin-at-0", PAIRS, ("begin = len(entries)", "begin = 0")),
        Mutant("light-first", HEAVY, ("np.argsort(-hit", "np.argsort(hit")),
        Mutant("as-they-come", HEAVY, ('np.argsort(-hit.sum(axis=1), kind="stable")', "np.arange(rows)")),
        Mutant("order-of-columns", LENGTHS, ("hit.sum(axis=1)", "hit.sum(axis=0)")),
        Mutant(
            "patterns-turned",
            PAIRS,
            ("patterns += [tiles[row, column] for", "patterns += [tiles[row, column][::-1] for"),
        ),
        Mutant("counts-for-spans", LENGTHS, ("begin + len(plain) + len(cut)])", "])")),
        Mutant("whole-for-hit-in-the-order", HEAVY, ("-hit.sum(axis=1)", "-(hit & whole).sum(axis=1)")),
    ),
    right=(tile_by_tile, sorted_by_kind),
    cheats=(
        (every_tile_cut, LENGTHS),
        (counted_from_the_right, PAIRS),
        (patterns_from_the_right, PAIRS),
        (by_the_library, OWN),
        (called("by_those_of_the_check", lambda pairs, BM, BN: lists_of(pairs, BM, BN)), OWN),
        (lists_of, OWN),
    ),
)


def zeros_of_both(Q, *rest):
    return torch.zeros_like(Q), torch.zeros(len(Q))


# ---------------------------------------------------------------------- 13C
PLAIN, CUT = "O is right where tiles are seen whole", "a pattern hides what it must"
EMPTY_O, EMPTY_LSE = "a row that sees nothing has O = 0", "a row that sees nothing has LSE = -∞"
HEAVY_FIRST = "the programs with the most tiles begin first"
LISTED_WORDS = "loads and stores move exactly what the formula says, lists included"


@triton.jit
def one_loop_kernel(
    Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One loop with a branch for cut tiles; weights by e; a finite start."""
    tile = tl.load(order + tl.program_id(0))
    begin, cut, end = tl.load(spans + tile * 3), tl.load(spans + tile * 3 + 1), tl.load(spans + tile * 3 + 2)
    r, c = tl.arange(0, BM), tl.arange(0, d)
    i = tile * BM + r
    q = tl.load(Q + i[:, None] * d + c[None, :], mask=i[:, None] < Nq, other=0.0) * scale
    m = tl.zeros((BM,), dtype=tl.float32) - 1e30
    l = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    step = begin
    while step < end:
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        places = r[:, None] * BN + tl.arange(0, BN)[None, :]
        if step >= cut:
            seen = tl.load(patterns + tl.load(slots + step) * (BM * BN) + places) > 0
        else:
            seen = places >= 0
        k = tl.load(K + j[None, :] * d + c[:, None], mask=j[None, :] < Nk, other=0.0)
        s = tl.where(seen, tl.dot(q, k, input_precision="ieee"), -1e30)
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.where(seen, tl.exp(s - top[:, None]), 0.0)
        old = tl.exp(m - top)
        v = tl.load(V + j[:, None] * d + c[None, :], mask=j[:, None] < Nk, other=0.0)
        acc = acc * old[:, None] + tl.dot(p, v, input_precision="ieee")
        l, m = l * old + tl.sum(p, 1), top
        step += 1
    blind = l == 0.0
    tl.store(
        O + i[:, None] * d + c[None, :],
        tl.where(blind[:, None], 0.0, acc / tl.where(blind, 1.0, l)[:, None]),
        mask=i[:, None] < Nq,
    )
    tl.store(LSE + i, tl.where(blind, float("-inf"), m + tl.log(tl.where(blind, 1.0, l))), mask=i < Nq)


def in_one_loop(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    Nq, d = Q.shape
    o, lse = torch.empty_like(Q), torch.empty(Nq)
    one_loop_kernel[(len(order),)](
        Q, K, V, o, lse, spans, entries, slots, patterns, order, Nq, K.shape[0], d**-0.5, d=d, BM=BM, BN=BN
    )
    return o, lse


@triton.jit
def cut_first_kernel(
    Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Cut tiles first, then whole ones, both backwards; no rescaling of what is empty."""
    tile = tl.load(order + tl.program_id(0)).to(tl.int64)
    c = tl.arange(0, d)
    i = tile * BM + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)
    three = spans + tile * 3
    begin, cut, end = tl.load(three), tl.load(three + 1), tl.load(three + 2)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l, acc = tl.zeros((BM,), dtype=tl.float32), tl.zeros((BM, d), dtype=tl.float32)
    for part in tl.static_range(2):
        first, last = (cut, end) if part == 0 else (begin, cut)
        for back in range(0, last - first):
            step = last - 1 - back
            j = tl.load(entries + step) * BN + tl.arange(0, BN)
            there = (j < Nk)[:, None]
            k, v = (
                tl.load(K + j[:, None] * d + c, mask=there, other=0.0),
                tl.load(V + j[:, None] * d + c, mask=there, other=0.0),
            )
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            if part == 0:
                inner = tl.arange(0, BM * BN)
                seen = tl.reshape(tl.load(patterns + tl.load(slots + step) * BM * BN + inner), (BM, BN))
                s = tl.where(seen != 0, s, float("-inf"))
            top = tl.maximum(m, tl.max(s, 1))
            safe = tl.where(top == float("-inf"), 0.0, top)
            p, old = tl.exp2(s - safe[:, None]), tl.exp2(m - safe)
            acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
            l = l * old + tl.sum(p, 1)
            m = top
    nothing = m == float("-inf")
    l = tl.where(nothing, 1.0, l)
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < Nq)
    tl.store(LSE + i, tl.where(nothing, m, (m + tl.log2(l)) * 0.6931471805599453), mask=i < Nq)


def cut_tiles_first(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    Nq, d = Q.shape
    o, lse = torch.empty_like(Q), torch.empty(Nq)
    cut_first_kernel[(triton.cdiv(Nq, BM),)](
        Q,
        K,
        V,
        o,
        lse,
        spans,
        entries,
        slots,
        patterns,
        order,
        Nq,
        K.shape[0],
        LOG2_E * d**-0.5,
        d=d,
        BM=BM,
        BN=BN,
    )
    return o, lse


def listed_by_the_library(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    q, k, v = (x[None, None] for x in (Q, K, V))
    mask = kernels.tiled_mask(lambda b, h, i, j: j >= 0, q, k)
    return kernels.attention_with_lse(q, k, v, block_mask=mask)


def listed_by_torch(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    S = Q @ K.T * Q.shape[1] ** -0.5
    return S.softmax(1) @ V, S.logsumexp(1)


LOOPS = "for step in range(begin, cut):"
SEEN = "seen = tl.load(patterns + tl.load(slots + step) * BM * BN + inside) != 0"

LISTED = Suite(
    id="13C",
    mutants=(
        kept_by_shape(FAR, "my_listed_attention"),
        Mutant(
            "rows-of-16-words",
            PLAIN,
            ("i[:, None] * d + c", "i[:, None] * 16 + c"),
            ("j[:, None] * d + c", "j[:, None] * 16 + c"),
        ),
        *finite(FAR, "starts-at", START),
        *finite(FAR, "hidden-as", 'tl.where(seen, s, float("-inf"))', FINITE[1:]),
        Mutant("factors-rounded", FULL, (', input_precision="ieee"', "")),
        Mutant("pattern-forgotten", CUT, ('tl.where(seen, s, float("-inf"))', "s")),
        Mutant("pattern-reversed", CUT, (SEEN, SEEN.replace("!= 0", "== 0"))),
        Mutant(
            "pattern-transposed",
            CUT,
            (
                "tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]",
                "tl.arange(0, BM)[:, None] + tl.arange(0, BN)[None, :] * BM",
            ),
        ),
        Mutant(
            "slot-is-the-step", CUT, (SEEN, "seen = tl.load(patterns + (step - cut) * BM * BN + inside) != 0")
        ),
        Mutant(
            "hidden-is-a-large-number",
            EMPTY_O,
            ('tl.where(seen, s, float("-inf"))', "tl.where(seen, s, -1e30)"),
        ),
        Mutant("rows-by-the-programs-number", PLAIN, ("i = tile * BM +", "i = tl.program_id(0) * BM +")),
        Mutant("entries-ignored", PLAIN, ("j = tl.load(entries + step) * BN", "j = (step - begin) * BN")),
        Mutant(
            "order-ignored",
            LISTED_WORDS,
            ("tile = tl.load(order + tl.program_id(0))", "tile = tl.program_id(0)"),
        ),
        Mutant(
            "order-loaded-and-ignored",
            HEAVY_FIRST,
            (
                "tile = tl.load(order + tl.program_id(0))",
                "tile = tl.load(order + tl.program_id(0)) * 0 + tl.program_id(0)",
            ),
        ),
        Mutant("whole-tiles-left-out", PLAIN, (LOOPS, "for step in range(cut, cut):")),
        Mutant("cut-tiles-left-out", CUT, ("for step in range(cut, end):", "for step in range(end, end):")),
        Mutant("one-span-for-all", PLAIN, ("spans + 3 * tile", "spans + 3 * 0 * tile")),
        Mutant("entry-in-keys", RUNS, ("tl.load(entries + step) * BN", "tl.load(entries + step) * BM * BN")),
        Mutant(
            "keys-past-the-last",
            RUNS,
            (
                "k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)",
                "k = tl.load(K + j[:, None] * d + c)",
            ),
        ),
        Mutant("empty-rows-divided", EMPTY_O, ("safe = tl.where(nothing, 1.0, l)", "safe = l")),
        Mutant(
            "empty-LSE-forgotten",
            EMPTY_LSE,
            ('tl.where(nothing, float("-inf"), (m', "tl.where(nothing, 0.0, (m"),
        ),
        Mutant("scale-forgotten", O, (" * scale  ", "  ")),
        Mutant("LSE-in-twos", LSE, (" * 0.6931471805599453", "")),
        Mutant(
            "patterns-for-whole-tiles-too",
            LISTED_WORDS,
            (LOOPS, LOOPS + "\n        unused = tl.load(slots + step)"),
        ),
    ),
    right=(in_one_loop, cut_tiles_first),
    cheats=(
        (listed_by_the_library, OWN),
        (listed_by_torch, OWN),
        (zeros_of_both, WORK),
        (kernels.attention, OWN),
    ),
)

# ---------------------------------------------------------------------- 13D
ONE, RAGGED_D = "O is right where one tile holds all keys", "O is right where slices do not divide d"
RESCALED = "a sum that is there already is rescaled"
TRAVEL = "sums go to slow memory between two tiles of keys, and only there"
WORDS = "loads and stores move exactly what the formula says"


@triton.jit
def slice_of(x, rows, column, N, d, BD: tl.constexpr):
    c = column + tl.arange(0, BD)
    there = (rows[:, None] < N) & (c[None, :] < d)
    return tl.load(x + rows[:, None] * d + c[None, :], mask=there, other=0.0)


@triton.jit
def keep_slice(tile, x, rows, column, N, d, BD: tl.constexpr):
    c = column + tl.arange(0, BD)
    tl.store(x + rows[:, None] * d + c[None, :], tile, mask=(rows[:, None] < N) & (c[None, :] < d))


@triton.jit
def branching_kernel(
    Q, K, V, Sums, O, LSE, N, d, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """Branches for the first and the last round, weights by e, O's slices from right to left."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for tile in range(0, tl.cdiv(N, BN)):
        j = tile * BN + tl.arange(0, BN)
        s = tl.zeros((BM, BN), dtype=tl.float32)
        for column in range(0, d, BD):
            q, k = slice_of(Q, i, column, N, d, BD), slice_of(K, j, column, N, d, BD)
            s += tl.dot(q, tl.trans(k), input_precision="ieee")
        s = tl.where(j[None, :] < N, s * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp(s - m_new[:, None]), tl.exp(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        last = (tl.cdiv(d, BD) - 1) * BD
        for back in range(0, last + 1, BD):
            column = last - back
            new = tl.dot(p, slice_of(V, j, column, N, d, BD), input_precision="ieee")
            if tile > 0:
                new += slice_of(Sums, i, column, N, d, BD) * old[:, None]
            if (tile + 1) * BN < N:
                keep_slice(new, Sums, i, column, N, d, BD)
            else:
                keep_slice(new / l[:, None], O, i, column, N, d, BD)
    tl.store(LSE + i, m + tl.log(l), mask=i < N)


def with_branches(Q, K, V, BM, BN, BD):
    N, d = Q.shape
    o, sums, lse = torch.empty_like(Q), torch.empty_like(Q), torch.empty(N)
    branching_kernel[(triton.cdiv(N, BM),)](Q, K, V, sums, o, lse, N, d, d**-0.5, BM=BM, BN=BN, BD=BD)
    return o, lse


def sums_in_another_layout(Q, K, V, BM, BN, BD):
    """The sums in memory of (d, N), which no rule forbids."""
    N, d = Q.shape
    o, sums, lse = torch.empty_like(Q), torch.empty(d, N), torch.empty(N)
    turned_kernel[(triton.cdiv(N, BM),)](Q, K, V, sums, o, lse, N, d, LOG2_E * d**-0.5, BM=BM, BN=BN, BD=BD)
    return o, lse


@triton.jit
def turned_kernel(
    Q, K, V, Sums, O, LSE, N, d, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        s = tl.zeros((BM, BN), dtype=tl.float32)
        for column in range(0, d, BD):
            q, k = slice_of(Q, i, column, N, d, BD), slice_of(K, j, column, N, d, BD)
            s = tl.dot(q, tl.trans(k), s, input_precision="ieee")
        s = tl.where(j[None, :] < N, s * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        for column in range(0, d, BD):
            c = column + tl.arange(0, BD)
            there = (i[:, None] < N) & (c[None, :] < d)
            at = Sums + c[None, :] * N + i[:, None]
            share = tl.dot(p, slice_of(V, j, column, N, d, BD), input_precision="ieee")
            n = tl.where(start == 0, 0, N)
            new = share + tl.load(at, mask=there & (i < n)[:, None], other=0.0) * old[:, None]
            n = tl.where(start + BN >= N, 0, N)
            tl.store(at, new, mask=there & (i < n)[:, None])
            tl.store(O + i[:, None] * d + c[None, :], new / l[:, None], mask=there & (i >= n)[:, None])
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def library_sliced(Q, K, V, BM, BN, BD):
    """The library's kernel, launched by hand."""
    N, d = Q.shape
    o, sums, lse = torch.empty_like(Q), torch.empty_like(Q), torch.empty(N)
    given = (Rows(x, N * d, N * d, d) for x in (Q, K, V, sums, o))
    sliced_forward_kernel[(triton.cdiv(N, BM),)](
        *given, lse, Shape(triton.cdiv(N, BM), 1, 1, d), d**-0.5, N, N, 0, 0,
        TILE=Slicing(BM, BN, BD, "ieee"), SEEN=Seeing(False, False),
    )  # fmt: skip
    return o, lse


def sliced_attention_of_the_library(Q, K, V, BM, BN, BD):
    return kernels.attention_with_lse(*(x[None, None] for x in (Q, K, V)), tile_d="fused")


def sliced_by_torch(Q, K, V, BM, BN, BD):
    S = Q @ K.T * Q.shape[1] ** -0.5
    return S.softmax(1) @ V, S.logsumexp(1)


SLICED = Suite(
    id="13D",
    mutants=(
        kept_by_shape(O, "my_sliced_attention"),
        *finite(FAR, "starts-at", START),
        *finite(FAR, "hidden-as", '(j[None, :] < N, s, float("-inf"))', FINITE[1:]),
        Mutant("factors-rounded", FULL, (', input_precision="ieee"', "")),
        Mutant("not-rescaled", RESCALED, ("so_far * old[:, None]", "so_far")),
        Mutant("starts-again", O, ("tl.dot(p, v, so_far * old[:, None], ", "tl.dot(p, v, ")),
        Mutant("not-divided", ONE, ("new / l[:, None]", "new")),
        Mutant("sums-read-in-the-first-round", ONE, ("< come) & there", "< N) & there")),
        Mutant(
            "sums-kept-after-the-last-round",
            TRAVEL,
            ("new, mask=(i[:, None] < go)", "new, mask=(i[:, None] < N)"),
        ),
        Mutant("O-in-every-round", TRAVEL, ("< N - go) & there", "< N) & there")),
        Mutant("O-never", O, ("< N - go) & there", "< go) & there")),
        Mutant("columns-past-d-read", RUNS, ("mask=(j[:, None] < N) & there", "mask=j[:, None] < N")),
        Mutant(
            "columns-past-d-written", RUNS, ("mask=(i[:, None] < N - go) & there", "mask=i[:, None] < N - go")
        ),
        Mutant("keys-past-the-last", RUNS, ("mask=(j[:, None] < N) & there", "mask=there")),
        Mutant(
            "columns-of-the-first-slice",
            O,
            ("V + j[:, None] * d + c,", "V + j[:, None] * d + tl.arange(0, BD),"),
        ),
        Mutant(
            "V-twice",
            WORDS,
            (
                "            so_far = ",
                (
                    "            mask = (j[:, None] < N) & there\n"
                    "            v = tl.load(V + j[:, None] * d + c, mask=mask, other=0.0)\n"
                    "            so_far = "
                ),
            ),
        ),
        Mutant(
            "sums-in-O",
            WORDS,
            (
                "tl.store(O_sum + rows, new, mask=(i[:, None] < go)",
                "tl.store(O + rows, new, mask=(i[:, None] < N)",
            ),
            ("tl.load(O_sum + rows", "tl.load(O + rows"),
        ),
    ),
    right=(with_branches, sums_in_another_layout),
    cheats=(
        (library_sliced, OWN),
        (sliced_attention_of_the_library, OWN),
        (sliced_by_torch, OWN),
        (zeros_of_both, WORK),
        (kernels.attention, OWN),
    ),
)


SUITES = (CHOICE, LISTS, LISTED, SLICED)
