"""Explorers of GPU kernels: one configuration of a kernel, and a table of timed configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....gpu import CHIPS
from ..figures import kernel_explorer as drawing
from ..figures.tuning_table import draw_tuning_table, read, tuning_headline
from ..models.kernel_explorer import (
    KERNELS,
    Configuration,
    KernelState,
    dispatch,
    fastest,
    shipped,
    shipped_records,
)
from ..models.tuning_table import OWN, RULES, TuningState, checked, columns_of, rows_of, shipped_tables
from .controls import button, choice, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

CHIP = choice("arch", "chip", {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()})
SIZES = drawing.SIZES
CONTROLS = (
    choice("kernel", "kernel", KERNELS),
    CHIP,
    choice("d", "d", {str(d): d for d in (64, 128, 256, 512)}),
    choice("causal", "mask", {"no mask": False, "causal": True}),
    slider("BM", "BM (queries)", SIZES),
    slider("BN", "BN (keys)", SIZES),
    slider("warps", "warps", (1, 2, 4, 8, 16)),
    slider("stages", "stages", (1, 2, 3, 4)),
    button(
        "shipped", "Shipped tile", "Set the configuration that dispatch launches, if it launches this kernel"
    ),
    button("fastest", "Fastest recorded", "Set the configuration with the shortest recorded time"),
    slider("N", "N (sequence length)", (2**k for k in range(7, 17))),
    choice("itemsize", "numbers", {"16 bits": 2, "32 bits": 4}),
    tick("narrow", "narrow page", hidden=True),
)


@explorer
class KernelExplorer(Explorer):
    """Interactive `kernel_explorer_picture`: one configuration of one Triton kernel on one chip.

    Click a tile in the map or use the controls kernel, arch, d, causal, BM, BN, warps, stages, N, itemsize
    and the buttons. Another kernel begins with its recorded configuration. Raises the errors of
    `kernel_explorer_picture`.
    """

    beside = True
    resumes = True

    def __init__(
        self,
        arch: int = 90,
        d: int = 64,
        kernel: str = "forward",
        BM: int | None = None,
        BN: int | None = None,
        warps: int | None = None,
        stages: int | None = None,
        *,
        N: int = 4096,
        causal: bool = False,
        itemsize: int = 2,
    ) -> None:
        self._records = shipped_records()
        plain = KernelState(arch, d, kernel, *drawing.PLAIN, N, causal, itemsize)
        super().__init__(drawing.start(plain, BM, BN, warps, stages), CONTROLS)

    def shown(self) -> Shown:
        s, narrow = self.state, self.value("narrow")
        picture = drawing.draw_kernel_explorer(s, self._records, narrow)
        headline = drawing.kernel_explorer_headline(s, self._records, self.note)
        return Shown(picture, headline, grabs=[Grab(*drawing.map_of(s, narrow).box)])

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind != "up":
            s = self.state
            BM, BN = drawing.map_of(s, self.value("narrow")).tile_at(x, y)
            at = drawing.shown_in_cell(drawing.facts(s, self._records), BM, BN)
            self._place(**(at or s.configuration._replace(BM=BM, BN=BN))._asdict())
            self.note = ""

    def _after(self, name: str) -> None:
        if name == "kernel":
            self._place(**shipped(self.state)._asdict())

    def _shipped(self) -> str:
        found = dispatch(self.state)
        if not (found.launched or found.option):
            return "Not changed, because dispatch does not launch this kernel here."
        how = f"Launched by dispatch{f' with {found.option}' * bool(found.option)}"
        return self._take(shipped(self.state), how)

    def _fastest(self) -> str:
        found = fastest(drawing.facts(self.state, self._records).found)
        if found is None:
            return "No time is recorded for this kernel, chip, d, mask and element size."
        return self._take(found.at, "Fastest recorded")

    def _take(self, at: Configuration, said: str) -> str:
        self._place(**at._asdict())
        return f"{said}: {at}."


# ---------------------------------------------------------------------- timed configurations
FILTERS = (
    choice("stages", "stages", {"all": 0} | {str(stages): stages for stages in (1, 2, 3, 4)}),
    slider("rows", "rows per warpgroup, at least", (0, 32, 64, 128)),
    slider("warpgroups", "warpgroups per SM, at least", (0, 1, 2, 3, 4)),
    tick("narrow", "narrow page", hidden=True),
)


@explorer
class TuningTable(Explorer):
    """Interactive `tuning_table_picture`: time / best against a column that is known without a run.

    Controls: table, column, rule, and the filters stages, rows and warpgroups. Raises the errors of
    `tuning_table_picture`.
    """

    beside = True
    resumes = True

    def __init__(
        self,
        table: str | Sequence[Mapping[str, Any]] = "draft, d = 64",
        column: str = "instructions",
        rule: str = "smallest",
        *,
        stages: int | None = None,
        rows: int | None = None,
        warpgroups: int | None = None,
    ) -> None:
        given = rows_of(table)
        name = table if isinstance(table, str) else OWN
        self._tables = shipped_tables() if isinstance(table, str) else {OWN: given}
        state = TuningState(name, column, rule, stages or 0, rows or 0, warpgroups or 0)
        controls = [
            choice("table", "table", {one: one for one in self._tables}),
            choice("column", "column (x)", columns_of(given)),
            choice("rule", "the rule chooses the", RULES),
        ]
        super().__init__(checked(state, given), [*controls, *FILTERS])

    def shown(self) -> Shown:
        found = read(self.state, self._tables[self.value("table")])
        return Shown(draw_tuning_table(found, self.value("narrow")), tuning_headline(found))
