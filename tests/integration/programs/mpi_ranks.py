# SPDX-License-Identifier: Apache-2.0
"""A Horovod script: an allreduce, then one line with rank, size and the backend that moved the tensor. With an
argument, rank 1 fails in the way that it names."""

import os
import signal
import sys

import numpy

import hora
import hora.numpy as hvd

hvd.init()


def say(*words):
    """A line in one write: the launchers of MPI mix what ranks write in pieces."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


say("place", hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
total = hvd.allreduce(numpy.full(1000, hvd.rank() + 1.0), op=hvd.Sum)
used = [backend["id"] for backend in hora.basics.describe()["backends"] if backend["enabled"]]
say("sum", total[999], *used)
if hvd.rank() == 1 and sys.argv[1:] == ["exit"]:
    os._exit(7)
if hvd.rank() == 1 and sys.argv[1:] == ["kill"]:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:]:
    try:
        hvd.allreduce(numpy.ones(10), name="never")
    except Exception as error:
        print("failed:", error, file=sys.stderr, flush=True)
        raise
# No shutdown: the end of the process is enough.
