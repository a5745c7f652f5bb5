"""weights_stored without its first pass: P is an input, as in the standard backward pass."""

from __future__ import annotations

from ..machine import Machine, SlowArray
from ..masks import Mask
from .registry import Outputs, Tiles, schedule
from .standard_backward import output_tile
from .weights_stored import inputs_gradients, values_gradient


def weights_precomputed_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest resident block that fits with one streamed row, and the best tile of dQ and dK."""
    return {"Bv": min(N, (M - d - 1) // (2 * d + 1)), **output_tile(N, d, M, "Bo")}


@schedule(
    pass_="backward",
    regime="d^2/4 <= M <= 5d^2/2, P given",
    source="a schedule of this course: weights_stored for weights that an earlier pass has stored",
    tiles=weights_precomputed_tiles,
)
def weights_precomputed(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    O: SlowArray,
    P: SlowArray,
    dO: SlowArray,
    *,
    Bv: int,
    Bo: int,
    Bd: int,
    mask: Mask | None = None,
) -> Outputs:
    """Backward pass: V_j and dV_j resident while dS is stored, then dK and dQ in tiles.

    Traffic about 4N²d²/M + 4N² words, and (2 + 2/k)N²d²/M + (2 + 2k)N² with tiles d/k wide; exactly
    `costs.weights_precomputed`. O is an input too, because D from P∘dP would need another pass over P.
    P includes the mask.
    """
    N, d = Q.shape
    dS, dV = m.new("dS", (N, N)), m.new("dV", (N, d))
    with m.phase("V and dV stay"):
        values_gradient(m, V, O, dO, P, dS, dV, Bv)
    return *inputs_gradients(m, Q, K, dS, Bo, Bd), dV
