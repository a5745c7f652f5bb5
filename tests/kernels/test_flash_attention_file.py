"""The file to copy, lessons/flash_attention.py: values, layouts, the operator, errors, and what it needs."""

import ast
import runpy
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import skip_without_interpreter  # noqa: F401
import torch
import torch.autograd.forward_ad as fwAD
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
NAME = "flash_attention_of_these_tests"  # another test that imports the file has other operators
copied = sys.modules[NAME] = loaded(FILE, NAME)  # torch.compile imports it by name
# Largest error over largest entry, of O and of each gradient.
ALLOWED = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6}
KERNELS = (copied.forward_kernel, copied.queries_kernel, copied.keys_kernel)


# The interpreter's bfloat16 is right here, because it is repaired.
pytestmark = pytest.mark.filterwarnings("ignore:Triton's interpreter computes wrong numbers:UserWarning")


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


LAYOUTS = ("heads first", "tokens first", "last stride 2", "part of more rows", "part of a product")


def laid_out(x, layout):
    """Return x with the same numbers and other strides."""
    B, H, n, d = x.shape
    if layout == "tokens first":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "last stride 2":
        return torch.stack([x, x], -1).reshape(B, H, n, 2 * d)[..., ::2]
    if layout == "part of more rows":
        return torch.cat([x, torch.full_like(x, float("nan"))], 2)[:, :, :n]
    if layout == "part of a product":  # of one linear layer for q, k and v
        return torch.stack([x.transpose(1, 2)] * 3, 2)[:, :, 1].transpose(1, 2)
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_have_the_order_of_the_inputs(layout):
    """And no gaps: a result of tokens-first inputs is tokens first."""
    q, k, v, do, dlse = problem(torch.float16, n_q=20, n_k=20)
    q, k, v = (laid_out(torch.cat([x, x], 1), layout) for x in (q, k, v))  # k and v with two heads
    o, _, dq, dk, dv = results(
        copied.attention_with_lse, q, k, v, *(torch.cat([x, x], 1) for x in (do, dlse))
    )
    order = "tokens first" if layout in ("tokens first", "part of a product") else "heads first"
    want = [laid_out(x.contiguous(), order).stride() for x in (q, q, k, v)]
    assert [x.stride() for x in (o, dq, dk, dv)] == want


@pytest.mark.parametrize("which", range(3))
def test_inputs_that_overlap(which):
    """Windows of a signal: rows with a stride of 1, for which an empty tensor of the same order has gaps."""
    given_to = [torch.arange(34.0).sin().view(1, 1, 34).unfold(2, 16, 1)[:, :, :n] for n in (5, 6, 6)]
    apart = [x.contiguous() for x in given_to]
    mixed = [x if at == which else other for at, (x, other) in enumerate(zip(given_to, apart, strict=True))]
    do, dlse = torch.ones(1, 1, 5, 16), torch.ones(1, 1, 5)
    assert same_bits(*(results(copied.attention_with_lse, *x, do, dlse) for x in (mixed, apart)))


def test_rows_far_apart_in_memory():
    """Offsets in a tile would not fit in 32 bits. The memory between the rows is never touched."""
    stride = 2**30 + 8
    x = torch.randn(1, 1, 3, 16).half()
    far = torch.empty(2 * stride + 16, dtype=torch.float16).as_strided(x.shape, (0, 0, stride, 1))
    for row in range(3):
        far[0, 0, row] = x[0, 0, row]
    assert same_bits(copied.attention_with_lse(far, far, far), copied.attention_with_lse(x, x, x))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of products with infinities
@pytest.mark.parametrize("n_q", [1, 15, 16])
def test_a_key_with_infinities_has_finite_gradients(n_q):
    """Its weights are 0. No query out of bounds (a row of zeros) may attend to it: 0 · ∞ = NaN."""
    q, k, v, do, dlse = problem(torch.float32, H=1, n_q=n_q, n_k=4, d=16)
    q, k[0, 0, 1] = q.abs(), -torch.inf
    *_, dk, dv = results(copied.attention_with_lse, q, k, v, do, dlse)
    assert dk.isfinite().all() and not dk[0, 0, 1].any()
    assert dv.isfinite().all() and not dv[0, 0, 1].any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of products with infinities
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_whose_scores_are_all_minus_infinity(causal):
    """The products overflow float32 for the first block of keys, so their weights are 0."""
    q, k, v, do, dlse = problem(torch.float32, H=1, n_q=60, n_k=60, d=16)
    q, k = q.abs() * 1e20, k * 1e-20
    k[0, 0, :16] = -1e20
    with tile(16, 16):
        o, lse, dq, dk, dv = results(
            lambda *x: copied.attention_with_lse(*x, causal=causal), q, k, v, do, dlse
        )
    # The first 16 causal queries attend to no other keys, so they have no result.
    queries, keys = slice(16 if causal else 0, None), slice(16, None)
    q, do, dlse, o, lse, dq = (x[:, :, queries] for x in (q, do, dlse, o, lse, dq))
    k, v, dk, dv = (x[:, :, keys] for x in (k, v, dk, dv))
    assert max(errors((o, lse, dq, dk, dv), in_float64(q, k, v, do, dlse, causal))) <= 1e-6


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
    leaves = [x.requires_grad_() for x in (laid_out(q, "tokens first"), laid_out(k, "tokens first"), v)]
    operators = getattr(torch.ops, copied.NAMESPACE)
    forward, backward = operators.forward.default, operators.backward.default
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


