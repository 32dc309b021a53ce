# SPDX-License-Identifier: Apache-2.0
"""Runs horarun and looks at what it leaves behind.

Every job carries a mark, a random word in the launcher's environment, which horarun forwards to all
ranks. All test hosts share one process tree, seen from head: a process of the job is any process,
on any host, that has the mark in its environment or among its arguments.
"""

import contextlib
import fcntl
import glob
import os
import re
import signal
import subprocess
import time
import uuid

MARKS = []  # of all jobs of this process
DEADLINE_S = 120  # for one horarun; a test that needs it has failed


class Finished:
    """A horarun that has ended."""

    def __init__(self, argv, code, out, err, seconds):
        self.argv, self.code, self.out, self.err, self.seconds = argv, code, out, err, seconds

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def messages(self):
        return self.err.decode(errors="replace")

    def ranks(self, stream="stdout"):
        """rank -> its lines, from the tagged output."""
        lines = {}
        source = self.out if stream == "stdout" else self.err
        for line in source.split(b"\n"):
            match = re.match(rb"\[(\d+)\]<%s>:(.*)" % stream.encode(), line, re.S)
            if match:
                lines.setdefault(int(match[1]), []).append(match[2].decode(errors="replace"))
        return lines

    def expect(self, code=0):
        assert self.code == code, f"exit {self.code}, expected {code}\n{self}"
        return self

    def __str__(self):
        def shown(data):
            return data[-6000:].decode(errors="replace")

        return (
            f"$ {' '.join(self.argv)}\n--- exit {self.code} after {self.seconds:.2f} s\n"
            f"--- stdout\n{shown(self.out)}\n--- stderr\n{shown(self.err)}"
        )


class Running:
    """A horarun that has been started; ends with the test."""

    def __init__(self, argv, environment, cwd, mark, **options):
        self.argv, self.mark, self.cwd = argv, mark, cwd
        self.began = time.monotonic()
        MARKS.append(mark)
        self.process = subprocess.Popen(argv, env=environment, cwd=cwd, **options)

    @property
    def pid(self):
        return self.process.pid

    def send_signal(self, number):
        self.process.send_signal(number)

    def finish(self, input=None, timeout=DEADLINE_S):
        try:
            out, err = self.process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            try:
                out, err = self.process.communicate(timeout=5)
            except subprocess.TimeoutExpired as still:  # another process holds the streams open
                out, err = still.stdout, still.stderr
            raise AssertionError(
                f"horarun did not end within {timeout} s\n"
                + str(Finished(self.argv, "none", out or b"", err or b"", timeout))
            ) from None
        return Finished(self.argv, self.process.returncode, out or b"", err or b"", time.monotonic() - self.began)

    def read_until(self, text, times=1, timeout=60):
        """Reads stdout until `text` was seen so often; what was read is not in finish()."""
        seen = b""
        os.set_blocking(self.process.stdout.fileno(), False)
        try:
            deadline = time.monotonic() + timeout
            while seen.count(text.encode()) < times:
                chunk = self.process.stdout.read()
                if chunk:
                    seen += chunk
                elif chunk == b"" or self.process.poll() is not None:
                    raise AssertionError(
                        f"horarun ended before it printed {text!r}:\n{seen.decode(errors='replace')}\n"
                        + self.process.stderr.read().decode(errors="replace")
                    )
                elif time.monotonic() > deadline:
                    raise AssertionError(f"{text!r} was not printed {times} times within {timeout} s:\n{seen!r}")
                else:
                    time.sleep(0.01)
        finally:
            os.set_blocking(self.process.stdout.fileno(), True)
        return seen.decode(errors="replace")

    def survivors(self):
        return [p for p in processes_of(self.mark) if p.pid != self.pid] + held(self.cwd, self.mark)


class Process:
    def __init__(self, pid, command):
        self.pid, self.command = pid, command

    def __repr__(self):
        return f"{self.pid} ({self.command})"


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _stat(path):
    """The fields behind the name, the state first."""
    return _read(f"{path}/stat").rpartition(b")")[2].split()


def _threads(pid):
    try:
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def lives(pid):
    """Some thread of it does: a main thread may end before the others, and the process says Z from then on."""
    fields = _stat(f"/proc/{pid}")
    if not fields or fields[0] not in (b"Z", b"X"):
        return bool(fields)
    return int(fields[17]) > 1 and any(state and state[0] not in (b"Z", b"X") for state in map(_stat, _threads(pid)))


