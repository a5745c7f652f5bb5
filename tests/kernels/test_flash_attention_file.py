"""The file to copy, lessons/flash_attention.py: values, layouts, the operator, errors, and what it needs."""

import ast
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import gradients, numbers, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_attention import exact, seen

from iocourse.discovery import loaded
from iocourse.doctor.bfloat16_repair import repair_bfloat16
from iocourse.kernels import attention_with_lse

# isort: split
import triton

FILE = Path(__file__).parents[2] / "lessons" / "flash_attention.py"
copied = sys.modules["flash_attention"] = loaded(FILE, "flash_attention")  # torch.compile imports it by name
# Largest error over largest entry, of O and of each gradient.
ALLOWED = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6}
KERNELS = (copied.forward_kernel, copied.queries_kernel, copied.keys_kernel)


@pytest.fixture(scope="module", autouse=True)
def bfloat16():
    repair_bfloat16()


@contextmanager
def tile(BM, BN):
    """Run the kernels with this tile, to have several blocks of few rows."""
    before = [kernel.configs for kernel in KERNELS]
    for kernel in KERNELS:
        kernel.configs = [triton.Config({"BM": BM, "BN": BN})]
    try:
        yield
    finally:
        for kernel, configs in zip(KERNELS, before, strict=True):
            kernel.configs = configs


def results(attend, q, k, v, do, dlse):
    """Return O, LSE, dQ, dK and dV."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o, lse = attend(*leaves)
    return o.detach(), lse.detach(), *torch.autograd.grad([o, lse], leaves, [do, dlse])


def errors(got, want):
    """Return the largest error over the largest entry for each result."""
    assert not any(one.isnan().any() for one in got)
    return [
        float((one.double() - exactly).abs().max() / exactly.abs().max())
        for one, exactly in zip(got, want, strict=True)
    ]


def in_float64(q, k, v, do, dlse, causal, scale=None):
    allowed = seen(q.shape[2], k.shape[2], causal)
    wide = (x.double() for x in (q, k, v, do, dlse))
    return results(lambda *x: exact(*x, allowed, scale), *wide)


def problem(dtype, B=1, H=2, H_kv=1, n_q=70, n_k=90, d=32, seed=0):
    q, do, k, v = numbers(seed, dtype, *[(B, H, n_q, d)] * 2, *[(B, H_kv, n_k, d)] * 2)
    return q, k, v, do, numbers(seed + 1, torch.float32, (B, H, n_q))[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
def test_values_and_gradients(dtype, causal):
    """Against float64, and against the library's kernels, which have another order of sums."""
    given_to = problem(dtype)
    with tile(32, 16):
        got = results(lambda *x: copied.attention_with_lse(*x, causal=causal), *given_to)
    assert max(errors(got, in_float64(*given_to, causal))) <= ALLOWED[dtype]
    library = results(lambda *x: attention_with_lse(*x, causal=causal), *given_to)
    assert max(errors(got, [one.double() for one in library])) <= ALLOWED[dtype]
    assert [one.dtype for one in got] == [dtype, torch.float32, dtype, dtype, dtype]


@pytest.mark.parametrize("d", [16, 64, 128, 256])
def test_every_head_size_with_the_tile_of_the_file(d):
    given_to = problem(torch.float16, n_q=66, n_k=65, d=d)
    got = results(lambda *x: copied.attention_with_lse(*x, causal=True, scale=0.2), *given_to)
    assert max(errors(got, in_float64(*given_to, True, 0.2))) <= ALLOWED[torch.float16]


LAYOUTS = ("heads first", "tokens first", "last stride 2", "part of more rows")


