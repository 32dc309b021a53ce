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
    def _use(operation, op):
        """What Framework.view() has to know of an operation."""
        return op if operation in (_native.ALLREDUCE, _native.REDUCESCATTER) else dtypes.COPY

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
        tensors = self._as_sequence(tensors, grouped)
        return self._caller_allocates(
            _native.ALLREDUCE,
            "allreduce",
            tensors,
            name,
            process_set,
            in_place,
            grouped,
            priority,
            op,
            0,
            prescale,
            postscale,
        )

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
        return self._run_single(
            _native.ALLREDUCE, "allreduce", tensor, name, process_set, in_place, op, 0, prescale, postscale
        )

    def broadcast_now(
        self, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet, in_place: bool = False
    ) -> Any:
        """broadcast() of one tensor, and its result."""
        return self._run_single(
            _native.BROADCAST, "broadcast", tensor, name, process_set, in_place, 0, root_rank, 1.0, 1.0
        )

    def _run_single(self, operation, kind, tensor, name, process_set, in_place, op, root, prescale, postscale):
        """The shortest way through this file."""
        framework = self.framework
        plain = framework.plain(tensor, in_place)
        set_id = getattr(process_set, "process_set_id", None)
        if plain is None or set_id is None:
            return operations.wait_now(
                self._caller_allocates(
                    operation, kind, (tensor,), name, process_set, in_place, False, 0, op, root, prescale, postscale
                )
            )
        address, shape, dtype = plain
        if in_place:
            output, output_address = tensor, address
        else:
            output = framework.empty_like(tensor)
            output_address = framework.address(output)
        if _orphans or _interrupted:
            operations.sweep()
        _calls.run_one(
            operation,
            names.operation_name(kind, name, set_id),
            name is None,
            address,
            shape,
            dtype,
            output_address,
            set_id,
            op,
            root,
            prescale,
            postscale,
            (tensor, output),
        )
        return output

    def _submit_single(
        self, operation, kind, tensor, name, process_set, in_place, priority, op, root, prescale, postscale
    ):
        """(native handle, what is read, what is written, its device) of an operation on one tensor."""
        framework = self.framework
        source = framework.dense_in_place(tensor) if in_place else framework.dense(tensor)
        address, shape, dtype, device, stream = framework.view(source, self._use(operation, op))
        if in_place:
            output, output_address = source, address
        else:
            output = framework.empty_like(source)
            output_address = framework.address(output)
        set_id = getattr(process_set, "process_set_id", None)
        if set_id is None:
            set_id = set_id_of(process_set)  # raises
        operations.sweep()
        return (
            _calls.submit_one(
                operation,
                names.operation_name(kind, name, set_id),
                address,
                shape,
                dtype,
                device,
                output_address,
                set_id,
                op,
                root,
                prescale,
                postscale,
                stream,
                priority,
                (source, output),
            ),
            source,
            output,
            device,
        )

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
        tensors = self._as_sequence(tensors, grouped)
        return self._caller_allocates(
            _native.BROADCAST,
            "broadcast",
            tensors,
            name,
            process_set,
            in_place,
            grouped,
            priority,
            0,
            root_rank,
            1.0,
            1.0,
        )

    def _caller_allocates(
        self, operation, kind, tensors, name, process_set, in_place, grouped, priority, op, root, prescale, postscale
    ):
        """Starts operations whose results have the shapes of the tensors."""
        framework = self.framework
        if not grouped:
            (tensor,) = tensors
            native, source, output, device = self._submit_single(
                operation, kind, tensor, name, process_set, in_place, priority, op, root, prescale, postscale
            )
            pending = None
            try:
                pending = Pending((native,), (source, output), (tensor if in_place else output,), None, False, None)
                if device != _native.CPU_DEVICE:
                    pending.settle = framework.settler(device)
                if in_place and source is not tensor:
                    pending.after = self._copying_back([(tensor, source)])
                return pending
            except BaseException:
                if pending is None:
                    _calls.interrupted.append(((native,), (source, output)))
                raise
        set_id = set_id_of(process_set)
        names = self._names(kind, name, set_id, len(tensors), True)
        requests, kept, outputs, copies = [], [], [], None
        for tensor, tensor_name in zip(tensors, names):
            source = framework.dense_in_place(tensor) if in_place else framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source, self._use(operation, op))
            if in_place:
                output, output_address = source, address
                if source is not tensor:
                    copies = copies or []
                    copies.append((tensor, source))
                outputs.append(tensor)
            else:
                output = framework.empty_like(source)
                output_address = framework.address(output)
                outputs.append(output)
            kept.append((source, output))
            requests.append(
                _requests.Request(
                    operation,
                    tensor_name,
                    address,
                    shape,
                    dtype,
                    device,
                    output_address,
                    set_id,
                    op,
                    root,
                    prescale,
                    postscale,
                    None,
                    stream,
                    priority,
                )
            )
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
        tensors = self._as_sequence(tensors, grouped)
        return self._library_allocates(_native.ALLGATHER, "allgather", tensors, name, process_set, grouped, priority)

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
        tensors = self._as_sequence(tensors, grouped)
        return self._library_allocates(
            _native.REDUCESCATTER,
            "reducescatter",
            tensors,
            name,
            process_set,
            grouped,
            priority,
            op,
            prescale,
            postscale,
        )

    def _library_allocates(
        self,
        operation,
        kind,
        tensors,
        name,
        process_set,
        grouped,
        priority,
        op=_native.SUM,
        prescale=1.0,
        postscale=1.0,
    ):
        framework = self.framework
        set_id = set_id_of(process_set)
        names = self._names(kind, name, set_id, len(tensors), grouped)
        requests, kept = [], []
        for tensor, tensor_name in zip(tensors, names):
            source = framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source, self._use(operation, op))
            if not len(getattr(source, "shape", shape)):
                raise ValueError(
                    f"{kind} of a scalar ({tensor_name}): it has no first dimension to "
                    f"{'concatenate along' if operation == _native.ALLGATHER else 'split'}; "
                    "reshape it to one element"
                )
            kept.append(source)
            requests.append(
                _requests.Request(
                    operation,
                    tensor_name,
                    address,
                    shape,
                    dtype,
                    device,
                    None,
                    set_id,
                    op,
                    0,
                    prescale,
                    postscale,
                    None,
                    stream,
                    priority,
                )
            )

        source_of: dict[int, Any] = {}

        def fetch(native):
            return framework.from_native(*native_result(native), source_of[native])

        pending = self._start(requests, kept, None, fetch, grouped, None)
        source_of.update(zip(pending.natives, kept))
        return pending

    def alltoall(self, tensor: Any, splits: Any, name: str | None, process_set: ProcessSet, priority: int = 0) -> Any:
        """splits: a list of integers, or None for equal parts. The result is (tensor, received
        splits) when splits are given."""
        framework = self.framework
        set_id = set_id_of(process_set)
        (tensor_name,) = self._names("alltoall", name, set_id, 1, False)
        source = framework.dense(tensor)
        address, shape, dtype, device, stream = framework.view(source)
        if not len(getattr(source, "shape", shape)):
            raise ValueError(
                f"alltoall of a scalar ({tensor_name}): it has no first dimension to split; reshape it to one element"
            )
        if splits is not None:
            rows = sum(splits)
            if rows > shape[0] or any(split < 0 for split in splits):
                raise ValueError(
                    f"alltoall({tensor_name}): the splits {list(splits)} ask for {rows} rows, but "
                    f"the tensor has {shape[0]}"
                    if rows > shape[0]
                    else f"alltoall({tensor_name}): negative split in {list(splits)}"
                )
            shape = (rows, *shape[1:])  # rows after the last split stay here
        request = _requests.Request(
            _native.ALLTOALL,
            tensor_name,
            address,
            shape,
            dtype,
            device,
            None,
            set_id,
            0,
            0,
            1.0,
            1.0,
            splits,
            stream,
            priority,
        )

        def fetch(native):
            received = framework.from_native(*native_result(native), source)
            if splits is None:
                return received
            return received, framework.from_integers(native_received_splits(native), tensor)

        return self._start([request], source, None, fetch, False, None)

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
