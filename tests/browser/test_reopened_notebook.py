"""Test that a saved notebook shows its figures when opened without its kernel, after every save."""

import json

from explorer_page import WAIT

SAVE = """async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.context.save();
    widget.close();
}"""


def _opened_again(page, lab_server, lab_page, name):
    """Save the notebook, end its kernel, clear the state of the page, and open it again."""
    page.evaluate(SAVE)
    for session in json.loads(lab_server.ask("api/sessions")):
        lab_server.ask(f"api/sessions/{session['id']}", "DELETE")
    page.reload()
    page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
    return lab_page(name)


def test_a_reopened_notebook_shows_its_picture_after_every_save(shown, lab_server, lab_page):
    page = shown("kept", "explore.two_memories()")
    assert page.locator(".iocourse-explorer").count() == 1
    page.evaluate("jupyterapp.shell.currentWidget.context.save()")
    page.wait_for_timeout(500)
    assert page.locator(".iocourse-explorer").count() == 1  # saving leaves what is seen as it is
    for _ in range(2):
        page = _opened_again(page, lab_server, lab_page, "kept.ipynb")
        output = page.locator(".jp-OutputArea-output")
        output.locator("img").wait_for(timeout=WAIT)
        assert output.count() == 1 and "not found" not in output.inner_text()
        assert output.locator("img").bounding_box()["width"] > 300
    saved = json.loads((lab_server.folder / "kept.ipynb").read_text(encoding="utf-8"))
    assert set(saved["cells"][0]["outputs"][0]["data"]) == {"image/png", "text/plain"}
