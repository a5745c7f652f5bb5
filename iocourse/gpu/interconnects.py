"""What joins chips: bandwidth of links from data sheets, and the latency that NCCL counts on.

Sources: the data sheets and standards named in each row. No data sheet tells a latency; those here are of
NCCL's tuning model, for a step of a ring by its protocol Simple, within a node or across the network.
"""

from __future__ import annotations

from dataclasses import dataclass


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
