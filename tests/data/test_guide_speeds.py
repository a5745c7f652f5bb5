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
    assert (
        record["shapes"] == {"asked": 20, "done": 7} and "7 of 20 shapes were timed for this table" in KERNELS
    )
    assert f"commit {record['commit'][:7]}, before the tiles of today's `tune.json` were used" in KERNELS
    older = load_record("attention-lengths")
    assert older["shapes"]["done"] == 17 and f"17 shapes with N up to {16384:,}" in KERNELS
    assert {row["N"] for row in record["rows"]} == {1024, 4096}
    assert max(row["N"] for row in older["rows"]) == 16384 and f"({older['date']})" in KERNELS


def test_the_sentences_on_decode_masks_packs_and_large_heads_are_those_of_the_records():
    decode = {
        (row["contender"], row["H_kv"]): row
        for row in load_record("decode")["rows"]
        if (row["N"], row["B"]) == (32768, 1)
    }
    shares = [decode["split-KV", heads]["share"] for heads in (32, 8, 1)]
    assert "at {:.2f}, {:.2f} and {:.2f} of the speed of a copy".format(*shares) in KERNELS
    few, many = (
        [decode[who, heads]["us"] for who in ("last program merges", "split-KV")] for heads in (1, 32)
    )
    said = "{:.1f} µs instead of {:.1f} with one head of keys, and {:.1f} instead of {:.1f} with 32"
    assert said.format(*few, *many) in KERNELS
    sparse = [row for row in load_record("sparse")["rows"] if row["contender"] == "fused"]
    for pass_, said in (
        ("forward", "{} to {} times as fast as compiled FlexAttention"),
        ("forward+backward", "both passes together {} to {} times"),
    ):
        found = [f"{row['ratio']:.2f}" for row in sparse if row["pass"] == pass_]
        assert said.format(min(found), max(found)) in KERNELS
    packed = {
        (row["contender"], row["pass"], row["lengths"], row["d"]): row["ms"]
        for row in load_record("varlen")["rows"]
    }
    for pass_, said in (
        ("forward", "{:.2f} to {:.2f} times as fast as PyTorch's own packed kernel"),
        ("backward", "and {:.2f} to {:.2f} times backward"),
    ):
        found = [
            packed["varlen_attn", *at] / ms
            for (who, *at), ms in packed.items()
            if who == "fused" and at[0] == pass_
        ]
        assert said.format(min(found), max(found)) in KERNELS
    large = {
        row["causal"]: row["ratio"]
        for row in load_record("small-cache")["rows"]
        if (row["contender"], row["d"], row["N"], row["pass"]) == ("default", 512, 4096, "backward")
    }
    assert f"{large[False]:.2f} (full) and {large[True]:.2f} (causal) times" in KERNELS


def test_the_sentence_on_counters_is_that_of_the_record():
    """The SMs read the closed form to the byte in three of five launches, and L2 is read less."""
    runs = load_record("profile")["runs"]
    reads = [
        (run["counters"]["l1tex__m_xbar2l1tex_read_bytes.sum"], run["bytes"]["closed_form"]["read"])
        for run in runs
    ]
    assert [read == formula for read, formula in reads] == [True, True, True, False, False]
    assert all(formula <= read < 1.002 * formula for read, formula in reads)
    first = runs[0]
    asked, moved = first["question"], first["bytes"]
    assert (asked["what"], asked["N"], asked["d"], asked["heads"]) == ("forward", 4096, 64, 16)
    assert f"SMs read {reads[0][0]:,} bytes" in KERNELS
    assert f"Only {moved['l2']['read']:,} of these bytes are read from L2" in KERNELS
    assert f"ratio of {moved['l2']['read'] / reads[0][1]:.2f} at L2" in KERNELS
    # Merged where requests of the SMs reach L2: the coalescer returns as many bytes as they read, and
    # reads as few from L2 as L2 counts.
    counters = first["counters"]
    assert abs(counters["lrc__xbar2gpc_sectors_op_read.sum"] / reads[0][0] - 1) < 1e-3
    assert abs(counters["lrc__lts2lrc_sectors_op_read.sum"] / moved["l2"]["read"] - 1) < 1e-3
