# SPDX-License-Identifier: Apache-2.0
"""The backend "hora" of torch.distributed: the operations of a ProcessGroup on tensors in host memory.

Ranks match operations by name. The operations of a group that are alike (the same kind, dtype and size) take names in
turn, so that a program that repeats them uses prepared requests; the n-th of them on one rank meets the n-th on the
others. Any thread may call.
"""

from __future__ import annotations

import collections
import ctypes
import os
import queue
import threading
import time
import zlib
from datetime import timedelta

import torch
from torch._C._distributed_c10d import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    ProcessGroup,
    ReduceOp,
    ReduceScatterOptions,
    Work,
)
from torch._C._distributed_c10d import Backend as _Backend

from hora import _calls, _native, basics, communicators, dtypes, exceptions
from hora._requests import Request, pack, pack_one, spare
from hora.process_sets import process_set_of
from hora.tensor_ops import native_result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_CODE_OF = dtypes.codes_of_torch(torch)
# Types that libhora does not reduce, and those as which they are reduced.
_WIDER = {
    getattr(torch, name): wider
    for name, wider in {
        "float8_e4m3fn": torch.float32,
        "float8_e5m2": torch.float32,
        "float8_e4m3fnuz": torch.float32,
        "float8_e5m2fnuz": torch.float32,
        "uint32": torch.int64,
    }.items()
    if hasattr(torch, name)
}
_REDUCTIONS: dict[Any, int] = {
    ReduceOp.SUM: _native.SUM,
    ReduceOp.AVG: _native.AVERAGE,
    ReduceOp.PRODUCT: _native.PRODUCT,
    ReduceOp.MIN: _native.MIN,
    ReduceOp.MAX: _native.MAX,
    ReduceOp.PREMUL_SUM: _native.SUM,
}
_BITWISE: dict[Any, Any] = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
# Operations that are alike and in flight at the same time have as many names; more of them follow when these are done.
_NAMES = 4
_SLICE_MS = 50
_SMALL_BYTES = 1 << 20
# How long an operation waits before this rank compares with the others what each of them is in.
_LATE_SECONDS = 5.0
_ANNOUNCE_SECONDS = 0.002
_CPU = torch.device("cpu")


class _Name:
    """A name that operations use one after the other."""

    __slots__ = ("current", "packed", "text", "waiting")

    def __init__(self, text: str) -> None:
        self.text = text
        self.packed: Any = None  # the request of a reduction, while it is not in use
        self.current: Any = None  # the operation in flight
        self.waiting: collections.deque[Any] = collections.deque()


class _Done(Work):
    """An operation that has ended before its call returned."""

    def __init__(self, outputs: list[Any]) -> None:
        super().__init__()
        self._outputs = outputs
        self._future: Any = None

    def wait(self, timeout: Any = None) -> bool:
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def result(self) -> list[Any]:
        return self._outputs

    def get_future(self) -> Any:
        if self._future is None:
            self._future = torch.futures.Future()
            self._future.set_result(self._outputs)
        return self._future


