"""Closed forms of the distributed schedules: the ledger (received, sent, peak) of every rank, for any N.

Each takes (rank, P, N, d) and the options of its schedule. A row of H heads has H·d words, and a row
statistic H words. `peak` is the maximum of the words of other ranks that the rank holds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import add

from .layouts import Layout, blocks_of, check_lengths, row_count
from .ledger import RankLedger

Form = Callable[..., RankLedger]
FORMS: dict[str, Form] = {}


def form(function: Form) -> Form:
    """Register the function as the closed form of the schedule with the same name."""
    FORMS[function.__name__] = function
    return function


def form_of(name: str) -> Form:
    """Return the closed form of the schedule `name`. Raises LookupError if it does not exist."""
    if name not in FORMS:
        raise LookupError(
            f"No closed form for {name}. iocourse/distributed/costs.py defines {', '.join(FORMS)}."
        )
    return FORMS[name]


def _each(names: str, words: int) -> dict[str, int]:
    """Return a dict with the same number of words for each array in `names`."""
    return dict.fromkeys(names.split(), words)


@lru_cache(maxsize=64)
def _sizes(P: int, N: int) -> tuple[int, ...]:
    """Return the number of rows of each rank in the contiguous layout."""
    return tuple(row_count("contiguous", N, P, rank) for rank in range(P))


def _in_turn(blocks: Sequence[int]) -> int:
    """Return the peak of rows held if each block is freed as soon as the next one has arrived."""
    return max(map(add, [0, *blocks], blocks), default=0)


def _before(sizes: Sequence[int], rank: int) -> Sequence[int]:
    """Return the block sizes of the other ranks, in the order in which a ring delivers them to `rank`."""
    return [*sizes[:rank][::-1], *sizes[:rank:-1]]


@form
def ring(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger of the ring: receive K and V of all other ranks, 2d(N - n) words; hold two blocks."""
    n = _sizes(P, N)
    come, go = H * d * (N - n[rank]), H * d * (N - n[(rank + 1) % P])
    return RankLedger(_each("K V", come), _each("K V", go), 2 * H * d * _in_turn(_before(n, rank)))


