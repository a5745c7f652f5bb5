"""Choices of `attention` and `decode`: the kernels of a pass and the tile of each kernel, with the reason.

Every choice is a row of `iocourse/data/choices.json`, which `iocourse/gpu/choices.py` reads, unless `using`
replaces it. `architecture` gives the chip of a device. Nothing is compiled or timed to decide.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
import triton

from ...data.records import load_record
from ...gpu.chips import chip_of
from ...gpu.choices import KERNELS_OF, loaded_width, read_rows, recorded
from ...gpu.choices import MASKS as MASKS  # `as`: other files import these names from here
from ...gpu.choices import PASSES as PASSES
from ...gpu.choices import Case as Case
from ...gpu.choices import Choice as Choice
from ...gpu.choices import padded as padded
from ...sizes import positive_int
from . import backend

WHOLE = ("forward", "fused", "queries", "keys")  # kernels with tiles of complete rows
SLICED = (
    "sliced_forward", "sliced_queries", "sliced_keys",
    "scores", "averages", "weights", "query_gradients", "key_gradients",
)  # fmt: skip  # kernels that split d
NAMES = (*PASSES, *WHOLE, *SLICED, "decode step", "decode_parts", "packed descriptors")
MATRIX_BYTES = 2**30  # of P and dS: the size that was timed, 16 heads of N = 4,096 in 16 bits


class TileConfig(NamedTuple):
    """A tile of BM queries by BN keys, computed by `warps` warps, with a load pipeline of `stages` tiles."""

    BM: int
    BN: int
    warps: int = 4
    stages: int = 1


class SlicedTileConfig(NamedTuple):
    """A tile of BM queries by BN keys with d in slices of BD columns, computed by `warps` warps, with a load
    pipeline of `stages` slices.
    """

    BM: int
    BN: int
    BD: int
    warps: int = 4
    stages: int = 1


class Choices(dict[str, Choice]):
    """The choices for one case, by name. Printed, each is one line, followed by its reason."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))

    __repr__ = __str__


def choices_of(
    arch: int, *, d: int = 128, dtype: torch.dtype = torch.bfloat16, mask: str = "causal", N: int = 4096,
    B: int = 4, heads: int = 16, kv_heads: int | None = None, deterministic: bool | None = None,
) -> Choices:  # fmt: skip
    """Return what `attention` launches on a GPU, forward and backward, with tiles and reasons. Runs nothing.

    Args:
        arch: 75, 80, 89, 90 or 100.
        d: head size, at most 1024.
        dtype: float16, bfloat16 or float32.
        mask: "full", "causal", "window" (any other band), "blocks" (a block mask) or "packed".
        N: queries and keys per head.
        B: batches.
        heads: query heads.
        kv_heads: key heads; None: as many as query heads.
        deterministic: as of `attention`: True for gradients in a fixed order, False for one kernel.

    Raises:
        ValueError: an argument has another value.
    """
    chip_of(arch)
    shared = heads if kv_heads is None else kv_heads
    for name, size in {"d": d, "N": N, "B": B, "heads": heads, "kv_heads": shared}.items():
        positive_int(name, size)
    most = 1024 if mask in MASKS[:3] else 512
    if mask not in MASKS:
        raise ValueError(f"mask must be one of {', '.join(MASKS)}; got {mask!r}")
    if d > most:
        raise ValueError(f"d must be at most {most} with mask = {mask!r}, got {d}")
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"dtype must be float16, bfloat16 or float32, got {dtype}")
    if heads % shared:
        raise ValueError(f"kv_heads must divide heads, {heads}, got {shared}")
    group, size, width = heads // shared, dtype.itemsize, loaded_width(d)
    case = Case(arch, size, width, mask, group, B * heads * N, B * shared, 2 * group * N * N * size)
    found = Choices()
    backward = PASSES[1] if deterministic is None else PASSES[2] if deterministic else PASSES[3]
    for (name, kernels), asked in zip(KERNELS_OF.items(), (PASSES[0], backward), strict=True):
        found[name] = choice(asked, case)
        found |= {kernel: choice(kernel, case) for kernel in kernels[found[name].value]}
    if mask == "packed":
        found["packed descriptors"] = choice("packed descriptors", case)
    return found


# Values chosen by `using`, for the whole process, because autograd runs backward passes in its own threads.
_chosen: dict[str, Any] = {}


def choice(name: str, case: Case) -> Choice:
    """Return the choice of this name, one of `NAMES`, for a case. Raises LookupError if no row decides it."""
    if _chosen and name in _chosen:
        return Choice(name, _chosen[name], {}, "chosen by `using`", {})
    return _recorded(name, *case)


def _recorded(name: str, *case: Any) -> Choice:
    """Return the row that decides the case of these fields; Dynamo passes no NamedTuple to a constant."""
    return recorded(name, Case(*case))


# torch.compile calls it without tracing it (see `_device_row`), and looks tiles of block masks up.
_recorded._dynamo_marked_constant = True  # type: ignore[attr-defined]


# Tiles.