class _Work(_Done):
    """An operation of a group, from its call to its end."""

    def __init__(self, group: Any, key: Any, name: _Name, requests: Any, outputs: list[Any], opts: Any) -> None:
        super().__init__(outputs)
        self._group = group
        self._key = key
        self._name = name
        self._requests = requests
        self._opts = opts
        self._begun = time.monotonic()
        self._number = group._count()
        self._sequence: int | None = None  # among the collectives of the group
        self._natives: Any = None  # native handles, once submitted
        self._kept: Any = None
        self._finish: Callable[[Sequence[int]], None] | None = None  # takes the results
        self._error: BaseException | None = None
        self._over = False
        self._source = -1
        self._message = ""
        self._announced = False
        self._late = self._begun + _LATE_SECONDS

    # --- what PyTorch calls ---

    def wait(self, timeout: Any = None) -> bool:
        if not self._over:
            seconds = timeout.total_seconds() if timeout else 0
            self._group._wait_for(self, seconds or self._group._seconds_of(self._opts))
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._over or self._advance(0)

    def is_success(self) -> bool:
        return self._over and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        future = self._future
        if future is None:
            future = self._future = torch.futures.Future()
            # DistributedDataParallel asks for it at once. Where the ranks are on one host, an operation is work of its
            # cores: the thread that is here does it, unless it would wait for the others.
            if self._advance(1 if self._group._near else 0):
                self._resolve()
            else:
                _progress.follow(self)
        return future

    # --- how it gets there ---

    @property
    def _label(self) -> str:
        kind, detail, tensors = self._key
        each = [f"{count} {dtypes.NAME_OF_CODE[code]}" for code, count in tensors[:4]]
        return kind + (f" of {', '.join(each)}" if each else "") + ("" if detail is None else f" ({detail})")

    def _submit(self) -> None:
        """Hands it to the library. The name is free, and the lock of the group is held."""
        self._name.current = self
        text, alone = self._name.text, len(self._requests) == 1
        try:
            self._natives = _calls.submit(
                [
                    each._replace(name=text if alone else f"{text}/{number}")
                    for number, each in enumerate(self._requests)
                ],
                self,
            )
        except Exception as error:
            self._fail(error)

    def _run(self, milliseconds: int) -> None:
        """As _submit(), and waits, which is faster. Its caller is the only thread that knows it."""
        (request,) = self._requests
        scratch = pack([request._replace(name=None if request.operation == _native.BARRIER else self._name.text)])
        words, native = scratch.words, _native._library
        try:
            status = native.run(scratch.address + 8, milliseconds, scratch.address)
        finally:
            if words[0]:  # it is in flight, or has a result
                self._natives = (words[0],)
        if status == _native.TIMED_OUT and words[0]:
            return
        error = None
        if status != _native.OK:
            error = _native.failure(status, native.last_error().decode(errors="replace"))
        spare.append(scratch)
        with self._group._lock:
            self._take(() if words[0] == 0 else self._natives, error)
        self._resolve()

    def _advance(self, milliseconds: int) -> bool:
        """Waits this many milliseconds, and returns whether it is over."""
        if self._over:
            return True
        natives = self._natives
        if natives is None:  # another of its name is in flight
            before = self._name.current
            if before is not None and before is not self:
                before._advance(milliseconds)
            return self._over
        library = _native._library
        for native in natives:
            if milliseconds and library.poll(native) == _native.IN_PROGRESS:
                library.wait(native, milliseconds)
            if library.poll(native) == _native.IN_PROGRESS:
                return False
        self._conclude()
        return True

    def _conclude(self) -> None:
        """Takes the results of what is done."""
        with self._group._lock:
            if self._over:
                return
            library, failure = _native._library, None
            for native in self._natives:
                status = library.poll(native)
                if status != _native.OK and failure is None:
                    failure = _native.failure(status, library.error(native).decode(errors="replace"))
            self._take(self._natives, failure)
        self._resolve()

    def _take(self, natives: Sequence[int], failure: BaseException | None) -> None:
        self._error = failure
        try:
            if failure is None and self._finish is not None:
                self._finish(natives)
        except Exception as error:
            self._error = error
        for native in natives:
            _native._library.release(native)
        self._end()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        """The name goes to the next one that waits for it."""
        self._over = True
        self._kept = self._finish = None
        name = self._name
        if name.current is self:
            name.current = None
        self._group._in_flight.pop(self._number, None)
        if self._announced:
            self._group._store.delete_key(self._message)
        while name.current is None and name.waiting:
            name.waiting.popleft()._submit()

    def _resolve(self) -> None:
        future = self._future
        if future is None or future.done():
            return
        try:
            if self._error is None:
                future.set_result(self._outputs)
            else:
                future.set_exception(self._error)
        except RuntimeError:  # another thread was first
            if not future.done():
                raise


class _FromAny(_Done):
    """A receive whose sender is not known yet."""

    def __init__(self, group: Any, tensors: list[Any], tag: int) -> None:
        super().__init__(tensors)
        self._group = group
        self._tag = tag
        self._work: Any = None

    def _found(self):
        if self._work is None:
            rank = self._group._sender(self._tag)
            if rank is not None:
                self._work = self._group.recv(self._outputs, rank, self._tag)
        return self._work

    def wait(self, timeout: Any = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        deadline = time.monotonic() + (seconds or self._group._seconds)
        while self._found() is None:
            if time.monotonic() > deadline:
                raise exceptions.CollectiveTimeoutError(
                    f"rank {self._group._index}: no rank has sent a message with the tag {self._tag} in time"
                )
            time.sleep(_ANNOUNCE_SECONDS)
        return self._work.wait(timeout)

    def is_completed(self) -> bool:
        return self._found() is not None and self._work.is_completed()

    def source_rank(self) -> int:
        return self._work._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        self.wait()
        return super().get_future()


class _Busy:
    """Stands for an operation that a thread is waiting for inside the library."""

    @staticmethod
    def _advance(_milliseconds):
        return False


_BUSY = _Busy()
# Where a packed request has the addresses, in words of 8 bytes.
_INPUT, _OUTPUT = 3, 7


class _Progress:
    """A thread that ends operations for which no thread of the program waits: those with a future, those that wait for
    a name, and sends that a receiver from any rank has to learn of."""

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def follow(self, work: _Work) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="hora-c10d", daemon=True)
                    self._thread.start()
        self._new.put(work)

    def _run(self):
        followed = []
        while True:
            if not followed:
                followed.append(self._new.get())
            try:
                while True:
                    followed.append(self._new.get_nowait())
            except queue.Empty:
                pass
            # One that is not over keeps the thread in the library, which does the work meanwhile.
            open_works = []
            for work in followed:
                if not self._is_over(work, 0 if open_works else 1):
                    open_works.append(work)
            followed = open_works

    @staticmethod
    def _is_over(work, milliseconds):
        try:
            if work._advance(milliseconds):
                return True
            work._group._look_at_late(work)
        except Exception as error:
            with work._group._lock:
                if not work._over:
                    work._fail(error)
            work._resolve()
            return True
        return False


_progress = _Progress()


# --- the memory of tensors -----------------------------------------------------------------------


