"""Programs whose numbers stay in vector registers, written from Python and compiled in part of a second.

`Word`, `Vector` and `Numbers` stand for a whole number, float32 numbers that fill a register, and float32
numbers in memory of a program that is being written: adding two of them writes an addition. `Program.loop`
writes a loop, `Program.fold` one that carries vectors from turn to turn in registers. How wide and how many
these are is a fact of the `Processor`. llvmlite, which comes with Numba, turns what is written into machine
code; nothing is inferred, so that this takes little time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from llvmlite import binding, ir

SPARE = 64  # vectors a function has room for besides what it is given
WORD, FLOAT, LANE = ir.IntType(64), ir.FloatType(), ir.IntType(32)
C_KINDS = {
    "words": ctypes.c_void_p,
    "numbers": ctypes.c_void_p,
    "word": ctypes.c_int64,
    "number": ctypes.c_float,
}
KINDS = {"words": WORD.as_pointer(), "numbers": FLOAT.as_pointer(), "word": WORD, "number": FLOAT}
names = count()


@dataclass(frozen=True)
class Processor:
    """Vector registers: float32 numbers in one, how many there are, what they need, and what LLVM is told."""

    lanes: int
    registers: int
    needs: tuple[str, ...]
    told: str


AVX512 = Processor(16, 32, ("avx512f",), "-prefer-256-bit")
AVX2 = Processor(8, 16, ("avx2", "fma"), "-avx512f")


@cache
def _everywhere(kind: Any, value: float) -> Any:
    """A number in every lane; most are 0, which has a short name in LLVM's text."""
    return ir.Constant(kind, [float(np.float32(value))] * kind.count if value else None)


class Word:
    """A whole number."""

    def __init__(self, program: Program, value: Any) -> None:
        self.program, self.value = program, value

    def _with(self, write: str, other: Word | int) -> Word:
        b = self.program.builder
        return Word(self.program, getattr(b, write)(self.value, self.program.word(other).value))

    def __add__(self, other: Word | int) -> Word:
        return self._with("add", other)

    def __sub__(self, other: Word | int) -> Word:
        return self._with("sub", other)

    def __mul__(self, other: Word | int) -> Word:
        return self._with("mul", other)

    def __floordiv__(self, other: Word | int) -> Word:
        return self._with("udiv", other)

    def __mod__(self, other: Word | int) -> Word:
        return self._with("urem", other)

    def __lt__(self, other: Word | int) -> Any:
        return self.program.builder.icmp_signed("<", self.value, self.program.word(other).value)

    def least(self, other: Word | int) -> Word:
        """The smaller of the two."""
        smaller: Word = self.program.either(self < other, self, self.program.word(other))
        return smaller

    def largest(self, other: Word | int) -> Word:
        """The larger of the two."""
        larger: Word = self.program.either(self < other, self.program.word(other), self)
        return larger


class Vector:
    """The numbers in a register."""

    def __init__(self, program: Program, value: Any) -> None:
        self.program, self.value = program, value

    def _with(self, write: str, other: Vector) -> Vector:
        return Vector(self.program, getattr(self.program.builder, write)(self.value, other.value))

    def __add__(self, other: Vector) -> Vector:
        return self._with("fadd", other)

    def __sub__(self, other: Vector) -> Vector:
        return self._with("fsub", other)

    def __mul__(self, other: Vector) -> Vector:
        return self._with("fmul", other)

    def __truediv__(self, other: Vector) -> Vector:
        return self._with("fdiv", other)

    def plus(self, x: Vector, y: Vector) -> Vector:
        """self + x · y, rounded once."""
        return self.program.call("llvm.fma", x, y, self)

    def __neg__(self) -> Vector:
        return Vector(self.program, self.program.builder.fneg(self.value))

    def size(self) -> Vector:
        """Without signs."""
        return self.program.call("llvm.fabs", self)

    def _picked(self, sign: str, other: Vector) -> Vector:
        p, b = self.program, self.program.builder
        if p.lanes == 8:  # or LLVM might write under a mask, which AMD's processors are slow at
            return p.call(f"llvm.x86.avx.{'min' if sign == '<' else 'max'}.ps.256", other, self)
        taken = b.fcmp_ordered(sign, other.value, self.value)
        return Vector(p, b.select(taken, other.value, self.value))

    def least(self, other: Vector) -> Vector:
        """Lane by lane the smaller one; a lane of self that is no number stays."""
        return self._picked("<", other)

    def largest(self, other: Vector) -> Vector:
        """Lane by lane the larger one; a lane of self that is no number stays."""
        return self._picked(">", other)

    def shuffled(self, other: Vector, lanes: Sequence[int]) -> Vector:
        """The lanes of the two, one after the other, with these numbers."""
        mask = ir.Constant(ir.VectorType(LANE, len(lanes)), list(lanes))
        return Vector(self.program, self.program.builder.shuffle_vector(self.value, other.value, mask))

    @property
    def width(self) -> int:
        """How many numbers these are."""
        return int(self.value.type.count)

    def lane(self, i: int) -> Any:
        """The number in lane i."""
        return self.program.builder.extract_element(self.value, ir.Constant(LANE, i))


