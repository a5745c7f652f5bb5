"""Character model: the same seed gives the same losses, and validation text is not used for training."""

from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse.lowrank import character_model  # noqa: E402
from iocourse.lowrank.transformer import Shape, exactly, low_rank, transformer, uniformly  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def text():
    return character_model.prose()


N = 150  # more than one tile, within which causal attention is exact


def model(text, attend=None, bound=2.0):
    return transformer(Shape(len(text.alphabet), N, 1, 2, 4, bound), attend or exactly())


def test_the_prose_is_ours_and_whole(text):
    whole = "".join(text.alphabet[i] for i in torch.cat([text.train, text.kept]))
    assert round(len(whole), -3) == 124_000 and "schedule" in whole and len(text.alphabet) == 74
    assert 0.099 < len(text.kept) / len(whole) < 0.101
    assert character_model.Characters.of(whole).digest == text.digest


def test_batches_are_stretches_of_the_text_and_what_follows():
    numbers = torch.arange(1000)
    (x, y), (x2, _) = islice(character_model.batches(numbers, 3, 20, seed=4), 2)
    assert x.shape == y.shape == (3, 20) and torch.equal(y, x + 1) and torch.equal(x[:, 1:], x[:, :-1] + 1)
    again = next(character_model.batches(numbers, 3, 20, seed=4))[0]
    assert torch.equal(x, again) and not torch.equal(x, x2)


def test_every_place_of_the_text_can_be_drawn():
    inputs = [x for x, _ in islice(character_model.batches(torch.arange(25), 8, 20, 0), 30)]
    assert set(torch.cat(inputs)[:, 0].tolist()) == set(range(5))


def test_the_loss_falls_and_a_seed_says_it_all(text):
    first, again = (character_model.train(model(text), text, range(steps)) for steps in (30, 5))
    other = character_model.train(model(text), text, range(5), seed=1)
    assert first[:5] == again != other and len(first) == 30
    assert first[0] > 4 and sum(first[-5:]) / 5 < first[0] - 0.3


def test_approximate_training_stays_near_the_exact_one_and_uniform_weights_do_not(text):
    ways = {"exact": exactly(), "uniform": uniformly, "g = 4": low_rank(4, polynomial="minimax", radius=1.0)}
    losses = {
        name: np.array(character_model.train(model(text, attend, bound=1.0), text, range(15)))
        for name, attend in ways.items()
    }
    off = {name: abs(found - losses["exact"]).max() for name, found in losses.items()}
    assert 0 < off["g = 4"] < 1e-3 < off["uniform"]


def test_validation_takes_the_attention_it_is_given_and_puts_the_own_one_back(text):
    own = low_rank(2, polynomial="taylor")
    found = model(text, own)
    a, b = (character_model.validation_loss(found, text, attend) for attend in (None, exactly()))
    assert a != b and abs(a - b) < 0.1 and found.attend is own
    with pytest.raises(ZeroDivisionError):
        character_model.validation_loss(found, text, lambda q, k, v: 1 / 0)
    assert found.attend is own


def test_validation_reads_the_kept_text_only(text):
    seen = []
    found = model(text)
    found.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    character_model.validation_loss(found, text)
    kept = text.kept.unfold(0, N, 1)
    assert len(seen) == character_model.LOOKED_AT
    assert all((kept == x).all(1).any() for x in seen)


def test_the_largest_logit_stays_within_the_bound(text):
    found = model(text, bound=0.5)
    character_model.train(found, text, range(5))
    assert 0.1 < character_model.largest_logit(found, text) <= 0.5 * (1 + 1e-6)
