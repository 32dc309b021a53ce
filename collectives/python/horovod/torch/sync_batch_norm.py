# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.torch.mpi_ops import Sum, allgather_async, allreduce_async, size, synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose mean and variance are those of all ranks' batches together. Batches may
    differ in size. Works on CPU and GPU tensors; in evaluation, and in a world of one, it is the
    plain layer."""

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm expects at least 2 dimensions, not {input.dim()}")

    def forward(self, input: Any) -> Any:
        """Normalizes with the statistics of all ranks' batches in training. Collective then; the batches may differ
        in size."""
        self._check_input_dim(input)
        if not self.training or size() == 1:
            return super().forward(input)
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            with torch.no_grad():
                momentum = self.momentum
                if momentum is None:  # cumulative average
                    momentum = 1.0 / float(self.num_batches_tracked)
                unbiased = variance * (count / (count - 1).clamp(min=1))
                for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
                    # Where all batches are empty, the statistics stay.
                    running.lerp_(torch.where(count > 0, value.to(running.dtype), running), momentum)
        return output


def _per_channel(vector, tensor):
    return vector.view(1, -1, *[1] * (tensor.dim() - 2))


def _statistics_dtype(dtype):
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        dtype = _statistics_dtype(input.dtype)
        values = input.to(dtype)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        local_count = input.numel() // max(input.shape[1], 1)
        if local_count:
            local_mean = values.mean(dim=axes)
            local_square = ((values - _per_channel(local_mean, values)) ** 2).sum(dim=axes)
        else:
            local_mean = values.new_zeros(input.shape[1])
            local_square = values.new_zeros(input.shape[1])
        # Means and sums of squared differences combine without the loss of digits that sums of
        # squares have.
        count_handle = allgather_async(values.new_tensor([float(local_count)]), "sync_batch_norm.count")
        mean_handle = allgather_async(local_mean.unsqueeze(0), "sync_batch_norm.mean")
        square_handle = allgather_async(local_square.unsqueeze(0), "sync_batch_norm.square")
        counts = synchronize(count_handle).unsqueeze(1)
        means, squares = synchronize(mean_handle), synchronize(square_handle)
        count = counts.sum()
        mean = (means * counts).sum(dim=0) / count
        variance = (squares + counts * (means - mean) ** 2).sum(dim=0) / count
        inverse = torch.rsqrt(variance + eps)
        normal = (values - _per_channel(mean, values)) * _per_channel(inverse, values)
        output = normal
        if weight is not None:
            output = normal * _per_channel(weight.to(dtype), values)
        if bias is not None:
            output = output + _per_channel(bias.to(dtype), values)
        ctx.save_for_backward(normal, inverse, weight, count)
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    @once_differentiable  # the sums over the ranks below are not recorded
    def backward(ctx, gradient, *_):
        normal, inverse, weight, count = ctx.saved_tensors
        axes = [axis for axis in range(normal.dim()) if axis != 1]
        wide = gradient.to(normal.dtype)
        sum_gradient = wide.sum(dim=axes)
        sum_product = (wide * normal).sum(dim=axes)
        grad_weight = sum_product.to(weight.dtype) if weight is not None else None
        # Not of the gradient's own type: a sum over a batch may be too large for float16.
        grad_bias = None if ctx.bias_dtype is None else sum_gradient.to(ctx.bias_dtype)
        grad_input = None
        if ctx.needs_input_grad[0]:
            first = allreduce_async(sum_gradient, op=Sum, name="sync_batch_norm.sum_dy")
            second = allreduce_async(sum_product, op=Sum, name="sync_batch_norm.sum_dy_xmu")
            mean_gradient = synchronize(first) / count
            mean_product = synchronize(second) / count
            grad_input = wide - _per_channel(mean_gradient, wide)
            grad_input = grad_input - normal * _per_channel(mean_product, wide)
            scale = inverse if weight is None else inverse * weight.to(inverse.dtype)
            grad_input = (grad_input * _per_channel(scale, wide)).to(gradient.dtype)
        return grad_input, grad_weight, grad_bias, None