def _dense(tensor):
    """A row-major tensor with the same values, the tensor itself where it is one."""
    if tensor.device != _CPU:
        raise ValueError(
            f'the backend "hora" takes tensors in host memory, not on {tensor.device}: call '
            'init_process_group("cpu:hora,cuda:nccl") for both'
        )
    if tensor.layout is not torch.strided:
        raise ValueError('the backend "hora" takes dense tensors, not sparse ones: call to_dense() first')
    if tensor.is_neg() or tensor.is_conj():
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def _is_plain(tensor):
    """Whether its memory can be reduced as it is."""
    return (
        tensor.layout is torch.strided
        and tensor.device == _CPU
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and tensor.dtype in _CODE_OF
    )


def _copied(tensor):
    """(number of elements, dtype code) of a dense tensor for an operation that copies: bytes, where libhora does not
    know the type."""
    code = _CODE_OF.get(tensor.dtype)
    if code is None:
        return tensor.numel() * tensor.element_size(), dtypes.UINT8
    return tensor.numel(), code


def _reduced(tensor, op):
    """(dense tensor to reduce, number of elements, dtype code) for a reduction."""
    wider = _WIDER.get(tensor.dtype)
    source = _dense(tensor if wider is None else tensor.detach().to(wider))
    if source.dtype == getattr(torch, "uint64", None) and op in (_native.SUM, _native.PRODUCT):
        return source, source.numel(), dtypes.INT64  # the same bits
    code = _CODE_OF.get(source.dtype)
    if code is not None:
        return source, source.numel(), code
    name = str(source.dtype).partition(".")[2]
    code, shape = dtypes.substitute(name, source.element_size(), (), op)
    return source, source.numel() * (2 if shape else 1), code


def _kind_of(given):
    """ReduceOp.SUM of a ReduceOp, or of itself."""
    return getattr(given, "op", given)


def _reduction_of(given):
    """(libhora's operation, factor before it) of a ReduceOp."""
    op = _REDUCTIONS.get(_kind_of(given))
    if op is None:
        raise ValueError(f'the backend "hora" does not know the reduction {given}')
    if given != ReduceOp.PREMUL_SUM:
        return op, 1.0
    factor = getattr(given, "factor", None)
    return op, float(given.__getstate__()[1] if factor is None else factor)


