"""One block mask as every contender takes it, made before the clock starts, and attention under it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse import masks

from . import density
from .contenders import flex_mask
from .place import Place
from .problem import Problem, heads

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 128  # FlexAttention's own
REACH = 512  # of the window, in keys to either side
NO_MASK = "no mask"
KINDS = ("window", "BigBird", "random")


class Shape(NamedTuple):
    """One problem: q, k, v are (B, H, N, d); the mask is one of KINDS, NO_MASK or `density.NAMES`."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    mask: str


def mask_of(name: str, N: int, block: int = BLOCK) -> masks.Mask:
    """The mask of this name for N queries and keys, in blocks of `block`.

    The window is |i - j| ≤ 512, key by key, so its border cuts tiles; BigBird has 1 global row and column of
    blocks, a window of ±1 block and 3 random blocks a row; random has a tenth of the blocks.
    """
    if name == "window":
        return masks.Window(N, REACH * block // BLOCK)
    if name == "BigBird":
        return masks.bigbird(N, block, g=1, w=1, r=3)
    if name == "random":
        return masks.random(N, block, 0.1)
    return with_share(N, block, density.NAMES[name])


def with_share(N: int, block: int, share: float) -> masks.BlockMask:
    """A random mask with about this share of its blocks seen, the diagonal among them."""
    blocks = -(-N // block)
    others = (share * blocks - 1) / (blocks - 1) if blocks > 1 else 1.0
    return masks.random(N, block, min(1.0, max(0.0, others)))


class MaskForms:
    """A mask on a device: as a predicate, as FlexAttention's BlockMask, as booleans, as our tiles."""

    def __init__(self, mask: masks.Mask, device: str) -> None:
        """Nothing is made yet."""
        self.mask, self._device = mask, device

    @cached_property
    def pairs(self) -> Any:
        """(i, j) -> whether query i sees key j; positions are tensors that broadcast."""
        import torch

        if isinstance(self.mask, masks.Window):
            reach = self.mask.w
            return lambda i, j: (i - j).abs() <= reach
        assert isinstance(self.mask, masks.BlockMask) and not self.mask.causal
        tiles, rows, columns = torch.tensor(self.mask.tiles).to(self._device), self.mask.Br, self.mask.Bc
        return lambda i, j: tiles[i // rows, j // columns]

    @cached_property
    def flex(self) -> Any:
        """FlexAttention's BlockMask."""
        pairs = self.pairs
        return flex_mask(lambda batch, head, i, j: pairs(i, j), self.mask.N, self._device)

    @cached_property
    def booleans(self) -> Tensor:
        """(N, N), True where a pair is seen."""
        import torch

        i = torch.arange(self.mask.N, device=self._device)
        found: Tensor = self.pairs(i[:, None], i[None, :])
        return found

    def tiled(self, q: Tensor, k: Tensor) -> Any:
        """The same BlockMask, cut into tiles for our kernels once."""
        from iocourse.kernels import tiled_mask

        if not hasattr(self, "_tiled"):
            self._tiled = tiled_mask(self.flex, q, k)
        return self._tiled


def masked(shape: Shape, place: Place, seed: int, block: int = BLOCK) -> Problem:
    """Draw it from the seed; random masks have a seed of their own, the same in every run.

    A row says as `density` which share of all pairs is seen; they alone count in its FLOP.
    """
    if shape.mask == NO_MASK:
        return heads(shape, place, seed, None, None, density=1.0)
    mask = mask_of(shape.mask, shape.N, block)
    seen, share = MaskForms(mask, place.device), mask.nnz / shape.N**2
    return heads(shape, place, seed, seen, seen.pairs, share, density=share)