def laid_out(x, layout):
    """Return x with the same numbers and other strides."""
    B, H, n, d = x.shape
    if layout == "tokens first":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "last stride 2":
        return torch.stack([x, x], -1).reshape(B, H, n, 2 * d)[..., ::2]
    if layout == "part of more rows":
        return torch.cat([x, torch.full_like(x, float("nan"))], 2)[:, :, :n]
    return x


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), *[st.integers(1, 50)] * 2),
    blocks=st.sampled_from([(16, 16), (16, 32), (32, 16)]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 4),
)
def test_ragged_lengths_groups_and_strides(sizes, blocks, causal, dtype, layouts):
    """Equal bits for every layout of the same numbers, with float64 as reference; more keys than queries and
    fewer.
    """
    B, H_kv, group, n_q, n_k = sizes
    q, k, v, do, dlse = problem(dtype, B, group * H_kv, H_kv, n_q, n_k, 16)
    with tile(*blocks):
        attend = lambda *x: copied.attention_with_lse(*x, causal=causal)  # noqa: E731
        got = results(attend, *map(laid_out, (q, k, v, do), layouts), dlse)
        assert same_bits(got, results(attend, q, k, v, do, dlse))
    want = in_float64(q, k, v, do, dlse, causal)
    # Entries near 0 have no relative error: with one key dQ and dK of exact numbers are 0.
    for one, exactly in zip(got, want, strict=True):
        assert not one.isnan().any()
        assert float((one.double() - exactly).abs().max()) <= 2 * ALLOWED[dtype] * max(1, exactly.abs().max())


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_results_have_the_layout_of_the_inputs(layout):
    q, k, v, do, dlse = problem(torch.float16, n_q=20, n_k=20)
    q, k, v = (laid_out(x, layout) for x in (q, k, v))
    o, _, dq, dk, dv = results(copied.attention_with_lse, q, k, v, do, dlse)
    assert [x.stride() for x in (o, dq, dk, dv)] == [x.stride() for x in (q, q, k, v)]


@pytest.mark.parametrize(("n_q", "n_k"), [(20, 45), (45, 20)])
def test_a_query_attends_to_keys_up_to_its_own_index(n_q, n_k):
    """As in PyTorch's SDPA and the library by default. Keys after the last query have no gradient."""
    q, k, v, do, _ = problem(torch.float32, n_q=n_q, n_k=n_k)
    with tile(16, 16):
        leaves = [x.requires_grad_() for x in (q, k, v)]
        o, dq, dk, dv = gradients(copied.attention(*leaves, causal=True), leaves, do)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = gradients(sdpa(*leaves, is_causal=True, enable_gqa=True), leaves, do)
    for one, other in zip((o, dq, dk, dv), want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not dk[:, :, n_q:].any() and not dv[:, :, n_q:].any()


def test_the_gradient_of_a_sum_has_strides_of_zero():
    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=20)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    copied.attention(*leaves).sum().backward()
    _, *want = gradients(copied.attention(*leaves), leaves, torch.ones_like(q))
    assert same_bits([x.grad for x in leaves], want)


def test_equal_bits_in_every_run():
    given_to = problem(torch.float16)
    with tile(16, 16):
        runs = [results(lambda *x: copied.attention_with_lse(*x, causal=True), *given_to) for _ in range(2)]
    assert same_bits(*runs)


# The operator.


@pytest.mark.parametrize("causal", [False, True])
def test_opcheck(causal):
    q, k, v, do, dlse = problem(torch.float32, n_q=20, n_k=30, d=16)
    leaves = [x.requires_grad_() for x in (q, laid_out(k, "tokens first"), v)]
    forward, backward = (getattr(torch.ops.flash_attention, name).default for name in ("forward", "backward"))
    torch.library.opcheck(forward, (*leaves, causal, 0.3))
    q, k, v = (x.detach() for x in leaves)
    torch.library.opcheck(backward, (do, dlse, q, k, v, *copied.forward(q, k, v, causal, 0.3), causal, 0.3))


def test_compile_in_one_graph_with_the_backward_pass():
    def loss(q, k, v):
        o, lse = copied.attention_with_lse(q, k, v, causal=True)
        return o.square().sum() + lse.sum()

    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=30, d=16)
    leaves = [x.requires_grad_() for x in (q, laid_out(k, "last stride 2"), v)]
    want = torch.autograd.grad(loss(*leaves), leaves)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for one, other in zip(torch.autograd.grad(compiled(*leaves), leaves), want, strict=True):
        torch.testing.assert_close(one, other)


