"""Inner loop of a kernel, found in its machine code: count the instructions per thread and iteration.

A loop is closed by a backward branch and entered only at its head. Candidates are innermost loops that
multiply. The hot loop is the shortest candidate with (nearly) all products, because a causal kernel has each
product twice, in a loop with a mask and in one without, and most tiles run in the loop without.

Source: NVIDIA, CUDA Binary Utilities, "Instruction Set Reference", for the names of instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@\S+\s+)?([A-Z][A-Z0-9_]*)(\S*)([^;]*);")
_LABEL = re.compile(r"^([.$\w]+):")
_TARGET = re.compile(r"`\(([^)]+)\)")
_ENCODING = re.compile(r"/\* (0x[0-9a-f]{16}) \*/\s*$")
_STALL = 41, 0xF  # bits of the second word: clocks until the warp issues again
_KINDS = {
    "wgmma": "[A-Z]GMMA",
    "mma": "[HIQO]MMA",
    "tcgen05": "UTC[A-Z]*MMA",
    "fma": "FFMA2?",
    "special": "MUFU",
    "barriers": "BAR",
    "global_loads": "LDG|LDGSTS",
    "tile_loads": "UTMALDG",
    "shared_loads": "LDS|LDSM",
    "spills": "LDL|STL",
    "waits": r"WARPGROUP\.DEPBAR.*",
    "exponentials": r"MUFU\.EX2.*",
}
_TENSOR_CORE = re.compile(r"[A-Z]G?MMA|UTC[A-Z]*MMA")
_SHAPE = re.compile(r"[A-Z]GMMA\.(\d+)x(\d+)x(\d+)|[A-Z]MMA\.(16)(8)(\d+)")  # rows, columns, inner size
_FACTORS = {"BF16": "bfloat16", "TF32": "tf32", "E4M3": "float8", "E5M2": "float8"}  # float16 has no suffix
_SUMS = {"F32": "float32", "F16": "float16"}
_NEARLY_ALL = 0.9  # two loops of a kernel may differ in a few multiplications outside their products


@dataclass(frozen=True)
class Loop:
    """Instructions per thread in one iteration of a loop: the total, and by kind.

    wgmma: products of four warps, operands in shared memory (sm_90). mma: products of one warp, operands in
    registers. tcgen05: products from tensor memory (sm_100). fma: float32 multiplications. special:
    exponentials, logarithms and reciprocals. barriers: waits for other warps. global_loads: by pointers,
    asynchronous or not. tile_loads: tiles copied through a descriptor. shared_loads: from shared memory into
    registers. spills: loads and stores of spilled registers. waits: for wgmma; if there are as many as
    products, each product runs alone (`serialised`). exponentials: part of special. stall_clocks: sum of the
    clocks in the instructions' control bits, for which a warp issues nothing, in addition to other waits. The
    last three are None in records that are older than these counts. opcodes: every instruction by its name in
    the machine code, with suffixes; None in a record.
    """

    instructions: int
    wgmma: int
    mma: int
    tcgen05: int
    fma: int
    special: int
    barriers: int
    global_loads: int
    tile_loads: int
    shared_loads: int
    spills: int
    waits: int | None = None
    exponentials: int | None = None
    stall_clocks: int | None = None
    opcodes: Mapping[str, int] | None = field(default=None, compare=False)

    @property
    def products(self) -> dict[str, int]:
        """Tensor-core instructions by name, such as {"HGMMA.64x64x16.F32.BF16": 16}; needs `opcodes`."""
        return {name: n for name, n in (self.opcodes or {}).items() if _TENSOR_CORE.match(name)}

    @property
    def products_in_words(self) -> str:
        """The products with their counts, or the number of float32 multiply-adds; needs `opcodes`."""
        products = " and ".join(f"{n} {name}" for name, n in self.products.items())
        return products or f"{self.fma:,} FFMA"

    def named(self, *opcodes: str) -> int:
        """Number of instructions with one of these names, without suffixes; needs `opcodes`."""
        return sum(n for name, n in (self.opcodes or {}).items() if name.split(".")[0] in opcodes)

    def multiply_adds(self, warps: int) -> dict[tuple[str, str], int]:
        """Multiply-adds on tensor cores per iteration, by the types of factors and sums; needs `opcodes`.

        Types are float16, bfloat16, tf32, float8 and float32. Integer products and those of sm_100, whose
        names have no shape, are not counted.

        Args:
            warps: of the program. One HGMMA belongs to four of them, one HMMA to each.
        """
        found = Counter[tuple[str, str]]()
        for name, count in self.products.items():
            shape = _SHAPE.match(name)
            sums = next((kind for suffix, kind in _SUMS.items() if f".{suffix}" in name), None)
            if shape is None or sums is None:
                continue
            rows, columns, inner = (int(size) for size in shape.groups() if size)
            factors = next((kind for suffix, kind in _FACTORS.items() if f".{suffix}" in name), "float16")
            units = warps // 4 if "GMMA" in name else warps
            found[factors, sums] += count * units * rows * columns * inner
        return dict(found)

    @property
    def serialised(self) -> bool:
        """True if the loop waits for each wgmma before the next one, so that none overlaps other work."""
        return self.waits is not None and 0 < self.wgmma <= self.waits

    @property
    def tensor(self) -> int:
        """Number of tensor-core instructions of any kind."""
        return self.wgmma + self.mma + self.tcgen05


@dataclass(frozen=True)
class _Instruction:
    """One instruction of the machine code.

    name: up to the first dot. kind: name with its suffixes. target: label of a jump, or None. ends: True if
    execution never continues with the next instruction. stall: clocks, 0 if the encoding is not printed.
    """

    name: str
    kind: str
    target: str | None
    ends: bool
    stall: int = 0


def hot_loop(sass: str) -> Loop | None:
    """Return the instructions of one iteration of the hot loop; None if no loop multiplies.

    sass: output of `nvdisasm --print-code --print-instruction-encoding` for one kernel; without encodings,
    stall clocks are 0.
    """
    found = loops(sass)
    most = max((_products(one, found) for one in found), default=0)
    full = [one for one in found if _products(one, found) >= _NEARLY_ALL * most]
    return min(full, key=lambda one: one.instructions, default=None)


def loops(sass: str) -> list[Loop]:
    """Return the innermost loops that multiply, in code order: on tensor cores if any loop does,
    otherwise in float32.

    The code from a loop's head to its last backward branch is counted. Code that the compiler places after
    the end of the kernel, for waits that do not succeed at once, is not.
    """
    code, labels = _read(sass)
    spans = _spans([_after(at, one, labels, len(code)) for at, one in enumerate(code)])
    counted = [(span, _counted([code[at] for at in span])) for span in spans]
    known = [loop for _, loop in counted]
    working = [(span, loop) for span, loop in counted if _products(loop, known)]
    return [loop for span, loop in working if not any(other < span for other, _ in working)]


def _products(loop: Loop, among: Sequence[Loop]) -> int:
    return loop.tensor if any(one.tensor for one in among) else loop.fma


def _counted(code: Sequence[_Instruction]) -> Loop:
    kinds = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
    counts = {
        kind: sum(bool(known.fullmatch(one.kind if "." in known.pattern else one.name)) for one in code)
        for kind, known in kinds.items()
    }
    stalls, opcodes = sum(one.stall for one in code), dict(Counter(one.kind for one in code))
    return Loop(instructions=len(code), stall_clocks=stalls, opcodes=opcodes, **counts)


def _read(sass: str) -> tuple[list[_Instruction], dict[str, int]]:
    """Return the instructions in order, and the index of the instruction after each label."""
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := _INSTRUCTION.search(line):
            guard, name, rest, operands = found.groups()
            jumps = _TARGET.search(operands) if name in ("BRA", "CALL") else None
            always = name in ("EXIT", "RET", "BRX") or (name == "BRA" and operands.lstrip().startswith("`"))
            code.append(_Instruction(name, name + rest, jumps[1] if jumps else None, always and not guard))
        elif code and (word := _ENCODING.match(line.strip())):  # the second word, on a separate line
            at, mask = _STALL
            code[-1] = replace(code[-1], stall=int(word[1], 16) >> at & mask)
    return code, labels


def _after(at: int, one: _Instruction, labels: dict[str, int], length: int) -> list[int]:
    """Return the indices that can follow instruction `at`. A call may return, or be a jump in disguise."""
    places = [] if one.ends else [at + 1]
    if one.target in labels:
        places.append(labels[one.target])
    return [place for place in places if place < length]


def _spans(after: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """Return the instruction indices of every loop, from its head to its last backward branch."""
    before: list[list[int]] = [[] for _ in after]
    for at, places in enumerate(after):
        for place in places:
            before[place].append(at)
    alive = _reached(0, after) if after else set()
    found: dict[int, set[int]] = {}
    for tail in sorted(alive):
        for head in after[tail]:
            if head <= tail and (head == tail or tail not in _reached(0, after, but=head)):
                body = {at for at in _reached(tail, before, but=head) if head <= at <= tail}
                found.setdefault(head, {head}).update(body)
    return [frozenset(found[head]) for head in sorted(found)]


def _reached(start: int, nearby: Sequence[Sequence[int]], but: int | None = None) -> set[int]:
    """Return every index that can be reached from `start` without passing through `but`."""
    seen = {start} - {but}
    ahead = list(seen)
    while ahead:
        new = [place for place in nearby[ahead.pop()] if place != but and place not in seen]
        seen.update(new)
        ahead += new
    return seen
