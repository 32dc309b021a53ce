# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

import tensorflow as tf

from hora.process_sets import global_process_set
from hora.reducer import is_needed
from horovod._keras.backends import is_keras2
from horovod.tensorflow.mpi_ops import Sum, allreduce_dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _global_moments(inputs, axes):
    """Mean and variance over the axes and over all ranks, whose batches may differ in size.
    Two reductions: differences from the mean lose no digits, as squares would."""
    axes = [axis % inputs.shape.rank for axis in axes]
    extents = tf.gather(tf.shape(inputs), axes)
    count = tf.cast(tf.reduce_prod(extents), inputs.dtype)
    sums = tf.reduce_sum(inputs, axes)
    packed = tf.concat([tf.reshape(sums, [-1]), tf.reshape(count, [1])], 0)
    packed = allreduce_dense(packed, "sync_batch_norm.mean", Sum)
    total = packed[-1]
    mean = packed[:-1] / total
    shape = [1 if axis in axes else -1 for axis in range(inputs.shape.rank)]
    squares = tf.reduce_sum(tf.square(inputs - tf.reshape(mean, shape)), axes)
    variance = allreduce_dense(tf.reshape(squares, [-1]), "sync_batch_norm.variance", Sum) / total
    return mean, variance


def make_class(keras: Any) -> Any:
    """SyncBatchNormalization for the Keras that TensorFlow has."""
    keras2 = is_keras2(keras)

    class SyncBatchNormalization(keras.layers.BatchNormalization):
        """Keras's BatchNormalization whose mean and variance are those of all ranks' batches
        together. In a world of one, and when it is not training, it is the plain layer."""

        def __init__(self, fused=False, **kwargs):
            if fused is not False:
                raise ValueError("SyncBatchNormalization has no fused kernel: leave fused out, or pass fused=False")
            if keras2:
                kwargs["fused"] = False
            super().__init__(**kwargs)

        if keras2:

            def _calculate_mean_and_var(self, inputs, reduction_axes, keep_dims, mask=None):
                if not is_needed(global_process_set):
                    return super()._calculate_mean_and_var(inputs, reduction_axes, keep_dims, mask)
                _refuse_mask(mask)
                mean, variance = _global_moments(inputs, reduction_axes)
                if keep_dims:
                    axes = [axis % inputs.shape.rank for axis in reduction_axes]
                    shape = [1 if axis in axes else -1 for axis in range(inputs.shape.rank)]
                    mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
                return mean, variance

        else:

            def _moments(self, inputs, mask):
                if not is_needed(global_process_set):
                    return super()._moments(inputs, mask)
                _refuse_mask(mask)
                return _global_moments(inputs, self._reduction_axes)

    return SyncBatchNormalization


def _refuse_mask(mask):
    if mask is not None:
        raise NotImplementedError("SyncBatchNormalization does not take a mask")
