"""Training of a character model: a text as numbers, batches drawn from a seed, and the loss of every step."""

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
KEPT = 10  # the last tenth of the text is used for validation
RATE = 3e-3  # learning rate of AdamW
LOOKED_AT = 16  # number of segments of the validation text in a validation loss


@dataclass(frozen=True, eq=False)
class Characters:
    """A text as indices into `alphabet`: `train` and `kept` (for validation), both int64 (length,)."""

    alphabet: str
    train: Tensor
    kept: Tensor
    digest: str

    @classmethod
    def of(cls, text: str) -> Characters:
        """Encode a text; `alphabet` is its characters in the order of their code points."""
        alphabet = "".join(sorted(set(text)))
        numbers = torch.tensor([alphabet.index(c) for c in text])
        cut = len(text) - len(text) // KEPT
        return cls(alphabet, numbers[:cut], numbers[cut:], sha256(text.encode()).hexdigest())


def prose() -> Characters:
    """Return the sentences without formulas of the course's lessons 00 to 14: 124,000 characters."""
    file = resources.files("iocourse.data").joinpath(FILE)
    return Characters.of(file.read_text(encoding="utf-8"))


def batches(numbers: Tensor, batch: int, n: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, endlessly, inputs (batch, n) from random positions and the next character of each (batch, n)."""
    source = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(numbers) - n, (batch,), generator=source).tolist()
        yield _stretches(numbers, starts, n)


def _stretches(numbers: Tensor, starts: Iterable[int], n: int) -> tuple[Tensor, Tensor]:
    rows = torch.stack([numbers[at : at + n + 1] for at in starts])
    return rows[:, :-1], rows[:, 1:]


def loss_of(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the cross-entropy of scores (B, n, vocabulary), in nats per character."""
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def train(
    model: Transformer, text: Characters, steps: Iterable[int], batch: int = 2, seed: int = 0
) -> list[float]:
    """Train with AdamW and return the loss before each step; `steps` is a range.

    The same seed gives the same batches. The gradient is that of the model's own attention, exact or not.
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
    """Return the cross-entropy on the validation text, with `attend`; None is the model's own attention."""
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
    """Return the largest |q·k| of a causal model on the validation text, with exact attention."""
    watching = LargestLogit()
    validation_loss(model, text, watching)
    return watching.largest
