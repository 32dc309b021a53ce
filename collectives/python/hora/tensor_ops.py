# SPDX-License-Identifier: Apache-2.0
"""The collectives on the tensors of one framework.

What differs between frameworks (where a tensor's memory is, how to make another one like it) is a
Framework; TensorOps does with it what is the same for all.
"""

from __future__ import annotations

import ctypes

from hora import _calls, _native, _requests, dtypes, names, operations
from hora.operations import Pending, set_id_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hora.process_sets import ProcessSet


def native_result(native: int) -> Any:
    """(address, shape, dtype code, device) of a result that the library allocated; it lives as
    long as the native handle."""
    tensor = _native.Tensor()
    _native.check(_native.library().result(native, ctypes.byref(tensor)))
    shape = tuple(tensor.shape[: tensor.ndim])
    return tensor.data or 0, shape, tensor.dtype, tensor.device


def native_received_splits(native: int) -> list[int]:
    """alltoall: how many rows came from each rank of the set."""
    values = ctypes.POINTER(ctypes.c_int64)()
    count = ctypes.c_int32()
    _native.check(_native.library().received_splits(native, ctypes.byref(values), ctypes.byref(count)))
    return values[: count.value]


_interrupted = _calls.interrupted
_orphans = operations.orphans


class Framework:
    """What the operations need to know about the tensors of an array library."""

    name = ""

    def dense(self, tensor: Any) -> Any:
        """A dense row-major tensor with the same values; the tensor itself where it is one."""
        raise NotImplementedError

    def dense_in_place(self, tensor: Any) -> Any:
        """Like dense(), of a tensor that the result is written into; an error where it cannot be."""
        return self.dense(tensor)

    def view(self, tensor: Any, op: int = dtypes.COPY) -> Any:
        """(address, shape, dtype code, device ordinal or -1, CUDA stream) of a dense tensor, for a reduction with
        `op` or for copying. Shape and code may be those of dtypes.substitute()."""
        raise NotImplementedError

    def address(self, tensor: Any) -> int:
        """Where the memory of a dense tensor begins."""
        return self.view(tensor)[0]

    def plain(self, tensor: Any, written: bool) -> Any:
        """(address, shape, dtype code) of a dense tensor in host memory, which may be `written`; None for any
        other, and where it takes longer to find out."""
        return None

    def empty_like(self, tensor: Any) -> Any:
        """A dense tensor of the same shape, dtype and device, with any values."""
        raise NotImplementedError

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        """A new tensor with a copy of the memory at address, of the kind, the dtype and the number of dimensions of
        `like`; shape and dtype are those of libhora."""
        raise NotImplementedError

    def from_integers(self, values: Sequence[Any], like: Any) -> Any:
        """A tensor of 32-bit integers (the received splits of alltoall)."""
        raise NotImplementedError

    def assign(self, tensor: Any, source: Any) -> None:
        """Writes the values of source into tensor."""
        raise NotImplementedError

    def settler(self, device: int) -> Any:
        """A function to call when operations on tensors of a GPU are done, before these are used or freed; None where
        the framework works on the stream that view() returns."""
        return None


