"""What an instructor is told of each exercise, as it stands in `docs/remarks/NN.toml`, a file a lesson.

    ["4.1"]
    say = "One sentence for a student who is stuck."
    errors = [
        ["dropped-rescale", "What the student did, in the student's terms."],
    ]

An error is named as the suite in `tests/mutants` names its mutant; which property refuses it is recorded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iocourse.refusal import Refused

FOLDER = Path("docs") / "remarks"


@dataclass(frozen=True)
class Remark:
    """What is said of an exercise.

    Attributes:
        say: what to tell a student who is stuck.
        errors: common errors: a mutant's name, and what the student did.
    """

    say: str
    errors: tuple[tuple[str, str], ...]


def read_remarks(root: Path) -> dict[str, Remark]:
    """The remarks of a checkout, by exercise; none where it has no folder for them.

    Raises:
        Refused: a file is no TOML, or an entry has another form.
    """
    found: dict[str, Remark] = {}
    for path in sorted((root / FOLDER).glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Refused(f"{path} is no TOML: {error}") from None
        found |= {name: _remark(entry, f"{path}, {name}") for name, entry in entries.items()}
    return found


def _remark(entry: Any, where: str) -> Remark:
    facts: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    say, errors = facts.get("say"), facts.get("errors")
    pairs = isinstance(errors, list) and all(isinstance(e, list) and len(e) == 2 for e in errors)
    texts = pairs and all(isinstance(text, str) and text for error in errors or () for text in error)
    if not (isinstance(say, str) and say and errors and texts) or len(facts) > 2:
        raise Refused(f'{where}: expected say = "…" and errors = [["name of a mutant", "what was done"], …]')
    return Remark(say, tuple((error[0], error[1]) for error in errors or ()))
