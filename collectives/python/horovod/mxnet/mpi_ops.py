# SPDX-License-Identifier: Apache-2.0
"""The collectives on NDArrays.

They wait for their results. A trailing underscore works in place. `name` is how the ranks match
their arrays: give one, or call in the same order on every rank.
"""

from __future__ import annotations

from hora import _native
from hora.basics import *  # noqa: F403
from hora.basics import Average
from hora.collective_docs import documented
from hora.operations import choose_op, numeric_splits, scatter_op, wait_now
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set
from horovod.mxnet.tensors import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _checked(op, average):
    op = choose_op(op, average)
    if op == _native.ADASUM:
        raise AssertionError("op=Adasum is not supported for MXNet")
    return op


def _back(result, tensor):
    """The result on the device of the array that it belongs to."""
    return result if result.context == tensor.context else result.as_in_context(tensor.context)


def _back_all(results, tensors):
    return [_back(result, tensor) for result, tensor in zip(results, tensors)]


@documented
def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces an array over the ranks, with Average, Sum, Min, Max or Product."""
    op = _checked(op, average)
    pending = ops.allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    return _back(wait_now(pending), tensor)


@documented
def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces an array over the ranks into itself, and returns it."""
    op = _checked(op, average)
    pending = ops.allreduce(
        (tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True, priority=priority
    )
    return _back(wait_now(pending), tensor)


@documented
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """Reduces several arrays over the ranks together; returns a list."""
    if not tensors:
        return []
    tensors = list(tensors)
    op = _checked(op, average)
    pending = ops.allreduce(
        tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
    )
    return _back_all(wait_now(pending), tensors)


@documented
def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """Reduces several arrays over the ranks together, each into itself; returns a list."""
    if not tensors:
        return []
    tensors = list(tensors)
    op = _checked(op, average)
    pending = ops.allreduce(
        tensors,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
        grouped=True,
        priority=priority,
    )
    return _back_all(wait_now(pending), tensors)


@documented
def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the arrays of all ranks along the first dimension, whose extents may differ."""
    return _back(wait_now(ops.allgather((tensor,), name, process_set, priority=priority)), tensor)


@documented
def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Concatenates each of several arrays of all ranks along the first dimension; returns a list."""
    if not tensors:
        return []
    pending = ops.allgather(tensors, name, process_set, grouped=True, priority=priority)
    return _back_all(wait_now(pending), tensors)


@documented
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the array of root_rank on every rank."""
    return _back(wait_now(ops.broadcast((tensor,), root_rank, name, process_set, priority=priority)), tensor)


@documented
def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Writes the array of root_rank into that of every rank, and returns it."""
    return wait_now(ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))


def broadcast_many_(
    tensors: Sequence[Any], root_rank: int, names: Sequence[str], process_set: ProcessSet = global_process_set
) -> None:
    """broadcast_() of several arrays, all in flight at once."""
    from hora import batches

    def begin():
        for tensor, name in zip(tensors, names):
            yield ops.broadcast((tensor,), root_rank, name, process_set, in_place=True)

    batches.run(begin)


@documented
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a part of the rows to each rank; returns the rows that the ranks sent here."""
    if splits is not None and hasattr(splits, "asnumpy"):
        splits = splits.asnumpy()
    result = wait_now(ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority=priority))
    if splits is None:
        return _back(result, tensor)
    return _back(result[0], tensor), result[1]


@documented
def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces an array over the ranks, with Average or Sum; returns this rank's part of the rows."""
    op = scatter_op(op)
    pending = ops.reducescatter((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    return _back(wait_now(pending), tensor)


@documented
def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter() of several arrays together; returns a list."""
    if not tensors:
        return []
    op = scatter_op(op)
    pending = ops.reducescatter(
        tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
    )
    return _back_all(wait_now(pending), tensors)
