"""Operations in flight: names, submission, waiting, and the table of handles.

Everything here is the same for every framework. What differs (where a tensor's memory is, how to
make another one like it) is a Framework, and TensorOps puts the two together.
"""

import ctypes
import itertools

from hora import _native, dtypes, exceptions

# --- names -------------------------------------------------------------------------------------

# Ranks match operations by name, so a name made up here must be the same on every rank of the
# process set: one counter for each kind of operation and set, which operations of other sets do
# not move.
_name_counters = {}


def _operation_name(kind, name, process_set_id):
    if name is not None:
        return f"{kind}.{name}"
    counter = _name_counters.get((kind, process_set_id))
    if counter is None:
        counter = _name_counters.setdefault((kind, process_set_id), itertools.count())
    return f"{kind}.noname.{next(counter)}"


def forget_names(process_set_id):
    """Made-up names of this set start over: its members may be others now."""
    for key in [key for key in _name_counters if key[1] == process_set_id]:
        del _name_counters[key]


# --- operations in flight ------------------------------------------------------------------------


class Pending:
    """One submitted operation or group. It owns the native handles, and keeps the tensors alive
    that the library reads and writes until those are done."""

    __slots__ = ("natives", "kept", "outputs", "fetch", "grouped", "after", "aborted")

    def __init__(self, natives, kept, outputs, fetch, grouped, after):
        self.natives = natives  # native handles, in the order of the tensors
        self.kept = kept  # whatever must outlive the operation
        self.outputs = outputs  # the results, where this side allocated them
        self.fetch = fetch  # native handle -> result, where the library allocated it
        self.grouped = grouped
        self.after = after  # results -> results, once, when all are done
        self.aborted = None  # text, once the job was left with this in flight

    def done(self):
        poll = _native.library().poll
        return self.aborted is not None or all(
            poll(native) != _native.IN_PROGRESS for native in self.natives)

    def result(self):
        """Waits, frees the native handles, and answers the result or raises. When a signal's
        handler raises, the operation is still in flight and this can be called again."""
        if self.aborted is not None:
            raise exceptions.HorovodInternalError(self.aborted)
        native_wait = _native.wait
        failed = 0
        for native in self.natives:
            status = native_wait(native)
            if status != _native.OK and not failed:
                failed, failed_native = status, native
        library = _native.library()
        try:
            if failed:
                text = library.error(failed_native).decode(errors="replace")
                raise _native.failure(failed, text)
            fetch = self.fetch
            results = self.outputs if fetch is None else [fetch(each) for each in self.natives]
        finally:
            for native in self.natives:
                library.release(native)
            self.natives = ()
            self.kept = None
        if self.after is not None:
            results = self.after(results)
        return results if self.grouped else results[0]

    def abandon(self, text):
        """The job was left: nothing touches the tensors any more."""
        library = _native.library()
        for native in self.natives:
            library.release(native)
        self.natives = ()
        self.kept = None
        self.aborted = text


class _Ready:
    """Stands in for a Pending whose result was taken before the job was left."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def done(self):
        return True

    def result(self):
        return self.value

    def abandon(self, text):
        pass


_handles = itertools.count(1)
_in_flight = {}  # handle that the caller has -> Pending
_orphans = []  # Pendings that nobody will ask for (a wait was interrupted)


def _sweep_orphans():
    for pending in list(_orphans):
        if pending.done():
            _orphans.remove(pending)
            pending.abandon("")


def new_handle(pending):
    """The handle for poll() and synchronize()."""
    handle = next(_handles)
    _in_flight[handle] = pending
    return handle


def wait_now(pending):
    """The result of an operation that nobody else has a handle for."""
    try:
        return pending.result()
    except BaseException:
        if pending.natives:  # interrupted: its memory must live on until the library is done
            _orphans.append(pending)
        raise


def poll(handle):
    """Whether the operation is done (then synchronize does not wait)."""
    pending = _in_flight.get(handle)
    return pending is None or pending.done()


def synchronize(handle):
    """Waits for an operation and answers its result; None for a handle that is not known or was
    synchronized before. Raises HorovodInternalError when the operation failed."""
    pending = _in_flight.pop(handle, None)
    if pending is None:
        return None
    try:
        return pending.result()
    except BaseException:
        if getattr(pending, "natives", ()):
            _in_flight[handle] = pending
        raise


def forget(handle):
    """Nobody will ask for this operation's result. It keeps its memory until it is done."""
    pending = _in_flight.pop(handle, None)
    if pending is not None and getattr(pending, "natives", ()):
        _orphans.append(pending)


