# SPDX-License-Identifier: Apache-2.0
"""The interface to libhora (hora.h) through ctypes. No other module of this package uses the library.

Requests are packed into a scratch buffer with one struct.pack_into each, which costs a fraction of
filling ctypes fields. Calls that never wait keep the GIL (PyDLL); calls that wait give it back
(CDLL) and wait in slices, so that Ctrl-C interrupts them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading

from hora import exceptions
from hora._library import ABI_VERSION, Options, Tensor, load  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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

AVERAGE = 0
SUM = 1
ADASUM = 2
MIN = 3
MAX = 4
PRODUCT = 5

CPU_DEVICE = -1
GLOBAL_PROCESS_SET = 0

# How long one wait stays inside the library before Python looks for signals. A signal's handler
# runs at most so late.
_WAIT_SLICE_MS = 50

# struct hora_request (hora.h): struct_size operation | name | input | output | process_set
# reduce_op root_rank priority | prescale postscale | splits split_count reserved | stream
_REQUEST = struct.Struct("@IiPPPiiiiPPiiiiiiiiddPiiP")
_REQUEST_SIZE = _REQUEST.size
_INT64 = [struct.Struct(f"@{n}q") for n in range(9)]

# One handle, one request and its shape in one go, for shapes of up to eight extents; the name
# follows at a fixed place.
_SINGLE = [struct.Struct(f"@qIiPPPiiiiPPiiiiiiiiddPiiP{n}q") for n in range(9)]
_HANDLE = _INT64[1]
_SINGLE_SHAPE = 8 + _REQUEST_SIZE
_SINGLE_NAME = _SINGLE_SHAPE + 8 * 8


class Request:
    """One operation on one tensor, as struct hora_request says it. A plain carrier: the fields
    that an operation does not use keep their defaults."""

    __slots__ = (
        "address",
        "device",
        "dtype",
        "name",
        "operation",
        "output",
        "postscale",
        "prescale",
        "priority",
        "process_set",
        "reduce_op",
        "root",
        "shape",
        "splits",
        "stream",
    )

    def __init__(
        self,
        operation: int,
        name: str | None,
        address: int = 0,
        shape: Sequence[int] = (),
        dtype: int = 0,
        device: int = CPU_DEVICE,
        output: int | None = 0,
        process_set: int = GLOBAL_PROCESS_SET,
        reduce_op: int = SUM,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        splits: Sequence[int] | None = None,
        stream: int = 0,
        priority: int = 0,
    ) -> None:
        self.operation = operation
        self.name = name
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.output = output
        self.process_set = process_set
        self.reduce_op = reduce_op
        self.root = root
        self.prescale = prescale
        self.postscale = postscale
        self.splits = splits
        self.stream = stream
        self.priority = priority


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
    """After fork the library's threads are gone and its sockets belong to the parent."""
    global _library
    if _library is not None:
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
        return exceptions.NotInitializedError(text)
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
        raise exceptions.NotInitializedError(f"{caller}() was called before init()")


# --- submitting ------------------------------------------------------------------------------


class _Scratch:
    """Memory at a fixed address that requests, shapes, splits and names are packed into."""

    __slots__ = ("_pin", "address", "buffer", "capacity", "doubles", "words")

    def __init__(self, capacity):
        self.capacity = capacity + -capacity % 8
        self.buffer = bytearray(self.capacity)
        self._pin = (ctypes.c_char * self.capacity).from_buffer(self.buffer)
        self.address = ctypes.addressof(self._pin)
        self.words = memoryview(self.buffer).cast("Q")
        self.doubles = memoryview(self.buffer).cast("d")


# (native handles, what they need) of operations that were submitted while a signal's handler raised:
# their caller will never know of them.
interrupted: list[tuple[Sequence[int], Any]] = []


# Spare scratch buffers. A list, not a thread-local: append and pop are atomic, and a signal
# handler that communicates gets a buffer of its own.
_spare = [_Scratch(1024)]


def _pack_int64(buffer, offset, values):
    count = len(values)
    packer = _INT64[count] if count < len(_INT64) else struct.Struct(f"@{count}q")
    packer.pack_into(buffer, offset, *values)


def _not_numbers(name, process_set, reduce_op, root, priority, prescale, postscale):
    """The error for arguments that are not the numbers that they have to be."""
    whole = {"op": reduce_op, "root_rank": root, "priority": priority}
    wrong = [f"{key}={value!r}, expected an integer" for key, value in whole.items() if not hasattr(value, "__index__")]
    wrong += [
        f"{key}={value!r}, expected a number"
        for key, value in (("prescale_factor", prescale), ("postscale_factor", postscale))
        if not hasattr(value, "__float__") and not hasattr(value, "__index__")
    ]
    return TypeError(f"{name}: " + ("; ".join(wrong) or "a number is out of range"))


