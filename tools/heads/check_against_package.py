"""The package's own inference, to hold the NumPy forward pass against; needs sentence-transformers."""

from __future__ import annotations

from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from tools.heads.minilm import Trace, scaled_logits, sentence_embedding, softmax


def compare(folder: Path, text: str, tokens: list[str], trace: Trace) -> dict[str, Any]:
    """Largest differences between `trace` (float64) and the model in `folder` run by sentence-transformers.

    Raises ValueError if its tokenizer cuts `text` differently, ModuleNotFoundError without the package.
    """
    model = import_module("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = len(tokens)
    if model.tokenizer.convert_ids_to_tokens(model.tokenizer(text)["input_ids"]) != tokens:
        raise ValueError("text: sentence-transformers cuts it into other tokens than tokenize() does")
    embedding = model.encode([text])[0]  # (384,), float32
    hidden, P = _double(model, text)
    mine = softmax(scaled_logits(trace.Q, trace.K))  # (layers, heads, N, N)
    packages = ("sentence-transformers", "transformers", "torch")
    versions = [f"{name} {metadata.version(name)}" for name in packages]
    return {
        "with": ", ".join(versions),
        "tokens": "equal",
        "max_abs_difference_hidden_float64": _two(hidden - trace.hidden),
        "max_abs_difference_attention_float64_all_72_heads": _two(P - mine),
        "max_abs_difference_sentence_embedding_float32": _two(embedding - sentence_embedding(trace.hidden)),
    }


def _double(model: Any, text: str) -> tuple[Any, Any]:
    bert = model[0].auto_model.double()
    bert.set_attn_implementation("eager")  # the other implementations do not return the attention
    with import_module("torch").no_grad():
        out = bert(**model.tokenizer(text, return_tensors="pt"), output_attentions=True)
    return out.last_hidden_state[0].numpy(), np.stack([layer[0].numpy() for layer in out.attentions])


def _two(difference: Any) -> float:
    return float(f"{np.abs(difference).max():.1e}")
