# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for MXNet: `import horovod.mxnet as hvd`."""

from hora.basics import *
from hora.process_sets import *
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
)
from horovod.common.util import check_extension
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object
from horovod.mxnet.mpi_ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from horovod.mxnet.training import (
    DistributedOptimizer,
    DistributedTrainer,
    broadcast_parameters,
)
