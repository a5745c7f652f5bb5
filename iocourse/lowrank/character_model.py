"""Training on characters: a text, batches that depend on a seed alone, and the loss of every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

import torch
from torch import Tensor
from torch.nn import functional as F

from .transformer import Attend, LargestLogit, Transformer

FILE = "prose.txt"
KEPT = 10  # the last tenth of the text is for validation
RATE = 3e-3  # of AdamW
LOOKED_AT = 16  # stretches of the validation text that a loss is taken over


@dataclass(frozen=True, eq=False)
class Characters:
    """A text as numbers: `alphabet` says which, `train` and `kept` (for validation) are int64 (length,)."""

    alphabet: str
    train: Tensor
    kept: Tensor
    digest: str

    @classmethod
    def of(cls, text: str) -> Characters:
        """The characters of this text, in the order of their code points."""
        alphabet = "".join(sorted(set(text)))
        numbers = torch.tensor([alphabet.index(c) for c in text])
        cut = len(text) - len(text) // KEPT
        return cls(alphabet, numbers[:cut], numbers[cut:], sha256(text.encode()).hexdigest())


def prose() -> Characters:
    """124,000 characters: the sentences of this course's lessons 00 to 14 that hold no formula."""
    file = resources.files("iocourse.data").joinpath(FILE)
    return Characters.of(file.read_text(encoding="utf-8"))


def batches(numbers: Tensor, batch: int, n: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Without end: inputs (batch, n) from random places, and the characters that follow each, (batch, n)."""
    source = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(numbers) - n, (batch,), generator=source).tolist()
        yield _stretches(numbers, starts, n)


def _stretches(numbers: Tensor, starts: Iterable[int], n: int) -> tuple[Tensor, Tensor]:
    rows = torch.stack([numbers[at : at + n + 1] for at in starts])
    return rows[:, :-1], rows[:, 1:]


def loss_of(scores: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy of scores (B, n, vocabulary) in nats a character."""
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def train(
    model: Transformer, text: Characters, steps: Iterable[int], batch: int = 2, seed: int = 0
) -> list[float]:
    """The loss before each step of AdamW; `steps` is a range. The same seed gives the same batches.

    Whatever attention the model has, it gets the gradient of that: nothing here knows of approximations.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for _, (tokens, wanted) in zip(steps, batches(text.train, batch, model.shape.length, seed), strict=False):
        loss = loss_of(model(tokens), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()  # type: ignore[untyped-decorator]
def validation_loss(model: Transformer, text: Characters, attend: Attend | None = None) -> float:
    """Cross-entropy on the kept text, with the attention given, or the model's own."""
    n, own = model.shape.length, model.attend
    gap = max(1, (len(text.kept) - n - 1) // LOOKED_AT)
    starts = range(0, len(text.kept) - n, gap)[:LOOKED_AT]
    try:
        model.attend = attend or own
        losses = [float(loss_of(model(x), y)) for x, y in (_stretches(text.kept, [at], n) for at in starts)]
    finally:
        model.attend = own
    return sum(losses) / len(losses)


def largest_logit(model: Transformer, text: Characters) -> float:
    """The largest |q·k| of a causal model on the kept text, with exact attention."""
    watching = LargestLogit()
    validation_loss(model, text, watching)
    return watching.largest