def wait_for(handle, seconds):
    """Waits so long at most for the operation to be done; whether it is. Its result stays with
    the handle."""
    pending = _in_flight.get(handle)
    wait = _native.library().wait
    for native in getattr(pending, "natives", ()):
        if wait(native, int(seconds * 1000)) == _native.TIMED_OUT and not pending.done():
            return False
    return True


def in_flight_count():
    """Operations that were started and not yet synchronized."""
    return len(_in_flight) + len(_orphans)


def settle():
    """Takes the results of what is done, so that leaving the job does not lose them."""
    for handle, pending in list(_in_flight.items()):
        if isinstance(pending, Pending) and pending.aborted is None and pending.done():
            try:
                _in_flight[handle] = _Ready(pending.result())
            except Exception as error:
                pending.aborted = str(error) or type(error).__name__


def abort_all(text):
    """After the job was left: what is still in flight fails with this text."""
    for pending in list(_in_flight.values()) + _orphans:
        if isinstance(pending, Pending) and pending.aborted is None:
            pending.abandon(text)
    _orphans.clear()


def forget_all():
    """Before a job is joined: handles and made-up names start over."""
    abort_all("the job that this operation belonged to was left")
    _in_flight.clear()
    _name_counters.clear()


# --- what is submitted ---------------------------------------------------------------------------


def _set_id(process_set):
    set_id = process_set.process_set_id
    if set_id is None:
        raise ValueError(f"{process_set} is not registered: pass it to init(process_sets=[...]), "
                         "or to add_process_set()")
    return set_id


def _check_adasum(process_set):
    """The library has no Adasum kernel yet: refused here, on every rank alike, before it is sent."""
    if process_set.size() > 1:
        raise exceptions.UnsupportedError(
            "op=Adasum is not built into this release of Hora's runtime; use Average or Sum")


def start_control(operation, name, process_set):
    """join or barrier: no tensor."""
    _native.check_initialized(name)
    natives = _native.submit(
        [_native.Request(operation, None, process_set=_set_id(process_set))])
    return Pending(natives, None, [None], None, False, None)


def barrier(process_set):
    """Returns once every rank of the set has called it."""
    wait_now(start_control(_native.BARRIER, "barrier", process_set))


def join(process_set):
    """Tells the others that this rank has no more data: it takes part in their reductions with
    zeros until all have joined. Answers the rank that joined last."""
    pending = start_control(_native.JOIN, "join", process_set)
    pending.fetch = _native.library().last_joined
    return wait_now(pending)


def native_result(native):
    """(address, shape, dtype code, device) of a result that the library allocated; it lives as
    long as the native handle."""
    tensor = _native.Tensor()
    _native.check(_native.library().result(native, ctypes.byref(tensor)))
    shape = tuple(tensor.shape[: tensor.ndim])
    return tensor.data or 0, shape, tensor.dtype, tensor.device


def native_received_splits(native):
    values = ctypes.POINTER(ctypes.c_int64)()
    count = ctypes.c_int32()
    _native.check(_native.library().received_splits(
        native, ctypes.byref(values), ctypes.byref(count)))
    return values[: count.value]


class Framework:
    """What an array library has to tell about its tensors."""

    name = ""

    def dense(self, tensor):
        """A dense row-major tensor with the same values; the tensor itself where it is one."""
        raise NotImplementedError

    def view(self, tensor):
        """(address, shape, dtype code, device ordinal or -1, CUDA stream) of a dense tensor."""
        raise NotImplementedError

    def address(self, tensor):
        """Where the memory of a dense tensor begins."""
        return self.view(tensor)[0]

    def empty_like(self, tensor):
        """A dense tensor of the same shape, dtype and device, with any values."""
        raise NotImplementedError

    def from_native(self, address, shape, dtype, device, like):
        """A new tensor with a copy of the memory at address; `like` shows the kind of tensor."""
        raise NotImplementedError

    def from_integers(self, values, like):
        """A tensor of 32-bit integers (the received splits of alltoall)."""
        raise NotImplementedError

    def assign(self, tensor, source):
        """Writes the values of source into tensor."""
        raise NotImplementedError


