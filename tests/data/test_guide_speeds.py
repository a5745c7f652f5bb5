"""The figures of the guide's page of kernels, docs/guide/kernels.md, are those of the records."""

from pathlib import Path

import pytest

from iocourse.data.records import load_record

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
KERNELS = " ".join((GUIDE / "kernels.md").read_text(encoding="utf-8").split())


def ratio(name, contender, pass_, d, rival="SDPA flash"):
    """The geometric mean over the recorded times alone, and of how many shapes."""
    rows = [row for row in load_record(name)["rows"] if "ms" in row and (row["pass"], row["d"]) == (pass_, d)]
    at = {(row["contender"], row["N"], row["causal"]): row["ms"] for row in rows}
    found = [at[rival, *shape] / ms for (who, *shape), ms in at.items() if who == contender]
    product = 1.0
    for one in found:
        product *= one
    return product ** (1 / len(found)), len(found)


@pytest.mark.parametrize(
    ("start", "name", "contender", "pass_", "rival"),
    [
        ("forward | PyTorch's FlashAttention-2 (SDPA flash)", "attention", "fused", "forward", "SDPA flash"),
        ("backward, two-pass (now the default there) | SDPA flash", "attention", "two-pass", "backward",
         "SDPA flash"),
        ("backward, fused (`deterministic=False`) | SDPA flash", "attention", "fused", "backward",
         "SDPA flash"),
        ("forward | SDPA cuDNN", "attention", "fused", "forward", "SDPA cuDNN"),
        ("backward, two-pass | SDPA cuDNN", "attention", "two-pass", "backward", "SDPA cuDNN"),
        ("forward, N = 4,096 | Triton's tutorial 06", "attention-tutorial", "fused", "forward", "tutorial"),
    ],
)  # fmt: skip
def test_a_line_of_the_table_of_kernels_is_that_of_the_record(start, name, contender, pass_, rival):
    (mean, count), (other, fewer) = (ratio(name, contender, pass_, d, rival) for d in (64, 128))
    assert f"| {start} | {mean:.2f} ({count}) | {other:.2f} ({fewer}) |" in KERNELS


def test_the_sentences_around_the_table_are_those_of_the_records():
    record = load_record("attention")
    device, versions = record["device"], record["versions"]
    assert (
        f"{device['name']}, driver {device['driver']}, torch {versions['torch']}, "
        f"Triton {versions['triton']}, {record['date']}" in KERNELS
    )
    assert record["shapes"] == {"asked": 20, "done": 17} and "before the last three shapes" in KERNELS
    assert f"commit {record['commit'][:7]}, before the tiles of `tune.json` were used" in KERNELS
    shares = [row["share"] for row in load_record("decode")["rows"] if row["contender"] == "split-KV"]
    assert "at {:.2f}, {:.2f} and {:.2f} of the speed of a copy".format(*shares) in KERNELS
    sparse = [row for row in load_record("sparse")["rows"] if row["contender"] == "fused"]
    for pass_, said in (("forward", "({} to {})"), ("forward+backward", "both passes together {} to {}")):
        found = [f"{row['ratio']:.2f}" for row in sparse if row["pass"] == pass_]
        assert said.format(min(found), max(found)) in KERNELS
    packed = {(row["contender"], row["pass"]): row["ms"] for row in load_record("varlen")["rows"]}
    for pass_, said in (
        ("forward", "{:.2f} times as fast as PyTorch's own"),
        ("backward", "and {:.2f} times backward"),
    ):
        assert said.format(packed["varlen_attn", pass_] / packed["fused", pass_]) in KERNELS
    quick = ("decode", "sparse", "small-cache", "varlen")
    assert all(load_record(name)["quick"] for name in quick) and "(`--quick`)" in KERNELS
