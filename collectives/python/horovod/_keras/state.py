# SPDX-License-Identifier: Apache-2.0
"""Keras models and optimizers as state that survives a change of the ranks."""

from __future__ import annotations

import numpy as np

from hora import basics, objects
from hora.elastic import HandledState, Handler
from horovod._keras.variables import broadcast_variables, model_variables, optimizer_variables, to_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class VariablesHandler(Handler):
    """Variables that stay the same objects; variables_of() returns them as they are now."""

    def __init__(self, value: Any, variables_of: Any, name: str) -> None:
        super().__init__(value)
        self._variables_of = variables_of
        self._name = name
        self.save()

    def _variables(self):
        return self._variables_of(self.value)

    def save(self) -> None:
        """Copies the values of the variables to host memory."""
        self._saved = [np.array(to_array(variable)) for variable in self._variables()]

    def restore(self) -> None:
        """Assigns the saved values, unless the number of variables has changed."""
        variables = self._variables()
        if len(self._saved) != len(variables):
            return  # made since: nothing was saved of them
        for variable, value in zip(variables, self._saved):
            variable.assign(value)

    def sync(self) -> None:
        """Assigns rank 0's values on every rank, and saves them. Collective."""
        broadcast_variables(self._common(), 0, self._name)
        self.save()

    def _common(self):
        """The variables that exist on all ranks: a new process has no optimizer state yet."""
        variables = self._variables()
        counts = objects.allgather_object([tuple(variable.shape) for variable in variables], f"{self._name}.shapes")
        if all(each == counts[0] for each in counts):
            return variables
        raise ValueError(
            f"{self._name}: the ranks have different variables ({[len(c) for c in counts]} of "
            "them). Build the model and its optimizer before training: call the model on a "
            "batch, and optimizer.build(model.trainable_variables)"
        )


def build_optimizer(model: Any, optimizer: Any) -> None:
    """Makes a Keras 3 optimizer's state, so that all ranks have it before the first step."""
    if (
        optimizer is not None
        and hasattr(optimizer, "apply")
        and not getattr(optimizer, "built", True)
        and getattr(model, "built", False)
    ):
        optimizer.build(model.trainable_variables)


class KerasState(HandledState):
    """KerasState(model, optimizer=None, epoch=0, batch=0): the model and its optimizer are saved,
    restored and synced in place; anything else is an object."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        build_optimizer(model, optimizer)
        self.__dict__["model"] = model
        self.__dict__["optimizer"] = optimizer
        values = {"model": _Value(model, model_variables, "elastic_model")}
        if optimizer is not None:
            values["optimizer"] = _Value(optimizer, optimizer_variables, "elastic_optimizer")
        super().__init__(objects.broadcast_object, basics.rank, _handler_for, **values, **kwargs)
        self.__dict__["model"] = model
        self.__dict__["optimizer"] = optimizer

    def __setattr__(self, name, value):
        if name in ("model", "optimizer") and name in self.__dict__.get("_handlers", {}):
            self._handlers[name].set_value(value)
            self.__dict__[name] = value
            return
        super().__setattr__(name, value)


class _Value:
    """A value with the handler that it is to have."""

    def __init__(self, value, variables_of, name):
        self.arguments = value, variables_of, name


def _handler_for(value):
    return VariablesHandler(*value.arguments) if isinstance(value, _Value) else None
