"""Compile the launches of a student's kernels for a GPU that need not be here, and count their instructions.

The interpreter has run a launch before; `gpu.compilation` compiles it, which takes about two seconds.
A property of compiled code is reached only if the values are correct, because the counts of a wrong kernel
have no meaning and each compilation takes time.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...gpu.compilation import CompilationFailed, Resources, job, reports
from ..exercise import Better, Case, NotReached, Property, RunCase, Trial
from ..properties import as_traffic
from .compile_check import Launch
from .kernel_launch import KernelTrial
from .sixteen_bit_inputs import COMPILED, type_of

TILE = ("BM", "BN", "BK")  # constants of a kernel
_compiled: dict[Hashable, Resources | CompilationFailed] = {}
MOST_KEPT = 200


def compiled(launch: Launch, arch: int) -> Resources | CompilationFailed:
    """Compile one launch for an architecture, such as 90; launches that compile alike are compiled once.

    Raises ValueError if an option of the launch, such as num_warps, has a value that is not allowed.
    """
    key = arch, launch.fingerprint()
    if key not in _compiled:
        if len(_compiled) >= MOST_KEPT:
            _compiled.clear()
        with tempfile.TemporaryDirectory() as folder:
            one = job(launch.kernel, arch, launch.arguments, launch.named, Path(folder))
            (_compiled[key],) = reports([one])
    return _compiled[key]


def _compiled_by_parts(trial: KernelTrial, arch: int) -> Resources | CompilationFailed:
    """Compile the launch of a trial that another process ran: PTX there, machine code here."""
    from triton.backends.nvidia.compiler import get_ptxas, ptx_get_version

    assert trial.ptx is not None
    told = trial.ptx(arch, ptx_get_version(get_ptxas(arch).version))
    parts = told if isinstance(told, dict) else {}
    if not isinstance(parts.get("ptx"), str):
        return CompilationFailed(str(parts.get("error", told)))
    facts = {"ptx": parts["ptx"], "shared": int(parts["shared"]), "warps": int(parts["warps"])}
    described = {"name": "kernel", "signature": {}, "constants": [], "options": {}}
    (found,) = reports([described | facts | {"arch": arch}])
    return found


def compiler_lines(
    run_case: RunCase, student: Callable[..., Any], cases: Sequence[Case], arch: int = 90
) -> str:
    """Return a line per kernel that a solved exercise launches: what the compiler makes of it for a chip.

    The case with the largest tile is run again, because a check keeps no launches.
    """
    trial = run_case(student, max(cases, key=_tile_size))
    launches: tuple[Launch, ...] = getattr(trial, "launches", ())
    return "\n".join(f"Compiled for {_described(launch, arch)}" for launch in launches)


def _tile_size(case: Case) -> int:
    return int(case.inputs.get("BM", 1) * case.inputs.get("BN", 1))


def _described(launch: Launch, arch: int) -> str:
    parameters = list(inspect.signature(launch.kernel.fn).parameters)
    constants = {parameters[at]: value for (at, *_), value in launch.constants.items()}
    sizes: dict[str, int] = {name: constants[name] for name in ("d", *TILE) if name in constants}
    listed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    found = compiled(launch, arch)
    told = _in_words(found, sizes) if isinstance(found, Resources) else f"not compiled, {found}"
    return f"sm_{arch}, {launch.kernel.fn.__name__}{f' ({listed})' if listed else ''}: {told}"


def _in_words(found: Resources, sizes: Mapping[str, int]) -> str:
    spills = f"{found.spill_bytes} bytes spilled" if found.spill_bytes else "no spill"
    words = (
        f"{found.registers} registers per thread, {spills}, {found.shared_bytes / 1024:.1f} KB shared memory"
    )
    if (loop := found.hot_loop) is None:
        return words
    per_score = ""
    if sizes.keys() - {"d"} == {"BM", "BN"}:  # a tile of scores
        per_score = f" ({loop.instructions * 32 * found.warps / (sizes['BM'] * sizes['BN']):.1f} per score)"
    return (
        f"{words}, inner loop {loop.instructions:,} instructions{per_score}, of them {loop.products_in_words}"
    )


# ------------------------------------------------------------------ properties of compiled code
@dataclass(frozen=True)
class Target:
    """A compiled case: the type of its inputs, the architecture, the mask, and its instructions per score.

    instructions: by version of Triton, the number that a good kernel needs, and the largest one accepted.
    """

    dtype: str
    arch: int
    instructions: Mapping[str, tuple[float, float]]
    causal: bool = True

    def fits(self, case: Case) -> bool:
        """Return whether the case is compiled for this target."""
        same = type_of(case) == self.dtype and case.inputs["causal"] == self.causal
        return case.has(COMPILED) and same


JudgeCode = Callable[[Resources, KernelTrial, Target], str | None]


def in_compiled_code(
    name: str, targets: Sequence[Target], judge: JudgeCode, after: Sequence[Property]
) -> Property:
    """Return the property that holds for the compiled code of every target.

    Args:
        name: the property.
        targets: the cases with the tag `COMPILED` are compiled for these.
        judge: returns a message, None, or a `Better`.
        after: properties without which this one is not reached.
    """

    def judged(trials: Sequence[Trial]) -> str | None:
        for prop in after:
            said = prop.judge(trials)
            if said and not isinstance(said, Better):
                return NotReached(f'only if "{prop.name}"')
        remark = None
        for target in targets:
            for trial in trials:
                if not target.fits(trial.case):
                    continue
                assert isinstance(trial, KernelTrial)
                said = _judged_launch(trial, target, judge)
                if isinstance(said, Better):
                    remark = remark or said
                elif said:
                    return type(said)(f"{said} (sm_{target.arch}, {trial.case.label})")
        return remark

    return as_traffic(Property(name, judged))


def _judged_launch(trial: KernelTrial, target: Target, judge: JudgeCode) -> str | None:
    if len(trial.launches) > 1:
        return f"expected one launch, got {len(trial.launches)}"
    try:
        found = (
            compiled(trial.launches[0], target.arch)
            if trial.launches
            else _compiled_by_parts(trial, target.arch)
        )
    except ValueError as error:  # an option of the launch
        return str(error)
    if isinstance(found, CompilationFailed):
        return f"the compiler fails: {found}"
    return judge(found, trial, target)
