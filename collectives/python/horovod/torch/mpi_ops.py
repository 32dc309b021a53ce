# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors.

A trailing underscore means in place; _async returns a handle for poll() and synchronize(). The
other functions wait, and take part in autograd. The ranks match their tensors by `name`: pass one,
or call in the same order on every rank.

Reductions need the same shape and dtype on all ranks; dtypes are uint8 int8 int16 int32 int64
float16 bfloat16 float32 float64 bool. CPU tensors may be strided; CUDA tensors are ordered on the
current stream. Any thread may call. Raises TensorMismatchError if the ranks disagree,
UnsupportedError if no backend can run the operation, and HorovodInternalError if a rank is lost.
"""

from __future__ import annotations

import torch

from hora import operations
from hora.basics import (  # noqa: F401
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hora.operations import choose_op, new_handle, numeric_splits, wait_now
from hora.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.torch.compression import Compression
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _differentiates(tensor):
    return getattr(tensor, "requires_grad", False) and torch.is_grad_enabled()


def _any_differentiates(tensors):
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def handle_average_backwards_compatibility(op: int, average: bool | None) -> int:
    """The reduction that op= or the older average= selects."""
    return choose_op(op, average)


# --- handles -------------------------------------------------------------------------------------


def poll(handle: int) -> bool:
    """True if the operation is done, so that synchronize() does not wait."""
    return operations.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result. None for a handle that is not in flight;
    HorovodInternalError when the operation failed."""
    return operations.synchronize(handle)


# --- allreduce -----------------------------------------------------------------------------------


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


def _allreduce(tensor, name, op, prescale, postscale, process_set):
    if _differentiates(tensor):
        return _Allreduce.apply(tensor, name, op, prescale, postscale, process_set)
    return _ops.allreduce_now(tensor, name, op, prescale, postscale, process_set)


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
    """The reduction of all ranks' tensors: Average, Sum, Min, Max, Product or Adasum."""
    op = choose_op(op, average)
    if compression is Compression.none:
        return _allreduce(tensor, name, op, prescale_factor, postscale_factor, process_set)
    compressed, context = compression.compress(tensor)
    reduced = _allreduce(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces into the tensor itself, and returns it."""
    return _ops.allreduce_now(
        tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set, in_place=True
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
    """The reductions of several tensors as one; a list."""
    op = choose_op(op, average)
    compressed = [compression.compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    if _any_differentiates(wires):
        reduced = _GroupedAllreduce.apply(name, op, prescale_factor, postscale_factor, process_set, *wires)
    else:
        reduced = wait_now(
            _ops.allreduce(wires, name, op, prescale_factor, postscale_factor, process_set, grouped=True)
        )
    return [compression.decompress(wire, context) for wire, (_, context) in zip(reduced, compressed)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
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
        )
    )


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, prescale, postscale, process_set):
        ctx.arguments = name, op, prescale, postscale, process_set
        output = _ops.allreduce_now(tensor, name, op, prescale, postscale, process_set)
        if op in _SELECTING:
            ctx.save_for_backward(tensor, output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        name, op, prescale, postscale, process_set = ctx.arguments
        name = None if name is None else f"{name}.grad"
        if op in _SELECTING:
            gradient = _selecting_gradient(gradient, *ctx.saved_tensors, op, prescale, postscale, name, process_set)
        else:
            gradient = _allreduce(gradient, name, op, prescale, postscale, process_set)
        return gradient, None, None, None, None, None


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, *tensors):
        ctx.arguments = name, op, prescale, postscale, process_set
        outputs = wait_now(_ops.allreduce(tensors, name, op, prescale, postscale, process_set, grouped=True))
        ctx.count = len(tensors)
        if op in _SELECTING:
            ctx.save_for_backward(*tensors, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        name, op, prescale, postscale, process_set = ctx.arguments
        name = None if name is None else f"{name}.grad"
        if op in _SELECTING:
            inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            reduced = [
                _selecting_gradient(
                    gradient,
                    source,
                    output,
                    op,
                    prescale,
                    postscale,
                    None if name is None else f"{name}.{index}",
                    process_set,
                )
                for index, (gradient, source, output) in enumerate(zip(gradients, inputs, outputs))
            ]
        else:
            reduced = grouped_allreduce(
                list(gradients), None, name, Compression.none, op, prescale, postscale, process_set
            )
        return (None, None, None, None, None, *reduced)


# Min and Max pass each gradient to the ranks whose element was chosen (in equal parts), Product
# to every rank, multiplied by the others' elements. Adding up, as for Sum, would be wrong.
_SELECTING = (Min, Max, Product)


def _selecting_gradient(gradient, source, output, op, prescale, postscale, name, process_set):
    total = _allreduce(gradient, name, Sum, 1.0, 1.0, process_set)
    if op == Product:
        gathered = allgather(source.unsqueeze(0), None if name is None else f"{name}.others", process_set)
        gathered = gathered * prescale
        rows = [row for row in range(process_set.size()) if row != process_set.rank()]
        return total * gathered[rows].prod(dim=0) * (prescale * postscale)
    chosen = (source * prescale * postscale == output).to(gradient.dtype)
    ties = _allreduce(chosen, None if name is None else f"{name}.ties", Sum, 1.0, 1.0, process_set)
    return total * chosen / ties.clamp(min=1) * (prescale * postscale)


# --- allgather -------------------------------------------------------------------------------------


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts the concatenation of all ranks' tensors along their first dimension, which may
    differ."""
    return new_handle(_ops.allgather((tensor,), name, process_set))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """All ranks' tensors, concatenated along the first dimension in the order of the ranks."""
    if _differentiates(tensor):
        return _Allgather.apply(name, process_set, tensor)[0]
    return wait_now(_ops.allgather((tensor,), name, process_set))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    return new_handle(_ops.allgather(tensors, name, process_set, grouped=True))


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """The concatenations of several tensors, which run together; a list."""
    tensors = list(tensors)
    if _any_differentiates(tensors):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))
    return wait_now(_ops.allgather(tensors, name, process_set, grouped=True))


