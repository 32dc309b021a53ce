# SPDX-License-Identifier: Apache-2.0
"""A signal whose handler raises, at any moment of an operation: what the operation reads and writes
stays its own until it is done."""

import contextlib

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
