# SPDX-License-Identifier: Apache-2.0
"""A shell command whose processes end with it, by the name that integrations import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Between SIGTERM and SIGKILL.
GRACEFUL_TERMINATION_TIME_S = 5
_INTERVAL_S = 0.05


def _copy(pipe, target, prefix, with_time):
    """Lines of the command's output, marked where the caller gave an index."""
    for line in iter(pipe.readline, b""):
        time_text = time.strftime("%a %b %d %H:%M:%S %Y") if with_time else ""
        target.write((time_text + prefix if prefix else "") + line.decode(errors="replace"))
        target.flush()
    pipe.close()


def _is_there(process):
    """Whether the command, or anything that it started, still runs."""
    process.poll()  # a command that has ended must not count
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(process):
    """SIGTERM to all of the command's processes, and SIGKILL to what is left after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _is_there(process):
            return
        os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACEFUL_TERMINATION_TIME_S
        while _is_there(process) and time.monotonic() < deadline:
            time.sleep(_INTERVAL_S)


def execute(
    command: str,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs the command in a shell, and returns its exit code; 128 and the signal's number if one ended it. When
    one of the events is set, or the caller is interrupted, the command and what it started are ended."""
    process = subprocess.Popen(
        command, shell=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    mark = "" if index is None else f"[{index}]"
    copies = [
        threading.Thread(target=_copy, daemon=True, args=(pipe, target, mark and f"{mark}<{name}>:", timed))
        for pipe, target, name, timed in (
            (process.stdout, stdout or sys.stdout, "stdout", prefix_output_with_timestamp),
            (process.stderr, stderr or sys.stderr, "stderr", prefix_output_with_timestamp),
        )
    ]
    for copy in copies:
        copy.start()
    try:
        while process.poll() is None and not any(event.is_set() for event in events or ()):
            try:
                process.wait(_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _end(process)  # of a command that has ended, what it left behind
    for copy in copies:
        copy.join(GRACEFUL_TERMINATION_TIME_S)  # a process in a session of its own may keep the pipe
    code = process.wait()
    return 128 - code if code < 0 else code
