"""Few settings in which every two values of two options meet: what breaks a kernel is seldom more than two
options that do not go together.

Drawn without Hypothesis, whose examples are for the most part variations of a few: 120 of its configurations
of `attention` hold fewer pairs of values than 60 of these.
"""

import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

Options = Mapping[str, Sequence[Hashable]]
Pair = frozenset[tuple[str, Hashable]]


def pairs_of(setting: Mapping[str, Hashable]) -> Iterator[Pair]:
    """Return the pairs of values in a setting."""
    return (frozenset(two) for two in combinations(setting.items(), 2))


def all_pairs(options: Options) -> set[Pair]:
    """Every value of an option with every value of another one."""
    return {
        frozenset(((one, x), (other, y)))
        for one, other in combinations(options, 2)
        for x in options[one]
        for y in options[other]
    }


def settings_of(options: Options, seed: int = 0) -> list[dict[str, Any]]:
    """Settings that hold all pairs; where nothing is left to meet, an option has its first value: put there
    what is interpreted soonest. The same for the same seed.
    """
    rng = random.Random(seed)
    order = sorted(all_pairs(options), key=lambda pair: sorted(map(str, pair)))  # not that of hashes
    left = dict.fromkeys(order)
    found = []
    while left:
        one = met(options, rng, left)
        for pair in pairs_of(one):
            left.pop(pair, None)
        found.append({name: one[name] for name in options})
    return found


def met(options: Options, rng: random.Random, left: Mapping[Pair, Any]) -> dict[str, Hashable]:
    """A setting with one of the pairs that are left, and then as many of them as each option can add."""
    setting = dict(sorted(rng.choice(list(left)), key=str))
    others = [name for name in options if name not in setting]
    rng.shuffle(others)
    for name in others:

        def new(value: Hashable, name: str = name) -> int:
            return sum(frozenset(((name, value), other)) in left for other in setting.items())

        setting[name] = max(options[name], key=new)
    return setting
