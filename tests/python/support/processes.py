# SPDX-License-Identifier: Apache-2.0
"""Waiting for other processes, and whether they live."""

import contextlib
import pathlib
import time


def wait_until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def marked(folder):
    """The processes in whose environment HORA_TEST_MARK is the test's folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HORA_TEST_MARK={folder}\0".encode() in path.read_bytes() and is_alive(path.parent.name):
                found.append(int(path.parent.name))
    return found
