"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ._allreduce import allreduce_
from ._collectives import allgather
from ._job import size
from ._reductions import Sum

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Works like torch's BatchNorm1d, 2d and 3d, with mean and variance over the batches of all ranks, which may differ
    in size.

    Shape: [N, C, ...].
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes tensors of two dimensions or more, not of {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        uses_batch = self.training or not self.track_running_stats
        if not uses_batch or size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._track(mean, variance * (count / (count - 1)))
        return output

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        weight = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, now in ((self.running_mean, mean), (self.running_var, unbiased_variance)):
            assert running is not None
            running.lerp_(now.to(running.dtype), weight)


def _by_channel(tensor: Tensor, like: Tensor) -> Tensor:
    """Reshapes [C] to [1, C, 1, ...], with the type and dimensions of `like`."""
    return tensor.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _wide(tensor: Tensor) -> Tensor:
    """Returns the tensor with the precision of float32 or more, which mean and scale need."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


class _Normalize(torch.autograd.Function):
    """Returns the output, and per channel mean, (biased) variance and number of elements over all ranks."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        axes = [axis for axis in range(input.dim()) if axis != 1]
        count = input.numel() // max(1, input.shape[1])
        here = torch.zeros((1, 3, input.shape[1]), dtype=torch.float64, device=input.device)
        if count > 0:
            here[0, 0] = count
            here[0, 2], here[0, 1] = torch.var_mean(input.double(), axes, correction=0)
        counts, means, variances = allgather(here, name="sync_batch_norm").unbind(1)
        total = counts.sum(0)
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(input, weight, mean, scale)
        ctx.axes, ctx.total = axes, total
        wide = _wide(input)
        output = (wide - _by_channel(mean, wide)) * _by_channel(scale, wide)
        if weight is not None:
            output = output * _by_channel(weight, wide)
        if bias is not None:
            output = output + _by_channel(bias, wide)
        ctx.mark_non_differentiable(mean, variance, total)
        return output.to(input.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
        input, weight, mean, scale = ctx.saved_tensors
        wide, gradient = _wide(input), _wide(gradient)
        centered = (wide - _by_channel(mean, wide)) * _by_channel(scale, wide)
        sums = torch.stack([gradient.double().sum(ctx.axes), (gradient * centered).double().sum(ctx.axes)])
        # These are sums over the samples of this rank only, because an optimizer averages gradients.
        of_bias, of_weight = sums.to((input if weight is None else weight).dtype, copy=True)
        by_input = None
        if ctx.needs_input_grad[0]:
            allreduce_(sums, name="sync_batch_norm.backward", op=Sum)
            shift, slope = sums / ctx.total
            by_input = gradient - _by_channel(shift, wide) - centered * _by_channel(slope, wide)
            by_input = by_input * _by_channel(scale if weight is None else scale * weight, wide)
            by_input = by_input.to(input.dtype)
        return (
            by_input,
            of_weight if weight is not None and ctx.needs_input_grad[1] else None,
            of_bias if ctx.needs_input_grad[2] else None,
            None,
        )
