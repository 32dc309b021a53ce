# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for TensorFlow: `import horovod.tensorflow as hvd`."""

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
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather,
    alltoall,
    broadcast,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
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
