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
    """The Keras optimizer with its gradients reduced over the ranks of process_set before each
    step. groups: a number of groups, or lists of variables, that are reduced together. The device
    arguments are accepted: gradients are reduced where they are."""
    return _distribute(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        num_groups=num_groups,
        groups=groups,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def broadcast_global_variables(root_rank: int) -> Any:
    """Horovod's name for what a graph of a Session needs; there is none here."""
    raise RuntimeError(
        "broadcast_global_variables() belongs to graphs that a Session runs. Use "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank), or "
        "hvd.broadcast_variables(model.weights, root_rank)"
    )


load_model = _models.loader(keras)
