# SPDX-License-Identifier: Apache-2.0
"""The collectives on dense TensorFlow tensors, differentiable, in eager mode and in graphs.

The ranks match their tensors by `name`: pass one, or call in the same order on every rank. In a graph the
default is the tensor's own name. Reductions need the same shape and dtype on all ranks. Eager mode raises
TensorMismatchError if the ranks disagree, UnsupportedError if no backend can run the operation, and
HorovodInternalError if a rank is lost, each of them a TensorFlow error, too (errors.py); a node in a graph fails with
that TensorFlow error, which contains the text. Any thread may call.
"""

from __future__ import annotations

import functools
import os
import re

import tensorflow as tf

from hora import _native, operations
from hora.aligned_arrays import ops
from hora.basics import *  # noqa: F403
from hora.basics import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    check_num_rank_power_of_2,  # noqa: F401
    local_rank,
    local_size,
    rank,
)
from hora.collective_docs import documented
from hora.operations import choose_op, numeric_splits, scatter_op  # noqa: F401
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set, is_process_set_included
from horovod.tensorflow import errors, execution
from horovod.tensorflow.tensors import to_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

try:
    from tensorflow.python.eager.record import should_record_backprop as _recorded
except ImportError:  # another place in another release: then every call is prepared for it

    def _recorded(tensors):
        return True


def _plain(function):
    """The function, which AutoGraph leaves alone; its errors are of TensorFlow's classes, too."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except errors.CONVERTED as error:
            raise errors.in_tensorflow(error) from None

    return tf.autograph.experimental.do_not_convert(call)


def _differentiable(function, tensors):
    """Calls function(*tensors), which returns (results, gradient function), so that gradients
    flow; without the cost of that where no tape records."""
    if tf.executing_eagerly() and not _recorded(tensors):
        return function(*tensors)[0]
    return tf.custom_gradient(function)(*tensors)


def _graph_name(kind, name, tensor, ignore_name_scope=False):
    """The name for the runtime: as given; in a graph unique, made of the tensor's name if none
    is given; None in eager mode, so that the runtime counts."""
    if tf.executing_eagerly():
        return name
    if name is None:
        name = f"Horovod{kind}_" + re.sub(r"[^a-zA-Z0-9_./]", "_", _own_name(tensor))
    name = execution.unique_name(name)
    return name.rsplit("/", 1)[-1] if ignore_name_scope else name


def _own_name(tensor):
    try:
        return tensor.op.name
    except AttributeError:
        return "tensor"


def _sub_name(name, suffix):
    """The name of an operation that belongs to another one. In a graph it is unique: one operation has as many
    gradients as the script asks for."""
    return None if name is None else execution.unique_name(f"{name}_{suffix}")


def place_now(function: Any) -> Any:
    """The value of size(), rank() and similar functions of a set. In a graph of an elastic job it is an
    operation that reads the value when the graph runs, because the graph outlives the ranks with which it was
    built."""
    if tf.executing_eagerly() or os.environ.get("HOROVOD_ELASTIC") != "1":
        return function()
    return _query(function, "HorovodPlace")


def _zip_specs(tensors):
    return [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors]


def _rows_unknown(shape):
    """The shape with any number of rows."""
    if shape.rank is None:
        return shape
    return tf.TensorShape([None]).concatenate(shape[1:])


# --- allreduce -----------------------------------------------------------------------------------

_SELECTING = (Min, Max, Product)


def _raw_allreduce(tensors, name, op, prescale, postscale, process_set, grouped):
    def begin(*arrays):
        yield ops.allreduce(arrays, name, op, prescale, postscale, process_set, grouped=grouped)

    return execution.run(begin, tensors, *_zip_specs(tensors))


def _allreduce_tensors(tensors, name, op, prescale, postscale, process_set, grouped):
    def forward(*inputs):
        outputs = _raw_allreduce(inputs, name, op, prescale, postscale, process_set, grouped)

        def gradient(*upstream):
            grad_name = _sub_name(name, "grad")
            if op in _SELECTING:
                return [
                    _selecting_gradient(
                        dy, x, y, op, prescale, postscale, _sub_name(grad_name, str(index)), process_set
                    )
                    for index, (dy, x, y) in enumerate(zip(upstream, inputs, outputs))
                ]
            return _allreduce_tensors(upstream, grad_name, op, prescale, postscale, process_set, grouped)

        return outputs, gradient

    results = _differentiable(_plain(forward), tensors)
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _selecting_gradient(dy, source, output, op, prescale, postscale, name, process_set):
    """Min and Max pass each gradient to the ranks whose element was chosen (in equal parts),
    Product to every rank, multiplied by the others' elements."""
    (total,) = _allreduce_tensors([dy], name, Sum, 1.0, 1.0, process_set, False)
    scale = tf.cast(prescale * postscale, dy.dtype)
    if op == Product:
        gathered = _allgather_tensors([source[tf.newaxis]], _sub_name(name, "others"), process_set, False)[0]
        gathered = gathered * tf.cast(prescale, dy.dtype)
        others = tf.constant([row for row in range(process_set.size()) if row != process_set.rank()], tf.int32)
        return total * tf.reduce_prod(tf.gather(gathered, others), axis=0) * scale
    chosen = tf.cast(tf.equal(source * scale, output), dy.dtype)
    (ties,) = _allreduce_tensors([chosen], _sub_name(name, "ties"), Sum, 1.0, 1.0, process_set, False)
    return total * chosen / tf.maximum(ties, 1) * scale


