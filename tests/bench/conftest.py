"""Fixtures for tests of the GPU benchmarks without a GPU."""

import pytest
from fake_gpu import CpuPlace, in_a_hurry, needs_the_interpreter


@pytest.fixture
def interpreter():
    """Kernels run on CPU tensors, or the test is skipped."""
    needs_the_interpreter()


@pytest.fixture
def place(monkeypatch):
    """A place without a GPU, where everything is run as seldom as can be."""
    in_a_hurry(monkeypatch)
    return CpuPlace()
