# SPDX-License-Identifier: Apache-2.0
"""Launcher, shim, agent and ranks that get no time: stopped, frozen, starved, short of memory, alone and together.

A job of which all processes exist, and are not stopped for longer than the lease, goes on. One that is lost ends
within its time, and the message has the evidence. HORA_PAUSED_JOBS=50 has each test disturb 50 jobs, eight at a time.
"""

import concurrent.futures
import contextlib
import glob
import os
import random
import signal
import sys
import time
import uuid

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import jobs

JOBS = int(os.environ.get("HORA_PAUSED_JOBS", "2"))
SEED = int(os.environ.get("HORA_SEED", "1"))
LEASE_S = 3.0
WAIT = "echo ready; until [ -e $0 ]; do sleep 0.1; done; echo lived"
TRAIN = """
import os, sys, time, numpy, hora.numpy as hvd
hvd.init()
print("ready", flush=True)
while not hvd.allreduce(numpy.array([float(os.path.exists(sys.argv[1]))]), op=hvd.Min, name="go").item():
    time.sleep(0.05)
print("lived", flush=True)
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def children(pid):
    return [int(word) for word in read(f"/proc/{pid}/task/{pid}/children").split()]


class Parts:
    """The processes of a job on this machine, by name."""

    def __init__(self, horarun, folder, ranks=2, program=("sh", "-c", WAIT)):
        self.go = folder / uuid.uuid4().hex
        self.errors = folder / f"{self.go.name}.err"
        with open(self.errors, "wb") as errors:
            self.job = horarun.start(
                "-np", ranks, "--lease", f"{LEASE_S:g}s", "--grace", "2s", *program, self.go, stderr=errors
            )
        self.job.read_until("ready", times=ranks)
        self.launcher = self.job.pid
        (self.shim,) = children(self.launcher)
        (self.agent,) = children(self.shim)
        self.ranks = children(self.agent)
        self.count = ranks

    def find(self, names):
        pids = []
        for name in names.split():
            found = getattr(self, name)
            pids += found if isinstance(found, list) else [found]
        return pids

    def end(self):
        self.go.touch()
        done = self.job.finish(timeout=100)
        done.err = self.errors.read_bytes()
        return done

    def expect_alive(self):
        done = self.end().expect(0)
        assert done.text.count("lived") == self.count, done
        return done


class Cgroup:
    """One of this machine's, in whichever version it has the controller."""

    def __init__(self, controller, pids):
        self.pids = pids
        self.home = {}
        root = f"/sys/fs/cgroup/{controller}"
        self.old = os.path.isdir(root)
        if not self.old:
            root = next((r for r in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if self.has(r, controller)), "")
        self.path = f"{root}/hora-test-{uuid.uuid4().hex[:8]}"
        try:
            os.mkdir(self.path)
        except OSError as error:
            pytest.skip(f"no cgroup with {controller} here: {error}")

    @staticmethod
    def has(root, controller):
        with contextlib.suppress(OSError):
            return controller in read(f"{root}/cgroup.subtree_control").split() or controller == "freezer"
        return False

    def set(self, old, new):
        """(file, value) of version 1 and of version 2."""
        write(f"{self.path}/{(old if self.old else new)[0]}", str((old if self.old else new)[1]))

    def take(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                write(f"{self.path}/cgroup.procs", str(pid))

    def remove(self):
        for pid in read(f"{self.path}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                write(f"{os.path.dirname(self.path)}/cgroup.procs", pid)
        jobs.wait_until(self.is_removed, f"{self.path} to be empty")

    def is_removed(self):
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
        return not os.path.isdir(self.path)


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop(parts, names, seconds, dice):
    """The first to go on finds the others stopped for a while."""
    pids = parts.find(names)
    send(pids, signal.SIGSTOP)
    time.sleep(seconds)
    dice.shuffle(pids)
    for pid in pids:
        send([pid], signal.SIGCONT)
        time.sleep(dice.uniform(0, 0.3))


def freeze(parts, names, seconds, _):
    """No signal, and no SIGCONT of the kernel: a process that waits for a disk looks like this."""
    group = Cgroup("freezer", parts.find(names))
    try:
        group.take()
        group.set(("freezer.state", "FROZEN"), ("cgroup.freeze", 1))
        time.sleep(seconds)
    finally:
        group.set(("freezer.state", "THAWED"), ("cgroup.freeze", 0))
        group.remove()


def starve(parts, names, seconds, _):
    """A hundredth of a processor, which a loop takes as well."""
    pids = parts.find(names)
    group = Cgroup("cpu", pids)
    try:
        group.set(("cpu.cfs_quota_us", 1000), ("cpu.max", "1000 100000"))
        loop = os.posix_spawn("/bin/sh", ["sh", "-c", "while :; do :; done"], os.environ)
        try:
            group.pids = [*pids, loop]
            group.take()
            time.sleep(seconds)
        finally:
            os.kill(loop, signal.SIGKILL)
            os.waitpid(loop, 0)
    finally:
        group.set(("cpu.cfs_quota_us", -1), ("cpu.max", "max"))
        group.remove()


def squeeze(parts, names, seconds, _):
    """No memory for more, and no process killed for it: who needs a page waits."""
    group = Cgroup("memory", parts.find(names))
    try:
        if group.old:
            write(f"{group.path}/memory.oom_control", "1")
        group.set(("memory.limit_in_bytes", 4096), ("memory.high", 0))
        group.take()
        time.sleep(seconds)
    finally:
        group.set(("memory.limit_in_bytes", -1), ("memory.high", "max"))
        group.remove()


# What is done to which process, for how many leases.
PAUSES = {
    "stop the launcher": (stop, "launcher", (0.3, 0.8)),
    "stop the shim": (stop, "shim", (0.3, 2.5)),
    "stop the agent": (stop, "agent", (0.3, 0.8)),
    "stop the ranks": (stop, "ranks", (0.3, 2.5)),
    "stop launcher and agent": (stop, "launcher agent", (0.3, 2.5)),
    "stop shim and agent": (stop, "shim agent", (0.3, 0.8)),
    "stop all": (stop, "launcher shim agent ranks", (0.3, 2.5)),
    "freeze the launcher": (freeze, "launcher", (0.3, 2.5)),
    "freeze the shim": (freeze, "shim", (0.3, 2.5)),
    "freeze the agent": (freeze, "agent", (0.3, 2.5)),
    "freeze the ranks": (freeze, "ranks", (0.3, 2.5)),
    "freeze launcher and ranks": (freeze, "launcher ranks", (0.3, 2.5)),
    "freeze all": (freeze, "launcher shim agent ranks", (0.3, 2.5)),
    "starve the launcher": (starve, "launcher", (1.5, 2.5)),
    "starve shim and agent": (starve, "shim agent", (1.5, 2.5)),
    "starve all": (starve, "launcher shim agent ranks", (1.5, 2.5)),
    "squeeze the launcher": (squeeze, "launcher", (1.5, 2.5)),
    "squeeze the agent": (squeeze, "agent", (1.5, 2.5)),
    "squeeze launcher, shim and agent": (squeeze, "launcher shim agent", (1.5, 2.5)),
}


def for_each_job(live):
    """Calls it with the number of each job; several at a time."""
    with concurrent.futures.ThreadPoolExecutor(min(JOBS, 8)) as pool:
        failures = [future.exception() for future in [pool.submit(live, SEED + n) for n in range(JOBS)]]
    for failure in failures:
        if failure:
            raise failure


@pytest.mark.parametrize("name", PAUSES)
def test_pause_ends_no_job(horarun, tmp_path, name):
    pause, names, leases = PAUSES[name]

    def live(seed):
        dice = random.Random(f"{name} {seed}")
        parts = Parts(horarun, tmp_path, ranks=dice.choice((1, 2, 4)))
        pause(parts, names, LEASE_S * dice.uniform(*leases), dice)
        parts.expect_alive()

    for_each_job(live)


@pytest.mark.parametrize("name", ["stop launcher and agent", "stop all", "freeze the agent", "freeze the ranks"])
def test_pause_ends_no_training(horarun, tmp_path, name):
    """The ranks watch each other, too."""
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    pause, names, leases = PAUSES[name]
    dice = random.Random(f"{name} {SEED}")
    parts = Parts(horarun, tmp_path, program=("/usr/bin/python3", "-c", TRAIN))
    pause(parts, names, LEASE_S * dice.uniform(*leases), dice)
    parts.expect_alive()


def test_end_of_an_agent_without_time_is_waited_for(horarun, tmp_path):
    def live(seed):
        parts = Parts(horarun, tmp_path)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            frozen = pool.submit(freeze, parts, "agent", 3 * LEASE_S, None)
            jobs.wait_until(lambda: frozen.running(), "the agent to be frozen")
            time.sleep(0.5)
            send([parts.launcher], signal.SIGTERM)
            frozen.result()
        done = parts.end().expect(128 + signal.SIGTERM)
        assert "did not confirm" not in done.messages, done

    for_each_job(live)


def is_over(parts):
    return parts.job.process.poll() is not None


def test_agent_that_stays_stopped_is_lost(horarun, tmp_path):
    def live(_):
        parts = Parts(horarun, tmp_path)
        send([parts.agent], signal.SIGSTOP)
        jobs.wait_until(lambda: is_over(parts), "the launcher to give up its agent", 60)
        send([parts.agent], signal.SIGCONT)
        done = parts.end().expect(125)
        assert f"its agent (process {parts.agent}) has been stopped for" in done.messages, done
        assert "its last message: " in done.messages and "E_HOST_LOST" in done.messages, done
        jobs.expect_nothing_left(parts.job)

    for_each_job(live)


def test_launcher_that_stays_stopped_is_lost(horarun, tmp_path):
    def live(_):
        parts = Parts(horarun, tmp_path)
        send([parts.launcher], signal.SIGSTOP)
        jobs.wait_until(lambda: not parts.job.survivors(), "the agent to give up its launcher", 60)
        send([parts.launcher], signal.SIGCONT)
        done = parts.end().expect(125)
        assert f"it (process {parts.launcher}) has been stopped for" in done.messages, done
        assert "its agent ended the ranks" in done.messages and "E_HOST_LOST" in done.messages, done

    for_each_job(live)


def test_killed_agent_is_lost_at_once(horarun, tmp_path):
    def live(_):
        parts = Parts(horarun, tmp_path)
        send([parts.agent], signal.SIGKILL)
        done = parts.end().expect(125)
        assert "E_HOST_LOST" in done.messages and "no sign of life" not in done.messages, done
        jobs.expect_nothing_left(parts.job)

    for_each_job(live)


def test_other_proc_hides_no_agent(horarun, tmp_path):
    """/proc of another PID namespace says nothing about an agent that is frozen."""
    wrapper = tmp_path / "horarun"
    wrapper.write_text(f'#!/bin/sh\nexec unshare --pid --fork --kill-child {horarun.path} "$@"\n')
    wrapper.chmod(0o755)
    horarun.path = str(wrapper)
    try:
        parts = Parts.__new__(Parts)
        Parts.__init__(parts, horarun, tmp_path)
    except ValueError:
        pytest.skip("no PID namespace can be made here")
    # unshare, its child horarun, then shim and agent.
    parts.launcher, parts.shim = parts.shim, parts.agent
    (parts.agent,) = parts.ranks
    parts.ranks = children(parts.agent)
    freeze(parts, "agent", 3 * LEASE_S, None)
    parts.expect_alive()


def test_nothing_is_left_of_the_tests():
    assert not glob.glob("/sys/fs/cgroup/*/hora-test-*")
