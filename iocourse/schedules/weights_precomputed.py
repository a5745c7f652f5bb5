"""B7 without its first sweep: P is there already, as the usual backward pass has it."""

from __future__ import annotations

from ..machine import Machine, SlowArray
from ..masks import Mask
from .registry import Outputs, Tiles, schedule
from .standard_backward import output_tile
from .weights_stored import inputs_gradients, values_gradient


def weights_precomputed_tiles(N: int, d: int, M: int) -> Tiles:
    """What stays takes all that one passing row leaves; and the cheapest tile of dQ and dK."""
    return {"Bv": min(N, (M - d - 1) // (2 * d + 1)), **output_tile(N, d, M, "Bo")}


@schedule(
    pass_="backward",
    lesson=(9, 2, 4),
    regime="d^2/4 <= M <= 5d^2/2, P given",
    source="a schedule of this course: weights_stored for weights that are stored already",
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
    """V_j, dV_j stay and dS is stored; then dK and dQ in tiles: 4N²d²/M + 4N² words.

    With tiles d/k wide the words are (2 + 2/k)N²d²/M + (2 + 2k)N². O is given too: D from P∘dP would take
    another sweep over P. A mask is in P already. Costs `costs.weights_precomputed`.
    """
    N, d = Q.shape
    dS, dV = m.new("dS", (N, N)), m.new("dV", (N, d))
    with m.phase("V and dV stay"):
        values_gradient(m, V, O, dO, P, dS, dV, Bv)
    return *inputs_gradients(m, Q, K, dS, Bo, Bd), dV
