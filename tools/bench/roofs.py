"""The rates that limit a kernel on the current GPU: products, copies, reads of L2, exponentials, and reads of
shared memory. The record is that of the roofline explorer, `iocourse/data/bench/roofs.json`.

Each rate is that of a work which needs almost nothing else. Shared memory is read by products of 64 × 16
numbers: a warpgroup loads both operands from there for each of them, so they wait for it and not for the
tensor cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from iocourse.gpu.timing import time_of
from tools.bench import Row

import iocourse.kernels  # noqa: F401  # isort: skip  # chooses between interpreter and compiler, before triton
import triton  # isort: skip
import triton.language as tl  # isort: skip


class Sizes(NamedTuple):
    """Sizes of the works; tests use small ones."""

    side: int = 8192  # of the product of two square matrices
    copied: int = 2**32  # bytes that are copied
    cached: int = 2**24  # bytes that are read again and again; they fit in L2
    programs: int = 8  # per SM
    rounds: int = 2000  # iterations of the loop in each program


SIZES = Sizes()
WORDS, NUMBERS = 4096, 2048  # per program and iteration: words read from L2, and exponentials
SIDES = (64, 16, 128)  # of the small products: rows, columns, and the length of the sums


@triton.jit
def read_kernel(X, OUT, n, rounds, WORDS: tl.constexpr):
    """Read `rounds` blocks of X (n,), beginning with a different one in each program; store their sums."""
    words = tl.arange(0, WORDS)
    at = tl.program_id(0) * WORDS % n
    total = tl.zeros((WORDS,), dtype=tl.float32)
    for _ in range(rounds):
        total += tl.load(X + at + words, cache_modifier=".cg")  # not from L1
        at = tl.where(at + WORDS < n, at + WORDS, 0)
    tl.store(OUT + tl.program_id(0) * WORDS + words, total)


@triton.jit
def exponentials_kernel(OUT, rounds, NUMBERS: tl.constexpr):
    """Store x after `rounds` times x ← 2⁻ˣ, which converges to 0.64, for NUMBERS different x."""
    numbers = tl.arange(0, NUMBERS)
    x = numbers / NUMBERS
    for _ in range(rounds):
        x = tl.exp2(-x)
    tl.store(OUT + tl.program_id(0) * NUMBERS + numbers, x)


@triton.jit
def small_products_kernel(
    A, B, OUT, rounds, ROWS: tl.constexpr, COLUMNS: tl.constexpr, LENGTH: tl.constexpr
):  # fmt: skip
    """Store `rounds` times A B, added up; A (ROWS, LENGTH), B (LENGTH, COLUMNS)."""
    i, j, k = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :], tl.arange(0, LENGTH)
    a, b = tl.load(A + i * LENGTH + k[None, :]), tl.load(B + k[:, None] * COLUMNS + j)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(rounds):
        total = tl.dot(a, b, total)
    tl.store(OUT + (tl.program_id(0) * ROWS + i) * COLUMNS + j, total)


class Rate(NamedTuple):
    """One rate: the amount of one work, the work, and the name of the amount per clock and SM, if the record
    has one.
    """

    amount: int
    work: Callable[[], object]
    per_clock: str = ""


def rates(device: str, multiprocessors: int, sizes: Sizes) -> dict[str, Callable[[], Rate]]:
    """Return functions that make each rate, by its name in the record. The names end in the unit per second:
    10¹² FLOP, bytes or exponentials.
    """
    import torch

    programs = multiprocessors * sizes.programs

    def numbers(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(shape, device=device).to(dtype)

    def product() -> Rate:
        a, b = (numbers(sizes.side, sizes.side, dtype=torch.bfloat16) for _ in range(2))
        return Rate(2 * sizes.side**3, lambda: a @ b)

    def copy() -> Rate:
        source = torch.randint(-128, 128, (sizes.copied,), dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        return Rate(2 * sizes.copied, lambda: target.copy_(source))

    def cached() -> Rate:
        x, out = numbers(sizes.cached // 4), numbers(programs * WORDS)

        def work() -> None:
            read_kernel[(programs,)](x, out, x.numel(), sizes.rounds, WORDS)

        return Rate(4 * WORDS * sizes.rounds * programs, work, "l2_bytes_per_clock")

    def exponentials() -> Rate:
        out = numbers(programs * NUMBERS)

        def work() -> None:
            exponentials_kernel[(programs,)](out, sizes.rounds, NUMBERS)

        return Rate(NUMBERS * sizes.rounds * programs, work, "exp2_per_clock")

    def shared() -> Rate:
        rows, columns, length = SIDES
        a, b = numbers(rows, length, dtype=torch.float16), numbers(length, columns, dtype=torch.float16)
        out = numbers(programs * rows, columns)

        def work() -> None:
            small_products_kernel[(programs,)](a, b, out, sizes.rounds, *SIDES)

        return Rate(2 * length * (rows + columns) * sizes.rounds * programs, work, "shared_bytes_per_clock")

    return {
        "product_tflops": product, "copy_tb_s": copy, "l2_tb_s": cached, "exp2_t_s": exponentials,
        "shared_tb_s": shared,
    }  # fmt: skip


PROBLEM = (
    "bfloat16 product of 8,192^3; copy of 4 GiB, read and written bytes; 16 MiB read repeatedly past L1; "
    "repeated 2^-x; operands of products of 64 × 128 and 128 × 16 numbers, read from shared memory"
)


def measured(place: Any, done: Row) -> Iterator[tuple[str, Row]]:
    """Yield a line and the record so far after each rate that is not in `done`, the record of an earlier
    run. `sm_mhz`: the clock during each work.
    """
    processors = place.facts().get("multiprocessors", 1)
    every = rates(place.device, processors, SIZES)
    part: Row = {"problem": PROBLEM, "sm_mhz": {}} | done
    for name, make in every.items():
        if name in part:
            continue
        place.tidy()
        one = make()
        place.sm_mhz()
        ms = time_of(one.work, stopwatch=place.stopwatch, budget_ms=500).ms
        mhz = place.sm_mhz()
        part |= {name: one.amount / ms / 1e9, "sm_mhz": part["sm_mhz"] | {name: mhz}}
        said = f"{name} {part[name]:.4g}"
        if one.per_clock and mhz:
            part[one.per_clock] = one.amount / ms / (mhz * 1e3) / processors
            said += f", {part[one.per_clock]:.4g} per clock and SM at {mhz:,.0f} MHz"
        part["shapes"] = {"asked": len(every), "done": sum(each in part for each in every)}
        yield said, dict(part)
