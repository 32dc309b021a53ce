# SPDX-License-Identifier: Apache-2.0
"""On a terminal: Ctrl-C, Ctrl-Z and fg, Ctrl-\\, a window that closes."""

import contextlib
import os
import pty
import signal
import subprocess
import termios
import time

import pytest

import jobs


class Terminal:
    """An interactive shell with job control on a terminal of its own."""

    def __init__(self, environment, cwd):
        self.master, slave = pty.openpty()
        self.shell = subprocess.Popen(
            ["/bin/bash", "--norc", "-i"],
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
        import fcntl

        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, text, seconds=30):
        """Until `text` was shown; forgets what was shown up to there."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
                continue
            except (BlockingIOError, OSError):
                pass
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


@pytest.fixture
def terminal(horarun, shared):
    mark = "mark" + os.urandom(8).hex()
    opened = Terminal(
        {"PATH": f"{horarun.build}/bin:/usr/bin:/bin", "HORA_TEST_MARK": mark, "HOME": os.environ.get("HOME", "/")},
        shared,
    )
    opened.mark = mark
    yield opened
    with contextlib.suppress(OSError):
        opened.close()
    for process in jobs.processes_of(mark):
        os.kill(process.pid, signal.SIGKILL)


def ranks(terminal):
    return [p for p in jobs.processes_of(terminal.mark) if "tail -f" in p.command and "horarun" not in p.command]


READY = "horarun -np 2 sh -c 'echo rea''dy; exec tail -f /dev/null'\n"  # one process a rank


def states(processes):
    found = set()
    for process in processes:
        with open(f"/proc/{process.pid}/stat") as file:
            found.add(file.read().rpartition(")")[2].split()[0])
    return found


def test_ctrl_c(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_ctrl_c_twice(terminal):
    terminal.type("horarun -np 2 --grace 300s sh -c 'trap \"\" INT TERM; echo rea''dy; exec tail -f /dev/null'\n")
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x03")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ", seconds=20)
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_ctrl_z_and_fg(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x1a")
    terminal.wait_for("PROMPT> ")
    jobs.wait_until(lambda: len(ranks(terminal)) == 2 and states(ranks(terminal)) == {"T"}, "the ranks to stop")
    terminal.type("fg\n")
    jobs.wait_until(lambda: "T" not in states(ranks(terminal)), "the ranks to go on")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_stopped_longer_than_the_lease(terminal):
    terminal.type(READY.replace("-np 2", "-np 2 --lease 1s"))
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x1a")
    terminal.wait_for("PROMPT> ")
    time.sleep(3)
    assert len(ranks(terminal)) == 2
    terminal.type("fg\n")
    jobs.wait_until(lambda: "T" not in states(ranks(terminal)), "the ranks to go on")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")


def test_closed_window(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    os.close(terminal.master)
    jobs.wait_until(lambda: not jobs.processes_of(terminal.mark), "the end of everything", seconds=20)


def test_typed_input_reaches_rank_zero(terminal):
    terminal.type("horarun -np 2 sh -c 'read line; echo got $line'\n")
    time.sleep(0.5)
    terminal.type("hello\n")
    terminal.wait_for("[0]<stdout>:got hello")
    terminal.wait_for("PROMPT> ")


READS = "horarun -np 1 sh -c 'echo rea''dy; while read line; do echo got $line; done'"


def shell_is_there(terminal, number):
    """The terminal is the shell's: it does what it is told."""
    terminal.type(f"echo shell-$(({number}+1))\n")
    terminal.wait_for(f"shell-{number + 1}")


def test_input_after_fg_of_a_job_begun_in_the_background(terminal):
    terminal.type(READS + " &\n")
    terminal.wait_for("[0]<stdout>:ready")
    shell_is_there(terminal, 1)
    terminal.type("fg\n")
    terminal.wait_for("horarun")  # the shell says what it brings to the foreground
    terminal.type("hello\n")
    terminal.wait_for("[0]<stdout>:got hello")
    terminal.type("\x04")
    terminal.wait_for("PROMPT> ")
    shell_is_there(terminal, 2)


def test_input_after_bg_and_fg(terminal):
    terminal.type(READS + "\n")
    terminal.wait_for("[0]<stdout>:ready")
    for turn in ("one", "two"):
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        terminal.wait_for("PROMPT> ")
        terminal.type("bg\n")
        terminal.wait_for("PROMPT> ")
        shell_is_there(terminal, 1)
        terminal.type("fg\n")
        terminal.wait_for("horarun")
        terminal.type(f"{turn}\n")
        terminal.wait_for(f"[0]<stdout>:got {turn}")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")
