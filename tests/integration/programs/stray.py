# SPDX-License-Identifier: Apache-2.0
"""A rank that resists its end:  stray.py KIND...   (rank r is of kind r, counted round)

Says "ready KIND" when its processes are in place, then waits for ever.
"""

import fcntl
import os
import signal
import sys
import time

MARK = os.environ["HORA_TEST_MARK"]


def sleep_for_ever(environment=None):
    """Becomes a program that has the mark among its arguments, whatever its environment."""
    os.execve(
        "/bin/sh",
        ["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1000; done", MARK],
        dict(os.environ) if environment is None else environment,
    )


def close_everything(but=-1):
    for fd in range(1024):
        try:
            if fd != but:
                os.close(fd)
        except OSError:
            pass


def in_child(action):
    """Forks; answers when the child has done what comes before its long sleep."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    if os.fork() == 0:
        os.close(reader)
        action()
    os.close(writer)
    os.read(reader, 1)  # closed by the child's exec, or by its close_everything()
    os.close(reader)


def new_session():
    os.setsid()
    sleep_for_ever()


def orphan():
    """Double fork: its parent is gone, so it belongs to the process that reaps orphans."""
    os.setsid()
    if os.fork():
        os._exit(0)
    sleep_for_ever()


def nameless():
    """No environment, no open file, a session of its own, no parent."""
    os.setsid()
    if os.fork():
        os._exit(0)
    close_everything()
    sleep_for_ever({})


def group():
    """As nameless, but in the session of its rank."""
    os.setpgid(0, 0)
    if os.fork():
        os._exit(0)
    close_everything()
    sleep_for_ever({})


def threads():
    """Its main thread ends, and another one waits: it says Z, and lives."""
    os.setsid()
    code = (
        "import ctypes, os, threading, time; "
        "threading.Thread(target=time.sleep, args=(1000,)).start(); "
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)"
    )
    os.execve(sys.executable, [sys.executable, "-S", "-c", code, MARK], dict(os.environ))


def chain():
    """Each process forks one and ends, in a session of its own; out of the job's cgroup, where it may leave it."""
    os.setsid()
    with open("/proc/self/cgroup") as file:
        own = next((line[3:].strip() for line in file if line.startswith("0::")), "/")
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        try:
            with open(f"{root}{os.path.dirname(own)}/cgroup.procs", "w") as file:
                file.write("0")
        except OSError:
            pass
    # Held by each in turn, so that jobs.py knows of them when it meets none.
    held = os.open(
        f"{os.path.dirname(os.path.abspath(__file__))}/held-{MARK}-{os.environ['HOROVOD_RANK']}", os.O_CREAT | os.O_RDWR
    )
    fcntl.flock(held, fcntl.LOCK_EX)
    close_everything(but=held)
    end = time.monotonic() + 300  # by itself, when a test that fails leaves it
    while time.monotonic() < end:
        # Slowly enough for a machine whose agent is stopped and reaps none of them.
        time.sleep(0.02)
        if os.fork():
            break
        os.setsid()
    os._exit(0)


def stopped():
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
    sleep_for_ever()


def main(kinds):
    kind = kinds[int(os.environ["HOROVOD_RANK"]) % len(kinds)]
    if kind == "deaf":
        for number in range(1, 65):
            if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, 32, 33):
                signal.signal(number, signal.SIG_IGN)
    elif kind == "stopped":
        if os.fork() == 0:
            stopped()
    elif kind != "plain":
        in_child(
            {
                "session": new_session,
                "orphan": orphan,
                "nameless": nameless,
                "group": group,
                "threads": threads,
                "chain": chain,
            }[kind]
        )
    os.write(1, f"ready {kind}\n".encode())
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(1000)


main(sys.argv[1:])
