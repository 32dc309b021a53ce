# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for tf.keras: `import horovod.tensorflow.keras as hvd`."""

from __future__ import annotations

import tensorflow as tf

from hora.basics import *
from hora.basics import Average
from hora.process_sets import *
from hora.process_sets import ProcessSet, global_process_set
from horovod._keras import models as _models
from horovod._keras.optimizer import PartialDistributedOptimizer
from horovod._keras.optimizer import distribute as _distribute
from horovod._keras.values import allgather, allreduce, broadcast, reducescatter
from horovod.tensorflow import (
    Compression,
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
)
from horovod.tensorflow.keras import callbacks, elastic

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
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a Keras optimizer so that its gradients are reduced over the ranks before each step.

    The arguments and errors are those of horovod.keras.DistributedOptimizer, in another order.
    """
    return _distribute(**locals())


load_model = _models.loader(tf.keras)