def _move(address: int, tensor: Any) -> None:
    """Copies memory of the library into a tensor of the same size."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return
    if tensor.is_contiguous():
        ctypes.memmove(tensor.data_ptr(), address, size)
        return
    dense = torch.empty(tensor.shape, dtype=tensor.dtype)
    ctypes.memmove(dense.data_ptr(), address, size)
    tensor.detach().copy_(dense)


def _fill(outputs):
    """Writes each result of the library into a tensor."""

    def finish(natives):
        for native, output in zip(natives, outputs):
            _move(native_result(native)[0], output)

    return finish


class _Batch:
    """The requests of one operation of a group, which have `how` in common, and what they read and write."""

    def __init__(self, operation: int, process_set: int, **how: Any) -> None:
        self.operation = operation
        self.how = dict(how, process_set=process_set)
        self.requests: list[Request] = []
        self.key: list[tuple[int, int]] = []  # (dtype code, number of elements) of each tensor
        self.kept: list[Any] = []
        self.copies: list[tuple[Any, Any]] = []  # tensors that could not be used in place, and their results

    def add(self, source: Any, count: int, code: int, result: Any = None) -> None:
        """A request on a dense tensor, as one dimension; without a result the library allocates it."""
        request = Request(self.operation, None, source.data_ptr(), (count,), code, **self.how)
        self.requests.append(request._replace(output=None if result is None else result.data_ptr()))
        self.key.append((code, count))
        self.kept.append((source, result))


# --- a group -------------------------------------------------------------------------------------


_groups: dict[int, int] = {}  # how many groups of each process set there have been


class _Collectives:
    """The operations of a group; a class of PyTorch's brings the rest. Lists of tensors are by rank of the group."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def _set_up(self, store: Any, ranks: list[int], index: int, seconds: float, name: str) -> None:
        members = sorted(ranks)
        self._store = store
        self._ranks = ranks  # in the world, by rank of the group
        self._index = index
        self._seconds = seconds
        self._near = basics.local_size() == basics.size()
        self._title = name
        self._description = "undefined"
        self._set = process_set_of(members)
        # PyTorch counts groups, too, but not alike on all ranks where some have made one among themselves.
        number = _groups[self._set] = _groups.get(self._set, -1) + 1
        self._prefix = f"{self._set}.{number}"
        # The rank of the group at each place of the process set, where they differ.
        self._order = None if members == ranks else [ranks.index(each) for each in members]
        self._passed: dict[tuple[int, int, int], int] = {}  # messages by sender, receiver and tag
        self._pairs: dict[int, int] = {}  # peer -> process set of this rank and the peer
        self._lock = threading.RLock()
        self._in_flight: dict[int, _Work] = {}
        # Releases before 2.2 keep no reference to what a call returns to C++, which asks it for its future.
        self._recent: collections.deque[Any] = collections.deque(maxlen=16)
        self._names: dict[Any, list[Any]] = {}
        self._known: dict[Any, Any] = {}  # of reductions that have come before: dtype code, key of their names
        self._number = 0
        self._collectives = 0
        self._barriers = 0

    # --- what all operations share ---

    def _count(self) -> int:
        self._number += 1
        return self._number

    def _seconds_of(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        seconds = timeout.total_seconds() if timeout is not None else 0
        return seconds if seconds > 0 else self._seconds

    def _next_name(self, key: tuple[Any, ...]) -> _Name:
        """Of the operations that are alike, the n-th has the same name on all ranks."""
        names = self._names.get(key)
        if names is None:
            kind, detail, tensors = key
            what = ".".join(map(str, tensors[0])) if len(tensors) == 1 else zlib.crc32(repr(tensors).encode())
            text = f"{self._prefix}.{kind}.{detail}.{len(tensors)}.{what}"
            names = self._names[key] = [0, *(_Name(f"{text}.{turn}") for turn in range(_NAMES))]
        turn = names[0]
        names[0] = (turn + 1) % _NAMES
        return names[1 + turn]

    def _begin(self, kind, detail, tensors, batch, outputs, opts, finish=None):
        """`tensors`: (dtype code, number of elements) of each, as far as it is the same on all ranks."""
        requests = batch.requests
        with self._lock:
            key = (kind, detail, tuple(tensors))
            name = self._next_name(key)
            work = _Work(self, key, name, requests, outputs, opts)
            work._kept, work._finish = (batch.kept, outputs), finish or _copier(batch.copies)
            self._in_flight[work._number] = work
            self._recent.append(work)
            if kind != "message":
                work._sequence = self._collectives = self._collectives + 1
            if name.current is not None:
                name.current._advance(0)
            limit = 0
            if name.current is not None:
                name.waiting.append(work)
                _progress.follow(work)
            else:
                limit = self._wait_at_once(work, requests, tensors)
                if limit:
                    name.current = work
                else:
                    work._submit()
        if limit:  # the lock is free while it waits
            work._run(limit)
        if work._error is not None:
            raise work._error
        return work

    def _wait_at_once(self, work, requests, tensors):
        """How many milliseconds the call may wait for the operation; 0: not at all."""
        if len(requests) > 1 or work._opts is None:
            return 0
        limit = self._limit(work._opts, tensors[0][1] * dtypes.SIZE_OF_CODE[tensors[0][0]] if tensors else 0)
        # Once one of the others was not there, what follows does not wait for it.
        return limit if limit > 1 or len(self._in_flight) == 1 else 0

    def _limit(self, opts, size):
        if not getattr(opts, "asyncOp", True):
            return _SLICE_MS
        # A small one is sooner done than handed to another thread, if the other ranks are there.
        return 1 if self._near and size <= _SMALL_BYTES else 0

    def _wait_for(self, work: _Work, seconds: float) -> None:
        """Until the operation is over, or this time has passed since its call."""
        deadline = work._begun + seconds
        while not work._advance(_SLICE_MS):
            now = time.monotonic()
            if now > deadline:
                raise exceptions.CollectiveTimeoutError(
                    f"rank {self._index} of the process group {self._title!r}: {work._label} has waited for the other "
                    f"ranks for {seconds:g} s, the timeout{self._positions(work)}"
                )
            self._look_at_late(work)

    def _look_at_late(self, work: _Work) -> None:
        """Raises if another rank waits in another collective of the same number."""
        now = time.monotonic()
        if work._message:
            # Receivers from any rank learn of the message by the store.
            if work._source == self._index and not work._announced and now > work._begun + _ANNOUNCE_SECONDS:
                work._announced = True
                self._store.set(work._message, "")
            return
        if now < work._late:
            return
        work._late = now + _LATE_SECONDS
        for rank, label in self._others_in(work):
            if label is not None and label != work._label:
                raise exceptions.TensorMismatchError(
                    f"collective {work._sequence} of the process group {self._title!r} differs: rank {self._index} has "
                    f"{work._label}, rank {rank} has {label}"
                )

    def _others_in(self, work):
        """What the other ranks of the group wait in under this number; None for a rank that has not said it."""
        if work._sequence is None:
            return []
        place = f"late/{work._sequence}/"
        self._store.set(f"{place}{self._index}", work._label)
        others = [rank for rank in range(len(self._ranks)) if rank != self._index]
        return [
            (rank, self._store.get(f"{place}{rank}").decode() if self._is_set(f"{place}{rank}") else None)
            for rank in others
        ]

    def _positions(self, work):
        missing = [str(rank) for rank, label in self._others_in(work) if label is None]
        return f"; not in it: rank {', '.join(missing)}" if missing else ""

    # --- reductions ---

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
        """Reduces each tensor into itself."""
        opts = opts or AllreduceOptions()
        return self._reduce_again(tensors, opts) or self._reduce("all_reduce", tensors, opts, None)

    def _reduce_again(self, tensors, opts):
        """The shortest way for a reduction that has come before; None where it cannot be taken."""
        tensor = tensors[0]
        count = tensor.numel()
        known = self._known.get((tensor.dtype, count, _kind_of(opts.reduceOp)))
        if known is None or len(tensors) != 1 or self._in_flight or not _is_plain(tensor):
            return None
        code, key = known
        limit = self._limit(opts, count * dtypes.SIZE_OF_CODE[code])
        with self._lock:
            names = self._names[key]
            name = names[1 + names[0]]
            packed = name.packed
            if not limit or packed is None or name.current is not None:
                return None
            names[0] = (names[0] + 1) % _NAMES
            name.current, name.packed = _BUSY, None
            self._collectives += 1
        words, native = packed.words, _native._library
        words[_INPUT] = words[_OUTPUT] = tensor.data_ptr()
        try:
            status = native.run(packed.address + 8, limit, packed.address)
            if status == _native.OK and not name.waiting:
                name.current = None
                name.packed = packed
                done = _Done(tensors)
                self._recent.append(done)
                return done
        except BaseException:
            name.current = None
            raise
        error = None if status == _native.OK else native.last_error().decode(errors="replace")
        work = _Work(self, key, name, (), tensors, opts)
        work._sequence = self._collectives
        work._kept, name.current = tensors, work
        if status == _native.TIMED_OUT and words[0]:
            work._natives = (words[0],)
            self._in_flight[work._number] = work
            self._recent.append(work)
            return work
        with self._lock:
            work._take((), None if error is None else _native.failure(status, error))
        if work._error is not None:
            raise work._error
        return work

    def _remember(self, work, tensor, op):
        """That _reduce_again() can do it the next time."""
        name, ((code, count),) = work._name, work._key[2]
        self._known[tensor.dtype, count, op] = code, work._key
        (request,) = work._requests
        name.packed = pack_one(request._replace(name=name.text, address=0, output=0)[:-1])

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        """As allreduce()."""
        return self._reduce("all_reduce", tensors, opts or AllreduceCoalescedOptions(), None)

    def reduce(self, tensors: list[Any], opts: Any) -> Any:
        """Reduces each tensor into that of the root; those of the other ranks stay as they are."""
        return self._reduce("reduce", tensors, opts, opts.rootRank)

    def _reduce(self, kind, tensors, opts, root, then=None, outputs=None):
        """`then` is called when the tensors have their results; `outputs` are those of the operation."""
        given = opts.reduceOp
        bitwise = _BITWISE.get(_kind_of(given))
        if bitwise is not None:
            return self._fold(kind, tensors, bitwise, opts, root, then, outputs)
        op, factor = _reduction_of(given)
        here = root is None or root == self._index
        batch = _Batch(_native.ALLREDUCE, self._set, reduce_op=op, prescale=factor)
        for tensor in tensors:
            source, count, code = _reduced(tensor, op)
            result = source if here else torch.empty_like(source)
            if here and source is not tensor:
                batch.copies.append((tensor, result))
            batch.add(source, count, code, result)
        detail = op if root is None else f"{op} to {root}"
        finish = _copier(batch.copies, then)
        work = self._begin(kind, detail, batch.key, batch, outputs or tensors, opts, finish)
        if kind == "all_reduce" and len(tensors) == 1 and factor == 1.0 and _is_plain(tensors[0]):
            self._remember(work, tensors[0], _kind_of(given))
        return work

    def _fold(self, kind, tensors, function, opts, root, then, outputs):
        """A reduction that libhora has not: every rank gets all tensors and reduces them itself."""
        sources = [_dense(tensor) for tensor in tensors]

        def finish(natives):
            if root is not None and root != self._index:
                return
            for native, tensor, source in zip(natives, tensors, sources):
                parts = torch.empty((len(self._ranks), *source.shape), dtype=source.dtype)
                _move(native_result(native)[0], parts)
                result = parts[0]
                for part in parts[1:]:
                    result = function(result, part)
                tensor.detach().copy_(result)
            if then is not None:
                then()

        detail = f"{function.__name__} {root}"
        return self._gather_all(kind, detail, sources, opts, outputs or tensors, finish, sources)

    def _gather_all(self, kind, detail, sources, opts, outputs, finish, alike):
        """`alike`: tensors, or lists of them, that have the same sizes on all ranks."""
        batch, key = _Batch(_native.ALLGATHER, self._set), []
        for source, given in zip(sources, alike):
            count, code = _copied(source)
            parts = given if isinstance(given, list) else [given]
            key.append((code, sum(part.numel() for part in parts)))
            batch.add(source, count, code)
        return self._begin(kind, detail, key, batch, outputs, opts, finish)

    def _check_wholes(self, kind, wholes, parts, what):
        """That the tensors of all ranks have room in one. `what`: the names of whole and part."""
        for whole, part in zip(wholes, parts):
            if whole.numel() != part.numel() * len(self._ranks):
                raise ValueError(
                    f"{kind}: the {what[0]} needs {len(self._ranks)} times the {part.numel()} elements of the "
                    f"{what[1]}, and has {whole.numel()}"
                )

    def reduce_scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any = None) -> Any:
        """Reduces the inputs for each rank into its output."""
        for output, parts in zip(outputs, inputs):
            if any(part.numel() != output.numel() for part in parts):
                return self._reduce_uneven(outputs, inputs, opts)
        flat = [torch.cat([_dense(part).reshape(-1) for part in parts]) for parts in inputs]
        return self._scatter_reduced(outputs, flat, opts)

    def _reduce_uneven(self, outputs, inputs, opts):
        """Parts of different sizes: all are reduced, and each rank takes its own."""
        opts = opts or ReduceScatterOptions()
        flat = [torch.cat([_dense(part).reshape(-1) for part in parts]) for parts in inputs]

        def take_own():
            for output, parts, whole in zip(outputs, inputs, flat):
                own = whole.split([part.numel() for part in parts])[self._index]
                output.detach().copy_(own.view(output.shape))

        return self._reduce("reduce_scatter", flat, opts, None, take_own, outputs)

    def reduce_scatter_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """As reduce_scatter(), with the inputs one after the other in one tensor."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], sources: list[Any], opts: Any = None) -> Any:
        """reduce_scatter_single() of each."""
        self._check_wholes("reduce_scatter", sources, outputs, ("input", "output"))
        return self._scatter_reduced(outputs, sources, opts)

    def _by_place(self, parts):
        """In the order of the process set."""
        return parts if self._order is None else [parts[rank] for rank in self._order]

    def _scatter_reduced(self, outputs, sources, opts):
        opts = opts or ReduceScatterOptions()
        given = opts.reduceOp
        if _kind_of(given) in _BITWISE or any(each.dtype in _WIDER for each in sources):
            parts = [list(each.detach().reshape(-1).chunk(len(self._ranks))) for each in sources]
            return self._reduce_uneven(outputs, parts, opts)
        if self._order is not None:
            sources = [torch.cat(self._by_place(_dense(each).reshape(-1).chunk(len(self._ranks)))) for each in sources]
        op, factor = _reduction_of(given)
        batch = _Batch(_native.REDUCESCATTER, self._set, reduce_op=op, prescale=factor)
        for each in sources:
            batch.add(*_reduced(each, op))
        return self._begin("reduce_scatter", op, batch.key, batch, outputs, opts, _fill(outputs))

    # --- copies ---

    def broadcast(self, tensors: list[Any], opts: Any) -> Any:
        """Copies each tensor of the root into that of every rank."""
        batch = self._spread(tensors, opts.rootRank, self._set)
        return self._begin("broadcast", f"from {opts.rootRank}", batch.key, batch, tensors, opts)

    def _spread(self, tensors, root, process_set):
        batch = _Batch(_native.BROADCAST, process_set, root=self._ranks[root])
        for tensor in tensors:
            source = _dense(tensor)
            if source is not tensor and self._index != root:
                batch.copies.append((tensor, source))
            batch.add(source, *_copied(source), source)
        return batch

    def allgather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Any:
        """Copies the input of every rank into the outputs of all."""
        sources = [_dense(each) for each in inputs]

        def finish(natives):
            for native, parts in zip(natives, outputs):
                _take_apart(native, self._by_place(parts))

        return self._gather_all("all_gather", None, sources, opts, outputs, finish, outputs)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """As allgather(), with the outputs one after the other in one tensor."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: list[Any], sources: list[Any], opts: Any = None) -> Any:
        """all_gather_single() of each."""
        self._check_wholes("all_gather", outputs, sources, ("output", "input"))

        def in_order(natives):
            for native, output in zip(natives, outputs):
                _take_apart(native, self._by_place(output.detach().view(len(self._ranks), -1).unbind()))

        finish = _fill(outputs) if self._order is None else in_order
        return self._gather_all("all_gather", None, [_dense(each) for each in sources], opts, outputs, finish, outputs)

    def gather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any) -> Any:
        """Copies the input of every rank into the outputs of the root."""
        at_root = self._index == opts.rootRank
        parts = [list(inputs) if rank == opts.rootRank else [] for rank in range(len(self._ranks))]
        return self._exchange("gather", opts.rootRank, parts, outputs[0] if at_root else [], opts, inputs)

    def scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any) -> Any:
        """Copies the inputs of the root into the output of each rank."""
        parts = [[each] for each in inputs[0]] if self._index == opts.rootRank else [[] for _ in self._ranks]
        received: list[list[Any]] = [[] for _ in self._ranks]
        received[opts.rootRank] = outputs
        return self._exchange(
            "scatter", opts.rootRank, parts, [each for some in received for each in some], opts, outputs
        )

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Copies the input for each rank into its output for this one."""
        return self._exchange("all_to_all", None, [[each] for each in inputs], outputs, opts, outputs)

    def all_to_all_single(
        self, output: Any, source: Any, to_get: list[int], to_give: list[int], opts: Any = None
    ) -> Any:
        """As alltoall(), of the rows of one tensor."""
        size = len(self._ranks)
        for tensor, splits in ((output, to_get), (source, to_give)):
            rows = tensor.shape[0] if tensor.dim() else 0
            if (sum(splits) != rows or len(splits) != size) if splits else rows % size:
                raise ValueError(
                    f"all_to_all_single: the {rows} rows of a tensor cannot be split "
                    f"{'as ' + str(list(splits)) if splits else 'evenly'} among {size} ranks"
                )
        parts = _dense(source).split(list(to_give) or [source.shape[0] // size] * size)
        direct = output if output.is_contiguous() else torch.empty(output.shape, dtype=output.dtype)
        rows = direct.split(list(to_get) or [output.shape[0] // size] * size)
        copies = [] if direct is output else [(output, direct)]
        return self._exchange("all_to_all", None, [[each] for each in parts], rows, opts, [output], copies)

    def _exchange(self, kind, root, parts, received, opts, outputs, copies=()):
        """Sends parts[rank], a list of tensors, to each rank; `received` is what all others send here, by rank."""
        parts = self._by_place(parts)
        dense = [[_dense(each).detach().reshape(-1) for each in some] for some in parts]
        flat = [each for some in dense for each in some]
        like = (flat or [each.detach() for each in received] or [torch.empty(0)])[0]
        source = flat[0] if len(flat) == 1 else torch.cat(flat) if flat else torch.empty(0, dtype=like.dtype)
        count, code = _copied(source)
        width = 1 if code != dtypes.UINT8 else source.element_size()
        splits = [sum(each.numel() for each in some) * width for some in dense]
        batch = _Batch(_native.ALLTOALL, self._set, splits=splits)
        batch.add(source, count, code)

        def finish(natives):
            _take_apart(natives[0], self._by_place(received) if len(received) == len(self._ranks) else received)
            for tensor, result in copies:
                tensor.detach().copy_(result)

        return self._begin(kind, f"{root} {code}", (), batch, outputs, opts, finish)

    # --- between two ranks ---

    def send(self, tensors: list[Any], rank: int, tag: int) -> Any:
        """Sends tensors to a rank, which receives them with this tag."""
        work = self._pass_on("send", tensors, rank, self._index, rank, tag)
        _progress.follow(work)
        return work

    def recv(self, tensors: list[Any], rank: int, tag: int) -> Any:
        """Receives tensors from a rank, which sends them with this tag."""
        return self._pass_on("recv", tensors, rank, rank, self._index, tag)

    def _pass_on(self, kind, tensors, peer, sender, receiver, tag):
        """A broadcast in the set of the two ranks. Size and type are not in the name, so a difference is an error."""
        if peer == self._index:
            raise ValueError(f"{kind}: rank {peer} cannot exchange tensors with itself")
        pair = self._pairs.get(peer)
        if pair is None:
            pair = self._pairs[peer] = process_set_of(sorted((self._ranks[self._index], self._ranks[peer])))
        batch = self._spread(tensors, sender, pair)
        work = self._begin("message", f"{sender} to {receiver}, tag {tag}", (), batch, tensors, None)
        count = self._passed[sender, receiver, tag] = self._passed.get((sender, receiver, tag), 0) + 1
        work._source, work._message = sender, f"message/{receiver}/{sender}/{tag}/{count}"
        return work

    def recv_anysource(self, tensors: list[Any], tag: int) -> Any:
        """Receives tensors from the rank that is the first to have waited for it for some milliseconds."""
        return _FromAny(self, tensors, tag)

    recvAnysource = recv_anysource

    def _sender(self, tag):
        """A rank of which this one has learned that it sends with this tag."""
        for rank in range(len(self._ranks)):
            count = self._passed.get((rank, self._index, tag), 0) + 1
            if rank != self._index and self._is_set(f"message/{self._index}/{rank}/{tag}/{count}"):
                return rank
        return None

    # --- all ranks ---

    def barrier(self, opts: Any = None) -> Any:
        """Ends when all ranks have called it."""
        batch = _Batch(_native.BARRIER, self._set)
        batch.requests.append(Request(_native.BARRIER, None, process_set=self._set))
        return self._begin("barrier", None, (), batch, [], opts)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the ranks that did not come in time: at rank 0 the first, or all of them."""
        seconds = opts.total_seconds() if isinstance(opts, timedelta) else self._seconds_of(opts)
        self._barriers += 1
        place = f"barrier/{self._barriers}/"
        deadline = time.monotonic() + seconds
        if self._index == 0:
            missing = self._await_others(place, deadline, wait_all_ranks)
            text = ""
            if missing:
                ranks = ", ".join(map(str, missing))
                text = f"rank {ranks} of the process group has not called monitored_barrier within {seconds:g} s"
            self._store.set(f"{place}all", text or "ok")
        else:
            self._store.set(f"{place}{self._index}", "here")
            if not self._has_come(f"{place}all", deadline + 1):
                text = f"rank 0 of the process group has not called monitored_barrier within {seconds:g} s"
            else:
                text = self._store.get(f"{place}all").decode().replace("ok", "", 1)
        if text:
            raise exceptions.CollectiveTimeoutError(text)

    def _await_others(self, place, deadline, all_of_them):
        missing = []
        for rank in range(1, len(self._ranks)):
            if not self._has_come(f"{place}{rank}", deadline):
                missing.append(rank)
                if not all_of_them:
                    break
        return missing

    def _is_set(self, key):
        try:
            return self._store.check([key])
        except AttributeError:  # the stores of older releases
            return self._has_come(key, 0)

    def _has_come(self, key, deadline):
        try:
            left = max(deadline - time.monotonic(), 0.001)
            self._store.wait([key], timedelta(seconds=left))
        except RuntimeError:
            return False
        return True