def test_a_second_derivative_is_an_error():
    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=20, d=16)
    (dq,) = torch.autograd.grad(
        copied.attention(q.requires_grad_(), k, v).square().sum(), q, create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"backward.*no autograd formula"):
        dq.sum().backward()


def test_two_copies_have_their_own_operators():
    other = loaded(FILE, "another_copy")
    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=20, d=16)
    assert same_bits(copied.attention_with_lse(q, k, v), other.attention_with_lse(q, k, v))
    assert torch.ops.another_copy.forward.default is not torch.ops.flash_attention.forward.default


# Errors: one line with the argument, what was passed, what is allowed, and what to do.

X = torch.zeros(2, 4, 8, 16)
WRONG = [
    ((X.double(), X, X), {}, TypeError, r"q is torch.float64, .* Allowed: float16, .* Cast"),
    ((X, X.half(), X), {}, TypeError, r"k is torch.float16, q is torch.float32. .* k.to\("),
    ((X, X, X.to("meta")), {}, ValueError, r"v is on meta, q is on cpu. Move it with v.to"),
    ((X[0], X, X), {}, ValueError, r"q has the shape \(4, 8, 16\). Allowed: \(batch, heads, rows, d\)"),
    ((X, X[:, :, :0], X), {}, ValueError, r"k has the shape \(2, 4, 0, 16\). .* no size 0"),
    ((X[..., :8],) * 3, {}, ValueError, r"q has d = 8, .* Allowed: 16, 32, 64, 128 or 256"),
    ((X, X, torch.zeros(2, 4, 8, 32)), {}, ValueError, r"v has d = 32, q has d = 16. .* Pad with zeros"),
    ((X, X, X[:, :, :7]), {}, ValueError, r"q has the shape .* v \(2, 4, 7, 16\). .* of one shape"),
    ((X, X[:1], X[:1]), {}, ValueError, r"with q's batch"),
    ((X, X[:, :3], X[:, :3]), {}, ValueError, r"with heads whose number divides q's"),
    ((X, X, X), {"scale": -1.0}, ValueError, r"scale is -1.0. Allowed: a positive number"),
    ((X, X, X), {"scale": float("nan")}, ValueError, r"scale is nan"),
]


@pytest.mark.parametrize(("inputs", "options", "kind", "said"), WRONG)
def test_an_error_is_one_line(inputs, options, kind, said):
    with pytest.raises(kind, match=said) as error:
        copied.attention(*inputs, **options)
    assert "\n" not in str(error.value)


