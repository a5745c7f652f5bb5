"""`attention(…, block_mask=)` against float64: blocks of booleans, the course's masks, FlexAttention's."""

import gc
import itertools
import pickle
import weakref
from copy import deepcopy
from dataclasses import FrozenInstanceError
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import gradients, judge, numbers, same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from iocourse import masks
from iocourse.kernels import TiledMask, attention, attention_with_lse, tiled_mask, using
from iocourse.kernels.host import launches
from iocourse.kernels.host.choices import WHOLE, Case
from iocourse.kernels.host.masks import build as build_tiles
from iocourse.kernels.host.ranges import sizes_of

SMALL = {"forward": (32, 16), "fused": (16, 32), "queries": (16, 16), "keys": (32, 32)}


class Configuration(NamedTuple):
    """One call, and the blocks of its mask: shared, one for each head, or for each batch and head."""

    dtype: torch.dtype
    B: int
    heads: tuple[int, int]
    n_q: int
    n_k: int
    d: int
    block: int = 16
    own: str = "shared"
    density: float = 0.5
    deterministic: bool = False
    dlse: bool = False
    scale: float | None = None
    tiles: tuple[tuple[int, int], ...] = ((32, 16), (16, 32), (16, 16), (32, 32))
    seed: int = 0


def blocks_of(c: Configuration) -> Tensor:
    shape = (-(-c.n_q // c.block), -(-c.n_k // c.block))
    leading = {"shared": (), "heads": (c.heads[0],), "all": (c.B, c.heads[0])}[c.own]
    generator = torch.Generator().manual_seed(c.seed + 1)
    return torch.rand(*leading, *shape, generator=generator) < c.density


def pairs_of(blocks: Tensor, block: int, n_q: int, n_k: int) -> Tensor:
    """Pair by pair, as many axes as the blocks have."""
    return blocks.repeat_interleave(block, -2).repeat_interleave(block, -1)[..., :n_q, :n_k]


sizes = st.one_of(st.integers(1, 20), st.integers(33, 75))
tile = st.tuples(st.sampled_from([16, 32, 64]), st.sampled_from([16, 32, 64]))
configurations = st.builds(
    Configuration,
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    B=st.sampled_from([1, 1, 2]),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 1)]),
    n_q=sizes,
    n_k=sizes,
    d=st.one_of(st.integers(1, 48), st.sampled_from([64, 100, 200])),
    block=st.sampled_from([16, 32, 64]),
    own=st.sampled_from(["shared", "heads", "all"]),
    density=st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
    deterministic=st.booleans(),
    dlse=st.booleans(),
    scale=st.sampled_from([None, None, 0.3, -0.2, 0.0]),
    tiles=st.tuples(*[tile] * 4),
    seed=st.integers(0, 2**31),
)


@settings(max_examples=20)
@given(configurations)
@example(Configuration(torch.float32, 2, (2, 1), 70, 50, 24, own="all", density=0.3, dlse=True))
@example(Configuration(torch.float16, 1, (2, 2), 70, 90, 33, own="heads", density=0.3, deterministic=True))
@example(Configuration(torch.bfloat16, 1, (1, 1), 40, 40, 16, density=0.0, dlse=True))  # all hidden
def test_blocks_of_booleans(c: Configuration):
    H, H_kv = c.heads
    q, k, v, do = numbers(
        c.seed,
        c.dtype,
        *((c.B, h, n, c.d) for h, n in ((H, c.n_q), (H_kv, c.n_k), (H_kv, c.n_k), (H, c.n_q))),
    )
    (dlse,) = numbers(c.seed + 2, torch.float32, (c.B, H, c.n_q)) if c.dlse else (None,)
    blocks = blocks_of(c)
    mask = tiled_mask(blocks, q, k, block=c.block)

    def attend(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        return attention_with_lse(*leaves, block_mask=mask, scale=c.scale, deterministic=c.deterministic)

    with using(**dict(zip(WHOLE, c.tiles, strict=True))):
        judge(attend, q, k, v, do, dlse, pairs_of(blocks, c.block, c.n_q, c.n_k), c.scale)


N = 70
COURSE = [
    masks.Full(N),
    masks.Causal(N),
    masks.Window(N, 0),
    masks.Window(N, 11),
    masks.causal(N, 13),
    masks.bigbird(N, 10, 1, 1, 1),
    masks.BlockMask(N, np.eye(3, 4, 1, dtype=bool), 30, 20, allow_empty=True),
    masks.BlockMask(N, np.eye(7, dtype=bool)[::-1], 10, causal=True, allow_empty=True),
]
HEADS = torch.tensor([[0, 5, 9], [30, 2, 70]])  # for a predicate that differs by batch and head


def own_window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i - j).abs() <= HEADS[b, h]


