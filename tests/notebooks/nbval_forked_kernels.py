"""Pytest plugin for runs of nbval that forks kernels, so they start faster. Nothing else differs."""

import os
import sys

import forked_processes
import pytest

# JupyterLab installs a checker of web addresses that takes a second to import and is not needed here.
sys.modules["rfc3987_syntax"] = None

pytest_plugins = ["nbval.plugin"]  # the other plugins are not loaded


def pytest_configure(config):
    """Fork kernels at the server that forked this process, if there is one."""
    if address := os.environ.get(forked_processes.ADDRESS):
        forked_processes.kernels_from(address, pytest.MonkeyPatch())
