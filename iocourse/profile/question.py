"""What the arguments ask: one launch, its sizes, and which pairs it looks at."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from ..count import grids
from ..gpu.chips import CHIPS
from ..refusal import Refused
from ..sizes import positive_int
from . import DTYPES, LAUNCHES

N, D, D_SLICED, BLOCK, ARCH = 4096, 128, 512, 64, 90  # where nothing is said
LONGEST_MASK = 16384  # the closed form of a block mask looks at every pair
OF_SOME = ("causal", "block_mask", "block", "lengths", "parts")  # options that only some launches take


@dataclass(frozen=True)
class Question:
    """One launch. N is the sum of `lengths` where sequences are packed; `parts` is 0 where the chip decides;
    `arch` is 0 where the GPU of this machine is meant.
    """

    what: str
    N: int
    d: int
    heads: int
    kv_heads: int
    batch: int
    dtype: str
    causal: bool = False
    block_mask: str = ""
    block: int = BLOCK
    lengths: tuple[int, ...] = ()
    parts: int = 0
    closed_form: bool = False
    arch: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of a number of Q, K and V."""
        return DTYPES[self.dtype]

    @property
    def sliced(self) -> bool:
        """Whether d is cut into slices."""
        return self.what.startswith("small-cache")

    @property
    def mask(self) -> Any:
        """The block mask of `block_mask`. Raises Refused where it names none."""
        return grids.build(self.block_mask, self.N, self.block, option="--block-mask")


def of_facts(facts: dict[str, Any]) -> Question:
    """The question of which these are the facts, as JSON holds them."""
    return Question(**{**facts, "lengths": tuple(facts["lengths"])})


def question(arguments: argparse.Namespace) -> Question:
    """The launch that the arguments ask for. Raises Refused naming the argument."""
    what = arguments.what
    if what not in LAUNCHES:
        came = f"WHAT {what!r} is unknown" if what else "WHAT is missing"
        raise Refused(f"{came}; allowed: {', '.join(LAUNCHES)}")
    _refuse_what_it_does_not_take(what, arguments)
    try:
        return _read(what, arguments)
    except ValueError as error:
        raise Refused(str(error)) from None


def _refuse_what_it_does_not_take(what: str, arguments: argparse.Namespace) -> None:
    for option in OF_SOME:
        takers = [name for name, one in LAUNCHES.items() if option in one.options]
        if getattr(arguments, option) not in (None, False) and what not in takers:
            name = "--" + option.replace("_", "-")
            raise Refused(f"{what} takes no {name}; allowed with: {', '.join(takers)}")
    if what == "packed" and arguments.N is not None:
        raise Refused("packed takes no --N: --lengths says how long each sequence is")
    if what == "packed" and arguments.batch != 1:
        raise Refused(f"--batch is {arguments.batch}; allowed with packed: 1, the sequences are the batch")
    if arguments.arch is not None and not arguments.closed_form:
        raise Refused("--arch is for --closed-form: what is measured runs on this machine's GPU")
    if arguments.arch is not None and arguments.arch not in CHIPS:
        raise Refused(f"--arch is {arguments.arch}; allowed: {', '.join(map(str, CHIPS))}")
    if arguments.dtype not in DTYPES:
        raise Refused(f"--dtype is {arguments.dtype!r}; allowed: {', '.join(DTYPES)}")


def _read(what: str, arguments: argparse.Namespace) -> Question:
    heads = positive_int("--heads", arguments.heads)
    kv_heads = positive_int("--kv-heads", heads if arguments.kv_heads is None else arguments.kv_heads)
    if heads % kv_heads:
        raise Refused(f"--kv-heads is {kv_heads} for {heads} heads; allowed: a divisor of {heads}")
    lengths = _lengths(arguments.lengths) if what == "packed" else ()

    def size(name: str, unsaid: int) -> int:
        """What --name says, or `unsaid`."""
        value = getattr(arguments, name)
        return unsaid if value is None else positive_int(f"--{name}", value)

    asked = Question(
        what=what,
        N=sum(lengths) or size("N", N),
        d=size("d", D_SLICED if what.startswith("small-cache") else D),
        heads=heads,
        kv_heads=kv_heads,
        batch=size("batch", 1),
        dtype=arguments.dtype,
        causal=arguments.causal,
        block_mask=arguments.block_mask or "",
        block=size("block", BLOCK),
        lengths=lengths,
        parts=size("parts", 0),
        closed_form=arguments.closed_form,
        arch=arguments.arch or 0,
    )
    if what == "block-sparse":
        _check_mask(asked)
    return asked


def _lengths(text: str | None) -> tuple[int, ...]:
    if text is None:
        raise Refused("packed needs --lengths L1,L2,… such as --lengths 4096,1024,300")
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        lengths = ()
    if not lengths or min(lengths) < 0 or not sum(lengths):
        raise Refused(
            f"--lengths is {text!r}; allowed: whole numbers with commas between them, not all of them 0"
        )
    return lengths


def _check_mask(asked: Question) -> None:
    if not asked.block_mask:
        raise Refused(f"block-sparse needs --block-mask SPEC, one of {grids.FORMS}")
    if asked.N > LONGEST_MASK:
        raise Refused(
            f"--N is {asked.N}; allowed with block-sparse: up to {LONGEST_MASK}, because its closed form "
            "looks at every pair"
        )
    asked.mask  # noqa: B018  # refuses what names no mask