class Numbers:
    """float32 numbers in memory, from one on; offsets count numbers."""

    def __init__(self, program: Program, pointer: Any) -> None:
        self.program, self.pointer = program, pointer

    def __add__(self, offset: Word | int) -> Numbers:
        at = self.program.word(offset).value
        return Numbers(self.program, self.program.builder.gep(self.pointer, [at]))

    def _as(self, offset: Word | int, kind: Any) -> Any:
        return self.program.builder.bitcast((self + offset).pointer, kind.as_pointer())

    def vector(self, offset: Word | int = 0, lanes: int = 0) -> Vector:
        """The numbers from offset on, as many as a register has lanes, or so many."""
        b, kind = self.program.builder, ir.VectorType(FLOAT, lanes or self.program.lanes)
        return Vector(self.program, b.load(self._as(offset, kind), align=4))

    def put(self, offset: Word | int, vector: Vector) -> None:
        """Write all lanes from offset on."""
        self.program.builder.store(vector.value, self._as(offset, vector.value.type), align=4)

    def number(self, offset: Word | int = 0) -> Any:
        """The number there."""
        return self.program.builder.load((self + offset).pointer)

    def put_number(self, offset: Word | int, number: Any) -> None:
        """Write one number."""
        self.program.builder.store(number, (self + offset).pointer)

    def spread(self, offset: Word | int = 0) -> Vector:
        """The number there in every lane."""
        return self.program.spread(self.number(offset))


class Words:
    """Whole numbers in memory."""

    def __init__(self, program: Program, pointer: Any) -> None:
        self.program, self.pointer = program, pointer

    def __getitem__(self, at: Word | int) -> Word:
        b = self.program.builder
        return Word(self.program, b.load(b.gep(self.pointer, [self.program.word(at).value])))

    def numbers(self, at: Word | int) -> Numbers:
        """The numbers whose address stands there."""
        address = self[at].value
        return Numbers(self.program, self.program.builder.inttoptr(address, FLOAT.as_pointer()))


WRAPPED: dict[str, Callable[[Program, Any], Any]] = {
    "words": Words, "numbers": Numbers, "word": Word, "number": lambda _, value: value,
}  # fmt: skip


