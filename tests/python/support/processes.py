# SPDX-License-Identifier: Apache-2.0
"""Waiting for other processes, and whether they live."""

import contextlib
import os
import pathlib
import time

# When a test gives up. On a twentieth of a processor, an executor of Spark starts after minutes.
TIMEOUT_S = 300


def wait_until(condition, what, seconds=TIMEOUT_S):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(folder):
    """The processes in whose environment HORA_TEST_MARK is the test's folder."""
    return processes_with("environ", f"HORA_TEST_MARK={folder}\0".encode())


def processes_with(file, words):
    """The living processes whose `file` in /proc has these words. Not by glob(), which fails when a process ends
    while it looks."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if words in pathlib.Path("/proc", name, file).read_bytes() and is_alive(name):
                found.append(int(name))
    return found
