# SPDX-License-Identifier: Apache-2.0
"""A real Grid Engine over the test hosts: the master on this machine, an execution daemon on each host.

    cluster = gridengine.Cluster(hosts, folder)   # `folder` has the same content on every host
    cluster.environment                            # for qsub, qstat, qdel
    cluster.close()

It has a root folder and ports of its own, so what the packages have set up on this machine stays as it is. Names
are trusted, as Grid Engine does by default: the test hosts have no other users."""

import os
import signal
import socket
import subprocess
import time

PROGRAMS = "/usr/lib/gridengine"  # where Debian has all of them
NEEDED = ("sge_qmaster", "sge_execd", "sge_shepherd", "qconf", "qsub", "qrsh", "qstat", "qdel", "spoolinit")
SHARED = "/usr/share/gridengine"
HEAD = 250  # the number of this machine among the test hosts
TIMEOUT_S = 60.0
MASTER_PORT, HOST_PORT = 26444, 26445
SLOTS = 4  # of each host
# Parallel environments: the slots of a job fill one host after the other, or are that many on each.
SHAPES = {"fill": "$fill_up", "two": "2", "one": "1"}

BOOTSTRAP = """\
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {folder}/common;{folder}/spool
binary_path             {programs}
qmaster_spool_dir       {folder}/spool
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""

PARALLEL_ENVIRONMENT = """\
pe_name            {name}
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    {rule}
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


def missing():
    """What this machine lacks, as a sentence; None: nothing."""
    lacks = next((name for name in NEEDED if not os.access(os.path.join(PROGRAMS, name), os.X_OK)), None)
    return lacks and f"no {PROGRAMS}/{lacks} (scripts/setup --engines)"