def _pack_one(
    operation: int,
    name: str,
    address: int,
    shape: Sequence[int],
    dtype: Any,
    device: int,
    output: int | None,
    process_set: int,
    reduce_op: int,
    root: int,
    prescale: float,
    postscale: float,
    stream: int,
    priority: int,
) -> Any:
    """As _pack() for the most frequent case, one request without splits; null where it is not that."""
    ndim = len(shape)
    encoded = name.encode()
    end = _SINGLE_NAME + len(encoded)
    if ndim > 8 or end >= 1024 or b"\0" in encoded:
        return None
    try:
        scratch = _spare.pop()
    except IndexError:
        scratch = _Scratch(1024)
    buffer, base = scratch.buffer, scratch.address
    shape_address = base + _SINGLE_SHAPE
    if output is None:  # the library allocates
        output = output_shape = output_ndim = 0
    else:
        output_shape, output_ndim = shape_address, ndim
    try:
        _SINGLE[ndim].pack_into(
            buffer,
            0,
            0,
            _REQUEST_SIZE,
            operation,
            base + _SINGLE_NAME,
            address,
            shape_address,
            ndim,
            dtype,
            device,
            0,
            output,
            output_shape,
            output_ndim,
            dtype,
            device,
            0,
            process_set,
            reduce_op,
            root,
            priority,
            prescale,
            postscale,
            0,
            0,
            0,
            stream,
            *shape,
        )
    except struct.error:
        raise _not_numbers(name, process_set, reduce_op, root, priority, prescale, postscale) from None
    buffer[_SINGLE_NAME:end] = encoded
    buffer[end] = 0
    return scratch


def submit_one(
    operation: int,
    name: str,
    address: int,
    shape: Sequence[int],
    dtype: Any,
    device: int,
    output: int | None,
    process_set: int,
    reduce_op: int,
    root: int,
    prescale: float,
    postscale: float,
    stream: int,
    priority: int,
    kept: Any,
) -> int:
    """submit() of one request without splits: answers one native handle."""
    arguments = (operation, name, address, shape, dtype, device, output, process_set, reduce_op, root)
    scratch = _pack_one(*arguments, prescale, postscale, stream, priority)
    if scratch is None:
        (handle,) = submit([Request(*arguments, prescale, postscale, None, stream, priority)], kept)
        return handle
    base = scratch.address
    native = _library or library()
    handle = 0
    try:
        status = native.submit(base + 8, 1, base)
        if status == OK:
            handle = scratch.words[0]
            _spare.append(scratch)
            return handle
    except BaseException:
        handle = handle or scratch.words[0]
        if handle:
            interrupted.append(((handle,), kept))
        raise
    text = native.last_error().decode(errors="replace")
    _spare.append(scratch)
    raise failure(status, text)


def _pack(requests: Sequence[Request]) -> Any:
    """Memory with room for as many handles, then the requests."""
    count = len(requests)
    names = [request.name.encode() if request.name is not None else b"" for request in requests]
    if any(b"\0" in name for name in names):
        raise ValueError(f"a tensor name must not contain a zero byte: {[each.name for each in requests]}")
    needed = count * (_REQUEST_SIZE + 8)
    for request, name in zip(requests, names):
        splits = request.splits
        needed += 8 * len(request.shape) + len(name) + 9
        if splits is not None:
            needed += 8 * len(splits)
    try:
        scratch = _spare.pop()
    except IndexError:
        scratch = _Scratch(1024)
    if scratch.capacity < needed:
        scratch = _Scratch(2 * needed)
    buffer, base = scratch.buffer, scratch.address
    # handles | requests | per request: shape, splits | names
    buffer[: count * 8] = bytes(count * 8)
    offset = count * (_REQUEST_SIZE + 8)
    at = count * 8
    name_at = needed - sum(map(len, names)) - count
    for request, name in zip(requests, names):
        shape, splits = request.shape, request.splits
        ndim = len(shape)
        shape_address = base + offset
        if ndim:
            _pack_int64(buffer, offset, shape)
            offset += 8 * ndim
        splits_address = split_count = 0
        if splits is not None:
            split_count = len(splits)
            splits_address = base + offset
            if split_count:
                _pack_int64(buffer, offset, splits)
                offset += 8 * split_count
        name_address = 0
        if request.name is not None:
            name_address = base + name_at
            end = name_at + len(name)
            buffer[name_at:end] = name
            buffer[end] = 0
            name_at = end + 1
        output, dtype, device = request.output, request.dtype, request.device
        if output is None:  # the library allocates
            output = output_shape = output_ndim = 0
        else:
            output_shape, output_ndim = shape_address, ndim
        try:
            _REQUEST.pack_into(
                buffer,
                at,
                _REQUEST_SIZE,
                request.operation,
                name_address,
                request.address,
                shape_address,
                ndim,
                dtype,
                device,
                0,
                output,
                output_shape,
                output_ndim,
                dtype,
                device,
                0,
                request.process_set,
                request.reduce_op,
                request.root,
                request.priority,
                request.prescale,
                request.postscale,
                splits_address,
                split_count,
                0,
                request.stream,
            )
        except struct.error:
            raise _not_numbers(
                request.name,
                request.process_set,
                request.reduce_op,
                request.root,
                request.priority,
                request.prescale,
                request.postscale,
            ) from None
        at += _REQUEST_SIZE
    return scratch


