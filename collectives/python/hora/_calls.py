# SPDX-License-Identifier: Apache-2.0
"""Operations: submitted, waited for, or both in one call. They wait in slices, so that Ctrl-C interrupts them."""

from __future__ import annotations

import contextlib
import struct

from hora import _native
from hora._native import CPU_DEVICE, IN_PROGRESS, OK, TIMED_OUT, failure, library
from hora._requests import Request, pack, pack_one, spare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# How long one wait stays inside the library before Python looks for signals. A signal's handler
# runs at most so late.
_WAIT_SLICE_MS = 50

# (native handles, what they need) of operations that were submitted while a signal's handler raised:
# their caller does not get the handles.
interrupted: list[tuple[Sequence[int], Any]] = []


def submit_one(fields: Sequence[Any], kept: Any) -> int:
    """submit() of one request without splits, given as its fields: answers one native handle."""
    scratch = pack_one(fields)
    if scratch is None:
        (handle,) = submit([Request(*fields)], kept)
        return handle
    base = scratch.address
    native = _native._library or library()
    handle = 0
    try:
        status = native.submit(base + 8, 1, base)
        if status == OK:
            handle = scratch.words[0]
            spare.append(scratch)
            return handle
    except BaseException:
        handle = handle or scratch.words[0]
        if handle:
            interrupted.append(((handle,), kept))
        raise
    text = native.last_error().decode(errors="replace")
    spare.append(scratch)
    raise failure(status, text)


def submit(requests: Sequence[Request], kept: Any) -> Sequence[int]:
    """Hands the requests to the library, all or none; returns their native handles. More than
    one make a group, which runs together. `kept` is what must outlive them."""
    count = len(requests)
    scratch = pack(requests)
    buffer, base = scratch.buffer, scratch.address
    native = _native._library or library()
    handles = ()
    try:
        status = native.submit(base + 8 * count, count, base)
        if status == OK:
            handles = struct.unpack_from(f"@{count}q", buffer)
            spare.append(scratch)
            return handles
    except BaseException:
        handles = handles or struct.unpack_from(f"@{count}q", buffer)
        if all(handles):
            interrupted.append((handles, kept))
        raise
    text = native.last_error().decode(errors="replace")
    spare.append(scratch)
    raise failure(status, text)


# --- submitting and waiting in one ---------------------------------------------------------------

# Packed requests that a program repeats, while they are not in use. A request that was made once has None here. As
# with spare, a signal handler that makes the same call finds nothing.
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
    how: tuple[Any, ...],
    kept: Any,
) -> None:
    """An operation on one tensor in host memory, from its request to its end. `once`: the name does not come
    again. `how`: a request's fields from process_set to postscale."""
    key = None if once else (operation, name, shape, dtype, how[:4])
    before = _NEVER
    try:
        before = scratch = _repeated.pop(key, _NEVER)
        words = scratch.words
        words[_INPUT] = address
        words[_OUTPUT] = output
        doubles = scratch.doubles
        doubles[_PRESCALE], doubles[_POSTSCALE] = how[4:]
    except (AttributeError, TypeError):
        # It is not packed yet, or an argument is not a number, which packing reports. It is packed after this block, so
        # that an error of the operation does not appear as one that happened while this one was handled.
        pass
    else:
        _run(scratch, kept)
        _repeated[key] = scratch
        return
    fields = (operation, name, address, shape, dtype, CPU_DEVICE, output, *how, 0)
    scratch = pack_one(fields)
    if scratch is None:
        _run(pack([Request(*fields)]), kept)
        return
    if before is not _NEVER:
        _run(scratch, kept)
        _repeated[key] = scratch
        return
    if not once:
        _remember(key)
    _run(scratch, kept)
    spare.append(scratch)


def _remember(key):
    """Notes that this request was made once."""
    if len(_repeated) >= _MOST_REPEATED:
        _repeated.clear()
    with contextlib.suppress(TypeError):  # an argument that cannot be hashed
        _repeated[key] = None


def run(request: Request, kept: Any) -> int:
    """Submits one request and waits for it; raises if it fails. Returns the native handle if the library has
    allocated a result, else 0."""
    scratch = pack([request])
    handle = _run(scratch, kept, request.output is None)
    spare.append(scratch)
    return handle


def _run(scratch, kept, result=False):
    """Runs a packed request. Returns the native handle if it has a result, else 0. If this raises, the memory of the
    request must not be used again."""
    base, words = scratch.address, scratch.words
    native = _native._library or library()
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


def wait(handle: int) -> int:
    """Waits for one operation; returns its status, never IN_PROGRESS. Signal handlers run meanwhile."""
    native = _native._library
    status = native.wait(handle, _WAIT_SLICE_MS)
    while status == TIMED_OUT:
        status = native.poll(handle)
        if status != IN_PROGRESS:
            break  # the operation itself timed out, or it has just ended
        status = native.wait(handle, _WAIT_SLICE_MS)
    return status