class Cluster:
    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        self.address = hosts.address(HEAD)
        self.root = os.path.join(folder, "root")
        self.environment = {
            "SGE_ROOT": self.root,
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(MASTER_PORT),
            "SGE_EXECD_PORT": str(HOST_PORT),
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.environ.get("HOME", "/"),
        }
        self.master = None
        # Grid Engine compares a machine's own name with what its address resolves to: this world is called as the hosts
        # call it.
        self.former_name = socket.gethostname()
        socket.sethostname("head")
        self._write_files()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # --- files ------------------------------------------------------------------------------------
    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def _write_files(self):
        common = os.path.join(self.root, "default", "common")
        architecture = subprocess.check_output([f"{SHARED}/util/arch"], text=True).strip()
        for folder in (common, *(f"{self.root}/{kind}" for kind in ("bin", "lib", "utilbin")), f"{self.folder}/spool"):
            os.makedirs(folder)
        for kind in ("bin", "lib", "utilbin"):
            os.symlink(PROGRAMS, f"{self.root}/{kind}/{architecture}")
        os.symlink(f"{SHARED}/util", f"{self.root}/util")
        self._write(f"{common}/act_qmaster", "head\n")
        bootstrap = BOOTSTRAP.format(folder=os.path.dirname(common), programs=PROGRAMS)
        self._write(f"{common}/bootstrap", bootstrap)
        os.makedirs(os.path.join(os.path.dirname(common), "spool"))

    def _configuration(self):
        """Debian's, but for what the tests need: root may submit, the spool is in sight, all is reported at once."""
        changed = {
            "execd_spool_dir": f"{self.folder}/spool",
            "min_uid": "0",
            "min_gid": "0",
            "load_report_time": "00:00:05",
            "administrator_mail": "none",
        }
        with open(f"{SHARED}/default-configuration") as file:
            lines = [line.split(None, 1) for line in file if not line.startswith("#")]
        return "".join(f"{name} {changed.get(name, value.strip())}\n" for name, value in lines)

    # --- life -------------------------------------------------------------------------------------
    def _start(self):
        resources = f"{SHARED}/util/resources"
        self.run("spoolinit", "classic", "libspoolc", f"{self.root}/default/common;{self.root}/default/spool", "init")
        self.run("spooldefaults", "configuration", self._write("configuration", self._configuration()))
        self.run("spooldefaults", "complexes", f"{resources}/centry")
        self.run("spooldefaults", "usersets", f"{resources}/usersets")
        self.run("spooldefaults", "managers", "root")
        log = open(os.path.join(self.folder, "qmaster.log"), "wb")
        self.master = subprocess.Popen(
            [f"{PROGRAMS}/sge_qmaster"],
            env={**self.environment, "SGE_ND": "1"},  # stays in the foreground
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._wait_until(lambda: "global" in self.run("qconf", "-sconf", check=False), "the master to answer")
        names = self.hosts.names
        for name in names:
            self.run("qconf", "-ah", name)
        for name in [*names, "head"]:
            self.run("qconf", "-as", name)
        hosts = self._write("hostgroup", f"group_name @nodes\nhostlist {' '.join(names)}\n")
        self.run("qconf", "-Ahgrp", hosts)
        for name, rule in SHAPES.items():
            text = PARALLEL_ENVIRONMENT.format(name=name, rule=rule)
            self.run("qconf", "-Ap", self._write(f"pe-{name}", text))
        self.run("qconf", "-Aq", self._write("queue", self._queue()))
        for k in range(1, len(names) + 1):
            self.start_daemon(k)
        ready = [str(len(names) * SLOTS)]  # the column AVAIL
        self._wait_until(lambda: self.run("qstat", "-g", "c").split()[-4:-3] == ready, "the hosts to be ready")

    def _queue(self):
        changed = {
            "qname": "all.q",
            "hostlist": "@nodes",
            "slots": str(SLOTS),
            "pe_list": " ".join(SHAPES),
            "shell": "/bin/sh",
            "shell_start_mode": "unix_behavior",
            "load_thresholds": "NONE",
        }
        lines = [line.split(None, 1) for line in self.run("qconf", "-sq").splitlines()]
        return "".join(f"{name} {changed.get(name, value)}\n" for name, value in lines)

    def start_daemon(self, number):
        """Of a host, by its number."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        self.hosts.execute(number, "env", *variables, f"{PROGRAMS}/sge_execd")

    def _wait_until(self, condition, what):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            ended = self.master.poll()
            assert ended is None, f"sge_qmaster ended with {ended}; see {self.folder}"
            assert time.monotonic() < deadline, f"waited {TIMEOUT_S:g} s for {what}; see {self.folder}"
            time.sleep(0.1)

    def close(self):
        """The daemons of the hosts end with their hosts, or here."""
        self.run("qdel", "-u", "root", check=False)
        for k in range(1, len(self.hosts.names) + 1):
            self.hosts.execute(k, "pkill", "-KILL", "sge_", check=False)
        if self.master:
            self.master.send_signal(signal.SIGTERM)
            try:
                self.master.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.master.kill()
                self.master.wait()
        socket.sethostname(self.former_name)

    # --- use --------------------------------------------------------------------------------------
    def run(self, *command, check=True, timeout=60, **options):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout, **options)
        assert not check or done.returncode == 0, f"{command}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, script, *options):
        """A job that runs `script` by a shell; answers its id. It prints into the folder, as ID.txt."""
        words = ["-terse", "-cwd", "-v", "PATH,HOME", "-j", "y", "-o", f"{self.folder}/$JOB_ID.txt", "-S", "/bin/sh"]
        return self.run("qsub", *words, *map(str, options), input=script, cwd=self.folder).split(".")[0].strip()

    def output(self, job):
        try:
            with open(f"{self.folder}/{job}.txt", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def state(self, job):
        """In qstat's letters: "r" runs, "s" is suspended."""
        for line in self.run("qstat").splitlines():
            words = line.split()
            if words and words[0] == job:
                return words[4]
        return ""

    def wait_for_end(self, job):
        self._wait_until(lambda: f" {job} " not in self.run("qstat", check=False), f"job {job} to end")


class Allocation:
    """A job whose script waits, so that others can use what it has."""

    NAMES = ("JOB_ID", "PE_HOSTFILE", "PE", "NSLOTS", "NHOSTS", "QUEUE", "SGE_TASK_ID")

    def __init__(self, cluster, shape, slots):
        self.cluster = cluster
        self.job = cluster.submit("env; echo .; exec sleep 10000", "-pe", shape, slots)
        cluster._wait_until(lambda: "\n.\n" in cluster.output(self.job), f"job {self.job} to start")
        seen = dict(line.split("=", 1) for line in cluster.output(self.job).splitlines() if "=" in line)
        self.environment = {**cluster.environment, **{name: seen[name] for name in self.NAMES if name in seen}}

    def slots(self):
        """Of each host."""
        with open(self.environment["PE_HOSTFILE"]) as file:
            return {line.split()[0]: int(line.split()[1]) for line in file}

    def close(self):
        self.cluster.run("qdel", self.job, check=False)
        self.cluster.wait_for_end(self.job)