@_plain
def allreduce_dense(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of all ranks' dense tensors."""
    tensor = to_tensor(tensor)
    name = _graph_name("Allreduce", name, tensor, ignore_name_scope)
    return _allreduce_tensors([tensor], name, op, prescale_factor, postscale_factor, process_set, False)[0]


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """allreduce_dense() with op=Sum by default, for programs that import this name."""
    return allreduce_dense(tensor, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)


@_plain
def grouped_allreduce_dense(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The reductions of several dense tensors, which run together."""
    tensors = [to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    name = _graph_name("GroupedAllreduce", name, tensors[0], ignore_name_scope)
    return _allreduce_tensors(tensors, name, op, prescale_factor, postscale_factor, process_set, True)


# --- allgather -----------------------------------------------------------------------------------


def _raw_allgather(tensors, name, process_set, grouped):
    def begin(*arrays):
        yield ops.allgather(arrays, name, process_set, grouped=grouped)

    return execution.run(
        begin, tensors, [tensor.dtype for tensor in tensors], [_rows_unknown(tensor.shape) for tensor in tensors]
    )


def _allgather_tensors(tensors, name, process_set, grouped):
    def forward(*inputs):
        outputs = _raw_allgather(inputs, name, process_set, grouped)

        def gradient(*upstream):
            grad_name = _sub_name(name, "grad")
            extents = tf.stack([tf.shape(each)[0] for each in inputs])
            (everywhere,) = _raw_allgather([extents[tf.newaxis]], _sub_name(grad_name, "extents"), process_set, False)
            averaged = _allreduce_tensors(upstream, grad_name, Average, 1.0, 1.0, process_set, grouped)
            starts = tf.reduce_sum(everywhere[: place_now(process_set.rank)], axis=0)
            return [mean[starts[index] : starts[index] + extents[index]] for index, mean in enumerate(averaged)]

        return outputs, gradient

    results = _differentiable(_plain(forward), tensors)
    return list(results) if isinstance(results, (list, tuple)) else [results]


@_plain
@documented
def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the tensors of all ranks along the first dimension, whose extents may differ."""
    tensor = to_tensor(tensor)
    name = _graph_name("Allgather", name, tensor, ignore_name_scope)
    return _allgather_tensors([tensor], name, process_set, False)[0]


@_plain
@documented
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenates each of several tensors of all ranks along the first dimension; returns a list."""
    tensors = [to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    name = _graph_name("GroupedAllgather", name, tensors[0], ignore_name_scope)
    return _allgather_tensors(tensors, name, process_set, True)


# --- broadcast -----------------------------------------------------------------------------------


@_plain
@documented
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the tensor of root_rank on every rank."""
    tensor = to_tensor(tensor)
    name = _graph_name("Broadcast", name, tensor, ignore_name_scope)

    def begin(array):
        yield ops.broadcast((array,), root_rank, name, process_set)

    def forward(source):
        outputs = execution.run(begin, [source], *_zip_specs([source]))

        def gradient(dy):
            (mean,) = _allreduce_tensors([dy], _sub_name(name, "grad"), Average, 1.0, 1.0, process_set, False)
            is_root = tf.equal(place_now(rank), root_rank)
            return tf.where(is_root, mean, tf.zeros_like(mean))

        return outputs[0], gradient

    return _differentiable(_plain(forward), [tensor])


@_plain
def broadcast_many(
    tensors: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's tensors, started together; not differentiable. Named name.0, name.1, ..."""
    tensors = list(tensors)
    if not tensors:
        return []

    def begin(*arrays):
        for index, array in enumerate(arrays):
            yield ops.broadcast((array,), root_rank, f"{name}.{index}", process_set)

    return execution.run(begin, tensors, *_zip_specs(tensors))


# --- alltoall ------------------------------------------------------------------------------------


def _raw_alltoall(tensor, splits, name, process_set):
    def begin(array, split_array):
        yield ops.alltoall(array, numeric_splits(split_array), name, process_set)

    return execution.run(
        begin, [tensor, splits], [tensor.dtype, tf.int32], [_rows_unknown(tensor.shape), tf.TensorShape([None])]
    )


def _alltoall(tensor, splits, name, process_set):
    def forward(source):
        received, received_splits = _raw_alltoall(source, splits, name, process_set)

        def gradient(dy, _):
            returned, _ = _alltoall(dy, received_splits, _sub_name(name, "grad"), process_set)
            unsent = tf.shape(source)[0] - tf.shape(returned)[0]
            padding = tf.zeros(tf.concat([[unsent], tf.shape(returned)[1:]], 0), returned.dtype)
            return tf.concat([returned, padding], 0)

        return (received, received_splits), gradient

    return _differentiable(_plain(forward), [tensor])


@_plain
@documented
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a part of the rows to each rank; returns the rows that the ranks sent here."""
    tensor = to_tensor(tensor)
    name = _graph_name("Alltoall", name, tensor, ignore_name_scope)
    if splits is not None:
        return _alltoall(tensor, tf.cast(splits, tf.int32), name, process_set)
    operations.set_id_of(process_set)  # raises
    members = place_now(process_set.size)
    if isinstance(members, int) and tensor.shape.rank and tensor.shape[0] is not None and tensor.shape[0] % members:
        raise ValueError(
            f"alltoall without splits: the first dimension of the shape {tensor.shape} must be a multiple of {members}"
        )
    if tensor.shape.rank == 0:
        raise ValueError("alltoall of a scalar: it has no first dimension to split; reshape it to one element")
    even = tf.fill([members], tf.shape(tensor)[0] // members)
    return _alltoall(tensor, even, name, process_set)[0]


# --- reducescatter ---------------------------------------------------------------------------------


def _reducescatter_tensors(tensors, name, op, prescale, postscale, process_set, grouped):
    def begin(*arrays):
        yield ops.reducescatter(arrays, name, op, prescale, postscale, process_set, grouped=grouped)

    def forward(*inputs):
        outputs = execution.run(
            begin, inputs, [each.dtype for each in inputs], [_rows_unknown(each.shape) for each in inputs]
        )

        def gradient(*upstream):
            copies = place_now(process_set.size) if op == Sum else 1
            gathered = _allgather_tensors(upstream, _sub_name(name, "grad"), process_set, grouped)
            return [each * tf.cast(prescale * postscale, each.dtype) * tf.cast(copies, each.dtype) for each in gathered]

        return outputs, gradient

    results = _differentiable(_plain(forward), tensors)
    return list(results) if isinstance(results, (list, tuple)) else [results]


@_plain
def reducescatter_dense(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction."""
    tensor = to_tensor(tensor)
    name = _graph_name("Reducescatter", name, tensor, ignore_name_scope)
    return _reducescatter_tensors(
        [tensor], name, scatter_op(op), prescale_factor, postscale_factor, process_set, False
    )[0]


@_plain
def grouped_reducescatter_dense(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """This rank's rows of the reductions of several dense tensors, which run together."""
    tensors = [to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    name = _graph_name("GroupedReducescatter", name, tensors[0])
    return _reducescatter_tensors(tensors, name, scatter_op(op), prescale_factor, postscale_factor, process_set, True)


# --- join and questions, answered when the node runs -------------------------------------------------


def _query(function, name):
    """A scalar int32 that is read when the graph runs, not when it is built, because an elastic job may
    change in between."""
    if tf.executing_eagerly():
        return tf.constant(function(), tf.int32)
    import numpy as np

    result = tf.numpy_function(_plain(lambda: np.int32(function())), [], tf.int32, name=name)
    result.set_shape([])
    return result


def join() -> int:
    """Declares that this rank has no more data, and waits for the others.

    Until every rank of the job has joined, this one takes part in their reductions with zeros. Returns the rank that
    joined last. Blocks until all have joined, without a time limit. Raises HorovodInternalError if a rank is lost,
    and NotInitializedError before init(). In a graph it is an operation that does this when it runs.
    """
    return _query(lambda: operations.join(global_process_set), "HorovodJoin")


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks of the process set, at run time."""

    def members():
        value = _native.library().process_set_size(process_set_id)
        if value < 0:
            raise ValueError(f"there is no process set with the id {process_set_id}")
        return value

    return _query(members, name or "HorovodSize")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 where this process is a member of the set, else 0; at run time."""
    return _query(lambda: int(is_process_set_included(process_set_id)), name or "HorovodProcessSetIncluded")


def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, at run time."""
    return _query(local_size, name or "HorovodLocalSize")


def rank_op(name: str | None = None) -> Any:
    """This process's rank, at run time."""
    return _query(rank, name or "HorovodRank")


def local_rank_op(name: str | None = None) -> Any:
    """This process's rank on its host, at run time."""
    return _query(local_rank, name or "HorovodLocalRank")
