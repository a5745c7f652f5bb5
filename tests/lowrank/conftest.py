"""The engines that can work here; one that cannot says why its tests are skipped."""

import importlib.util

import pytest

NEEDS = {"numpy": (), "numba": ("numba",), "torch": ("torch",), "torch numba": ("torch", "numba")}


@pytest.fixture(params=list(NEEDS), scope="session")
def engine(request):
    """Each engine, called with arrays or through autograd."""
    for module in NEEDS[request.param]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    return request.param


@pytest.fixture
def one_thread():
    """Such small products only lose by a second thread, most of all where all cores are busy."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
