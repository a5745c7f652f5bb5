"""Implementations and problems of the GPU benchmark: dense attention, block masks, packed sequences,
decoding, and large heads.

TFLOP/s count 4·B·H·N²·d FLOP forward, 2.5 times this backward, and only for visible pairs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import accumulate, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iocourse import masks
from iocourse.discovery import loaded
from iocourse.errors import UsageError
from iocourse.gpu.roofline import flops
from iocourse.gpu.timing import time_of
from tools.bench import Row
from tools.bench.contest import (
    DEFAULT,
    DENSITIES,
    FUSED,
    LAST_MERGES,
    NO_MASK,
    PACKED_DESCRIPTORS,
    ROW_DESCRIPTORS,
    SPLIT_KV,
    SQUARE_TILES,
    TWO_PASS,
    WIDE_FUSED,
    WIDE_TILES,
    Chosen,
    Contender,
    Given,
    Pairs,
    Problem,
    Shape,
    Tensor,
    named,
    normal,
    rates,
    reason_of,
    with_tiles,
)

# --- implementations ---------------------------------------------------------------------------------------

FLASH, CUDNN, EFFICIENT, MATH = "SDPA flash", "SDPA cuDNN", "SDPA efficient", "SDPA math"
BACKENDS = {  # their names in torch.nn.attention.SDPBackend
    FLASH: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION", EFFICIENT: "EFFICIENT_ATTENTION", MATH: "MATH",
}  # fmt: skip
FLEX, PACKED = "FlexAttention", "varlen_attn"
TUTORIAL, SPECIALISED = "tutorial", "tutorial, warp-specialised"
ONE_FILE = "flash_attention.py"  # the file to copy, of the folder lessons
WHOLE_ROWS = "whole rows"
BY_TILE_D = {"never": WHOLE_ROWS, "fused": "fused split-d", "materialised": "materialised"}
# Orders of the programs of the forward pass: the library's, and another one (`program_order`).
TILES_FASTEST, HEADS_FASTEST = "tiles fastest", "heads fastest"
# Our implementations, with those of earlier records.
OURS = (
    FUSED, TWO_PASS, SPLIT_KV, DEFAULT, PACKED_DESCRIPTORS, ROW_DESCRIPTORS, LAST_MERGES, ONE_FILE,
    *map(named, (*WIDE_TILES, WIDE_FUSED, *SQUARE_TILES)), *BY_TILE_D.values(), TILES_FASTEST, HEADS_FASTEST,
)  # fmt: skip
# Scores, weights and their gradients in float32: about this many bytes per query-key pair.
MATRIX_BYTES_A_PAIR = 16


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool, **options: Any) -> Tensor:
    """Call the course's `attention` with options."""
    from iocourse.kernels import attention

    return attention(q, k, v, causal=causal, **options)


@lru_cache(maxsize=1)
def file_to_copy() -> Any:
    """Return the module of `ONE_FILE`, which is outside any package."""
    import iocourse.kernels  # noqa: F401  # before triton, because it may choose the interpreter

    file = Path(__file__).parents[2] / "lessons" / ONE_FILE
    sys.modules[file.stem] = module = loaded(file, file.stem)  # torch and inspect find a module by its name
    return module


