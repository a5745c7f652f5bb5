"""Skip a test module where a package is not installed, without importing the package."""

from importlib.util import find_spec

import pytest


def unless_installed(*packages):
    """Skip the module that calls this unless all of these are installed.

    Tests import them where they use them: every worker imports every module, and runs a share of the tests.
    """
    for name in packages:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed: the extra `test` brings it", allow_module_level=True)
