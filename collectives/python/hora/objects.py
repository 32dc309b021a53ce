# SPDX-License-Identifier: Apache-2.0
"""Python objects among the ranks: no framework is needed."""

from __future__ import annotations

import contextlib
import ctypes
import struct

from hora import _native, dtypes, exceptions, serialization
from hora.operations import wait_now
from hora.process_sets import global_process_set
from hora.tensor_ops import Framework, TensorOps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet

# The first message of a broadcast carries the length and as much of the object as fits, so that
# small objects take one operation.
_FIRST_MESSAGE = 4096
_LENGTH = struct.Struct("<q")
_NOTHING = -1  # instead of a length: the object could not be pickled


class _Bytes(Framework):
    """bytearrays as one-dimensional tensors of uint8."""

    name = "bytes"

    def dense(self, tensor):
        return tensor

    def view(self, tensor, op=dtypes.COPY):
        return self.address(tensor), (len(tensor),), dtypes.UINT8, _native.CPU_DEVICE, 0

    def address(self, tensor):
        if not tensor:
            return 0
        return ctypes.addressof((ctypes.c_char * len(tensor)).from_buffer(tensor))

    def from_native(self, address, shape, dtype, device, like):
        return ctypes.string_at(address, shape[0]) if shape[0] else b""


_ops = TensorOps(_Bytes())


class _Unsent(exceptions.HorovodInternalError):
    """Another rank's object could not be pickled: a mistake of the script."""

    recoverable = False


def _unsent(name, rank):
    return _Unsent(f"{name}: rank {rank} could not pickle its object; its own error says why")


def broadcast_bytes(
    data: bytes | None, root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> bytes:
    """The root's bytes on every rank; the others pass None. Where the root has none to send and passes
    None, too, that is an error of the others."""
    first = bytearray(_FIRST_MESSAGE)
    is_root = _native.library().rank() == root_rank
    room = _FIRST_MESSAGE - _LENGTH.size
    if is_root:
        head = b"" if data is None else data[:room]
        _LENGTH.pack_into(first, 0, _NOTHING if data is None else len(data))
        first[_LENGTH.size : _LENGTH.size + len(head)] = head
    wait_now(_ops.broadcast([first], root_rank, f"{name}.sz", process_set, in_place=True))
    (length,) = _LENGTH.unpack_from(first)
    if length == _NOTHING:
        raise _unsent(name, root_rank)
    if length <= room:
        return bytes(first[_LENGTH.size : _LENGTH.size + length])
    rest = bytearray(length - room) if data is None else bytearray(data[room:])
    wait_now(_ops.broadcast([rest], root_rank, f"{name}.t", process_set, in_place=True))
    return bytes(first[_LENGTH.size :]) + bytes(rest) if data is None else bytes(data)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object on every rank of the set; the root gets its own object back.

    It travels as a pickle, by cloudpickle where that is installed. Blocks until all ranks of the set have called it.
    root_rank is a rank of the whole job; name is how the ranks match the call.

    Raises:
        TypeError: the root cannot pickle its object; the other ranks raise HorovodInternalError then
        ImportError: this rank lacks a module that the object needs
        otherwise what broadcast() of a tensor raises
    """
    name = name or "broadcast_object"
    _native.check_initialized("broadcast_object")
    if _native.library().rank() == root_rank:
        try:
            data = serialization.dumps(obj, f"broadcast_object({name}): the object")
        except BaseException:
            with contextlib.suppress(_Unsent):
                broadcast_bytes(None, root_rank, name, process_set)
            raise
        broadcast_bytes(data, root_rank, name, process_set)
        return obj
    return serialization.loads(
        broadcast_bytes(None, root_rank, name, process_set), f"broadcast_object({name}): the object of rank {root_rank}"
    )


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Every rank's object, as a list in the order of the ranks of the set.

    Objects travel as pickles, by cloudpickle where that is installed. Blocks until all ranks of the set have called
    it. name is how the ranks match the call.

    Raises:
        TypeError: this rank cannot pickle its object; the other ranks raise HorovodInternalError then
        ImportError: this rank lacks a module that an object needs
        otherwise what allgather() of a tensor raises
    """
    name = name or "allgather_object"
    _native.check_initialized("allgather_object")
    failure = None
    try:
        data = bytearray(serialization.dumps(obj, f"allgather_object({name}): the object"))
        length = len(data)
    except Exception as error:
        failure, data, length = error, bytearray(), _NOTHING
    sizes = _ops.allgather([bytearray(_LENGTH.pack(length))], f"{name}.sz", process_set)
    bodies = _ops.allgather([data], f"{name}.t", process_set)
    lengths = [length for (length,) in _LENGTH.iter_unpack(wait_now(sizes))]
    everything = memoryview(wait_now(bodies))
    if failure is not None:
        raise failure
    if _NOTHING in lengths:
        place = lengths.index(_NOTHING)
        raise _unsent(name, process_set.ranks[place] if process_set.ranks else place)
    objects, offset = [], 0
    for length in lengths:
        objects.append(
            serialization.loads(everything[offset : offset + length], f"allgather_object({name}): an object")
        )
        offset += length
    return objects
