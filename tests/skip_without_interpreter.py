"""Skip the importing test module if Triton cannot interpret kernels; import this before torch and triton.

conftest.py sets TRITON_INTERPRET earlier, because it must be set before the first import of triton.
"""

from importlib import metadata

import pytest

from iocourse.doctor import cannot_interpret

pytest.importorskip("torch")
pytest.importorskip("triton")
_why_not = cannot_interpret(metadata.version("triton"), metadata.version("numpy"))
if _why_not:
    pytest.skip(_why_not, allow_module_level=True)
