# SPDX-License-Identifier: Apache-2.0
"""Many operations leak nothing; Ctrl-C interrupts a wait."""

import gc
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import torch

import horovod.torch as hvd
from hora import operations

OPERATIONS = int(os.environ.get("HORA_TEST_OPERATIONS", "100000"))


def footprint():
    gc.collect()
    status = pathlib.Path("/proc/self/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "kilobytes": resident,
    }


def some_of_everything(count):
    """About `count` operations of every kind."""
    tensor = torch.ones(10)
    rows = torch.ones(hvd.size(), 4)
    differentiated = torch.ones(4, requires_grad=True)
    for _ in range(count // 20):
        for _ in range(4):
            hvd.allreduce(tensor)
            hvd.allreduce_(tensor, op=hvd.Max, name="in place")
        handles = [
            hvd.allreduce_async(tensor),
            hvd.allgather_async(rows),
            hvd.broadcast_async(tensor, 0),
            hvd.alltoall_async(rows),
            hvd.reducescatter_async(rows),
        ]
        for handle in handles:
            hvd.synchronize(handle)
        hvd.grouped_allreduce([tensor, rows])
        hvd.allreduce(differentiated).sum().backward()
        differentiated.grad = None
        hvd.barrier()


def refused(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind:
        return
    raise AssertionError(f"{function} was not refused")


def failures_and_process_sets(count):
    """About `count` operations, half of which fail: on this rank alone, or on all. Sets come and go."""
    tensor, members = torch.ones(10), hvd.global_process_set
    for index in range(count // 10):
        if index % 20 == 0 and hvd.size() > 1:
            members = hvd.add_process_set([hvd.size() - 1])
        if members.included():
            hvd.allreduce(tensor, process_set=members)
            hvd.synchronize(hvd.allgather_async(tensor, process_set=members))
        else:
            refused(ValueError, hvd.allreduce, tensor, process_set=members, name="foreign")
        if index % 20 == 19:
            hvd.remove_process_set(members)
        handle = hvd.allreduce_async_(tensor, name="twice")
        refused(ValueError, hvd.grouped_allreduce_async, [tensor, tensor], name=None, op=17)
        hvd.synchronize(handle)
        refused(ValueError, hvd.broadcast, tensor, hvd.size(), name="no such root")
        if hvd.size() > 1:
            refused(hvd.HorovodInternalError, hvd.allreduce, torch.ones(3 + hvd.rank()), name="shape")
            refused(hvd.HorovodInternalError, hvd.grouped_allreduce, [tensor, torch.ones(3 + hvd.rank())], name="group")
            refused(hvd.HorovodInternalError, hvd.allgather, tensor if hvd.rank() else tensor.double(), name="dtype")
        hvd.barrier()
    if index % 20 != 19:
        hvd.remove_process_set(members)


def check_nothing_is_left_after_many_operations():
    nothing_is_left_after(some_of_everything, OPERATIONS // 2)


def check_nothing_is_left_after_failures_and_process_sets():
    nothing_is_left_after(failures_and_process_sets, max(400, OPERATIONS // 20))


def grown(before, after, half):
    """What is more by as much as a leak would make it."""
    # A leak of one object or block for each operation would be `half` of them; of 64 bytes for each,
    # next to what an allocator takes in one piece, the kilobytes.
    limits = {
        "descriptors": 1,
        "threads": 1,
        "objects": half / 50,
        "blocks": half / 50,
        "kilobytes": 2048 + half * 64 / 1024,
    }
    return [name for name, limit in limits.items() if after[name] - before[name] >= limit]


def nothing_is_left_after(work, half):
    """In the first round caches, free lists and pools fill, and now and then in a later one; a leak grows in each."""
    work(half)
    seen = [footprint()]
    for _ in range(4):
        work(half)
        seen.append(footprint())
        # All ranks look at another round, or none does.
        if hvd.allreduce(torch.tensor(float(len(grown(*seen[-2:], half)))), op=hvd.Sum, name="grown") == 0:
            break
    assert operations.in_flight_count() == 0
    assert not grown(*seen[-2:], half), seen


def check_results_of_failures_do_not_pile_up():
    if hvd.size() == 1:
        return
    before = footprint()
    for index in range(200):
        try:
            hvd.allreduce(torch.ones(1000 + hvd.rank()), name=f"mismatch {index}")
            raise AssertionError("different shapes were reduced")
        except hvd.HorovodInternalError:
            pass
    after = footprint()
    assert operations.in_flight_count() == 0
    assert after["kilobytes"] - before["kilobytes"] < 4096, (before, after)


def interrupted(wait, then):
    """Calls wait() and interrupts it; `then` is called once KeyboardInterrupt has come."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        wait()
        raise AssertionError("the wait ended without an interrupt")
    except KeyboardInterrupt:
        then()
    finally:
        timer.join()


def remove_folder(folder):
    """Once every rank is done with it."""
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


def check_interrupt_ends_a_wait():
    """Rank 0 waits for an operation that the others start only after they have seen that the
    interrupt arrived: if it did not end the wait, this check would never end."""
    if hvd.size() == 1:
        return
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    for what in ("handle", "call"):
        sign = pathlib.Path(folder, what)
        if hvd.rank() == 0:
            tensor = torch.ones(3)
            if what == "handle":
                handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name=what)
                interrupted(lambda: hvd.synchronize(handle), sign.touch)
                assert hvd.synchronize(handle) is tensor  # still there, and can be awaited again
                assert tensor.tolist() == [hvd.size()] * 3
            else:
                interrupted(lambda: hvd.allreduce_(tensor, op=hvd.Sum, name=what), sign.touch)
        else:
            deadline = time.monotonic() + 60
            while not sign.exists():
                assert time.monotonic() < deadline, "rank 0 was not interrupted"
                time.sleep(0.01)
            hvd.allreduce_(torch.ones(3), op=hvd.Sum, name=what)
        hvd.barrier()
    remove_folder(folder)
    hvd.allreduce(torch.ones(1))  # a later operation clears what the interrupted one held
    assert operations.in_flight_count() == 0


def check_interrupt_ends_init():
    """Like check_interrupt_ends_a_wait, for a call that waits for all ranks."""
    if hvd.size() == 1:
        return
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    sign = pathlib.Path(folder, "sign")
    if hvd.rank() == 0:
        members = hvd.ProcessSet([0])
        interrupted(lambda: hvd.add_process_set(members), sign.touch)
    else:
        deadline = time.monotonic() + 60
        while not sign.exists():
            assert time.monotonic() < deadline, "rank 0 was not interrupted"
            time.sleep(0.01)
        hvd.add_process_set([0])
    remove_folder(folder)