@pytest.fixture
def a_gpu(monkeypatch):
    """Pretend that kernels are compiled for a GPU with this compute capability."""
    copied.warn_of_untested.cache_clear()
    monkeypatch.setattr(copied, "INTERPRETED", False)

    def of(*capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A made-up GPU")
        return torch.device("cuda", 0)

    return of


def test_a_device_without_kernels_is_an_error(a_gpu):
    with pytest.raises(ValueError, match=r"q is on cpu. Allowed: a CUDA GPU. .* TRITON_INTERPRET=1"):
        copied.attention(X, X, X)


@pytest.mark.parametrize(
    ("chip", "dtype", "runs"),
    [
        ((7, 0), torch.float16, False),
        ((7, 5), torch.bfloat16, False),
        ((7, 5), torch.float16, True),
        ((8, 0), torch.bfloat16, True),
    ],
)
def test_a_chip_that_cannot_compute_a_type_is_an_error(a_gpu, recwarn, chip, dtype, runs):
    device = a_gpu(*chip)
    if runs:
        copied.check_device(device, dtype)
    else:
        with pytest.raises(
            ValueError, match=rf"q is {dtype} on A made-up GPU, sm_7\d. Allowed: sm_80"
        ) as error:
            copied.check_device(device, dtype)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("chip", [(8, 9), (12, 0)])
def test_a_chip_for_which_nothing_was_compiled_is_one_warning(a_gpu, recwarn, chip):
    for dtype in ALLOWED:
        copied.check_device(a_gpu(*chip), dtype)
    (said,) = [str(one.message) for one in recwarn]
    assert "A made-up GPU, sm_" in said and "compiled for sm_80, sm_90 and sm_100 only" in said
    assert "timed on no GPU" in said and "\n" not in said


@pytest.mark.parametrize("chip", copied.COMPILED_FOR)
def test_a_chip_for_which_it_was_compiled_has_no_warning(a_gpu, recwarn, chip):
    copied.check_device(a_gpu(*chip), torch.bfloat16)
    assert not list(recwarn)


# Tiles.


@pytest.mark.parametrize("d", copied.HEAD_SIZES)
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("chip", [(7, 5), *copied.COMPILED_FOR])
def test_tiles_are_left_for_every_size_type_and_chip(a_gpu, chip, dtype, d):
    """And the tuner tries the few of the list that do not spill there."""
    a_gpu(*chip)
    lists = (copied.FORWARD_TILES, copied.QUERIES_TILES, copied.KEYS_TILES)
    for tiles in lists:
        of_a_kernel = copied.tuned(tiles)(copied.forward_kernel.fn)
        kept = of_a_kernel.early_config_prune(
            of_a_kernel.configs, {"Q": torch.empty(1, dtype=dtype)}, d=d, CAUSAL=True
        )
        column = 2 if dtype == torch.float32 else int(chip >= (9, 0))
        assert [(*one.kwargs.values(), one.num_warps, one.num_stages) for one in kept] == [
            sizes for sizes, largest in (tiles | copied.SMALL).items() if d <= largest[column]
        ]
        assert 1 <= len(kept) <= 5


def test_one_tile_is_interpreted_and_lengths_share_their_tuning():
    assert all(len(kernel.configs) == 1 and kernel.keys == ["d", "CAUSAL", "length"] for kernel in KERNELS)
    k = torch.empty(1, 1, 1, 16)
    lengths = {copied.sizes(torch.empty(1, 1, n, 16), k)[-1] for n in range(1, 20_000, 7)}
    assert lengths == {512, 1024, 2048, 4096}


# The file by itself.


def test_it_needs_only_pytorch_and_triton():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    standard = {name for name in names if name.split(".")[0] in sys.stdlib_module_names}
    assert names - standard == {"torch", "triton", "triton.language"}


def in_an_empty_folder(tmp_path, code):
    """Run code in a folder that has a copy of the file, without this project on the path."""
    (tmp_path / FILE.name).write_bytes(FILE.read_bytes())
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import script"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=280,
    )  # fmt: skip


def test_a_copy_runs_as_its_first_lines_say(tmp_path):
    usage = ast.get_docstring(ast.parse(FILE.read_text(encoding="utf-8"))).split("\n\n")[1]
    code = (
        "import os\nos.environ['TRITON_INTERPRET'] = '1'\nimport torch\n"
        "q, k, v = torch.randn(3, 1, 2, 20, 16).requires_grad_().unbind()\nq.retain_grad()\n"
        + "\n".join(line.strip() for line in usage.splitlines())
        + "\nassert o.shape == q.shape and q.grad.isfinite().all()\n"
        "print(*sorted(name for name in sys.modules if 'iocourse' in name), 'ran')"
    )
    done = in_an_empty_folder(tmp_path, "import sys\n" + code)
    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr


def test_without_triton_it_says_what_to_do(tmp_path):
    done = in_an_empty_folder(tmp_path, "import sys\nsys.modules['triton'] = None\nimport flash_attention")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: flash_attention.py needs Triton. Install it (pip install triton")
    assert last.endswith("scaled_dot_product_attention instead")