def _copier(copies, then=None):
    """Writes results into the tensors that could not be used in place, and calls `then`."""

    def finish(natives):
        for tensor, source in copies:
            tensor.detach().copy_(source)
        if then is not None:
            then()

    return finish if copies or then is not None else None


def _take_apart(native, parts):
    """Copies a result of the library into tensors, one after the other."""
    address, shape, code, _ = native_result(native)
    size = dtypes.SIZE_OF_CODE[code] * (shape[0] if shape else 1)
    wanted = sum(part.numel() * part.element_size() for part in parts)
    if wanted != size:
        raise ValueError(f"the tensors for the result have {wanted} bytes, and the ranks have sent {size}")
    for part in parts:
        _move(address, part)
        address += part.numel() * part.element_size()


# --- what PyTorch makes a group of -----------------------------------------------------------------


class _HoraBackend(_Collectives, _Backend):
    """A part of a group, such as that of "cpu:hora,cuda:nccl"."""

    def getBackendName(self) -> str:
        return "hora"


def _has_backends():
    """Whether this release takes classes of Python as backends; for the others a whole group has to be one."""
    try:
        _HoraBackend(0, 1)
    except TypeError:
        return False
    return True


_HAS_BACKENDS = _has_backends()


class HoraProcessGroup(_Collectives, ProcessGroup):
    """The group of init_process_group("hora"), and of new_group() then. PyTorch calls its methods without a detour."""

    def _set_up(self, *arguments: Any) -> None:
        super()._set_up(*arguments)
        if _HAS_BACKENDS:  # for what asks a group for its backends
            backend = _HoraBackend(self.rank(), self.size())
            backend.__dict__ = self.__dict__
            self._register_backend(_CPU, ProcessGroup.BackendType.CUSTOM, backend)
            self._set_default_backend(ProcessGroup.BackendType.CUSTOM)

    def getBackendName(self) -> str:
        """The name for init_process_group()."""
        return "hora"

    def getGroupName(self) -> str:
        """What PyTorch calls this group."""
        return self._title

    def setGroupName(self, name: str) -> None:
        """PyTorch's own name for this group."""
        self._title = name

    def getGroupDesc(self) -> str:
        """The description that new_group() was given."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """See getGroupDesc()."""
        self._description = description

    def get_group_store(self) -> Any:
        """The store in which the group's keys are."""
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._collectives

    # Older names of releases of PyTorch.
    _allgather_base = _Collectives.all_gather_single
    allgather_into_tensor_coalesced = _Collectives.all_gather_single_coalesced
    _reduce_scatter_base = _Collectives.reduce_scatter_single
    reduce_scatter_tensor_coalesced = _Collectives.reduce_scatter_single_coalesced
    alltoall_base = _Collectives.all_to_all_single


