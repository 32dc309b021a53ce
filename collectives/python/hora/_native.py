# SPDX-License-Identifier: Apache-2.0
"""libhora (hora.h), loaded once, with its numbers and errors. Calls that never wait keep the GIL (PyDLL); calls
that wait give it back (CDLL). _requests packs what _calls submits and waits for.
"""

from __future__ import annotations

import os
import threading

from hora import exceptions
from hora._library import ABI_VERSION, Options, Tensor, load  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OK = 0
IN_PROGRESS = 1
INVALID_ARGUMENT = 2
NOT_INITIALIZED = 3
MISMATCH = 4
ABORTED = 5
TIMED_OUT = 6
UNSUPPORTED = 7
INTERNAL = 8
REMOVED = 9

ALLREDUCE = 0
ALLGATHER = 1
BROADCAST = 2
JOIN = 3
ALLTOALL = 5
BARRIER = 6
REDUCESCATTER = 7

#: Those on tensors, by their names.
OPERATIONS = {
    "allreduce": ALLREDUCE,
    "allgather": ALLGATHER,
    "broadcast": BROADCAST,
    "alltoall": ALLTOALL,
    "reducescatter": REDUCESCATTER,
}

AVERAGE = 0
SUM = 1
ADASUM = 2
MIN = 3
MAX = 4
PRODUCT = 5

CPU_DEVICE = -1
GLOBAL_PROCESS_SET = 0

_library: Any = None  # a Library, or in a forked child a _ForkedLibrary
_load_lock = threading.Lock()


def library() -> Any:
    """The loaded library; loads it on the first call. ImportError says where it was looked for."""
    global _library
    if _library is None:
        with _load_lock:
            if _library is None:
                _library = load()
    return _library


def _forked_child():
    """After a rank has forked, the library's threads are gone and its sockets belong to the parent. Who has joined no
    job yet, or has left it, leaves its child free to join one."""
    global _library
    if _library is not None and _library.is_initialized():
        _library = _ForkedLibrary(_library)


os.register_at_fork(after_in_child=_forked_child)


class _ForkedLibrary:
    """Stands in for the library in a forked child (a data loader's worker): it may query its parent's rank;
    any other call is an error, and releasing the parent's objects does nothing."""

    path = None
    _OF_THE_PARENT = (
        "is_initialized",
        "rank",
        "size",
        "local_rank",
        "local_size",
        "cross_rank",
        "cross_size",
        "is_homogeneous",
    )

    def __init__(self, library):
        self._library = library

    def release(self, handle):
        return None

    def shutdown(self):
        return OK

    def __getattr__(self, name):
        if name in self._OF_THE_PARENT:
            return getattr(self._library, name)
        raise exceptions.NotInitializedError(
            "this process was forked from a rank of the job; collectives work in the rank itself, "
            "not in a child that it forks (start children with the spawn method to use them there)"
        )


def failure(status: int, text: str, during_init: bool = False) -> BaseException:
    """The exception for a status that is not OK."""
    text = text or library().status_name(status).decode()
    if status == INVALID_ARGUMENT:
        return ValueError(text)
    if status == MISMATCH:
        return exceptions.TensorMismatchError(text)
    if status == NOT_INITIALIZED:
        return exceptions.NotInitializedError.before_init(text)
    if status == UNSUPPORTED:
        return exceptions.UnsupportedError(text)
    if status == REMOVED:
        return exceptions.RemovedFromJob(text)
    if status == TIMED_OUT:
        return exceptions.CollectiveTimeoutError(text)
    return exceptions.HorovodInternalError(text)


def check(status: int) -> None:
    """Raises the calling thread's last error unless the status is OK."""
    if status != OK:
        raise failure(status, library().last_error().decode(errors="replace"))


def check_initialized(caller: str) -> None:
    """Raises unless the job was joined."""
    if not library().is_initialized():
        raise exceptions.NotInitializedError.before_init(f"{caller}() was called before init()")


def interruptible(call: Callable[[], Any]) -> Any:
    """Runs a call that may block for long (connecting to the other ranks). If the caller is the main
    thread, the call runs on another one, so that Ctrl-C interrupts it at once; the call itself continues."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome = []

    def body():
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=body, name="hora-call", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    value, error = outcome[0]
    if error is not None:
        raise error
    return value
