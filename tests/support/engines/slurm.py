# SPDX-License-Identifier: Apache-2.0
"""A real Slurm over the test hosts: slurmctld on this machine, a slurmd on each host, which has two GPUs: copies of
/dev/null.

    cluster = slurm.Cluster(hosts, folder)      # `folder` has the same content on every host
    cluster.environment                          # for salloc, srun, sbatch
    cluster.close()

Authentication is off (auth/none): test hosts have no other users. HORA_SLURM_ROOT=FOLDER takes Slurm, and the nodes'
systems with it, from the root file system of another distribution."""

import contextlib
import glob
import os
import shutil
import signal
import socket
import stat
import subprocess
import time

PROGRAMS = ("slurmctld", "slurmd", "salloc", "srun", "sbatch", "sbcast", "sinfo", "scontrol", "scancel", "squeue")
ROOT = os.environ.get("HORA_SLURM_ROOT", "")  # empty: this machine's own Slurm
CPUS = 4
GPUS = 2
HEAD = 250  # the number of this machine among the test hosts
TIMEOUT_S = 60.0
FREEZER = "/sys/fs/cgroup/freezer"  # of cgroup v1: v2 would need a systemd on each host
SRUN_PORTS = (60001, 63000)

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/{containment}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
KillWait=5
SchedulerParameters=permit_job_expansion
FirstJobId={first_job}
SrunPortRange={srun_ports}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
{more}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""


CONTAINMENT = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
"""


def missing():
    """What this machine lacks, as a sentence; None: nothing."""
    path = f"{ROOT}/usr/bin:{ROOT}/usr/sbin" if ROOT else os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacks = next((name for name in PROGRAMS if shutil.which(name, path=path) is None), None)
    return lacks and f"{lacks} is not installed {f'in {ROOT}' if ROOT else '(scripts/setup --tests)'}"


# What a node's daemon and its tasks see besides their own system.
ENTER = f"""\
for d in dev proc tmp run root var/tmp; do mount --rbind /$d {ROOT}/$d || exit; done
for f in hosts passwd group; do mount --bind /etc/$f {ROOT}/etc/$f || exit; done
"""


class Cluster:
    def __init__(self, hosts, folder, more=""):
        """`more`: further lines of slurm.conf."""
        self.hosts = hosts
        self.folder = folder
        self.address = hosts.address(HEAD)
        self.srun_ports = SRUN_PORTS
        os.makedirs(os.path.join(self.folder, "state"))
        self.contained = not ROOT and os.access(FREEZER, os.W_OK)
        mark = os.path.basename(folder)
        self.freezer = f"{FREEZER}/{mark}"  # what the nodes see instead of the machine's own
        configuration = os.path.join(self.folder, "slurm.conf")
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={hosts.address(k)} CPUs={CPUS} RealMemory=1000 Gres=gpu:{GPUS} State=UNKNOWN"
            for k, name in enumerate(hosts.names, 1)
        )
        ports = "{}-{}".format(*self.srun_ports)
        # Never the same number as a cluster before on these hosts: their slurmd remember the jobs whose
        # credentials were revoked.
        first_job = 1 + int(time.time() * 10) % 10_000_000
        text = CONFIGURATION.format(
            first_job=first_job,
            head=socket.gethostname(),
            address=self.address,
            folder=self.folder,
            nodes=nodes,
            srun_ports=ports,
            containment="cgroup" if self.contained else "linuxproc",
            more=more,
        )
        gpus = [os.path.join(self.folder, f"gpu{k}") for k in range(GPUS)]
        for path in gpus:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.stat("/dev/null").st_rdev)
        with open(os.path.join(self.folder, "gres.conf"), "w") as file:
            file.writelines(f"NodeName={name} Name=gpu File={path}\n" for name in hosts.names for path in gpus)
        with open(configuration, "w") as file:
            file.write(text)
        with open(os.path.join(self.folder, "cgroup.conf"), "w") as file:
            file.write(CONTAINMENT if self.contained else "CgroupPlugin=disabled\n" if ROOT else "")
        if self.contained:
            os.mkdir(self.freezer)
        self.environment = {
            "SLURM_CONF": configuration,
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.environ.get("HOME", "/"),
        }
        self.within = ["chroot", ROOT] if ROOT else []
        if ROOT:
            self._enter_root()
        self.controller = subprocess.Popen(
            [*self.within, "/usr/sbin/slurmctld", "-D", "-f", configuration],
            env=self.environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            for k in range(1, len(hosts.names) + 1):
                if ROOT:
                    hosts.execute(k, "sh", "-c", f"[ -e {ROOT}{self.folder} ] || {{ {ENTER} }}")
                if self.contained:
                    hosts.execute(k, "mount", "--bind", self.freezer, FREEZER)
                self.start_daemon(k)
            self._wait_until_idle()
        except BaseException:
            self.close()
            raise

    def _enter_root(self):
        """Slurm's programs on this machine are those of the other root, by wrappers that come first in PATH."""
        subprocess.run(["sh", "-c", f"[ -e {ROOT}{self.folder} ] || {{ {ENTER} }}"], check=True, timeout=60)
        wrappers = os.path.join(self.folder, "bin")
        os.mkdir(wrappers)
        for name in PROGRAMS:
            path = os.path.join(wrappers, name)
            with open(path, "w") as file:
                file.write(f'#!/bin/sh\nexec chroot {ROOT} /usr/bin/env PATH=/usr/sbin:/usr/bin:/bin {name} "$@"\n')
            os.chmod(path, 0o755)
        self.environment["PATH"] = f"{wrappers}:{self.environment['PATH']}"

    def start_daemon(self, number):
        """Of a host, by its number."""
        name = self.hosts.names[number - 1]
        configuration = self.environment["SLURM_CONF"]
        program = [*self.within, "/usr/sbin/slurmd", "-N", name]
        self.hosts.execute(number, "env", f"SLURM_CONF={configuration}", *program)

    def _wait_until_idle(self):
        deadline = time.monotonic() + TIMEOUT_S
        while (states := self.states()) != {"idle"}:
            if self.controller.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Slurm's nodes are {states or 'unknown'}; see {self.folder}/*.log")
            time.sleep(0.1)

    def allocate(self, *options):
        """An allocation that stands until close(): its variables, as a shell in it has them."""
        return Allocation(self, options)

    def cgroups(self, job):
        """Of the steps that srun has made, on all nodes."""
        return glob.glob(f"{self.freezer}/slurm_*/uid_*/job_{job}/step_[0-9]*")

    def states(self):
        return set(self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split())

    def run(self, *command, check=True, timeout=60, **options):
        done = subprocess.run(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout,
            **({} if check else {"stderr": subprocess.DEVNULL}),
            **options,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}"
        return done.stdout

    def close(self):
        """The daemons of the hosts end with their hosts, or here."""
        self.run("scancel", "--state=RUNNING", "-u", "root", check=False)
        for k in filter(self.hosts.is_up, range(1, len(self.hosts.names) + 1)):
            self.hosts.execute(k, "pkill", "-KILL", "slurm", check=False)
            if self.contained:  # the same hosts may get another cluster
                self.hosts.execute(k, "umount", "-l", FREEZER, check=False)
        self.controller.send_signal(signal.SIGTERM)
        try:
            self.controller.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.controller.kill()
            self.controller.wait()
        for folder in sorted(glob.glob(f"{self.freezer}/**/", recursive=True), key=len, reverse=True):
            with contextlib.suppress(OSError):  # its last process may just be ending
                os.rmdir(folder)


