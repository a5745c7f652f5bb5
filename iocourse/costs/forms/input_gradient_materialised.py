"""Closed forms of dL/dX with N x N matrices stored: A1, A2, A3, E (N, d), X, Y (d, d) in, dX out."""

from __future__ import annotations

from ...ledger import Ledger
from ...sizes import Shape, check_sizes
from ..closed_form import ceil_div, closed_form, form


def _shapes(N: int, d: int) -> dict[str, Shape]:
    return {
        **dict.fromkeys(("A1", "A2", "A3", "E", "Q", "H", "dO", "dQ"), (N, d)),
        **dict.fromkeys(("LSE", "D"), (N,)),
        **dict.fromkeys(("X", "Y", "dX"), (d, d)),
        **dict.fromkeys(("S", "dP"), (N, N)),
    }


@form
def gradient_dp_materialised(
    N: int, d: int, *, Bm: int, Bn: int, Bf: int, Bs: int, Bq: int, Bg: int
) -> Ledger:
    """Q and H; a forward sweep; dP - D stored while dO_i stays; Q_i and dQ_i stay; then dX = A1ᵀdQ.

    2(Nd⌈d/Bn⌉ + d²⌈N/Bm⌉ + Nd) + (3Nd + 2N + 2Nd⌈N/Bf⌉) + (Nd + N + Nd⌈N/Bs⌉ + N²)
    + (2Nd + N + Nd⌈N/Bq⌉ + N²) + (2Nd⌈d/Bg⌉ + d²) words.
    Footprint max(Bm·Bn + Bm + Bn, Bf(2d + 3) + d, Bs(d + 2) + d, Bq(2d + 3) + d, Bg² + 2Bg).
    """
    N, d, Bm, Bn, Bf, Bs, Bq, Bg = check_sizes(N=N, d=d, Bm=Bm, Bn=Bn, Bf=Bf, Bs=Bs, Bq=Bq, Bg=Bg)
    forward = ceil_div(N, Bf)
    two_stay, one_stays = max(min(Bf, N), min(Bq, N)), min(Bs, N)
    return closed_form(
        reads={
            **_sides_read(N, d, Bm, Bn, Bg),
            "Q": 2 * N * d,
            "A2": N * d * (forward + ceil_div(N, Bq)),
            "H": N * d * (forward + ceil_div(N, Bs)),
            "E": N * d,
            "dO": N * d,
            "dP": N * N,
            "LSE": N,
            "D": N,
        },
        writes={**_written(N, d), "dP": N * N, "D": N},
        peak=max(_sides_room(N, d, Bm, Bn, Bg), two_stay * (2 * d + 3) + d, one_stays * (d + 2) + d),
        shapes=_shapes(N, d),
    )


@form
def gradient_scores_materialised(
    N: int, d: int, *, Bm: int, Bn: int, Bs: int, Bo: int, Bd: int, Bq: int, Be: int, Bg: int
) -> Ledger:
    """Only one array stays at a time: the scores are stored, and dS over them before dQ is made.

    2(Nd⌈d/Bn⌉ + d²⌈N/Bm⌉ + Nd) + (Nd + N + Nd⌈N/Bs⌉ + N²) + (2Nd + Nd⌈N/Bo⌉ + (N² + 3N)⌈d/Bd⌉ - N)
    + (Nd + 2N + Nd⌈N/Bs⌉ + 2N²) + (Nd + Nd⌈N/Bq⌉ + N²⌈d/Be⌉) + (2Nd⌈d/Bg⌉ + d²) words.
    Footprint max(Bm·Bn + Bm + Bn, Bs(d + 3) + d, Bo·Bd + 2Bo + Bd, Bq·Be + Bq + Be, Bg² + 2Bg).
    """
    N, d, Bm, Bn, Bs, Bo, Bd, Bq, Be, Bg = check_sizes(
        N=N, d=d, Bm=Bm, Bn=Bn, Bs=Bs, Bo=Bo, Bd=Bd, Bq=Bq, Be=Be, Bg=Bg
    )
    s, o, q, wide, narrow = min(Bs, N), min(Bo, N), min(Bq, N), min(Bd, d), min(Be, d)
    strips, rows = ceil_div(d, Bd), ceil_div(N, Bs)
    sides = max(_sides_room(N, d, Bm, Bn, Bg), s * (d + 3) + d)
    return closed_form(
        reads={
            **_sides_read(N, d, Bm, Bn, Bg),
            "Q": N * d,
            "A2": N * d * (rows + ceil_div(N, Bq)),
            "H": N * d * (ceil_div(N, Bo) + rows),
            "S": N * N * (strips + 1 + ceil_div(d, Be)),
            "E": N * d,
            "dO": N * d,
            "LSE": N * (strips + 1),
            "D": N * strips,
        },
        writes={**_written(N, d), "S": 2 * N * N, "D": N * strips},
        peak=max(sides, o * wide + 2 * o + wide, q * narrow + q + narrow),
        shapes=_shapes(N, d),
    )


def _sides_read(N: int, d: int, Bm: int, Bn: int, Bg: int) -> dict[str, int]:
    """What Q = A1·X, H = A3·Y and dX = A1ᵀdQ read."""
    panel, square, final = N * d * ceil_div(d, Bn), d * d * ceil_div(N, Bm), N * d * ceil_div(d, Bg)
    return {"A1": panel + final, "A3": panel, "X": square, "Y": square, "dQ": final}


def _sides_room(N: int, d: int, Bm: int, Bn: int, Bg: int) -> int:
    """The footprint of those three products."""
    mm, nn, g = min(Bm, N), min(Bn, d), min(Bg, d)
    return max(mm * nn + mm + nn, g * g + 2 * g)


def _written(N: int, d: int) -> dict[str, int]:
    return {**dict.fromkeys(("Q", "H", "dO", "dQ"), N * d), "LSE": N, "dX": d * d}
