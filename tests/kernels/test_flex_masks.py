"""Masks as users of FlexAttention write them, for scalars, against eager FlexAttention, forward and backward:
documents, prefixes, intervals, windows, offsets, reductions, tables, heads, neighbourhoods.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import gradients, numbers
from long_runs import many
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, or_masks

from iocourse.kernels import TiledMask, attention, tiled_mask, using

B, H, H_KV, N, M = 2, 4, 2, 50, 60
SMALL = {"forward": (32, 16), "fused": (16, 32), "queries": (16, 16), "keys": (32, 32)}
NEVER = "ignore:flex_attention called without torch.compile:UserWarning"
pytestmark = pytest.mark.filterwarnings(NEVER)

draw = torch.Generator().manual_seed(0)
DOCUMENTS = torch.randint(0, 2, (M,), generator=draw).cumsum(0) // 8
OF_EACH_TEXT = torch.randint(0, 2, (B, M), generator=draw).cumsum(1) // 6
STARTS = torch.tensor([0, 7, 22, 41, M])
OFFSETS, LENGTHS = torch.tensor([3, 17]), torch.tensor([31, 60])
PREFIXES = torch.tensor([9, 25])
GROUPS = torch.rand(M, 5, generator=draw) < 0.25
CODES = torch.randint(0, 2**6, (M,), generator=draw)
BLOCKS = torch.rand(B, H, 4, 4, generator=draw) < 0.5
PAIRS = torch.rand(M, M, generator=draw) < 0.4
BEGINS = torch.randint(0, M, (M,), generator=draw)
ENDS = BEGINS + torch.randint(0, M // 2, (M,), generator=draw)
REACHES, SLOPES = torch.tensor([1, 5, 20, M]), torch.tensor([1, 2, 3, 5])
FEATURES = torch.randn(M, 3, generator=draw)
WIDTH = 8  # pixels in a row of an image


def causal(b, h, i, j):
    return i >= j


def document(b, h, i, j):
    return DOCUMENTS[i] == DOCUMENTS[j]


def document_of_each_text(b, h, i, j):
    return (OF_EACH_TEXT[b, i] == OF_EACH_TEXT[b, j]) & (i >= j)


def from_offsets(b, h, i, j):
    """Documents by where they start, as in jagged batches."""
    return torch.searchsorted(STARTS, i, right=True) == torch.searchsorted(STARTS, j, right=True)


def within_document(b, h, i, j):
    """A mask on positions within the document: attention-gym's generate_doc_mask_mod."""
    start = STARTS[torch.searchsorted(STARTS, i, right=True) - 1]
    return from_offsets(b, h, i, j) & causal(b, h, i - start, j - start)


def prefix(b, h, i, j):
    return (j < PREFIXES[b]) | (i >= j)


def window(b, h, i, j):
    return (i - j <= 11) & (i >= j)


def window_either_side(b, h, i, j):
    return torch.abs(i - j) <= 6


def dilated(b, h, i, j):
    return ((i - j).abs() <= 20) & ((i - j) % 4 == 0)


def sink_and_window(b, h, i, j):
    return (j < 4) | ((i >= j) & (i - j < 9))


def interval(b, h, i, j):
    """Each query has its own interval of keys; many are empty."""
    return (j >= BEGINS[i]) & (j < ENDS[i])


def offset_of_each_text(b, h, i, j):
    """A step of a cache: queries begin at another position in each text."""
    return i + OFFSETS[b] >= j


def padding_of_each_text(b, h, i, j):
    return (j < LENGTHS[b]) & (i < LENGTHS[b])


def share_a_group(b, h, i, j):
    return (GROUPS[i] & GROUPS[j]).any()


def share_two_groups(b, h, i, j):
    return torch.sum(GROUPS[i] * GROUPS[j]) >= 2


def look_alike(b, h, i, j):
    return torch.dot(FEATURES[i], FEATURES[j]) > 0.3


def by_bits(b, h, i, j):
    return torch.bitwise_and(CODES[i], CODES[j]) != 0


def by_table(b, h, i, j):
    return PAIRS[i, j]


