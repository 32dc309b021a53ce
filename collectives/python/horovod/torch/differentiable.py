# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors as autograd sees them: waiting, and differentiable as often as needed.

Where no gradient is wanted, the functions here run the operation alone. Names, operations and
factors are those of horovod.torch.mpi_ops, without its defaults. The classes have Horovod's names
and arguments, because programs call their apply().
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from hora.basics import Average, Sum, rank
from hora.names import derived
from hora.operations import choose_op, numeric_splits, scatter_op, wait_now
from hora.process_sets import ProcessSet, global_process_set
from horovod.torch.selecting import SELECTING, selecting_gradient
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# Code that torch.compile traces calls the operator of horovod.torch.compiled, where PyTorch can have one.
if hasattr(getattr(torch, "library", None), "custom_op"):
    is_compiling = torch.compiler.is_dynamo_compiling
else:

    def is_compiling() -> bool:
        """Whether torch.compile traces this code: never, in a release without it."""
        return False


def _compiled(*arguments):
    from horovod.torch import compiled

    return compiled.call(*arguments)


def _forward_mode():
    # The functions below have no jvp(), which PyTorch says where a tensor has a tangent; it would be lost otherwise.
    return forward_ad._current_level >= 0


def _differentiates(tensor):
    return (getattr(tensor, "requires_grad", False) and torch.is_grad_enabled()) or _forward_mode()


def _any_differentiates(tensors):
    return (torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)) or (
        _forward_mode()
    )


# --- allreduce --------------------------------------------------------------------------------------


