"""Every bound by its id: what it says, of whom, how sure it is, and where its proof stands."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from iocourse.bounds import BOUNDS, STATUSES, Bound
from iocourse.distributed.bounds import BOUNDS as ACROSS_RANKS
from iocourse.refusal import Refused

EVERY = BOUNDS | ACROSS_RANKS

PROOFS = Path("docs") / "proofs.toml"
MEANING = {
    "proved here": "every constant is proved in this course",
    "published": "proved in the paper named, with every constant",
    "published argument, constants ours": "the argument is the paper's, its constants are kept here",
    "claimed": "derived in this course with every constant, and read by nobody else; no table counts on it",
    "asymptotic only": "the paper gives an order of growth, so it is no number of words",
    "open": "a question: neither proved nor refuted, as far as this course knows",
}
HEAD = """# Lower bounds

How few words $W$ any schedule can move, for $N$ rows of $d$ words and a fast memory of $M$ words. Each bound
holds for the schedules of its class and no others, and `iocourse.bounds` evaluates it by its id:
`bounds.BOUNDS["A"](8192, 64, 65536)`. `bounds.lower_bound` takes the largest that applies, at $M + 4$, for
four scalar registers are free on the machine. Those across ranks are in `iocourse.distributed.bounds.BOUNDS`:
there $W$ is what some rank of $P$ receives of inputs and sends of partial sums. This page is written from
both.
"""


def bounds_page(root: Path, sections: Mapping[str, str]) -> str:
    """The page, in Markdown.

    Args:
        root: of the checkout, whose docs/proofs.toml says where proofs stand.
        sections: "5.9" → the link to that section.

    Raises:
        Refused: a bound has no entry there, an entry has no bound, or names a section that no lesson has.
    """
    proofs = read_proofs(root)
    parts = [HEAD, _statuses(), _contents()]
    for passes in dict.fromkeys(bound.passes[0] for bound in EVERY.values()):
        parts.append(f"## {_heading(passes)}")
        parts += [_entry(b, proofs[b.id], sections) for b in EVERY.values() if b.passes[0] == passes]
    return "\n\n".join(parts) + "\n"


def read_proofs(root: Path) -> dict[str, dict[str, str]]:
    """id → where and how it is proved, with an entry for each bound and for nothing else."""
    proofs = tomllib.loads((root / PROOFS).read_text(encoding="utf-8"))
    for id in [*EVERY, *proofs]:
        if id not in proofs or id not in EVERY:
            raise Refused(f"{PROOFS} and iocourse.bounds disagree about {id}: both must have it")
    return proofs


def anchor(id: str) -> str:
    """The place of a bound on the page: C''_line is at #bound-c-second-line."""
    return "bound-" + id.replace("''", "-second").replace("'", "-prime").replace("_", "-").lower()


def _heading(passes: str) -> str:
    return passes[0].upper() + passes[1:] + (" pass" if passes in ("forward", "backward") else "")


def _statuses() -> str:
    rows = [f"| {status} | {MEANING[status]} |" for status in STATUSES]
    return "\n".join(["| status | what it means |", "| --- | --- |", *rows])


def _contents() -> str:
    rows = [
        f"| [{b.id}](#{anchor(b.id)}) | {b.title} | {', '.join(b.passes)} | {b.status} |"
        for b in EVERY.values()
    ]
    return "\n".join(["| id | | pass | status |", "| --- | --- | --- | --- |", *rows])


def _entry(bound: Bound, proof: Mapping[str, str], sections: Mapping[str, str]) -> str:
    facts = [("Holds for", bound.holds_for), ("Not about", bound.not_about), ("Regime", bound.regime)]
    facts += [("Status", bound.status), ("Source", bound.source), ("Proof", _proof(bound, proof, sections))]
    told = "\n\n".join(f"**{name}.** {text}" for name, text in facts if text)
    return f"({anchor(bound.id)})=\n### {bound.id}: {bound.title}\n\n$$ {bound.formula} $$\n\n{told}"


def _proof(bound: Bound, proof: Mapping[str, str], sections: Mapping[str, str]) -> str:
    text = proof["text"]
    if "at" not in proof:
        return text
    if proof["at"] not in sections:
        raise Refused(f"{PROOFS}: {bound.id} is proved at {proof['at']!r}, which is no section of a lesson")
    return f"{sections[proof['at']]}. {text}"
