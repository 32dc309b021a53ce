# SPDX-License-Identifier: Apache-2.0
"""The collectives on NumPy arrays: `import hora.numpy as hvd`.

Contiguous arrays are read and written where they are; others are copied. A trailing underscore
means in place; _async returns a handle for poll() and synchronize(). The ranks match their arrays
by `name`: pass one, or call in the same order on every rank.

Reductions need the same shape and dtype on all ranks; dtypes are uint8 int8 int16 uint16 int32
int64 float16 float32 float64 bool, bfloat16 if ml_dtypes brings it, and complex ones for Average and
Sum. Any dtype without objects can be copied. Any thread may call. Raises
TensorMismatchError if the ranks disagree, UnsupportedError if no backend can run the operation,
and HorovodInternalError if a rank is lost.
"""

from __future__ import annotations

from hora import operations
from hora.basics import *  # noqa: F403
from hora.basics import Average
from hora.exceptions import HorovodInternalError  # noqa: F401
from hora.numpy_arrays import NumpyFramework
from hora.objects import allgather_object, broadcast_object  # noqa: F401
from hora.operations import choose_op, new_handle, numeric_splits, wait_now
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set
from hora.tensor_ops import TensorOps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_ops = TensorOps(NumpyFramework())


# --- allreduce -----------------------------------------------------------------------------


def allreduce_async(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts a reduction over the ranks; the result is a new array."""
    return new_handle(
        _ops.allreduce(
            (tensor,),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            priority=priority,
        )
    )


def allreduce_async_(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts a reduction over the ranks into the array itself."""
    return new_handle(
        _ops.allreduce(
            (tensor,),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
            priority=priority,
        )
    )


def allreduce(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """The reduction of all ranks' arrays: Average, Sum, Min, Max, Product or Adasum."""
    if not priority:
        return _ops.allreduce_now(tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return wait_now(
        _ops.allreduce(
            (tensor,),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            priority=priority,
        )
    )


def allreduce_(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """Reduces into the array itself, and returns it."""
    if not priority:
        return _ops.allreduce_now(
            tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set, in_place=True
        )
    return wait_now(
        _ops.allreduce(
            (tensor,),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
            priority=priority,
        )
    )


def grouped_allreduce_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts reductions that run together or not at all; the result is a list."""
    return new_handle(
        _ops.allreduce(
            tensors,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            grouped=True,
            priority=priority,
        )
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> list[Any]:
    """The reductions of several arrays, which run together; a list."""
    return wait_now(
        _ops.allreduce(
            tensors,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            grouped=True,
            priority=priority,
        )
    )


def grouped_allreduce_(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> list[Any]:
    """Reduces several arrays in place; they run together."""
    return wait_now(
        _ops.allreduce(
            tensors,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
            grouped=True,
            priority=priority,
        )
    )


# --- allgather, broadcast, alltoall, reducescatter -------------------------------------------


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
) -> int:
    """Starts the concatenation of all ranks' arrays along their first dimension."""
    return new_handle(_ops.allgather((tensor,), name, process_set, priority=priority))


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
) -> Any:
    """All ranks' arrays, concatenated along the first dimension, which may differ."""
    return wait_now(_ops.allgather((tensor,), name, process_set, priority=priority))


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    return new_handle(_ops.allgather(tensors, name, process_set, grouped=True, priority=priority))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> list[Any]:
    """The concatenations of several arrays, which run together; a list."""
    return wait_now(_ops.allgather(tensors, name, process_set, grouped=True, priority=priority))


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts a copy of the array of root_rank (a rank of the whole job)."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))


def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """The array of root_rank (a rank of the whole job), on every rank of the set."""
    if not priority:
        return _ops.broadcast_now(tensor, root_rank, name, process_set)
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """Writes the array of root_rank into the arrays of all ranks."""
    if not priority:
        return _ops.broadcast_now(tensor, root_rank, name, process_set, in_place=True)
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts to send splits[i] rows to rank i of the set (equal parts without splits). The sum of
    splits is at most the first dimension."""
    return new_handle(_ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """The rows that the other ranks sent to this one; with splits, a pair of that and the
    number of rows received from each."""
    return wait_now(_ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> int:
    """Starts a reduction that gives every rank its part of the rows."""
    return new_handle(
        _ops.reducescatter((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> Any:
    """This rank's rows of the reduction."""
    return wait_now(
        _ops.reducescatter((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> int:
    return new_handle(
        _ops.reducescatter(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> list[Any]:
    """reducescatter of several arrays, which run together; a list."""
    return wait_now(
        _ops.reducescatter(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )


# --- handles, join, barrier --------------------------------------------------------------------


def poll(handle: int) -> bool:
    """True if the operation is done, so that synchronize() does not wait."""
    return operations.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result; None for a handle not in flight."""
    return operations.synchronize(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank of the set has called it."""
    operations.barrier(process_set)


def join() -> int:
    """Takes part in the others' reductions with zeros until every rank has joined; returns
    the rank that joined last."""
    return operations.join(global_process_set)
