# SPDX-License-Identifier: Apache-2.0
"""A shell on a terminal of its own."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import time


class Terminal:
    """An interactive shell with job control on a terminal of its own."""

    def __init__(self, environment, cwd, wrapper=()):
        """`wrapper` are words before those that start the shell."""
        self.master, slave = pty.openpty()
        self.shell = subprocess.Popen(
            [*wrapper, "/bin/bash", "--norc", "--noediting", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**environment, "PS1": "PROMPT> ", "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=lambda: self.take(slave),
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""
        self.wait_for("PROMPT> ")

    @staticmethod
    def take(slave):
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def type(self, text):
        os.write(self.master, text.encode())

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """What was shown since the last wait_for."""
        try:
            while True:
                self.text += os.read(self.master, 65536).decode(errors="replace")
        except OSError:
            return self.text

    def wait_for(self, text, seconds=30):
        """Until `text` was shown; forgets what was shown up to there."""
        deadline = time.monotonic() + seconds
        while text not in self.read():
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n{self.text}"
            time.sleep(0.01)
        before, _, self.text = self.text.partition(text)
        return before

    def close(self):
        os.close(self.master)
        try:
            self.shell.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.shell.kill()
            self.shell.wait()


def rows_of(text):
    """The lines as they stand on the terminal at the end."""
    return [row.rpartition("\r")[2] for row in text.replace("\r\n", "\n").split("\n")]