def _own_rows(gradients, first_extents, process_set):
    """Of averaged gradients of gathered tensors, the rows that this rank had contributed."""
    extents = wait_now(_ops.allgather((torch.tensor([first_extents], dtype=torch.int64),), None, process_set))
    rank_in_set = process_set.rank()
    own = []
    for index, gradient in enumerate(gradients):
        reduced = _allreduce(gradient, None, Average, 1.0, 1.0, process_set)
        start = int(extents[:rank_in_set, index].sum())
        own.append(reduced.narrow(0, start, first_extents[index]))
    return own


class _Allgather(torch.autograd.Function):
    grouped = False

    @classmethod
    def _gather(cls, tensors, name, process_set):
        return (wait_now(_ops.allgather(tensors, name, process_set)),)

    @classmethod
    def forward(cls, ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        ctx.first_extents = [tensor.shape[0] for tensor in tensors]
        return tuple(cls._gather(tensors, name, process_set))

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *_own_rows(gradients, ctx.first_extents, ctx.process_set))


class _GroupedAllgather(_Allgather):
    @classmethod
    def _gather(cls, tensors, name, process_set):
        return wait_now(_ops.allgather(tensors, name, process_set, grouped=True))


# --- broadcast -------------------------------------------------------------------------------------


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a copy of the tensor of root_rank (a rank of the whole job) into a new tensor."""
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    return new_handle(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True))


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensor of root_rank (a rank of the whole job), on every rank of the set."""
    if _differentiates(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set, in_place=True))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.arguments = root_rank, name, process_set
        return wait_now(_ops.broadcast((tensor,), root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        root_rank, name, process_set = ctx.arguments
        name = None if name is None else f"{name}.grad"
        reduced = _allreduce(gradient, name, Average, 1.0, 1.0, process_set)
        if rank() != root_rank:
            reduced = reduced * 0
        return reduced, None, None, None


# --- alltoall --------------------------------------------------------------------------------------


def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to send splits[i] rows to rank i of the set (equal parts without splits)."""
    return new_handle(_ops.alltoall(tensor, numeric_splits(splits), name, process_set))


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The rows that the other ranks sent to this one, in the order of the ranks; with splits, a
    pair of that and the number of rows received from each."""
    if _differentiates(tensor):
        received, received_splits = _Alltoall.apply(tensor, numeric_splits(splits), name, process_set)
        return received if splits is None else (received, received_splits)
    return wait_now(_ops.alltoall(tensor, numeric_splits(splits), name, process_set))


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        if splits is None:
            members = process_set.size()
            if tensor.dim() == 0 or tensor.shape[0] % members:
                raise ValueError(
                    f"alltoall without splits: the first dimension of the shape "
                    f"{list(tensor.shape)} must be a multiple of {members}"
                )
            splits = [tensor.shape[0] // members] * members
        received, received_splits = wait_now(_ops.alltoall(tensor, splits, name, process_set))
        ctx.arguments = name, process_set
        ctx.received_splits = received_splits.tolist()
        ctx.unsent = tensor.shape[0] - sum(splits)
        ctx.mark_non_differentiable(received_splits)
        return received, received_splits

    @staticmethod
    def backward(ctx, gradient, _):
        name, process_set = ctx.arguments
        name = None if name is None else f"{name}.grad"
        returned, _ = alltoall(gradient, ctx.received_splits, name, process_set)
        if ctx.unsent:
            padding = returned.new_zeros((ctx.unsent, *returned.shape[1:]))
            returned = torch.cat([returned, padding])
        return returned, None, None, None


# --- reducescatter -----------------------------------------------------------------------------------


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
        _ops.reducescatter((tensor,), name, _scatter_op(op), prescale_factor, postscale_factor, process_set)
    )


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of the reduction: the first ranks get one more where the number of rows
    is no multiple of the set's size."""
    wire, context = compression.compress(tensor)
    if _differentiates(wire):
        (reduced,) = _Reducescatter.apply(name, op, prescale_factor, postscale_factor, process_set, False, wire)
    else:
        reduced = wait_now(
            _ops.reducescatter((wire,), name, _scatter_op(op), prescale_factor, postscale_factor, process_set)
        )
    return compression.decompress(reduced, context)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    return new_handle(
        _ops.reducescatter(tensors, name, _scatter_op(op), prescale_factor, postscale_factor, process_set, grouped=True)
    )


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter of several tensors, which run together; a list."""
    compressed = [compression.compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    if _any_differentiates(wires):
        reduced = _Reducescatter.apply(name, op, prescale_factor, postscale_factor, process_set, True, *wires)
    else:
        reduced = wait_now(
            _ops.reducescatter(
                wires, name, _scatter_op(op), prescale_factor, postscale_factor, process_set, grouped=True
            )
        )
    return [compression.decompress(wire, context) for wire, (_, context) in zip(reduced, compressed)]


def _scatter_op(op):
    if op not in (Average, Sum):
        raise ValueError("reducescatter reduces with Average and Sum only")
    return op


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, grouped, *tensors):
        ctx.arguments = name, op, prescale, postscale, process_set
        results = wait_now(
            _ops.reducescatter(tensors, name, _scatter_op(op), prescale, postscale, process_set, grouped=grouped)
        )
        return tuple(results) if grouped else (results,)

    @staticmethod
    def backward(ctx, *gradients):
        name, op, prescale, postscale, process_set = ctx.arguments
        factor = prescale * postscale * (process_set.size() if op == Sum else 1)
        returned = []
        for index, gradient in enumerate(gradients):
            gathered = allgather(gradient, None if name is None else f"{name}.grad.{index}", process_set)
            returned.append(gathered if factor == 1 else gathered * factor)
        return (None, None, None, None, None, None, *returned)


# --- join, barrier -------------------------------------------------------------------------------------


def join(device: int = -1) -> int:
    """Declares that this rank has no more batches: it contributes zeros to the reductions of the others
    until all ranks have joined. Returns the rank that joined last."""
    return operations.join(global_process_set)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank of the set has called it."""
    operations.barrier(process_set)
