# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors that return a handle at once. They take no part in autograd.

horovod.torch.mpi_ops, which offers them, says what holds for all collectives.
"""

from __future__ import annotations

import torch

from hora.basics import Average
from hora.collective_docs import documented
from hora.operations import choose_op, new_handle, numeric_splits, poll, scatter_op, synchronize  # noqa: F401
from hora.process_sets import ProcessSet, global_process_set
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


@documented
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce a tensor over the ranks; the result is a new tensor."""
    op = choose_op(op, average)
    return new_handle(_ops.allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set))


@documented
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce a tensor over the ranks into itself."""
    op = choose_op(op, average)
    return new_handle(
        _ops.allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True)
    )


@documented
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce several tensors over the ranks together; the result is a list."""
    op = choose_op(op, average)
    return new_handle(_ops.allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True))


@documented
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce several tensors over the ranks together, each into itself."""
    op = choose_op(op, average)
    return new_handle(
        _ops.allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set, in_place=True, grouped=True)
    )


@documented
def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts to concatenate the tensors of all ranks along the first dimension, whose extents may differ."""
    return new_handle(_ops.allgather((tensor,), name, process_set))


@documented
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to concatenate each of several tensors of all ranks; the result is a list."""
    return new_handle(_ops.allgather(tensors, name, process_set, grouped=True))


@documented
def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to copy the tensor of root_rank into a new tensor on every rank."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set))


@documented
def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to write the tensor of root_rank into that of every rank."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True))


@documented
def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to send a part of the rows to each rank; the result is the rows that the ranks sent here."""
    return new_handle(_ops.alltoall(tensor, numeric_splits(splits), name, process_set))


@documented
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts to reduce a tensor over the ranks; the result is this rank's part of the rows."""
    return new_handle(
        _ops.reducescatter((tensor,), name, scatter_op(op), prescale_factor, postscale_factor, process_set)
    )


@documented
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts reducescatter() of several tensors together; the result is a list."""
    return new_handle(
        _ops.reducescatter(tensors, name, scatter_op(op), prescale_factor, postscale_factor, process_set, grouped=True)
    )
