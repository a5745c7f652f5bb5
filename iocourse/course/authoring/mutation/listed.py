"""Mutants that their checks accept, by exercise: why, the line of the reference, and what replaces it.

Lines are as `ast.unparse` writes them. An entry may name several changes of one line. What is no longer a
mutant, or is refused by its check, must go from here: `iocourse mutants` and a test say so.
"""

from __future__ import annotations

Entry = tuple[str, ...]  # why, the line before, one or more lines after

# No mistakes: the answer is right, or differs only where the exercise does not ask.
EQUIVALENT: dict[str, tuple[Entry, ...]] = {}

# Mistakes that a check accepts, always or by chance. They count against the score.
OPEN: dict[str, tuple[Entry, ...]] = {}
