"""Closed forms of dL/dX of 2410.09397: A1, A2, A3, E (N, d) and X, Y (d, d) in, dX (d, d) out."""

from __future__ import annotations

from ...ledger import Ledger
from ...sizes import Shape, check_sizes
from ..closed_form import ceil_div, closed_form, form


def _shapes(N: int, d: int) -> dict[str, Shape]:
    return {
        **dict.fromkeys(("A1", "A2", "A3", "E", "Q", "H", "dO", "dQ"), (N, d)),
        **dict.fromkeys(("LSE", "D"), (N,)),
        **dict.fromkeys(("X", "Y", "dX"), (d, d)),
        "S": (N, N),
    }


@form
def gradient(N: int, d: int, *, Bm: int, Bn: int, Bf: int, Bq: int, Bg: int) -> Ledger:
    """Large caches: Q = A1·X and H = A3·Y, a forward sweep, a sweep for dQ, then dX = A1ᵀdQ.

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
    """Caches well above d²: X, Y and dX stay, and neither Q nor H nor dQ is ever made.

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
    """Small caches: every product blocked, S stored and then overwritten by dS.

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
