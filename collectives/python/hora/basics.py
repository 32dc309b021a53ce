# SPDX-License-Identifier: Apache-2.0
"""Joining and leaving the job, and queries about it."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from collections.abc import Iterable

from hora import _native, communicators, exceptions, operations
from hora.process_sets import ProcessSet, _settle_communicators
from hora.process_sets import _setup as _setup_process_sets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What every framework's interface offers, too: each does `from hora.basics import *`.
__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

Average = _native.AVERAGE
Sum = _native.SUM
Adasum = _native.ADASUM
Min = _native.MIN
Max = _native.MAX
Product = _native.PRODUCT

_exit_registered = False


def _static_sets(process_sets, world):
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f"init(process_sets={process_sets!r}): expected a list of process sets, or 'dynamic'")
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    if not isinstance(process_sets, Iterable) or not all(
        isinstance(each, (ProcessSet, list, tuple, range)) for each in process_sets
    ):
        raise ValueError("init(process_sets=...): expected a list of process sets, or 'dynamic'")
    sets = [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in process_sets]
    sets = _settle_communicators(sets, world)
    seen = {}
    for index, each in enumerate(sets):
        if tuple(each.ranks) in seen:
            raise ValueError(
                f"process sets {seen[tuple(each.ranks)]} and {index} of init() both have the ranks {each.ranks}"
            )
        seen[tuple(each.ranks)] = index
    return sets


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Joins the job that the launcher describes in the environment. Without a launcher the process is a world of one.

    Each process calls it for itself, before any collective; a second call returns at once and changes nothing. A
    process that a rank forks is not in the job: collectives raise NotInitializedError there. Any thread may call it,
    but not while another one is in init() or shutdown().

    Blocks until all ranks of the job have called it, at most HOROVOD_GLOO_TIMEOUT_SECONDS (30) from the call of rank
    0 on. In an elastic job every call but the first waits for a place among the new ranks, as long as it takes.
    Ctrl-C interrupts the wait.

    Args:
        comm: under MPI, a communicator of mpi4py or a list of ranks of MPI's world: these processes become a world of
            their own. Default: all ranks of the job
        process_sets: the sets to register, as ProcessSet or lists of ranks, the same on all ranks. "dynamic" is
            accepted: sets can be added at any time

    Raises:
        InitError: the ranks could not connect; the text names those that are missing, or the cause. It is a
            HorovodInternalError and a ValueError
        ValueError, TypeError: comm or process_sets is wrong; nothing was sent
        RemovedFromJob: an elastic job goes on without this process. It is a SystemExit with code 0
        ImportError: libhora.so could not be loaded; the text lists where it was looked for
    """
    global _exit_registered
    native = _native.library()
    if native.is_initialized():
        return
    world, named_size = communicators.world_of(comm)
    sets = _static_sets(process_sets, world.comm if world else None)
    options = _native.Options(struct_size=ctypes.sizeof(_native.Options))
    if sets:
        flat = [rank for each in sets for rank in each.ranks]
        options.process_set_ranks = (ctypes.c_int32 * len(flat))(*flat)
        options.process_set_sizes = (ctypes.c_int32 * len(sets))(*(len(s.ranks) for s in sets))
        options.process_set_count = len(sets)
    if world:
        world.describe(options)
    operations.forget_all()

    def join_job():
        status = native.init(ctypes.byref(options))
        if status == _native.OK:
            return None
        return _native.failure(status, native.last_error().decode(errors="replace"))

    error = _native.interruptible(join_job)
    # A rank may have been lost while the ranks connected; then the launcher gives this process another rank. What this
    # process lacks itself, it would lack again.
    while isinstance(error, exceptions.HorovodInternalError) and error.recoverable and in_elastic_job():
        error = _native.interruptible(join_job)
    if error is not None:
        if isinstance(error, exceptions.RemovedFromJob):
            raise error
        if isinstance(error, ValueError):
            raise error
        raise InitError(f"{error}: {world.failure}" if world and world.failure else str(error)) from None
    if named_size not in (None, size()):
        shutdown()
        raise ValueError(
            f"init(comm=...) names {named_size} ranks, but the job has "
            f"{os.environ.get('HOROVOD_SIZE', 'another number')}; horarun --pmix makes the job a world of MPI's"
        )
    _setup_process_sets(sets, world.comm if world else None)
    if in_elastic_job():
        _export_topology()
    if not _exit_registered:
        atexit.register(shutdown)
        _exit_registered = True


