"""Measure the heads of a model and select one of each kind by rule.

The statistics of a head describe its logits, the sharpness of its rows, and where it attends to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iocourse.exact import scores, softmax

# ---------------------------------------------------------------------- statistics of one head
Array = NDArray[np.float64]
Stats = dict[str, float]

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
HALF_LIMIT = float(np.log(65504.0))  # 11.09; exp of a larger number overflows float16
TRAINED_LENGTH = 128  # tokens per sequence when the sentence model was fine-tuned


def head_stats(Q: NDArray[Any], K: NDArray[Any], tokens: Sequence[str]) -> Stats:
    """Return the statistics of one dense head; Q and K are (N, d) without the scale 1/√d, the logits with it.

    Shares are fractions of a row's attention, averaged over the rows; entropies are in bits (uniform: log2
    N). Every number is rounded to four decimals, so that every machine writes the same file.
    """
    S = scores(Q.astype(np.float64), K.astype(np.float64))  # (N, N)
    P = softmax(S)  # (N, N)
    found = {**_logits(S), **_sharpness(P), **_places(P), **_words(P, tokens)}
    return {name: round(float(value), 4) for name, value in found.items()}


def row_entropy(P: Array) -> Array:
    """Return the entropy of each row of P (N, N) in bits, (N,); 0·log 0 counts as 0."""
    logs = np.log2(P, out=np.zeros_like(P), where=P > 0)
    return np.asarray(-(P * logs).sum(axis=-1))


def _logits(S: Array) -> Stats:
    spread = S.max(axis=-1) - S.min(axis=-1)  # (N,)
    basic = {"logit_min": S.min(), "logit_max": S.max(), "logit_mean": S.mean(), "logit_std": S.std()}
    percentiles: Stats = {f"logit_p{p:02d}": float(np.percentile(S, p)) for p in PERCENTILES}
    return (
        basic
        | percentiles
        | {
            "logit_spread_in_a_row_mean": spread.mean(),
            "logit_spread_in_a_row_max": spread.max(),
            "logits_above_11.09": (S > HALF_LIMIT).mean(),
            "rows_with_a_logit_above_11.09": (S.max(axis=-1) > HALF_LIMIT).mean(),
        }
    )


def _sharpness(P: Array) -> Stats:
    H = row_entropy(P)  # (N,)
    ranked = np.sort(P, axis=-1)[:, ::-1]  # (N, N)
    return {
        "entropy_min": H.min(),
        "entropy_p10": np.percentile(H, 10),
        "entropy_median": np.median(H),
        "entropy_mean": H.mean(),
        "entropy_p90": np.percentile(H, 90),
        "entropy_max": H.max(),
        "entropy_uniform": np.log2(P.shape[-1]),
        "largest_weight_mean": ranked[:, 0].mean(),
        "share_of_16_largest": ranked[:, :16].sum(axis=-1).mean(),
    }


def _places(P: Array) -> Stats:
    row, column = np.indices(P.shape)
    ahead = column - row  # (N, N)
    previous = np.diagonal(P, -1)  # (N-1,), rows 1 … N-1
    return {
        "distance_mean": (P * np.abs(ahead)).sum(axis=-1).mean(),
        "share_within_16": (P * (np.abs(ahead) <= 16)).sum(axis=-1).mean(),
        "share_previous": previous.sum() / len(P),
        "share_previous_rows_to_128": previous[: TRAINED_LENGTH - 1].mean(),
        "share_previous_rows_from_128": _mean(previous[TRAINED_LENGTH - 1 :]),
        "share_next": np.diagonal(P, 1).sum() / len(P),
        "share_self": np.diagonal(P).mean(),
        "share_cls": P[:, 0].mean(),
        "share_sep": P[:, -1].mean(),
    }


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0


def _words(P: Array, tokens: Sequence[str]) -> Stats:
    names = np.array(tokens)
    mark = np.array([not token[0].isalnum() and token[0] not in "[#" for token in tokens])  # (N,)
    same = (names[:, None] == names) & ~np.eye(len(names), dtype=bool)  # (N, N)
    return {
        "share_punctuation": P[:, mark].sum(axis=-1).mean(),
        "share_punctuation_if_uniform": mark.mean(),
        "share_same_token": (P * same).sum(axis=-1).mean(),
        "share_same_token_if_uniform": same.mean(),
    }


# ---------------------------------------------------------------------- the choice
Pair = tuple[int, int]  # (layer, head)


class Rule(NamedTuple):
    """A kind of head: the head with the largest `score`, described by `sentence` with its statistics."""

    name: str
    score: Callable[[Stats], float]
    sentence: str


# Each rule selects the best head among those that no earlier rule selected.
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
    """Return the selected head of each rule, in the order of the rules."""
    middle = float(np.median([s["entropy_mean"] for s in stats.values()]))
    chosen: dict[Pair, Rule] = {}
    for rule in RULES:
        left = [pair for pair in stats if pair not in chosen]
        scored = {pair: rule.score(stats[pair] | {"median": middle}) for pair in left}
        chosen[max(left, key=scored.__getitem__)] = rule
    return chosen
