# SPDX-License-Identifier: Apache-2.0
"""Faults, put into a process or a host that takes part in a job."""

import os
import re
import resource
import signal
import time

import jobs


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def parent_of(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields and jobs.lives(pid) else 0


def began(pid):
    """In ticks since the machine did; 0 when it is gone."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[19]) if fields else 0


def is_agent(pid):
    return (
        re.search(
            rb"/hora-agent$|/hora/agent-[0-9a-f]+$|/hora-\d+/agent-[0-9a-f]+$",
            read(f"/proc/{pid}/cmdline").split(b"\0")[0],
        )
        is not None
    )


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def wait_for_continuation(pid):
    """Waits until the kernel continues this shim when its stream moves (O_ASYNC); one stopped before stays stopped."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        flags = re.search(rb"flags:\s+(\d+)", read(f"/proc/{pid}/fdinfo/0"))
        if flags and int(flags[1], 8) & 0o20000:
            return
        time.sleep(0.001)


class Striker:
    """Puts one fault, and takes it back with heal(). `job` is the running horarun."""

    def __init__(self, hosts, job, schedule):
        self.hosts, self.job, self.schedule = hosts, job, schedule
        self.heal_at = None
        self.healing = []
        self.struck = False  # it found a process to hit

    # --- which process
    def namespace(self, k):
        return os.stat(f"/proc/{self.hosts.init(k)}/ns/pid").st_ino if k else os.stat("/proc/self/ns/pid").st_ino

    def processes(self):
        """Of the victim."""
        try:
            wanted = self.namespace(self.schedule.victim)
        except OSError:
            return
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.stat(f"/proc/{entry}/ns/pid").st_ino == wanted:
                        yield int(entry)
                except OSError:
                    pass

    def agents(self):
        """(shim, agent); 0 where there is none."""
        pids = [pid for pid in self.processes() if is_agent(pid) and parent_of(pid)]
        for pid in pids:
            if parent_of(pid) in pids:
                return parent_of(pid), pid
        return (pids[0], 0) if pids else (0, 0)

    def ranks(self):
        """Those that the launcher has reported; orphans of a rank are children of the agent as well."""
        name = f"node{self.schedule.victim}" if self.schedule.victim else "localhost"
        pids = {event["pid"] for event in self.job.events() if event["event"] == "rank_start" and event["host"] == name}
        found = []
        for pid in self.processes():
            inside = re.search(rb"NSpid:.*?(\d+)\n", read(f"/proc/{pid}/status"))
            if inside and int(inside[1]) in pids and parent_of(pid):
                found.append(pid)
        return sorted(found)

    # --- what
    def strike(self):
        name = self.schedule.fault
        subject, _, action = name.partition(" ")
        if subject == "user":
            for word in action.split():
                self.struck |= send(self.job.pid, getattr(signal, "SIG" + word))
                time.sleep(0.05)
        elif subject == "reader":
            self.job.close_reader()
            self.struck = True
        elif name == "both stop":
            if all(self.agents()):
                self.struck = all([send(pid, signal.SIGSTOP) for pid in self.agents()])
        elif subject in ("launcher", "agent", "shim", "session", "rank", "child"):
            pid = self.find(subject)
            if pid and name == "shim stop":
                wait_for_continuation(pid)
            if pid:
                self.hit(pid, action)
        else:
            self.host(name)

    def find(self, subject):
        if subject == "launcher":
            return self.job.pid
        if subject == "agent":
            return self.agents()[1]
        if subject == "shim":
            return self.agents()[0]
        if subject == "session":
            since = began(self.job.pid)  # that of the run before may still be ending
            for pid in self.processes():
                command = read(f"/proc/{pid}/cmdline")
                if command.startswith(b"sshd: ") and b"listener" not in command and began(pid) >= since:
                    return pid
            return 0
        ranks = self.ranks()
        if subject == "rank":
            return ranks[self.schedule.seed % len(ranks)] if ranks else 0
        children = [pid for pid in self.processes() if parent_of(pid) in ranks]
        return children[0] if children else 0

    def hit(self, pid, action):
        if action == "kill":
            self.struck = send(pid, signal.SIGKILL)
        elif action == "segv":
            self.struck = send(pid, signal.SIGSEGV)
        elif action in ("stop", "pause"):
            self.struck = send(pid, signal.SIGSTOP)
            if self.schedule.fault == "shim stop":
                return  # for ever: only the job itself continues it
            # For longer than any timeout, or not.
            seconds = 25 if action == "stop" else self.schedule.heal_ms / 1000
            self.heal_later(seconds, lambda: send(pid, signal.SIGCONT))
        elif action == "files":
            try:
                resource.prlimit(
                    pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + self.schedule.seed % 4,) * 2
                )
                self.struck = True
            except OSError:
                pass
        elif action == "memory":
            size = re.search(rb"VmSize:\s+(\d+)", read(f"/proc/{pid}/status"))
            if size:
                try:
                    resource.prlimit(
                        pid, resource.RLIMIT_AS, (int(size[1]) * 1024 + self.schedule.seed % 3 * 65536,) * 2
                    )
                    self.struck = True
                except OSError:
                    pass

    def host(self, name):
        k = self.schedule.victim
        self.struck = True
        if name == "crash":
            self.hosts.act("crash", k)
        elif name == "cut":
            self.hosts.act("cut", k)
        elif name == "cut and heal":
            self.hosts.act("cut", k)
            self.heal_later(self.schedule.heal_ms / 1000, lambda: self.hosts.act("heal", k))
        elif name == "freeze":
            self.hosts.act("freeze", k)
        elif name == "slow":
            self.hosts.act("netem", k, "--rate", 2, "--loss", 10)
            self.heal_later(self.schedule.heal_ms / 1000, lambda: self.hosts.act("netem", k))

    # --- and back
    def heal_later(self, seconds, action):
        self.heal_at = time.monotonic() + seconds
        self.healing.append(action)

    def heal_if_due(self):
        if self.heal_at and time.monotonic() >= self.heal_at:
            self.heal()

    def heal(self):
        for action in self.healing:
            action()
        self.healing, self.heal_at = [], None