class Allocation:
    def __init__(self, cluster, options):
        self.cluster = cluster
        self.holder = subprocess.Popen(
            ["salloc", "--quiet", *map(str, options), "sh", "-c", "env -0; echo; exec cat"],
            env=cluster.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        variables = self.holder.stdout.readline().rstrip(b"\n").split(b"\0")
        pairs = (entry.decode().partition("=") for entry in variables if entry)
        self.variables = {name: value for name, _, value in pairs if name.startswith("SLURM_")}
        if ROOT:
            self.variables["PATH"] = cluster.environment["PATH"]
        assert "SLURM_JOB_ID" in self.variables, f"salloc {options}: no allocation"
        self.job = self.variables["SLURM_JOB_ID"]

    def srun(self, *command, **variables):
        environment = {**self.cluster.environment, **self.variables, **variables}
        done = subprocess.run(["srun", *command], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def steps(self):
        """Those that srun has made; Slurm has some of its own."""
        listed = self.cluster.run("squeue", "-h", "-s", "-o", "%i", "-j", self.job).split()
        return [step for step in listed if step.rpartition(".")[2].isdigit()]

    def cgroups(self):
        return self.cluster.cgroups(self.job)

    def pids(self, step):
        """Of the processes in the cgroups of a step, on all nodes, as this machine numbers them."""
        found = set()
        for top in self.cluster.cgroups(self.job):
            if not top.endswith("/step_" + step.rpartition(".")[2]):
                continue
            for folder, _, _ in os.walk(top):
                with open(f"{folder}/cgroup.procs") as file:
                    found.update(map(int, file.read().split()))
        return found

    def close(self):
        self.holder.stdin.close()  # salloc's own program ends, and salloc gives the nodes back
        self.holder.wait(timeout=TIMEOUT_S)
        self.holder.stdout.close()
