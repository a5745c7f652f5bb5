"""Who takes part: our kernels, PyTorch's, and Triton's own tutorial.

A contender is called with q, k, v (B, H, N, d) and what a query sees, in dense attention `causal`, and gives
O. One that cannot raises, and the reason is recorded.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from iocourse.discovery import loaded
from iocourse.refusal import Refused
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import FLEX as FLEX
from tools.bench.gpu.problem import Pairs, Tensor

Contender = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
# The library's kernels by what runs: the backward pass of `attention`; `decode`; `attention` at large d,
# which chooses among three ways.
FUSED, TWO_PASS = "fused", "two-pass"
SPLIT_KV, DEFAULT = "split-KV", "default"
FIRST = (FUSED, SPLIT_KV, DEFAULT)  # whose ratios and goals are judged: one of them in each subject
# The library's kernels in ways that are off unless `using` asks for them: by contender, its name there.
PACKED_DESCRIPTORS, ROW_DESCRIPTORS = "packed by descriptors", "rows by descriptors"
LAST_MERGES = "last program merges"  # `decode` in one launch
WAYS = {
    PACKED_DESCRIPTORS: "packed_descriptors", ROW_DESCRIPTORS: "row_descriptors", LAST_MERGES: "last_merges",
}  # fmt: skip
FLASH, CUDNN = "SDPA flash", "SDPA cuDNN"
EFFICIENT, MATH = "SDPA efficient", "SDPA math"
TUTORIAL, SPECIALISED = "tutorial", "tutorial, warp-specialised"
BACKENDS = {  # their names in torch.nn.attention.SDPBackend
    FLASH: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION", EFFICIENT: "EFFICIENT_ATTENTION", MATH: "MATH",
}  # fmt: skip
# Scores and weights in float32 and their gradients: about this much for each pair of a query and a key.
MATRIX_BYTES_A_PAIR = 16


def contenders(
    place: Place, tutorial: Path | None = None, without: Sequence[str] = (), *, compiled: bool = True
) -> dict[str, Contender]:  # fmt: skip
    """Everyone by name, ours first, Triton's tutorial 06 where a copy is given, and not those `without`.

    Where the place has no memory for the N × N matrices of math, these are not even tried. FlexAttention is
    compiled, as its users must; without, its slow reference runs, for tests.
    """
    field: dict[str, Contender] = {
        FUSED: partial(ours, deterministic=False),
        TWO_PASS: partial(ours, deterministic=True),
        ROW_DESCRIPTORS: ours,
        **{name: partial(sdpa, name) for name in BACKENDS},
        MATH: partial(with_matrices, partial(sdpa, MATH), place),
        FLEX: partial(flex, compiled),
        **(tutorial_contenders(tutorial) if tutorial else {}),
    }
    return left_out(field, without)


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool, **options: Any) -> Tensor:
    """The course's `attention`, with options."""
    from iocourse.kernels import attention

    return attention(q, k, v, causal=causal, **options)


def sdpa(name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, **options: Any) -> Tensor:
    """PyTorch's scaled_dot_product_attention by one back end, a name of BACKENDS, and no other."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    shared = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    with sdpa_kernel([getattr(SDPBackend, BACKENDS[name])]):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, **shared, **options)


def with_matrices(contender: Contender, place: Place, q: Tensor, k: Tensor, v: Tensor, seen: Any) -> Tensor:
    """A contender that keeps N × N matrices, which is not even tried where they do not fit."""
    B, H, N, _ = q.shape
    check_room("its N × N matrices", MATRIX_BYTES_A_PAIR * B * H * N * k.shape[2], place)
    return contender(q, k, v, seen)


def check_room(what: str, needed: int, place: Place) -> None:
    """Raise Refused where `needed` bytes are more than half of those that are free."""
    free = place.free_bytes()
    if needed > free / 2:
        raise Refused(f"{what} need about {needed / 1e9:.0f} GB, and {free / 1e9:.0f} GB are free")


def flex(compiled: bool, q: Tensor, k: Tensor, v: Tensor, pairs: Pairs | None) -> Tensor:
    """FlexAttention, told by a predicate which query sees which key; None: all see all."""
    return fresh_flex(compiled, q.shape, q.dtype, pairs, str(q.device))(q, k, v)


@lru_cache(maxsize=1)
def fresh_flex(
    compiled: bool, shape: tuple[int, ...], dtype: Any, pairs: Pairs | None, device: str
) -> Callable[..., Tensor]:  # fmt: skip
    """FlexAttention compiled afresh for a problem, and its block mask made, before the clock starts."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    if compiled:
        torch._dynamo.reset()  # past eight shapes the compiler would refuse another one
        flex_attention = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return partial(flex_attention, block_mask=pairs and flex_mask(pairs, shape[2], device))