def by_blocks(b, h, i, j):
    return BLOCKS[b, h, i // 16, j // 16]


def of_each_head(b, h, i, j):
    return (i - j).abs() <= REACHES[h]


def of_each_head_and_text(b, h, i, j):
    return ((i - j) % SLOPES[h] == 0) & (j >= b * 10)


def by_where(b, h, i, j):
    return torch.where(h % 2 == 0, i >= j, i <= j)


def neighbourhood(b, h, i, j):
    """NATTEN: a square of pixels, moved inwards where it would pass the border of the image."""
    rows = -(-M // WIDTH)
    y, x = (i // WIDTH).clamp(2, rows - 3), (i % WIDTH).clamp(2, WIDTH - 3)
    return ((y - j // WIDTH).abs() <= 2) & ((x - j % WIDTH).abs() <= 2)


def tiles_of_an_image(b, h, i, j):
    """Return True if key j is in the column of 4 × 4 image tiles of query i, at most one tile away.

    The mask has the form of tiled NATTEN and sliding tile attention in attention-gym.
    """
    y, x = i // WIDTH // 4, i % WIDTH // 4
    return ((y - j // WIDTH // 4).abs() <= 1) & (x == j % WIDTH // 4)


def own_pixel_of_each_frame(b, h, i, j):
    return (i // 12 == j // 12) | (i % 12 == j % 12)


def twins(b, h, i, j):
    """Two copies of a text side by side, as block diffusion trains with."""
    noisy, clean = i < N // 2, j >= N // 2
    block_q, block_k = i % (N // 2) // 5, j % (N // 2) // 5
    return (~noisy & clean & (block_q >= block_k)) | (noisy & clean & (block_q > block_k)) | (
        noisy & ~clean & (block_q == block_k)
    )  # fmt: skip


def nothing(b, h, i, j):
    return j < 0


def everything(b, h, i, j):
    return i >= 0


class Reach(NamedTuple):
    """A predicate that is an object."""

    reach: int

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= self.reach


PREDICATES: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        causal, document, document_of_each_text, from_offsets, within_document, prefix, window,
        window_either_side, dilated, sink_and_window, interval, offset_of_each_text, padding_of_each_text,
        share_a_group, share_two_groups, look_alike, by_bits, by_table, by_blocks, of_each_head,
        of_each_head_and_text, by_where, neighbourhood, tiles_of_an_image, own_pixel_of_each_frame, twins,
        nothing, everything,
    )
} | {
    "and_masks": and_masks(document, window_either_side),
    "or_masks": or_masks(document, window, prefix),
    "object": Reach(9),
}  # fmt: skip


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Tensor, ...]]:
    """Uncompiled FlexAttention, O and gradients. Its backward pass on a CPU works, but is locked."""
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)

    def results(mask: Any, q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        return gradients(flex.flex_attention(*leaves, block_mask=mask, enable_gqa=True), leaves, do)

    return results


def pairs_of(mask: TiledMask) -> Tensor:
    """(B, H, N, M): the tiles written out."""
    kinds, patterns = mask.tiles(16, 16, torch.device("cpu"))
    empty, full = torch.zeros(1, 16, 16), torch.ones(1, 16, 16)
    tiles = torch.cat([patterns, empty, full]).bool()[kinds]  # -2 is the last but one, -1 the last
    return tiles.transpose(3, 4).flatten(4, 5).flatten(2, 3)[..., :N, :M]


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates_on_scalars(name: str):
    """The pairs that are visible are all that the kernels get to know of a predicate."""
    predicate = PREDICATES[name]
    q, k = torch.empty(B, H, N, 16), torch.empty(B, H_KV, M, 16)
    blocks = create_block_mask(predicate, B, H, N, M, device="cpu", BLOCK_SIZE=16)
    visible = create_mask(predicate, B, H, N, M, device="cpu")
    assert (visible.any() or name == "nothing") and (not visible.all() or name == "everything")
    made = tiled_mask(predicate, q, k)
    assert torch.equal(pairs_of(made), visible) and tiled_mask(blocks, q, k) == made


# One for all, of each text, of each head, of both; ragged rows, rows and columns without any, none, all.
ATTENDED = ["causal", "document_of_each_text", "of_each_head", "by_blocks", "by_table", "interval", "nothing"]


@pytest.mark.parametrize("name", many([*ATTENDED, "everything"], list(PREDICATES)))
def test_values_and_gradients_are_those_of_eager_flex_attention(name: str, eager: Any):
    predicate = PREDICATES[name]
    q, k, v, do = numbers(5, torch.float32, (B, H, N, 16), *[(B, H_KV, M, 16)] * 2, (B, H, N, 16))
    made = tiled_mask(predicate, q, k)
    blocks = create_block_mask(predicate, B, H, N, M, device="cpu", BLOCK_SIZE=16)
    want = eager(blocks, q, k, v, do)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    for deterministic in (False, True):
        with using(**SMALL):
            got = gradients(attention(*leaves, block_mask=made, deterministic=deterministic), leaves, do)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


def test_a_mask_that_all_share_is_evaluated_once():
    q, k = torch.empty(B, H, N, 16), torch.empty(B, H_KV, M, 16)
    assert tiled_mask(document, q[:1, :1], k).shape == (1, 1, N, M)
    shared = create_block_mask(document, None, None, N, M, device="cpu", BLOCK_SIZE=32)
    assert tiled_mask(shared, q, k) == tiled_mask(document, q[:1, :1], k)


def test_a_predicate_is_not_called_where_no_key_is_near():
    """Rows of blocks that are all empty or full do not call the predicate."""
    asked = []

    def predicate(b, h, i, j):
        asked.append(i)
        return i >= j

    blocks = create_block_mask(causal, None, None, 300, 300, device="cpu", BLOCK_SIZE=128)
    blocks.mask_mod = predicate
    blocks.kv_num_blocks[..., :2] = 0
    q = torch.empty(1, 1, 300, 8)
    made = tiled_mask(blocks, q, q)
    assert len(asked) == 1
    kinds, patterns = made.tiles(128, 128, q.device)
    assert kinds[0, 0].tolist() == [[-2, -2, -2], [-1, -2, -2], [-1, -1, 0]] and len(patterns) == 1
