"""A figure that a cell shows in JupyterLab has a name and a description, and is drawn."""

import json

from page_audit import spoken

from iocourse.course import explore

CALL = 'explore.bars({"K": 640, "S": 16}, title="Words by array")'
CELL = {
    "id": "only", "cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
    "source": f"from iocourse.course import explore\n{CALL}",
}  # fmt: skip
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def test_a_live_picture_is_announced_with_its_words(lab_server, lab_page, run_all):
    notebook = {"cells": [CELL], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    (lab_server.folder / "speaks.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    page = lab_page("speaks.ipynb")
    run_all(page)
    picture = eval(CALL, {"explore": explore})
    images = [one for one in spoken(page, ".jp-Notebook") if one.tag.startswith("<img")]
    assert [one[:3] for one in images] == [("image", picture.alt, picture.title)]
    drawn = page.locator(".jp-OutputArea-output img").evaluate("one => one.complete && one.naturalWidth")
    assert drawn == picture.width
