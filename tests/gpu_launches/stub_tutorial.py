"""Stub of a copy of Triton's tutorial 06: the functions that the benchmark uses, without a kernel."""

import torch


class _attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale, warp_specialize=True):
        return torch.ones_like(q)

    @staticmethod
    def backward(ctx, do):
        return do, do, do, None, None, None


attention = _attention.apply