class Program:
    """Functions that are being written for a processor, and where the next line goes."""

    def __init__(self, processor: Processor) -> None:
        self.processor, self.lanes = processor, processor.lanes
        self.kind = ir.VectorType(FLOAT, self.lanes)
        self.whole = ir.VectorType(LANE, self.lanes)  # a whole number in every lane
        self.module = ir.Module(name=f"registers{next(names)}")
        self.builder: Any = None
        self.spare: Any = None  # room for a few vectors, of the function that is being written
        self._routines: dict[str, Any] = {}

    def begin(self, name: str, kinds: Sequence[str]) -> list[Any]:
        """Begin a function of arguments of these kinds, keys of KINDS; what follows is written into it."""
        function = ir.Function(self.module, ir.FunctionType(WORD, [KINDS[kind] for kind in kinds]), name)
        function.attributes.add("nounwind")
        self.builder = ir.IRBuilder(function.append_basic_block())
        room = self.builder.alloca(ir.ArrayType(FLOAT, SPARE * self.lanes))
        room.align = 4 * self.lanes
        self.spare = Numbers(self, self.builder.bitcast(room, FLOAT.as_pointer()))
        return [WRAPPED[kind](self, value) for kind, value in zip(kinds, function.args, strict=True)]

    def end(self, value: Word | int = 0) -> None:
        """End it; it hands back this whole number."""
        self.builder.ret(self.word(value).value)

    def routine(self, name: str, kinds: Sequence[str], write: Callable[..., None], *values: Any) -> None:
        """Call the function of that name; write(*arguments) writes it when it is first called."""
        if name not in self._routines:
            outer = self.builder, self.spare
            write(*self.begin(name, kinds))
            self.end()
            self._routines[name] = self.builder.function
            self.builder, self.spare = outer
        self._called(self._routines[name], values)

    def invoke(self, name: str, *values: Any) -> Word:
        """What the function of that name, which is written already, hands back."""
        return self._called(self.module.globals[name], values)

    def _called(self, function: Any, values: Sequence[Any]) -> Word:
        given = [x.pointer if isinstance(x, (Numbers, Words)) else x for x in values]
        plain = [self.word(x).value if isinstance(x, (Word, int)) else x for x in given]
        return Word(self, self.builder.call(function, plain))

    # ---- values

    def word(self, value: Word | int) -> Word:
        """A whole number that is known while the program is written."""
        return value if isinstance(value, Word) else Word(self, ir.Constant(WORD, value))

    def number(self, value: float) -> Any:
        """A number that is known while the program is written."""
        return ir.Constant(FLOAT, float(np.float32(value)))

    def as_number(self, word: Word) -> Any:
        """A whole number as a float32 number."""
        return self.builder.sitofp(word.value, FLOAT)

    def size_of(self, number: Any) -> Any:
        """A number without its sign."""
        negative = self.builder.fcmp_ordered("<", number, self.number(0.0))
        return self.builder.select(negative, self.builder.fneg(number), number)

    def truth(self, condition: Any) -> Word:
        """1 where the condition holds, else 0."""
        return Word(self, self.builder.zext(condition, WORD))

    def vector(self, value: float) -> Vector:
        """A number that is known while the program is written, in every lane."""
        return Vector(self, _everywhere(self.kind, value))

    def zeros(self, many: int) -> list[Vector]:
        """So many vectors of 0."""
        return [self.vector(0.0)] * many

    def spread(self, number: Any) -> Vector:
        """A number in every lane."""
        empty, first = ir.Constant(self.kind, ir.Undefined), ir.Constant(LANE, 0)
        one = self.builder.insert_element(empty, number, first)
        everywhere = ir.Constant(self.whole, None)  # lane 0, in one word of LLVM's text
        return Vector(self, self.builder.shuffle_vector(one, empty, everywhere))

    def gathered(self, numbers: Sequence[Any], many: int) -> Vector:
        """A vector of so many lanes that begins with these numbers; after them 0."""
        kind = ir.VectorType(FLOAT, many)
        made = ir.Constant(kind, [0.0] * many)
        for i, number in enumerate(numbers):
            made = self.builder.insert_element(made, number, ir.Constant(LANE, i))
        return Vector(self, made)

    def either(self, condition: Any, x: Any, y: Any) -> Any:
        """x where the condition holds, else y: both Words, both Vectors or both Numbers."""
        name = "pointer" if isinstance(x, Numbers) else "value"
        chosen = self.builder.select(condition, getattr(x, name), getattr(y, name))
        return type(x)(self, chosen)

    def call(self, name: str, *values: Vector) -> Vector:
        """One of LLVM's own functions of vectors, lane by lane."""
        kind = values[0].value.type
        full = name if ".x86." in name else f"{name}.v{kind.count}f32"
        found = self.module.globals.get(full)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(kind, [kind] * len(values)), full)
        return Vector(self, self.builder.call(found, [x.value for x in values]))

    def power_of_2(self, k: Vector) -> Vector:
        """2ᵏ for whole k from -126 to 128, where it is infinite, by its bits."""
        b, kind, lanes = self.builder, self.whole, self.lanes
        exponent = b.add(b.fptosi(k.value, kind), ir.Constant(kind, [127] * lanes))
        return Vector(self, b.bitcast(b.shl(exponent, ir.Constant(kind, [23] * lanes)), self.kind))

    def first_lanes(self, many: Word) -> Vector:
        """1 in the first lanes, so many of them, 0 in the others."""
        b, kind, lanes = self.builder, self.whole, self.lanes
        narrow = b.trunc(many.least(lanes).largest(0).value, LANE)
        empty = ir.Constant(kind, ir.Undefined)
        one = b.insert_element(empty, narrow, ir.Constant(LANE, 0))
        limit = b.shuffle_vector(one, empty, ir.Constant(kind, [0] * lanes))
        inside = b.icmp_signed("<", ir.Constant(kind, list(range(lanes))), limit)
        return Vector(self, b.select(inside, self.vector(1.0).value, self.vector(0.0).value))

    # ---- order

    @contextmanager
    def loop(self, start: Word | int, stop: Word | int, step: Word | int = 1) -> Iterator[Word]:
        """What is written inside is done for start, start + step, … below stop."""
        i, _, leave = self._head(start, stop, [])
        yield i
        leave(i + step, [])

    def fold(
        self, start: Word | int, stop: Word | int, step: Word | int,
        turn: Callable[[Word, list[Vector]], Sequence[Vector]], carried: Sequence[Vector],
    ) -> list[Vector]:  # fmt: skip
        """As `loop`; turn(i, vectors) gives the vectors of the next turn; those after the last come back."""
        i, vectors, leave = self._head(start, stop, carried)
        leave(i + step, turn(i, vectors))
        return vectors

    def _head(
        self, start: Word | int, stop: Word | int, carried: Sequence[Vector]
    ) -> tuple[Word, list[Vector], Callable[[Word, Sequence[Vector]], None]]:
        b, first, limit = self.builder, self.word(start), self.word(stop)
        before = b.block
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        i, phis = b.phi(WORD), [b.phi(self.kind) for _ in carried]
        b.cbranch(b.icmp_signed("<", i, limit.value), inside, after)
        for phi, value in zip([i, *phis], [first.value, *(x.value for x in carried)], strict=True):
            phi.add_incoming(value, before)
        b.position_at_end(inside)

        def leave(following: Word, vectors: Sequence[Vector]) -> None:
            for phi, value in zip([i, *phis], [following.value, *(x.value for x in vectors)], strict=True):
                phi.add_incoming(value, b.block)
            b.branch(head)
            b.position_at_end(after)

        return Word(self, i), [Vector(self, phi) for phi in phis], leave

    @contextmanager
    def when(self, condition: Any) -> Iterator[None]:
        """What is written inside is done where the condition holds."""
        with self.builder.if_then(condition):
            yield


