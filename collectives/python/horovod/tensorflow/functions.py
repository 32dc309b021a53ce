# SPDX-License-Identifier: Apache-2.0
"""Making the ranks agree on variables and objects."""

from __future__ import annotations

import tensorflow as tf

from hora import objects
from hora.process_sets import global_process_set
from horovod.tensorflow import mpi_ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hora.process_sets import ProcessSet


def _read(variable):
    value = getattr(variable, "value", None)
    if value is not None and not callable(value):  # Keras 3 wraps a tf.Variable
        return tf.convert_to_tensor(value)
    if hasattr(variable, "read_value"):
        return variable.read_value()
    return tf.convert_to_tensor(variable)  # a reference variable of TensorFlow 1


def _assign(variable, value):
    """Gives the variable a value; returns the operation where there is one to run later."""
    if hasattr(variable, "assign"):
        return variable.assign(value)
    return tf.compat.v1.assign(variable, value)


def _checked(variables, caller):
    """A list of the variables. Weights as NumPy arrays would be sent, and then have nothing to be written to."""
    if not hasattr(variables, "__iter__"):
        raise TypeError(f"{caller} takes a list of variables, such as model.variables, not {type(variables).__name__}")
    variables = list(variables)
    if tf.executing_eagerly():
        for variable in variables:
            if not hasattr(variable, "assign"):
                raise TypeError(f"{caller} takes variables, such as model.variables, not {type(variable).__name__}")
    return variables


@tf.autograph.experimental.do_not_convert
def broadcast_variables(
    variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Writes the root's values into the variables of all ranks, which are in the same order everywhere.

    Shapes and dtypes are the same on all ranks. `inplace` is accepted: the values are assigned either way. Blocks
    until all ranks of process_set have called it; in the graph of a Session, returns the operation to run. Raises
    TypeError for what is not a list of variables, and otherwise what broadcast() raises.
    """
    variables = _checked(variables, "broadcast_variables")
    name = "broadcast_variables"
    if not tf.executing_eagerly():
        name = mpi_ops._graph_name("BroadcastVariables", name, None)
    values = mpi_ops.broadcast_many(map(_read, variables), root_rank, name, process_set)
    assigned = [_assign(variable, value) for variable, value in zip(variables, values)]
    if tf.executing_eagerly():
        return None
    return tf.group(*[each for each in assigned if each is not None])


@tf.autograph.experimental.do_not_convert
def broadcast_(
    variables: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Writes the root's values into the variables of all ranks, as broadcast_variables() does; returns the
    variables."""
    variables = _checked(variables, "broadcast_")
    name = mpi_ops._graph_name("BroadcastInplace", name or "broadcast_inplace", None)
    values = mpi_ops.broadcast_many(map(_read, variables), root_rank, name, process_set)
    for variable, value in zip(variables, values):
        _assign(variable, value)
    return variables


def broadcast_global_variables(root_rank: int) -> Any:
    """An operation that writes the root's values into all global variables of the graph."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables() belongs to graphs that a Session runs. "
            "In eager mode, name the variables: "
            "hvd.broadcast_variables(model.variables, root_rank=0)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """For MonitoredTrainingSession and estimators: all ranks start from the root's variables."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op = None
        self.device = device

    def begin(self) -> None:
        """Adds the broadcast to the graph."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it: every rank gets the root's variables. Collective."""
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object on every rank; session is accepted. See hora.broadcast_object for how long it blocks and
    what it raises."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """A function of one object that broadcasts it."""
    return lambda obj: objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, as a list by rank; session is accepted. See hora.allgather_object for how long it
    blocks and what it raises."""
    return objects.allgather_object(obj, name, process_set)
