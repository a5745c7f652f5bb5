"""Import this before torch and triton: it skips the test module where Triton cannot interpret kernels.

conftest.py has set TRITON_INTERPRET by then, which must stand before triton is imported by anyone.
"""

from importlib import metadata

import pytest

from iocourse.doctor import cannot_interpret

pytest.importorskip("torch")
pytest.importorskip("triton")
_why_not = cannot_interpret(metadata.version("triton"), metadata.version("numpy"))
if _why_not:
    pytest.skip(_why_not, allow_module_level=True)
