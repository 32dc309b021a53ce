# SPDX-License-Identifier: Apache-2.0
"""A function of the user's may fork. The child has all that the process of the rank has: its connections, the
code that waits for the function, the handlers for its exit. It must use none of them."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn


def call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the function returns, or raises. A child that it has forked does not come back from here, but ends as a
    script does that comes to its end, exits or fails."""
    process = os.getpid()
    try:
        result = func(*args, **kwargs)
    except BaseException as error:
        if os.getpid() != process:
            _leave(error)
        raise
    if os.getpid() != process:
        _leave(None)
    return result


def _leave(error: BaseException | None) -> NoReturn:
    code = 0
    try:
        if isinstance(error, SystemExit):
            code = _exit_code(error.code)
        elif error is not None:
            code = 1
            traceback.print_exception(type(error), error, error.__traceback__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed, or replaced by something else
                stream.flush()
        os._exit(code)


def _exit_code(given):
    """As Python itself takes the argument of sys.exit()."""
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    print(given, file=sys.stderr)
    return 1