def allreduce(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> torch.Tensor:
    """allreduce of one tensor; through autograd if the tensor needs a gradient."""
    if is_compiling():
        return _compiled("allreduce", [tensor], name, process_set, False, op, prescale, postscale)[0]
    if _differentiates(tensor):
        return HorovodAllreduce.apply(tensor, None, name, op, prescale, postscale, process_set)
    return _ops.allreduce_now(tensor, name, op, prescale, postscale, process_set)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Sequence[torch.Tensor]:
    """allreduce of several tensors, which run together; through autograd if one needs a gradient."""
    if is_compiling():
        return _compiled("allreduce", tensors, name, process_set, True, op, prescale, postscale)
    if _any_differentiates(tensors):
        return list(HorovodGroupedAllreduce.apply(None, name, op, prescale, postscale, process_set, *tensors))
    return wait_now(_ops.allreduce(tensors, name, op, prescale, postscale, process_set, grouped=True))


# The arguments that forward() leaves out have no gradient; autograd ignores Nones beyond its arguments.
_NONES = (None,) * 6


class HorovodAllreduce(torch.autograd.Function):
    """allreduce, for autograd."""

    @staticmethod
    def forward(
        ctx, tensor, average=None, name=None, op=None, prescale=1.0, postscale=1.0, process_set=global_process_set
    ):
        """Reduces the tensor. Blocks until all ranks call it."""
        op = choose_op(op, average)
        ctx.arguments = name, op, prescale, postscale, process_set
        output = _ops.allreduce_now(tensor, name, op, prescale, postscale, process_set)
        if op in SELECTING:
            ctx.save_for_backward(tensor, output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        """Reduces the gradient in the same way; Min and Max pass it to the ranks whose element was chosen."""
        name, op, prescale, postscale, process_set = ctx.arguments
        name = derived(name, "grad")
        if op in SELECTING:
            gradient = selecting_gradient(
                gradient, *ctx.saved_tensors, op, prescale, postscale, name, process_set, allreduce, allgather
            )
        else:
            gradient = allreduce(gradient, name, op, prescale, postscale, process_set)
        return (gradient, *_NONES)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """allreduce of several tensors, for autograd."""

    @staticmethod
    def forward(ctx, average, name, op, prescale, postscale, process_set, *tensors):
        """Reduces the tensors together. Blocks until all ranks call it."""
        op = choose_op(op, average)
        ctx.arguments = name, op, prescale, postscale, process_set
        outputs = wait_now(_ops.allreduce(tensors, name, op, prescale, postscale, process_set, grouped=True))
        ctx.count = len(tensors)
        if op in SELECTING:
            ctx.save_for_backward(*tensors, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        """Reduces the gradients together."""
        name, op, prescale, postscale, process_set = ctx.arguments
        name = derived(name, "grad")
        if op in SELECTING:
            inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            reduced = [
                selecting_gradient(
                    gradient,
                    source,
                    output,
                    op,
                    prescale,
                    postscale,
                    derived(name, index),
                    process_set,
                    allreduce,
                    allgather,
                )
                for index, (gradient, source, output) in enumerate(zip(gradients, inputs, outputs))
            ]
        else:
            reduced = grouped_allreduce(gradients, name, op, prescale, postscale, process_set)
        return (*_NONES, *reduced)


# --- allgather --------------------------------------------------------------------------------------


def allgather(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """allgather of one tensor; through autograd if the tensor needs a gradient."""
    if is_compiling():
        return _compiled("allgather", [tensor], name, process_set)[0]
    if _differentiates(tensor):
        return HorovodAllgather.apply(tensor, name, process_set)
    return wait_now(_ops.allgather((tensor,), name, process_set))


def grouped_allgather(tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet) -> list[torch.Tensor]:
    """allgather of several tensors, which run together; through autograd if one needs a gradient."""
    if is_compiling():
        return _compiled("allgather", tensors, name, process_set, True)
    if _any_differentiates(tensors):
        return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))
    return wait_now(_ops.allgather(tensors, name, process_set, grouped=True))


def _own_rows(gradients, first_extents, process_set):
    """Of averaged gradients of gathered tensors, the rows that this rank had contributed."""
    own_extents = torch.tensor([first_extents], dtype=torch.int64, device="cpu")
    extents = wait_now(_ops.allgather((own_extents,), None, process_set))
    rank_in_set = process_set.rank()
    own = []
    for index, gradient in enumerate(gradients):
        reduced = allreduce(gradient, None, Average, 1.0, 1.0, process_set)
        start = int(extents[:rank_in_set, index].sum())
        own.append(reduced.narrow(0, start, first_extents[index]))
    return own


class HorovodAllgather(torch.autograd.Function):
    """allgather, for autograd."""

    @staticmethod
    def forward(ctx, tensor, name=None, process_set=global_process_set):
        """Concatenates the tensors of all ranks. Blocks until all ranks call it."""
        gathered = wait_now(_ops.allgather((tensor,), name, process_set))  # refuses a scalar
        ctx.arguments = [tensor.shape[0]], process_set
        return gathered

    @staticmethod
    def backward(ctx, gradient):
        """Averages the gradient over the ranks, and returns this rank's rows of it."""
        return (*_own_rows([gradient], *ctx.arguments), None, None)


class HorovodGroupedAllgather(torch.autograd.Function):
    """allgather of several tensors, for autograd."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        """Concatenates each tensor of all ranks. Blocks until all ranks call it."""
        gathered = wait_now(_ops.allgather(tensors, name, process_set, grouped=True))
        ctx.arguments = [tensor.shape[0] for tensor in tensors], process_set
        return tuple(gathered)

    @staticmethod
    def backward(ctx, *gradients):
        """Averages the gradients over the ranks, and returns this rank's rows of them."""
        return (None, None, *_own_rows(gradients, *ctx.arguments))


# --- broadcast --------------------------------------------------------------------------------------


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """broadcast of one tensor; through autograd if the tensor needs a gradient."""
    if is_compiling():
        return _compiled("broadcast", [tensor], name, process_set, False, Sum, 1.0, 1.0, root_rank)[0]
    if _differentiates(tensor):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return _ops.broadcast_now(tensor, root_rank, name, process_set)


class HorovodBroadcast(torch.autograd.Function):
    """broadcast, for autograd."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name=None, process_set=global_process_set):
        """The root's tensor. Blocks until all ranks call it."""
        ctx.arguments = root_rank, name, process_set
        return _ops.broadcast_now(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx, gradient):
        """The average of the gradients on the root, zeros elsewhere."""
        root_rank, name, process_set = ctx.arguments
        name = derived(name, "grad")
        reduced = allreduce(gradient, name, Average, 1.0, 1.0, process_set)
        if rank() != root_rank:
            reduced = reduced * 0
        return reduced, None, None, None


# --- alltoall ---------------------------------------------------------------------------------------


def alltoall(
    tensor: torch.Tensor, splits: Sequence[int] | None, name: str | None, process_set: ProcessSet
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """alltoall; through autograd if the tensor needs a gradient."""
    if is_compiling():
        received = _compiled("alltoall", [tensor], name, process_set, False, Sum, 1.0, 1.0, 0, splits)
        return received[0] if splits is None else tuple(received)
    if _differentiates(tensor):
        received, received_splits = HorovodAlltoall.apply(tensor, splits, name, process_set)
        return received if splits is None else (received, received_splits)
    return wait_now(_ops.alltoall(tensor, splits, name, process_set))


class HorovodAlltoall(torch.autograd.Function):
    """alltoall, for autograd."""

    @staticmethod
    def forward(ctx, tensor, splits=None, name=None, process_set=global_process_set):
        """Returns (rows received, how many from each rank). Blocks until all ranks call it."""
        splits = numeric_splits(splits)
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
        """Sends the rows of the gradient back where they came from."""
        name, process_set = ctx.arguments
        name = derived(name, "grad")
        returned, _ = alltoall(gradient, ctx.received_splits, name, process_set)
        if ctx.unsent:
            padding = returned.new_zeros((ctx.unsent, *returned.shape[1:]))
            returned = torch.cat([returned, padding])
        return returned, None, None, None


# --- reducescatter ----------------------------------------------------------------------------------


def reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    grouped: bool,
) -> Sequence[torch.Tensor]:
    """A group, or one tensor alone (a sequence of one)."""
    if is_compiling():
        return _compiled("reducescatter", tensors, name, process_set, grouped, op, prescale, postscale)
    if not _any_differentiates(tensors):
        return _reducescatter(tensors, name, op, prescale, postscale, process_set, grouped)
    if grouped:
        return HorovodGroupedReducescatter.apply(name, op, process_set, prescale, postscale, *tensors)
    return (HorovodReducescatter.apply(*tensors, name, op, process_set, prescale, postscale),)


def _reducescatter(tensors, name, op, prescale, postscale, process_set, grouped):
    results = wait_now(
        _ops.reducescatter(tensors, name, scatter_op(op), prescale, postscale, process_set, grouped=grouped)
    )
    return tuple(results) if grouped else (results,)


def _scattered_gradients(gradients, name, op, process_set, prescale, postscale):
    factor = prescale * postscale * (process_set.size() if op == Sum else 1)
    for index, gradient in enumerate(gradients):
        gathered = allgather(gradient, derived(name, f"grad.{index}"), process_set)
        yield gathered if factor == 1 else gathered * factor


class HorovodReducescatter(torch.autograd.Function):
    """reducescatter, for autograd."""

    @staticmethod
    def forward(ctx, tensor, name=None, op=Average, process_set=global_process_set, prescale=1.0, postscale=1.0):
        """This rank's rows of the reduction. Blocks until all ranks call it."""
        ctx.arguments = name, op, process_set, prescale, postscale
        (result,) = _reducescatter((tensor,), name, op, prescale, postscale, process_set, False)
        return result

    @staticmethod
    def backward(ctx, gradient):
        """Gathers the ranks' gradients, multiplied by the size of the set if the op is Sum."""
        return (*_scattered_gradients([gradient], *ctx.arguments), *_NONES)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """reducescatter of several tensors, for autograd."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale, postscale, *tensors):
        """This rank's rows of the reductions. Blocks until all ranks call it."""
        ctx.arguments = name, op, process_set, prescale, postscale
        return _reducescatter(tensors, name, op, prescale, postscale, process_set, True)

    @staticmethod
    def backward(ctx, *gradients):
        """Gathers the ranks' gradients, multiplied by the size of the set if the op is Sum."""
        return (None, None, None, None, None, *_scattered_gradients(gradients, *ctx.arguments))
