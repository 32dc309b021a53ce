# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks that communicate among themselves."""

from __future__ import annotations

import ctypes

from hora import _native, communicators, exceptions, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What every framework's interface offers, too: each does `from hora.process_sets import *`.
__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]

_MOST_RANK = 2**31 - 1


class ProcessSet:
    """Some of the ranks of the job, which can run collectives among themselves.

    ProcessSet([0, 2]) names ranks; under MPI, ProcessSet(communicator) names the members of a communicator of mpi4py,
    and of a split each process gives its own part. A set can be used once it is registered on all ranks, by
    init(process_sets=[...]) or add_process_set(). TypeError or ValueError for anything but different ranks from 0 on.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Any = None) -> None:
        if communicators.is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        if ranks_or_comm is not None and not hasattr(ranks_or_comm, "__iter__"):
            raise TypeError(f"ProcessSet({ranks_or_comm!r}): expected a list of ranks, or a communicator of MPI")
        ranks = list(ranks_or_comm if ranks_or_comm is not None else [])
        if any(isinstance(rank, bool) or not hasattr(rank, "__index__") for rank in ranks):
            raise ValueError(f"the ranks of a process set are integers, not {ranks}")
        self.ranks = sorted(rank.__index__() for rank in ranks)
        # ctypes would take such a number for another one.
        if any(not 0 <= rank <= _MOST_RANK for rank in self.ranks):
            raise ValueError(f"a process set of the ranks {self.ranks}: a rank is a number from 0 to {_MOST_RANK}")

    def _registered(self):
        return self.process_set_id is not None and _native._library is not None

    def size(self) -> Any:
        """The number of ranks in the set; None before it is registered. NotInitializedError after shutdown()."""
        if not self._registered():
            return None
        value = _native.library().process_set_size(self.process_set_id)
        if value < 0:
            raise exceptions.NotInitializedError(f"{self} is not registered: call init() first")
        return value

    def rank(self) -> Any:
        """This process's rank within the set, from 0 on; None before the set is registered. ValueError if the process
        is not a member."""
        if not self._registered():
            return None
        self.size()  # raises where there is no such set
        value = _native.library().process_set_rank(self.process_set_id)
        if value < 0:
            raise ValueError(f"this process is not a member of {self}")
        return value

    def included(self) -> bool | None:
        """Whether this process is a member; None while that is not known."""
        if not self._registered():
            return None
        if _native.library().process_set_size(self.process_set_id) < 0:
            return None
        return _native.library().process_set_rank(self.process_set_id) >= 0

    def __repr__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks; it exists from the start, before the ranks are known."""

    process_set_id = _native.GLOBAL_PROCESS_SET

    def __init__(self):
        super().__init__([])
        self.ranks = None

    def __reduce__(self):
        return "global_process_set"


global_process_set = _GlobalProcessSet()
_registered_sets: dict[int, ProcessSet] = {}
# Where init(comm=) has made a part of the job a world of its own.
_world_communicator: Any = None


def _settle_communicators(sets, world):
    """The sets to register, where some are made of communicators: a split makes several of one. Collective."""
    made_of_comms = [each for each in sets if each.mpi_comm is not None]
    if not made_of_comms:
        return sets
    positions = communicators.agree_on_members((each.mpi_comm for each in made_of_comms), world)
    settled = [each for each in sets if each.mpi_comm is None]
    for own, parts in zip(made_of_comms, positions):
        # A process without a part of its own gets the first, which it is not a member of.
        mine = communicators.members(own.mpi_comm, world) or (parts[0] if parts else None)
        for ranks in parts:
            if ranks == mine:
                own.ranks = ranks
            settled.append(own if ranks == mine else ProcessSet(ranks))
    return settled


def _setup(static_sets, world_communicator=None):
    """Called by init with the sets that it registered, in order; by shutdown with None."""
    global _world_communicator
    _world_communicator = world_communicator
    for each in _registered_sets.values():
        each.process_set_id = None
    _registered_sets.clear()
    if static_sets is None:
        global_process_set.ranks = None
        return
    global_process_set.ranks = list(range(_native.library().size()))
    for index, each in enumerate(static_sets):
        each.process_set_id = index + 1
        _registered_sets[index + 1] = each


def _known_ranks():
    native = _native.library()
    count = native.process_set_ids(None, 0)
    ids = (ctypes.c_int32 * max(count, 1))()
    native.process_set_ids(ids, count)
    known = {}
    for set_id in ids[:count]:
        members = native.process_set_ranks(set_id, None, 0)
        ranks = (ctypes.c_int32 * max(members, 1))()
        native.process_set_ranks(set_id, ranks, members)
        known[set_id] = list(ranks[:members])
    return known


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Every registered set: {id: ranks}."""
    return _known_ranks()


def is_process_set_included(process_set_id: int) -> bool:
    """Whether this process is a member of the set with that id."""
    return _native.library().process_set_rank(process_set_id) >= 0


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a set (or a list of ranks) while the job runs, and returns it.

    Collective: every rank of the job calls it with the same ranks, members or not. Blocks until all have. Raises
    ValueError if the set, or one of the same ranks, is registered already, NotInitializedError before init(),
    TensorMismatchError if the ranks disagree, and HorovodInternalError if a rank is lost or has left the job.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is already registered")
    _native.check_initialized("add_process_set")
    native = _native.library()
    for each in _settle_communicators([process_set], _world_communicator):
        _add(native, each)
    return process_set


def _add(native, process_set):
    for set_id, ranks in _known_ranks().items():
        if ranks == process_set.ranks:
            raise ValueError(f"a process set with the ranks {ranks} already exists: its id is {set_id}")
    new_id = _id_from(native.process_set_add, process_set.ranks)
    process_set.process_set_id = new_id
    _registered_sets[new_id] = process_set
    names.forget(new_id)


def _id_from(call, members):
    ranks = (ctypes.c_int32 * len(members))(*members)
    new_id = ctypes.c_int32(-1)

    def add():
        status = call(ranks, len(ranks), ctypes.byref(new_id))
        return status, _native.library().last_error().decode(errors="replace")

    status, text = _native.interruptible(add)
    if status != _native.OK:
        raise _native.failure(status, text)
    return new_id.value


def process_set_by_id(set_id: int) -> ProcessSet:
    """A ProcessSet for a set that the runtime knows by this id; it has no list of ranks."""
    process_set = ProcessSet([])
    process_set.process_set_id = set_id
    return process_set


def process_set_of(ranks: Sequence[int]) -> int:
    """The id of the set of these ranks, which is made if there is none.

    Not collective: the other ranks of the job need not call it. Blocks until the set is there. Raises as
    add_process_set().
    """
    _native.check_initialized("process_set_of")
    return _id_from(_native.library().process_set_of, ranks)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set; returns False if there is nothing to remove: the global set, or one that is not registered.

    Collective: every rank of the job calls it. Blocks until all have. Operations in flight in the set fail. TypeError
    for what is not a ProcessSet.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"remove_process_set({process_set!r}): expected a ProcessSet")
    set_id = process_set.process_set_id
    if set_id is None or set_id == _native.GLOBAL_PROCESS_SET:
        return False
    native = _native.library()

    def remove():
        status = native.process_set_remove(set_id)
        return status, native.last_error().decode(errors="replace")

    status, text = _native.interruptible(remove)
    if status != _native.OK:
        raise _native.failure(status, text)
    _registered_sets.pop(set_id, None)
    process_set.process_set_id = None
    names.forget(set_id)
    return True