def shown_by(pid, file):
    """cmdline or environ; a main thread that has ended has neither any more."""
    return _read(f"/proc/{pid}/{file}") or next(
        filter(None, (_read(f"{thread}/{file}") for thread in _threads(pid))), b""
    )


def _shown(pid, command):
    return Process(pid, command.replace(b"\0", b" ").decode(errors="replace").strip()[:120])


def processes_of(mark):
    """The living processes that carry the mark, this one's own relatives aside."""
    found = []
    word = mark.encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        command = shown_by(entry, "cmdline")
        if (word in command or word in shown_by(entry, "environ")) and lives(entry):
            found.append(_shown(int(entry), command))
    return found


def held(folder, mark):
    """Processes that fork and exit all the time, so that a walk over /proc misses them: they lock a file."""
    found = []
    for path in glob.glob(f"{folder}/held-{mark}-*"):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(Process(None, f"a chain of processes, {os.path.basename(path)}"))
    return found


def agents():
    """Every agent and shim that runs anywhere in this world. Without a world of its own, a test has only those on this
    machine that its own jobs have started: it must not stop those of other people's jobs."""
    found = []
    is_own_world = os.environ.get("HORA_HOSTS_WORLD") == "1"
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            command = _read(f"/proc/{entry}/cmdline")
            # Here it runs from the build, on a host from the cache.
            if not re.search(rb"/hora-agent$|/hora/agent-[0-9a-f]+$", command.split(b"\0")[0]) or not lives(entry):
                continue
            if is_own_world or any(mark.encode() in _read(f"/proc/{entry}/environ") for mark in MARKS):
                found.append(_shown(int(entry), command))
    return found


def wait_until(condition, what, seconds=30.0):
    """Polls until condition() is true; what it waits for is in the message."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"timed out after {seconds} s: {what}"
        time.sleep(0.02)


def expect_nothing_left(job, seconds=15.0, also=list):
    """No process of the job on any host, the launcher aside, within the time given."""
    left = []

    def none_left():
        left[:] = job.survivors() + also()
        return not left

    try:
        wait_until(none_left, "every process of the job to end", seconds)
    except AssertionError:
        raise AssertionError(f"{len(left)} processes of the job still live after {seconds} s: {left}") from None


def with_other_clock(folder, seconds):
    """The environment of programs whose wall clock is ahead of this machine's by that much."""
    library = os.path.join(folder, "other_clock.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "other_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return {"LD_PRELOAD": library, "HORA_CLOCK_AHEAD": str(seconds)}


class Horarun:
    """The program under test."""

    def __init__(self, build, cwd):
        self.build = build
        self.path = os.path.join(build, "bin", "horarun")
        self.cwd = cwd
        self.started = []
        # HORA_STAR_RANKS=0: the control messages of jobs on several hosts go by their leaders.
        self.variables = {name: os.environ[name] for name in ("HORA_STAR_RANKS",) if name in os.environ}

    def start(self, *arguments, env=None, cwd=None, name=None, **options):
        """`name` is another one that it is called by: horovodrun."""
        mark = "mark" + uuid.uuid4().hex[:16]
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "HORA_TEST_MARK": mark,
            **self.variables,
            **(env or {}),
        }
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        program = os.path.join(self.build, "bin", name) if name else self.path
        job = Running([program, *map(str, arguments)], environment, cwd or self.cwd, mark, **options)
        self.started.append(job)
        return job

    def run(self, *arguments, input=None, timeout=DEADLINE_S, **options):
        if input is not None:
            options["stdin"] = subprocess.PIPE
        return self.start(*arguments, **options).finish(input, timeout)

    def clean_up(self):
        """Ends what a failed test left; answers what a passed one left, which is a failure."""
        left = []
        for job in self.started:
            if job.process.poll() is None:
                left.append(Process(job.pid, "horarun"))
                job.process.kill()
                job.process.wait()
            for stream in (job.process.stdin, job.process.stdout, job.process.stderr):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
        marks = [job.mark for job in self.started]
        deadline = time.monotonic() + 12
        while True:
            alive = [p for mark in marks for p in processes_of(mark)]
            if not alive or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.started.clear()
        return left + alive