@form
def ring_backward_columns(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger: K and V as in `ring`, dK and dV as often. 4Nd(P - 1)/P words, 6dN/P held."""
    n = _sizes(P, N)
    w, come, back, after = H * d, N - n[rank], N - n[rank - 1], N - n[(rank + 1) % P]
    received = _each("K V", w * come) | _each("dK dV", w * back)
    sent = _each("K V", w * after) | _each("dK dV", w * come)
    return RankLedger(received, sent, _with_sums(n, rank, 2 * w, 2 * w))


@form
def ring_backward_rows(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger: Q, dO, LSE and D circulate, followed by dQ. (3Nd + 2N)(P - 1)/P words."""
    n = _sizes(P, N)
    w, come, back, after = H * d, N - n[rank], N - n[rank - 1], N - n[(rank + 1) % P]
    received = _each("Q dO", w * come) | _each("LSE D", H * come) | {"dQ": w * back}
    sent = _each("Q dO", w * after) | _each("LSE D", H * after) | {"dQ": w * come}
    return RankLedger(received, sent, _with_sums(n, rank, 2 * w + 2 * H, w))


def _with_sums(sizes: Sequence[int], rank: int, inputs: int, sums: int) -> int:
    """Return the peak of words held if blocks of inputs circulate, followed by the sums over them.

    `inputs` and `sums` are words per row. The rank computes the first sum itself; the last sum that it
    receives belongs to its own rows.
    """
    blocks = _before(sizes, rank)
    if not blocks:
        return 0
    came = [0, *blocks[1:]]  # per step: rows of the sums received from other ranks
    held = [inputs * blocks[0], inputs * blocks[-1] + sums * (came[-1] + sizes[rank])]
    for step in range(1, len(blocks)):
        held.append(inputs * (blocks[step - 1] + blocks[step]) + sums * came[step - 1])
        held.append(inputs * blocks[step] + sums * (came[step - 1] + blocks[step]))
    return max(held)


def _grid(rank: int, P: int, N: int, a: int) -> tuple[int, int, int]:
    """Return the rows of the rank, of the other ranks in its grid row, and of those in its grid column."""
    n, b = _sizes(P, N), P // a
    i, j = divmod(rank, b)
    return n[rank], sum(n[i * b : i * b + b]) - n[rank], sum(n[j::b]) - n[rank]


@form
def grid(rank: int, P: int, N: int, d: int, *, a: int, H: int = 1) -> RankLedger:
    """Return the ledger of the grid: (2d + 1)(N/a - N/P) words in a row (Q, O, L), 2d(N/b - N/P) in a column.

    A row has b = P/a ranks.
    """
    n, row, col = _grid(rank, P, N, a)
    w, b = H * d, P // a
    received = {"Q": w * row, **_each("K V", w * col), "O": w * n * (b - 1), "L": H * n * (b - 1)}
    sent = {"Q": w * n * (b - 1), **_each("K V", w * n * (a - 1)), "O": w * row, "L": H * row}
    return RankLedger(received, sent, sum(received.values()))


@form
def grid_backward(rank: int, P: int, N: int, d: int, *, a: int, H: int = 1) -> RankLedger:
    """Return the ledger: (3d + 2)(N/a - N/P) words in the row, 4d(N/b - N/P) in the column, b = P/a.

    Received partial sums are added up at once.
    """
    n, row, col = _grid(rank, P, N, a)
    w, b = H * d, P // a
    inputs = _each("Q dO", w * row) | _each("LSE D", H * row) | _each("K V", w * col)
    sums = {"dQ": w * n * (b - 1), **_each("dK dV", w * n * (a - 1))}
    given = _each("Q dO", w * n * (b - 1)) | _each("LSE D", H * n * (b - 1)) | _each("K V", w * n * (a - 1))
    sent = given | {"dQ": w * row, **_each("dK dV", w * col)}
    return RankLedger(inputs | sums, sent, sum(inputs.values()) + max(sums["dQ"], 2 * sums["dK"]))


@form
def ulysses(rank: int, P: int, N: int, d: int, *, H: int) -> RankLedger:
    """Return the ledger of Ulysses: each rank moves 4NHd(P - 1)/P² words of Q, K, V and O."""
    return ulysses_ring(rank, P, N, d, H=H, a=1)


@form
def ulysses_ring(rank: int, P: int, N: int, d: int, *, H: int, a: int) -> RankLedger:
    """Return the ledger: all-to-all of heads in a row of b = P/a ranks, a ring of H/b heads in a column."""
    n, row, _ = _grid(rank, P, N, a)
    b, i = P // a, rank // (P // a)
    few, rest = d * H // b, d * (H - H // b)  # words per row: this rank's heads, all other heads
    sizes = [sum(_sizes(P, N)[at * b : at * b + b]) for at in range(a)]
    come, go = few * (N - sizes[i]), few * (N - sizes[(i + 1) % a])
    received = {"Q": few * row, **_each("K V", few * row + come), "O": rest * n}
    sent = {"Q": rest * n, **_each("K V", rest * n + go), "O": few * row}
    held = [2 * few * row, *(2 * few * size for size in _before(sizes, i))]  # K and V, one after the other
    peak = max(few * row + max(map(sum, pairwise([0, *held]))), few * row + held[-1] + rest * n)
    return RankLedger(received, sent, peak)


@form
def decode(rank: int, P: int, N: int, d: int, *, m: int = 1, H: int = 1) -> RankLedger:
    """Return the ledger of decoding: (d + 1)(P - 1) words per query, independent of N."""
    words = {"O": (P - 1) * m * H * d, "L": (P - 1) * m * H}
    return RankLedger(words, dict(words), sum(words.values()))


@form
def causal_contiguous(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger: rank p receives 2d words for each row of the lower ranks."""
    n = _sizes(P, N)
    sent = 0 if rank == P - 1 else sum(n[: rank + 1])
    peak = _in_turn(n[:rank][::-1])
    return RankLedger(_each("K V", H * d * sum(n[:rank])), _each("K V", H * d * sent), 2 * H * d * peak)


@form
def causal_zigzag(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger: early blocks of all others, late blocks of higher ranks; (2P - 2 - p)Nd/P words."""
    come, go, held = _zigzag_rows(rank, P, N)
    return RankLedger(_each("K V", H * d * come), _each("K V", H * d * go), 2 * H * d * held)


@lru_cache(maxsize=2048)
def _zigzag_rows(rank: int, P: int, N: int) -> tuple[int, int, int]:
    """Return the rows that a rank receives, the rows that it sends, and the peak of rows of others held."""
    blocks = _sizes(2 * P, N)
    early, late = blocks[:P], blocks[: P - 1 : -1]
    come = sum(early) - early[rank] + sum(late[rank + 1 :])
    go = sum(early) - early[(rank + 1) % P] + (sum(late[rank:]) if rank else 0)
    up, down = [0, *_before(early, rank)], [0, *late[rank + 1 :], *[0] * rank]
    held = (max(a + b + c, b + c + e) for (a, b), (c, e) in zip(pairwise(up), pairwise(down), strict=True))
    return come, go, max(held, default=0)


@form
def causal_striped(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Return the ledger: nearly all rows of all others, without rows that no remaining rank attends to."""
    come, go = (_stripes_seen(at, P, N) for at in (rank, (rank + 1) % P))  # sent = received by the next rank
    words = 2 * H * d * _in_turn(come)
    return RankLedger(_each("K V", H * d * sum(come)), _each("K V", H * d * sum(go)), words)


@lru_cache(maxsize=2048)
def _stripes_seen(rank: int, P: int, N: int) -> tuple[int, ...]:
    """Return the number of rows of each stripe when it arrives at `rank`, in order of arrival.

    A stripe keeps the rows up to the last row of any rank that it has not visited yet.
    """
    seen = []
    for step in range(1, P):
        home = (rank - step) % P
        last = (N - 1 - home) % P  # shifts from its owner to the rank with the last row
        latest = N - 1 if step <= last else N - 2 - last
        seen.append(max(0, (latest - home) // P + 1))
    return tuple(seen)


@form
def states(rank: int, P: int, N: int, d: int, *, r: int | None = None, H: int = 1) -> RankLedger:
    """Return the ledger: the states of all other ranks, r(d + 1)(P - 1) words, independent of N."""
    words = {"KV": (P - 1) * H * (d if r is None else r) * (d + 1)}
    return RankLedger(words, dict(words), words["KV"])


FORMS["states_causal"] = states


@form
def packed(
    rank: int, P: int, N: int, d: int, *, texts: Sequence[int], layout: Layout = "contiguous", H: int = 1
) -> RankLedger:
    """Return the ledger: 2d words per row of another rank that an own query attends to.

    These rows are in the same sequence and not after the query. `texts` are the lengths of the sequences.
    Raises ValueError if they do not sum to N.
    """
    texts = check_lengths(texts, N)
    owned = [blocks_of(layout, N, P, at) for at in range(P)]
    come, go = list[int](), 0
    for start, stop in pairwise(accumulate(texts, initial=0)):
        rows = {at: _inside(blocks, start, stop) for at, blocks in enumerate(owned)}
        of = {at: blocks for at, blocks in rows.items() if blocks}
        if rank in of:
            others = [at for at in of if at != rank]
            come += [seen for at in others if (seen := _up_to(of[at], of[rank][-1][-1]))]
            go += sum(_up_to(of[rank], of[at][-1][-1]) for at in others)
    return RankLedger(_each("K V", H * d * sum(come)), _each("K V", H * d * go), 2 * H * d * _in_turn(come))


def _inside(blocks: Sequence[range], start: int, stop: int) -> list[range]:
    """Return the parts of the blocks between start and stop, without empty ones."""
    cut = [range(max(start, b.start), min(stop, b.stop)) for b in blocks]
    return [b for b in cut if b]


def _up_to(blocks: Sequence[range], last: int) -> int:
    """Count the rows of the blocks that are at most `last`."""
    return sum(len(range(b.start, min(b.stop, last + 1))) for b in blocks)
