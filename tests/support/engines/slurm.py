# SPDX-License-Identifier: Apache-2.0
"""A real Slurm over the test hosts: slurmctld on this machine, a slurmd on each host.

    cluster = slurm.Cluster(hosts, folder)      # `folder` has the same content on every host
    cluster.environment                          # for salloc, srun, sbatch
    cluster.close()

Authentication is off (auth/none): the test hosts are nobody else's."""

import os
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("slurmctld", "slurmd", "salloc", "srun", "sbatch", "sinfo", "scontrol", "scancel", "squeue")
CPUS = 4
HEAD = 250  # the number of this machine among the test hosts
PATIENCE_S = 60.0

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
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
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """The first of Slurm's programs that this machine does not have."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return next((name for name in PROGRAMS if shutil.which(name, path=path) is None), None)


class Cluster:
    def __init__(self, hosts, folder):
        self.hosts = hosts
        self.folder = folder
        os.makedirs(os.path.join(self.folder, "state"))
        configuration = os.path.join(self.folder, "slurm.conf")
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={hosts.address(k)} CPUs={CPUS} RealMemory=1000 State=UNKNOWN"
            for k, name in enumerate(hosts.names, 1)
        )
        with open(configuration, "w") as file:
            file.write(
                CONFIGURATION.format(
                    head=socket.gethostname(), address=hosts.address(HEAD), folder=self.folder, nodes=nodes
                )
            )
        self.environment = {
            "SLURM_CONF": configuration,
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.environ.get("HOME", "/"),
        }
        self.controller = subprocess.Popen(
            ["/usr/sbin/slurmctld", "-D", "-f", configuration], env=self.environment, stderr=subprocess.DEVNULL
        )
        try:
            for k, name in enumerate(hosts.names, 1):
                hosts.execute(k, "env", f"SLURM_CONF={configuration}", "/usr/sbin/slurmd", "-N", name)
            self._wait_until_idle()
        except BaseException:
            self.close()
            raise

    def _wait_until_idle(self):
        deadline = time.monotonic() + PATIENCE_S
        while (states := self.states()) != {"idle"}:
            if self.controller.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Slurm's nodes are {states or 'unknown'}; see {self.folder}/*.log")
            time.sleep(0.1)

    def allocate(self, *options):
        """An allocation that stands until close(): its variables, as a shell in it has them."""
        return Allocation(self, options)

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
        for k in range(1, len(self.hosts.names) + 1):
            self.hosts.execute(k, "pkill", "-KILL", "slurm", check=False)
        self.controller.send_signal(signal.SIGTERM)
        try:
            self.controller.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.controller.kill()
            self.controller.wait()


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
        assert "SLURM_JOB_ID" in self.variables, f"salloc {options}: no allocation"
        self.job = self.variables["SLURM_JOB_ID"]

    def srun(self, *command):
        environment = {**self.cluster.environment, **self.variables}
        done = subprocess.run(["srun", *command], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def steps(self):
        return self.cluster.run("squeue", "-h", "-s", "-o", "%i", "-j", self.job).split()

    def close(self):
        self.holder.stdin.close()  # salloc's own program ends, and salloc gives the nodes back
        self.holder.wait(timeout=PATIENCE_S)
        self.holder.stdout.close()
