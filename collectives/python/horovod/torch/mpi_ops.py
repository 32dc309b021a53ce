# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors.

A trailing underscore means in place; _async returns a handle for poll() and synchronize(). The
other functions wait, and take part in autograd. The ranks match their tensors by `name`: pass one,
or call in the same order on every rank.

Reductions need the same shape and dtype on all ranks; dtypes are uint8 int8 int16 int32 int64
float16 bfloat16 float32 float64 bool, and complex ones for Average and Sum. Any dtype can be
copied. CPU tensors may be strided; CUDA tensors are ordered on the current stream. Any thread may
call. Raises TensorMismatchError if the ranks disagree, UnsupportedError if no backend can run the
operation, and HorovodInternalError if a rank is lost.
"""

from __future__ import annotations

import types

import torch

from hora import operations
from hora.basics import *  # noqa: F403
from hora.basics import Average
from hora.collective_docs import documented
from hora.compression import checked
from hora.control import barrier  # noqa: F401
from hora.operations import choose_op, numeric_splits, wait_now
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set, process_set_by_id
from horovod.torch import differentiable
from horovod.torch.compression import Compression
from horovod.torch.differentiable import (  # noqa: F401
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horovod.torch.handles import (  # noqa: F401
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    poll,
    reducescatter_async,
    synchronize,
)
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What torch.compiler.assume_constant_result() does, which would import the compiler.
for _constant in (rank, size, local_rank, local_size, cross_rank, cross_size):  # noqa: F405
    _constant.__dict__["_dynamo_marked_constant"] = True


def handle_average_backwards_compatibility(op: int, average: bool | None) -> int:
    """The reduction that op= or the older average= selects."""
    return choose_op(op, average)


def _written(tensors, results):
    """In code that is compiled: the tensors, with these values."""
    with torch.no_grad():
        for tensor, result in zip(tensors, results):
            tensor.copy_(result)
    return list(tensors)


# --- allreduce --------------------------------------------------------------------------------------


@documented
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over the ranks, with Average, Sum, Min, Max, Product or Adasum."""
    op = choose_op(op, average)
    if compression is Compression.none:
        return differentiable.allreduce(tensor, name, op, prescale_factor, postscale_factor, process_set)
    compressed, context = checked(compression).compress(tensor)
    reduced = differentiable.allreduce(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


@documented
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over the ranks into itself, and returns it."""
    if op is None or average is not None:
        op = choose_op(op, average)
    if differentiable.is_compiling():
        return _written(
            [tensor],
            [differentiable.allreduce(tensor.detach(), name, op, prescale_factor, postscale_factor, process_set)],
        )[0]
    return _ops.allreduce_now(tensor, name, op, prescale_factor, postscale_factor, process_set, in_place=True)


@documented
def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors over the ranks together; returns a list."""
    op = choose_op(op, average)
    compressed = [checked(compression).compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    reduced = differentiable.grouped_allreduce(wires, name, op, prescale_factor, postscale_factor, process_set)
    return [compression.decompress(wire, context) for wire, (_, context) in zip(reduced, compressed)]


@documented
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors over the ranks together, each into itself; returns a list."""
    op = choose_op(op, average)
    if differentiable.is_compiling():
        sources = [tensor.detach() for tensor in tensors]
        return _written(
            tensors,
            differentiable.grouped_allreduce(sources, name, op, prescale_factor, postscale_factor, process_set),
        )
    return wait_now(
        _ops.allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set, in_place=True, grouped=True)
    )


# --- allgather --------------------------------------------------------------------------------------


@documented
def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the tensors of all ranks along the first dimension, whose extents may differ."""
    return differentiable.allgather(tensor, name, process_set)


@documented
def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Concatenates each of several tensors of all ranks along the first dimension; returns a list."""
    return differentiable.grouped_allgather(list(tensors), name, process_set)


# --- broadcast --------------------------------------------------------------------------------------


@documented
def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the tensor of root_rank on every rank."""
    return differentiable.broadcast(tensor, root_rank, name, process_set)


@documented
def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Writes the tensor of root_rank into that of every rank, and returns it."""
    if differentiable.is_compiling():
        return _written([tensor], [differentiable.broadcast(tensor.detach(), root_rank, name, process_set)])[0]
    return _ops.broadcast_now(tensor, root_rank, name, process_set, in_place=True)


# --- alltoall ---------------------------------------------------------------------------------------


@documented
def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends a part of the rows to each rank; returns the rows that the ranks sent here."""
    return differentiable.alltoall(tensor, numeric_splits(splits), name, process_set)


# --- reducescatter ----------------------------------------------------------------------------------


@documented
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor over the ranks, with Average or Sum; returns this rank's part of the rows."""
    wire, context = checked(compression).compress(tensor)
    (reduced,) = differentiable.reducescatter(
        (wire,), name, op, prescale_factor, postscale_factor, process_set, grouped=False
    )
    return compression.decompress(reduced, context)


@documented
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter() of several tensors together; returns a list."""
    compressed = [checked(compression).compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    reduced = differentiable.reducescatter(
        wires, name, op, prescale_factor, postscale_factor, process_set, grouped=True
    )
    return [compression.decompress(wire, context) for wire, (_, context) in zip(reduced, compressed)]


# --- join -----------------------------------------------------------------------------------------


def join(device: int = -1) -> int:
    """Declares that this rank has no more data, and waits for the others.

    Until every rank of the job has joined, this one takes part in their reductions with zeros. Returns the rank that
    joined last. Blocks until all have joined, without a time limit. Raises HorovodInternalError if a rank is lost,
    and NotInitializedError before init(). `device` is accepted and ignored.
    """
    return operations.join(global_process_set)


def _barrier_of(process_set_id: int = 0) -> None:
    operations.barrier(process_set_by_id(process_set_id))


# Stands for Horovod's compiled extension, of which programs ask whether it is there and use what is not tied to
# a tensor's type. The collectives of a type are the functions above.
mpi_lib = types.SimpleNamespace(
    horovod_torch_poll=poll,
    horovod_torch_wait_and_clear=synchronize,
    horovod_torch_join=join,
    horovod_torch_barrier=_barrier_of,
)
