# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors that return a handle at once. They take no part in autograd.

horovod.torch.mpi_ops, which offers them, says what holds for all collectives.
"""

from __future__ import annotations

import torch

from hora import operations
from hora.basics import Average
from hora.operations import choose_op, new_handle, numeric_splits, scatter_op
from hora.process_sets import ProcessSet, global_process_set
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def poll(handle: int) -> bool:
    """True if the operation is done, so that synchronize() does not wait."""
    return operations.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result. None for a handle that is not in flight;
    HorovodInternalError when the operation failed."""
    return operations.synchronize(handle)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a reduction over the ranks; the result is a new tensor."""
    return new_handle(
        _ops.allreduce((tensor,), name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a reduction over the ranks into the tensor itself."""
    return new_handle(
        _ops.allreduce(
            (tensor,), name, choose_op(op, average), prescale_factor, postscale_factor, process_set, in_place=True
        )
    )


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts reductions that run together or not at all; the result is a list."""
    return new_handle(
        _ops.allreduce(
            tensors, name, choose_op(op, average), prescale_factor, postscale_factor, process_set, grouped=True
        )
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    return new_handle(
        _ops.allreduce(
            tensors,
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
            grouped=True,
        )
    )


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts the concatenation of all ranks' tensors along their first dimension, which may
    differ."""
    return new_handle(_ops.allgather((tensor,), name, process_set))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    return new_handle(_ops.allgather(tensors, name, process_set, grouped=True))


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a copy of the tensor of root_rank (a rank of the whole job) into a new tensor."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True))


def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to send splits[i] rows to rank i of the set (equal parts without splits)."""
    return new_handle(_ops.alltoall(tensor, numeric_splits(splits), name, process_set))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reduction of which every rank gets its part of the rows."""
    return new_handle(
        _ops.reducescatter((tensor,), name, scatter_op(op), prescale_factor, postscale_factor, process_set)
    )


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    return new_handle(
        _ops.reducescatter(tensors, name, scatter_op(op), prescale_factor, postscale_factor, process_set, grouped=True)
    )
