"""The loop in which a kernel spends its time, read off its machine code: what each thread issues a step.

A loop is what a branch back closes, where nothing enters it but through its head. Of the loops that multiply
and hold no other that does, the hot one is the shortest of those with (nearly) all products: a causal kernel
has each product twice, in a loop with a mask and in one without, and most tiles are of the one without.

Source: NVIDIA, CUDA Binary Utilities, "Instruction Set Reference", for the names of instructions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@\S+\s+)?([A-Z][A-Z0-9_]*)(\S*)([^;]*);")
_LABEL = re.compile(r"^([.$\w]+):")
_TARGET = re.compile(r"`\(([^)]+)\)")
_ENCODING = re.compile(r"/\* (0x[0-9a-f]{16}) \*/\s*$")
_STALL = 41, 0xF  # bits of the second word: clocks during which the warp issues nothing more
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
_NEARLY_ALL = 0.9  # two loops of one kernel differ in a few multiplications outside their products


@dataclass(frozen=True)
class Loop:
    """One step of a loop: instructions of a thread, all of them and those of some kinds.

    wgmma: products of four warps, operands in shared memory (sm_90). mma: products of one warp, operands in
    registers. tcgen05: products out of tensor memory (sm_100). fma: float32 multiplications. special:
    exponentials, logarithms and reciprocals. barriers: waits for other warps. global_loads: by pointers,
    asynchronous or not. tile_loads: tiles copied through a descriptor. shared_loads: from shared memory into
    registers. spills: loads and stores of spilled registers. waits: for wgmma; as many as products, and each
    product runs alone (`serialised`). exponentials: of the special ones. stall_clocks: sum of what the
    instructions' control bits say; a warp issues nothing more for so long, whatever else it waits for. The
    last three are None where a record is older than their count.
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

    @property
    def serialised(self) -> bool:
        """Whether each wgmma is waited for before the next one begins: none runs beside other work."""
        return self.waits is not None and 0 < self.wgmma <= self.waits

    @property
    def tensor(self) -> int:
        """Tensor-core instructions of any kind."""
        return self.wgmma + self.mma + self.tcgen05


@dataclass(frozen=True)
class _Instruction:
    """name: without what follows the first dot, `kind`: with it. target: of a jump. ends: nothing runs on to
    the next one. stall: clocks, 0 where the encoding is not printed.
    """

    name: str
    kind: str
    target: str | None
    ends: bool
    stall: int = 0


def hot_loop(sass: str) -> Loop | None:
    """What one step of the hot loop issues; None where no loop multiplies.

    sass: one kernel as `nvdisasm --print-code --print-instruction-encoding` writes it; without encodings no
    stall clocks are counted.
    """
    found = loops(sass)
    most = max((_products(one, found) for one in found), default=0)
    full = [one for one in found if _products(one, found) >= _NEARLY_ALL * most]
    return min(full, key=lambda one: one.instructions, default=None)


def loops(sass: str) -> list[Loop]:
    """The innermost loops that multiply, in their order: on tensor cores if any loop does, else in float32.

    Counted is the code from a loop's head to its last branch back. What a compiler puts behind the end of the
    kernel, for a wait that is not over at the first look, is not.
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
    return Loop(instructions=len(code), stall_clocks=sum(one.stall for one in code), **counts)


def _read(sass: str) -> tuple[list[_Instruction], dict[str, int]]:
    """The instructions in order, and where each label stands among them."""
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
        elif code and (word := _ENCODING.match(line.strip())):  # the second word, on a line of its own
            at, mask = _STALL
            code[-1] = replace(code[-1], stall=int(word[1], 16) >> at & mask)
    return code, labels


def _after(at: int, one: _Instruction, labels: dict[str, int], length: int) -> list[int]:
    """The places where a thread can be next. A call returns, or is a jump that the assembler wrote as one."""
    places = [] if one.ends else [at + 1]
    if one.target in labels:
        places.append(labels[one.target])
    return [place for place in places if place < length]


def _spans(after: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """The instructions of every loop, from its head to its last branch back."""
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
    """Every place on some way from `start` that does not lead through `but`."""
    seen = {start} - {but}
    ahead = list(seen)
    while ahead:
        new = [place for place in nearby[ahead.pop()] if place != but and place not in seen]
        seen.update(new)
        ahead += new
    return seen