def keeps_documents(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i // 23 == j // 23) & (j <= i)


def check(mask: Any, allowed: Tensor, deterministic: bool, *, B: int, H: int, H_kv: int) -> None:
    n_q, n_k = allowed.shape[-2:]
    q, do, k, v = numbers(3, torch.float32, *[(B, H, n_q, 24)] * 2, *[(B, H_kv, n_k, 24)] * 2)
    made = tiled_mask(mask, q, k)
    with using(**SMALL):
        judge(
            lambda *x: attention_with_lse(*x, block_mask=made, deterministic=deterministic),
            q, k, v, do, None, allowed,
        )  # fmt: skip


@pytest.mark.parametrize("mask", COURSE, ids=repr)
def test_masks_of_the_course(mask: Any):
    allowed = torch.tensor([[bool(mask.sees(np.array(i), np.array(j))) for j in range(N)] for i in range(N)])
    assert allowed.sum() == mask.nnz
    for deterministic in (False, True):
        check(mask, allowed, deterministic, B=1, H=2, H_kv=1)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "predicate, B, H, sizes",
    [(own_window, 2, 3, (70, 90)), (keeps_documents, None, None, (70, 70))],
    ids=["each head its own", "shared"],
)
def test_masks_of_flex_attention(predicate, B, H, sizes, deterministic):
    mask = create_block_mask(predicate, B, H, *sizes, device="cpu", BLOCK_SIZE=32)
    i, j = (torch.arange(n) for n in sizes)
    allowed = torch.stack(
        [torch.stack([predicate(b, h, i[:, None], j[None, :]) for h in range(H or 1)]) for b in range(B or 1)]
    )
    check(mask, allowed, deterministic, B=2, H=3, H_kv=1)


def test_blocks_of_flex_attention_count_as_well_as_its_predicate():
    """A BlockMask from lists only: blocks that are not listed are empty; full ones skip the predicate."""
    by_pair, whole = torch.tensor([[1, 0], [0, 1]], dtype=torch.bool), torch.tensor([[0, 0], [1, 0]]).bool()
    lists = [
        part
        for hit in (by_pair, whole)
        for part in (
            hit.sum(-1).int()[None, None],
            hit.int().argsort(dim=-1, descending=True, stable=True).int()[None, None],
        )
    ]
    mask = BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=(32, 32), mask_mod=lambda b, h, i, j: (j <= i) & (j != 3), seq_lengths=(50, 60)
    )
    i, j = torch.arange(50)[:, None], torch.arange(60)[None, :]
    allowed = pairs_of(whole, 32, 50, 60) | (pairs_of(by_pair, 32, 50, 60) & (j <= i) & (j != 3))
    assert allowed[0, 0] and not allowed[0, 1] and not allowed[20, 40] and not allowed[20, 3]
    assert allowed[40, 3]
    check(mask, allowed, False, B=1, H=1, H_kv=1)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("n", [64, 75])
