"""The kernels as this machine's GPU runs them, where there is one."""

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA GPU: kernels are tested in the interpreter"
)
def test_compiled_kernels_are_as_exact_as_interpreted_ones():
    script = Path(__file__).with_name("on_gpu.py")
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(script.parent)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shards_share_the_checks():
    import on_gpu

    whole = on_gpu.checks()
    tried = []
    for k in range(1, 9):
        on_gpu.run({name: partial(_seen, tried, name) for name in whole}, (k, 8))
    assert sorted(tried) == sorted(whole) and len(whole) > 150


def _seen(tried, name):
    tried.append(name)
    return ""


def test_each_check_says_how_it_went_and_one_that_raises_stops_no_other(capsys):
    import on_gpu

    checks = {"right": lambda: "", "wrong": lambda: "errs by 7", "broken": lambda: 1 / 0}
    assert on_gpu.run(checks, (1, 1)) == 2
    assert capsys.readouterr().out.splitlines() == [
        "right: holds",
        "wrong: WRONG, errs by 7",
        "broken: WRONG, raised ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize("text", ["0/8", "9/8", "8", "1/0", "-1/8", "a/b"])
def test_what_is_no_shard(text):
    import on_gpu

    assert on_gpu.shard("8/8") == (8, 8)
    with pytest.raises(argparse.ArgumentTypeError, match="a shard must be 1/8 to 8/8, for example, got"):
        on_gpu.shard(text)


@pytest.mark.parametrize(
    ("late", "rounds", "expected"),
    [
        (0.0, 1, ""),
        (2.0**-6, 1, "1 of 2,000 results differ, 32 heads to 8 in 33 parts"),
        (0.0, 3, "differs from a second launch by more than a rounding, 32 heads to 8"),
    ],
)
def test_a_last_program_may_round_otherwise_but_always_alike(monkeypatch, late, rounds, expected):
    """O of a made-up decode step is 1. The steps in one launch differ by some roundings of bfloat16; `late`
    is added to the last of 1,000.
    """
    import on_gpu

    from iocourse.kernels.host.choices import Case, choice

    steps = 0

    def decode(q, k, v, parts):
        nonlocal steps
        last = choice("decode step", Case(90, 2, 128)).value == "last program"
        steps += last
        o = torch.ones(4, dtype=torch.bfloat16) + rounds * 2.0**-7 * last
        return o + late * (steps == 1002), torch.zeros(4)

    monkeypatch.setattr(on_gpu, "numbers", lambda *shape, dtype: torch.zeros(1, dtype=dtype))
    monkeypatch.setattr(on_gpu, "decode", decode)
    assert on_gpu.last_merges_again() == expected
