"""`decode`: one query of each sequence against its cache of keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from ..guard import library_answer
from ..sizes import positive_int
from . import mode
from .arguments import accepted
from .decode_kernels import merge_kernel, parts_kernel
from .launch_whole import constants_of
from .layout import as_asked, given, readable
from .start import start
from .tiles import decode_tile, padded

LARGEST_HEAD = 256
MOST_PARTS = 64  # the merge holds one row of O for each part
PROGRAMS_A_PROCESSOR = 2


@library_answer
def decode(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, parts: int | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scale · qKᵀ) V for one query a sequence, and its log-sum-exp: the step of generating one token.

    The query is the last token, so it sees every key. K and V are read once for up to 64 heads that share
    them. Nothing is kept for a backward pass.

    Args:
        q: (B, H, 1, d), float16, bfloat16 or float32, d from 1 to 256.
        k: (B, H_kv, N, d), of the same type; H_kv divides H. On a GPU a cache whose rows are no multiples of
            16 numbers, or not on 16-byte borders, is copied first, in every step.
        v: (B, H_kv, N, d), of the same type.
        scale: factor of qKᵀ; 1/√d where None.
        parts: into how many stretches the keys are cut, 64 at most; None: enough to fill the chip.

    Returns:
        O (B, H, 1, d) in q's type; LSE (B, H, 1), float32, natural logarithm.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    q, k, v, factor = accepted(q, k, v, scale, LARGEST_HEAD)
    if q.shape[2] != 1:
        raise ValueError(f"q has {q.shape[2]} queries a head; allowed: 1, and attention for more")
    if parts is not None and positive_int("parts", parts) > MOST_PARTS:
        raise ValueError(f"parts is {parts}; allowed: 1 to {MOST_PARTS}, or None")
    o, lse = _operator(q, k, v, factor, parts or 0)
    return o, lse


@torch.library.custom_op("iocourse::decode", mutates_args=())
def _operator(q: Tensor, k: Tensor, v: Tensor, scale: float, parts: int) -> tuple[Tensor, Tensor]:
    with mode.on(q.device):
        fit_q, fit_k, fit_v = readable(q, k, v)
        o, lse = decode_launches(fit_q, fit_k, fit_v, scale, parts)
    return as_asked(q, o), lse


@_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, parts: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def decode_launches(q: Tensor, k: Tensor, v: Tensor, scale: float, asked: int) -> tuple[Tensor, Tensor]:
    B, H, _, d = q.shape
    kv_heads, n_k = k.shape[1], k.shape[2]
    group = H // max(1, kv_heads)
    DIM = padded(d)
    tile = decode_tile(mode.architecture(q.device), d, q.element_size(), group)
    tiles = -(-group // tile.BM)
    parts, length = cut(n_k, tile.BN, asked or enough_parts(_processors(q.device), B * kv_heads * tiles))
    o, lse = torch.empty_like(q), torch.empty((B, H, 1), dtype=torch.float32, device=q.device)
    found = torch.empty((B * kv_heads, parts, group, d), dtype=torch.float32, device=q.device)
    sums = torch.empty((B * kv_heads, parts, group), dtype=torch.float32, device=q.device)
    q_strides = (q.stride(0), group * q.stride(1), q.stride(1))
    start(
        parts_kernel, parts * tiles * B * kv_heads,
        q, q_strides, *given(k, v), found, sums,
        scale, parts, length, tiles, kv_heads, group, n_k, d,
        **constants_of(q, tile), DIM=DIM, PADDED=d != DIM,
    )  # fmt: skip
    start(
        merge_kernel, B * kv_heads * group,
        found, sums, o, tuple(o.stride()[:3]), lse, parts, kv_heads, group, d,
        PARTS=1 << (parts - 1).bit_length(), DIM=DIM, num_warps=4,
    )  # fmt: skip
    return o, lse


def cut(n_k: int, BN: int, parts: int) -> tuple[int, int]:
    """How many parts there are, and keys in each: whole tiles, and as many parts as asked, or fewer."""
    tiles = max(1, -(-n_k // BN))
    length = -(-tiles // min(parts, tiles)) * BN
    return max(1, -(-n_k // length)), length


def enough_parts(processors: int | None, programs: int) -> int:
    """Parts that give each multiprocessor a few programs, of which there are so many without parts; four
    where there is no GPU.
    """
    if processors is None:
        return 4
    return max(1, min(MOST_PARTS, PROGRAMS_A_PROCESSOR * processors // max(1, programs)))


def _processors(device: torch.device) -> int | None:
    if mode.architecture(device) is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
