# SPDX-License-Identifier: Apache-2.0
"""Finding and loading libhora, and its functions with their types (hora.h)."""

from __future__ import annotations

import ctypes
import os

ABI_VERSION = 1


class Tensor(ctypes.Structure):
    """struct hora_tensor"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


#: hora_options.allgather: context, data, bytes, received, timeout_ms
Exchange = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64
)


class Options(ctypes.Structure):
    """struct hora_options"""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("process_set_ranks", ctypes.POINTER(ctypes.c_int32)),
        ("process_set_sizes", ctypes.POINTER(ctypes.c_int32)),
        ("process_set_count", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("allgather", Exchange),
        ("context", ctypes.c_void_p),
    ]


def library_candidates() -> list[str]:
    """The paths at which libhora is searched, best first. The last one uses the system's loader."""
    chosen = os.environ.get("HORA_LIBRARY")
    if chosen:
        return [chosen]
    package = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(package))
    bundled = os.path.join(root, "lib", "libhora.so")  # the bundle has the folders python/hora and lib
    return [bundled] * os.path.exists(bundled) + ["libhora.so.0", "libhora.so"]


class Library:
    """The loaded library: its functions, typed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._waiting = ctypes.CDLL(path)
        self._quick = ctypes.PyDLL(path, handle=self._waiting._handle)
        i32, i64, text = ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p
        i32_array = ctypes.POINTER(i32)
        quick, waiting = self._quick, self._waiting
        self.abi_version = self._function(quick, "hora_abi_version", ctypes.c_int)
        self.version = self._function(quick, "hora_version", text)
        self.last_error = self._function(quick, "hora_last_error", text)
        self.status_name = self._function(quick, "hora_status_name", text, ctypes.c_int)
        self.is_initialized = self._function(quick, "hora_is_initialized", ctypes.c_int)
        for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"):
            setattr(self, name, self._function(quick, "hora_" + name, ctypes.c_int))
        self.submit = self._function(quick, "hora_submit", ctypes.c_int, ctypes.c_void_p, i32, ctypes.c_void_p)
        self.poll = self._function(quick, "hora_poll", ctypes.c_int, i64)
        self.error = self._function(quick, "hora_error", text, i64)
        self.result = self._function(quick, "hora_result", ctypes.c_int, i64, ctypes.POINTER(Tensor))
        self.received_splits = self._function(
            quick, "hora_received_splits", ctypes.c_int, i64, ctypes.POINTER(ctypes.POINTER(i64)), i32_array
        )
        self.last_joined = self._function(quick, "hora_last_joined", ctypes.c_int, i64)
        self.release = self._function(quick, "hora_release", None, i64)
        self.process_set_size = self._function(quick, "hora_process_set_size", ctypes.c_int, i32)
        self.process_set_rank = self._function(quick, "hora_process_set_rank", ctypes.c_int, i32)
        self.process_set_ids = self._function(quick, "hora_process_set_ids", ctypes.c_int, i32_array, i32)
        self.process_set_ranks = self._function(quick, "hora_process_set_ranks", ctypes.c_int, i32, i32_array, i32)
        self.backend_built = self._function(quick, "hora_backend_built", ctypes.c_int, text)
        self.backend_enabled = self._function(quick, "hora_backend_enabled", ctypes.c_int, text)
        self.describe = self._function(quick, "hora_describe", text)
        self.xla_call = quick.hora_xla_call  # XLA calls it
        self.wait = self._function(waiting, "hora_wait", ctypes.c_int, i64, i64)
        self.run = self._function(waiting, "hora_run", ctypes.c_int, ctypes.c_void_p, i64, ctypes.c_void_p)
        self.init = self._function(waiting, "hora_init", ctypes.c_int, ctypes.POINTER(Options))
        self.shutdown = self._function(waiting, "hora_shutdown", ctypes.c_int)
        self.reset = self._function(waiting, "hora_reset", ctypes.c_int)
        self.wait_host_update = self._function(waiting, "hora_wait_host_update", ctypes.c_int, i64, i32_array)
        self.process_set_add = self._function(waiting, "hora_process_set_add", ctypes.c_int, i32_array, i32, i32_array)
        self.process_set_of = self._function(waiting, "hora_process_set_of", ctypes.c_int, i32_array, i32, i32_array)
        self.process_set_remove = self._function(waiting, "hora_process_set_remove", ctypes.c_int, i32)
        self.timeline_start = self._function(waiting, "hora_timeline_start", ctypes.c_int, text, ctypes.c_int)
        self.timeline_stop = self._function(waiting, "hora_timeline_stop", ctypes.c_int)

    @staticmethod
    def _function(library, name, result, *arguments):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
        return function


def load() -> Library:
    """The library; ImportError says where it was looked for."""
    tried = []
    for candidate in library_candidates():
        try:
            library = Library(candidate)
        except (OSError, AttributeError) as error:
            tried.append(f"  {candidate}: {error}")
            continue
        if library.abi_version() != ABI_VERSION:
            raise ImportError(
                f"{candidate} speaks version {library.abi_version()} of Hora's C interface; "
                f"this package speaks version {ABI_VERSION}. Use the library and the package of "
                "one release."
            )
        return library
    raise ImportError(
        "Hora's runtime, libhora.so, could not be loaded:\n"
        + "\n".join(tried)
        + "\nStart the program with horarun, which brings it along, or set HORA_LIBRARY to its path."
    )