def doubled(folder):
    """Return a copy of the file whose results are twice as large."""
    path = folder / "twice.py"
    text = FILE.read_text(encoding="utf-8").replace("return o, lse\n", "return 2 * o, lse\n")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["flash_attention", "x_fa", "x.fa", "1abc", "has-hyphen", "naïve", "aten"])
def test_each_copy_has_its_own_operators(tmp_path, name):
    """For every name of its module, also the name of another copy."""
    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=20, d=16)
    first = loaded(FILE, "x_fa") if name == "x.fa" else copied
    want = first.attention(q, k, v)
    other = loaded(doubled(tmp_path), name)
    assert same_bits([other.attention(q, k, v), first.attention(q, k, v)], [4 * want, want])


def test_a_copy_runs_as_a_script():
    q, k, v, *_ = problem(torch.float32, n_q=20, n_k=20, d=16)
    assert same_bits([runpy.run_path(str(FILE))["attention"](q, k, v)], [copied.attention(q, k, v)])


def test_star_imports_only_the_functions_to_call():
    assert copied.__all__ == ["attention", "attention_with_lse"]


@pytest.mark.parametrize("which", range(3))
def test_forward_mode_is_an_error(which):
    inputs = list(torch.randn(3, 1, 1, 20, 16).unbind())
    with fwAD.dual_level():
        inputs[which] = fwAD.make_dual(inputs[which], inputs[which])
        with pytest.raises(
            NotImplementedError, match=rf"^{'qkv'[which]} has a tangent. Allowed: reverse mode"
        ):
            copied.attention(*inputs)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_vmap():
    x = torch.randn(3, 1, 1, 20, 16)
    assert same_bits(
        torch.func.vmap(copied.attention)(x, x, x), [copied.attention(one, one, one) for one in x]
    )


# Errors: one line with the argument, what was passed, what is allowed, and what to do.

X = torch.zeros(2, 4, 8, 16)
WRONG = [
    (
        (X.double(), X, X),
        {},
        TypeError,
        r"^q is torch.float64. Allowed: float16, bfloat16 or float32. Use q.to",
    ),
    ((X, X.half(), X), {}, TypeError, r"k is torch.float16 on cpu, q is torch.float32 on cpu. .* k.to\(q\)"),
    ((X, X, X.to("meta")), {}, TypeError, r"v is torch.float32 on meta, q is .* on cpu. .* Use v.to\(q\)"),
    ((None, X, X), {}, TypeError, r"^q \(NoneType\) is not a dense torch.Tensor"),
    ((X, X.numpy(), X), {}, TypeError, r"^k \(ndarray\) is not a dense torch.Tensor"),
    ((X.to_sparse(), X, X), {}, TypeError, r"^q \(Tensor\) is not a dense torch.Tensor"),
    ((torch.zeros(()), X, X), {}, ValueError, r"q has the shape \(\). Allowed: \(batch, heads, rows, d\)"),
    ((X[0], X, X), {}, ValueError, r"q has the shape \(4, 8, 16\). Allowed: \(batch, heads, rows, d\)"),
    ((X, X[:, :, :0], X), {}, ValueError, r"k has the shape \(2, 4, 0, 16\). .* no size 0"),
    ((X[..., :8],) * 3, {}, ValueError, r"^q has d = 8. Allowed: 16, 32, 64, 128 or 256. .* scale=8\*\*-0.5"),
    ((X, *[torch.zeros(2, 4, 8, 32)] * 2), {}, ValueError, r"q has the shape .* with q's batch and d"),
    ((X, X, X[:, :, :7]), {}, ValueError, r"q has the shape .* v \(2, 4, 7, 16\). .* of one shape"),
    ((X, X[:1], X[:1]), {}, ValueError, r"with q's batch"),
    ((X, X[:, :3], X[:, :3]), {}, ValueError, r"with a number of heads that divides q's"),
    ((X, X, X), {"causal": 0.125}, TypeError, r"causal is a float. Allowed: True or False"),
    ((X, X, X), {"causal": X > 0}, TypeError, r"causal is a Tensor"),
    ((X, X, X), {"causal": None}, TypeError, r"causal is a NoneType"),
    ((X, X, X), {"scale": -1.0}, ValueError, r"scale is -1.0. Allowed: from 1e-37 to 1e38"),
    ((X, X, X), {"scale": float("nan")}, ValueError, r"scale is nan"),
    ((X, X, X), {"scale": 1e-46}, ValueError, r"scale is 1e-46"),
    ((X, X, X), {"scale": 10**400}, ValueError, r"scale is 10{39}\. Allowed"),
    ((X, X, X), {"scale": torch.ones(2, 2)}, TypeError, r"scale is a Tensor. Allowed: a Python number"),
    ((X, X, X, 0.125), {}, TypeError, r"takes 3 positional arguments"),
]


