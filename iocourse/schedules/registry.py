"""The list of schedules: a schedule is a run on a machine, its closed form, and the tiles it wants.

Adding one is adding one file here, which decorates the function, and its closed form in `costs`: tables,
plots, the command line and the property tests find it, and the guard is put on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from .. import costs
from ..exact import Array
from ..ledger import Ledger
from ..machine import FastMemoryFull, Machine, SlowArray
from ..masks import Mask, Window
from ..monomials import rank_of
from ..sizes import Shape, check_sizes, positive_int, truth, zero_or_more
from ..solution_guard import library_solution, require_unblocked
from .pass_specs import PASSES, Exact, Pass

Tiles = dict[str, int]
Chooser = Callable[..., Tiles]
Outputs = SlowArray | tuple[SlowArray, ...]  # one array, or several in the order of the pass
Body = Callable[..., Outputs]

PROBLEM = ("mask", "w", "g")  # what is computed, beside N and d; a schedule may not choose these


@dataclass(frozen=True)
class Approximates:
    """What an approximation computes exactly: `exact(arrays, **needs)`, which `name` says in words."""

    name: str
    exact: Callable[..., Exact]


@dataclass(frozen=True)
class ForwardExtras:
    """Arrays that its own forward pass leaves to a backward pass, beside those every backward pass may have.

    `shapes(N, d, **needs)` by name; `made(arrays, **needs)` from the arrays of the pass.
    """

    shapes: Callable[..., dict[str, Shape]]
    made: Callable[..., dict[str, Array]]


@dataclass(frozen=True)
class Schedule:
    """One way to move the words of one pass.

    Calling it runs it on a machine: `schedule(m, Q, K, V, **tiles)` returns the slow array it filled, with
    `lse=True` also that of the rows' log-sum-exp: (O, LSE). A backward pass returns (dQ, dK, dV). `operands`
    are the arrays it takes, `tile_names` the sizes it must be given, `needs` and `options` what else it
    must and may be given (`mask`, `w`, `g`, `lse`). `choose` picks the best tiles of its loop order,
    `publish` those that a paper gives with it, or is None. `safe` is False where large scores overflow.
    `approximates` is None where the values are the pass's own; an approximation says what its values are
    instead.
    `forward_extras` is None where it takes arrays of its pass alone.
    `lesson` is the lesson that teaches it, the section, and its place among several there; `label` is what
    the lessons' formulas call it, such as F3.
    """

    name: str
    label: str
    pass_: str
    lesson: tuple[int, ...]
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
        """What a picture calls it: the lessons' letter, where it has one, and the name: F3 flash_optimal."""
        return f"{self.label} {self.name}".lstrip()

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.body.__doc__

    def __reduce__(self) -> tuple[Callable[[str], Schedule], tuple[str]]:
        return get, (self.name,)  # a pickle says which it is, and is opened as the registry's own

    def __repr__(self) -> str:
        return f"schedule {self.name}(m, {', '.join((*self.operands, *self.needs, *self.tile_names))})"

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def __wrapped__(self) -> Body:  # for inspect.getsource: the code as it was written
        return self.body

    @property
    def problem(self) -> Pass:
        """What goes in and must come out."""
        return PASSES[self.pass_]

    def expected(
        self, arrays: Mapping[str, Array], mask: Mask | None = None, settings: Mapping[str, Any] | None = None
    ) -> Exact:
        """The values that must come out for these inputs, in the order of the pass: exact, or what it stands
        for. `mask` is the one that `settings` mean (see `mask_of`); of `settings` the degree matters.
        """
        if self.approximates is None:
            return self.problem.exact(arrays, mask)
        return self.approximates.exact(arrays, **self.needed(settings or {}))

    def needed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Of `settings` what says which problem is solved."""
        return {name: settings[name] for name in self.needs if name in settings}

    @property
    def given_weights(self) -> bool:
        """True where P (N, N) is an input: words that the pass before had to store for it."""
        return "P" in self.operands

    def __call__(self, m: Machine, *arrays: SlowArray, **named: Any) -> Outputs:
        require_unblocked(f"iocourse.schedules.{self.name}")
        self._refuse_other_arrays(arrays, named)
        operands = arrays or tuple(named[name] for name in self.operands if name in named)
        settings = {name: value for name, value in named.items() if name not in self.operands}
        N, d = self._sizes_of(operands)
        settings = self._checked(N, settings)
        self._require_shapes(operands, self.shapes(N, d, **settings))
        try:
            return self.body(m, *operands, **settings)
        except FastMemoryFull as error:
            error.advice = lambda: f"{self.name}: {self.advice(N, d, m.M, **settings)}."
            raise

    def _checked(self, N: int, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Tiles, needs and options, sizes as ints: each known, of the right kind, and none missing."""
        for name in settings:
            if name in (*PROBLEM, "lse") and name not in (*self.needs, *self.options):
                raise TypeError(f"{self.name} takes no {name}")
            if name not in (*self.tile_names, *self.needs, *self.options):
                has = ", ".join(self.tile_names) or "none"
                raise TypeError(f"{self.name} has no tile size {name!r}; it has {has}")
        self._require_all(N, settings)
        return self._numbers(settings)

    def _numbers(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, sizes as ints and `lse` as a bool. Raises what names the first that is none."""
        kinds = {**dict.fromkeys((*self.tile_names, "g"), positive_int), "w": zero_or_more, "lse": truth}
        return {name: kinds[name](name, v) if name in kinds else v for name, v in settings.items()}

    def _require_all(self, N: int, settings: Mapping[str, Any]) -> None:
        missing = [name for name in self.tile_names if name not in settings]
        if missing:
            raise TypeError(
                f"{self.name} needs the tile size(s) {', '.join(missing)}; tiles(N, d, M) picks them"
            )
        for name in self.needs:
            if settings.get(name) is None:
                raise TypeError(f"{self.name} needs {name}=…, which says what is to be computed")
        mask = settings.get("mask")
        if mask is not None and not isinstance(mask, Mask):
            raise TypeError(f"mask must be one of iocourse.masks, got {type(mask).__name__}")
        if mask is not None and mask.N != N:
            raise ValueError(f"mask is for N = {mask.N}, but the arrays have N = {N} rows")

    @property
    def _listed(self) -> str:
        return f"{', '.join(self.operands[:-1])} and {self.operands[-1]}"

    def _refuse_other_arrays(self, arrays: tuple[SlowArray, ...], named: Mapping[str, Any]) -> None:
        """Too many, or by a name it has not; with what the pass says to those who bring them."""
        brought = [name for name, value in named.items() if isinstance(value, SlowArray)]
        others = [name for name in brought if name not in self.operands]
        advice = f"; {self.problem.other_arrays}" if self.problem.other_arrays else ""
        if others:
            raise TypeError(f"{self.name} takes {self._listed}, no {', '.join(others)}{advice}")
        if len(arrays) > len(self.operands):
            raise TypeError(f"{self.name} takes {self._listed}; it was given {len(arrays)} array(s){advice}")

    def _sizes_of(self, arrays: tuple[SlowArray, ...]) -> tuple[int, int]:
        """N and d, after every array has been found in its place and in slow memory."""
        if len(arrays) != len(self.operands):
            raise TypeError(f"{self.name} takes {self._listed}; it was given {len(arrays)} array(s)")
        given = dict(zip(self.operands, arrays, strict=True))
        for name, array in given.items():
            if not isinstance(array, SlowArray):
                raise TypeError(f"{name} must be in slow memory (machine.slow), not a {type(array).__name__}")
        first = self._first_of_rows
        if len(given[first].shape) != 2:
            raise ValueError(f"{first} has shape {given[first].shape}; the schedules take one head, (N, d)")
        N, d = given[first].shape
        return int(N), int(d)

    @property
    def _first_of_rows(self) -> str:
        """The first operand that is N x d, which says what N and d are."""
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
        """The closed form for these tiles and options: words per array, and the footprint as `peak`."""
        N, d = check_sizes(N=N, d=d)
        return self.cost_form(N, d, **self._checked(N, settings))

    def count(self, N: int, d: int, M: int, *, published: bool = False, **settings: Any) -> Ledger:
        """The closed form in M words of fast memory, with the tiles given and, of the others, those it picks
        (or its paper's, see `tiles`).

        Raises ValueError where they do not fit, naming the tiles that would or the smallest M that works.
        """
        N, d, M = check_sizes(N=N, d=d, M=M)
        settings = self.tiles(N, d, M, published=published, **_problem(settings)) | settings
        ledger = self.cost(N, d, **settings)
        if ledger.peak > M:
            tiles = ", ".join(f"{name}={settings[name]}" for name in self.tile_names)
            raise ValueError(
                f"{self.name} with {tiles} needs {ledger.peak} words, {ledger.peak - M} more than M = {M}; "
                f"{self.advice(N, d, M, **settings)}"
            )
        return ledger

    def smallest_M(self, N: int, d: int, **problem: Any) -> int:
        """Words of fast memory below which no tile size of this schedule fits."""
        return self.cost(N, d, **dict.fromkeys(self.tile_names, 1), **problem).peak

    def tiles(self, N: int, d: int, M: int, *, published: bool = False, **problem: Any) -> Tiles:
        """The best tile sizes of this loop order for M words, or with `published` those of its paper.

        Raises ValueError naming the smallest M where none fits, and by how many words published sizes are
        short; where no sizes are published it names the schedules that have some.
        """
        N, d, M = check_sizes(N=N, d=d, M=M)
        if truth("published", published):
            return self._published_tiles(N, d, M)
        least = self.smallest_M(N, d, **problem)
        if least > M:
            raise ValueError(
                f"M = {M} is too small for {self.name} at N = {N}, d = {d}: "
                f"the smallest M that works is {least}"
            )
        picked = self.choose(N, d, M, **self._numbers(self.needed(problem)))
        # A mask that hides every pair leaves less to hold than the choosers count on.
        return {name: max(1, size) for name, size in picked.items()}

    def _published_tiles(self, N: int, d: int, M: int) -> Tiles:
        if self.publish is None:
            some = ", ".join(one.name for one in REGISTRY.values() if one.publish)
            raise ValueError(f"published: no paper gives tiles for {self.name}; these have some: {some}")
        sizes = self.publish(N, d, M)
        needed = self.cost(N, d, **sizes).peak
        if needed > M:
            shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise ValueError(
                f"published: {self.name} with {shown} needs {needed} words, {needed - M} more than M = {M}; "
                "without published its best tiles are taken"
            )
        return sizes

    def largest_tiles(self, N: int, d: int, M: int, **settings: Any) -> Tiles:
        """For each tile size the largest that fits in M words with the others as they are; 0 where none does.

        Under a mask, where a ragged edge can make a larger size need less, one whose next does not.
        """
        require_unblocked(f"iocourse.schedules.{self.name}.largest_tiles")
        N, d, M = check_sizes(N=N, d=d, M=M)
        settings = self._checked(N, settings)

        def fits(name: str, size: int) -> bool:
            return self.cost_form(N, d, **{**settings, name: size}).peak <= M

        most = max(N, d, rank_of(d, settings["g"]) if "g" in settings else 1)
        return {name: _largest(partial(fits, name), most) for name in self.tile_names}

    def advice(self, N: int, d: int, M: int, **settings: Any) -> str:
        """In words, the tile sizes that would fit where these do not."""
        problem = _problem(settings)
        least = self.smallest_M(N, d, **problem)
        if least > M:
            return f"no tiles fit, the smallest M that works is {least}"
        largest = self.largest_tiles(N, d, M, **settings)
        if not any(largest.values()):
            picked = ", ".join(f"{name}={size}" for name, size in self.tiles(N, d, M, **problem).items())
            return f"no size of one tile fits with the others as given, {picked} would"
        found = [f"the largest {name} that fits is {size}" for name, size in largest.items() if size]
        found += [f"no {name} fits" for name, size in largest.items() if not size]
        return f"with the other tiles as given, {', '.join(found)}"

    def shapes(self, N: int, d: int, **settings: Any) -> dict[str, Shape]:
        """The shape of each array it takes, for a dry run; of `settings` the degree matters."""
        known = self.problem.shapes(N, d)
        if self.forward_extras:
            known |= self.forward_extras.shapes(N, d, **self.needed(settings))
        return {name: known[name] for name in self.operands}

    def drawn(
        self, rng: np.random.Generator, N: int, d: int, mask: Mask | None, settings: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Random inputs of its pass, with what its own forward pass makes of them."""
        arrays = self.problem.draw(rng, N, d, mask)
        return arrays | (
            self.forward_extras.made(arrays, **self.needed(settings)) if self.forward_extras else {}
        )


def mask_of(N: int, problem: dict[str, Any]) -> Mask | None:
    """The mask that the parameters of a schedule mean: `mask` itself, or a window of width `w`."""
    mask: Mask | None = Window(N, problem["w"]) if "w" in problem else problem.get("mask")
    return mask


def _problem(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of `settings` what says which problem is solved, by any schedule."""
    return {name: value for name, value in settings.items() if name in PROBLEM}


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest size up to `most` that fits, 0 where none does; a size below one that fits, fits too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


REGISTRY: dict[str, Schedule] = {}


def _no_note(N: int, d: int, M: int, **problem: Any) -> str:
    return ""


def schedule(
    *,
    pass_: str,
    lesson: tuple[int, ...],
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
    """Register the decorated function under its own name; its closed form is `costs.<name>`.

    `tiles` and `note` take N, d, M and what the schedule needs, `published` takes N, d, M. `approximates`
    belongs to an approximation, `forward_extras` to a backward pass whose own forward pass leaves it arrays.
    `lesson` is (lesson, section), or (lesson, section, place) where a section teaches several.
    Raises LookupError where there is no closed form, TypeError where it takes other arguments.
    """
    _require_pass(pass_)
    numbers = isinstance(lesson, tuple) and all(isinstance(number, int) for number in lesson)
    if not numbers or len(lesson) not in (2, 3):
        raise TypeError(f"lesson = {lesson!r} must be (lesson, section) or (lesson, section, place)")

    def register(body: Body) -> Schedule:
        name, named = body.__name__, _keywords(body)
        required = tuple(key for key, parameter in named.items() if parameter.default is parameter.empty)
        made = Schedule(
            name=name,
            label=label,
            pass_=pass_,
            lesson=lesson,
            regime=regime,
            source=source,
            body=library_solution(body),
            cost_form=_form(name, named),
            choose=library_solution(tiles),
            publish=published and library_solution(published),
            operands=tuple(inspect.signature(body).parameters)[1 : -len(named)],
            tile_names=tuple(key for key in required if key not in PROBLEM),
            needs=tuple(key for key in required if key in PROBLEM),
            options=tuple(key for key in named if key not in required),
            note=note,
            safe=safe,
            approximates=approximates and replace(approximates, exact=library_solution(approximates.exact)),
            forward_extras=forward_extras
            and replace(forward_extras, made=library_solution(forward_extras.made)),
        )
        REGISTRY[name] = made
        return made

    return register


def _require_pass(pass_: str) -> None:
    if pass_ not in PASSES:
        raise ValueError(f"pass_ = {pass_!r} is unknown; there are {', '.join(PASSES)}")


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters.items()
    return {name: parameter for name, parameter in found if parameter.kind is parameter.KEYWORD_ONLY}


def _form(name: str, named: Mapping[str, Any]) -> costs.Form:
    """The closed form of that name, which must take the arguments of the schedule."""
    form = costs.form_of(name)
    taken = _keywords(form)
    if set(taken) != set(named):
        raise TypeError(
            f"costs.{name} takes {', '.join(taken)}; the schedule {name} takes {', '.join(named)}"
        )
    return form


def register_files(files: Sequence[ModuleType]) -> None:
    """Bring the schedules of these files into the order of the course, and guard all that the files make
    public. Raises ImportError that names a file without a schedule of its name.
    """
    for name in (file.__name__.rpartition(".")[2] for file in files):
        if name not in REGISTRY:
            raise ImportError(
                f"iocourse/schedules/{name}.py registers no schedule {name}: decorate the function {name} "
                "with @schedule(...), or begin the file's name with _ where it holds parts of others"
            )
    _guard(files)
    ordered = sorted(REGISTRY.values(), key=_place)
    REGISTRY.clear()
    REGISTRY.update({schedule.name: schedule for schedule in ordered})


def _place(schedule: Schedule) -> tuple[Any, ...]:
    """Where a schedule stands in the course."""
    return bool(schedule.needs), list(PASSES).index(schedule.pass_), schedule.lesson, schedule.name


def _guard(files: Sequence[ModuleType]) -> None:
    """What solves an exercise refuses inside a check, also where one schedule has it from another."""
    own = {file.__name__ for file in files}
    for file in files:
        for name, part in list(vars(file).items()):
            if name[0] != "_" and isinstance(part, FunctionType) and part.__module__ in own:
                setattr(file, name, library_solution(part))


def get(name: str) -> Schedule:
    """The schedule called `name`. Raises ValueError that lists the names there are."""
    if name not in REGISTRY:
        raise ValueError(f"there is no schedule {name!r}; there are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def of_pass(pass_: str) -> list[Schedule]:
    """The dense schedules of a pass, in the order of the course. Raises ValueError that lists the passes."""
    _require_pass(pass_)
    return [schedule for schedule in REGISTRY.values() if schedule.pass_ == pass_ and not schedule.needs]