class TensorOps:
    """The collectives on the tensors of one framework, as Pendings."""

    def __init__(self, framework):
        self.framework = framework

    def _names(self, kind, name, set_id, count, grouped):
        if not grouped:
            return (_operation_name(kind, name, set_id),)
        base = _operation_name(f"grouped_{kind}", name, set_id)
        return [f"{base}_{index + 1}of{count}" for index in range(count)]

    @staticmethod
    def _not_empty(tensors, grouped):
        if grouped and not tensors:
            raise ValueError("a group needs at least one tensor")

    def allreduce(self, tensors, name, op, prescale, postscale, process_set, in_place=False,
                  grouped=False, priority=0):
        """Starts allreduces; tensors is a sequence, of one tensor unless grouped."""
        self._not_empty(tensors, grouped)
        if op == _native.ADASUM:
            _check_adasum(process_set)
        framework = self.framework
        set_id = _set_id(process_set)
        names = self._names("allreduce", name, set_id, len(tensors), grouped)
        requests, kept, outputs, copies = [], [], [], None
        for tensor, tensor_name in zip(tensors, names):
            source = framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source)
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
            requests.append(_native.Request(
                _native.ALLREDUCE, tensor_name, address, shape, dtype, device, output_address,
                set_id, op, 0, prescale, postscale, None, stream, priority))
        return self._start(requests, kept, outputs, None, grouped, copies)

    def allreduce_now(self, tensor, name, op, prescale, postscale, process_set, in_place=False):
        """allreduce() of one tensor, and its result: the shortest way through this file."""
        framework = self.framework
        source = framework.dense(tensor)
        address, shape, dtype, device, stream = framework.view(source)
        if in_place:
            output, output_address = source, address
        else:
            output = framework.empty_like(source)
            output_address = framework.address(output)
        set_id = process_set.process_set_id
        if set_id is None:
            set_id = _set_id(process_set)  # raises
        if op == _native.ADASUM:
            _check_adasum(process_set)
        if _orphans:
            _sweep_orphans()
        native = _native.submit_one(
            _native.ALLREDUCE, _operation_name("allreduce", name, set_id), address, shape, dtype,
            device, output_address, set_id, op, 0, prescale, postscale, stream, 0)
        try:
            status = _native.wait(native)
        except BaseException:
            _orphans.append(Pending((native,), (source, output), [None], None, False, None))
            raise
        library = _native.library()
        if status != _native.OK:
            text = library.error(native).decode(errors="replace")
            library.release(native)
            raise _native.failure(status, text)
        library.release(native)
        if not in_place:
            return output
        if source is not tensor:
            framework.assign(tensor, source)
        return tensor

    def broadcast(self, tensors, root_rank, name, process_set, in_place=False, grouped=False,
                  priority=0):
        self._not_empty(tensors, grouped)
        framework = self.framework
        set_id = _set_id(process_set)
        names = self._names("broadcast", name, set_id, len(tensors), grouped)
        requests, kept, outputs, copies = [], [], [], None
        for tensor, tensor_name in zip(tensors, names):
            source = framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source)
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
            requests.append(_native.Request(
                _native.BROADCAST, tensor_name, address, shape, dtype, device, output_address,
                set_id, 0, root_rank, 1.0, 1.0, None, stream, priority))
        return self._start(requests, kept, outputs, None, grouped, copies)

    def allgather(self, tensors, name, process_set, grouped=False, priority=0):
        self._not_empty(tensors, grouped)
        return self._library_allocates(
            _native.ALLGATHER, "allgather", tensors, name, process_set, grouped, priority)

    def reducescatter(self, tensors, name, op, prescale, postscale, process_set, grouped=False,
                      priority=0):
        self._not_empty(tensors, grouped)
        return self._library_allocates(
            _native.REDUCESCATTER, "reducescatter", tensors, name, process_set, grouped, priority,
            op, prescale, postscale)

    def _library_allocates(self, operation, kind, tensors, name, process_set, grouped, priority,
                           op=_native.SUM, prescale=1.0, postscale=1.0):
        framework = self.framework
        set_id = _set_id(process_set)
        names = self._names(kind, name, set_id, len(tensors), grouped)
        requests, kept = [], []
        for tensor, tensor_name in zip(tensors, names):
            source = framework.dense(tensor)
            address, shape, dtype, device, stream = framework.view(source)
            if not len(shape):
                raise ValueError(
                    f"{kind} of a scalar ({tensor_name}): it has no first dimension to "
                    f"{'concatenate along' if operation == _native.ALLGATHER else 'split'}; "
                    "reshape it to one element")
            kept.append(source)
            requests.append(_native.Request(
                operation, tensor_name, address, shape, dtype, device, None, set_id, op, 0,
                prescale, postscale, None, stream, priority))

        like = tensors[0]

        def fetch(native):
            return framework.from_native(*native_result(native), like)

        return self._start(requests, kept, None, fetch, grouped, None)

    def alltoall(self, tensor, splits, name, process_set, priority=0):
        """splits: a list of integers, or None for equal parts. The result is (tensor, received
        splits) when splits are given."""
        framework = self.framework
        set_id = _set_id(process_set)
        (tensor_name,) = self._names("alltoall", name, set_id, 1, False)
        source = framework.dense(tensor)
        address, shape, dtype, device, stream = framework.view(source)
        if not len(shape):
            raise ValueError(f"alltoall of a scalar ({tensor_name}): it has no first dimension to "
                             "split; reshape it to one element")
        if splits is not None:
            rows = sum(splits)
            if rows > shape[0] or any(split < 0 for split in splits):
                raise ValueError(
                    f"alltoall({tensor_name}): the splits {list(splits)} ask for {rows} rows, but "
                    f"the tensor has {shape[0]}" if rows > shape[0] else
                    f"alltoall({tensor_name}): negative split in {list(splits)}")
            shape = (rows,) + tuple(shape[1:])  # rows after the last split stay here
        request = _native.Request(
            _native.ALLTOALL, tensor_name, address, shape, dtype, device, None, set_id, 0, 0,
            1.0, 1.0, splits, stream, priority)

        def fetch(native):
            received = framework.from_native(*native_result(native), tensor)
            if splits is None:
                return received
            return received, framework.from_integers(native_received_splits(native), tensor)

        return self._start([request], source, None, fetch, False, None)

    def _start(self, requests, kept, outputs, fetch, grouped, copies):
        if _orphans:
            _sweep_orphans()
        natives = _native.submit(requests)
        after = None
        if copies:
            assign = self.framework.assign

            def after(results):
                for tensor, source in copies:
                    assign(tensor, source)
                return results

        return Pending(natives, kept, outputs, fetch, grouped, after)


# --- arguments that every framework shares ---------------------------------------------------------


def choose_op(op, average):
    """The reduction that `op=` or the older `average=` asks for; Average when neither does."""
    if op is not None:
        if average is not None:
            raise ValueError("give op= or average=, not both (average= is the old way)")
        return op
    if average is None:
        return _native.AVERAGE
    import warnings

    warnings.warn("average= is deprecated; use op=Average or op=Sum", DeprecationWarning,
                  stacklevel=3)
    return _native.AVERAGE if average else _native.SUM


def numeric_splits(splits):
    """The splits argument of alltoall as a list of integers; None stays None."""
    if splits is None:
        return None
    values = splits.tolist() if hasattr(splits, "tolist") else list(splits)
    if not isinstance(values, list) or any(isinstance(value, list) for value in values):
        raise ValueError(f"alltoall: the splits must be a list of integers, not {splits!r}")
    if any(value != int(value) for value in values):
        raise ValueError(f"alltoall: the splits must be integers, not {values}")
    return [int(value) for value in values]


def byte_count(shape, dtype):
    count = dtypes.SIZE_OF_CODE[dtype]
    for extent in shape:
        count *= extent
    return count
