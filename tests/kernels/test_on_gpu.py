"""The kernels as this machine's GPU runs them, where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA GPU: kernels are tested in the interpreter"
)
def test_compiled_kernels_are_as_exact_as_interpreted_ones():
    script = Path(__file__).with_name("on_gpu.py")
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(script.parent)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
