"""all-MiniLM-L6-v2 in NumPy: WordPiece, weights, and a forward pass that returns Q, K, V of every head.

The model is BERT (Devlin et al., 1810.04805) with 6 layers, 12 heads of d = 32 and width 384; MiniLM is
2002.10957. There is one sequence, without dropout, padding or mask.
"""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.floating[Any]]
Weights = Mapping[str, Array]

LAYERS, HEADS, HEAD_WIDTH, LAYER_NORM_EPS = 6, 12, 32, 1e-12


@dataclass(frozen=True)
class Trace:
    """Results of one forward pass; `Q`, `K`, `V` are (layers, heads, N, d), without the scale 1/√d."""

    Q: Array
    K: Array
    V: Array
    hidden: Array  # (N, 384), after the last layer
    worst_row_sum: float  # largest |sum of an attention row - 1|
    worst_norm: (
        float  # largest deviation of a LayerNorm row from mean 0 and variance 1, before weight and bias
    )


# ---- files -------------------------------------------------------------------------------------------------


def safetensors(raw: bytes) -> dict[str, Array]:
    """Return the float32 arrays of a safetensors file (an 8-byte length, a JSON header, then the data)."""
    (length,) = struct.unpack("<Q", raw[:8])
    entries = json.loads(raw[8 : 8 + length])
    body = memoryview(raw)[8 + length :]
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(body[start:end], "<f4").reshape(entry["shape"])
    return arrays


# ---- WordPiece ---------------------------------------------------------------------------------------------


def _basic_words(text: str) -> list[str]:
    """Return the lower-case words of `text` without accents; every punctuation mark is a word.

    This is sufficient for European text. BERT also splits around every Chinese character.
    """
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"\w+|[^\w\s]|_", plain.replace("_", " _ "))


def _pieces(word: str, vocab: Mapping[str, int]) -> Iterator[str]:
    """Split a word greedily into the longest pieces of `vocab`; pieces after the first start with ##.

    A word that cannot be split is [UNK].
    """
    start, found = 0, []
    while start < len(word):
        prefix = "##" if start else ""
        fits = (end for end in range(len(word), start, -1) if prefix + word[start:end] in vocab)
        end = next(fits, 0)
        if not end:
            return iter(["[UNK]"])
        found.append(prefix + word[start:end])
        start = end
    return iter(found)


def tokenize(text: str, vocab: Mapping[str, int]) -> list[str]:
    """Return the WordPiece tokens of `text` between [CLS] and [SEP]; `vocab` maps a piece to its row."""
    inner = [piece for word in _basic_words(text) for piece in _pieces(word, vocab)]
    return ["[CLS]", *inner, "[SEP]"]


def read_vocab(raw: bytes) -> dict[str, int]:
    """Return vocab.txt as a map from a piece to its row; the file has one piece per line."""
    return {piece: row for row, piece in enumerate(raw.decode("utf-8").splitlines())}


# ---- the forward pass --------------------------------------------------------------------------------------


_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has no erf


def gelu(x: Array) -> Array:
    """Return GELU(x), x times the normal distribution function of x, in the exact form that BERT uses."""
    erf: Array = np.asarray(_erf(x / math.sqrt(2.0)), dtype=x.dtype)
    return x * (0.5 * (1.0 + erf))


def softmax(S: Array) -> Array:
    """Return the softmax over the last axis, in the precision of S."""
    E: Array = np.exp(S - S.max(axis=-1, keepdims=True))
    return np.asarray(E / E.sum(axis=-1, keepdims=True))


def scaled_logits(Q: Array, K: Array) -> Array:
    """Return QKᵀ/√d over the last two axes, in the precision of Q and K."""
    scale = np.asarray(Q.shape[-1] ** -0.5, dtype=Q.dtype)
    return np.asarray(Q @ K.swapaxes(-1, -2) * scale)


class MiniLM:
    """The encoder; `run(tokens)` returns a `Trace`. All arithmetic is in `dtype`."""

    def __init__(self, weights: Weights, vocab: Mapping[str, int], dtype: DTypeLike = np.float64) -> None:
        self.weights, self.vocab, self.dtype = weights, vocab, np.dtype(dtype)
        self._worst_norm = self._worst_row_sum = 0.0

    def run(self, tokens: list[str]) -> Trace:
        """Return the trace of `tokens` (N ≤ 512, [CLS] first, [SEP] last) with Q, K, V of every head."""
        self._worst_norm = self._worst_row_sum = 0.0
        x = self._embed([self.vocab[token] for token in tokens])  # (N, 384)
        kept = []
        for layer in range(LAYERS):
            heads, x = self._layer(f"encoder.layer.{layer}.", x)
            kept.append(heads)
        Q, K, V = np.stack(kept, axis=1)  # each (layers, heads, N, d)
        return Trace(Q, K, V, x, self._worst_row_sum, self._worst_norm)

    def _w(self, name: str) -> Array:
        return self.weights[name].astype(self.dtype)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._w(name + ".weight").T + self._w(name + ".bias")

    def _norm(self, name: str, x: Array) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + LAYER_NORM_EPS)
        off = max(np.abs(x.mean(axis=-1)).max(), np.abs(x.var(axis=-1) - 1).max())
        self._worst_norm = max(self._worst_norm, float(off))
        return x * self._w(name + ".weight") + self._w(name + ".bias")

    def _embed(self, rows: list[int]) -> Array:
        words = self._w("embeddings.word_embeddings.weight")[rows]  # (N, 384)
        places = self._w("embeddings.position_embeddings.weight")[: len(rows)]  # (N, 384)
        segment = self._w("embeddings.token_type_embeddings.weight")[0]  # (384,)
        return self._norm("embeddings.LayerNorm", words + places + segment)

    def _layer(self, name: str, x: Array) -> tuple[Array, Array]:
        parts = ("query", "key", "value")
        heads = np.stack([self._split(f"{name}attention.self.{part}", x) for part in parts])  # (3, 12, N, 32)
        mixed = self._linear(name + "attention.output.dense", self._attend(*heads))
        x = self._norm(name + "attention.output.LayerNorm", x + mixed)
        inner = gelu(self._linear(name + "intermediate.dense", x))  # (N, 1536)
        return heads, self._norm(name + "output.LayerNorm", x + self._linear(name + "output.dense", inner))

    def _split(self, name: str, x: Array) -> Array:
        return self._linear(name, x).reshape(len(x), HEADS, HEAD_WIDTH).transpose(1, 0, 2)  # (heads, N, d)

    def _attend(self, Q: Array, K: Array, V: Array) -> Array:
        P = softmax(scaled_logits(Q, K))  # (heads, N, N)
        self._worst_row_sum = max(self._worst_row_sum, float(np.abs(P.sum(axis=-1) - 1).max()))
        return (P @ V).transpose(1, 0, 2).reshape(-1, HEADS * HEAD_WIDTH)  # (N, 384)


def sentence_embedding(hidden: Array) -> Array:
    """Return the mean of the token rows, scaled to length 1, as sentence-transformers does, (384,)."""
    mean = hidden.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))
