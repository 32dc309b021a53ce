# SPDX-License-Identifier: Apache-2.0
"""Jobs in what a launcher pod of an MPIJob, a TrainJob or Volcano looks like: a hostfile, a key, and workers with
an sshd on port 2222, which may come after horarun has begun. No Kubernetes: the workers are test hosts."""

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import time
import uuid

import pytest

import jobs
from elastic_training import PYTHON, Training
from extra_sshd import ExtraSshd

PORT = 2222
SSH_CONFIG = f"""\
Host *.svc
  Port {PORT}
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""
AUTHORIZED = "/run/worker_keys"
SERVER = (f"AuthorizedKeysFile {AUTHORIZED}", "StrictModes no")


@contextlib.contextmanager
def covered(folder):
    """An empty one instead, for as long as it lasts. This world is the only one that sees it."""
    made = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        if made:
            os.rmdir(folder)


class Pod:
    """The launcher's: what the operator has mounted into it, and the workers, each a test host."""

    def __init__(self, hosts, keys, names):
        self.hosts, self.names = hosts, names
        self.servers = [ExtraSshd(hosts, k) for k in range(1, len(names) + 1)]
        for k in range(1, len(names) + 1):
            hosts.execute(k, "sh", "-c", f"cat >{AUTHORIZED}", input=keys)
        self.named = []

    def resolve(self, number):
        """From now on the name of a worker does."""
        line = f"{self.hosts.address(number + 1)} {self.names[number]}\n"
        self.named.append(line)
        with open("/etc/hosts", "a") as file:
            file.write(line)

    def listen(self, number):
        self.servers[number].start(PORT, *SERVER)

    def close(self):
        for server in self.servers:
            server.stop()
        with open("/etc/hosts", "r+") as file:
            text = "".join(line for line in file.read().splitlines(True) if line not in self.named)
            file.seek(0)
            file.write(text)
            file.truncate()


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "id_rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def pod(hosts, key):
    up = hosts(2)
    with contextlib.ExitStack() as stack:
        ssh = stack.enter_context(covered(os.path.join(pwd.getpwuid(0).pw_dir, ".ssh")))
        stack.enter_context(covered("/etc/mpi"))
        shutil.copy(key, f"{ssh}/id_rsa")
        config = "/etc/ssh/ssh_config.d/workers.conf"  # of this world
        with open(config, "w") as file:
            file.write(SSH_CONFIG)
        stack.callback(os.unlink, config)
        names = [f"train-worker-{k}.train.default.svc" for k in range(2)]
        made = Pod(up, key.with_suffix(".pub").read_text(), names)
        stack.callback(made.close)
        yield made


def hostfile(text):
    with open("/etc/mpi/hostfile", "w") as file:
        file.write(text)


def open_mpi(names):
    """As the operator writes it where the job is for Open MPI."""
    hostfile(f"{names[0]} slots=1\n{names[1]} slots=2\n")
    return {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "K_MPI_JOB_ROLE": "launcher"}


def mpich(names):
    hostfile(f"{names[0]}:1\n{names[1]}:2\n")
    return {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "K_MPI_JOB_ROLE": "launcher"}


def volcano(names):
    return {"MPI_HOST": ",".join([names[0], names[1], names[1]]), "VC_TASK_INDEX": "0"}


KINDS = [open_mpi, mpich, volcano]


def read_errors(job, text, seconds=60):
    """Reads stderr until it has the text; what was read."""
    seen = b""
    os.set_blocking(job.process.stderr.fileno(), False)
    deadline = time.monotonic() + seconds
    while text.encode() not in seen:
        assert job.process.poll() is None, f"horarun ended before it said {text!r}:\n{seen.decode()}"
        assert time.monotonic() < deadline, f"{text!r} was not said within {seconds} s:\n{seen.decode()}"
        seen += job.process.stderr.read() or b""
        time.sleep(0.01)
    os.set_blocking(job.process.stderr.fileno(), True)
    return seen.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_there(horarun, pod, kind):
    for number in range(2):
        pod.resolve(number)
        pod.listen(number)
    done = horarun.run("hostname", env=kind(pod.names)).expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"], 2: ["node2"]}, done
    assert f"3 slots on 2 hosts ({pod.names[0]}:1,{pod.names[1]}:2); agents start by ssh\n" in done.messages, done
    assert "waiting for" not in done.messages, done


