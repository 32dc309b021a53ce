# SPDX-License-Identifier: Apache-2.0
"""How long something is left of a job in Slurm after its end began: a process, a step or a cgroup."""

import os
import re
import signal
import statistics
import tempfile
import time

import jobs

LIMIT_S = 60
BAR_S = 3.0  # nothing is left
SLOTS = 2
WAYS = {
    "horarun": "kill -9 of horarun",
    "srun": "kill -9 of the step's srun",
    "agent": "kill -9 of one node's agent",
    "scancel": "scancel of the job",
    "slurmd": "kill -9 of a node's slurmd, then of horarun",
}


class Leaver:
    """A job that runs in an allocation of its own until one of WAYS ends it."""

    def __init__(self, cluster, horarun):
        self.cluster = cluster
        nodes = len(cluster.hosts.names)
        self.held = cluster.allocate(f"-N{nodes}", f"--ntasks-per-node={SLOTS}")
        self.job = horarun.start("sh", "-c", "echo up; exec sleep 1000", env=self.held.variables)
        self.job.read_until("up", SLOTS * nodes)

    def end(self, way):
        """Begins it, and answers when."""
        if way == "slurmd":
            self.cluster.hosts.execute(2, "pkill", "-KILL", "-x", "slurmd")
        pid = None if way == "scancel" else self._victim(way)
        began = time.perf_counter()
        if way == "scancel":
            self.cluster.run("scancel", self.held.job)
        else:
            os.kill(pid, signal.SIGKILL)
        return began

    def _victim(self, way):
        if way == "srun":  # it has forked a guard of its own
            return min(p.pid for p in self.job.survivors() if re.match(r"srun\b.*--input=all", p.command))
        if way == "agent":  # next to the helper that has dialled for it
            dialled = self.cluster.hosts.processes(2, "\0node2\0")
            return min(pid for pid in self.cluster.hosts.processes(2, "/hora/agent-") if pid not in dialled)
        return self.job.pid

    def _processes(self):
        runs = [self.job.pid] if self.job.process.poll() is None else []
        return [*runs, *self.job.survivors(), *jobs.agents()]

    def wait(self, began):
        """Seconds until no process was left, and until nothing was, as of the beginning of the look that found
        nothing."""
        without_processes = None
        while True:
            looked = time.perf_counter()
            processes = self._processes()
            slurms = [*self.held.steps(), *self.held.cgroups()]
            if not processes and without_processes is None:
                without_processes = looked - began
            if not processes and not slurms:
                return without_processes, looked - began
            if looked - began > LIMIT_S:
                raise SystemExit(f"left after {LIMIT_S} s: {processes + slurms}")

    def close(self):
        self.held.close()


def leaving(build, cluster, rounds):
    """way -> (seconds until no process is left, seconds until nothing is), one pair for each round."""
    horarun = jobs.Horarun(build, tempfile.gettempdir())
    times = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            leaver = Leaver(cluster, horarun)
            times[way].append(leaver.wait(leaver.end(way)))
            leaver.close()
            if way == "slurmd":
                cluster.start_daemon(2)
            jobs.wait_until(lambda: cluster.states() == {"idle"}, "the nodes to be idle", LIMIT_S)
            horarun.clean_up()
    return times


def show_leaving(count, times):
    print(f"\n{count} nodes: until no process is left, and until no step or cgroup is; load {os.getloadavg()[0]:.1f}")
    for way, pairs in times.items():
        processes, values = zip(*pairs)
        verdict = f"bar {BAR_S} s {'reached' if max(values) <= BAR_S else 'MISSED'}"
        print(
            f"  {WAYS[way]:<44} {statistics.median(processes):5.2f} s {statistics.median(values):5.2f} s"
            f"   (longest {max(values):.2f}; {verdict})"
        )