def copied(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Call the `attention` of `ONE_FILE`. Its tuner chooses the tiles, in the call that checks the values."""
    o: Tensor = file_to_copy().attention(q, k, v, causal=causal)
    return o


def sdpa(name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, **options: Any) -> Tensor:
    """Call PyTorch's scaled_dot_product_attention, restricted to one back end, a name of BACKENDS."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    shared = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    with sdpa_kernel([getattr(SDPBackend, BACKENDS[name])]):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, **shared, **options)


def with_matrices(contender: Contender, place: Any, q: Tensor, k: Tensor, v: Tensor, seen: Any) -> Tensor:
    """Call an implementation that stores N × N matrices. Raises UsageError if they do not fit in memory."""
    B, H, N, _ = q.shape
    check_room("its N × N matrices", MATRIX_BYTES_A_PAIR * B * H * N * k.shape[2], place)
    return contender(q, k, v, seen)


def check_room(what: str, needed: int, place: Any) -> None:
    """Raise UsageError if `needed` bytes are more than half of the free memory."""
    free = place.free_bytes()
    if needed > free / 2:
        raise UsageError(f"{what} need about {needed / 1e9:.0f} GB, and {free / 1e9:.0f} GB are free")


def flex(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs | None) -> Tensor:
    """Call FlexAttention with a predicate of visible pairs; None: no mask."""
    return fresh_flex(q.shape, q.dtype, pairs, str(q.device))(q, k, v)


@lru_cache(maxsize=1)
def fresh_flex(
    shape: tuple[int, ...], dtype: Any, pairs: Pairs | None, device: str
) -> Callable[..., Tensor]:  # fmt: skip
    """Return FlexAttention, newly compiled for a problem and with its block mask, outside of timed work.
    Without a GPU, return its slow reference.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cpu":
        torch._dynamo.reset()  # the compiler rejects more than eight shapes
        flex_attention = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return partial(flex_attention, block_mask=pairs and flex_mask(pairs, shape[2], device))


@lru_cache(maxsize=1)  # made once for each problem
def flex_mask(pairs: Pairs, N: int, device: str) -> Any:
    """Return FlexAttention's BlockMask in blocks of 128, the same for every batch and head."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda batch, head, i, j: pairs(i, j), None, None, N, N, device=device)


@lru_cache(maxsize=1)  # made once for each problem
def booleans(pairs: Pairs, N: int, device: str) -> Tensor:
    """Return the mask as a tensor (N, N), True for visible pairs."""
    import torch

    i = torch.arange(N, device=device)
    return pairs(i[:, None], i[None, :])


@lru_cache(maxsize=1)  # made once for each problem
def tiles_seen(pairs: Pairs, N: int, device: str) -> Any:
    """Return the mask as a TiledMask of our kernels, made from FlexAttention's BlockMask."""
    import torch

    from iocourse.kernels import tiled_mask

    q = torch.empty(1, 1, N, 1, device=device)
    return tiled_mask(flex_mask(pairs, N, device), q, q)


def tutorial_contenders(path: Path) -> dict[str, Contender]:
    """Return the kernel of a copy of Triton's tutorial 06, also with warp specialisation if the file has it.

    Raises UsageError if the file cannot be loaded, or has no `attention`.
    """
    if not path.is_file():
        raise UsageError(f"--tutorial must be a copy of Triton's 06-fused-attention.py, {path} is not a file")
    try:
        module: Any = loaded(path, "triton_tutorial_06")
        parameters = inspect.signature(module._attention.forward).parameters
    except Exception as error:
        raise UsageError(f"{path} is not a copy of Triton's tutorial 06: {reason_of(error)}") from error
    if "warp_specialize" not in parameters:
        return {TUTORIAL: tutorial(module)}
    return {TUTORIAL: tutorial(module, False), SPECIALISED: tutorial(module, True)}


def tutorial(module: Any, *switch: bool) -> Contender:
    """Return Triton's kernel, float16 only and autotuned for each shape; switch: warp specialisation."""

    @lru_cache(maxsize=1)
    def forget_tuning(shape: tuple[int, ...], causal: bool) -> None:
        # Its tuner does not distinguish causal from full, so one would run with the other's tile.
        for one in vars(module).values():
            if hasattr(one, "configs") and isinstance(getattr(one, "cache", None), dict):
                one.cache.clear()

    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        if str(q.dtype) != "torch.float16":
            raise UsageError("the tutorial's kernel casts to float16 inside, so it is timed in float16 only")
        forget_tuning(q.shape, causal)
        return module.attention(q, k, v, causal, q.shape[-1] ** -0.5, *switch)

    return attend


def of_attention(place: Any) -> dict[str, Contender]:
    """Return the implementations of dense attention; MATH is skipped if its matrices do not fit in memory."""
    return {
        FUSED: partial(ours, deterministic=False),
        TWO_PASS: partial(ours, deterministic=True),
        ONE_FILE: copied,
        **{name: partial(sdpa, name) for name in BACKENDS},
        MATH: partial(with_matrices, partial(sdpa, MATH), place),
        FLEX: flex,
    }


def of_sparse(place: Any) -> dict[str, Contender]:
    """Return the implementations of block masks. PyTorch's memory-efficient kernel takes booleans and
    computes every pair.
    """

    def efficient(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs) -> Tensor:
        # The booleans, and the numbers that PyTorch converts them to and adds to the scores.
        check_room("N × N masks", q.shape[2] * k.shape[2] * (1 + q.element_size()), place)
        return sdpa(EFFICIENT, q, k, v, False, attn_mask=booleans(pairs, q.shape[2], str(q.device)))

    def own(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs | None) -> Tensor:
        return ours(q, k, v, False, block_mask=pairs and tiles_seen(pairs, q.shape[2], str(q.device)))

    return {FUSED: Chosen(own, {"backward pass": "fused"}), FLEX: flex, EFFICIENT: efficient}


def of_varlen(place: Any) -> dict[str, Contender]:
    """Return the implementations of packed sequences: ours, PyTorch's packed kernel, and padded sequences."""

    def own(q: Tensor, k: Tensor, v: Tensor, seen: tuple[Any, ...]) -> Tensor:
        from iocourse.kernels import attention_varlen

        return attention_varlen(q, k, v, *seen[:2], longest=seen[2:], causal=True)

    def packed(q: Tensor, k: Tensor, v: Tensor, seen: tuple[Any, ...]) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn  # in newer versions of PyTorch

        return varlen_attn(q, k, v, *seen, window_size=(-1, 0))

    found: dict[str, Contender] = {
        name: Chosen(own, {"packed descriptors": by_descriptors, "backward pass": "fused"})
        for name, by_descriptors in ((FUSED, False), (PACKED_DESCRIPTORS, True))
    }
    return found | {PACKED: packed} | {name: partial(sdpa, name) for name in (FLASH, CUDNN)}


def of_decode(place: Any) -> dict[str, Contender]:
    """Return the implementations of decoding by name: ours in two launches, in one, and SDPA.

    `place` is ignored.
    """

    def own(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        from iocourse.kernels import decode

        return decode(q, k, v)[0]

    merged = {SPLIT_KV: "second launch", LAST_MERGES: "last program"}
    found: dict[str, Contender] = {name: Chosen(own, {"decode step": by}) for name, by in merged.items()}
    return found | {name: partial(sdpa, name) for name in BACKENDS}


def of_small_cache(place: Any) -> dict[str, Contender]:
    """Return the implementations for large heads: our default variant, each variant by name, and SDPA."""
    found: dict[str, Contender] = {DEFAULT: ours}
    found |= {name: partial(ours, tile_d=way) for way, name in BY_TILE_D.items()}
    found[WHOLE_ROWS] = Chosen(found[WHOLE_ROWS], {"backward pass": "fused"})
    found |= {name: partial(sdpa, name) for name in (EFFICIENT, FLASH, MATH)}
    return found | {name: partial(with_matrices, found[name], place) for name in ("materialised", MATH)}


def of_wide(place: Any) -> dict[str, Contender]:
    """Return the backward passes at d = 256: the default, complete rows in two passes with the chosen tiles
    and with larger ones, and SDPA. `place` is ignored.
    """
    whole = {fixed: partial(ours, tile_d="never", deterministic=fixed) for fixed in (False, True)}
    found: dict[str, Contender] = {DEFAULT: ours, WHOLE_ROWS: whole[True]}
    found |= with_tiles(whole[True], *WIDE_TILES) | with_tiles(whole[False], WIDE_FUSED)
    return found | {name: partial(sdpa, name) for name in (FLASH, CUDNN)}


def of_border(place: Any) -> dict[str, Contender]:
    """Return the forward pass with complete rows and with slices of d; `place` is ignored."""
    return {BY_TILE_D[way]: partial(ours, tile_d=way) for way in ("never", "fused")}


def of_order(place: Any) -> dict[str, Contender]:
    """Return the forward pass with its programs in both orders; `place` is ignored."""
    from tools.bench.program_order import in_order

    return {name: in_order(name, ours) for name in (TILES_FASTEST, HEADS_FASTEST)}


def of_merging(place: Any) -> dict[str, Contender]:
    """Return our implementations of decoding: a second launch merges, or the last program."""
    return {name: one for name, one in of_decode(place).items() if name in OURS}


# --- problems ----------------------------------------------------------------------------------------------

TOKENS, WIDTH = 16384, 2048  # tokens of every dense shape; H · d, rounded down to a multiple of d
LENGTHS = (4096, 1024, 16384, 8192, 2048)  # a quick run uses only the first
WIDE_HEADS, BORDER_HEADS = (256, 192), (320, 288, 384, 448)
MERGING_HEADS, MERGING_GROUP, MERGING_LENGTHS = (8, 12, 16, 24, 32), 4, (32768, 8192)
SPARSE_LENGTHS, DENSITIES_AT, BLOCK, REACH = (4096, 8192, 16384), 8192, 128, 512
KINDS = ("window", "BigBird", "random")
SMALL_CACHE_HEADS, SMALL_CACHE_LENGTHS = (512, 256, 320, 1024), (4096, 1024, 16384)
LENGTH_KINDS, SEQUENCES, SHORTEST, LONGEST = ("log-uniform", "uniform", "equal"), 16, 128, 8192
DECODE_LENGTHS = (32768, 4096, 8192, 16384, 65536, 131072)
DECODE_HEADS = ((32, 32), (32, 8), (32, 1))  # of queries, of keys


class Masked(NamedTuple):
    """Shape of a problem with q, k, v (B, H, N, d) and a mask, one of KINDS, NO_MASK or DENSITIES."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    mask: str


class Packs(NamedTuple):
    """Shape of a packed problem: `sequences` sequences with lengths of the distribution `lengths`."""

    dtype: str
    d: int
    H: int
    lengths: str
    sequences: int
    shortest: int
    longest: int


class Cached(NamedTuple):
    """Shape of a decoding problem: q (B, H, 1, d); k, v (B, H_kv, N, d)."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    H_kv: int


def filled(dtype: str, d: int, N: int, causal: bool) -> Shape:
    """Return the shape with 16,384 tokens and H · d = 2048."""
    return Shape(dtype, d, N, TOKENS // N, WIDTH // d, causal)


def dense_shapes(dtype: str, heads: Sequence[int], lengths: Sequence[int]) -> Callable[[bool], list[Shape]]:
    """Return a function of `quick` for the dense shapes, full and causal; quick: only the first length."""
    return lambda quick: [
        filled(dtype, d, N, causal)
        for N, d, causal in product(lengths[:1] if quick else lengths, heads, (False, True))
    ]


def wide_shapes(quick: bool) -> list[Shape]:
    """Return the dense shapes of large heads, full and causal; quick: only d = 256 at one length."""
    every = [filled("bfloat16", d, N, causal)
             for N in (LENGTHS[0], 16384) for d in WIDE_HEADS for causal in (False, True)]  # fmt: skip
    return every[:2] if quick else every


def merging_caches(quick: bool) -> list[Cached]:
    """Return decoding problems with few key heads, four query heads for each; quick: at one length."""
    lengths = MERGING_LENGTHS[:1] if quick else MERGING_LENGTHS
    return [Cached("bfloat16", 128, N, 1, MERGING_GROUP * H_kv, H_kv)
            for N, H_kv in product(lengths, MERGING_HEADS)]  # fmt: skip


def sparse_shapes(quick: bool) -> list[Masked]:
    """Return the shapes of masked problems, of random masks of every density, and without a mask; quick: only
    d = 128, at one length.
    """
    heads, lengths = ((128,), (4096,)) if quick else ((128, 64), SPARSE_LENGTHS)
    asked = [(d, N, mask) for N, d, mask in product(lengths, heads, KINDS)]
    asked += [(d, DENSITIES_AT, mask) for d, mask in product(heads, (NO_MASK, *DENSITIES))]
    return [Masked("bfloat16", d, N, TOKENS // N, WIDTH // d, mask) for d, N, mask in asked]


def packs(quick: bool) -> list[Packs]:
    """Return the shapes of packed problems; quick: only log-uniform lengths at d = 128."""
    heads, kinds = ((128,), LENGTH_KINDS[:1]) if quick else ((128, 64), LENGTH_KINDS)
    return [Packs("bfloat16", d, WIDTH // d, kind, SEQUENCES, SHORTEST, LONGEST)
            for d, kind in product(heads, kinds)]  # fmt: skip


def caches(quick: bool) -> list[Cached]:
    """Return the shapes of decoding problems; quick: only one length and B = 1."""
    lengths, batches = (DECODE_LENGTHS[:1], (1,)) if quick else (DECODE_LENGTHS, (1, 8))
    return [Cached("bfloat16", 128, N, B, *heads)
            for N, B, heads in product(lengths, batches, DECODE_HEADS)]  # fmt: skip


def heads_problem(
    shape: Any, device: str, seed: int, seen: Any, pairs: Pairs | None, share: float = 1.0, **facts: Any
) -> Problem:
    """Return a problem with normal q, k, v and dO (B, H, N, d); the last head of the last batch is checked.

    seen: the mask for implementations. pairs: the same for the reference. share: visible pairs over all
    pairs.
    """
    *inputs, do = normal((shape.B, shape.H, shape.N, shape.d), 4, shape.dtype, device, seed)
    work = share * flops("forward", B=shape.B, H=shape.H, N=shape.N, d=shape.d)
    given = Given(inputs, do, seen, lambda x: x[-1, -1])
    return Problem(given, pairs, rates(work, **facts), {FLEX: given._replace(seen=pairs)})


def not_later(i: Tensor, j: Tensor) -> Tensor:
    """Return the causal mask: query i attends to key j ≤ i."""
    return j <= i


def dense(shape: Shape, device: str, seed: int) -> Problem:
    """Return a dense problem; for causal attention, half of the FLOP count."""
    pairs, share = (not_later, 0.5) if shape.causal else (None, 1.0)
    return heads_problem(shape, device, seed, shape.causal, pairs, share)


def mask_of(name: str, N: int, block: int = BLOCK) -> masks.Mask:
    """Return the mask of this name for N queries and keys, in blocks of `block`.

    The window is |i - j| ≤ 512 per key, so tiles at its border are partial. BigBird has 1 global row and
    column of blocks, a window of ±1 block and 3 random blocks per row. Random masks have a tenth of the
    blocks, or about the share in their name, including the diagonal.
    """
    if name == "window":
        return masks.Window(N, REACH * block // BLOCK)
    if name == "BigBird":
        return masks.bigbird(N, block, g=1, w=1, r=3)
    if name == "random":
        return masks.random(N, block, 0.1)
    blocks = -(-N // block)
    return masks.random(N, block, max(0.0, (DENSITIES[name] * blocks - 1) / (blocks - 1)))


def pairs_of(mask: masks.Mask, device: str) -> Pairs:
    """Return a function (i, j) -> True for visible pairs; positions are tensors that broadcast."""
    import torch

    if isinstance(mask, masks.Window):
        reach = mask.w
        return lambda i, j: (i - j).abs() <= reach
    assert isinstance(mask, masks.BlockMask) and not mask.causal
    seen, rows, columns = torch.tensor(mask.tiles).to(device), mask.Br, mask.Bc
    return lambda i, j: seen[i // rows, j // columns]


def masked(shape: Masked, device: str, seed: int, block: int = BLOCK) -> Problem:
    """Return a problem with a block mask. Random masks have a fixed seed. Rows get `density`, the share
    of visible pairs.
    """
    if shape.mask == NO_MASK:
        return heads_problem(shape, device, seed, None, None, density=1.0)
    mask = mask_of(shape.mask, shape.N, block)
    pairs, share = pairs_of(mask, device), mask.nnz / shape.N**2
    return heads_problem(shape, device, seed, pairs, pairs, share, density=share)


def drawn(shape: Packs) -> list[int]:
    """Return the lengths of packed sequences: log-uniform or uniform between the two limits, or equal (a
    quarter of the longest). They are the same in every run.
    """
    if shape.lengths == "equal":
        return [shape.longest // 4] * shape.sequences
    source = np.random.default_rng(0)
    if shape.lengths == "uniform":
        return [int(n) for n in source.integers(shape.shortest, shape.longest + 1, shape.sequences)]
    exponents = source.uniform(np.log(shape.shortest), np.log(shape.longest), shape.sequences)
    return [round(float(n)) for n in np.exp(exponents)]


def pairs_in(lengths: Sequence[int]) -> int:
    """Return the number of causal pairs within sequences of these lengths."""
    return sum(n * (n + 1) // 2 for n in lengths)


def saved(lengths: Sequence[int]) -> float:
    """Return the ratio of FLOP with padding to the longest sequence to FLOP without padding."""
    return pairs_in([max(lengths)] * len(lengths)) / pairs_in(lengths)


def sequences(shape: Packs, device: str, seed: int) -> Problem:
    """Return a causal problem with the same normal q, k, v and dO packed, (T, H, d), and padded, (sequences,
    H, longest, d).

    Packed implementations also get the first row of each sequence and the longest lengths. The last head of
    the last sequence is checked. Because of the causal mask, padding at the end changes no result. Rows get
    the factors by which padding increases FLOP (`saved`) and tokens (`tokens_saved`).
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    lengths = drawn(shape)
    starts, n, longest = [0, *accumulate(lengths)], lengths[-1], max(lengths)
    packed = normal((starts[-1], shape.H, shape.d), 4, shape.dtype, device, seed)
    padded = [pad_sequence(x.split(lengths), batch_first=True).transpose(1, 2).contiguous() for x in packed]
    cu = torch.tensor(starts, dtype=torch.int32, device=device)
    given = Given(packed[:3], packed[3], (cu, cu, longest, longest), lambda x: x[-n:, -1])
    wide = Given(padded[:3], padded[3], True, lambda x: x[-1, -1, :n])
    more = {"saved": saved(lengths), "tokens_saved": longest * len(lengths) / starts[-1]}
    figures = rates(4.0 * shape.H * shape.d * pairs_in(lengths), tokens=starts[-1], **more)
    return Problem(given, not_later, figures, dict.fromkeys((FLASH, CUDNN), wide))


def must_read(shape: Cached) -> int:
    """Return the bytes of K and V, each number read once, as in the closed form."""
    return 2 * 2 * shape.B * shape.H_kv * shape.N * shape.d


def cache(shape: Cached, device: str, seed: int) -> Problem:
    """Return a decoding problem: one query per head, which attends to all keys. The last head of the last
    sequence is checked.
    """
    k, v = normal((shape.B, shape.H_kv, shape.N, shape.d), 2, shape.dtype, device, seed)
    (q,) = normal((shape.B, shape.H, 1, shape.d), 1, shape.dtype, device, seed + 1)
    given = Given((q, k, v), q, False, lambda x: x[-1, -1])  # not causal; there is no backward pass
    return Problem(given, None, lambda _, ms: {"gbytes_per_s": must_read(shape) / ms / 1e6, "us": 1000 * ms})


def copy_speed(place: Any, size: int = 2**31) -> Row:
    """Copy `size` bytes on the device; return bytes, milliseconds, and GB/s of reads and writes together."""
    import torch

    source = torch.randint(-128, 128, (size,), dtype=torch.int8, device=place.device)
    target = torch.empty_like(source)
    ms = time_of(lambda: target.copy_(source), stopwatch=place.stopwatch).ms
    return {"bytes": size, "ms": ms, "gbytes_per_s": 2 * size / ms / 1e6}