@lru_cache(maxsize=1)  # made once for each problem
def flex_mask(pairs: Pairs, N: int, device: str) -> Any:
    """FlexAttention's BlockMask, in blocks of 128, for every batch and head alike."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda batch, head, i, j: pairs(i, j), None, None, N, N, device=device)


def tutorial_file(path: Path | None) -> None:
    """Raises Refused where a copy of the tutorial is given, and is none."""
    if path is not None and not path.is_file():
        raise Refused(f"--tutorial {path} is no file; allowed: a copy of Triton's 06-fused-attention.py")


def tutorial_contenders(path: Path) -> dict[str, Contender]:
    """The kernel of a file of Triton's tutorial 06, and with warp specialisation where the file offers it.

    Raises Refused where the file cannot be loaded, or has no `attention`.
    """
    try:
        module: Any = loaded(path, "triton_tutorial_06")
        parameters = inspect.signature(module._attention.forward).parameters
    except Exception as error:
        raise Refused(f"{path} is no copy of Triton's tutorial 06: {reason_of(error)}") from error
    if "warp_specialize" not in parameters:
        return {TUTORIAL: tutorial(module)}
    return {TUTORIAL: tutorial(module, False), SPECIALISED: tutorial(module, True)}


def tutorial(module: Any, *switch: bool) -> Contender:
    """Triton's kernel: float16 only, tuned by its own list for each shape; `switch`: warp specialisation."""

    @lru_cache(maxsize=1)
    def forget_tuning(shape: tuple[int, ...], causal: bool) -> None:
        # Its tuner does not tell causal from full: without this, one would run with the other's tile.
        for one in vars(module).values():
            if hasattr(one, "configs") and isinstance(getattr(one, "cache", None), dict):
                one.cache.clear()

    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        if str(q.dtype) != "torch.float16":
            raise Refused("the tutorial's kernel casts to float16 inside: it takes float16 only")
        forget_tuning(q.shape, causal)
        return module.attention(q, k, v, causal, q.shape[-1] ** -0.5, *switch)

    return attend


def left_out(field: Mapping[str, Contender], without: Sequence[str]) -> dict[str, Contender]:
    """Who takes part, without those named. Raises Refused at nobody's name, and ours, which ratios are of."""
    rest = [name for name in field if name not in FIRST]
    for name in without:
        if name not in rest:
            raise Refused(f"--without {name!r} is no contender to leave out; allowed: {', '.join(rest)}")
    return {name: attend for name, attend in field.items() if name not in without}


def reason_of(error: BaseException, said: list[str] | None = None) -> str:
    """One line: what was raised, and what was warned of before."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    parts = [f"{type(error).__name__}: {first}" if first else type(error).__name__]
    parts += dict.fromkeys(line.strip().splitlines()[0] for line in said or [] if line.strip())
    return "; ".join(parts)


def with_warnings(work: Callable[[], Any]) -> tuple[Any, str]:
    """What `work` returned and "", or None and why it could not: SDPA says its reasons as warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return work(), ""
        except Refused as error:
            return None, str(error)
        except Exception as error:
            return None, reason_of(error, [str(one.message) for one in said])
