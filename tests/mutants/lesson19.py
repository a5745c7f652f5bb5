"""What is known about the exercises of lesson 19: mistakes, other right answers, cheats."""

import numpy as np
from harness import Mutant, Suite, called

from iocourse import distributed
from iocourse.course.checking import OWN, RUNS

# ---------------------------------------------------------------------- 19A
EACH, ROWS, WORK = (
    "each row has one of the P ranks",
    "every rank has as many rows",
    "every rank has the same work",
)
LACK = "all ranks together lack no more keys than in zigzag"


def reversed_zigzag(t, N, P):
    """As zigzag, the ranks counted from the other end."""
    block = 2 * P * t // N
    return P - 1 - block if block < P else block - P


def by_a_list(t, N, P):
    order = [*range(P), *reversed(range(P))]
    return order[t * 2 * P // N]


OWNER = Suite(
    id="19A",
    mutants=(
        Mutant("contiguous", WORK, ("return min(block, 2 * P - 1 - block)", "return block // 2")),
        Mutant("dealt-one-way", WORK, ("return min(block, 2 * P - 1 - block)", "return block % P")),
        Mutant("striped", LACK, ("return min(block, 2 * P - 1 - block)", "return t % P")),
        Mutant("there-and-back-by-rows", LACK, ("block = t // (N // (2 * P))", "block = t % (2 * P)")),
        Mutant("P-blocks", WORK, ("N // (2 * P)", "N // P")),
        Mutant("comes-back-one-late", EACH, ("2 * P - 1 - block", "2 * P - block")),
        Mutant("one-rank", ROWS, ("return min(block, 2 * P - 1 - block)", "return 0")),
        Mutant("a-float", EACH, ("t // (N // (2 * P))", "t / (N // (2 * P))")),
        Mutant(
            "by-root",
            ROWS,
            ("return min(block, 2 * P - 1 - block)", "return int(P * (t / N) ** 2)"),
        ),
    ),
    right=(reversed_zigzag, by_a_list),
    cheats=((called("nobody", lambda t, N, P: None), EACH),),
)

# ---------------------------------------------------------------------- 19B
LISTS, SHARED = "each text has a list of ranks", "a single text is shared by all"
EVEN, NEED = (
    "every rank has the same work, as far as lengths allow",
    "no text is split without need",
)


def by_a_heap(lengths, P):
    """The largest parts first, the rank with the least work from a heap."""
    import heapq

    total = sum(n * (n + 1) for n in lengths)
    parts = [min(P, (P * n * (n + 1) + total - 1) // total) for n in lengths]
    heap, placed = [(0.0, rank) for rank in range(P)], {}
    for text in sorted(range(len(lengths)), key=lambda text: -(lengths[text] ** 2) / parts[text]):
        taken = [heapq.heappop(heap) for _ in range(parts[text])]
        for load, rank in taken:
            heapq.heappush(heap, (load + lengths[text] * (lengths[text] + 1) / parts[text], rank))
        placed[text] = tuple(rank for _, rank in taken)
    return [placed[text] for text in range(len(lengths))]


def longest_first(lengths, P):
    """In the order of the texts' lengths, whatever the parts."""
    total = sum(n * (n + 1) for n in lengths)
    load, placed = [0.0] * P, [[]] * len(lengths)
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        work = lengths[text] * (lengths[text] + 1)
        parts = -(-P * work // total)
        placed[text] = sorted(range(P), key=lambda rank: load[rank])[:parts]
        for rank in placed[text]:
            load[rank] += work / parts
    return placed


def with_arrays(lengths, P):
    """Ranks as arrays, work as n²/2."""
    n = np.array(lengths, dtype=float)
    work = n * (n + 1) / 2
    parts = np.minimum(P, np.ceil(work * P / work.sum() - 1e-12)).astype(int)
    load, placed = np.zeros(P), [None] * len(n)
    for text in np.argsort(-work, kind="stable"):
        ranks_of = np.argsort(load, kind="stable")[: parts[text]]
        load[ranks_of] += work[text] / parts[text]
        placed[text] = ranks_of
    return placed


PLACEMENT = Suite(
    id="19B",
    mutants=(
        Mutant("all-on-all", NEED, ("-(-P * work // work.sum())", "np.full(len(n), P)")),
        Mutant("whole-texts", SHARED, ("-(-P * work // work.sum())", "np.ones_like(n)")),
        Mutant(
            "one-rank-more",
            NEED,
            ("-(-P * work // work.sum())", "np.minimum(P, 1 + -(-P * work // work.sum()))"),
        ),
        Mutant(
            "long-ones-on-all", NEED, ("-(-P * work // work.sum())", "np.where(P * work > work.sum(), P, 1)")
        ),
        Mutant("rounded-down", EVEN, ("-(-P * work // work.sum())", "np.maximum(1, P * work // work.sum())")),
        Mutant("shares-of-tokens", EVEN, ("work = n * (n + 1)", "work = n")),
        Mutant("shortest-first", EVEN, ("-part[text])", "part[text])")),
        Mutant(
            "as-they-come",
            EVEN,
            ("sorted(range(len(lengths)), key=lambda text: -part[text])", "range(len(lengths))"),
        ),
        Mutant("first-ranks", EVEN, ("sorted(range(P), key=lambda rank: load[rank])", "list(range(P))")),
        Mutant("busiest-ranks", EVEN, ("load[rank])[:parts", "-load[rank])[:parts")),
        Mutant("load-not-kept", EVEN, ("load[rank] += part[text]", "pass")),
        Mutant("load-of-the-whole", EVEN, ("load[rank] += part[text]", "load[rank] += work[text]")),
        Mutant(
            "in-order-of-placing",
            EVEN,
            ("load, placed = [0.0] * P, [[]] * len(lengths)", "load, placed, done = [0.0] * P, {}, []"),
            ("return placed", "return list(placed.values())"),
        ),
        Mutant(
            "a-rank-for-a-list",
            LISTS,
            ("[:parts[text]]\n", "[0]\n"),
            ("in placed[text]:", "in [placed[text]]:"),
        ),
        Mutant(
            "a-rank-too-many",
            LISTS,
            ("range(P), key", "range(1, P + 1), key"),
            ("load[rank])", "load[rank - 1])"),
            ("load[rank] +=", "load[rank - 1] +="),
        ),
    ),
    right=(by_a_heap, longest_first, with_arrays),
    cheats=(
        (called("all_on_rank_0", lambda lengths, P: [[0]] * len(lengths)), SHARED),
        (called("the_library", lambda lengths, P: distributed.load_balance.split_texts(lengths, P)), OWN),
    ),
)

# ---------------------------------------------------------------------- 19C
OVER_ALL = "values equal exact attention over all frames"
NO_FRAME, LARGE = "a rank without a frame has no weight", "scores of ±10,000 neither overflow nor vanish"
BELOW = "scores far below 0, and a rank without a frame, give no sum of 0"
WORDS = "each rank sends m(d + 1) words to each other, however many frames there are"


def by_logaddexp(me, Q, K, V):
    """Pairwise merging over what was gathered."""
    o, L = distributed.attend(Q, K, V)
    os, Ls = me.all_gather(O=o[None], L=L[None])
    total = np.logaddexp.reduce(Ls, axis=0)
    return sum(np.exp(Ls[p] - total)[:, None] * os[p] for p in range(me.size))


def round_a_ring(me, Q, K, V):
    """The (o, L) of each rank go round, by shifts."""
    o, L = distributed.attend(Q, K, V)
    parts = [(o, L)]
    for _ in range(1, me.size):
        o, L = me.shift(O=o, L=L)
        parts.append((o, L))
    top = np.max([L for _, L in parts], axis=0)
    total = sum(np.exp(L - top) for _, L in parts)
    return sum(np.exp(L - top)[:, None] * o for o, L in parts) / total[:, None]


def gathers_frames(me, Q, K, V):
    k, v = me.all_gather(K=K, V=V)
    return distributed.attend(Q, k, v)[0]


def merges(me, Q, K, V):
    o, L = distributed.attend(Q, K, V)
    return distributed.merge(o, L, o, L)[0]


POOLING = Suite(
    id="19C",
    mutants=(
        Mutant("plain-mean", OVER_ALL, ("np.exp(all_L - all_L.max(axis=0))", "np.ones_like(all_L)")),
        Mutant("no-maximum", OVER_ALL, ("all_L - all_L.max(axis=0)", "all_L")),
        Mutant("own-frames", RUNS, ("    return (weights", "    return o + 0 * (weights")),
        Mutant("not-normalised", OVER_ALL, (" / weights.sum(axis=0)[:, None]", "")),
        Mutant(
            "own-maximum",
            RUNS,
            ("all_L.max(axis=0)", "L.max(axis=0)"),
        ),
        Mutant(
            "weights-by-L",
            OVER_ALL,
            ("np.exp(all_L - all_L.max(axis=0))", "np.exp(all_L.max(axis=0) - all_L)"),
        ),
        Mutant("over-queries", OVER_ALL, ("all_L.max(axis=0)", "all_L.max(axis=1, keepdims=True)")),
        Mutant(
            "queries-too",
            WORDS,
            ("me.all_gather(O=o[None], L=L[None])", "me.all_gather(O=o[None], L=L[None], Q=Q[None])[:2]"),
        ),
        Mutant("one-maximum-for-all", LARGE, ("all_L.max(axis=0)", "all_L.max()")),
        Mutant("maximum-from-0", BELOW, ("all_L.max(axis=0)", "np.maximum(all_L.max(axis=0), 0)")),
        Mutant("twice", WORDS, ("all_o, all_L = me", "me.all_gather(L=L[None])\n    all_o, all_L = me")),
        Mutant(
            "empty-ranks-weigh",
            NO_FRAME,
            ("weights = np.exp(", "all_L = np.where(np.isneginf(all_L), 0.0, all_L)\n    weights = np.exp("),
        ),
    ),
    right=(by_logaddexp, round_a_ring),
    cheats=((gathers_frames, WORDS), (merges, OWN)),
)

# ---------------------------------------------------------------------- 19D
UNDER, FIRST = "values equal exact attention under the mask", "first rows travel and no others"
HELD = "no more is held than the first rows of the others"


def clip_by_position(me, Q, K, V, c):
    """The mask of its own rows against own keys and the others' first rows, in one product."""
    k, v = me.all_gather(K=K[::c], V=V[::c])
    mine = len(K) // c
    outside = np.ones(len(k), dtype=bool)
    outside[me.rank * mine : (me.rank + 1) * mine] = False
    keys, values = np.concatenate([K, k[outside]]), np.concatenate([V, v[outside]])
    clip = np.arange(len(K)) // c
    inside = (clip[:, None] == clip) | (np.arange(len(K)) % c == 0)
    sees = np.concatenate([inside, np.ones((len(K), outside.sum()), dtype=bool)], axis=1)
    s = np.where(sees, Q @ keys.T / np.sqrt(Q.shape[1]), -np.inf)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ values / p.sum(axis=1, keepdims=True)


def first_rows_joined(me, Q, K, V, c):
    """Keys and values of a first row side by side, under a name of their own."""
    first = me.all_gather(first=np.concatenate([K[::c], V[::c]], axis=1))
    k, v = first[:, : K.shape[1]], first[:, K.shape[1] :]
    out = []
    for n in range(0, len(K), c):
        at = (me.rank * len(K) + n) // c
        keys = np.concatenate([K[n : n + c], k[:at], k[at + 1 :]])
        values = np.concatenate([V[n : n + c], v[:at], v[at + 1 :]])
        out.append(distributed.attend(Q[n : n + c], keys, values)[0])
    return np.concatenate(out)


def first_rows_as_pairs(me, Q, K, V, c):
    """Own clip and the others' first rows each attended to alone, then put together."""
    k, v = me.all_gather(K=K[::c].copy(), V=V[::c].copy())
    out = []
    for n in range(0, len(K), c):
        at = (me.rank * len(K) + n) // c
        far_k, far_v = np.delete(k, at, axis=0), np.delete(v, at, axis=0)
        o, L = distributed.attend(Q[n : n + c], K[n : n + c], V[n : n + c])
        o2, L2 = distributed.attend(Q[n : n + c], far_k, far_v)
        w = 1 / (1 + np.exp(L2 - L))[:, None]
        out.append(w * o + (1 - w) * o2)
    return np.concatenate(out)


def gathers_everything(me, Q, K, V, c):
    k, v = me.all_gather(K=K, V=V)
    rows, cols = np.arange(len(K)) + me.rank * len(K), np.arange(len(k))
    sees = (rows[:, None] // c == cols // c) | (cols % c == 0)
    s = np.where(sees, Q @ k.T / np.sqrt(Q.shape[1]), -np.inf)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)


CLIPS = Suite(
    id="19D",
    mutants=(
        Mutant(
            "own-first-row-twice",
            UNDER,
            ("np.arange(len(first_k)) != me.rank * mine + n", "np.arange(len(first_k)) >= 0"),
        ),
        Mutant("every-rank-is-the-first", UNDER, ("me.rank * mine + n", "n")),
        Mutant(
            "own-clips-left-out",
            UNDER,
            ("np.arange(len(first_k)) != me.rank * mine + n", "np.arange(len(first_k)) // mine != me.rank"),
        ),
        Mutant(
            "local-only",
            UNDER,
            ("np.concatenate([K[rows], first_k[others]])", "K[rows]"),
            ("np.concatenate([V[rows], first_v[others]])", "V[rows]"),
        ),
        Mutant(
            "global-only",
            UNDER,
            ("[K[rows], first_k[others]]", "[K[rows][:1], first_k[others]]"),
            ("[V[rows], first_v[others]]", "[V[rows][:1], first_v[others]]"),
        ),
        Mutant("last-rows", UNDER, ("K=K[::c], V=V[::c]", "K=K[c - 1 :: c], V=V[c - 1 :: c]")),
        Mutant(
            "all-rows-travel",
            FIRST,
            ("me.all_gather(K=K[::c], V=V[::c])", "(x[::c] for x in me.all_gather(K=K, V=V))"),
        ),
        Mutant(
            "queries-travel",
            FIRST,
            ("first_k, first_v = me", "me.all_gather(Q=Q[::c])\n    first_k, first_v = me"),
        ),
        Mutant("K-for-V", UNDER, ("V=V[::c]", "V=K[::c]")),
        Mutant("every-clip-as-the-first", UNDER, ("slice(n * c, n * c + c)", "slice(0, c)")),
    ),
    right=(clip_by_position, first_rows_joined, first_rows_as_pairs),
    cheats=((gathers_everything, FIRST),),
)

# ---------------------------------------------------------------------- 19E
PLACES, SHARE = "each position has one of the P ranks", "every rank has as many positions"
WHOLE, BOUND = "groups that see whole groups are found", "no rank lacks more than the bound says"


def by_pairs(mask, P):
    """Those that share most keys with the first that is left."""
    shared = mask.astype(int) @ mask.T.astype(int)
    owner = np.full(len(mask), -1)
    for rank in range(P):
        first = np.flatnonzero(owner < 0)[0]
        shared[:, owner >= 0] = -1
        owner[np.argsort(-shared[first], kind="stable")[: len(mask) // P]] = rank
    return owner


def by_common_keys(mask, P):
    """The h/P positions that have most keys in common with one, the keys that all see left out."""
    left, owner = set(range(len(mask))), [0] * len(mask)
    keys = mask & ~mask.all(axis=0)
    for rank in range(P):
        union, group = np.zeros(len(mask), dtype=bool), []
        while len(group) < len(mask) // P:
            best = max(left, key=lambda a: (keys[a] & union).sum() if group else keys[a].sum())
            left.remove(best)
            group.append(best)
            union |= keys[best]
            owner[best] = rank
    return owner


def by_who_sees_them(mask, P):
    """Wrong: columns in place of rows, where those that all see have most in common with any group."""
    return by_pairs(mask.T, P)


def by_members(mask, P):
    """Wrong: the position that sees most members of the group, in place of keys that these see."""
    h, owner = len(mask), np.full(len(mask), -1)
    for rank in range(P):
        owner[np.flatnonzero(owner < 0)[0]] = rank
        while (owner == rank).sum() < h // P:
            seen = np.where(owner < 0, mask[:, owner == rank].sum(axis=1), -1)
            owner[np.argmax(seen)] = rank
    return owner


def by_components(mask, P):
    """Positions that share a key which not all see, and whoever shares one with them."""
    keys, owner, rank = mask & ~mask.all(axis=0), [-1] * len(mask), 0
    for start in range(len(mask)):
        if owner[start] < 0:
            found = [start]
            for a in found:
                owner[a] = rank
                found += [b for b in np.flatnonzero((keys & keys[a]).any(axis=1)) if b not in found]
            rank += 1
    return owner


def with_their_whole_seer(mask, P):
    """Wrong: the keys of those that see most, and who is in no such group gets the place that is left."""
    share, owner = len(mask) // P, np.full(len(mask), -1)
    own = mask & ~mask.all(axis=0)
    for rank in range(P):
        seer = max(np.flatnonzero(owner < 0), key=lambda a: own[a].sum())
        owner[own[seer] & (owner < 0)] = rank
    for a in np.flatnonzero(owner < 0):
        owner[a] = next(rank for rank in range(P) if (owner == rank).sum() < share)
    return owner


def side_by_side(mask, P):
    return np.arange(len(mask)) * P // len(mask)


GROUPS = Suite(
    id="19E",
    mutants=(
        Mutant(
            "as-they-come",
            WHOLE,
            ("group.append(np.argmax(common))", "group.append(np.flatnonzero(common >= 0)[0])"),
        ),
        Mutant(
            "least-in-common", WHOLE, ("np.argmax(common)", "np.argmin(np.where(common < 0, h + 1, common))")
        ),
        Mutant("most-keys", WHOLE, ("mask & mask[group].any(axis=0)", "mask")),
        Mutant("all-keys-of-the-group", BOUND, ("mask[group].any(axis=0)", "mask[group].all(axis=0)")),
        Mutant("one-too-few", SHARE, ("while len(group) < h // P:", "while len(group) < h // P - 1:")),
        Mutant("the-first-again", SHARE, ("common[group] = -1", "pass")),
        Mutant("rank-for-all", SHARE, ("owner[group] = rank", "owner[:] = rank")),
        Mutant("from-one", PLACES, ("owner[group] = rank", "owner[group] = rank + 1")),
    ),
    right=(by_pairs, by_common_keys, by_components),
    cheats=(
        (side_by_side, WHOLE),
        (by_who_sees_them, WHOLE),
        (by_members, BOUND),
        (with_their_whole_seer, BOUND),
    ),
)

SUITES = (OWNER, PLACEMENT, POOLING, CLIPS, GROUPS)
