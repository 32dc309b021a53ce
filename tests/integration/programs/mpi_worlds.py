# SPDX-License-Identifier: Apache-2.0
"""What a program of mpi4py's may give to init() and ProcessSet(); the first argument names one way."""

import os
import sys

import numpy
from mpi4py import MPI

import hora.numpy as hvd

world = MPI.COMM_WORLD
me = world.Get_rank()
half = me % 2


def say(*words):
    """A line in one write: the launchers of MPI mix what ranks write in pieces."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def split():
    # In the opposite order: the communicator's counts.
    return world.Split(color=half, key=-me)


def total(**options):
    return int(hvd.allreduce(numpy.full(1000, 10.0**me), op=hvd.Sum, **options)[999])


def by_communicator():
    hvd.init(split())
    say("world", me, "is", hvd.rank(), "of", hvd.size(), "here", hvd.local_size(), "sum", total())


def by_ranks():
    hvd.init(comm=[rank for rank in range(world.Get_size()) if rank % 2 == half])
    say("world", me, "is", hvd.rank(), "of", hvd.size(), "here", hvd.local_size(), "sum", total())


def alone():
    """One rank of MPI's world trains; the others do something else."""
    if me == 1:
        hvd.init(comm=[1])
        say("world", me, "is", hvd.rank(), "of", hvd.size(), "sum", total())
    world.Barrier()


def by_set():
    part = hvd.ProcessSet(split())
    hvd.init(world, process_sets=[part])
    say("set", me, "is", part.rank(), "of", part.size(), "sum", total(process_set=part), "all", total())


def added():
    hvd.init(world)
    part = hvd.add_process_set(hvd.ProcessSet(split()))
    say("set", me, "is", part.rank(), "of", part.size(), "sum", total(process_set=part), "all", total())


def within():
    """A process set of a world that is a part itself."""
    comm = split()
    first = hvd.ProcessSet(comm.Split(color=0 if comm.Get_rank() == 0 else MPI.UNDEFINED, key=0))
    hvd.init(comm, process_sets=[first])
    say("set", me, first.ranks, first.included(), "sum", total())


def again():
    hvd.init(split())
    before = total()
    hvd.shutdown()
    hvd.init(world)
    middle = total()
    hvd.shutdown()
    hvd.init(split())
    say("sums", me, before, middle, total())


def enabled():
    hvd.init()
    say("mpi", hvd.mpi_enabled(), "threads", hvd.mpi_threads_supported())


def mistakes():
    for comm in ([0, 0], [-1], [99], [(me + 1) % world.Get_size()], MPI.COMM_NULL):
        try:
            hvd.init(comm=comm)
        except ValueError as error:
            say("refused", me, str(error).replace("\n", " "))


globals()[sys.argv[1]]()
