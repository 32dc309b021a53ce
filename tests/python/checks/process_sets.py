# SPDX-License-Identifier: Apache-2.0
"""Process sets: registered at run time, their topology, collectives within them, removal."""

import numpy as np

import hora.numpy as hvd
from support.expect import close, raises


def check_topology_of_the_global_set():
    world = hvd.global_process_set
    assert world.process_set_id == 0
    assert world.size() == hvd.size() and world.rank() == hvd.rank() and world.included()
    assert world.ranks == list(range(hvd.size()))
    assert not hvd.remove_process_set(world)


def check_not_registered():
    loose = hvd.ProcessSet([0])
    assert loose.process_set_id is None and loose.size() is None and loose.rank() is None
    assert loose.included() is None
    assert not hvd.remove_process_set(loose)
    raises(ValueError, hvd.allreduce, np.ones(1), process_set=loose)
    raises(ValueError, hvd.ProcessSet, [0.5])
    raises(ValueError, hvd.ProcessSet, ["0"])
    raises(TypeError, hvd.ProcessSet, 5)
    assert "from 0" in str(raises(ValueError, hvd.add_process_set, [2**32]))  # and not rank 0


def check_even_and_odd():
    if hvd.size() < 2:
        return
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    odd = hvd.add_process_set(hvd.ProcessSet(list(range(1, hvd.size(), 2))[::-1]))
    assert even.process_set_id != odd.process_set_id
    assert odd.ranks == list(range(1, hvd.size(), 2))
    own, other = (even, odd) if hvd.rank() % 2 == 0 else (odd, even)
    assert own.included() and not other.included()
    assert own.rank() == hvd.rank() // 2 and own.size() == len(own.ranks)
    raises(ValueError, other.rank)
    raises(ValueError, hvd.allreduce, np.ones(1), process_set=other)
    total = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, process_set=own, name="same")
    close(total, [sum(own.ranks)])
    mean = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Average, process_set=own)
    close(mean, [sum(own.ranks) / len(own.ranks)])
    close(hvd.allgather(np.array([hvd.rank()]), process_set=own), own.ranks)
    root = own.ranks[-1]
    close(hvd.broadcast(np.array([hvd.rank()]), root, process_set=own), [root])
    raises(ValueError, hvd.broadcast, np.ones(1), other.ranks[0], process_set=own)
    rows = np.arange(own.size() * 2.0)
    close(hvd.reducescatter(rows, op=hvd.Sum, process_set=own), rows[own.rank() * 2 : own.rank() * 2 + 2] * own.size())
    close(hvd.alltoall(np.full(own.size(), float(hvd.rank())), process_set=own), own.ranks)
    assert hvd.broadcast_object(hvd.rank(), own.ranks[0], process_set=own) == own.ranks[0]
    assert hvd.allgather_object(hvd.rank(), process_set=own) == own.ranks
    hvd.barrier(process_set=own)
    assert hvd.remove_process_set(even) and hvd.remove_process_set(odd)
    assert even.process_set_id is None
    raises(ValueError, hvd.allreduce, np.ones(1), process_set=even)


def check_unequal_use_does_not_disturb_names():
    """Operations without a name in a set do not move the names of the others."""
    if hvd.size() < 2:
        return
    alone = hvd.add_process_set([0])
    if hvd.rank() == 0:
        for _ in range(3):
            hvd.allreduce(np.ones(1), process_set=alone)
            hvd.allgather(np.ones(1), process_set=alone)
    close(hvd.allreduce(np.ones(1), op=hvd.Sum), [hvd.size()])
    hvd.remove_process_set(alone)
    if hvd.size() > 2:  # the id may be the same as before, the members are not
        again = hvd.add_process_set([0, hvd.size() - 1])
        if again.included():
            close(hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=again), [2])
        hvd.remove_process_set(again)


def check_refused():
    raises(ValueError, hvd.add_process_set, list(range(hvd.size())))  # the world has an id
    if hvd.size() >= 2:
        first = hvd.add_process_set([0, 1] if hvd.size() > 2 else [1])
        raises(ValueError, hvd.add_process_set, first)
        raises(ValueError, hvd.add_process_set, list(first.ranks))
        hvd.remove_process_set(first)
    raises(ValueError, hvd.add_process_set, [0, 0])
    raises(ValueError, hvd.add_process_set, [hvd.size()])


def check_introspection():
    from horovod.common.process_sets import get_process_set_ids_and_ranks, is_process_set_included

    known = get_process_set_ids_and_ranks()
    assert known == {0: list(range(hvd.size()))}, known
    assert is_process_set_included(0)
    if hvd.size() >= 2:
        pair = hvd.add_process_set([1])
        assert get_process_set_ids_and_ranks()[pair.process_set_id] == [1]
        hvd.remove_process_set(pair)
