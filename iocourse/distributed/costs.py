"""What a schedule between ranks must receive, send and hold: closed forms, for every rank and any N.

Each takes (rank, P, N, d), and what its schedule is told beside. With H heads a row has H·d words, and a row
statistic is H words. `peak` is the most words of others that the rank holds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import add

from .layouts import Layout, blocks_of, row_count
from .ledger import RankLedger

Form = Callable[..., RankLedger]
FORMS: dict[str, Form] = {}


def form(function: Form) -> Form:
    """Make the function the closed form of the schedule of its name."""
    FORMS[function.__name__] = function
    return function


def form_of(name: str) -> Form:
    """The closed form of the schedule of that name. Raises LookupError where there is none."""
    if name not in FORMS:
        raise LookupError(
            f"there is no closed form for {name}: iocourse/distributed/costs.py has {', '.join(FORMS)}"
        )
    return FORMS[name]


def _each(names: str, words: int) -> dict[str, int]:
    """As many words for each of the arrays."""
    return dict.fromkeys(names.split(), words)


@lru_cache(maxsize=64)
def _sizes(P: int, N: int) -> tuple[int, ...]:
    """Rows of each rank."""
    return tuple(row_count("contiguous", N, P, rank) for rank in range(P))


def _in_turn(blocks: Sequence[int]) -> int:
    """The most rows held where each block is given up once the next has come; the first follows one's own."""
    return max(map(add, [0, *blocks], blocks), default=0)


def _before(sizes: Sequence[int], rank: int) -> Sequence[int]:
    """Rows of the ranks in the order in which a ring brings them to `rank`."""
    return [*sizes[:rank][::-1], *sizes[:rank:-1]]


