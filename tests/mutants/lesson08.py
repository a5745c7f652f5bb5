"""Lesson 08: sparse attention. Mistakes students make, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import bounds, costs, exact, masks, schedules
from iocourse.course.checking import OWN, RUNS

# ---------------------------------------------------------------------- 8A
EQUAL, EVERY = "equal blocks are counted right", "the words are exact for every grid"
RAGGED, UNLIKE = "a smaller last block counts with its own size", "queries and keys may be cut differently"
HIDDEN = "a row of hidden tiles still moves its queries and outputs"


def tile_by_tile(tiles, heights, widths, d):
    words = sum(2 * r * d for r in heights)
    for row in tiles:
        for seen, c in zip(row, widths, strict=True):
            words += 2 * c * d if seen else 0
    return words


def column_by_column(tiles, heights, widths, d):
    counts = np.asarray(tiles).sum(axis=0)
    return np.int64(2 * d) * (np.sum(heights) + np.dot(counts, widths))


def dense_words(tiles, heights, widths, d):
    return costs.flash_optimal(sum(heights), d, Br=max(heights), Bc=1).total


def by_equal_tiles(tiles, heights, widths, d):
    """The library's closed form, which knows tiles of one size only."""
    mask = masks.BlockMask(sum(heights), tiles, heights[0], widths[0], allow_empty=True)
    return costs.block_sparse(sum(heights), d, mask=mask, Br=heights[0], Bc=1).total


COUNT = Suite(
    id="8A",
    mutants=(
        Mutant("only-keys", EQUAL, ("2 * d * keys_met", "d * keys_met")),
        Mutant("outputs-forgotten", EQUAL, ("2 * N * d +", "N * d +")),
        Mutant("hidden-for-seen", EQUAL, ("tiles @", "~tiles @")),
        Mutant("every-tile", EQUAL, ("tiles @", "np.ones_like(tiles) @")),
        Mutant("tiles-turned", EVERY, ("tiles @ np.array(widths)", "tiles.T @ np.array(heights)")),
        Mutant("keys-for-queries", UNLIKE, ("sum(heights)", "sum(widths)")),
        Mutant("counted-to-127", EVERY, ("np.array(widths)", "np.array(widths).astype(np.int8)")),
        Mutant("counted-to-255", EVERY, ("np.array(widths)", "np.array(widths).astype(np.uint8)")),
        Mutant("single-precision", EVERY, ("np.array(widths)", "np.array(widths, dtype=np.float32)")),
        Mutant("the-caller's-lists-emptied", RUNS, ("    return", "    heights.clear()\n    return")),
        Mutant("complex", EVERY, ("return 2 * N", "return 0j + 2 * N")),
        Mutant(
            "text", EVERY, ("return 2 * N * d + 2 * d * keys_met", "return str(2 * N * d + 2 * d * keys_met)")
        ),
        Mutant("all-as-wide-as-the-first", RAGGED, ("np.array(widths)", "np.full(len(widths), widths[0])")),
        Mutant("N-of-full-blocks", RAGGED, ("sum(heights)", "len(heights) * heights[0]")),
        Mutant(
            "rows-for-columns", UNLIKE, ("tiles @ np.array(widths)", "tiles.sum(axis=1) * np.array(heights)")
        ),
        Mutant("hidden-rows-left-out", HIDDEN, ("N = sum(heights)", "N = tiles.any(axis=1) @ heights")),
    ),
    right=(tile_by_tile, column_by_column),
    cheats=((dense_words, EQUAL), (by_equal_tiles, RUNS), (costs.block_sparse, OWN)),
)

# ---------------------------------------------------------------------- 8B
VALUES = "values equal exact attention"
DIAGONAL, EMPTY = "a key after the query has no weight", "a row that sees no key becomes zeros"
LARGE = "scores of ±10,000 neither overflow nor vanish"
BLOCK_SIZE = "block size does not change the answer"
FITS, TOTAL = "fits in fast memory", "no more words move than the closed form says"
NEEDED_K = "K is read only where a block of queries needs it"
NEEDED_V = "V is read only where a block of queries needs it"
Q_ONCE, O_ONCE = "Q is read once", "O is written once"