def test_a_mask_that_hides_nothing_changes_no_bit(n: int, deterministic: bool):
    q, k, v, do = numbers(0, torch.float32, *[(1, 2, n, 24)] * 4)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    mask = tiled_mask(torch.ones(-(-n // 16), -(-n // 16), dtype=torch.bool), q, k)
    with using(**dict.fromkeys(WHOLE, (32, 32))):
        masked = gradients(attention(*leaves, block_mask=mask, deterministic=deterministic), leaves, do)
        plain = gradients(attention(*leaves, deterministic=deterministic), leaves, do)
    if deterministic:
        assert same_bits(masked, plain)
    else:
        for one, other in zip(masked, plain, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_deterministic_is_bit_equal_over_repeats():
    numbers_ = numbers(0, torch.float16, *((1, h, 90, 24) for h in (2, 1, 1, 2)))
    blocks = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(0)) < 0.5
    runs = []
    for _ in range(2):
        q, k, v, do = (x.clone().requires_grad_() for x in numbers_)
        mask = tiled_mask(blocks, q, k)
        with using(**SMALL):
            runs.append(gradients(attention(q, k, v, block_mask=mask, deterministic=True), [q, k, v], do))
    assert same_bits(*runs)


def test_strides_change_no_bit():
    q, k, v, do = numbers(0, torch.float32, *[(2, 2, 50, 20)] * 4)
    blocks = torch.rand(2, 2, 4, 4, generator=torch.Generator().manual_seed(1)) < 0.6

    def everything(layout: Any, blocks: Tensor) -> tuple[Tensor, ...]:
        leaves = [layout(x).detach().requires_grad_() for x in (q, k, v)]
        with using(**SMALL):
            o = attention(*leaves, block_mask=tiled_mask(blocks, q, k), deterministic=True)
            return gradients(o, leaves, layout(do))

    plain = everything(lambda x: x, blocks)
    assert same_bits(plain, everything(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), blocks))
    assert same_bits(plain, everything(lambda x: x.mT.contiguous().mT, blocks.mT.contiguous().mT))


# Once for each mask, not once for each layer.


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The tile sizes of every cut that is made, in order."""

    made: list[tuple[int, int]] = []

    def build(*given: Any) -> Any:
        *_, BM, BN = given
        made.append((BM, BN))
        return build_tiles(*given)

    monkeypatch.setitem(TiledMask.tiles.__globals__, "build", build)
    return made


FOUR = torch.eye(4, dtype=torch.bool)


def documents(n: int) -> Tensor:
    return torch.arange(n) // 23


def of_flex(ids: Tensor) -> BlockMask:
    n = len(ids)
    return create_block_mask(lambda b, h, i, j: ids[i] == ids[j], None, None, n, n, "cpu", BLOCK_SIZE=16)


# Masks for n queries and keys, from the document of each position.
MADE: dict[str, Any] = {
    "booleans": lambda ids: ids[::16, None] == ids[None, ::16],
    "NumPy's booleans": lambda ids: (ids[::16, None] == ids[None, ::16]).numpy(),
    "window of the course": lambda ids: masks.Window(len(ids), 7),
    "blocks of the course": lambda ids: masks.sliding_window(len(ids), 10, 1),
    "predicate": lambda ids: lambda b, h, i, j: ids[i] == ids[j],
    "FlexAttention's": of_flex,
}
every_kind = pytest.mark.parametrize("make", MADE.values(), ids=list(MADE))


@every_kind
def test_a_mask_is_cut_once_for_each_size_of_tile(make: Any, built: list[tuple[int, int]]):
    q, k, v = (x.requires_grad_() for x in numbers(0, torch.float32, *[(1, 1, 60, 8)] * 3))
    mask = tiled_mask(make(documents(60)), q, k)
    built.clear()
    with using(**SMALL):
        for _ in range(3):
            attention(q, k, v, block_mask=mask).sum().backward()
        assert built == [SMALL["forward"], SMALL["fused"]]
        attention(q, k, v, block_mask=mask, deterministic=True).sum().backward()
        assert built == list(SMALL.values())


@every_kind
def test_two_lengths_by_turns_are_cut_once_each(make: Any, built: list[tuple[int, int]]):
    heads = [numbers(0, torch.float32, *[(1, 1, n, 8)] * 3) for n in (60, 40)]
    made = [tiled_mask(make(documents(q.shape[2])), q, k) for q, k, _ in heads]
    built.clear()
    with using(**SMALL):
        for _ in range(3):
            for (q, k, v), mask in zip(heads, made, strict=True):
                attention(q, k, v, block_mask=mask)
    assert sorted(built) == sorted(2 * [SMALL["forward"], SMALL["fused"]])


def test_a_mask_of_one_batch_and_head_serves_tensors_with_more(built: list[tuple[int, int]]):
    q, k = numbers(0, torch.float32, *[(1, 1, 60, 8)] * 2)
    mask = tiled_mask(FOUR, q, k)
    assert mask.shape == (1, 1, 60, 60) and not built
    other = numbers(1, torch.float32, (3, 4, 60, 8), *[(3, 2, 60, 8)] * 2)
    with using(**SMALL):
        for tensors in ((q, k, k), other, (q, k, k)):
            attention(*tensors, block_mask=mask)
    assert built == [SMALL["forward"], SMALL["fused"]]
    assert tiled_mask(mask, q, k) is mask


# A mask is a value: it keeps what was visible when it was made, and nothing that could change.


def in_place(ids: Tensor) -> None:
    ids[:] = torch.arange(len(ids)) // 31


def through_data(ids: Tensor) -> None:
    in_place(ids.data)


def through_numpy(ids: Tensor) -> None:
    """Memory that a tensor shares: PyTorch counts no version of it."""
    ids.numpy()[:] = np.arange(len(ids)) // 31


@pytest.mark.parametrize("cut", [True, False], ids=["cut before", "cut after"])
@pytest.mark.parametrize("change", [in_place, through_data, through_numpy])
@pytest.mark.parametrize("make", [MADE["predicate"], MADE["FlexAttention's"]], ids=["predicate", "Flex"])
def test_a_captured_tensor_that_changes_changes_no_mask(make: Any, change: Any, cut: bool):
    q, k, v = numbers(0, torch.float32, *[(1, 1, 60, 8)] * 3)
    ids = documents(60)
    before = ids[:, None] == ids[None, :]
    mask = make(ids)
    made = tiled_mask(mask, q, k)
    if cut:
        attention(q, k, v, block_mask=made)
    change(ids)
    after = ids[:, None] == ids[None, :]
    assert (before != after).any()
    again = tiled_mask(make(ids), q, k)
    assert made != again
    for one, pairs in ((made, before), (again, after)):
        with using(**SMALL):
            o = attention(q, k, v, block_mask=one)
        torch.testing.assert_close(o, reference_attention.exact(q, k, v, pairs, None)[0].float())


def its_predicate(mask: BlockMask) -> None:
    mask.mask_mod = lambda b, h, i, j: i > j


def its_lists(mask: BlockMask) -> None:
    mask.kv_num_blocks.zero_()
    mask.full_kv_num_blocks.zero_()  # type: ignore[union-attr]


def one_block(blocks: Any) -> None:
    blocks[0, 3] = True


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (MADE["booleans"], one_block),
        (MADE["NumPy's booleans"], one_block),
        (of_flex, its_predicate),
        (of_flex, its_lists),
    ],
    ids=["booleans", "NumPy", "another predicate", "other lists"],
)
def test_a_changed_mask_is_another_mask(make: Any, change: Any):
    """Masks made before a change keep their value; a mask made after it has the change."""
    q, k, v = numbers(0, torch.float32, *[(1, 1, 60, 8)] * 3)
    mask = make(documents(60))
    made = tiled_mask(mask, q, k)
    change(mask)
    assert tiled_mask(mask, q, k) != made == tiled_mask(make(documents(60)), q, k)
    unchanged = attention(q, k, v, block_mask=tiled_mask(make(documents(60)), q, k))
    assert torch.equal(attention(q, k, v, block_mask=made), unchanged)
    assert not torch.equal(attention(q, k, v, block_mask=tiled_mask(mask, q, k)), unchanged)


def test_what_is_dropped_is_freed():
    """Three masks of each kind, used in both passes: neither they live on, nor what they were made of."""
    q, k, v = (x.requires_grad_() for x in numbers(0, torch.float32, *[(1, 1, 40, 8)] * 3))
    alive: dict[str, list[weakref.ref[Any]]] = {"tiled masks": [], "masks": [], "captured tensors": []}
    for make, _ in itertools.product(MADE.values(), range(3)):
        ids = documents(40)
        mask = make(ids)
        made = tiled_mask(mask, q, k)
        attention(q, k, v, block_mask=made).sum().backward()
        for refs, one in zip(alive.values(), (made, mask, ids), strict=True):
            refs.append(weakref.ref(one))
        assert all(refs[-1]() is not None for refs in alive.values())
    del ids, mask, made, one
    gc.collect()
    left = {name: sum(ref() is not None for ref in refs) for name, refs in alive.items()}
    assert left == dict.fromkeys(alive, 0)


@every_kind
def test_a_mask_is_a_value(make: Any):
    q, k, v = numbers(0, torch.float32, *[(2, 2, 60, 8)] * 3)
    mask, same = (tiled_mask(make(documents(60)), q, k) for _ in range(2))
    o = attention(q, k, v, block_mask=mask)
    unused = pickle.dumps(same)
    assert abs(len(pickle.dumps(mask)) - len(unused)) < 100  # what was cut for the call stays behind
    for copy in (pickle.loads(unused), deepcopy(mask)):
        assert copy == mask and repr(copy) == repr(mask) and {copy, mask, same} == {mask}
        assert torch.equal(attention(q, k, v, block_mask=copy), o)
    with pytest.raises(FrozenInstanceError):
        mask.shape = (1, 1, 1, 1)  # type: ignore[misc]


def test_a_pickle_names_the_public_class():
    """So it can be loaded after the file of the class has moved."""
    assert (TiledMask.__module__, TiledMask.__qualname__) == ("iocourse.kernels", "TiledMask")
    stored = pickle.dumps(tiled_mask(FOUR, *numbers(0, torch.float32, *[(1, 1, 60, 8)] * 2)))
    assert b"iocourse.kernels" in stored and b"iocourse.kernels.host" not in stored


def test_a_mask_pickled_before_is_refused_in_one_line():
    """The start of a pickle of 0.2.0, up to its class: the file that it names has another name now."""
    stored = b"\x80\x04\x8c#iocourse.kernels.host.visible_pairs\x94\x8c\tTiledMask\x94\x93\x94."
    with pytest.raises(ModuleNotFoundError) as caught:
        pickle.loads(stored)
    assert str(caught.value) == "No module named 'iocourse.kernels.host.visible_pairs'"


def test_masks_are_equal_where_the_same_pairs_are_visible():
    q, k = numbers(0, torch.float32, *[(1, 1, 60, 8)] * 2)
    blocks = tiled_mask(FOUR, q, k)
    by_pair = tiled_mask(lambda b, h, i, j: i // 16 == j // 16, q, k)
    assert blocks == by_pair and by_pair == blocks and hash(blocks) == hash(by_pair)
    assert blocks != tiled_mask(lambda b, h, i, j: (i // 16 == j // 16) & (i + j > 0), q, k)
    assert blocks != tiled_mask(FOUR[None].expand(2, 4, 4), torch.empty(1, 2, 60, 8), k)
    assert blocks != tiled_mask(FOUR[:, :3], q, k[:, :, :48]) and blocks != "blocks"


def test_a_mask_says_what_it_was_made_of_and_its_sizes():
    q, k = torch.empty(2, 3, 60, 8), torch.empty(2, 1, 60, 8)
    said = [repr(tiled_mask(mask, q, k)) for mask in (FOUR, keeps_documents, masks.Window(60, 7))]
    assert said == [
        "TiledMask(blocks of 16: B=1, H=1, Nq=60, Nk=60)",
        "TiledMask(keeps_documents: B=2, H=3, Nq=60, Nk=60)",
        "TiledMask(Window: B=1, H=1, Nq=60, Nk=60)",
    ]


@every_kind
def test_a_mask_first_used_under_inference_mode_can_be_trained_with(make: Any):
    q, k, v = numbers(0, torch.float32, *[(1, 1, 64, 8)] * 3)
    with torch.inference_mode():
        mask = tiled_mask(make(documents(64)), q.clone(), k.clone())
        o = attention(q, k, v, block_mask=mask)
    q.requires_grad_()
    trained = attention(q, k, v, block_mask=mask)
    trained.sum().backward()
    assert torch.equal(trained, o) and q.grad is not None and q.grad.any()


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_backward_pass_keeps_to_the_tiles_its_lists_were_cut_for(deterministic: bool):
    """Tiles chosen by hand around the forward pass alone: the lists go on, the choice does not."""
    q, k, v = (x.requires_grad_() for x in numbers(0, torch.float32, *[(1, 2, 60, 8)] * 3))
    do = torch.ones(1, 2, 60, 8)

    def results(*, backward_inside: bool) -> list[Tensor]:
        with using(**SMALL):
            o = attention(q, k, v, block_mask=tiled_mask(FOUR, q, k), deterministic=deterministic)
            if backward_inside:
                return list(torch.autograd.grad(o, (q, k, v), do))
        return list(torch.autograd.grad(o, (q, k, v), do))

    for inside, outside in zip(results(backward_inside=True), results(backward_inside=False), strict=True):
        torch.testing.assert_close(outside, inside)


INTERPRETED = Case(None, 4, 8, "blocks")


def test_what_kernels_are_given_holds_no_tuple():
    """triton 3.6 loses a stride of 1 in a tuple within a NamedTuple, inside a loop, and does not compile."""
    q = torch.zeros(1, 1, 60, 8)
    side = launches.listed_side(tiled_mask(FOUR, q, q).lists(INTERPRETED, q.device, False), 0)
    assert side is not None and all(isinstance(part, (Tensor, int)) for part in side)


def test_tiles_are_no_larger_than_blocks():
    """Tiles are at least 64; a tile of several blocks would be partial."""
    q = torch.zeros(1, 1, 256, 8)
    sizes = {}
    for block in (32, 64, 128):
        blocks = torch.eye(256 // block, dtype=torch.bool)
        lists = tiled_mask(blocks, q, q, block=block).lists(INTERPRETED, q.device, False)
        sizes[block] = sizes_of(lists, 0), len(lists[3])
    assert sizes == {32: ((64, 64), 4), 64: ((64, 64), 0), 128: ((128, 128), 0)}
    lists = tiled_mask(masks.Window(256, 8), q, q).lists(INTERPRETED, q.device, False)
    assert sizes_of(lists, 0) == (128, 128)  # a mask without blocks
