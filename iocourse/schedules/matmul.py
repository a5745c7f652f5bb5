"""Matrix product C = AB with a tile of C resident in fast memory."""

from __future__ import annotations

from ..costs import best_pair, ceil_div
from ..machine import Machine, ShapeMismatch, SlowArray
from ..sizes import check_sizes


def matmul(m: Machine, A: SlowArray, B: SlowArray, *, bm: int, bn: int) -> SlowArray:
    """Compute C = AB on the machine and return C: a bm x bn tile of C is resident, A and B are streamed.

    Shapes: A (m, k), B (k, n), C (m, n). Traffic: `costs.matmul(m, n, k, bm=bm, bn=bn)`.
    Raises ShapeMismatch. Source: 1702.02017, section 4.
    """
    bm, bn = check_sizes(bm=bm, bn=bn)
    for name, X in (("A", A), ("B", B)):
        if len(X.shape) != 2:
            raise ShapeMismatch(f"{name} has shape {X.shape}; expected a matrix")
    (rows, depth), (depth_B, cols) = A.shape, B.shape
    if depth != depth_B:
        raise ShapeMismatch(f"A has {depth} columns but B has {depth_B} rows; they must agree")
    C = m.new("C", (rows, cols))
    for i in m.blocks(rows, bm):
        for j in m.blocks(cols, bn):
            with m.zeros(i, j) as c:  # (bm, bn)
                for k in m.blocks(depth, 1):
                    with m.load(A, i, k) as a, m.load(B, k, j) as b:  # (bm, 1), (1, bn)
                        c.add_matmul(a, b)
                m.store(c, C, i, j)
    return C


def matmul_tiles(m: int, n: int, k: int, M: int) -> dict[str, int]:
    """Return the tile sizes bm, bn with bm·bn + bm + bn ≤ M and the least traffic for C (m, n) = A (m, k) B.

    Raises ValueError if M < 3, the minimum.
    """
    m, n, k, M = check_sizes(m=m, n=n, k=k, M=M)
    if M < 3:
        raise ValueError(f"M = {M} is too small for a matrix product. It needs at least M = 3")
    bn, bm = best_pair(
        lambda bn, bm: m * k * ceil_div(n, bn) + k * n * ceil_div(m, bm),
        extent=n,
        partner=lambda bn: min(m, (M - bn) // (bn + 1)),
    )
    return {"bm": bm, "bn": bn}
