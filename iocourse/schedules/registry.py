"""Registry of schedules. A Schedule combines a function on the machine, its closed form and its tile sizes.

To add a schedule, add a file to this folder that decorates the function, and its closed form to `costs`.
Tables, plots, the command line and the property tests then include it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from .. import costs
from ..exact import Array
from ..ledger import Ledger
from ..machine import FastMemoryFull, Machine, SlowArray
from ..masks import Mask, Window
from ..monomials import rank_of
from ..sizes import Shape, check_sizes, positive_int, truth, zero_or_more
from .pass_specs import PASSES, Exact, Pass

Tiles = dict[str, int]
Chooser = Callable[..., Tiles]
Outputs = SlowArray | tuple[SlowArray, ...]  # one array, or several in the order of the pass
Body = Callable[..., Outputs]

PROBLEM = ("mask", "w", "g")  # parameters of the problem in addition to N and d; not chosen by a schedule


@dataclass(frozen=True)
class Approximates:
    """Reference of an approximation: a description, and a function that returns its values unrounded."""

    name: str
    exact: Callable[..., Exact]


@dataclass(frozen=True)
class ForwardExtras:
    """Additional arrays that a backward pass receives from the matching forward pass.

    `shapes(N, d, **needs)` returns their shapes by name, and `made(arrays, **needs)` computes them from the
    arrays of the pass.
    """

    shapes: Callable[..., dict[str, Shape]]
    made: Callable[..., dict[str, Array]]


@dataclass(frozen=True)
class Schedule:
    """One schedule of a pass: a function on the machine, with its closed form and tile sizes.

    A call runs it on a machine: `schedule(m, Q, K, V, **tiles)` returns the slow array with the output, and
    with `lse=True` also the log-sum-exp of the rows: (O, LSE). A backward pass returns (dQ, dK, dV).

    Attributes:
        name: name in the code, such as flash_optimal.
        label: name in tables and formulas of the lessons, such as `F3`.
        pass_: name of the pass in PASSES.
        regime, source: when to use it, and its origin, such as a paper.
        body, cost_form: the function, and its closed form.
        choose, publish: functions that return the best tiles of the loop order, and those of its paper
            (or None).
        operands: names of its arrays.
        tile_names: names of its tile sizes, all required.
        needs, options: required and optional further arguments (`mask`, `w`, `g`, `lse`).
        note: function that returns a remark on the chosen tiles.
        safe: False if large scores overflow.
        approximates: for an approximation, the reference of its values; None if it computes the pass.
        forward_extras: additional arrays from the matching forward pass, or None.
    """

    name: str
    label: str
    pass_: str
    regime: str
    source: str
    body: Body
    cost_form: Callable[..., Ledger]
    choose: Chooser
    publish: Chooser | None
    operands: tuple[str, ...]
    tile_names: tuple[str, ...]
    needs: tuple[str, ...]
    options: tuple[str, ...]
    note: Callable[..., str]
    safe: bool
    approximates: Approximates | None
    forward_extras: ForwardExtras | None

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        """Title in figures: label (if any) and name, such as `F3 flash_optimal`."""
        return f"{self.label} {self.name}".lstrip()

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.body.__doc__

    def __reduce__(self) -> tuple[Callable[[str], Schedule], tuple[str]]:
        return get, (self.name,)  # a pickle holds the name only and is loaded from the registry

    def __repr__(self) -> str:
        return f"schedule {self.name}(m, {', '.join((*self.operands, *self.needs, *self.tile_names))})"

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def __wrapped__(self) -> Body:  # for inspect.getsource, which then shows the code of the schedule
        return self.body

    @property
    def problem(self) -> Pass:
        """The pass: its inputs and its exact results."""
        return PASSES[self.pass_]

    def expected(
        self, arrays: Mapping[str, Array], mask: Mask | None = None, settings: Mapping[str, Any] | None = None
    ) -> Exact:
        """Return the correct results for these inputs, in the order of the pass.

        For an approximation these are the values of `approximates`. `mask` must be the mask of `settings`
        (see `mask_of`); of `settings` only the degree is used.
        """
        if self.approximates is None:
            return self.problem.exact(arrays, mask)
        return self.approximates.exact(arrays, **self.needed(settings or {}))

    def needed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of `settings` that this schedule requires, such as mask, w or g."""
        return {name: settings[name] for name in self.needs if name in settings}

    @property
    def given_weights(self) -> bool:
        """True if P (N, N) is an input, which an earlier pass had to store."""
        return "P" in self.operands

    def __call__(self, m: Machine, *arrays: SlowArray, **named: Any) -> Outputs:
        self._refuse_other_arrays(arrays, named)
        operands = arrays or tuple(named[name] for name in self.operands if name in named)
        settings = {name: value for name, value in named.items() if name not in self.operands}
        N, d = self._sizes_of(operands)
        settings = self._checked(N, settings)
        self._require_shapes(operands, self.shapes(N, d, **settings))
        try:
            return self.body(m, *operands, **settings)
        except FastMemoryFull as error:
            error.advice = lambda: f"For {self.name}, {self.advice(N, d, m.M, **settings)}."
            raise

    def _checked(self, N: int, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings with sizes as ints. Raises TypeError if one is unknown or missing."""
        for name in settings:
            if name in (*PROBLEM, "lse") and name not in (*self.needs, *self.options):
                raise TypeError(f"{self.name} does not accept {name}; remove it")
            if name not in (*self.tile_names, *self.needs, *self.options):
                has = ", ".join(self.tile_names) or "none"
                raise TypeError(f"unknown tile size {name!r}; the tile sizes of {self.name} are {has}")
        self._require_all(N, settings)
        return self._numbers(settings)

    def _numbers(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with sizes as ints and `lse` as a bool, or raise an error naming a bad one."""
        kinds = {**dict.fromkeys((*self.tile_names, "g"), positive_int), "w": zero_or_more, "lse": truth}
        return {name: kinds[name](name, v) if name in kinds else v for name, v in settings.items()}

    def _require_all(self, N: int, settings: Mapping[str, Any]) -> None:
        missing = [name for name in self.tile_names if name not in settings]
        if missing:
            raise TypeError(
                f"{self.name} needs the tile size(s) {', '.join(missing)}; "
                "tiles(N, d, M) returns suitable ones"
            )
        for name in self.needs:
            if settings.get(name) is None:
                raise TypeError(f"{self.name} needs {name}=…, a parameter of its problem")
        mask = settings.get("mask")
        if mask is not None and not isinstance(mask, Mask):
            raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
        if mask is not None and mask.N != N:
            raise ValueError(f"mask must be for N = {N}, the rows of the arrays, got N = {mask.N}")

    @property
    def _listed(self) -> str:
        return f"{', '.join(self.operands[:-1])} and {self.operands[-1]}"

    def _refuse_other_arrays(self, arrays: tuple[SlowArray, ...], named: Mapping[str, Any]) -> None:
        """Raise TypeError for too many or unknown arrays, with the hint of the pass about other arrays."""
        brought = [name for name, value in named.items() if isinstance(value, SlowArray)]
        others = [name for name in brought if name not in self.operands]
        advice = f"; {self.problem.other_arrays}" if self.problem.other_arrays else ""
        if others:
            raise TypeError(f"{self.name} takes {self._listed}, got also {', '.join(others)}{advice}")
        if len(arrays) > len(self.operands):
            raise TypeError(f"{self.name} takes {self._listed}, got {len(arrays)} array(s){advice}")

    def _sizes_of(self, arrays: tuple[SlowArray, ...]) -> tuple[int, int]:
        """Return N and d, after checking that every array is there and in slow memory."""
        if len(arrays) != len(self.operands):
            raise TypeError(f"{self.name} takes {self._listed}, got {len(arrays)} array(s)")
        given = dict(zip(self.operands, arrays, strict=True))
        for name, array in given.items():
            if not isinstance(array, SlowArray):
                raise TypeError(f"{name} must be in slow memory (machine.slow), got {type(array).__name__}")
        first = self._first_of_rows
        if len(given[first].shape) != 2:
            raise ValueError(f"{first} must have the shape of one head, (N, d), got {given[first].shape}")
        N, d = given[first].shape
        return int(N), int(d)

    @property
    def _first_of_rows(self) -> str:
        """Name of the first operand of shape (N, d), which defines N and d."""
        shapes = self.problem.shapes(2, 3)
        return next(name for name in self.operands if shapes.get(name) == (2, 3))

    def _require_shapes(self, arrays: tuple[SlowArray, ...], wanted: Mapping[str, Shape]) -> None:
        given = dict(zip(self.operands, arrays, strict=True))
        first = self._first_of_rows
        for name, array in given.items():
            if array.shape != wanted[name]:
                raise ValueError(
                    f"{name} has shape {array.shape}; with {first} {given[first].shape} "
                    f"it must be {wanted[name]}"
                )

    def cost(self, N: int, d: int, **settings: Any) -> Ledger:
        """Return the closed form for these tiles and options; its `peak` is the footprint."""
        N, d = check_sizes(N=N, d=d)
        return self.cost_form(N, d, **self._checked(N, settings))

    def count(self, N: int, d: int, M: int, *, published: bool = False, **settings: Any) -> Ledger:
        """Return the closed form for M words of fast memory.

        Tile sizes not passed are the best ones, or with `published` those of the paper (see `tiles`).
        Raises ValueError if they do not fit; the message names tiles that fit, or the smallest M.
        """
        N, d, M = check_sizes(N=N, d=d, M=M)
        settings = self.tiles(N, d, M, published=published, **_problem(settings)) | settings
        ledger = self.cost(N, d, **settings)
        if ledger.peak > M:
            tiles = ", ".join(f"{name} = {settings[name]}" for name in self.tile_names)
            raise ValueError(
                f"{self.name} with {tiles} needs {ledger.peak:,} words, {ledger.peak - M:,} more than "
                f"M = {M:,}; {self.advice(N, d, M, **settings)}"
            )
        return ledger

    def smallest_M(self, N: int, d: int, **problem: Any) -> int:
        """Return the smallest M, in words of fast memory, in which some tile size of this schedule fits."""
        return self.cost(N, d, **dict.fromkeys(self.tile_names, 1), **problem).peak

    # The values are integers, but type checkers reject run(..., **tiles) with dict[str, int], because a key
    # could be the name of one of run's options.
    def tiles(self, N: int, d: int, M: int, *, published: bool = False, **problem: Any) -> dict[str, Any]:
        """Return the best tile sizes of this loop order for M words, or with `published` those of its paper.

        Raises ValueError if none fits, naming the smallest M; if the published sizes do not fit, naming the
        words that are missing; and if no sizes are published, naming the schedules that have some.
        """
        N, d, M = check_sizes(N=N, d=d, M=M)
        if truth("published", published):
            return self._published_tiles(N, d, M)
        least = self.smallest_M(N, d, **problem)
        if least > M:
            raise ValueError(
                f"M = {M:,} is too small for {self.name} with N = {N:,}, d = {d:,}. "
                f"It needs at least M = {least:,}"
            )
        picked = self.choose(N, d, M, **self._numbers(self.needed(problem)))
        # If every pair is masked, the footprint is smaller than the choosers assume, and they may return 0.
        return {name: max(1, size) for name, size in picked.items()}

    def _published_tiles(self, N: int, d: int, M: int) -> Tiles:
        if self.publish is None:
            some = ", ".join(one.name for one in REGISTRY.values() if one.publish)
            raise ValueError(
                f"published: {self.name} has no published tile sizes; schedules with some are {some}"
            )
        sizes = self.publish(N, d, M)
        needed = self.cost(N, d, **sizes).peak
        if needed > M:
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise ValueError(
                f"published: {self.name} with {shown} needs {needed:,} words, {needed - M:,} more than "
                f"M = {M:,}; omit published to use its best tiles"
            )
        return sizes

    def largest_tiles(self, N: int, d: int, M: int, **settings: Any) -> Tiles:
        """Return for each tile size the largest value that fits in M words with the others unchanged, or 0.

        Under a mask a larger size can need fewer words, because of the smaller block at one end. Then the
        value is one that fits while the next larger one does not.
        """
        N, d, M = check_sizes(N=N, d=d, M=M)
        settings = self._checked(N, settings)

        def fits(name: str, size: int) -> bool:
            return self.cost_form(N, d, **{**settings, name: size}).peak <= M

        most = max(N, d, rank_of(d, settings["g"]) if "g" in settings else 1)
        return {name: _largest(partial(fits, name), most) for name in self.tile_names}

    def advice(self, N: int, d: int, M: int, **settings: Any) -> str:
        """Return a clause for an error message that names tile sizes which fit where `settings` do not."""
        problem = _problem(settings)
        least = self.smallest_M(N, d, **problem)
        if least > M:
            return f"no tile size fits; the minimum is M = {least:,}"
        largest = self.largest_tiles(N, d, M, **settings)
        if not any(largest.values()):
            picked = ", ".join(f"{name} = {size}" for name, size in self.tiles(N, d, M, **problem).items())
            return f"try {picked}"
        found = [f"the largest {name} that fits is {size}" for name, size in largest.items() if size]
        found += [f"no {name} fits" for name, size in largest.items() if not size]
        return f"with the other tile sizes unchanged, {', '.join(found)}"

    def shapes(self, N: int, d: int, **settings: Any) -> dict[str, Shape]:
        """Return the shape of each operand by name, for a dry run; of `settings` only the degree is used."""
        known = self.problem.shapes(N, d)
        if self.forward_extras:
            known |= self.forward_extras.shapes(N, d, **self.needed(settings))
        return {name: known[name] for name in self.operands}

    def drawn(
        self, rng: np.random.Generator, N: int, d: int, mask: Mask | None, settings: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Return random inputs of its pass by name, including the arrays of `forward_extras`."""
        arrays = self.problem.draw(rng, N, d, mask)
        return arrays | (
            self.forward_extras.made(arrays, **self.needed(settings)) if self.forward_extras else {}
        )


def mask_of(N: int, problem: dict[str, Any]) -> Mask | None:
    """Return the mask of a schedule's parameters: `mask` itself, a window of width `w`, or None."""
    mask: Mask | None = Window(N, problem["w"]) if "w" in problem else problem.get("mask")
    return mask


def _problem(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `settings` that define the problem for any schedule: mask, w and g."""
    return {name: value for name, value in settings.items() if name in PROBLEM}


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest size up to `most` that fits, 0 if none. Assumes that every smaller size fits too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


REGISTRY: dict[str, Schedule] = {}

# The order within a pass, in lists and legends; between equal costs, `best` prefers the earlier schedule.
# One that is not here comes after those of its pass, by name.
ORDER = (
    # forward: for a large fast memory, for a small one, for one that holds all keys, and under a mask
    *("naive", "flash2", "flash1", "flash_optimal"),
    *("square_tiling", "small_cache", "scores_stored", "scores_stored_tiled", "small_cache_fused"),
    "resident_keys",
    *("block_sparse", "window"),
    # backward: for a large fast memory, for a small one, and with P as an input
    *("standard_backward", "flash1_backward", "flash2_backward", "fused_backward", "split_backward"),
    *("small_cache_backward", "score_gradients_stored", "weights_stored"),
    *("weights_precomputed", "small_cache_precomputed"),
    # gradient of X: fused, reassociated, and with more arrays in slow memory
    *("gradient", "gradient_small_cache", "gradient_reassociated"),
    *("gradient_dp_materialised", "gradient_scores_materialised"),
)


def _no_note(N: int, d: int, M: int, **problem: Any) -> str:
    return ""


def schedule(
    *,
    pass_: str,
    regime: str,
    source: str,
    tiles: Chooser,
    label: str = "",
    published: Chooser | None = None,
    note: Callable[..., str] = _no_note,
    safe: bool = True,
    approximates: Approximates | None = None,
    forward_extras: ForwardExtras | None = None,
) -> Callable[[Body], Schedule]:
    """Return a decorator that registers a function as a schedule; the closed form is costs.<its name>.

    The arguments are the fields of Schedule, with `tiles` for `choose` and `published` for `publish`.
    `tiles` and `note` are functions of N, d, M and the arguments that the schedule requires, `published` of
    N, d and M.

    Raises:
        ValueError: an unknown pass.
        LookupError: no closed form of that name.
        TypeError: a closed form with other arguments.
    """
    _require_pass(pass_)

    def register(body: Body) -> Schedule:
        name, named = body.__name__, _keywords(body)
        required = tuple(key for key, parameter in named.items() if parameter.default is parameter.empty)
        made = Schedule(
            name=name,
            label=label,
            pass_=pass_,
            regime=regime,
            source=source,
            body=body,
            cost_form=_form(name, named),
            choose=tiles,
            publish=published,
            operands=tuple(inspect.signature(body).parameters)[1 : -len(named)],
            tile_names=tuple(key for key in required if key not in PROBLEM),
            needs=tuple(key for key in required if key in PROBLEM),
            options=tuple(key for key in named if key not in required),
            note=note,
            safe=safe,
            approximates=approximates,
            forward_extras=forward_extras,
        )
        REGISTRY[name] = made
        return made

    return register


def _require_pass(pass_: str) -> None:
    if pass_ not in PASSES:
        raise ValueError(f"pass_ must be one of {', '.join(PASSES)}, got {pass_!r}")


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters.items()
    return {name: parameter for name, parameter in found if parameter.kind is parameter.KEYWORD_ONLY}


def _form(name: str, named: Mapping[str, Any]) -> costs.Form:
    """Return the closed form of this name. Raises TypeError unless it takes the keyword arguments `named`."""
    form = costs.form_of(name)
    taken = _keywords(form)
    if set(taken) != set(named):
        raise TypeError(
            f"costs.{name} takes {', '.join(taken)}, but the schedule {name} takes {', '.join(named)}; "
            "both must take the same arguments"
        )
    return form


def register_files(files: Sequence[ModuleType]) -> None:
    """Sort the registry by `ORDER`.

    Raises ImportError naming a file that registers no schedule of its name.
    """
    for name in (file.__name__.rpartition(".")[2] for file in files):
        if name not in REGISTRY:
            raise ImportError(
                f"iocourse/schedules/{name}.py registers no schedule {name}. Decorate the function {name} "
                "with @schedule(...); if the file has only shared functions, let its name begin with _"
            )
    ordered = sorted(REGISTRY.values(), key=_place)
    REGISTRY.clear()
    REGISTRY.update({schedule.name: schedule for schedule in ordered})


def _place(schedule: Schedule) -> tuple[Any, ...]:
    """Return the sort key: dense schedules first, then by pass, then by `ORDER`, then by name."""
    listed = ORDER.index(schedule.name) if schedule.name in ORDER else len(ORDER)
    return bool(schedule.needs), list(PASSES).index(schedule.pass_), listed, schedule.name


def get(name: str) -> Schedule:
    """Return the schedule of this name. Raises ValueError, which lists the known names, for any other."""
    if name not in REGISTRY:
        raise ValueError(f"unknown schedule {name!r}; known schedules are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def of_pass(pass_: str) -> list[Schedule]:
    """Return the schedules of a pass that need no mask, w or g, in the order of the registry.

    Raises ValueError that lists the passes.
    """
    _require_pass(pass_)
    return [schedule for schedule in REGISTRY.values() if schedule.pass_ == pass_ and not schedule.needs]
