"""torch.compile with queries of the device, which do not occur with the interpreter."""

import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse.kernels import attention, attention_varlen, decode, tiled_mask
from iocourse.kernels.host import backend, checks, choices

Q, K, V = (torch.randn(1, 2, 64, 16) for _ in range(3))
CU = torch.tensor([0, 30, 64], dtype=torch.int32)
MASK = tiled_mask(torch.ones(4, 4, dtype=torch.bool), Q, K)  # blocks of 16
CALLS = {
    "attention": lambda q, k, v: attention(q * 1.5, k, v, causal=True),
    "with a block mask": lambda q, k, v: attention(q * 1.5, k, v, block_mask=MASK),
    "packed": lambda q, k, v: attention_varlen(
        *(x[0].transpose(0, 1) for x in (q, k, v)), CU, CU, longest=(34, 34)
    ),
    "decode": lambda q, k, v: decode(q[:, :, :1] * 2, k, v)[0],
}


@pytest.fixture
def asked(monkeypatch):
    """Return the names of the device queries, which are replaced by functions that Dynamo cannot trace."""
    names = []

    @torch.compiler.disable
    def name(index):
        names.append("name")
        return "a GPU"

    @torch.compiler.disable
    def capability(index):
        names.append("capability")
        return 9, 0

    def check(device, on_device=checks._check_device):
        on_device(torch.device("cuda", 0))

    def forget():
        checks._check_chip_once.cache_clear()
        choices._device_row_once.cache_clear()

    forget()
    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.setattr(choices, "made_with_another_triton", lambda *_: "")  # a warning, tested elsewhere
    monkeypatch.setattr(checks, "INTERPRETED", False)
    monkeypatch.setattr(checks, "_check_device", check)  # the tensors here are on the CPU
    monkeypatch.setattr(backend, "INTERPRETED", False)
    yield names
    forget()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_is_traced_in_one_graph_as_on_a_gpu(asked, call):
    """It is traced whole, with the operator's fake tensors; nothing is launched."""
    graphs = []

    def traced_only(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        (results,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        return lambda *_: (torch.zeros(()),) * len(results)

    torch.compile(call, fullgraph=True, backend=traced_only)(Q, K, V)
    (targets,) = graphs
    assert any("iocourse" in target for target in targets)
    assert "name" in asked


def test_what_was_asked_while_tracing_is_what_the_device_says(asked):
    fast = torch.compile(
        lambda x: x * choices.architecture(torch.device("cuda", 0)), fullgraph=True, backend="eager"
    )
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 90.0)) and asked == ["capability"]


def test_what_a_device_cannot_run_is_refused_while_tracing_too(asked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 0))
    with pytest.raises(Exception, match=r"compute capability 7\.5 \(T4\) or later, got .* with 7\.0"):
        torch.compile(CALLS["attention"], fullgraph=True, backend="eager")(Q, K, V)
