# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and broadcasting Keras's variables as NumPy arrays: the same for every backend."""

from __future__ import annotations

import numpy as np

from hora import batches
from hora.aligned_arrays import ops
from hora.process_sets import global_process_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet


def to_array(value: Any) -> Any:
    """A value of any framework as a NumPy array."""
    if isinstance(value, np.ndarray):
        return value
    inner = getattr(value, "value", None)  # a Keras 3 variable
    if inner is not None and not callable(inner) and hasattr(value, "assign"):
        value = inner
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu()
    if hasattr(value, "numpy"):
        value = value.numpy()
    return np.asarray(value)


def broadcast_variables(
    variables: Any, root_rank: int, name: str = "keras_variables", process_set: ProcessSet = global_process_set
) -> None:
    """Writes the root's values into the variables of all ranks, which are in the same order and of the same shapes
    everywhere.

    Blocks until all ranks of process_set have called it. Raises what hora.numpy.broadcast raises."""
    variables = list(variables)
    arrays = [np.ascontiguousarray(to_array(variable)).reshape(tuple(variable.shape)) for variable in variables]

    def begin():
        for index, array in enumerate(arrays):
            yield ops.broadcast((array,), root_rank, f"{name}.{index}", process_set)

    for variable, value in zip(variables, batches.run(begin)):
        variable.assign(value)


def model_variables(model: Any) -> list[Any]:
    """What a model's ranks must agree on; not its random states, which may differ."""
    return list(model.weights)


def optimizer_variables(optimizer: Any) -> list[Any]:
    """The variables of an optimizer of Keras 2 or 3; [] without an optimizer."""
    if optimizer is None:
        return []
    variables = getattr(optimizer, "variables", None)
    if variables is None:
        return []
    variables = list(variables() if callable(variables) else variables)
    return [variable for variable in variables if hasattr(variable, "assign")]
