# SPDX-License-Identifier: Apache-2.0
"""Process sets that init() registers, and the arguments of init()."""

import os

import numpy as np

import hora.numpy as hvd
from support.expect import close, raises

SIZE = int(os.environ.get("HOROVOD_SIZE", "1"))
EVEN = hvd.ProcessSet(range(0, SIZE, 2))
LAST = hvd.ProcessSet([SIZE - 1])

raises(ValueError, hvd.init, process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
raises(ValueError, hvd.init, process_sets="static")
raises(ValueError, hvd.init, process_sets=[0, 1])
raises(ValueError, hvd.init, comm=[1, 2])
assert not hvd.is_initialized() and EVEN.process_set_id is None
if SIZE == 1:
    hvd.init(comm=[0])
else:
    hvd.init(comm=list(range(SIZE)), process_sets=[EVEN, LAST])


def check_ids_are_in_order():
    if SIZE == 1:
        return
    assert (EVEN.process_set_id, LAST.process_set_id) == (1, 2)
    assert EVEN.included() == (hvd.rank() % 2 == 0) and LAST.included() == (hvd.rank() == SIZE - 1)
    if EVEN.included():
        close(hvd.allreduce(np.ones(2), op=hvd.Sum, process_set=EVEN), [EVEN.size()] * 2)
    if LAST.included():
        assert LAST.rank() == 0 and LAST.size() == 1
        close(hvd.allreduce(np.full(2, 7.0), process_set=LAST), [7.0, 7.0])


def check_a_second_init_changes_nothing():
    hvd.init()
    hvd.init(process_sets=[hvd.ProcessSet([0])])
    assert hvd.size() == SIZE
    close(hvd.allreduce(np.ones(1), op=hvd.Sum), [SIZE])


def check_sets_end_with_the_job():
    if SIZE == 1:
        return
    hvd.barrier()
    hvd.shutdown()
    assert EVEN.process_set_id is None and LAST.size() is None
    assert hvd.global_process_set.ranks is None
    for wrong in (5, [0], "static", LAST):
        assert "init(process_sets=" in str(raises(ValueError, hvd.init, process_sets=wrong)), wrong
    hvd.init(process_sets=[LAST])
    assert LAST.process_set_id == 1
    if LAST.included():
        close(hvd.allreduce(np.ones(1), process_set=LAST), [1.0])
    raises(ValueError, hvd.allreduce, np.ones(1), process_set=EVEN)


def check_dynamic_is_accepted():
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    close(hvd.allreduce(np.ones(1), op=hvd.Sum), [SIZE])


def check_disagreement_about_sets_ends_init():
    """The ranks pass different sets: init fails on all of them, and says so."""
    if SIZE == 1:
        return
    hvd.barrier()
    hvd.shutdown()
    sets = [hvd.ProcessSet([0])] if hvd_rank == 0 else [hvd.ProcessSet([1])]
    error = raises(ValueError, hvd.init, process_sets=sets)
    assert str(error), "no reason was given"
    assert not hvd.is_initialized()


hvd_rank = hvd.rank()
