# SPDX-License-Identifier: Apache-2.0
"""Operations in flight: waiting, and the table of handles; and the arguments that every framework shares."""

from __future__ import annotations

import itertools

from hora import _calls, _native, _requests, exceptions, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from hora.process_sets import ProcessSet

# --- operations in flight ------------------------------------------------------------------------


class Pending:
    """One submitted operation or group. It owns the native handles, and keeps the tensors alive
    that the library reads and writes until those are done."""

    __slots__ = (
        "aborted",
        "after",
        "failure",
        "fetch",
        "grouped",
        "kept",
        "natives",
        "outputs",
        "over",
        "settle",
        "value",
    )

    def __init__(
        self,
        natives: Sequence[int],
        kept: Any,
        outputs: list[Any] | None,
        fetch: Callable[[int], Any] | None,
        grouped: bool,
        after: Callable[[Any], Any] | None,
    ) -> None:
        self.natives = natives  # native handles, in the order of the tensors
        self.kept = kept  # what must live until the operation is done
        self.outputs = outputs  # the results, where this side allocated them
        self.fetch = fetch  # native handle -> result, where the library allocated it
        self.grouped = grouped
        self.after = after  # results -> results, once, when all are done
        self.aborted: str | None = None  # text, once the job was left with this in flight
        # Called when the operations are done, before anything that they used is freed: see Framework.settler().
        self.settle: Callable[[], None] | None = None
        self.over = False  # value, or failure, is there
        self.value: Any = None  # the result
        self.failure: tuple[int, str] | None = None  # status and text

    def done(self) -> bool:
        """Whether result() would return without waiting."""
        poll = _native.library().poll
        return self.aborted is not None or all(poll(native) != _native.IN_PROGRESS for native in self.natives)

    def complete(self) -> None:
        """Waits until the outcome is there. A signal's handler may raise at any place in here: then this can be
        called again."""
        if self.over or self.aborted is not None:
            return self._release()
        native_wait = _calls.wait
        failed = 0
        for native in self.natives:
            status = native_wait(native)
            if status != _native.OK and not failed:
                failed, failed_native = status, native
        library = _native.library()
        if self.settle is not None:
            self.settle()
        if failed:
            self.failure = failed, library.error(failed_native).decode(errors="replace")
        else:
            fetch = self.fetch
            results: Any = self.outputs if fetch is None else [fetch(each) for each in self.natives]
            if self.after is not None:
                results = self.after(results)
            self.value = results if self.grouped else results[0]
        self.over = True
        self._release()

    def _release(self) -> None:
        library = _native.library()
        for native in self.natives:  # the library ignores a handle that was released before
            library.release(native)
        self.natives = ()
        self.kept = None

    def error(self) -> BaseException | None:
        """What a completed operation failed with."""
        if self.aborted is not None:
            return exceptions.HorovodInternalError(self.aborted)
        return None if self.failure is None else _native.failure(*self.failure)

    def result(self) -> Any:
        """Completes the operation, and returns the result or raises what it failed with."""
        self.complete()
        error = self.error()
        if error is not None:
            raise error
        return self.value

    def __del__(self):
        # A signal handler raised on the way; torch.compile makes some that are never initialised.
        if getattr(self, "natives", ()) and orphans is not None:
            orphans.append(self)

    def abandon(self, text: str) -> None:
        """Frees the handles after the job was left: the library does not touch the tensors any more."""
        self._release()
        self.aborted = text


_handles = itertools.count(1)
_in_flight: dict[int, Pending] = {}  # handle that the caller has -> Pending
orphans: list[Pending] = []  # operations whose results are not wanted any more (a wait was interrupted)


def let_go(pending: Pending) -> None:
    """Gives up the result. The operation keeps its memory until it is done."""
    orphans.append(pending)


def _adopt():
    """Takes over operations that were submitted while a signal handler raised."""
    while _calls.interrupted:
        natives, kept = _calls.interrupted.pop()
        let_go(Pending(natives, kept, None, None, True, None))


def sweep() -> None:
    """Frees the orphans that are done by now."""
    if _calls.interrupted:
        _adopt()
    if not orphans:
        return
    for pending in list(orphans):
        if pending.done():
            orphans.remove(pending)
            if pending.settle is not None:
                pending.settle()
            pending.abandon("")


def new_handle(pending: Pending) -> int:
    """The handle for poll() and synchronize()."""
    handle = next(_handles)
    _in_flight[handle] = pending
    return handle


def wait_now(pending: Pending) -> Any:
    """Waits for an operation without a handle; returns its result."""
    try:
        return pending.result()
    except BaseException:
        if pending.natives:  # interrupted
            let_go(pending)
        raise


