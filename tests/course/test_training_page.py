"""The controls of docs/guide/training.md hold for another text."""

import difflib
import inspect

import pytest
from printed_examples import ROOT, can_run, examples

EXAMPLE = examples(ROOT / "docs" / "guide" / "training.md")[0]


@pytest.mark.skipif(not can_run(EXAMPLE), reason="triton is not installed")
def test_a_loss_falls_without_attention_and_without_two_gradients():
    import torch

    space = {"__name__": "training"}
    exec(EXAMPLE.code[: EXAMPLE.code.index("\nexpected = train")], space)
    space["codes"] = torch.tensor([ord(letter) for letter in inspect.getsource(difflib) if ord(letter) < 128])
    losses = space["train"](space["by_torch"])
    assert losses[-5:].mean() < losses[0] - 1
    for control in ("zeros", "without_dq_and_dk"):
        assert abs(space["train"](space[control])[-5:].mean() - losses[-5:].mean()) < 0.5
