"""How long a step may take on real chips and links: a model that orders schedules, and measures nothing.

A rank needs γ seconds for a flop and β for a word that it receives while it sends another; a message takes
α before its first word. A step that is hidden computes while the next words travel. There is one link a rank,
nobody else uses it, and no kernel starts late: so numbers are too small, all of them, and only which is the
smaller of two means anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..gpu import CHIPS, Chip
from ..sizes import check_sizes, plain_ints

BYTES = 2  # of a word: bfloat16, as the tensor cores' rate has it
REACHED = 0.6  # share of the peak that attention kernels reach


@dataclass(frozen=True)
class Link:
    """What joins a rank to the others: bytes a second in each direction, and seconds of a message's start."""

    name: str
    gbytes_per_s: float
    latency_us: float
    source: str


NCCL = "latency: what NCCL counts on for a step of a ring (src/graph/tuning.cc, hwLat, Simple)"
LINKS = {
    "nvlink5": Link("NVLink 5", 900, 3.4, f"NVIDIA B200 data sheet, 1.8 TB/s both ways; {NCCL}"),
    "nvlink4": Link("NVLink 4", 450, 3.4, f"NVIDIA H200 data sheet, 900 GB/s both ways; {NCCL}"),
    "nvlink3": Link("NVLink 3", 300, 3.4, f"NVIDIA A100 data sheet, 600 GB/s both ways; {NCCL}"),
    "pcie5": Link("PCIe 5 x16", 64, 5.7, f"NVIDIA H200 NVL data sheet, 128 GB/s both ways; {NCCL}"),
    "ndr": Link("InfiniBand NDR", 50, 9.6, f"NVIDIA ConnectX-7 user manual, 400 Gb/s; {NCCL}"),
    "ethernet": Link("100 Gb Ethernet", 12.5, 9.6, f"IEEE 802.3ba, 100 Gb/s; {NCCL}"),
}


@dataclass(frozen=True)
class Cluster:
    """Ranks of one chip behind one kind of link: `cluster("nvlink4")` is H200s on NVLink."""

    chip: Chip
    link: Link

    @property
    def alpha(self) -> float:
        """Seconds before the first word of a message."""
        return self.link.latency_us * 1e-6

    @property
    def beta(self) -> float:
        """Seconds a word."""
        return BYTES / (self.link.gbytes_per_s * 1e9)

    @property
    def gamma(self) -> float:
        """Seconds a flop."""
        return 1 / (REACHED * self.chip.tensor_tflops * 1e12)


def cluster(link: str = "nvlink4", arch: int = 90) -> Cluster:
    """Chips of an architecture behind a link. Raises ValueError that says which there are."""
    if link not in LINKS:
        raise ValueError(f"link = {link!r} is unknown; there are {', '.join(LINKS)}")
    if arch not in CHIPS:
        raise ValueError(f"arch = {arch!r} is unknown; there are {', '.join(map(str, CHIPS))}")
    return Cluster(CHIPS[arch], LINKS[link])


@dataclass(frozen=True)
class Step:
    """A part of a schedule on its busiest rank, which comes `times` times.

    It computes `flops`, and `words` arrive in `messages`. Where `hidden`, they may do so meanwhile.
    """

    flops: float
    words: int = 0
    messages: int = 0
    times: int = 1
    hidden: bool = False

    def __post_init__(self) -> None:
        plain_ints(self)

    def seconds(self, on: Cluster) -> float:
        """What it takes, all times together."""
        computing = self.flops * on.gamma
        moving = self.messages * on.alpha + self.words * on.beta
        return self.times * (max(computing, moving) if self.hidden else computing + moving)


def seconds(steps: tuple[Step, ...], on: Cluster) -> float:
    """What the steps take, one after the other."""
    return sum(step.seconds(on) for step in steps)


# ---------------------------------------------------------------------- when words hide
# Rows of a rank from which on a step of the ring computes for longer than its words travel, in units of β/γ:
# words a row and column, divided by flops a pair and column.
HIDES = {
    "ring": 2 / 4,
    "ring, causal zigzag": 2 / 2,
    "ring backward, rows travel": 3 / 10,
    "ring backward, columns travel": 4 / 10,
}


def rows_that_hide(what: str, on: Cluster) -> float:
    """The least N/P with which the ring's words hide behind its products: any d and any number of heads do.

    A step has 4(N/P)²d flops, 10 backward and half of them under a causal mask in zigzag, and 2(N/P)d words,
    backward 3 (and 2 numbers a row, left out here) or 4. The time before a message's first word is left out.
    Raises ValueError that says what there is.
    """
    if what not in HIDES:
        raise ValueError(f"what = {what!r} is unknown; there are {', '.join(HIDES)}")
    return HIDES[what] * on.beta / on.gamma


def flops_of_rank(pairs: int, d: int, H: int = 1, *, backward: bool = False) -> float:
    """Flops of so many pairs in each of H heads: four a column, and ten in the backward pass."""
    d, H = check_sizes(d=d, H=H)
    return (10.0 if backward else 4.0) * pairs * d * H
