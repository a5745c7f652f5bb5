"""A pytest plugin for the runs of nbval: kernels are forked, so they start sooner; nothing else differs."""

import os
import sys

import forked_processes
import pytest

# JupyterLab brings a checker of web addresses that takes a second to import and is of no use here.
sys.modules["rfc3987_syntax"] = None

pytest_plugins = ["nbval.plugin"]  # the other plugins are not loaded


def pytest_configure(config):
    """Kernels begin where this process did, if it began warm."""
    if address := os.environ.get(forked_processes.ADDRESS):
        forked_processes.kernels_from(address, pytest.MonkeyPatch())