def by_plain_ranges(m, Q, K, V, *, mask, Br, Bc):
    """Blocks by range, frees by hand, values into the keys' place; later parts of a row first."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for start in range(0, N, Br):
        rows = (start, min(start + Br, N))
        q, o, stats = m.load(Q, rows), m.zeros(rows, d), m.row_stats(rows)
        for needed in reversed(mask.columns(*rows)):
            for j in m.blocks(needed, Bc):
                for i in m.blocks(rows, Br):
                    k = m.load(K, j)
                    s = q @ k.T
                    s *= d**-0.5
                    v = m.load(V, j, into=k)
                    m.hide(s, i, j, mask)
                    stats.update(s, o)
                    o.add_matmul(s, v)
                    v.free()
                    s.free()
        stats.normalise(o)
        m.store(o, O, rows)
        for tile in (q, o, stats):
            tile.free()
    return O


def asking_for_single_columns(m, Q, K, V, *, mask, Br, Bc):
    """Which key does some query of the block see? Asked of `sees`, key by key, without ranges."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        queries = np.arange(i.start, i.stop)[:, None]
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, 1):
                if not mask.sees(queries, np.arange(j.start, j.stop)[None, :]).any():
                    continue
                with m.load(K, j) as k:
                    s = q @ k.T
                m.hide(s, i, j, mask)
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def every_key(m, Q, K, V, *, mask, Br, Bc):
    """Right values: all keys pass by, hidden pairs are hidden."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:
                    s = q @ k.T
                m.hide(s, i, j, mask)
                with s, m.load(V, j) as v:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def keys_and_values_together(m, Q, K, V, *, mask, Br, Bc):
    """F2's order: right values and words, in more room than F3 takes."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for needed in mask.columns(i.start, i.stop):
                for j in m.blocks(needed, Bc):
                    with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                        m.hide(s, i, j, mask)
                        stats.update(s, o)
                        o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def zeros(m, Q, K, V, **_):
    O = m.new("O", Q.shape)
    with m.zeros(*Q.shape) as o:
        m.store(o, O, (0, Q.shape[0]))
    return O


def library_schedule_inside(m, Q, K, V, *, mask, Br, Bc):
    return schedules.block_sparse(m, Q, K, V, mask=mask, Br=Br, Bc=Bc)


def taken_from_the_machine(m, Q, K, V, **_):
    return m.slow("O", exact.attention(m.take(Q), m.take(K), m.take(V)))


HIDE = "m.hide(s, i, j, mask)"
RANGES = "mask.columns(i.start, i.stop)"

SPARSE = Suite(
    id="8B",
    mutants=(
        Mutant("nothing-hidden", DIAGONAL, (HIDE, "pass")),
        Mutant(
            "hidden-after-the-update",
            VALUES,
            (HIDE, "pass"),
            ("o.add_matmul(s, v)", f"o.add_matmul(s, v); {HIDE}"),
        ),
        Mutant("hidden-with-zero", DIAGONAL, (HIDE, "t = m.full(i, j); m.hide(t, i, j, mask); s *= t == 0")),
        Mutant("columns-of-the-first-query", VALUES, (RANGES, "mask.columns(i.start, i.start + 1)")),
        Mutant("columns-of-the-last-query", VALUES, (RANGES, "mask.columns(i.stop - 1, i.stop)")),
        Mutant("first-range-only", VALUES, (RANGES, f"{RANGES}[:1]")),
        Mutant("all-keys", NEEDED_K, (RANGES, "[(0, N)]")),
        Mutant("all-keys-up-to-the-last", NEEDED_V, (RANGES, f"[(0, ({RANGES} or [(0, 1)])[-1][1])]")),
        Mutant("a-key-where-none-is-seen", TOTAL, (RANGES, f"{RANGES} or [(0, 1)]")),
        Mutant("dropped-rescale", BLOCK_SIZE, ("stats.update(s, o)", "stats.update(s)")),
        Mutant(
            "no-maximum",
            LARGE,
            ("stats.update(s, o)", "np.exp(s, out=s); stats.l[:] = stats.l + s.sum(axis=1)"),
        ),
        Mutant("divided-without-a-guard", EMPTY, ("stats.normalise(o)", "o /= stats.l[:, None]")),
        Mutant("missing-scale", VALUES, ("q *= d**-0.5", "pass")),
        Mutant("scale-of-one-d", VALUES, ("d**-0.5", "8**-0.5")),
        Mutant("Q-in-the-inner-loop", Q_ONCE, ("stats.update", "q = m.load(Q, i, into=q); stats.update")),
        Mutant("O-in-the-inner-loop", O_ONCE, ("add_matmul(s, v)", "add_matmul(s, v); m.store(o, O, i)")),
        Mutant("all-keys-at-once", FITS, ("with m.load(K, j)", "with m.load(K, (0, N)), m.load(K, j)")),
    ),
    right=(by_plain_ranges, asking_for_single_columns),
    cheats=(
        (every_key, NEEDED_K),
        (every_key, TOTAL),
        (keys_and_values_together, FITS),
        (zeros, VALUES),
        (library_schedule_inside, OWN),
        (schedules.block_sparse, OWN),
        (schedules.block_sparse.body, OWN),
        (taken_from_the_machine, RUNS),
    ),
)

