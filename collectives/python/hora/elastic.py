# SPDX-License-Identifier: Apache-2.0
"""State that survives a change of the job's ranks, and the loop that carries it over.

run_fn runs a training function that takes a State. After a lost peer, the function restarts from
the last commit; after hosts were added or removed, it continues from its current state. In both cases
the current ranks connect first.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import os
import queue
import threading
import time

from hora import _native, basics, objects
from hora.exceptions import HorovodInternalError, HostsUpdatedInterrupt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class HostUpdateResult:
    """How the hosts changed, as bits."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """State that the ranks agree on. Subclasses say how to save, restore and sync it.

    bcast_object(obj) gives rank 0's object to all; get_rank() is this process's rank.
    """

    _bootstrap = False  # of the ranks, by run_fn()

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, Any]] = queue.Queue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Functions without arguments, called after the ranks changed: to scale the learning
        rate, say."""
        self._reset_callbacks.extend(callbacks)

    def begin_meeting(self) -> None:
        """Called before the ranks reconnect: host updates received until now belong to the old epoch,
        later ones to the new one."""
        self._host_messages = queue.Queue()
        self._bootstrap = True

    def on_reset(self) -> None:
        """Called after the ranks reconnected: drops host updates of the old epoch, then calls reset() and
        the callbacks."""
        if not self._bootstrap:
            self._host_messages = queue.Queue()
        self._bootstrap = False
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: Any) -> None:
        """Records a host update from the launcher; check_host_updates() acts on it. Any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Calls save() and then check_host_updates(). What was done since the last commit is lost with a peer.
        Collective."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if rank 0 has received a host update. Collective."""
        timestamp, result = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            message_time, message_result = self._host_messages.get()
            timestamp = max(timestamp, message_time)
            result |= int(getattr(message_result, "value", message_result))
        self._last_updated_timestamp, result = self._bcast_object((timestamp, result))
        if result != HostUpdateResult.no_update:
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

    def save(self) -> None:
        """Copies the state in memory, for restore(). Local to this rank."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the state of the last save(). Local to this rank."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank the state of rank 0, and saves it. Collective: blocks until all ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called once the ranks have reconnected, before the reset callbacks. Does nothing here."""


class ObjectState(State):
    """Objects as attributes: ObjectState(bcast, rank, epoch=0, batch=0). save() copies them
    deeply, so that restore() brings back what they were then, even those that change in place."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        self._saved_state = dict(kwargs)
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        """Makes a deep copy of every value."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Sets every value to a deep copy of the saved one."""
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """Sets the values of all ranks to those of rank 0, and saves them. They must be picklable. Collective."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self.restore()


class HandledState(ObjectState):
    """An ObjectState in which some values (a model, an optimizer) have a handler that knows how to
    save, restore and sync them in place. handler_for(value) returns one or None."""

    def __init__(
        self,
        bcast_object: Callable[[Any], Any],
        get_rank: Callable[[], int],
        handler_for: Callable[[Any], Handler | None],
        **kwargs: Any,
    ) -> None:
        self._handlers = {}
        self._handler_for = handler_for
        plain = {}
        for name, value in kwargs.items():
            handler = handler_for(value)
            if handler is None:
                plain[name] = value
            else:
                self._handlers[name] = handler
                object.__setattr__(self, name, value)
        super().__init__(bcast_object, get_rank, **plain)

    def save(self) -> None:
        """Saves the handled values, then the others."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Restores the handled values, then the others."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0: first the handled ones, then the others. Collective."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Calls reset() of every handler."""
        for handler in self._handlers.values():
            handler.reset()
        super().reset()

    def __setattr__(self, name, value):
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        super().__setattr__(name, value)


class Handler:
    """Saves, restores and syncs one value of a HandledState in place."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copies the value, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """Writes the saved copy into the value."""
        raise NotImplementedError

    def sync(self) -> None:
        """Writes rank 0's value into that of every rank, and saves it. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """The ranks changed."""

    def set_value(self, value: Any) -> None:
        """Handles another object from now on, and saves it."""
        self.value = value
        self.save()


class _HostUpdateListener:
    """A thread that receives host updates from the launcher and passes them to the current state.
    Runs on rank 0 only, which informs the other ranks in State.check_host_updates()."""

    def __init__(self):
        self._state = None
        self._thread = None

    def attach(self, state):
        self._state = state
        if self._thread is None and basics.in_elastic_job():
            self._thread = threading.Thread(target=self._listen, name="hora-host-updates", daemon=True)
            self._thread.start()

    def _listen(self):
        native = _native.library()
        changes = ctypes.c_int32()
        while True:
            if native.rank() != 0:  # another rank listens, or this one is between two epochs
                time.sleep(0.2)
                continue
            status = native.wait_host_update(1000, ctypes.byref(changes))
            if status == _native.OK and changes.value:
                self._state.on_hosts_updated(time.time(), changes.value)
            elif status != _native.OK:
                time.sleep(1)


_listener = _HostUpdateListener()


def reset_job() -> None:
    """Leaves the job and joins it as it is now."""
    basics.shutdown()
    basics.init()


def _all_skip(skip_sync):
    """Whether no rank needs the state of the others. If hosts only left, this rank does not need it; but
    another rank may have lost a peer and gone back to its last commit, or may be new."""
    if not basics.is_initialized() or basics.size() == 1:
        return skip_sync
    return all(objects.allgather_object(skip_sync, "elastic_skip_sync"))


def run_fn(
    func: Callable[..., Any],
    reset: Callable[[], Any],
    translate: Callable[[BaseException], BaseException | None] | None = None,
) -> Callable[..., Any]:
    """func(state, ...) as a function that survives changes of the ranks. `reset` reconnects the
    ranks. `translate` may turn a framework's own error into one of ours, or return None."""

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        skip_sync = False
        _listener.attach(state)
        while True:
            try:
                if not _all_skip(skip_sync):
                    state.sync()
                os.environ["HORA_KNOWS_STATE"] = "1"  # hora_reset() reports it to the launcher
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as update:
                skip_sync = update.skip_sync
            except Exception as error:
                ours = error
                if not isinstance(error, HorovodInternalError):
                    ours = translate(error) if translate is not None else None
                if ours is None or not getattr(ours, "recoverable", True):
                    raise
                state.restore()
                skip_sync = False
            if isinstance(state, State):
                state.begin_meeting()
            reset()
            state.on_reset()

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: makes func(state, ...) survive changes of the ranks.

    Before each call of func all ranks get the state of rank 0. After a lost peer, func starts again from the last
    state.commit(); after hosts were added or removed (HostsUpdatedInterrupt, from commit() or check_host_updates()),
    from its current state. The ranks leave the job and join it as it is then, which blocks until it has enough of
    them (horarun --min-np, --elastic-timeout). Returns what func returns. Errors other than a lost peer end func as
    usual.
    """
    return run_fn(func, reset_job)


class SimpleState(ObjectState):
    """An ObjectState for this job, without a framework."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(objects.broadcast_object, basics.rank, **kwargs)
