"""The roofline's formulas against brute force and against the kernels' closed forms."""

import math

import pytest

from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    ledger_bytes,
)
from iocourse.gpu import CHIPS
from iocourse.gpu import roofline as r


def test_the_convention_is_two_products_forward_and_five_backward():
    sizes = dict(B=2, H=3, N=128, d=32)
    product = 2 * 2 * 3 * 128 * 128 * 32
    assert r.flops("forward", **sizes) == 2 * product
    assert r.flops("backward", **sizes) == 5 * product
    assert r.flops("forward+backward", **sizes) == 7 * product
    assert r.flops("forward", **sizes, causal=True) == product


def test_what_must_move_is_each_array_once():
    N, d, B, H, H_kv, itemsize = 100, 64, 2, 4, 2, 2
    p = KernelProblem(N, N, d, B=B, H=H, H_kv=H_kv)
    q, k, rows = B * H * N * d * itemsize, B * H_kv * N * d * itemsize, B * H * N * 4
    forward = q + 2 * k + q + rows  # Q, K and V; O, LSE
    backward = (q + 2 * k + q + rows + q) + (q + 2 * k)  # Q, K, V, O, LSE, dO; dQ, dK, dV
    assert r.compulsory_bytes("forward", p, itemsize) == forward
    assert r.compulsory_bytes("backward", p, itemsize) == backward
    assert r.compulsory_bytes("forward+backward", p, itemsize) == forward + backward


@pytest.mark.parametrize("high", [None, 0])
def test_one_tile_moves_what_must_move_and_smaller_tiles_more(high):
    p = KernelProblem(64, 64, 32, high=high, B=1, H=2, H_kv=2)
    whole = ledger_bytes(attention_forward(p, BM=64, BN=64), 2)
    assert whole == r.compulsory_bytes("forward", p, 2)
    moved = [ledger_bytes(attention_forward(p, BM=b, BN=16), 2) for b in (64, 32, 16)]
    assert moved == sorted(moved) and moved[0] < moved[-1]


def test_backward_bytes_of_tiles_written_out():
    N, d = 256, 64
    p = KernelProblem(N, N, d)
    rows = N * 4
    half = N * d * 2
    # O, dO, LSE; LSE / log 2, D and zeros; K, V; by 4 blocks of keys Q, dO, LSE / log 2, D and dQ (float32,
    # read and written); dK, dV.
    before = 2 * half + rows + 2 * rows + N * d * 4
    fused = before + 2 * half + 4 * (2 * half + 2 * rows + 2 * N * d * 4) + 2 * half
    assert ledger_bytes(attention_fused_backward(p, BM=32, BN=64), 2) == fused
    # O, dO, Q, LSE; K, V by 4 blocks; LSE / log 2, D; dQ
    first = 2 * half + half + rows + 4 * 2 * half + 2 * rows + half
    second = 2 * half + 4 * (2 * half + 2 * rows) + 2 * half
    split = attention_split_backward(p, queries=(64, 32), keys=(32, 64))
    assert ledger_bytes(split, 2) == first + second


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_the_roof_rises_to_its_ridge_and_is_flat_after(chip):
    ridge_point = r.ridge_point(chip)
    assert math.isclose(r.attainable_tflops(ridge_point, chip), chip.tensor_tflops)
    assert math.isclose(r.attainable_tflops(ridge_point / 2, chip), chip.tensor_tflops / 2)
    assert r.attainable_tflops(10 * ridge_point, chip) == chip.tensor_tflops
    # FLOP / (bytes / bandwidth), in TFLOP/s
    assert math.isclose(r.attainable_tflops(1.0, chip) * 1e12, chip.gbytes_per_s * 1e9)


def test_rates_have_units():
    assert r.tflops(1e12, 1000.0) == 1.0  # 10¹² FLOP in a second
    assert r.arithmetic_intensity(600.0, 3) == 200


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: r.flops("sideways", B=1, H=1, N=1, d=1),
            "pass_ must be one of forward, backward, .*; got 'sideways'",
        ),
        (lambda: r.compulsory_bytes("", KernelProblem(1, 1, 1), 2), "pass_ must be one of .*; got ''"),
        (lambda: r.arithmetic_intensity(1, 0), "moved must be more than 0 bytes, got 0"),
        (lambda: r.tflops(1, 0.0), "ms must be more than 0 milliseconds, got 0.0"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