def _export_topology():
    """Sets the variables of this epoch, for code that reads os.environ."""
    numbers = {
        "RANK": rank(),
        "SIZE": size(),
        "LOCAL_RANK": local_rank(),
        "LOCAL_SIZE": local_size(),
        "CROSS_RANK": cross_rank(),
        "CROSS_SIZE": cross_size(),
    }
    for name, value in numbers.items():
        os.environ["HOROVOD_" + name] = str(value)
    for name, other in (
        ("RANK", "RANK"),
        ("WORLD_SIZE", "SIZE"),
        ("LOCAL_RANK", "LOCAL_RANK"),
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
    ):
        os.environ[name] = str(numbers[other])


class InitError(exceptions.HorovodInternalError, ValueError):
    """The ranks could not connect to each other; the text names the missing ranks or the cause. A
    ValueError, as in Horovod."""


def in_elastic_job() -> bool:
    """Whether horarun started this process as one of an elastic job."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0") and "HORA_WORKER" in os.environ


def shutdown() -> None:
    """Leaves the job. Does nothing before init(); also runs when the process exits.

    Operations in flight fail with HorovodInternalError on all ranks. Blocks until the runtime has ended, which waits
    for no other rank. The process may call init() again.
    """
    if _native._library is None:
        return
    native = _native.library()
    if not native.is_initialized():
        return
    operations.settle()
    status = native.shutdown()
    operations.abort_all("this process left the job (shutdown) before the operation was done")
    _setup_process_sets(None)
    _native.check(status)


def is_initialized() -> bool:
    """Whether this process has joined a job and not left it."""
    return _native._library is not None and bool(_native._library.is_initialized())


def _not_initialized(name):
    raise exceptions.NotInitializedError.before_init(f"{name}() was called before init(), or after shutdown()")


def rank() -> int:
    """The number of this process in the job, from 0 to size() - 1. NotInitializedError before init()."""
    value = _native.library().rank()
    return value if value >= 0 else _not_initialized("rank")


def size() -> int:
    """The number of processes of the job. NotInitializedError before init()."""
    value = _native.library().size()
    return value if value >= 0 else _not_initialized("size")


def local_rank() -> int:
    """The number of this process among those of its host, from 0 to local_size() - 1. NotInitializedError before
    init()."""
    value = _native.library().local_rank()
    return value if value >= 0 else _not_initialized("local_rank")


def local_size() -> int:
    """The number of processes of the job on this host. NotInitializedError before init()."""
    value = _native.library().local_size()
    return value if value >= 0 else _not_initialized("local_size")


def cross_rank() -> int:
    """The number of this host among the hosts that have a process with this local rank. NotInitializedError before
    init()."""
    value = _native.library().cross_rank()
    return value if value >= 0 else _not_initialized("cross_rank")


def cross_size() -> int:
    """The number of hosts that have a process with this local rank. NotInitializedError before init()."""
    value = _native.library().cross_size()
    return value if value >= 0 else _not_initialized("cross_size")


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks. NotInitializedError before init()."""
    _native.check_initialized("is_homogeneous")
    return bool(_native.library().is_homogeneous())


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Starts to write a timeline: a Chrome trace of every tensor (docs/reference/timeline.md).

    Args:
        file_path: where rank 0 writes; with "{rank}" in it, every rank that calls this writes a file of its own. The
            file is replaced. A timeline that is being written ends first
        mark_cycles: also mark the cycles of the runtime

    Raises NotInitializedError before init(), and ValueError if the file cannot be written.
    """
    _native.check_initialized("start_timeline")
    _check_timeline(_native.library().timeline_start(os.fsencode(file_path), int(bool(mark_cycles))))


def stop_timeline() -> None:
    """Ends the timeline. The file is complete when this returns. Does nothing if there is none.

    Raises NotInitializedError before init().
    """
    _native.check_initialized("stop_timeline")
    _check_timeline(_native.library().timeline_stop())


def _check_timeline(status):
    if status == _native.UNSUPPORTED:
        _native.check(status)
    if status != _native.OK:
        raise ValueError(_native.library().last_error().decode(errors="replace"))


def describe() -> dict[str, Any]:
    """The library's description of itself and of this process: version, backends (built, usable, or why not), the
    selection table, settings. Works before init(), too."""
    return json.loads(_native.library().describe().decode())


# --- what was built: the questions that Horovod's scripts ask ---------------------------------


def _built(backend):
    return bool(_native.library().backend_built(backend))


def _enabled(backend):
    return bool(_native.library().backend_enabled(backend))


def mpi_built() -> bool:
    """Whether libhora has its MPI module. It says nothing about this job: see mpi_enabled()."""
    return _built(b"mpi")


def mpi_enabled() -> bool:
    """Whether the processes of this job are a world of MPI. Its tensors may still travel by a faster backend."""
    return is_initialized() and (_enabled(b"mpi") or (communicators.launched_by_mpi() and size() > 1))


def mpi_threads_supported() -> bool:
    """Whether threads of the program may use MPI while the runtime does: MPI was initialised with MPI_THREAD_MULTIPLE,
    or its first user can still do so. ValueError where the job does not use MPI, NotInitializedError before init()."""
    _native.check_initialized("mpi_threads_supported")
    if not mpi_enabled():
        raise ValueError("MPI is not in use in this job, so its thread support is not known")
    mpi = communicators.mpi_in_use()
    if mpi is not None:
        return mpi.Query_thread() == mpi.THREAD_MULTIPLE
    version = next((each["version"] for each in describe()["backends"] if each["id"] == "mpi"), "")
    if "MPI_THREAD_" in version:  # the runtime has initialised it
        return "MPI_THREAD_MULTIPLE" in version
    return os.environ.get("HOROVOD_MPI_THREADS_DISABLE", "") in ("", "0")


def gloo_built() -> bool:
    """Whether tensors in host memory can travel between hosts without MPI. Horovod needs Gloo for that."""
    return _built(b"tcp") or _built(b"gloo")


def gloo_enabled() -> bool:
    """Whether this job moves tensors in host memory over TCP. False before init()."""
    return is_initialized() and (_enabled(b"tcp") or _enabled(b"gloo"))


def nccl_built() -> int:
    """NCCL's version as one integer (22809 is 2.28.9); 0 if NCCL was not built or is not installed here."""
    if not _built(b"nccl"):
        return 0
    for backend in describe().get("backends", []):
        if backend.get("id") == "nccl":
            parts = str(backend.get("version", "")).split(".")
            if len(parts) >= 2 and all(part.isdigit() for part in parts[:3]):
                major, minor, patch = (int(part) for part in ([*parts, "0"])[:3])
                return major * 10000 + minor * 100 + patch
    return 0


def cuda_built() -> bool:
    """Whether libhora has its NCCL module, so that it can reduce CUDA tensors in GPU memory."""
    return _built(b"nccl")


def rocm_built() -> bool:
    """False: Hora has no backend for AMD GPUs."""
    return False


def ddl_built() -> bool:
    """False: Hora has no backend for IBM DDL."""
    return False


def ccl_built() -> bool:
    """Whether libhora has its oneCCL module, and oneCCL is here. HOROVOD_CPU_OPERATIONS=ccl asks for it."""
    return _built(b"ccl")


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether num_rank is a power of two, which some Adasum layouts of Horovod need."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