# ---------------------------------------------------------------------- 8C
WIDE, ALONE = "a window over everything is plain attention", "a window of one key gives its value"
K_ONCE, V_ONCE, LOADED = (
    "each key is read once",
    "each value is read once",
    "every word of the input is loaded",
)
LINEAR = "4Nd words, whatever w is"


def with_a_dict(m, Q, K, V, *, w):
    """Keys and values by position; the key that leaves gives its room to the one that comes."""
    N, d = Q.shape
    O, there = m.new("O", (N, d)), {}
    for j in range(min(w, N)):
        there[j] = m.load(K, j), m.load(V, j)
    for i in range(N):
        gone = there.pop(i - w - 1, (None, None))
        if i + w < N:
            there[i + w] = m.load(K, i + w, into=gone[0]), m.load(V, i + w, into=gone[1])
        else:
            for tile in gone:
                if tile is not None:
                    tile.free()
        q, o, stats = m.load(Q, i), m.zeros(1, d), m.row_stats(1)
        for k, v in there.values():
            s = k @ q.T
            s *= d**-0.5
            stats.update(s, o)
            o.add_matmul(s, v)
            s.free()
        stats.normalise(o)
        m.store(o, O, i)
        for tile in (q, o, stats):
            tile.free()
    return O


def in_one_circular_tile(m, Q, K, V, *, w):
    """Two tiles of 2w + 1 rows, written round and round; all scores of a query at once."""
    N, d = Q.shape
    size = min(2 * w + 1, N)
    O, keys, values = m.new("O", (N, d)), m.zeros(size, d), m.zeros(size, d)
    come = 0
    for i in range(N):
        while come < min(i + w + 1, N):
            place = slice(come % size, come % size + 1)
            for slow, ring in ((K, keys), (V, values)):
                with m.load(slow, come) as row:
                    ring[place] = row
            come += 1
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            q *= d**-0.5
            with q @ keys.T as s:
                for place in range(size):
                    newest = come - 1 - (come - 1 - place) % size
                    if newest < max(0, i - w):
                        s[:, place] = -np.inf
                stats.update(s, o)
                o.add_matmul(s, values)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def loaded_for_every_query(m, Q, K, V, *, w):
    """Right values on little room, and each key loaded 2w + 1 times."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in range(N):
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            q *= d**-0.5
            for j in range(max(0, i - w), min(N, i + w + 1)):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def everything_stays(m, Q, K, V, *, w):
    """4Nd words, with all keys and values in fast memory."""
    N, d = Q.shape
    O, rows = m.new("O", (N, d)), [(m.load(K, j), m.load(V, j)) for j in range(N)]
    for i in range(N):
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            q *= d**-0.5
            for k, v in rows[max(0, i - w) : i + w + 1]:
                with q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def values_alone(m, Q, K, V, *, w):
    """O = V, which is right for w = 0."""
    O = m.new("O", Q.shape)
    for i in range(Q.shape[0]):
        with m.load(V, i) as v:
            m.store(v, O, i)
    return O


def load_first_free_later(m, Q, K, V, *, w):
    """The oldest key goes after its last query; until the next query comes there is room for both."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    keys, values = [], []
    for j in range(min(w, N)):
        keys.append(m.load(K, j))
        values.append(m.load(V, j))
    for i in range(N):
        if i + w < N:
            keys.append(m.load(K, i + w))
            values.append(m.load(V, i + w))
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            for k, v in zip(keys, values, strict=True):
                with q @ k.T as s:
                    s /= np.sqrt(d)
                    stats.update(s, o)
                    o.add_matmul(s, v)
            o /= stats.l[:, None]
            m.store(o, O, i)
        if i >= w:
            keys.pop(0).free()
            values.pop(0).free()
    return O


