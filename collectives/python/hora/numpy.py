# SPDX-License-Identifier: Apache-2.0
"""The collectives on NumPy arrays: `import hora.numpy as hvd`.

Contiguous arrays are read and written where they are; others are copied.
"""

from hora import (  # noqa: F401
    Adasum,
    Average,
    HorovodInternalError,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather_object,
    broadcast_object,
    cross_rank,
    cross_size,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hora.array_face import ArrayFace
from hora.numpy_arrays import NumpyFramework
from hora.tensor_ops import TensorOps

_face = ArrayFace(TensorOps(NumpyFramework()))

allreduce = _face.allreduce
allreduce_ = _face.allreduce_
allreduce_async = _face.allreduce_async
allreduce_async_ = _face.allreduce_async_
grouped_allreduce = _face.grouped_allreduce
grouped_allreduce_ = _face.grouped_allreduce_
grouped_allreduce_async = _face.grouped_allreduce_async
allgather = _face.allgather
allgather_async = _face.allgather_async
grouped_allgather = _face.grouped_allgather
grouped_allgather_async = _face.grouped_allgather_async
broadcast = _face.broadcast
broadcast_ = _face.broadcast_
broadcast_async = _face.broadcast_async
broadcast_async_ = _face.broadcast_async_
alltoall = _face.alltoall
alltoall_async = _face.alltoall_async
reducescatter = _face.reducescatter
reducescatter_async = _face.reducescatter_async
grouped_reducescatter = _face.grouped_reducescatter
grouped_reducescatter_async = _face.grouped_reducescatter_async
poll = _face.poll
synchronize = _face.synchronize
barrier = _face.barrier
join = _face.join
