# SPDX-License-Identifier: Apache-2.0
"""The collectives as functions on the arrays of one framework: what NumPy and the others share."""

from __future__ import annotations

from hora import _native, operations
from hora.operations import choose_op, new_handle, numeric_splits, wait_now
from hora.process_sets import global_process_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hora.process_sets import ProcessSet

_AVERAGE = _native.AVERAGE


class ArrayFace:
    """The functions, as methods. A trailing underscore means in place; _async returns a handle for
    poll() and synchronize(). The ranks match their arrays by `name`: pass one, or call in the
    same order on every rank.

    Reductions need the same shape and dtype on all ranks; dtypes are uint8 int8 int16 uint16 int32
    int64 float16 bfloat16 float32 float64 bool, as far as the framework has them. Any thread may call.
    Raises TensorMismatchError if the ranks disagree, UnsupportedError if no backend can run the
    operation, and HorovodInternalError if a rank is lost."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops

    # --- allreduce -----------------------------------------------------------------------------

    def allreduce_async(
        self,
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
            self._ops.allreduce(
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
        self,
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
            self._ops.allreduce(
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
        self,
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
            return self._ops.allreduce_now(
                tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set
            )
        return wait_now(
            self._ops.allreduce(
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
        self,
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
            return self._ops.allreduce_now(
                tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set, in_place=True
            )
        return wait_now(
            self._ops.allreduce(
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
        self,
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
            self._ops.allreduce(
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
        self,
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
            self._ops.allreduce(
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
        self,
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
            self._ops.allreduce(
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
        self, tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
    ) -> int:
        """Starts the concatenation of all ranks' arrays along their first dimension."""
        return new_handle(self._ops.allgather((tensor,), name, process_set, priority=priority))

    def allgather(
        self, tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, priority: int = 0
    ) -> Any:
        """All ranks' arrays, concatenated along the first dimension, which may differ."""
        return wait_now(self._ops.allgather((tensor,), name, process_set, priority=priority))

    def grouped_allgather_async(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> int:
        return new_handle(self._ops.allgather(tensors, name, process_set, grouped=True, priority=priority))

    def grouped_allgather(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> list[Any]:
        """The concatenations of several arrays, which run together; a list."""
        return wait_now(self._ops.allgather(tensors, name, process_set, grouped=True, priority=priority))

    def broadcast_async(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> int:
        """Starts a copy of the array of root_rank (a rank of the whole job)."""
        return new_handle(self._ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))

    def broadcast_async_(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> int:
        return new_handle(
            self._ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority)
        )

    def broadcast(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> Any:
        """The array of root_rank (a rank of the whole job), on every rank of the set."""
        return wait_now(self._ops.broadcast((tensor,), root_rank, name, process_set, priority=priority))

    def broadcast_(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> Any:
        """Writes the array of root_rank into the arrays of all ranks."""
        return wait_now(self._ops.broadcast((tensor,), root_rank, name, process_set, in_place=True, priority=priority))

    def alltoall_async(
        self,
        tensor: Any,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> int:
        """Starts to send splits[i] rows to rank i of the set (equal parts without splits). The sum of
        splits is at most the first dimension."""
        return new_handle(self._ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))

    def alltoall(
        self,
        tensor: Any,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        priority: int = 0,
    ) -> Any:
        """The rows that the other ranks sent to this one; with splits, a pair of that and the
        number of rows received from each."""
        return wait_now(self._ops.alltoall(tensor, numeric_splits(splits), name, process_set, priority))

    def reducescatter_async(
        self,
        tensor: Any,
        name: str | None = None,
        op: int = _AVERAGE,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        priority: int = 0,
    ) -> int:
        """Starts a reduction that gives every rank its part of the rows."""
        return new_handle(
            self._ops.reducescatter(
                (tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority
            )
        )

    def reducescatter(
        self,
        tensor: Any,
        name: str | None = None,
        op: int = _AVERAGE,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        priority: int = 0,
    ) -> Any:
        """This rank's rows of the reduction."""
        return wait_now(
            self._ops.reducescatter(
                (tensor,), name, op, prescale_factor, postscale_factor, process_set, priority=priority
            )
        )

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        op: int = _AVERAGE,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        priority: int = 0,
    ) -> int:
        return new_handle(
            self._ops.reducescatter(
                tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
            )
        )

    def grouped_reducescatter(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        op: int = _AVERAGE,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        priority: int = 0,
    ) -> list[Any]:
        """reducescatter of several arrays, which run together; a list."""
        return wait_now(
            self._ops.reducescatter(
                tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True, priority=priority
            )
        )

    # --- handles, join, barrier --------------------------------------------------------------------

    @staticmethod
    def poll(handle: int) -> bool:
        """True if the operation is done, so that synchronize() does not wait."""
        return operations.poll(handle)

    @staticmethod
    def synchronize(handle: int) -> Any:
        """Waits for an operation and returns its result; None for a handle not in flight."""
        return operations.synchronize(handle)

    @staticmethod
    def barrier(process_set: ProcessSet = global_process_set) -> None:
        """Blocks until every rank of the set has called it."""
        operations.barrier(process_set)

    @staticmethod
    def join() -> int:
        """Takes part in the others' reductions with zeros until every rank has joined; returns
        the rank that joined last."""
        return operations.join(global_process_set)
