# SPDX-License-Identifier: Apache-2.0
"""Training that survives a change of the ranks."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from hora import basics, objects
from hora.elastic import HandledState, Handler, HostUpdateResult, reset_job, run_fn  # noqa: F401
from hora.exceptions import from_text
from horovod._keras.state import KerasState
from horovod.tensorflow.functions import broadcast_object, broadcast_variables  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _translate(error):
    """Our own error, where one of our nodes in a graph failed: TensorFlow keeps the text only."""
    return from_text(error.message) if isinstance(error, tf.errors.OpError) else None


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: makes func(state, ...) survive changes of the ranks. hora.elastic.run describes when it starts
    again, how long that blocks, and what it raises. An error of one of our nodes in a graph counts as the error
    that it stands for."""
    return functools.wraps(func)(run_fn(func, reset_job, _translate))


class _TensorFlowVariables(Handler):
    """tf.Variables, of a Session's graph where one is given."""

    def __init__(self, variables, session):
        super().__init__(list(variables))
        self._session = session
        self.save()

    def _read(self):
        if self._session is not None:
            return self._session.run(self.value)
        return [variable.numpy() for variable in self.value]

    def _write(self, values):
        for variable, value in zip(self.value, values):
            if self._session is not None:
                variable.load(value, self._session)
            else:
                variable.assign(value)

    def save(self):
        self._saved = [np.array(value) for value in self._read()]

    def restore(self):
        self._write(self._saved)

    def sync(self):
        from hora import batches
        from hora.aligned_arrays import ops
        from hora.process_sets import global_process_set

        arrays = [np.array(value, order="C") for value in self._read()]

        def begin():
            for index, array in enumerate(arrays):
                yield ops.broadcast((array,), 0, f"elastic_variables.{index}", global_process_set)

        self._write(batches.run(begin))
        self.save()


class _Variables:
    def __init__(self, variables, session):
        self.arguments = variables, session


def _handler_for(value):
    return _TensorFlowVariables(*value.arguments) if isinstance(value, _Variables) else None


class TensorFlowState(HandledState):
    """TensorFlowState(variables, epoch=0): variables are saved, restored and synced in place;
    anything else is an object. Without variables, a Session's graph gives its global ones."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            if tf.executing_eagerly():
                raise ValueError("TensorFlowState needs variables=[...] in eager mode")
            variables = tf.compat.v1.global_variables()
        if session is None and not tf.executing_eagerly():
            session = tf.compat.v1.get_default_session()
        super().__init__(
            objects.broadcast_object, basics.rank, _handler_for, variables=_Variables(variables, session), **kwargs
        )
        self.__dict__["variables"] = list(variables)


class TensorFlowKerasState(KerasState):
    """TensorFlowKerasState(model, optimizer=None, epoch=0): a Keras model and its optimizer as
    elastic state. `backend` is accepted: it named Keras's backend in older releases."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)
