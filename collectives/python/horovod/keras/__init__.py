# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for Keras, for every backend of Keras: `import horovod.keras as hvd`.

With the TensorFlow backend, Compression.none and the others of horovod.tensorflow work as well.
"""

from __future__ import annotations

import keras

from hora.basics import *
from hora.basics import Average
from hora.objects import allgather_object, broadcast_object
from hora.process_sets import *
from hora.process_sets import ProcessSet, global_process_set
from horovod._keras import models as _models
from horovod._keras.compression import Compression
from horovod._keras.optimizer import PartialDistributedOptimizer
from horovod._keras.optimizer import distribute as _distribute
from horovod._keras.values import allgather, allreduce, broadcast, reducescatter
from horovod._keras.variables import broadcast_variables
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
)
from horovod.keras import callbacks, elastic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a Keras optimizer so that its gradients are reduced over the ranks before each step.

    Returns an optimizer of a class that derives from that of the given one and shares its state. Does not block.

    Args:
        name: prefix of the names by which ranks match gradients. Default: made of the optimizer's class
        device_dense, device_sparse: accepted; gradients are reduced where they are
        compression: Compression.none, .fp16 or .bf16: wider floats travel as that type
        sparse_as_dense: reduce sparse gradients as dense tensors
        gradient_predivide_factor: with op=Average, divides by this before the sum and by size/factor after it
        op: Average or Sum
        backward_passes_per_step: how many steps to add up before gradients are reduced and applied
        average_aggregated_gradients: divide those sums by the number of steps
        num_groups: the older spelling of a number for groups
        groups: a number of groups, or lists of variables, whose gradients are reduced together
        process_set: the ranks that take part; the others keep their own gradients
        scale_local_gradients: divide the gradients of local variables by the size of the set

    Raises TypeError for what is not a Keras optimizer, and ValueError for one that is distributed already or an
    argument out of range.
    """
    return _distribute(**locals())


def broadcast_global_variables(root_rank: int) -> Any:
    """Horovod's name for what a graph of a Session needs; there is none here."""
    raise RuntimeError(
        "broadcast_global_variables() belongs to graphs that a Session runs. Use "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank), or "
        "hvd.broadcast_variables(model.weights, root_rank)"
    )


load_model = _models.loader(keras)
