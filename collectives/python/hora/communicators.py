# SPDX-License-Identifier: Apache-2.0
"""Worlds and process sets that a program describes by MPI: mpi4py's communicators, or lists of
ranks of MPI's world."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import struct
import sys
import time

from hora import _library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

#: The variables with which an MPI launcher, or horarun --pmi, describes the job to a process.
_LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_SIZE", "PMI_FD")

_LENGTH = struct.Struct("<Q")
# How long processes wait for each other by default (HOROVOD_GLOO_TIMEOUT_SECONDS).
_GATHER_SECONDS = 30

#: Buffers of exchanges that were given up: MPI may still write into them.
_abandoned: list[Any] = []


def is_communicator(value: Any) -> bool:
    """Whether this is one of mpi4py's. Its module is not imported to find out."""
    return hasattr(value, "Get_size") and hasattr(value, "Get_rank")


def launched_by_mpi() -> bool:
    """Whether the processes of this job are a world of MPI's."""
    return any(name in os.environ for name in _LAUNCHER_VARIABLES)


def mpi_in_use() -> Any:
    """mpi4py's MPI where the program has initialised it; None otherwise."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


def _mpi_world():
    """MPI's world of more than this process, or None. Importing mpi4py initialises MPI."""
    mpi = mpi_in_use()
    if mpi is None and launched_by_mpi():
        try:
            from mpi4py import MPI as mpi
        except ImportError:
            return None
    return mpi.COMM_WORLD if mpi is not None and mpi.COMM_WORLD.Get_size() > 1 else None


class World:
    """A part of the job that becomes a world of its own."""

    comm: Any = None

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.failure = ""
        self._callback = _library.Exchange(self._allgather)  # must live as long as the library may call it

    def describe(self, options: _library.Options) -> None:
        """Fills in this world's rank, size and allgather for hora_init()."""
        options.rank, options.size, options.allgather = self.rank, self.size, self._callback

    def _allgather(self, _context, data, count, received, timeout_ms):
        try:
            own = bytearray(ctypes.string_at(data, count))
            everyones = bytearray(count * self.size)
            if not self._exchange(own, everyones, time.monotonic() + timeout_ms / 1000):
                return 1
            ctypes.memmove(received, bytes(everyones), len(everyones))
            return 0
        except Exception as error:  # the caller is C
            self.failure = f"{type(error).__name__}: {error}"
            return 1

    def _exchange(self, own, everyones, deadline):
        raise NotImplementedError


class _MpiWorld(World):
    def __init__(self, comm):
        super().__init__(comm.Get_rank(), comm.Get_size())
        self.comm = comm

    def _exchange(self, own, everyones, deadline):
        request = self.comm.Iallgather(own, everyones)
        if _completes(request, (own, everyones), deadline):
            return True
        self.failure = f"not all of the {self.size} processes of the communicator have called init in time"
        return False


def _completes(request, buffers, deadline):
    """Whether an exchange of MPI's ends in time."""
    while not request.Test():
        if time.monotonic() > deadline:
            _abandoned.append((request, buffers))
            return False
        time.sleep(0.0005)
    return True


def world_of(comm: Any) -> tuple[World | None, int | None]:
    """What init(comm=...) asks for: a world of its own, or None for all ranks of the job; and how
    many ranks the job must then have, or None if that is not said."""
    if comm is None:
        return None, None
    if isinstance(comm, World):
        return comm, None
    if is_communicator(comm):
        mpi = sys.modules["mpi4py.MPI"]
        if comm == mpi.COMM_NULL or comm.Is_inter():
            raise ValueError("init(comm=...): expected a communicator that this process is a member of")
        whole = mpi.Comm.Compare(comm, mpi.COMM_WORLD) in (mpi.IDENT, mpi.CONGRUENT)
        return (None, comm.Get_size()) if whole else (_MpiWorld(comm), None)
    try:
        ranks = [operator.index(rank) for rank in comm]
    except TypeError:
        raise TypeError(f"init(comm={comm!r}): expected a communicator of MPI, or a list of ranks") from None
    if not ranks:
        return None, None
    if len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise ValueError(f"init(comm={ranks}): expected different ranks, none below 0")
    world = _mpi_world()
    if sorted(ranks) == list(range(len(ranks))) and (world is None or world.Get_size() == len(ranks)):
        return None, len(ranks)
    if world is None:
        raise ValueError(
            f"init(comm={ranks}): some of the ranks become a world of their own only under MPI (mpirun, horarun --mpi "
            "or --pmix) with mpi4py; start that many ranks, or pass process_sets=[...] and use them"
        )
    if max(ranks) >= world.Get_size():
        raise ValueError(f"init(comm={ranks}): MPI's world has {world.Get_size()} ranks")
    if world.Get_rank() not in ranks:
        raise ValueError(f"init(comm={ranks}): this process is rank {world.Get_rank()}, which the list leaves out")
    return _MpiWorld(world.Create_group(world.Get_group().Incl(ranks))), None


def members(comm: Any, world: Any | None) -> list[int] | None:
    """The ranks that a communicator's processes have in `world` (None: all of MPI's); None where this process is not
    one of them."""
    mpi = sys.modules["mpi4py.MPI"]
    world = world or mpi.COMM_WORLD
    if comm == mpi.COMM_NULL:
        return None
    group = comm.Get_group()
    ranks = mpi.Group.Translate_ranks(group, list(range(group.Get_size())), world.Get_group())
    if mpi.UNDEFINED in ranks:
        raise ValueError("a process set made of a communicator has members that are not in the world of init()")
    return sorted(ranks)


def agree_on_members(comms: Iterable[Any], world: Any | None) -> list[list[list[int]]]:
    """For each communicator, the ranks of all that the processes of the world have there: a split
    gives each process another one. Collective over the world; the same on all of its processes."""
    everyones = _gather_all(world or sys.modules["mpi4py.MPI"].COMM_WORLD, [members(comm, world) for comm in comms])
    if len({len(each) for each in everyones}) > 1:
        raise ValueError("the ranks have different numbers of process sets that are made of communicators")
    positions: list[list[list[int]]] = []
    for at_this_place in zip(*everyones):
        distinct: list[list[int]] = []
        for ranks in at_this_place:
            if ranks is not None and ranks not in distinct:
                distinct.append(ranks)
        positions.append(distinct)
    return positions


def _gather_all(world, value):
    """world.allgather(value), within the time that process sets have to come about."""
    mpi = sys.modules["mpi4py.MPI"]
    seconds = float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "") or _GATHER_SECONDS)
    deadline = time.monotonic() + seconds

    def wait(request, *buffers):
        if not _completes(request, buffers, deadline):
            raise TimeoutError(
                f"not all of the {world.Get_size()} processes of the communicator's world have made their process sets "
                f"within {seconds:g} s (HOROVOD_GLOO_TIMEOUT_SECONDS)"
            )

    own = bytearray(json.dumps(value).encode())
    length, lengths = bytearray(_LENGTH.pack(len(own))), bytearray(_LENGTH.size * world.Get_size())
    wait(world.Iallgather(length, lengths), length, lengths)
    counts = [count for (count,) in _LENGTH.iter_unpack(lengths)]
    texts = bytearray(sum(counts))
    wait(world.Iallgatherv([own, mpi.BYTE], [texts, counts, None, mpi.BYTE]), own, texts)
    begins = [sum(counts[:rank]) for rank in range(len(counts))]
    return [json.loads(texts[begin : begin + count]) for begin, count in zip(begins, counts)]
