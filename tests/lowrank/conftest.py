"""Fixture for the engines; tests of an engine that is not installed are skipped with the reason."""

import importlib.util

import pytest

NEEDS = {"numpy": (), "numba": ("numba",), "torch": ("torch",), "torch numba": ("torch", "numba")}


@pytest.fixture(params=list(NEEDS), scope="session")
def engine(request):
    """Name of an engine, called with arrays or through autograd."""
    for module in NEEDS[request.param]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    return request.param


@pytest.fixture
def one_thread():
    """Run torch with one thread, because small products are slower with two, mainly on a busy machine."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
