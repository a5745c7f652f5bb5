"""The table of lessons of the landing page: minutes, exercises, and what a lesson needs."""

from __future__ import annotations

from collections.abc import Mapping

from ...course.authoring.pages import needs
from ..lessons import Json, minutes_of, title_of

HEAD = ("no.", "lesson", "minutes", "exercises", "needs")


def lessons_table(notebooks: Mapping[str, Json]) -> str:
    """The table, in Markdown: a row for each notebook, by its stem."""
    rows = [_row(stem, notebook) for stem, notebook in notebooks.items()]
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---", "---", "---:", "---:", "---"), *rows))
        + "\n"
    )


def _row(stem: str, notebook: Json) -> tuple[str, ...]:
    number, _, title = title_of(notebook).partition(" ")
    exercises = sum("exercise" in cell["metadata"].get("tags", ()) for cell in notebook["cells"])
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return number, f"[{title}](lessons/{stem}.ipynb)", minutes_of(notebook), str(exercises), needs(code)
