# SPDX-License-Identifier: Apache-2.0
"""The process of a rank that a task of Spark starts: `python -m hora.rank_process PARENT FUNCTION-FD
OUTCOME-FD` reads a function, calls it, and writes its outcome."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

# The first byte of an outcome.
RESULT, FAILURE, CONSEQUENCE = b"R", b"E", b"C"


def main() -> None:
    """Calls the function in the file argv[2] and writes its outcome to the file argv[3]."""
    parent, function, outcome = (int(word) for word in sys.argv[1:4])
    # If the task is killed, nothing else would end this process.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    from hora import clusters, forked, rank_error, serialization

    clusters.offer()
    with open(function, "rb") as file:
        data = file.read()
    code: str | int = 0
    try:
        func, args, kwargs = serialization.loads(data, "the function that the driver sent")
        name = getattr(func, "__qualname__", func)
        body = RESULT + serialization.dumps(forked.call(func, args, kwargs), f"the result of {name!r}")
    except (Exception, SystemExit) as error:
        body = _kind(error) + rank_error.encode(error)
        code = error.code if isinstance(error, SystemExit) and error.code else 1
    with open(outcome, "wb") as file:
        file.write(body)
    sys.exit(code)


def _kind(error):
    """A rank that failed because it lost another one is not the cause of the failure."""
    from hora.exceptions import HorovodInternalError

    return CONSEQUENCE if isinstance(error, HorovodInternalError) else FAILURE


if __name__ == "__main__":
    main()
