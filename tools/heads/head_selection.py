"""Which heads to store: one of each kind, picked by what was measured, not by eye."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tools.heads.head_statistics import Stats

Pair = tuple[int, int]  # (layer, head)


class Rule(NamedTuple):
    """A kind of head: the largest `score` decides, and `sentence` is filled in with the head's statistics."""

    name: str
    score: Callable[[Stats], float]
    sentence: str


# Each rule takes the best head that no earlier rule took.
RULES = (
    Rule(
        "largest share on the previous token",
        lambda s: s["share_previous"],
        "Looks at the token before: {share_previous:.0%} of the attention, "
        "{share_previous_rows_from_128:.0%} from row 128 on; very sharp, with logits up to {logit_max:.1f}.",
    ),
    Rule(
        "largest share on the next token",
        lambda s: s["share_next"],
        "Looks at the token after: {share_next:.0%} of the attention, "
        "with {entropy_mean:.2f} bits of entropy in an average row.",
    ),
    Rule(
        "largest mean entropy",
        lambda s: s["entropy_mean"],
        "Looks everywhere: {entropy_mean:.2f} of at most {entropy_uniform:.2f} bits in an average row, "
        "whose largest weight is {largest_weight_mean:.3f}.",
    ),
    Rule(
        "largest share on [CLS]",
        lambda s: s["share_cls"],
        "Rests on the first token: [CLS] receives {share_cls:.0%} of all attention, "
        "the other tokens share what is left.",
    ),
    Rule(
        "largest share on other copies of the same token",
        lambda s: s["share_same_token"],
        "Looks for the same word elsewhere: {share_same_token:.0%} of the attention goes to other copies of "
        "the token, where an even row would give {share_same_token_if_uniform:.0%}.",
    ),
    Rule(
        "largest share on punctuation",
        lambda s: s["share_punctuation"],
        "Leans towards punctuation: {share_punctuation:.0%} of the attention, "
        "where an even row would give {share_punctuation_if_uniform:.0%}.",
    ),
    Rule(
        "smallest mean distance",
        lambda s: -s["distance_mean"],
        "Looks around itself: {share_within_16:.0%} of the attention stays within 16 tokens, "
        "with {entropy_mean:.2f} bits of entropy in an average row.",
    ),
    Rule(
        "mean entropy nearest to the median of all 72 heads",
        lambda s: -abs(s["entropy_mean"] - s["median"]),
        "Neither sharp nor broad: {entropy_mean:.2f} of {entropy_uniform:.2f} bits in an average row; "
        "{share_of_16_largest:.0%} of the attention lies on the 16 largest weights of each row.",
    ),
)


def choose(stats: Mapping[Pair, Stats]) -> dict[Pair, Rule]:
    """One head for each rule, in the rules' order."""
    middle = float(np.median([s["entropy_mean"] for s in stats.values()]))
    chosen: dict[Pair, Rule] = {}
    for rule in RULES:
        left = [pair for pair in stats if pair not in chosen]
        scored = {pair: rule.score(stats[pair] | {"median": middle}) for pair in left}
        chosen[max(left, key=scored.__getitem__)] = rule
    return chosen
