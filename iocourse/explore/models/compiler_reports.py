"""What the recorded run of `python -m tools.bench resources` says of one tile of one kernel.

Its row, or the nearest one, said to be another. Nothing is interpolated: what nobody compiled is "not
recorded".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import log2
from typing import Any, NamedTuple

from ...costs.kernels import SLICED, KernelProblem, kernel_words
from ...data.records import load_record
from ...gpu import Resources, chip_of
from ...ledger import Ledger
from ...sizes import positive_int

Row = Mapping[str, Any]
START, START_SLICE, START_WARPS = 64, 32, 8  # of a tile where none is recorded
VERDICTS = ("fits", "spills", "too large", "refused")


class Setting(NamedTuple):
    """The position of every control. BD is None where tiles are whole rows; N counts queries, and keys."""

    arch: int
    d: int
    itemsize: int
    kernel: str
    BM: int
    BN: int
    BD: int | None = None
    warps: int = START_WARPS
    N: int = 4096
    causal: bool = True

    def checked(self) -> Setting:
        """This setting, or the ValueError or TypeError that says which part of it cannot be."""
        chip_of(self.arch)
        if self.itemsize not in (2, 4):
            raise ValueError(f"itemsize is {self.itemsize!r}; allowed: 2 or 4 bytes")
        for name in ("d", "BM", "BN", "warps", "N"):
            positive_int(name, getattr(self, name))
        words_of(self)  # knows the kernels, and which of them have a BD
        for name in ("BM", "BN", "BD"):
            size = getattr(self, name)
            if size is not None and (size < 16 or size & (size - 1)):
                raise ValueError(f"{name} is {size}; allowed: 16, 32, 64, 128, … as tl.dot asks for")
        return self

    def with_tile(self, BM: int, BN: int, BD: int | None, warps: int) -> Setting:
        """The same with another tile."""
        return self._replace(BM=BM, BN=BN, BD=BD, warps=warps)

    @property
    def tile(self) -> tuple[int, int, int | None, int]:
        """BM, BN, BD and warps."""
        return self.BM, self.BN, self.BD, self.warps

    @property
    def columns(self) -> int:
        """Columns of a tile: d, or a slice of it."""
        return self.BD or self.d


def words_of(s: Setting) -> Ledger:
    """The ledger of one launch for one head of N queries and N keys."""
    problem = KernelProblem(s.N, s.N, s.d, high=0 if s.causal else None)
    return kernel_words(s.kernel, problem, BM=s.BM, BN=s.BN, BD=s.BD)


@lru_cache(maxsize=1)
def _shipped_record() -> Mapping[str, Any]:
    return load_record("resources") or {}


def record_of(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A record as `load_record("resources")` gives it, None standing for that one; {} where there is none."""
    return _shipped_record() if given is None else given


def rows_of(record: Mapping[str, Any]) -> list[Row]:
    """Every row with the mask as a band: first the tiles that are shipped, then those tried."""
    rows = [*record.get("shipped", ()), *record.get("forward_by_tile", ())]
    return [row for row in rows if row.get("pairs", "band") == "band"]


def of_kernel(rows: Sequence[Row], s: Setting) -> list[Row]:
    """Rows of a setting's kernel, chip and type, whatever the tile, the mask and d."""
    return [
        row for row in rows if (row["arch"], row["bytes"], row["kernel"]) == (s.arch, s.itemsize, s.kernel)
    ]


def of_size(rows: Sequence[Row], s: Setting) -> list[Row]:
    """Those of them for its d, of which a kernel that cuts d takes any, and for its mask."""
    return [row for row in of_kernel(rows, s) if _same_size(row, s) and row["causal"] == s.causal]


def _same_size(row: Row, s: Setting) -> bool:
    return s.kernel in SLICED or row["d"] == s.d


def tile_of(row: Row) -> tuple[int, int, int | None, int]:
    """BM, BN, BD and warps."""
    return row["BM"], row["BN"], row.get("BD"), row["warps"]


def exact(rows: Sequence[Row], s: Setting) -> list[Row]:
    """The rows of this very tile, the shipped one first; they differ in how far loads run ahead."""
    return [row for row in of_size(rows, s) if tile_of(row) == s.tile]


def nearest(rows: Sequence[Row], s: Setting) -> Row | None:
    """The recorded tile with the fewest doublings from this one, d counting most, then the sides."""
    return min(of_kernel(rows, s), key=lambda row: _distance(row, s), default=None)


def _distance(row: Row, s: Setting) -> float:
    d = 0.0 if _same_size(row, s) else abs(log2(max(64, s.d) / row["d"]))
    sides = [(row["BM"], s.BM), (row["BN"], s.BN), (row.get("BD") or 1, s.BD or 1)]
    apart = sum(abs(log2(one / other)) for one, other in sides)
    other_mask = float(row["causal"] != s.causal)
    return 100 * d + 2 * apart + abs(log2(row["warps"] / s.warps)) + other_mask


def shipped(rows: Sequence[Row], s: Setting) -> Setting | None:
    """The setting with the tile that the kernels ship with, or None where there is no record of it."""
    found = of_size(rows, s) or [row for row in of_kernel(rows, s) if _same_size(row, s)]
    return s.with_tile(*tile_of(found[0])) if found else None


def best(rows: Sequence[Row], s: Setting) -> Setting | None:
    """The setting with the recorded tile that fits the chip and moves the fewest words; None: none fits."""
    fitting = [s.with_tile(*tile_of(row)) for row in of_size(rows, s) if verdict(row) == "fits"]
    return min(fitting, key=lambda one: words_of(one).total, default=None)


def start(s: Setting, rows: Sequence[Row]) -> Setting:
    """Where the sliders of a kernel start: its shipped tile, or one that stands for itself."""
    plain = s.with_tile(START, START, START_SLICE if s.kernel in SLICED else None, START_WARPS)
    return shipped(rows, plain) or plain


def resources_of(row: Row) -> Resources | None:
    """What the compiler reports; None where it refused."""
    return None if "error" in row else Resources.of(row)


def verdict(row: Row) -> str:
    """One of `VERDICTS`: whether the compiled kernel fits its chip, or what is wrong."""
    report = resources_of(row)
    if report is None:
        return "refused"
    if report.shared_bytes > chip_of(report.arch).shared_bytes:
        return "too large"
    return "fits" if report.fits else "spills"
