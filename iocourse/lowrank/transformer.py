"""A small transformer for measurements, with attention as an exchangeable callable.

It has LayerNorm before each part, residual connections, rotary positions and no dropout. The queries are
scaled before they are passed to the callable, so every callable computes softmax(q kᵀ) v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sizes import positive_int, truth
from . import attention

LONG = 100.0
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v, each (B, heads, n, d) -> (B, heads, n, d)


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer: vocabulary, sequence length, layers, heads, and head dimension d (even).

    bound: B, if queries and keys are normalised so that no logit exceeds ±B; None: q·k/√d without a bound.
    """

    vocabulary: int
    length: int
    layers: int = 3
    heads: int = 8
    d: int = 8
    bound: float | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "length", "layers", "heads", "d"):
            object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        if self.d % 2:
            raise ValueError(f"d must be even, because pairs of columns are rotated, got {self.d}")
        if self.bound is not None and not 0 < self.bound < float("inf"):
            raise ValueError(f"bound must be positive and finite, or None, got {self.bound}")

    @property
    def width(self) -> int:
        """Columns of the residual stream: heads · d."""
        return self.heads * self.d

    @property
    def key_variance(self) -> float:
        """Variance of the entries of a key at initialisation: 1/d if keys have length 1, otherwise 1/3.

        `nn.Linear` draws weights of variance 1 / (3 width), and its input from LayerNorm has variance 1.
        """
        return 1 / 3 if self.bound is None else 1 / self.d


def exactly(causal: bool = True) -> Attend:
    """Return a callable for exact softmax attention by PyTorch."""
    causal = truth("causal", causal)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def low_rank(degree: int, causal: bool = True, **options: Any) -> Attend:
    """Return a callable for `lowrank.attention` of this degree and with these options."""
    return lambda q, k, v: attention(q, k, v, degree=degree, scale=1.0, causal=causal, **options)


def uniformly(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return uniform causal attention (degree 0), a control: row i is the mean of the values up to i."""
    seen = torch.arange(1, v.shape[-2] + 1, device=v.device, dtype=v.dtype)
    return v.cumsum(-2) / seen[:, None]


def apply_rotary(x: Tensor) -> Tensor:
    """Apply rotary positions: rotate columns i and i + d/2 of row p of x (…, n, d) by p · 100^(-2i/d).

    Products of rotated rows depend on their distance; lengths do not change. Source: 2104.09864, with 100
    instead of 10,000, because sequences here have a few hundred tokens.
    """
    half = x.shape[-1] // 2
    places = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None]
    angles = places * LONG ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    cos, sin, (a, b) = angles.cos(), angles.sin(), x.split(half, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class LargestLogit:
    """Exact attention that records `largest`, the maximum of |q·k| over all calls."""

    def __init__(self, causal: bool = True) -> None:
        self.causal, self.largest = causal, 0.0
        self.attend = exactly(causal)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = (q @ k.mT).abs()
        self.largest = max(self.largest, float((logits.tril() if self.causal else logits).max()))
        return self.attend(q, k, v)


class Layer(nn.Module):  # type: ignore[misc]
    """Transformer layer: multi-head attention, then a perceptron, each added to the stream (B, n, width)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.shape = shape
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        O = attend(*self.heads_of(self.before_attention(x)))
        x = x + self.W_O(O.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.before_perceptron(x))))

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v of all heads, (B, heads, n, d); q is scaled already, for softmax(q kᵀ)."""
        split = (-1, (self.shape.heads, self.shape.d))
        q, k, v = (W(x).unflatten(*split).transpose(1, 2) for W in (self.W_Q, self.W_K, self.W_V))
        q, k = apply_rotary(q), apply_rotary(k)
        if self.shape.bound is None:
            return q / self.shape.d**0.5, k, v
        return self.shape.bound * F.normalize(q, dim=-1), F.normalize(k, dim=-1), v


class Transformer(nn.Module):  # type: ignore[misc]
    """Model from tokens (B, n) to scores (B, n, vocabulary) of the next token.

    attend: attention of all layers, or a sequence with that of each layer; it may be replaced.
    """

    def __init__(self, shape: Shape, attend: Attend | Sequence[Attend]) -> None:
        super().__init__()
        self.shape, self.attend = shape, attend
        self.of_token = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.before_scores = nn.LayerNorm(shape.width)
        self.scores = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.from_stream(self.embed(tokens))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of the tokens, the input of the first layer: (B, n, width)."""
        x: Tensor = self.of_token(tokens)
        return x

    def from_stream(self, x: Tensor) -> Tensor:
        """Return the scores (B, n, vocabulary) from the input of the first layer."""
        each = [self.attend] * len(self.layers) if callable(self.attend) else self.attend
        for layer, attend in zip(self.layers, each, strict=True):
            x = layer(x, attend)
        return self.scores(self.before_scores(x))


def transformer(shape: Shape, attend: Attend, seed: int = 0) -> Transformer:
    """Return a transformer with PyTorch's default initial weights, drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(shape, attend)