WINDOW = Suite(
    id="8C",
    mutants=(
        Mutant("looks-back-only", VALUES, ("min(i + w + 1, N)", "i + 1")),
        Mutant("one-key-ahead-missing", VALUES, ("min(i + w + 1, N)", "min(max(i + w, i + 1), N)")),
        Mutant("one-key-ahead-too-many", VALUES, ("min(i + w + 1, N)", "min(i + w + 2, N)")),
        Mutant("leaves-a-query-late", VALUES, ("if i > w:", "if i > w + 1:")),
        Mutant("leaves-a-query-early", VALUES, ("if i > w:", "if i >= w and i:")),
        Mutant(
            "never-leaves",
            WIDE,
            ("if i > w:", "if i > w + N:"),
            ("for k, v in ring", "for k, v in list(ring)[1:]"),
        ),
        Mutant(
            "nothing-freed",
            FITS,
            ("tile.free()", "kept.append(tile)"),
            ("ring, come =", "kept = []; ring, come ="),
        ),
        Mutant("freed-when-a-name-lets-go", FITS, ("tile.free()", "pass")),
        Mutant(
            "loads-a-key-too-early",
            FITS,
            ("min(i + w + 1, N)", "min(i + w + 2, N)"),
            ("for k, v in ring", "for k, v in list(ring)[: min(i, w) + w + 1]"),
        ),
        Mutant("a-second-copy-of-the-key", K_ONCE, ("come += 1", "m.load(K, come).free(); come += 1")),
        Mutant("a-second-copy-of-the-value", V_ONCE, ("come += 1", "m.load(V, come).free(); come += 1")),
        Mutant("keys-for-values", VALUES, ("m.load(V, come)", "m.load(K, come)")),
        Mutant("values-never-loaded", LOADED, ("m.load(V, come)", "m.load(K, come)")),
        Mutant("missing-scale", VALUES, ("q *= d**-0.5", "pass")),
        Mutant("never-normalised", ALONE, ("stats.normalise(o)", "o *= 2.0")),
        Mutant(
            "no-maximum",
            LARGE,
            ("stats.update(s, o)", "np.exp(s, out=s); stats.l[:] = stats.l + s.sum(axis=1)"),
        ),
        Mutant("stored-for-every-key", O_ONCE, ("add_matmul(s, v)", "add_matmul(s, v); m.store(o, O, i)")),
        Mutant("Q-for-every-key", Q_ONCE, ("stats.update", "m.load(Q, i).free(); stats.update")),
    ),
    right=(with_a_dict, in_one_circular_tile, load_first_free_later),
    cheats=(
        (loaded_for_every_query, K_ONCE),
        (loaded_for_every_query, LINEAR),
        (everything_stays, FITS),
        (values_alone, VALUES),
        (values_alone, LOADED),
        (called("library_window", lambda m, Q, K, V, *, w: schedules.window(m, Q, K, V, w=w)), OWN),
        (schedules.window, OWN),
        (taken_from_the_machine, RUNS),
    ),
)

# ---------------------------------------------------------------------- 8D
TOKENS, TOGETHER = "returns every token once", "the tokens of a bucket stand together"
BELOW = "a causal mask keeps all its pairs below the diagonal"
FEW = "no more words move than buckets in order need"


def bucket_after_bucket(pairs):
    """Walk through the tokens; each that is new brings those of its bucket along, in their order."""
    order = []
    for token in range(len(pairs)):
        if token not in order:
            friends = pairs[token] | pairs[:, token]
            order.extend(int(t) for t in np.flatnonzero(friends))
    return order


def by_last_and_position(pairs):
    """A bucket's name is the last query that sees the key; buckets from the end, tokens in their order."""
    N = len(pairs)
    last = N - 1 - pairs[::-1].argmax(axis=0)
    return np.lexsort((np.arange(N), -last))


def from_the_end(pairs):
    """Everything turned round: as many tiles, and all of them above the diagonal."""
    return np.argsort(pairs.argmax(axis=1), kind="stable")[::-1]


def by_degree(pairs):
    return np.argsort(pairs.sum(axis=1) + pairs.sum(axis=0), kind="stable")


