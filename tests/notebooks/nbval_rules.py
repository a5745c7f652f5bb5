"""A pytest plugin for the runs of nbval: compare what the builder saves, and nothing else.

Saved outputs are PNG and plain text (`KEPT` of `course.authoring.execution`). A cell that runs also shows
HTML or SVG, which the saved notebook does not have; nbval would call that a difference.
"""

import os
import sys

import pytest
import warm

# JupyterLab brings a checker of web addresses that takes a second to import and is of no use here.
sys.modules["rfc3987_syntax"] = None

pytest_plugins = ["nbval.plugin"]
NOT_SAVED = ("text/html", "image/svg+xml", "application/javascript")


def pytest_collectstart(collector):
    if type(collector).__name__ == "IPyNbFile":
        collector.skip_compare += NOT_SAVED


def pytest_configure(config):
    """Kernels begin where this process did, if it began warm."""
    if address := os.environ.get(warm.ADDRESS):
        warm.kernels_from(address, pytest.MonkeyPatch())
