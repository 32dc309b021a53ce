# SPDX-License-Identifier: Apache-2.0
"""A signal whose handler raises, at any moment of an operation: what the operation reads and writes
stays its own until it is done."""

import contextlib
import itertools
import os
import sys

import numpy as np

import hora.numpy as hvd
from hora import _native, operations

SIZE = 300_000
UNTOUCHED = -7.0


class Interrupted(BaseException):
    """As KeyboardInterrupt, but no other one."""


@contextlib.contextmanager
def interrupted_after(name):
    """The next call of the library of this name is made, and then a handler raises."""
    library = _native.library()
    real = getattr(library, name)

    def call(*arguments):
        setattr(library, name, real)
        real(*arguments)
        raise Interrupted

    setattr(library, name, call)
    try:
        yield
        raise AssertionError("nothing was interrupted")
    except Interrupted:
        pass
    finally:
        setattr(library, name, real)


def late(name, start, again=None):
    """Rank 0 is interrupted in it, and the others come when it has used all memory again that it
    could get. `start` waits for its result; `again` does once more."""
    others = []
    if hvd.rank() == 0:
        with interrupted_after(name):
            start()
        others = [np.full(SIZE, UNTOUCHED) for _ in range(8)]
    hvd.barrier()
    if hvd.rank() != 0:
        result = start()
        for array in result if isinstance(result, list) else [result]:
            assert (array == array.flat[0]).all()
    hvd.barrier()
    for array in others:
        assert (array == UNTOUCHED).all(), f"{name}: it was written to"
    if hvd.rank() == 0 and again is not None:
        again()
    hvd.allreduce(np.ones(1))  # and what is done is freed
    assert operations.in_flight_count() == 0, name


def check_interrupted_operations():
    if hvd.size() == 1:
        return
    for name in ("submit", "wait"):
        started = []

        def start():
            started.append(hvd.allreduce_async(np.ones(SIZE), op=hvd.Sum, name=f"async {name}"))
            return hvd.synchronize(started[0])

        def again():
            """A caller that has the handle still gets the result."""
            for handle in started:
                assert (hvd.synchronize(handle) == hvd.size()).all()

        late(name, start, again)
        late(name, lambda: hvd.allgather(np.ones(SIZE), name=f"gather {name}"))
        late(name, lambda: hvd.grouped_allreduce([np.ones(SIZE)] * 2, name=f"group {name}"))


def check_interrupted_blocking_calls():
    """The second such call is packed by the first one. Neither is used while the operation is in flight."""
    if hvd.size() == 1:
        return
    for name in ("run", "wait"):
        for call in (
            lambda: hvd.allreduce(np.ones(SIZE), op=hvd.Sum, name="now"),
            lambda: hvd.broadcast(np.full(SIZE, 2.0), 1, name="now"),
            lambda: hvd.allreduce(np.ones(SIZE), op=hvd.Sum),
        ):
            for _ in range(3):
                late(name, call)
                assert (call() == 2).all()


def interrupted_at(line, handle):
    """synchronize(), with a handler that raises before the line of the package that runs as number `line`. None if it
    raised. Signals arrive in calls, and none comes between the end of a handle and the return."""
    package = os.path.dirname(operations.__file__)
    left = itertools.count(line, -1)

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line" and handle in operations._in_flight and next(left) == 0:
            raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        return hvd.synchronize(handle)
    except Interrupted:
        return None
    finally:
        sys.settrace(None)


def check_a_result_survives_an_interruption_anywhere():
    columns = np.ones((4, 4))[:, :2]
    for start, right in (
        (lambda name: hvd.allreduce_async(np.ones(4), op=hvd.Sum, name=name), [hvd.size()] * 4),
        (lambda name: hvd.allreduce_async_(columns, op=hvd.Average, name=name), columns),
        (lambda name: hvd.allgather_async(np.ones(2), name=name), [1] * 2 * hvd.size()),
    ):
        for line in itertools.count():
            handle = start(f"line {line}")
            result = interrupted_at(line, handle)
            is_whole = result is not None
            if not is_whole:
                assert hvd.poll(handle) in (True, False)
                result = hvd.synchronize(handle)
            assert (result == np.array(right)).all(), f"line {line}: {result}"
            assert hvd.synchronize(handle) is None
            if is_whole:
                break
        assert line > 8  # there were places to be interrupted at
    assert operations.in_flight_count() == 0