def test_a_worker_that_comes_late_is_waited_for_by_name(horarun, pod):
    pod.resolve(0)
    pod.listen(0)
    pod.listen(1)
    job = horarun.start("hostname", env=open_mpi(pod.names))
    read_errors(job, f"horarun: waiting for {pod.names[1]}: its name does not resolve yet\n")
    pod.resolve(1)
    done = job.finish().expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"], 2: ["node2"]}, done
    assert "waiting for" not in done.messages, done  # that was the only line


def test_first_the_name_and_then_the_server(horarun, pod):
    for number in range(2):
        pod.resolve(number)
    job = horarun.start("--json", "hostname", env=mpich(pod.names))
    seen = read_errors(job, f"nothing listens on port {PORT} yet")
    events = [json.loads(line) for line in seen.splitlines(True) if line.endswith("\n")]
    stages = {event["stage"] for event in events if event["event"] == "stage"}
    assert stages == {"resolve", "connect", "absent"}, seen
    for number in range(2):
        pod.listen(number)
    done = job.finish().expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"], 2: ["node2"]}, done


def test_who_does_not_come_in_time_is_named(horarun, pod):
    pod.resolve(0)
    done = horarun.run("--start-timeout", "3s", "hostname", env=open_mpi(pod.names)).expect(124)
    assert "E_START_TIMEOUT" in done.messages, done
    assert f"{pod.names[0]}  absent " in done.messages and f"{pod.names[1]}  absent " in done.messages, done
    for text in (f"nothing listens on port {PORT} yet\n", "its name does not resolve yet\n", "kubectl get pods"):
        assert text in done.messages, done


def list_workers(*names):
    """As the operator writes its script again: a volume is changed by replacing a link.

    Returns the name of a file that is there once the new script has been run.
    """
    mark = f"/etc/mpi/.{uuid.uuid4().hex}"
    with open("/etc/mpi/.discover_hosts", "w") as file:
        file.write(f"#!/bin/sh\n: >{mark}\n" + "".join(f"echo {name}\n" for name in names))
    os.replace("/etc/mpi/.discover_hosts", "/etc/mpi/discover_hosts.sh")
    return mark


@pytest.mark.skipif(
    os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") != 0, reason="no torch for the system's Python"
)
def test_an_elastic_job_follows_the_operators_script(horarun, shared, pod):
    """A worker comes, one is evicted, and its successor has its name."""
    for number in range(2):
        pod.resolve(number)
        pod.listen(number)
    training = Training(horarun, shared, "--min-np", 1, "--max-np", 4)
    training.environment = open_mpi(pod.names)
    hostfile(f"{pod.names[0]} slots=1\n{pod.names[1]} slots=1\n")
    list_workers(pod.names[0])
    training.start().wait_for("goes on with 1")
    list_workers(*pod.names)
    training.wait_for("goes on with 2", 2)
    pod.hosts.execute(2, "pkill", "-KILL", "-f", "/hora/agent-")
    mark = list_workers(pod.names[0])
    training.wait_for("goes on with 1")
    # A worker that failed is taken back once it was not listed.
    jobs.wait_until(lambda: os.path.exists(mark), "the script to be run without the worker")
    list_workers(*pod.names)
    training.wait_for("goes on with 2", 2)
    done = training.finish()
    assert "; hosts come and go as /etc/mpi/discover_hosts.sh says\n" in done.messages, done
    assert f"has 1 slot on 1 host now ({pod.names[0]}:1)\n" in done.messages, done
    assert f"epoch 4: 2 ranks: {pod.names[0]}:1, {pod.names[1]}:1" in done.messages, done


def test_outside_of_an_engine_no_host_is_awaited(horarun, pod):
    done = horarun.run("-H", f"{pod.names[0]}:1", "true").expect(125)
    assert "E_RESOLVE" in done.messages and "waiting for" not in done.messages, done


def test_doctor_does_not_wait(horarun, pod):
    done = horarun.run("doctor", env=open_mpi(pod.names))
    assert done.code == 1 and "E_RESOLVE" in done.text + done.messages, done
