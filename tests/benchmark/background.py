# SPDX-License-Identifier: Apache-2.0
"""What else runs while something is measured."""

import contextlib
import subprocess
import sys


@contextlib.contextmanager
def background(count):
    """Processes that take all the time that they get, at the nice level of the contestants."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