@pytest.mark.parametrize(("inputs", "options", "kind", "said"), WRONG)
def test_an_error_is_one_line(inputs, options, kind, said):
    with pytest.raises(kind, match=said) as error:
        copied.attention(*inputs, **options)
    assert "\n" not in str(error.value)


@pytest.fixture
def a_gpu(monkeypatch):
    """Pretend that kernels are compiled for a GPU with this compute capability."""
    copied.warn_once.cache_clear()
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
    copied.check_device(a_gpu(*divmod(chip, 10)), torch.bfloat16)
    assert not list(recwarn)


def test_bfloat16_in_the_interpreter_is_one_warning(recwarn):
    copied.warn_once.cache_clear()
    x = X.bfloat16()
    for _ in range(2):
        copied.attention(x, x, x)
    (said,) = [str(one.message) for one in recwarn]
    assert said == "Triton's interpreter computes wrong numbers in bfloat16. Use float16 or float32"


# Tiles.


@pytest.mark.parametrize("d", copied.HEAD_SIZES)
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("chip", [75, *copied.COMPILED_FOR])
def test_tiles_are_left_for_every_size_type_and_chip(monkeypatch, chip, dtype, d):
    """And the tuner tries the few of the list that do not spill there."""
    monkeypatch.setattr(copied, "INTERPRETED", False)
    lists = (copied.FORWARD_TILES, copied.QUERIES_TILES, copied.KEYS_TILES)
    for tiles in lists:
        of_a_kernel = copied.tuned(tiles)(copied.forward_kernel.fn)
        kept = of_a_kernel.early_config_prune(
            of_a_kernel.configs, {"Q": torch.empty(1, dtype=dtype), "chip": chip}, d=d, CAUSAL=True
        )
        column = 2 if dtype == torch.float32 else int(chip >= 90)
        assert [(*one.kwargs.values(), one.num_warps, one.num_stages) for one in kept] == [
            sizes for sizes, largest in (tiles | copied.SMALL).items() if d <= largest[column]
        ]
        assert 1 <= len(kept) <= 5


def test_one_tile_is_interpreted_and_lengths_share_their_tuning(a_gpu):
    """Another chip, of another GPU in the same process, does not."""
    keys = ["d", "CAUSAL", "length", "chip"]
    assert all(len(kernel.configs) == 1 and kernel.keys == keys for kernel in KERNELS)
    k = torch.empty(1, 1, 1, 16)
    lengths = {copied.sizes(torch.empty(1, 1, n, 16), k)[-2] for n in range(1, 20_000, 7)}
    assert lengths == {512, 1024, 2048, 4096}
    assert [copied.chip_of(a_gpu(*one)) for one in ((8, 0), (8, 6), (9, 0))] == [80, 86, 90]
    assert copied.chip_of(torch.device("cpu")) == 0


def test_one_thread_at_a_time_launches_a_kernel(monkeypatch):
    """The tuner stores the arguments of a launch in itself."""
    inside, most = [], []
    launch = type(copied.forward_kernel).run

    def counted(self, *arguments, **options):
        inside.append(1)
        most.append(len(inside))
        try:
            return launch(self, *arguments, **options)
        finally:
            inside.pop()

    monkeypatch.setattr(type(copied.forward_kernel), "run", counted)
    x = torch.randn(1, 1, 40, 16)
    threads = [threading.Thread(target=copied.attention, args=(x, x, x)) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(most) == 6 and max(most) == 1


# The file by itself.


def test_it_needs_only_pytorch_and_triton():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    standard = {name for name in names if name.split(".")[0] in sys.stdlib_module_names}
    assert names - standard == {"torch", "torch.autograd", "triton", "triton.language"}


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


def test_the_interpreter_is_switched_on_before_triton_is_imported(tmp_path):
    late = "import sys, os\ndel os.environ['TRITON_INTERPRET']\nimport triton\n"
    late += "os.environ['TRITON_INTERPRET'] = '1'\n"
    done = in_an_empty_folder(tmp_path, late + "import flash_attention")
    assert done.stderr.strip().splitlines()[-1] == (
        "ImportError: TRITON_INTERPRET was set after triton was imported. Set it before Python starts"
    )