# ---- machine code ------------------------------------------------------------------------------------------


@cache
def here() -> tuple[Processor, ...]:
    """What this processor can be, the widest first; none where such programs cannot run."""
    if binding.get_process_triple().split("-")[0] != "x86_64":
        return ()
    has = binding.get_host_cpu_features()
    return tuple(kind for kind in (AVX512, AVX2) if all(has.get(name) for name in kind.needs))


def _machine(processor: Processor) -> Any:
    for initialize in (binding.initialize_native_target, binding.initialize_native_asmprinter):
        initialize()
    target = binding.Target.from_triple(binding.get_process_triple())
    features = f"{binding.get_host_cpu_features().flatten()},{processor.told}"
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=2)


class Compiled:
    """The machine code of a program; functions by name, which hold no lock of Python's while they run.

    None of LLVM's passes over a whole program are run: what is written has nothing left for them to find, and
    they would take more time than all the rest.
    """

    def __init__(self, program: Program, kinds: dict[str, Sequence[str]]) -> None:
        module = binding.parse_assembly(str(program.module))
        module.verify()
        self._engine = binding.create_mcjit_compiler(module, _machine(program.processor))
        self._engine.finalize_object()
        self.functions = {name: self._function(name, each) for name, each in kinds.items()}

    def _function(self, name: str, kinds: Sequence[str]) -> Callable[..., int]:
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *(C_KINDS[kind] for kind in kinds))
        return prototype(self._engine.get_function_address(name))
