# SPDX-License-Identifier: Apache-2.0
"""The collectives as an operator of PyTorch, for code that torch.compile traces.

The operator has an ordered effect, so that no compiler moves one collective before another: ranks that compile at
different times, or not at all, still meet in one order. At run time it does what the functions outside of compiled code
do, names included. Needs torch.library.custom_op (PyTorch 2.4); shapes are compiled in, so all ranks have the same.
"""

from __future__ import annotations

import torch

from hora.basics import Average, Sum, rank
from hora.names import derived
from hora.operations import scatter_op, set_id_of, wait_now
from hora.process_sets import process_set_by_id
from horovod.torch.selecting import SELECTING, selecting_gradient
from horovod.torch.tensors import ops as _ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hora.process_sets import ProcessSet


def _run(tensors, kind, grouped, name, set_id, op, prescale, postscale, root, splits):
    process_set = process_set_by_id(set_id)
    if kind == "broadcast":
        return [_ops.broadcast_now(tensors[0], root, name, process_set)]
    if kind == "alltoall":
        received = wait_now(_ops.alltoall(tensors[0], splits, name, process_set))
        return [received] if splits is None else list(received)
    if kind == "allgather":
        results = wait_now(_ops.allgather(tensors, name, process_set, grouped=grouped))
    else:
        start = getattr(_ops, kind)
        results = wait_now(start(tensors, name, op, prescale, postscale, process_set, grouped=grouped))
    return list(results) if grouped else [results]


def _shapes(tensors, kind, grouped, name, set_id, op, prescale, postscale, root, splits):
    """What the operator returns, without running it."""
    process_set = process_set_by_id(set_id)
    if kind in ("allreduce", "broadcast"):
        return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
    if kind == "alltoall" and splits is not None:
        rows = torch.library.get_ctx().new_dynamic_size()
        received = tensors[0].new_empty((rows, *tensors[0].shape[1:]))
        return [received, tensors[0].new_empty((process_set.size(),), dtype=torch.int32)]
    made = []
    for tensor in tensors:
        rows, members = tensor.shape[0], process_set.size()
        if kind == "allgather":
            rows = rows * members
        elif kind == "reducescatter":
            rows = rows // members + (1 if process_set.rank() < rows % members else 0)
        made.append(tensor.new_empty((rows, *tensor.shape[1:])))
    return made


_SCHEMA = (
    "(Tensor[] tensors, str kind, bool grouped, str? name, int set_id, int op, float prescale, float postscale, "
    "int root, int[]? splits) -> Tensor[]"
)
_operator = torch.library.custom_op("hora::collective", _run, mutates_args=(), schema=_SCHEMA)
_operator.register_fake(_shapes)


def _remember(ctx, inputs, output):
    tensors, *ctx.arguments = inputs
    ctx.rows = [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]
    kind, op = ctx.arguments[0], ctx.arguments[4]
    ctx.count = len(tensors)
    if kind == "allreduce" and op in SELECTING:
        ctx.save_for_backward(*tensors, *output)
    elif kind == "alltoall" and len(output) > 1:
        ctx.save_for_backward(output[1])


def _backward(ctx, gradients):
    kind, grouped, name, *rest = ctx.arguments
    return (_gradients(ctx, gradients, kind, grouped, derived(name), *rest), *[None] * len(ctx.arguments))


def _reduce(tensor, name, op, prescale, postscale, process_set):
    return call("allreduce", [tensor], name, process_set, False, op, prescale, postscale)[0]


def _gather(tensor, name, process_set):
    return call("allgather", [tensor], name, process_set)[0]


def _gradients(ctx, gradients, kind, grouped, name, set_id, op, prescale, postscale, root, splits):
    """As the autograd functions of horovod.torch.differentiable."""
    process_set = process_set_by_id(set_id)
    if kind == "allreduce":
        if op not in SELECTING:
            return call("allreduce", gradients, name, process_set, grouped, op, prescale, postscale)
        inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        names = [derived(name, index) for index in range(ctx.count)] if grouped else [name]
        return [
            selecting_gradient(*parts, op, prescale, postscale, own, process_set, _reduce, _gather)
            for own, *parts in zip(names, gradients, inputs, outputs)
        ]
    if kind == "broadcast":
        (mean,) = call("allreduce", gradients, name, process_set, False, Average)
        return [mean if rank() == root else mean * 0]
    if kind == "allgather":
        means = call("allreduce", gradients, name, process_set, grouped, Average)
        own = process_set.rank()
        return [mean.narrow(0, own * rows, rows) for mean, rows in zip(means, ctx.rows)]
    if kind == "alltoall":
        if splits is not None:
            raise ValueError("inside torch.compile the gradient of alltoall needs equal parts: leave out splits=")
        return call("alltoall", gradients, name, process_set)
    members = process_set.size()
    if any(rows % members for rows in ctx.rows):
        raise ValueError(
            f"inside torch.compile the gradient of reducescatter needs a number of rows that is a multiple of {members}"
        )
    factor = prescale * postscale * (members if op == Sum else 1)
    return [each * factor for each in call("allgather", gradients, name, process_set, grouped)]


_operator.register_autograd(_backward, setup_context=_remember)

# No public name for this is in all releases.
if hasattr(_operator, "register_effect"):
    from torch._library.effects import EffectType

    _operator.register_effect(EffectType.ORDERED)
else:
    from torch._higher_order_ops import effects

    effects._register_effectful_op(torch.ops.hora.collective.default, effects._EffectType.ORDERED)


def call(
    kind: str,
    tensors: Sequence[torch.Tensor],
    name: str | None,
    process_set: ProcessSet,
    grouped: bool = False,
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Any = None,
) -> list[torch.Tensor]:
    """A collective of this kind, in code that is being compiled; a group, or one tensor alone."""
    if kind == "reducescatter":
        op = scatter_op(op)
    return _operator(list(tensors), kind, grouped, name, set_id_of(process_set), op, prescale, postscale, root, splits)
