# SPDX-License-Identifier: Apache-2.0
"""Hora: distributed training without the install.

`import hora` provides what needs no framework: init, rank, process sets, objects. The
collectives on arrays are in hora.numpy and hora.jax. Scripts written for Horovod import horovod,
which is the same runtime under Horovod's names.

Threads: after init(), any thread may call any function. A call that waits releases the GIL, and
Ctrl-C interrupts it.
"""

import sys

# Written so that older releases can read it and say what is wrong.
if sys.version_info < (3, 7):  # noqa: UP036
    raise ImportError("Hora needs Python 3.7 or later; this is %d.%d" % sys.version_info[:2])  # noqa: UP031

from hora._version import __version__
from hora.basics import *
from hora.basics import describe
from hora.control import barrier, join, run
from hora.exceptions import (
    CollectiveTimeoutError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    NotInitializedError,
    TensorMismatchError,
    UnsupportedError,
)
from hora.objects import allgather_object, broadcast_object
from hora.process_sets import *
