"""The table of lessons of the landing page: minutes, exercises, and what a lesson needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.build.pages import needs
from tools.site.checking import LITE
from tools.site.lessons import Json, minutes_of, title_of

HEAD = ("no.", "lesson", "minutes", "exercises", "needs")


def lessons_table(notebooks: Mapping[str, Json]) -> str:
    """The table, in Markdown: a row for each notebook, by its stem."""
    rows = [_row(stem, notebook) for stem, notebook in notebooks.items()]
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---", "---", "---:", "---:", "---"), *rows))
        + "\n"
    )


def in_the_browser(stems: Sequence[str]) -> str:
    """The sentence of the landing page that leads to JupyterLite; empty where the site has none."""
    if not stems:
        return ""
    first, last = (stem.partition("_")[0] for stem in (min(stems), max(stems)))
    return (
        f'Lessons {first} to {last} also <a href="{LITE}/lab/index.html?path={min(stems)}.ipynb">run in this '
        "browser</a>, with nothing to install: Python is loaded from Pyodide's server, and what you write "
        "stays in this browser's own storage.\n"
    )


def _row(stem: str, notebook: Json) -> tuple[str, ...]:
    number, _, title = title_of(notebook).partition(" ")
    exercises = sum("exercise" in cell["metadata"].get("tags", ()) for cell in notebook["cells"])
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return number, f"[{title}](lessons/{stem}.ipynb)", minutes_of(notebook), str(exercises), needs(code)
