# SPDX-License-Identifier: Apache-2.0
"""Making the ranks agree on models, optimizers and objects."""

from __future__ import annotations

import torch

from hora import objects, operations
from hora.process_sets import global_process_set
from horovod.torch.mpi_ops import broadcast_async_, synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hora.process_sets import ProcessSet


def _named_tensors(params):
    if isinstance(params, dict):
        return sorted(params.items())
    if isinstance(params, (list, tuple)) or hasattr(params, "__iter__"):
        return [each if isinstance(each, tuple) else (f"parameter.{index}", each) for index, each in enumerate(params)]
    raise ValueError(
        "broadcast_parameters takes the state_dict() or the named_parameters() of a "
        f"model, or a list of tensors, not {type(params).__name__}"
    )


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Writes the root's values into the tensors of all ranks.

    params is model.state_dict(), a list of (name, tensor), or a list of tensors in the same order everywhere; shapes
    and dtypes are the same on all ranks. Blocks until all ranks of process_set have called it. Raises ValueError for
    what is not a tensor, and otherwise what broadcast_() raises.
    """
    named = []
    for name, tensor in _named_tensors(params):
        if tensor is None:
            continue
        if not torch.is_tensor(tensor):
            raise ValueError(
                f"broadcast_parameters: {name} is not a tensor but {type(tensor).__name__}; use broadcast_object for it"
            )
        named.append((str(name), tensor.data))
    _broadcast_all(named, root_rank, process_set)


def _broadcast_all(named, root_rank, process_set):
    """Broadcasts all tensors at once. If one fails, the results of the others are given up."""
    handles: list[int] = []
    try:
        for name, tensor in named:
            handles.append(broadcast_async_(tensor, root_rank, name, process_set))
        for handle in handles:
            synchronize(handle)
    except BaseException:
        for handle in handles:
            operations.forget(handle)
        raise


class _TensorPlace:
    """Stands in a pickled state for a tensor that travels by itself."""

    def __init__(self, tensor, number):
        self.shape = tuple(tensor.shape)
        self.strides = _own_strides(tensor)
        self.dtype = tensor.dtype
        self.device = str(tensor.device)
        self.number = number


def _own_strides(tensor):
    """Those of a new tensor that is to be like this one: memory formats such as channels_last are kept."""
    return torch.empty_like(tensor, device="meta").stride()


def _take_tensors_out(value, tensors):
    if torch.is_tensor(value) and value.layout is torch.strided:
        tensors.append(value)
        return _TensorPlace(value, len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _take_tensors_out(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_take_tensors_out(each, tensors) for each in value)
    return value


def _put_tensors_in(value, tensors):
    if isinstance(value, _TensorPlace):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _put_tensors_in(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_put_tensors_in(each, tensors) for each in value)
    return value


def _places(value):
    if isinstance(value, _TensorPlace):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _places(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _places(each)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None, process_set: ProcessSet = global_process_set
) -> None:
    """Gives every rank the root's optimizer state and options: momenta, step counts, learning rate.

    An optimizer that has no state yet on the other ranks gets it; none takes a step for it. Where an optimizer has no
    state yet, parameters without a gradient get one of zeros. `model` is accepted. Blocks until all ranks of
    process_set have called it. Raises ValueError for LBFGS, TypeError for what is not an optimizer, and otherwise
    what broadcast_() raises.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of LBFGS cannot be broadcast: it contains the history of one rank's closure")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"broadcast_optimizer_state: expected an optimizer, not {optimizer!r}")
    from hora import basics

    if not optimizer.state:
        _give_zero_gradients(optimizer)
    is_root = basics.rank() == root_rank
    tensors: list[torch.Tensor] = []
    skeleton = _take_tensors_out(optimizer.state_dict(), tensors) if is_root else None
    skeleton = objects.broadcast_object(skeleton, root_rank, "optimizer_state", process_set)
    if not is_root:
        tensors = [
            torch.empty_strided(place.shape, place.strides, dtype=place.dtype, device=_own_device(place))
            for place in sorted(_places(skeleton), key=lambda place: place.number)
        ]
    named = [(f"optimizer_state.{number}", tensor) for number, tensor in enumerate(tensors)]
    _broadcast_all(named, root_rank, process_set)
    if not is_root:
        load_optimizer_state(optimizer, _put_tensors_in(skeleton, tensors))
    _lay_out_as_parameters(optimizer)


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """load_state_dict() that keeps the dtypes: torch casts what a parameter has in its state to the parameter's dtype,
    float32 weights, counters and ASGD's `eta` of bfloat16 parameters included."""
    optimizer.load_state_dict(state)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, values in state.get("state", {}).items():
        own = optimizer.state.get(parameters[number]) if number in range(len(parameters)) else None
        if not (isinstance(own, dict) and isinstance(values, dict)):
            continue
        for name, value in values.items():
            if torch.is_tensor(value) and torch.is_tensor(own.get(name)) and own[name].dtype != value.dtype:
                own[name] = value.clone()


def _lay_out_as_parameters(optimizer):
    """Gives state of a parameter's shape the parameter's strides, as torch itself makes it. The root may have
    resumed from a state of another memory format, and torch's fused kernels compute wrong with that."""
    for parameter, state in optimizer.state.items():
        if not (torch.is_tensor(parameter) and isinstance(state, dict)):
            continue
        for name, value in state.items():
            if not torch.is_tensor(value) or value.layout is not torch.strided or value.shape != parameter.shape:
                continue
            strides = _own_strides(parameter)
            if value.stride() != strides:
                laid_out = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
                state[name] = laid_out.copy_(value.detach())


def _give_zero_gradients(optimizer):
    """Horovod takes a step with gradients of zero to create the state, and scripts read these afterwards. No
    step is taken here: it would count, and weight decay would move the parameters."""
    takes_sparse_only = isinstance(optimizer, torch.optim.SparseAdam)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None and not takes_sparse_only:
                parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def _own_device(place):
    """The device here that corresponds to the root's: CUDA tensors go to this rank's device."""
    if place.device.startswith("cuda"):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(place.device)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object on every rank. See hora.broadcast_object for how long it blocks and what it raises."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """A function of one object that broadcasts it."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, as a list by rank. See hora.allgather_object for how long it blocks and what it
    raises."""
    return objects.allgather_object(obj, name, process_set)
