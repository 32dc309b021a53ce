# SPDX-License-Identifier: Apache-2.0
"""Requests as struct hora_request (hora.h) has them. They are packed into a scratch buffer with one
struct.pack_into each, which costs a fraction of filling ctypes fields."""

from __future__ import annotations

import collections
import ctypes
import struct

from hora._native import CPU_DEVICE, GLOBAL_PROCESS_SET, SUM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# struct hora_request (hora.h): struct_size operation | name | input | output | process_set
# reduce_op root_rank priority | prescale postscale | splits split_count reserved | stream
_REQUEST = struct.Struct("@IiPPPiiiiPPiiiiiiiiddPiiP")
_REQUEST_SIZE = _REQUEST.size
_INT64 = [struct.Struct(f"@{n}q") for n in range(9)]

# One handle, one request and its shape in one go, for shapes of up to eight extents; the name
# follows at a fixed place.
_SINGLE = [struct.Struct(f"@qIiPPPiiiiPPiiiiiiiiddPiiP{n}q") for n in range(9)]
_SINGLE_SHAPE = 8 + _REQUEST_SIZE
_SINGLE_NAME = _SINGLE_SHAPE + 8 * 8


#: One operation on one tensor, as struct hora_request says it. The fields that an operation does not use keep their
#: defaults. `output`: None where the library allocates the result.
Request = collections.namedtuple(
    "Request",
    "operation name address shape dtype device output process_set reduce_op root priority prescale postscale stream "
    "splits",
    defaults=(0, (), 0, CPU_DEVICE, 0, GLOBAL_PROCESS_SET, SUM, 0, 0, 1.0, 1.0, 0, None),
)


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


# Spare scratch buffers. A list, not a thread-local: append and pop are atomic, and a signal
# handler that communicates gets a buffer of its own.
spare = [_Scratch(1024)]


def _pack_int64(buffer, offset, values):
    count = len(values)
    packer = _INT64[count] if count < len(_INT64) else struct.Struct(f"@{count}q")
    packer.pack_into(buffer, offset, *values)


def _not_numbers(name, process_set, reduce_op, root, priority, prescale, postscale):
    """The error for arguments that are not the numbers that they have to be."""
    whole = {"op": reduce_op, "root_rank": root, "priority": priority}
    factors = {"prescale_factor": prescale, "postscale_factor": postscale}
    wrong = [f"{key}={value!r}, expected an integer" for key, value in whole.items() if not hasattr(value, "__index__")]
    wrong += [
        f"{key}={value!r}, expected a number"
        for key, value in factors.items()
        if not hasattr(value, "__float__") and not hasattr(value, "__index__")
    ]
    if not wrong:
        wrong = ["one of these is out of range: " + ", ".join(f"{k}={v!r}" for k, v in {**whole, **factors}.items())]
    return TypeError(f"{name}: " + "; ".join(wrong))


def pack_one(fields: Sequence[Any]) -> Any:
    """As pack() for the most frequent case: the fields of one Request but its splits. None where it is not that."""
    operation, name, address, shape, dtype, device, output = fields[:7]
    how = fields[7:13]
    ndim = len(shape)
    encoded = name.encode()
    end = _SINGLE_NAME + len(encoded)
    if ndim > 8 or end >= 1024 or b"\0" in encoded:
        return None
    try:
        scratch = spare.pop()
    except IndexError:
        scratch = _Scratch(1024)
    buffer, base = scratch.buffer, scratch.address
    shape_address = base + _SINGLE_SHAPE
    head = _REQUEST_SIZE, operation, base + _SINGLE_NAME, address, shape_address, ndim, dtype, device, 0
    result = (0, 0, 0) if output is None else (output, shape_address, ndim)  # None: the library allocates
    try:
        _SINGLE[ndim].pack_into(buffer, 0, 0, *head, *result, dtype, device, 0, *how, 0, 0, 0, fields[13], *shape)
    except struct.error:
        raise _not_numbers(name, *how) from None
    buffer[_SINGLE_NAME:end] = encoded
    buffer[end] = 0
    return scratch


def pack(requests: Sequence[Request]) -> Any:
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
        scratch = spare.pop()
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
        operation, _, address, shape, dtype, device, output = request[:7]
        how, splits = request[7:13], request.splits
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
        head = _REQUEST_SIZE, operation, name_address, address, shape_address, ndim, dtype, device, 0
        result = (0, 0, 0) if output is None else (output, shape_address, ndim)
        tail = splits_address, split_count, 0, request.stream
        try:
            _REQUEST.pack_into(buffer, at, *head, *result, dtype, device, 0, *how, *tail)
        except struct.error:
            raise _not_numbers(request.name, *how) from None
        at += _REQUEST_SIZE
    return scratch
