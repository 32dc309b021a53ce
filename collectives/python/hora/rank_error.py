# SPDX-License-Identifier: Apache-2.0
"""The error of a rank on its way to the caller of run(): its traceback as text, and the exception itself."""

from __future__ import annotations

import contextlib
import linecache
import os
import traceback

from hora import serialization

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

# Cells of a notebook may be many; those that were executed last are of interest.
_MOST_SOURCE_CHARACTERS = 1 << 20


class JobFailed(RuntimeError):
    """The job ran and failed. `rank` is the rank whose exception is the cause; None if no rank raised one."""

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank


def encode(error: BaseException) -> bytes:
    """The message for decode(). An exception that cannot be sent is left out; its text is always there."""
    # The calls of the user's function are Hora's own frames, which explain nothing.
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
    # File names may contain bytes that are not UTF-8.
    text = "".join(lines).encode(errors="backslashreplace")
    pickled = b""
    with contextlib.suppress(Exception):
        pickled = serialization.dumps(error)
    return len(text).to_bytes(8, "little") + text + pickled


def decode(rank: int, body: bytes) -> JobFailed:
    """The error to raise for the message of encode()."""
    end = 8 + int.from_bytes(body[:8], "little")
    text = body[8:end].decode(errors="replace")
    failure = JobFailed(f"rank {rank} failed:\n{text}", rank)
    try:
        cause = serialization.loads(body[end:])
    except Exception:  # its class is not known here, or cannot be made again from its arguments
        cause = RuntimeError(text.rstrip().rpartition("\n")[2])
    failure.__cause__ = cause if isinstance(cause, BaseException) else None
    return failure


def _cell_sources() -> dict[str, str]:
    """The source of code that is in no file, such as cells of a notebook, by the name that its code has."""
    sources = {}
    left = _MOST_SOURCE_CHARACTERS
    for name, entry in reversed(list(linecache.cache.items())):
        # An entry of one element has not been read yet; one with a time is a file's.
        if len(entry) != 4 or entry[1] is not None or os.path.exists(name):
            continue
        left -= entry[0]
        if left < 0:
            break
        sources[name] = "".join(entry[2])
    return sources


class _WithSources:
    """A function from a notebook, with the source of its cells: tracebacks of a rank show its lines."""

    def __init__(self, func, sources):
        self._func, self._sources = func, sources
        self.__qualname__ = getattr(func, "__qualname__", repr(func))

    def __call__(self, *args, **kwargs):
        for name, text in self._sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return self._func(*args, **kwargs)


def with_sources(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function to send instead of `func`."""
    sources = _cell_sources()
    return _WithSources(func, sources) if sources else func
