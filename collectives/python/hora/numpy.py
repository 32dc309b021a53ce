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

from hora.basics import *  # noqa: F403
from hora.basics import Average
from hora.collective_docs import documented
from hora.control import barrier, join  # noqa: F401
from hora.exceptions import HorovodInternalError  # noqa: F401
from hora.numpy_arrays import NumpyFramework
from hora.objects import allgather_object, broadcast_object  # noqa: F401
from hora.operations import choose_op, new_handle, numeric_splits, poll, synchronize, wait_now  # noqa: F401
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set
from hora.tensor_ops import TensorOps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_ops = TensorOps(NumpyFramework())


# --- allreduce -----------------------------------------------------------------------------


@documented
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
    """Starts to reduce an array over the ranks; the result is a new array."""
    op = choose_op(op, average)
    return new_handle(
        _ops.allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


@documented
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
    """Starts to reduce an array over the ranks into itself."""
    op = choose_op(op, average)
    return new_handle(
        _ops.allreduce(
            (tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True, priority=priority
        )
    )


@documented
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
    """Reduces an array over the ranks, with Average, Sum, Min, Max, Product or Adasum."""
    op = choose_op(op, average)
    if not priority:
        return _ops.allreduce_now(tensor, name, op, prescale_factor, postscale_factor, process_set)
    return wait_now(
        _ops.allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


@documented
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
    """Reduces an array over the ranks into itself, and returns it."""
    op = choose_op(op, average)
    if not priority:
        return _ops.allreduce_now(tensor, name, op, prescale_factor, postscale_factor, process_set, in_place=True)
    return wait_now(
        _ops.allreduce(
            (tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True, priority=priority
        )
    )


@documented
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
    """Starts to reduce several arrays over the ranks together; the result is a list."""
    op = choose_op(op, average)
    return new_handle(
        _ops.allreduce(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )


@documented
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
    """Reduces several arrays over the ranks together; returns a list."""
    op = choose_op(op, average)
    return wait_now(
        _ops.allreduce(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )


@documented
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
    """Reduces several arrays over the ranks together, each into itself; returns a list."""
    op = choose_op(op, average)
    return wait_now(
        _ops.allreduce(
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
    )


# --- allgather, broadcast, alltoall, reducescatter -------------------------------------------


@documented
def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
) -> int:
    """Starts to concatenate the arrays of all ranks along the first dimension, whose extents may differ."""
    return new_handle(_ops.allgather((tensor,), name, process_set, priority=priority))


@documented
def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
) -> Any:
    """Concatenates the arrays of all ranks along the first dimension, whose extents may differ."""
    return wait_now(_ops.allgather((tensor,), name, process_set, priority=priority))


@documented
def grouped_allgather_async(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts to concatenate each of several arrays of all ranks; the result is a list."""
    return new_handle(_ops.allgather(tensors, name, process_set, grouped=True, priority=priority))


@documented
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> list[Any]:
    """Concatenates each of several arrays of all ranks along the first dimension; returns a list."""
    return wait_now(_ops.allgather(tensors, name, process_set, grouped=True, priority=priority))


@documented
def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts to copy the array of root_rank into a new array on every rank."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))


@documented
def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts to write the array of root_rank into that of every rank."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))


@documented
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """Returns the array of root_rank on every rank."""
    if not priority:
        return _ops.broadcast_now(tensor, root_rank, name, process_set)
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))


@documented
def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """Writes the array of root_rank into that of every rank, and returns it."""
    if not priority:
        return _ops.broadcast_now(tensor, root_rank, name, process_set, in_place=True)
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))


@documented
def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> int:
    """Starts to send a part of the rows to each rank; the result is the rows that the ranks sent here."""
    return new_handle(_ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))


@documented
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
) -> Any:
    """Sends a part of the rows to each rank; returns the rows that the ranks sent here."""
    return wait_now(_ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))


@documented
def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> int:
    """Starts to reduce an array over the ranks; the result is this rank's part of the rows."""
    return new_handle(
        _ops.reducescatter((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


@documented
def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> Any:
    """Reduces an array over the ranks, with Average or Sum; returns this rank's part of the rows."""
    return wait_now(
        _ops.reducescatter((tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority)
    )


@documented
def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> int:
    """Starts reducescatter() of several arrays together; the result is a list."""
    return new_handle(
        _ops.reducescatter(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )


@documented
def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int = 0,
) -> list[Any]:
    """reducescatter() of several arrays together; returns a list."""
    return wait_now(
        _ops.reducescatter(
            tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
        )
    )