class _StoreWorld(communicators.World):
    """A world of the processes of a store of c10d, where no launcher has made one of them."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._store = store
        self._round = 0

    def _exchange(self, own, everyones, deadline):
        self._round += 1
        self._store.set(f"hora/{self._round}/{self.rank}", bytes(own))
        for rank in range(self.size):
            key = f"hora/{self._round}/{rank}"
            self._store.wait([key], timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
            everyones[rank * len(own) : (rank + 1) * len(own)] = self._store.get(key)
        return True


def _join_world(store, rank, size):
    """Has the runtime join the ranks of the default group."""
    if not basics.is_initialized():
        launched = os.environ.get("HOROVOD_SIZE") == str(size) and os.environ.get("HOROVOD_RANK") == str(rank)
        basics.init(None if launched else _StoreWorld(store, rank, size))
    if (basics.rank(), basics.size()) != (rank, size):
        raise RuntimeError(
            f"init_process_group: this process is rank {rank} of {size}, rank {basics.rank()} of {basics.size()} of "
            'the runtime\'s world; the default group of the backend "hora" is that world'
        )


def create(opts: Any, alone: bool) -> Any:
    """The group that opts (_DistributedBackendOptions) describe; `alone`: it has no other backend."""
    ranks = list(opts.global_ranks_in_group)
    if not ranks:
        _join_world(opts.store, opts.group_rank, opts.group_size)
        ranks = list(range(opts.group_size))
    elif not basics.is_initialized():
        raise RuntimeError('new_group(backend="hora"): call init_process_group("hora"), or hvd.init(), before')
    if alone:
        group: Any = HoraProcessGroup(opts.group_rank, opts.group_size)
    else:
        if not _HAS_BACKENDS:
            raise RuntimeError(
                f'PyTorch {torch.__version__} has no backends in Python, which "cpu:hora,cuda:nccl" needs: use '
                'init_process_group("hora"), or a newer release'
            )
        group = _HoraBackend(opts.group_rank, opts.group_size)
    group._set_up(opts.store, ranks, opts.group_rank, opts.timeout.total_seconds(), opts.group_id)
    return group
