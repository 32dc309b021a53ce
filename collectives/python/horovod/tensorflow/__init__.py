# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for TensorFlow: `import horovod.tensorflow as hvd`."""

from hora.basics import *
from hora.process_sets import *
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
)
from horovod.common.util import check_extension
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    broadcast,
    check_num_rank_power_of_2,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from horovod.tensorflow.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs


def __getattr__(name):
    """Creates names that need Keras on first use: TensorFlow alone does not import it."""
    if name == "SyncBatchNormalization":
        import tensorflow as tf

        from horovod.tensorflow.sync_batch_norm import make_class

        globals()[name] = make_class(tf.keras)
        return globals()[name]
    if name in ("elastic", "keras"):
        import importlib

        return importlib.import_module(f"horovod.tensorflow.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
