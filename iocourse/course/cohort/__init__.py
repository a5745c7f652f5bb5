"""A class's predictions, from the progress that its students exported: who expected what, without names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...refusal import Refused
from ..checkout import find_checkout
from .counts import Histogram, as_text, histograms
from .files import read_cohort
from .right import right_answers

MOST_IN_A_PICTURE = 24


def class_histograms(folder: Path, only: Sequence[str] = (), *, blind: bool = False) -> list[Histogram]:
    """What a class answered, a histogram for each number that somebody predicted.

    Args:
        folder: exported progress, a file a student.
        only: questions ("4.5") or lessons ("04"); all where empty.
        blind: without what came out, for a class that has not measured yet.

    Raises:
        Refused: the folder is none, has no files, a broken one or two of one student; nobody answered what
            `only` names; there is no checkout with the solved lessons.
    """
    found = histograms(read_cohort(folder), {} if blind else _came_out())
    chosen = [one for one in found if not only or any(one.is_of(name) for name in only)]
    if not chosen:
        asked = f"a question of {', '.join(only)}" if only else "a question"
        raise Refused(f"nobody in {folder} has written a prediction to {asked}")
    return chosen


def _came_out() -> Mapping[tuple[str, str], str]:
    try:
        return right_answers(find_checkout())
    except Refused as error:
        raise Refused(f"what came out stands in solutions/; {error}, or ask with --blind") from None


def draw(found: Sequence[Histogram], file: Path) -> None:
    """Draw the histograms into a file, an SVG or a PNG as its name says.

    Raises:
        Refused: another kind of file, or too many histograms for a picture.
    """
    if file.suffix not in (".svg", ".png"):
        raise Refused(f"--figure {file} must end in .svg or .png")
    if len(found) > MOST_IN_A_PICTURE:
        told = f"{len(found)} histograms are too many for a picture, {MOST_IN_A_PICTURE} fit"
        raise Refused(f"{told}: --only 04 takes those of a lesson, --only 4.5 those of a question")
    from ...explore.figures.prediction_histograms import prediction_histograms

    picture = prediction_histograms(
        {one.label: one.rows for one in found}, {one.label: one.right for one in found if one.right}
    )
    data = picture.to_png() if file.suffix == ".png" else picture.to_svg().encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


__all__ = ["as_text", "class_histograms", "draw"]