ORDER = Suite(
    id="8D",
    mutants=(
        Mutant("tokens-as-they-came", TOGETHER, ("np.argsort(first", "np.argsort(0 * first")),
        Mutant("columns-for-rows", TOGETHER, ("argmax(axis=1)", "argmax(axis=0)[::-1]")),
        Mutant(
            "place-of-each-token",
            TOGETHER,
            ("return np.argsort(", "return np.argsort(np.argsort("),
            ('stable")', 'stable"))'),
        ),
        Mutant("sorted-names", TOKENS, ('np.argsort(first, kind="stable")', "np.sort(first)")),
        Mutant("first-tokens-only", TOKENS, ('np.argsort(first, kind="stable")', "np.unique(first)")),
        Mutant(
            "sum-of-places-as-a-name",
            TOGETHER,
            ("pairs.argmax(axis=1)", "(pairs | pairs.T) @ np.arange(len(pairs))"),
        ),
        Mutant("pairs-emptied", RUNS, ("    return", "    pairs[:] = False\n    return")),
        Mutant("by-number-of-keys", TOGETHER, ("pairs.argmax(axis=1)", "pairs.sum(axis=1)")),
        Mutant(
            "any-order-inside",
            FEW,
            ('np.argsort(first, kind="stable")', "np.lexsort((np.arange(len(first)) % 7, first))"),
        ),
    ),
    right=(bucket_after_bucket, by_last_and_position),
    cheats=(
        (called("as_they_came", lambda pairs: np.arange(len(pairs))), TOGETHER),
        (by_degree, TOGETHER),
        (from_the_end, BELOW),
        (called("the_pairs", lambda pairs: pairs), TOKENS),
    ),
)


# ---------------------------------------------------------------------- 8E
PAIRS_DECIDE = "in a small memory the seen pairs decide"
WORDS_DECIDE = "where pairs say little the compulsory words decide"
UNASKED = "who sees nothing and who is never seen costs nothing"
ANY_MASK = "the bound is right for every mask"


def least_by_places(pairs, d, M):
    """The places of the pairs, one by one."""
    places = np.argwhere(pairs)
    touched = {("query", int(i)) for i, _ in places} | {("key", int(j)) for _, j in places}
    by_pairs = 4 * len(places) * d * d / (M + d * d) - M - d * d
    return by_pairs if by_pairs > 2 * d * len(touched) else 2 * d * len(touched)


def least_by_counts(pairs, d, M):
    of_query, of_key = np.count_nonzero(pairs, axis=1), np.count_nonzero(pairs, axis=0)
    room = M + d**2
    once = 2 * d * (np.count_nonzero(of_query) + np.count_nonzero(of_key))
    return np.maximum(once, (2 * d) ** 2 * of_query.sum() / room - room)


def least_of_the_library(pairs, d, M):
    mask = masks.BlockMask(len(pairs), pairs, 1, allow_empty=True)
    return bounds.lower_bound("forward", len(pairs), d, M, mask=mask)[0]


LEAST = Suite(
    id="8E",
    mutants=(
        Mutant("pairs-alone", WORDS_DECIDE, ("max(compulsory, 4", "max(0, 4")),
        Mutant("compulsory-alone", PAIRS_DECIDE, ("return max(", "return min(compulsory, ")),
        Mutant("both-together", PAIRS_DECIDE, ("max(compulsory, 4 *", "(compulsory + 4 *")),
        Mutant("every-query-and-key", UNASKED, ("2 * d * (queries + keys)", "4 * d * len(pairs)")),
        Mutant("every-query", UNASKED, ("(queries + keys)", "(len(pairs) + keys)")),
        Mutant("keys-for-queries", UNASKED, ("(queries + keys)", "(2 * keys)")),
        Mutant("queries-for-keys", UNASKED, ("(queries + keys)", "(2 * queries)")),
        Mutant("values-forgotten", WORDS_DECIDE, ("(queries + keys)", "(queries + keys / 2)")),
        Mutant("outputs-forgotten", WORDS_DECIDE, ("(queries + keys)", "(queries / 2 + keys)")),
        Mutant("all-pairs", PAIRS_DECIDE, ("pairs.sum()", "pairs.size")),
        Mutant("hidden-for-seen", PAIRS_DECIDE, ("pairs.sum()", "(~pairs).sum()")),
        Mutant("start-forgotten", PAIRS_DECIDE, (" - (M + d**2)", "")),
        Mutant("M-alone", PAIRS_DECIDE, ("/ (M + d**2)", "/ M")),
        Mutant("d-for-its-square", PAIRS_DECIDE, ("* d**2 /", "* d /")),
    ),
    right=(least_by_places, least_by_counts),
    cheats=((least_of_the_library, OWN), (called("nothing", lambda pairs, d, M: None), ANY_MASK)),
)

SUITES = (COUNT, SPARSE, WINDOW, ORDER, LEAST)
