"""Closed forms of schedules of dL/dX (2410.09397): A1, A2, A3, E (N, d) and X, Y (d, d) to dX (d, d)."""

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
def gradient(N: int, d: int, *, Bm: int, Bn: int, Bf: int, Bq: int, Bg: int) -> Ledger:
    """Traffic for large caches: Q = A1·X and H = A3·Y, a forward pass, a pass for dQ, then dX = A1ᵀdQ.

    2(Nd⌈d/Bn⌉ + d²⌈N/Bm⌉ + Nd) + (3Nd + 2N + 2Nd⌈N/Bf⌉) + (3Nd + 2N + 2Nd⌈N/Bq⌉) + (2Nd⌈d/Bg⌉ + d²).
    Footprint max(Bm·Bn + Bm + Bn, Bf(2d + 3) + d, Bq(3d + 3) + 2d, Bg² + 2Bg).
    """
    N, d, Bm, Bn, Bf, Bq, Bg = check_sizes(N=N, d=d, Bm=Bm, Bn=Bn, Bf=Bf, Bq=Bq, Bg=Bg)
    mm, nn, f, q, g = min(Bm, N), min(Bn, d), min(Bf, N), min(Bq, N), min(Bg, d)
    panel, square, sweeps = (
        N * d * ceil_div(d, Bn),
        d * d * ceil_div(N, Bm),
        ceil_div(N, Bf) + ceil_div(N, Bq),
    )
    final = N * d * ceil_div(d, Bg)
    return closed_form(
        reads={
            "A1": panel + final,
            "A3": panel,
            "X": square,
            "Y": square,
            "Q": 2 * N * d,
            "A2": N * d * sweeps,
            "H": N * d * sweeps,
            "E": N * d,
            "dO": N * d,
            "LSE": N,
            "D": N,
            "dQ": final,
        },
        writes={"Q": N * d, "H": N * d, "dO": N * d, "LSE": N, "D": N, "dQ": N * d, "dX": d * d},
        peak=max(mm * nn + mm + nn, f * (2 * d + 3) + d, q * (3 * d + 3) + 2 * d, g * g + 2 * g),
        shapes=_shapes(N, d),
    )


@form
def gradient_reassociated(N: int, d: int, *, Bf: int, Bq: int) -> Ledger:
    """Traffic for M well above d²: X, Y and dX are resident; Q, H and dQ are not materialised.

    5Nd + 4N + 3d² + 2Nd(⌈N/Bf⌉ + ⌈N/Bq⌉) words; footprint 2d² + max(Bf(2d + 3) + 2d, d² + Bq(2d + 3) + 3d).
    """
    N, d, Bf, Bq = check_sizes(N=N, d=d, Bf=Bf, Bq=Bq)
    f, q, sweeps = min(Bf, N), min(Bq, N), ceil_div(N, Bf) + ceil_div(N, Bq)
    return closed_form(
        reads={
            "X": d * d,
            "Y": d * d,
            "A1": 2 * N * d,
            "A2": N * d * sweeps,
            "A3": N * d * sweeps,
            "E": N * d,
            "dO": N * d,
            "LSE": N,
            "D": N,
        },
        writes={"dO": N * d, "LSE": N, "D": N, "dX": d * d},
        peak=2 * d * d + max(f * (2 * d + 3) + 2 * d, d * d + q * (2 * d + 3) + 3 * d),
        shapes=_shapes(N, d),
    )


@form
def gradient_small_cache(N: int, d: int, *, B: int) -> Ledger:
    """Traffic for small caches: every product blocked, S stored and then overwritten by dS.

    With nb = ⌈N/B⌉, db = ⌈d/B⌉: N²(2db + 3) + 6Nd·nb + 4Nd·db + 2d²·nb + 5Nd + d² + 4N words.
    Footprint about B² + 4B: the largest of b² + 4b, be + 3b + e and e² + 2e, b = min(B, N), e = min(B, d).
    """
    N, d, B = check_sizes(N=N, d=d, B=B)
    nb, db, b, e = ceil_div(N, B), ceil_div(d, B), min(B, N), min(B, d)
    panel = N * d * nb
    return closed_form(
        reads={
            "A1": 2 * N * d * db,
            "A3": N * d * db,
            "X": d * d * nb,
            "Y": d * d * nb,
            "Q": panel,
            "A2": 2 * panel,
            "H": 2 * panel,
            "S": N * N * (2 * db + 1),
            "E": N * d,
            "dO": panel,
            "LSE": N,
            "D": N,
            "dQ": N * d * db,
        },
        writes={
            **dict.fromkeys(("Q", "H", "dO", "dQ"), N * d),
            "S": 2 * N * N,
            "LSE": N,
            "D": N,
            "dX": d * d,
        },
        peak=max(b * b + 4 * b, b * e + 3 * b + e, e * e + 2 * e),
        shapes=_shapes(N, d),
    )


# ------------------------------------------------------------------ N x N matrices stored
@form
def gradient_dp_materialised(
    N: int, d: int, *, Bm: int, Bn: int, Bf: int, Bs: int, Bq: int, Bg: int
) -> Ledger:
    """Traffic with dP - D stored: Q and H, a forward pass, dO_i resident, Q_i and dQ_i resident, dX = A1ᵀdQ.

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
    """Traffic with one resident array at a time: scores are stored, then overwritten by dS, then dQ, dX.

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
    """Return the words that Q = A1·X, H = A3·Y and dX = A1ᵀdQ read, by array."""
    panel, square, final = N * d * ceil_div(d, Bn), d * d * ceil_div(N, Bm), N * d * ceil_div(d, Bg)
    return {"A1": panel + final, "A3": panel, "X": square, "Y": square, "dQ": final}


def _sides_room(N: int, d: int, Bm: int, Bn: int, Bg: int) -> int:
    """Return the footprint of the products Q = A1·X, H = A3·Y and dX = A1ᵀdQ."""
    mm, nn, g = min(Bm, N), min(Bn, d), min(Bg, d)
    return max(mm * nn + mm + nn, g * g + 2 * g)


def _written(N: int, d: int) -> dict[str, int]:
    return {**dict.fromkeys(("Q", "H", "dO", "dQ"), N * d), "LSE": N, "dX": d * d}