def tile(kernel: str, case: Case) -> TileConfig:
    """Return the tile of a kernel with complete rows, one of `WHOLE`."""
    return TileConfig(*choice(kernel, case).value)


def sliced_tile(kernel: str, case: Case) -> SlicedTileConfig:
    """Return the tile of a kernel that splits d, one of `SLICED`."""
    return SlicedTileConfig(*choice(kernel, case).value)


def decode_tile(case: Case) -> TileConfig:
    """Return the tile of the decode step: BM of the query heads that share keys, and BN keys."""
    BM = max(16, min(64, 1 << (case.group - 1).bit_length()))
    return TileConfig(BM, *choice("decode_parts", case).value)


# Architectures.


def architecture(device: torch.device) -> int | None:
    """Return the architecture of the choices for a device, or None if kernels are interpreted."""
    if backend.target_arch is not None:
        return backend.target_arch
    return None if backend.INTERPRETED else _device_row(device.index or 0)


def _device_row(index: int) -> int:
    """Return the architecture of the choices for a CUDA device."""
    return _device_row_once(index)


# torch.compile calls it without tracing torch.cuda's functions. `torch.compiler.assume_constant_result` sets
# the same mark, but imports the compiler, which doubles the time that importing the kernels takes.
_device_row._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _device_row_once(index: int) -> int:
    major, minor = torch.cuda.get_device_capability(index)
    arch = table_architecture(int(major * 10 + minor))
    if line := made_with_another_triton(arch, triton.__version__):
        warnings.warn(line, stacklevel=2)
    return arch


def table_architecture(capability: int) -> int:
    """Return the architecture of the choices for a compute capability (for example 89 for 86)."""
    if capability in (86, 89, 120, 121):  # the same 99 KB of shared memory
        return 89
    return max((known for known in (75, 80, 90, 100) if known <= capability), default=0)


def made_with_another_triton(arch: int, version: str) -> str:
    """Return a warning if tiles of this architecture were timed with another Triton, otherwise ""."""
    rows = [one for one in read_rows() if one.name in WHOLE and arch in one.where["arch"]]
    records = map(load_record, {one.evidence["timed"] for one in rows if "timed" in one.evidence})
    others = {record["versions"]["triton"] for record in records if record} - {version}
    if not others:
        return ""
    return (
        f"the tiles of sm_{arch} were measured with Triton {', '.join(sorted(others))}, and this is "
        f"{version}. They are used anyway. To measure again, run python -m tools.bench gpu --only tune"
    )


# Choices of the user.


@contextmanager
def using(**tiles: TileConfig | SlicedTileConfig | tuple[int, ...] | int) -> Iterator[None]:
    """Replace the tiles of kernels within a block, as in `using(forward=(64, 32))`.

    Args:
        tiles: (BM, BN), (BM, BN, warps) or (BM, BN, warps, stages) for forward, fused, queries or keys;
            (BM, BN, BD), with warps and stages or without, for sliced_forward, sliced_queries, sliced_keys
            (the fused small-cache schedule), scores, averages, weights, query_gradients or key_gradients
            (the materialised one). matrix_bytes: maximum size of P and dS that the materialised
            backward pass keeps at once, in bytes (default 1 GiB).

    Raises:
        ValueError: an unknown name, a size that is not a power of two of at least 16, or another invalid
            value.
    """
    # <!-- 1 = choices.MATRIX_BYTES / 2**30 -->
    with replaced({name: _checked(name, tile) for name, tile in tiles.items()}):
        yield


@contextmanager
def replaced(values: Mapping[str, Any]) -> Iterator[None]:
    """Replace the choices of these names within a block, whatever the case; values are not checked."""
    before = dict(_chosen)
    _chosen.update(values)
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def matrix_bytes() -> int:
    """Return the maximum size of P and dS in the materialised backward pass, in bytes."""
    return int(_chosen.get("matrix_bytes", MATRIX_BYTES))


def matrix_bytes_of(q: torch.Tensor, k: torch.Tensor) -> int:
    """Return the bytes of P and dS of one key head, for all query heads that share it."""
    group = q.shape[1] // max(1, k.shape[1])
    return int(2 * group * q.shape[2] * k.shape[2] * q.element_size())


def _checked(name: str, tile: Any) -> TileConfig | SlicedTileConfig | int:
    if name == "matrix_bytes":
        return positive_int(name, tile)
    if name not in (*WHOLE, *SLICED):
        raise ValueError(
            f"{name} is not an option of using; use one of: {', '.join((*WHOLE, *SLICED, 'matrix_bytes'))}"
        )
    kind = SlicedTileConfig if name in SLICED else TileConfig
    sizes = kind._fields[:-2]
    if not isinstance(tile, (tuple, list)) or not len(sizes) <= len(tile) <= len(sizes) + 2:
        raise ValueError(
            f"{name} must be ({', '.join(sizes)}), then optionally warps and stages, got {tile!r}"
        )
    whole = kind(*(positive_int(part, size) for part, size in zip(kind._fields, tile, strict=False)))
    for part in sizes:
        size = getattr(whole, part)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name}: {part} must be 16, 32, 64, 128, … (for tl.dot), got {size}")
    return whole
