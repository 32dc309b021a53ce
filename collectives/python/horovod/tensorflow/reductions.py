# SPDX-License-Identifier: Apache-2.0
"""The reductions as scripts call them: with compression, and for sparse tensors."""

from __future__ import annotations

import tensorflow as tf

from hora.collective_docs import documented
from hora.compression import checked
from hora.operations import choose_op
from hora.process_sets import global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average, Sum
from horovod.tensorflow.tensors import to_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hora.process_sets import ProcessSet


def _sparse_allreduce(slices, op, name, process_set, prescale, postscale):
    """Rows are concatenated, not added up: applying them adds them up."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            "sparse tensors (IndexedSlices) can be reduced with Average and Sum only; make them dense for others"
        )
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("prescale_factor and postscale_factor do not apply to sparse tensors (IndexedSlices)")
    values = mpi_ops.allgather(slices.values, name and f"{name}.values", process_set=process_set)
    indices = mpi_ops.allgather(slices.indices, name and f"{name}.indices", process_set=process_set)
    if op == Average:
        values = values / tf.cast(mpi_ops.place_now(process_set.size), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@documented
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over the ranks, with Average, Sum, Min, Max, Product or Adasum. Of tf.IndexedSlices
    (Average and Sum) it concatenates the rows and indices of all ranks."""
    op = choose_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        with tf.device(device_sparse or None):
            return _sparse_allreduce(tensor, op, name, process_set, prescale_factor, postscale_factor)
    with tf.device(device_dense or None):
        wire, context = checked(compression).compress(to_tensor(tensor))
        reduced = mpi_ops.allreduce_dense(
            wire, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(reduced, context)


@documented
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduces several tensors over the ranks together; returns a list. tf.IndexedSlices among them
    are reduced one by one, as by allreduce()."""
    op = choose_op(op, average)
    tensors = list(tensors)
    results = [None] * len(tensors)
    dense = []
    for index, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            with tf.device(device_sparse or None):
                results[index] = _sparse_allreduce(
                    tensor, op, name and f"{name}.{index}", process_set, prescale_factor, postscale_factor
                )
        else:
            dense.append(index)
    if dense:
        with tf.device(device_dense or None):
            compressed = [checked(compression).compress(to_tensor(tensors[index])) for index in dense]
            reduced = mpi_ops.grouped_allreduce_dense(
                [wire for wire, _ in compressed],
                name,
                op,
                prescale_factor,
                postscale_factor,
                ignore_name_scope,
                process_set,
            )
            for index, wire, (_, context) in zip(dense, reduced, compressed):
                results[index] = compression.decompress(wire, context)
    return results


@documented
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor over the ranks, with Average or Sum; returns this rank's part of the rows. Not of
    tf.IndexedSlices: NotImplementedError."""
    if isinstance(tensor, tf.IndexedSlices):
        raise NotImplementedError("reducescatter of sparse tensors (IndexedSlices): make them dense first")
    with tf.device(device_dense or None):
        wire, context = checked(compression).compress(to_tensor(tensor))
        reduced = mpi_ops.reducescatter_dense(
            wire, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced, context)


@documented
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """reducescatter() of several tensors together; returns a list."""
    tensors = list(tensors)
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise NotImplementedError("grouped_reducescatter of sparse tensors (IndexedSlices): make them dense first")
    with tf.device(device_dense or None):
        compressed = [checked(compression).compress(to_tensor(tensor)) for tensor in tensors]
        reduced = mpi_ops.grouped_reducescatter_dense(
            [wire for wire, _ in compressed], name, op, process_set, prescale_factor, postscale_factor
        )
        return [compression.decompress(wire, context) for wire, (_, context) in zip(reduced, compressed)]