class TensorOps:
    """The collectives on the tensors of one framework, as Pendings."""

    def __init__(self, framework: Any) -> None:
        self.framework = framework

    @staticmethod
    def _use(kind, how):
        """What Framework.view() has to know of an operation."""
        return how[1] if kind in ("allreduce", "reducescatter") else dtypes.COPY

    def _names(self, kind, name, set_id, count, grouped):
        if not grouped:
            return (names.operation_name(kind, name, set_id),)
        base = names.operation_name(f"grouped_{kind}", name, set_id)
        return [f"{base}_{index + 1}of{count}" for index in range(count)]

    @staticmethod
    def _as_sequence(tensors, grouped):
        """The tensors of a group may come from any iterable."""
        if not grouped:
            return tensors
        tensors = list(tensors)
        if not tensors:
            raise ValueError("a group needs at least one tensor")
        return tensors

    # `how` below: the fields of a request from process_set to postscale.

    def allreduce(
        self,
        tensors: Sequence[Any],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        in_place: bool = False,
        grouped: bool = False,
        priority: int = 0,
    ) -> Any:
        """Starts allreduces; tensors is a sequence, of one tensor unless grouped."""
        how = (set_id_of(process_set), op, 0, priority, prescale, postscale)
        return self._caller_allocates("allreduce", tensors, name, how, in_place, grouped)

    def allreduce_now(
        self,
        tensor: Any,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        in_place: bool = False,
    ) -> Any:
        """allreduce() of one tensor, and its result."""
        how = (set_id_of(process_set), op, 0, 0, prescale, postscale)
        return self._run_single("allreduce", tensor, name, how, in_place)

    def broadcast(
        self,
        tensors: Sequence[Any],
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
        in_place: bool = False,
        grouped: bool = False,
        priority: int = 0,
    ) -> Any:
        """Starts broadcasts; tensors is a sequence, of one tensor unless grouped."""
        how = (set_id_of(process_set), 0, root_rank, priority, 1.0, 1.0)
        return self._caller_allocates("broadcast", tensors, name, how, in_place, grouped)

    def broadcast_now(
        self, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet, in_place: bool = False
    ) -> Any:
        """broadcast() of one tensor, and its result."""
        how = (set_id_of(process_set), 0, root_rank, 0, 1.0, 1.0)
        return self._run_single("broadcast", tensor, name, how, in_place)

    def _run_single(self, kind, tensor, name, how, in_place):
        """The shortest way through this file."""
        framework = self.framework
        plain = framework.plain(tensor, in_place)
        if plain is None:
            return operations.wait_now(self._caller_allocates(kind, (tensor,), name, how, in_place, False))
        address, shape, dtype = plain
        output, output_address = tensor, address
        if not in_place:
            output = framework.empty_like(tensor)
            output_address = framework.address(output)
        if _orphans or _interrupted:
            operations.sweep()
        called = names.operation_name(kind, name, how[0])
        operation = _native.OPERATIONS[kind]
        _calls.run_one(operation, called, name is None, address, shape, dtype, output_address, how, (tensor, output))
        return output

    def _prepared(self, kind, tensor, how, in_place):
        """(fields of a request from address on, what is read, what is written) of a result like the tensor."""
        framework = self.framework
        source = framework.dense_in_place(tensor) if in_place else framework.dense(tensor)
        address, shape, dtype, device, stream = framework.view(source, self._use(kind, how))
        output, output_address = source, address
        if not in_place:
            output = framework.empty_like(source)
            output_address = framework.address(output)
        return (address, shape, dtype, device, output_address, *how, stream), source, output

    def _caller_allocates(self, kind, tensors, name, how, in_place, grouped):
        """Starts operations whose results have the shapes of the tensors."""
        tensors = self._as_sequence(tensors, grouped)
        operation = _native.OPERATIONS[kind]
        if not grouped:
            (tensor,) = tensors
            fields, source, output = self._prepared(kind, tensor, how, in_place)
            operations.sweep()
            called = names.operation_name(kind, name, how[0])
            native = _calls.submit_one((operation, called, *fields), (source, output))
            pending = None
            try:
                pending = Pending((native,), (source, output), (tensor if in_place else output,), None, False, None)
                if fields[3] != _native.CPU_DEVICE:
                    pending.settle = self.framework.settler(fields[3])
                if in_place and source is not tensor:
                    pending.after = self._copying_back([(tensor, source)])
                return pending
            except BaseException:
                if pending is None:
                    _calls.interrupted.append(((native,), (source, output)))
                raise
        requests, kept, outputs, copies = [], [], [], []
        for tensor, called in zip(tensors, self._names(kind, name, how[0], len(tensors), True)):
            fields, source, output = self._prepared(kind, tensor, how, in_place)
            if in_place and source is not tensor:
                copies.append((tensor, source))
            outputs.append(tensor if in_place else output)
            kept.append((source, output))
            requests.append(_requests.Request(operation, called, *fields))
        return self._start(requests, kept, outputs, None, True, copies)

    def allgather(
        self,
        tensors: Sequence[Any],
        name: str | None,
        process_set: ProcessSet,
        grouped: bool = False,
        priority: int = 0,
    ) -> Any:
        """Starts allgathers; tensors is a sequence, of one tensor unless grouped."""
        how = (set_id_of(process_set), _native.SUM, 0, priority, 1.0, 1.0)
        return self._library_allocates("allgather", tensors, name, how, grouped)

    def reducescatter(
        self,
        tensors: Sequence[Any],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        grouped: bool = False,
        priority: int = 0,
    ) -> Any:
        """Starts reducescatters; tensors is a sequence, of one tensor unless grouped."""
        how = (set_id_of(process_set), op, 0, priority, prescale, postscale)
        return self._library_allocates("reducescatter", tensors, name, how, grouped)

    def alltoall(self, tensor: Any, splits: Any, name: str | None, process_set: ProcessSet, priority: int = 0) -> Any:
        """splits: a list of integers, or None for equal parts. The result is (tensor, received
        splits) when splits are given."""
        how = (set_id_of(process_set), 0, 0, priority, 1.0, 1.0)
        return self._library_allocates("alltoall", (tensor,), name, how, False, splits)

    def _library_allocates(self, kind, tensors, name, how, grouped, splits=None):
        framework = self.framework
        tensors = self._as_sequence(tensors, grouped)
        requests, kept = [], []
        for tensor, called in zip(tensors, self._names(kind, name, how[0], len(tensors), grouped)):
            source = framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source, self._use(kind, how))
            if not len(getattr(source, "shape", shape)):
                raise ValueError(
                    f"{kind} of a scalar ({called}): it has no first dimension to "
                    f"{'concatenate along' if kind == 'allgather' else 'split'}; reshape it to one element"
                )
            if splits is not None:
                shape = (self._rows_sent(called, shape[0], splits), *shape[1:])
            kept.append(source)
            fields = (address, shape, dtype, device, None, *how, stream, splits)
            requests.append(_requests.Request(_native.OPERATIONS[kind], called, *fields))

        source_of: dict[int, Any] = {}

        def fetch(native):
            source = source_of[native]
            received = framework.from_native(*native_result(native), source)
            if splits is None:
                return received
            return received, framework.from_integers(native_received_splits(native), source)

        pending = self._start(requests, kept, None, fetch, grouped, None)
        source_of.update(zip(pending.natives, kept))
        return pending

    @staticmethod
    def _rows_sent(name, rows, splits):
        """Rows after the last split stay here."""
        if sum(splits) > rows:
            raise ValueError(
                f"alltoall({name}): the splits {list(splits)} ask for {sum(splits)} rows, but the tensor has {rows}"
            )
        if any(split < 0 for split in splits):
            raise ValueError(f"alltoall({name}): negative split in {list(splits)}")
        return sum(splits)

    def _start(self, requests, kept, outputs, fetch, grouped, copies):
        operations.sweep()
        pending = Pending((), kept, outputs, fetch, grouped, self._copying_back(copies))
        for request in requests:
            if request.device != _native.CPU_DEVICE:
                pending.settle = self.framework.settler(request.device)
        pending.natives = _calls.submit(requests, kept)
        return pending

    def _copying_back(self, copies):
        """What is done with the results of operations in place on tensors that are not dense."""
        if not copies:
            return None

        def after(results):
            for tensor, source in copies:
                self.framework.assign(tensor, source)
            return results

        return after


def byte_count(shape: Sequence[int], dtype: Any) -> Any:
    """The bytes of a dense tensor of this shape; dtype is a code of libhora."""
    count = dtypes.SIZE_OF_CODE[dtype]
    for extent in shape:
        count *= extent
    return count
