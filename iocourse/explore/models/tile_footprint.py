"""What one program of a Triton kernel holds at its fullest: tiles by name, in words and in bytes.

Counted as the emulator counts: what the program's next product needs and what it must keep. The compiler's
own answer is in the recorded table: it holds tiles twice where loads run ahead, and less where it can.
"""

from __future__ import annotations

from typing import NamedTuple

# Computed in float32 whatever Q, K and V are.
COMPUTED = frozenset({"O", "dQ", "dK", "dV", "scores", "dP", "row statistics"})

# Rows and columns of each tile: M and N stand for BM and BN, D for d or the slice BD, 2 for two columns.
# A kernel that does one thing after another has a line for each; its fullest one counts.
_FORWARD = {"Q": "MD", "O": "MD", "K": "ND", "V": "ND", "scores": "MN", "row statistics": "M2"}
_QUERIES = {"Q": "MD", "dO": "MD", "dQ": "MD", "K": "ND", "V": "ND", "scores": "MN", "dP": "MN"}
_KEYS = {"K": "ND", "V": "ND", "dK": "ND", "dV": "ND", "Q": "MD", "dO": "MD", "scores": "MN", "dP": "MN"}
_NUMBERS = {"row statistics": "M2"}
_PRODUCT = {"Q": "MD", "K": "ND", "scores": "MN"} | _NUMBERS
_SECOND = {"dO": "MD", "V": "ND", "scores": "MN", "dP": "MN"} | _NUMBERS
TILES: dict[str, tuple[dict[str, str], ...]] = {
    "forward": (_FORWARD,),
    "fused": (_KEYS | _NUMBERS,),
    "queries": (_QUERIES | _NUMBERS,),
    "keys": (_KEYS | _NUMBERS,),
    "sliced_forward": (_PRODUCT, {"O": "MD", "V": "ND", "scores": "MN"} | _NUMBERS),
    "sliced_queries": (_PRODUCT, _SECOND, {"dQ": "MD", "K": "ND", "scores": "MN"} | _NUMBERS),
    "sliced_keys": (
        _PRODUCT,
        {"dV": "ND", "dO": "MD", "scores": "MN"} | _NUMBERS,
        _SECOND,
        {"dK": "ND", "Q": "MD", "scores": "MN"} | _NUMBERS,
    ),
    "scores": (_PRODUCT,),
    "averages": ({"O": "MD", "V": "ND", "scores": "MN", "row statistics": "M1"},),
    "weights": (_PRODUCT, _SECOND),
    "query_gradients": ({"dQ": "MD", "K": "ND", "dS": "MN"},),
    "key_gradients": ({"dK": "ND", "dV": "ND", "P": "MN", "dO": "MD"},),
}


class Held(NamedTuple):
    """A tile: its words, and its bytes."""

    words: int
    bytes: int


def held(kernel: str, BM: int, BN: int, columns: int, itemsize: int) -> dict[str, Held]:
    """The tiles that a program holds at its fullest, by name; `columns` are d, or BD where d is cut."""
    sides = {"M": BM, "N": BN, "D": columns, "1": 1, "2": 2}
    moments = [
        {name: _tile(name, sides[two[0]] * sides[two[1]], itemsize) for name, two in tiles.items()}
        for tiles in TILES[kernel]
    ]
    return max(moments, key=lambda tiles: sum(tile.bytes for tile in tiles.values()))


def _tile(name: str, words: int, itemsize: int) -> Held:
    return Held(words, words * (4 if name in COMPUTED else itemsize))
