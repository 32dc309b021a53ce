# SPDX-License-Identifier: Apache-2.0
"""Models, optimizers and samplers as state that survives a change of the ranks."""

from __future__ import annotations

import copy
import sys

import torch

from hora.elastic import HandledState, Handler
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    load_optimizer_state,
)
from horovod.torch.mpi_ops import rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class StateHandler(Handler):
    """The base of the handlers; a handler for a type of your own derives from it."""


class _StateDictHandler(StateHandler):
    """For what has state_dict() and load_state_dict()."""

    def __init__(self, value):
        super().__init__(value)
        self.save()

    def save(self):
        self._saved_state = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self._saved_state))


class ModelStateHandler(_StateDictHandler):
    """Handles a torch.nn.Module by its state_dict()."""

    def sync(self) -> None:
        """Writes rank 0's parameters and buffers into those of every rank. Collective."""
        state = self.value.state_dict()
        # What get_extra_state() of modules returns is any object, and takes effect by set_extra_state() only.
        extra = {name: state.pop(name) for name in list(state) if name.rpartition(".")[2] == "_extra_state"}
        broadcast_parameters(state, root_rank=0)
        if extra:
            state.update(broadcast_object(extra, 0, "extra_state"))
            self.value.load_state_dict(state)
        self.save()


class OptimizerStateHandler(_StateDictHandler):
    """Handles a torch.optim.Optimizer by its state_dict()."""

    def sync(self) -> None:
        """Gives every rank the state of rank 0's optimizer. Collective."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()

    def restore(self) -> None:
        """Gives the optimizer the state of the last save()."""
        load_optimizer_state(self.value, copy.deepcopy(self._saved_state))


class SamplerStateHandler(_StateDictHandler):
    """Handles an ElasticSampler."""

    def sync(self) -> None:
        """Gives every rank the progress of rank 0's sampler. Collective."""
        state = broadcast_object(self.value.state_dict(), 0, "sampler_state")
        self.value.load_state_dict(state)
        self.save()

    def reset(self) -> None:
        """Divides what is left of the epoch among the current ranks."""
        self.value.reset()


_handler_types = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Any:
    """The (type, handler) pairs, first match wins."""
    return list(_handler_types)


def set_handler_registry(registry: Any) -> None:
    """Replaces the list of (type, handler class) that get_handler_registry() returns."""
    _handler_types[:] = registry


def _handler_for(value):
    for value_type, handler_type in _handler_types:
        if isinstance(value, value_type):
            return handler_type(value)
    return None


class TorchState(HandledState):
    """TorchState(model=..., optimizer=..., sampler=..., epoch=0): modules, optimizers and elastic
    samplers are saved, restored and synced in place; anything else is an object."""

    def __init__(self, model: Any = None, optimizer: torch.optim.Optimizer = None, **kwargs: Any) -> None:
        for name, value in (("model", model), ("optimizer", optimizer)):
            if value is not None:
                kwargs[name] = value
        super().__init__(broadcast_object, rank, _handler_for, **kwargs)
        for name, value in (("model", model), ("optimizer", optimizer)):
            if value is None:
                object.__setattr__(self, name, None)

    def reset(self) -> None:
        """Calls reset() of every handler. Compiled code is compiled again: the number of ranks is a constant in it."""
        super().reset()
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