@form
def ring(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """K and V of all others come, of all but the next go: 2d(N - n) words. Two blocks are held."""
    n = _sizes(P, N)
    come, go = H * d * (N - n[rank]), H * d * (N - n[(rank + 1) % P])
    return RankLedger(_each("K V", come), _each("K V", go), 2 * H * d * _in_turn(_before(n, rank)))


@form
def ring_backward_columns(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """K and V as in the ring forward, dK and dV as often: 4Nd(P - 1)/P words, and 6dN/P held."""
    n = _sizes(P, N)
    w, come, back, after = H * d, N - n[rank], N - n[rank - 1], N - n[(rank + 1) % P]
    received = _each("K V", w * come) | _each("dK dV", w * back)
    sent = _each("K V", w * after) | _each("dK dV", w * come)
    return RankLedger(received, sent, _with_sums(n, rank, 2 * w, 2 * w))


@form
def ring_backward_rows(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Q, dO, LSE and D go round and dQ behind them: (3Nd + 2N)(P - 1)/P words."""
    n = _sizes(P, N)
    w, come, back, after = H * d, N - n[rank], N - n[rank - 1], N - n[(rank + 1) % P]
    received = _each("Q dO", w * come) | _each("LSE D", H * come) | {"dQ": w * back}
    sent = _each("Q dO", w * after) | _each("LSE D", H * after) | {"dQ": w * come}
    return RankLedger(received, sent, _with_sums(n, rank, 2 * w + 2 * H, w))


def _with_sums(sizes: Sequence[int], rank: int, inputs: int, sums: int) -> int:
    """Words held where blocks come round, and behind them the sums over them: `inputs` and `sums` a row.

    The first sum is made by the rank itself; the last that comes is its own.
    """
    blocks = _before(sizes, rank)
    if not blocks:
        return 0
    came = [0, *blocks[1:]]  # of each step the sums that had come from others
    held = [inputs * blocks[0], inputs * blocks[-1] + sums * (came[-1] + sizes[rank])]
    for step in range(1, len(blocks)):
        held.append(inputs * (blocks[step - 1] + blocks[step]) + sums * came[step - 1])
        held.append(inputs * blocks[step] + sums * (came[step - 1] + blocks[step]))
    return max(held)


def _grid(rank: int, P: int, N: int, a: int) -> tuple[int, int, int]:
    """Rows of the rank, and of all others in its row and in its column."""
    n, b = _sizes(P, N), P // a
    i, j = divmod(rank, b)
    return n[rank], sum(n[i * b : i * b + b]) - n[rank], sum(n[j::b]) - n[rank]


@form
def grid(rank: int, P: int, N: int, d: int, *, a: int, H: int = 1) -> RankLedger:
    """In a row of b = P/a ranks (2d + 1)(N/a - N/P), of Q, O and L; in a column 2d(N/b - N/P)."""
    n, row, col = _grid(rank, P, N, a)
    w, b = H * d, P // a
    received = {"Q": w * row, **_each("K V", w * col), "O": w * n * (b - 1), "L": H * n * (b - 1)}
    sent = {"Q": w * n * (b - 1), **_each("K V", w * n * (a - 1)), "O": w * row, "L": H * row}
    return RankLedger(received, sent, sum(received.values()))


@form
def grid_backward(rank: int, P: int, N: int, d: int, *, a: int, H: int = 1) -> RankLedger:
    """(3d + 2)(N/a - N/P) in the row and 4d(N/b - N/P) in the column. Sums that came are added up at once."""
    n, row, col = _grid(rank, P, N, a)
    w, b = H * d, P // a
    inputs = _each("Q dO", w * row) | _each("LSE D", H * row) | _each("K V", w * col)
    sums = {"dQ": w * n * (b - 1), **_each("dK dV", w * n * (a - 1))}
    given = _each("Q dO", w * n * (b - 1)) | _each("LSE D", H * n * (b - 1)) | _each("K V", w * n * (a - 1))
    sent = given | {"dQ": w * row, **_each("dK dV", w * col)}
    return RankLedger(inputs | sums, sent, sum(inputs.values()) + max(sums["dQ"], 2 * sums["dK"]))


@form
def ulysses(rank: int, P: int, N: int, d: int, *, H: int) -> RankLedger:
    """Of Q, K, V and O all but a P-th of a P-th moves: 4NHd(P - 1)/P²."""
    return ulysses_ring(rank, P, N, d, H=H, a=1)


@form
def ulysses_ring(rank: int, P: int, N: int, d: int, *, H: int, a: int) -> RankLedger:
    """In a row of b = P/a ranks heads are dealt out; in a column K and V of H/b heads go round."""
    n, row, _ = _grid(rank, P, N, a)
    b, i = P // a, rank // (P // a)
    few, rest = d * H // b, d * (H - H // b)  # words of a row: of this rank's heads, of the others
    sizes = [sum(_sizes(P, N)[at * b : at * b + b]) for at in range(a)]
    come, go = few * (N - sizes[i]), few * (N - sizes[(i + 1) % a])
    received = {"Q": few * row, **_each("K V", few * row + come), "O": rest * n}
    sent = {"Q": rest * n, **_each("K V", rest * n + go), "O": few * row}
    held = [2 * few * row, *(2 * few * size for size in _before(sizes, i))]  # K and V, one after the other
    peak = max(few * row + max(map(sum, pairwise([0, *held]))), few * row + held[-1] + rest * n)
    return RankLedger(received, sent, peak)


@form
def decode(rank: int, P: int, N: int, d: int, *, m: int = 1, H: int = 1) -> RankLedger:
    """(d + 1)(P - 1) words a query, whatever N."""
    words = {"O": (P - 1) * m * H * d, "L": (P - 1) * m * H}
    return RankLedger(words, dict(words), sum(words.values()))


@form
def causal_contiguous(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Rank p receives the rows below its own: 2d of each."""
    n = _sizes(P, N)
    sent = 0 if rank == P - 1 else sum(n[: rank + 1])
    peak = _in_turn(n[:rank][::-1])
    return RankLedger(_each("K V", H * d * sum(n[:rank])), _each("K V", H * d * sent), 2 * H * d * peak)


@form
def causal_zigzag(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Early blocks of all others and late blocks of the ranks above: (2P - 2 - p)Nd/P words for rank p."""
    come, go, held = _zigzag_rows(rank, P, N)
    return RankLedger(_each("K V", H * d * come), _each("K V", H * d * go), 2 * H * d * held)


@lru_cache(maxsize=2048)
def _zigzag_rows(rank: int, P: int, N: int) -> tuple[int, int, int]:
    """Rows that come to a rank, that it sends on, and the most it holds of others."""
    blocks = _sizes(2 * P, N)
    early, late = blocks[:P], blocks[: P - 1 : -1]
    come = sum(early) - early[rank] + sum(late[rank + 1 :])
    go = sum(early) - early[(rank + 1) % P] + (sum(late[rank:]) if rank else 0)
    up, down = [0, *_before(early, rank)], [0, *late[rank + 1 :], *[0] * rank]
    held = (max(a + b + c, b + c + e) for (a, b), (c, e) in zip(pairwise(up), pairwise(down), strict=True))
    return come, go, max(held, default=0)


@form
def causal_striped(rank: int, P: int, N: int, d: int, *, H: int = 1) -> RankLedger:
    """Nearly all rows of all others; a row that no rank sees before its home is left out."""
    come, go = (_stripes_seen(at, P, N) for at in (rank, (rank + 1) % P))  # what goes comes to the next
    words = 2 * H * d * _in_turn(come)
    return RankLedger(_each("K V", H * d * sum(come)), _each("K V", H * d * sum(go)), words)


@lru_cache(maxsize=2048)
def _stripes_seen(rank: int, P: int, N: int) -> tuple[int, ...]:
    """Rows of each stripe that comes to a rank, in turn: those before the last row of a rank yet to visit."""
    seen = []
    for step in range(1, P):
        home = (rank - step) % P
        last = (N - 1 - home) % P  # shifts from its home to the rank with the last row
        latest = N - 1 if step <= last else N - 2 - last
        seen.append(max(0, (latest - home) // P + 1))
    return tuple(seen)


@form
def states(rank: int, P: int, N: int, d: int, *, r: int | None = None, H: int = 1) -> RankLedger:
    """The state of every other rank: r(d + 1)(P - 1) words, whatever N."""
    words = {"KV": (P - 1) * H * (d if r is None else r) * (d + 1)}
    return RankLedger(words, dict(words), words["KV"])


FORMS["states_causal"] = states


@form
def packed(
    rank: int, P: int, N: int, d: int, *, texts: Sequence[int], layout: Layout = "contiguous", H: int = 1
) -> RankLedger:
    """2d words for each row of another rank that a row of one's own sees: of its text, and not after it."""
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
    """What of the blocks lies from start to stop."""
    cut = [range(max(start, b.start), min(stop, b.stop)) for b in blocks]
    return [b for b in cut if b]


def _up_to(blocks: Sequence[range], last: int) -> int:
    """How many rows of the blocks come no later than row `last`."""
    return sum(len(range(b.start, min(b.stop, last + 1))) for b in blocks)