def poll(handle: int) -> bool:
    """Whether the operation is done, so that synchronize() would not wait. True for a handle that is not in flight."""
    pending = _in_flight.get(handle)
    return pending is None or pending.done()


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result; None for a handle that is not in flight.

    Blocks until all ranks of the set have started the operation and it is done. Raises what the operation failed
    with: see allreduce(). A handle is good for one call. When a signal's handler raises on the way, the call can be
    repeated.
    """
    pending = _in_flight.get(handle)
    if pending is None:
        return None
    pending.complete()
    error, value = pending.error(), pending.value
    del _in_flight[handle]  # no call comes after this, in which a signal's handler could run
    if error is not None:
        raise error
    return value


def forget(handle: int) -> None:
    """Gives up the result of a handle. The operation keeps its memory until it is done."""
    pending = _in_flight.pop(handle, None)
    if pending is not None and pending.natives:
        let_go(pending)


def wait_for(handle: int, seconds: float) -> bool:
    """Waits at most this long for the operation; returns whether it is done. The result stays with the
    handle."""
    pending = _in_flight.get(handle)
    if pending is None:
        return True
    wait = _native.library().wait
    for native in pending.natives:
        if wait(native, int(seconds * 1000)) == _native.TIMED_OUT and not pending.done():
            return False
    return True


def in_flight_count() -> int:
    """Operations that were started and not yet synchronized."""
    _adopt()
    return len(_in_flight) + len(orphans)


def settle() -> None:
    """Takes the results of operations that are done, so that leaving the job does not lose them."""
    for pending in list(_in_flight.values()):
        if pending.aborted is None and pending.done():
            try:
                pending.complete()
            except Exception as error:
                pending.aborted = str(error) or type(error).__name__


def abort_all(text: str) -> None:
    """Fails all operations that are still in flight with this text, after the job was left."""
    _adopt()
    for pending in list(_in_flight.values()) + orphans:
        if not pending.over and pending.aborted is None:
            pending.abandon(text)
    orphans.clear()


def forget_all() -> None:
    """Called before a job is joined: handles and generated names start over."""
    abort_all("the job that this operation belonged to was left")
    _in_flight.clear()
    names.forget_all()


# --- what is submitted ---------------------------------------------------------------------------


def set_id_of(process_set: ProcessSet) -> int:
    """The set's id. TypeError for what is not a ProcessSet, ValueError if it is not registered."""
    try:
        set_id = process_set.process_set_id
    except AttributeError:
        raise TypeError(f"process_set={process_set!r}: expected a ProcessSet") from None
    if set_id is None:
        raise ValueError(
            f"{process_set} is not registered: pass it to init(process_sets=[...]), or to add_process_set()"
        )
    return set_id


def _control(operation: int, name: str, process_set: ProcessSet) -> _requests.Request:
    """join or barrier: no tensor."""
    _native.check_initialized(name)
    return _requests.Request(operation, None, process_set=set_id_of(process_set))


def barrier(process_set: ProcessSet) -> None:
    """Returns once every rank of the set has called it."""
    _calls.run(_control(_native.BARRIER, "barrier", process_set), None)


def join(process_set: ProcessSet) -> int:
    """Declares that this rank has no more data: it contributes zeros to the reductions of the others until
    all have joined. Returns the rank that joined last."""
    natives = _calls.submit([_control(_native.JOIN, "join", process_set)], None)
    pending = Pending(natives, None, None, _native.library().last_joined, False, None)
    last = wait_now(pending)
    # The ranks that joined first have counted fewer operations without a name. All of them are done.
    names.forget(set_id_of(process_set))
    return last


# --- arguments that every framework shares ---------------------------------------------------------


def choose_op(op: int | None, average: bool | None) -> int:
    """The reduction that `op=` or the older `average=` selects; Average by default."""
    if op is not None:
        if average is not None:
            raise ValueError("give op= or average=, not both (average= is the old way)")
        return op
    if average is None:
        return _native.AVERAGE
    import warnings

    warnings.warn("average= is deprecated; use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
    return _native.AVERAGE if average else _native.SUM


def scatter_op(op: int) -> int:
    """The op itself; UnsupportedReductionError unless a reducescatter can reduce with it."""
    if op not in (_native.AVERAGE, _native.SUM):
        raise exceptions.UnsupportedReductionError("reducescatter reduces with Average and Sum only")
    return op


def numeric_splits(splits: Any) -> list[int] | None:
    """The splits argument of alltoall as a list of integers; None stays None."""
    if splits is None:
        return None
    values = splits.tolist() if hasattr(splits, "tolist") else splits
    if isinstance(values, (tuple, range)):
        values = list(values)
    if not isinstance(values, list) or any(isinstance(value, list) for value in values):
        raise ValueError(f"alltoall: the splits must be a list of integers, not {splits!r}")
    if any(not hasattr(value, "__int__") or value != int(value) for value in values):
        raise ValueError(f"alltoall: the splits must be integers, not {values}")
    return [int(value) for value in values]