def submit(requests: Sequence[Request], kept: Any) -> Sequence[int]:
    """Hands the requests to the library, all or none; returns their native handles. More than
    one make a group, which runs together. `kept` is what must outlive them."""
    count = len(requests)
    scratch = _pack(requests)
    buffer, base = scratch.buffer, scratch.address
    native = _library or library()
    handles = ()
    try:
        status = native.submit(base + 8 * count, count, base)
        if status == OK:
            handles = struct.unpack_from(f"@{count}q", buffer)
            _spare.append(scratch)
            return handles
    except BaseException:
        handles = handles or struct.unpack_from(f"@{count}q", buffer)
        if all(handles):
            interrupted.append((handles, kept))
        raise
    text = native.last_error().decode(errors="replace")
    _spare.append(scratch)
    raise failure(status, text)


# --- submitting and waiting in one ---------------------------------------------------------------

# What a program asks for again and again, packed, while nobody uses it. A request that came once has
# None here. As with _spare, a signal handler that makes the same call finds nothing.
_repeated: dict[tuple[Any, ...] | None, Any] = {}
_MOST_REPEATED = 512
_NEVER = object()
# Where the packed request of one tensor has what differs from call to call, in words of 8 bytes.
_INPUT, _OUTPUT, _PRESCALE, _POSTSCALE = 3, 7, 13, 14


def run_one(
    operation: int,
    name: str,
    once: bool,
    address: int,
    shape: Sequence[int],
    dtype: Any,
    output: int,
    process_set: int,
    reduce_op: int,
    root: int,
    prescale: float,
    postscale: float,
    kept: Any,
) -> None:
    """An operation on one tensor in host memory, from its request to its end. `once`: the name does not come
    again."""
    key = None if once else (operation, name, shape, dtype, process_set, reduce_op, root)
    before = _NEVER
    try:
        before = scratch = _repeated.pop(key, _NEVER)
        words = scratch.words
        words[_INPUT] = address
        words[_OUTPUT] = output
        doubles = scratch.doubles
        doubles[_PRESCALE] = prescale
        doubles[_POSTSCALE] = postscale
    except (AttributeError, TypeError):  # not packed; or no numbers, of which packing tells
        arguments = (operation, name, address, shape, dtype, CPU_DEVICE, output, process_set, reduce_op)
        scratch = _pack_one(*arguments, root, prescale, postscale, 0, 0)
        if scratch is None:
            _run(_pack([Request(*arguments, root, prescale, postscale)]), kept)
            return
        if before is _NEVER:
            if not once:
                _remember(key)
            _run(scratch, kept)
            _spare.append(scratch)
            return
    _run(scratch, kept)
    _repeated[key] = scratch


def _remember(key):
    """This request came once."""
    if len(_repeated) >= _MOST_REPEATED:
        _repeated.clear()
    with contextlib.suppress(TypeError):  # a number that is good for nothing but that
        _repeated[key] = None


def run(request: Request, kept: Any) -> int:
    """submit() of one request, and wait(); raises if it fails. The native handle of what has a result,
    which the library has allocated; else 0."""
    scratch = _pack([request])
    handle = _run(scratch, kept, request.output is None)
    _spare.append(scratch)
    return handle


def _run(scratch, kept, result=False):
    """The request that is packed there. The native handle if it has a result, else 0. Where this raises, nobody
    else uses the memory again."""
    base, words = scratch.address, scratch.words
    native = _library or library()
    handle = 0
    try:
        status = native.run(base + 8, _WAIT_SLICE_MS, base)
        if status == OK:
            return words[0]
        if status == TIMED_OUT and words[0]:
            handle = words[0]
            status = wait(handle)
            if status == OK and result:
                return handle
    except BaseException:
        if words[0]:  # it is in flight, or has a result
            interrupted.append(((words[0],), kept))
        raise
    if handle == 0:
        raise failure(status, native.last_error().decode(errors="replace"))
    text = "" if status == OK else native.error(handle).decode(errors="replace")
    native.release(handle)
    words[0] = 0
    if status != OK:
        raise failure(status, text)
    return 0


# --- waiting -----------------------------------------------------------------------------------


def wait(handle: int) -> int:
    """Waits for one operation; returns its status, never IN_PROGRESS. Signal handlers run meanwhile."""
    native = _library
    status = native.wait(handle, _WAIT_SLICE_MS)
    while status == TIMED_OUT:
        status = native.poll(handle)
        if status != IN_PROGRESS:
            break  # the operation itself timed out, or it has just ended
        status = native.wait(handle, _WAIT_SLICE_MS)
    return status


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
