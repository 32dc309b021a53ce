# SPDX-License-Identifier: Apache-2.0
"""A platform runs the same command on every node. The test hosts are the nodes, and the variables are those that the
platforms document; none of the platforms is here."""

import json
import os
import re
import shlex
import signal
import socket
import ssl
import struct
import subprocess
import time
import uuid

import pytest

import jobs
from extra_sshd import ExtraSshd

TOKEN = "0123456789abcdef0123456789abcdef"
PYTHON = "/usr/bin/python3"


class Node:
    """horarun, as the platform starts it on a test host."""

    def __init__(self, horarun, hosts, k, variables, arguments):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", **variables}
        enter = ["nsenter", "-t", str(hosts._hosts.init_pid(k)), "-m", "-u", "-i", "-n", "-p", "--wd=/", "--"]
        self.process = subprocess.Popen(
            [*enter, horarun.path, *map(str, arguments)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def read_until(self, text):
        said = b""
        while text not in said:
            line = self.process.stderr.readline()
            assert line, said
            said += line
        return said.decode()

    def finish(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout)
        return jobs.Finished(self.process.args, self.process.returncode, out, err, 0)


@pytest.fixture
def nodes(horarun, hosts, build):
    """nodes(names of variables by index, arguments): starts the command on node `k`, counted from 0."""
    hosts = hosts(2, show=os.path.realpath(build))
    mark = uuid.uuid4().hex
    jobs.MARKS.append(mark)
    made = []

    def start(k, variables, *arguments):
        made.append(Node(horarun, hosts, k + 1, {"HORA_TEST_MARK": mark, **variables}, arguments))
        return made[-1]

    start.addresses = [hosts.address(1), hosts.address(2)]
    start.hosts = hosts
    start.mark = mark
    yield start
    for each in made:
        each.process.kill()
        each.process.communicate()
    jobs.wait_until(lambda: not jobs.processes_of(mark), "all processes of the job to end")


def skypilot(nodes, k, **more):
    return {
        "SKYPILOT_NODE_IPS": "\n".join(nodes.addresses),
        "SKYPILOT_NODE_RANK": str(k),
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        "SKYPILOT_TASK_ID": "sky-task",
        **more,
    }


def lines_of(messages):
    return dict(re.findall(r"^  (.*): (horarun .*)$", messages, re.M))


def test_nodes_that_cannot_find_each_other_are_refused_with_lines_that_work(nodes, horarun):
    unclear = {"SKYPILOT_NODE_RANK": "2"}
    command = ["-np", 2, "sh", "-c", "echo $HOROVOD_RANK"]
    refused = [nodes(k, skypilot(nodes, k, **unclear), *command) for k in (0, 1)]
    lines = []
    for node in refused:
        done = node.finish().expect(2)
        assert done.messages.startswith("horarun: error: SkyPilot runs this command on 2 nodes"), done
        assert "they cannot find each other" in done.messages
        lines.append(lines_of(done.messages))
    # As typed on node 0, in the same environment.
    alone = shlex.split(lines[0]["a job of its own on each node"])
    assert alone[0] == "horarun"
    done = nodes(0, skypilot(nodes, 0), *alone[1:]).finish().expect(0)
    assert done.ranks() == {0: ["0"], 1: ["1"]}
    without = shlex.split(lines[0]["one job, typed on node 0 alone, without ssh"].partition(", which")[0])
    job = nodes(0, skypilot(nodes, 0), *without[1:])
    typed = re.search(r"'(hora://.*)' \| horarun --join -", job.read_until(b"--join -\n"))[1]
    joined = [nodes(k, skypilot(nodes, k), "--join", typed) for k in (0, 1)]
    assert sorted(job.finish().expect(0).ranks()) == [0, 1]
    assert [each.finish().code for each in joined] == [0, 0]
    over_ssh = shlex.split(lines[0]["one job, typed on node 0 alone, over ssh"])
    done = horarun.run(*over_ssh[1:], env=skypilot(nodes, 0)).expect(0)
    assert sorted(done.ranks()) == [0, 1]


def test_a_launcher_that_starts_it_several_times_is_refused(horarun):
    done = horarun.run("-np", 2, "true", env={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}).expect(2)
    assert "mpirun has started 2 of this horarun" in done.messages


@pytest.mark.parametrize(
    "variables",
    [
        {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "pj-master-0"},
        {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"},
        {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"},
        {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "pj-master-0"},
        {"AZUREML_NODE_COUNT": "1", "NODE_RANK": "0"},
        {"TORCHELASTIC_RUN_ID": "r", "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "n1"},
    ],
)
def test_a_node_that_is_alone_runs_its_job(horarun, variables):
    done = horarun.run("-np", 2, "sh", "-c", "echo $HOROVOD_SIZE", env=variables).expect(0)
    assert done.ranks() == {0: ["2"], 1: ["2"]}


# --- one job -------------------------------------------------------------------------------------


def one_job(nodes, *arguments, first=0, **more):
    """The command on both nodes; answers them, node 0 first."""
    started = {k: nodes(k, skypilot(nodes, k, HORA_JOIN_TOKEN=TOKEN, **more), *arguments) for k in (first, 1 - first)}
    return [started[0], started[1]]


@pytest.mark.parametrize("first", [0, 1])
def test_the_same_command_on_all_nodes_is_one_job(nodes, first):
    shell = "echo $HOROVOD_RANK of $HOROVOD_SIZE on $(hostname) secret=$HORA_JOIN_TOKEN"
    zero, one = one_job(nodes, "sh", "-c", shell, first=first)
    done = zero.finish().expect(0)
    assert done.ranks() == {0: ["0 of 2 on node1 secret="], 1: ["1 of 2 on node2 secret="]}, done
    assert "SkyPilot: 2 slots on 2 hosts" in done.messages
    assert TOKEN not in done.messages
    other = one.finish().expect(0)
    assert not other.ranks() and TOKEN not in other.messages
    # One exit code on every node, that of the rank that failed.
    for node in one_job(nodes, "sh", "-c", "exit $((7 * HOROVOD_RANK))", first=first):
        node.finish().expect(7)


def test_collectives_slots_and_the_order_of_the_list(nodes):
    more = {"SKYPILOT_NUM_GPUS_PER_NODE": "2"}
    zero, one = one_job(nodes, "--smoke", first=1, **more)
    zero.finish().expect(0)
    one.finish().expect(0)
    where = ["sh", "-c", "echo $(hostname)"]
    for arguments, expected in (
        (["-np", 3], ["node1", "node1", "node2"]),
        (["--nproc-per-node", 1], ["node1", "node2"]),
        ([], ["node1", "node1", "node2", "node2"]),
    ):
        zero, one = one_job(nodes, *arguments, *where, **more)
        done = zero.finish().expect(0)
        assert [lines[0] for _, lines in sorted(done.ranks().items())] == expected, done
        one.finish().expect(0)


def test_nodes_whose_platform_gives_no_names(nodes):
    """A PyTorchJob: the name of the first pod alone, and a port."""
    pod = {"MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": "23456", "WORLD_SIZE": "2", "HORA_JOIN_TOKEN": TOKEN}
    shell = "echo $HOROVOD_HOSTNAME $RANK $WORLD_SIZE"
    zero, one = (nodes(k, {**pod, "RANK": str(k)}, "sh", "-c", shell) for k in (0, 1))
    done = zero.finish().expect(0)
    assert done.ranks() == {0: ["node0 0 2"], 1: ["node1 1 2"]}, done
    assert "port 23456" in done.messages
    one.finish().expect(0)


def test_a_node_with_another_secret_is_not_let_in(nodes):
    zero = nodes(0, skypilot(nodes, 0, HORA_JOIN_TOKEN=TOKEN), "--start-timeout", 20, "true")
    zero.read_until(b"is missing")
    other = nodes(1, skypilot(nodes, 1, HORA_JOIN_TOKEN=TOKEN[::-1]), "--start-timeout", 20, "true")
    done = other.finish().expect(125)
    assert "is not the launcher of this job: its token or version is another one" in done.messages, done
    late = nodes(1, skypilot(nodes, 1, HORA_JOIN_TOKEN=TOKEN), "true")
    zero.finish().expect(0)
    late.finish().expect(0)


def test_a_node_that_never_comes_is_named(nodes):
    zero = nodes(0, skypilot(nodes, 0, HORA_JOIN_TOKEN=TOKEN), "--start-timeout", 2, "true")
    done = zero.finish().expect(124)
    assert f"{nodes.addresses[1]} is missing" in done.messages
    one = nodes(1, skypilot(nodes, 1, HORA_JOIN_TOKEN=TOKEN), "--start-timeout", 2, "true")
    done = one.finish().expect(125)
    assert f"waiting for node 0 at {nodes.addresses[0]}" in done.messages


@pytest.mark.parametrize("k", [0, 1])
def test_a_signal_to_a_node_ends_the_job(nodes, k):
    both = one_job(nodes, "sh", "-c", "echo ready >&2; sleep 100")
    both[0].read_until(b"ready")
    pid = nodes.hosts.processes(k + 1, "horarun\0sh")[-1]
    os.kill(pid, signal.SIGTERM)
    codes = [each.finish().code for each in both]
    assert codes[k] == 128 + signal.SIGTERM and codes[1 - k] != 0, codes


@pytest.mark.parametrize("secret", [{"HORA_JOIN_TOKEN": TOKEN}, {}])
def test_a_node_that_is_started_again_is_refused_at_once(nodes, secret):
    """While the job runs: its own first command is on, as that of a node is whose end node 0 has not seen."""
    rank = 'echo "ranks at $MASTER_PORT" >&2; for k in $(seq 300); do test -e /tmp/go && exit; sleep 0.05; done'
    pods = [{**pytorchjob(nodes, k), **secret} for k in (0, 1)]
    both = [nodes(k, pods[k], "sh", "-c", rank) for k in (0, 1)]
    received = "".join(each.read_until(b"ranks at ") for each in (both if not secret else both[:1]))
    assert "ranks at 23456" not in received, "node 0 listens there"
    for _ in range(2):
        began = time.monotonic()
        done = nodes(1, pods[1], "true").finish(timeout=10).expect(125)
        assert time.monotonic() - began < 5
        assert "the job runs with all of its hosts; one that is started again cannot join it" in done.messages, done
    for k in (1, 2):
        nodes.hosts.execute(k, "touch", "/tmp/go")
    assert [each.finish().code for each in both] == [0, 0]
    for k in (1, 2):
        nodes.hosts.execute(k, "rm", "/tmp/go")
    # The port is free at once, for the next command of the same script.
    for each in [nodes(k, pods[k], "true") for k in (0, 1)]:
        each.finish().expect(0)


def test_the_secret_of_the_platform_or_of_a_file(nodes):
    for k in (1, 2):
        nodes.hosts.execute(k, "sh", "-c", f"mkdir -p /root/.ssh; echo {TOKEN} > /root/.ssh/sky-cluster-key")
    for variables in ({}, {"HORA_JOIN_TOKEN_FILE": "/root/.ssh/sky-cluster-key"}):
        both = [nodes(k, skypilot(nodes, k, **variables), "sh", "-c", "echo $HOROVOD_SIZE") for k in (0, 1)]
        assert both[0].finish().expect(0).ranks() == {0: ["2"], 1: ["2"]}
        both[1].finish().expect(0)
    # Volcano's ssh plug-in: what it says of the job's pods shows that the key is its own.
    for k in (1, 2):
        nodes.hosts.execute(k, "mv", "/root/.ssh/sky-cluster-key", "/root/.ssh/id_rsa")
    for name, expected in ((nodes.addresses[0], {0: ["2"], 1: ["2"]}), ("other", {0: ["2"]})):
        for k in (1, 2):
            config = f"Host *\\nHost j-worker-0\\n  HostName {name}\\n"
            nodes.hosts.execute(k, "sh", "-c", f"printf '{config}' > /root/.ssh/config")
        pods = {"VC_WORKER_HOSTS": ",".join(nodes.addresses)}
        both = [nodes(k, {**pods, "VC_TASK_INDEX": str(k)}, "sh", "-c", "echo $HOROVOD_SIZE") for k in (0, 1)]
        assert both[0].finish().expect(0).ranks() == expected
        both[1].finish().expect(0)
    for k in (1, 2):
        nodes.hosts.execute(k, "rm", "/root/.ssh/id_rsa", "/root/.ssh/config")


# --- without a secret ----------------------------------------------------------------------------


def pytorchjob(nodes, k):
    return {"MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": str(k)}


def kubeflow(nodes, k):
    return {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NODE_RANK": str(k),
        "PET_MASTER_ADDR": nodes.addresses[0],
        "PET_MASTER_PORT": "29500",
    }


def write(nodes, k, path, text):
    script = f"mkdir -p {os.path.dirname(path)} && cat > {path}"
    nodes.hosts.execute(k + 1, "sh", "-c", script, input=text)


def sagemaker(nodes, k):
    config = {"current_host": nodes.addresses[k], "hosts": nodes.addresses, "network_interface_name": "eth0"}
    write(nodes, k, "/opt/ml/input/config/resourceconfig.json", json.dumps(config))
    return {"TRAINING_JOB_NAME": "training-1"}


def azure_ml(nodes, k):
    return {
        "AZUREML_NODE_COUNT": "2",
        "AZ_BATCH_HOST_LIST": ",".join(nodes.addresses),
        "AZ_BATCH_MASTER_NODE": f"{nodes.addresses[0]}:6105",
        "NODE_RANK": str(k),
    }


def vertex_ai(nodes, k):
    cluster = {f"workerpool{n}": [f"{address}:2222"] for n, address in enumerate(nodes.addresses)}
    return {"CLUSTER_SPEC": json.dumps({"cluster": cluster, "task": {"type": f"workerpool{k}", "index": 0}})}


def determined(nodes, k):
    info = {"container_addrs": nodes.addresses, "container_rank": k, "container_slot_counts": [2, 2]}
    write(nodes, k, "/run/determined/info/rendezvous.json", json.dumps(info))
    return {}


def aws_batch(nodes, k):
    head = {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": nodes.addresses[0]} if k else {}
    return {
        "AWS_BATCH_JOB_NUM_NODES": "2",
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
        "AWS_BATCH_JOB_NODE_INDEX": str(k),
        "AWS_BATCH_JOB_ID": f"job#{k}",
        **head,
    }


def google_cloud_batch(nodes, k):
    write(nodes, k, "/opt/hosts", "".join(f"{address}\n" for address in nodes.addresses))
    return {
        "BATCH_HOSTS_FILE": "/opt/hosts",
        "BATCH_TASK_COUNT": "2",
        "BATCH_TASK_INDEX": str(k),
        "BATCH_MAIN_NODE_HOSTNAME": nodes.addresses[0],
    }


def volcano(nodes, k):
    return {"VC_TASK_INDEX": str(k), "VC_WORKER_HOSTS": ",".join(nodes.addresses), "VC_WORKER_NUM": "2"}


def lightning(nodes, k):
    return {"NUM_NODES": "2", "NODE_RANK": str(k), "MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": "23456"}


@pytest.fixture
def own(nodes):
    """own(row, arguments): the command on both nodes, which share no secret; answers them, node 0 first."""
    for k in (1, 2):
        nodes.hosts.execute(k, "mount", "-t", "tmpfs", "none", "/opt")

    def start(row, *arguments, first=0, **more):
        started = {k: nodes(k, {**row(nodes, k), **more}, *arguments) for k in (first, 1 - first)}
        return [started[0], started[1]]

    yield start
    for k in (1, 2):
        nodes.hosts.execute(k, "sh", "-c", "umount /opt; rm -rf /run/determined")


@pytest.mark.parametrize(
    "row",
    [
        pytorchjob,
        kubeflow,
        sagemaker,
        azure_ml,
        vertex_ai,
        determined,
        aws_batch,
        google_cloud_batch,
        volcano,
        lightning,
        skypilot,
    ],
)
def test_without_a_secret_the_nodes_are_one_job(own, row):
    shell = "echo $HOROVOD_RANK of $HOROVOD_SIZE, $RANK of $WORLD_SIZE, $HOROVOD_CROSS_RANK on $(hostname)"
    zero, one = own(row, "--nproc-per-node", 2, "sh", "-c", shell, first=1)
    done = zero.finish().expect(0)
    assert done.ranks() == {r: [f"{r} of 4, {r} of 4, 0 on node1"] for r in (0, 1)}, done
    assert "share no secret (HORA_JOIN_TOKEN): each runs its own command line" in done.messages, done
    other = one.finish().expect(0)
    assert other.ranks() == {r: [f"{r} of 4, {r} of 4, 1 on node2"] for r in (2, 3)}, other
    assert "share no secret" in other.messages
    for node in own(row, "--smoke", "--nproc-per-node", 2):
        node.finish().expect(0)


@pytest.mark.parametrize("failing", [0, 1])
def test_without_a_secret_a_failed_rank_ends_all_nodes_with_its_code(own, failing):
    shell = f"[ $HOROVOD_RANK = {failing} ] && exit 7; sleep 100"
    both = own(kubeflow, "sh", "-c", shell)
    done = [each.finish().expect(7) for each in both]
    assert f"rank {failing} " in done[0].messages and f"rank {failing} " in done[failing].messages, done
    if failing == 0:
        assert "has ended the job" in done[1].messages and "[E_ELSEWHERE]" in done[1].messages, done


def test_without_a_secret_the_first_cause_is_found(own):
    """The rank on node 0 fails because that on node 1 has left, and has another exit code."""
    program = "import hora.numpy as h, numpy, os; h.init(); h.rank() and os._exit(7); h.allreduce(numpy.ones(4))"
    done = [each.finish().expect(7) for each in own(pytorchjob, PYTHON, "-c", program)]
    assert all("rank 1 on node1 exited with code 7" in each.messages for each in done), done


def test_without_a_secret_each_node_runs_its_own_command(nodes):
    """One of them knows another command, folder and variable."""
    zero = nodes(0, {**kubeflow(nodes, 0), "SAID": "zero"}, "--wdir", "/tmp", "sh", "-c", "echo $SAID zero $PWD")
    one = nodes(1, {**kubeflow(nodes, 1), "SAID": "one"}, "sh", "-c", "echo $SAID one $PWD")
    assert zero.finish().expect(0).ranks() == {0: ["zero zero /tmp"]}
    assert one.finish().expect(0).ranks() == {1: ["one one /"]}
    # Node 0 has more slots than this one says that it has.
    zero = nodes(0, kubeflow(nodes, 0), "--nproc-per-node", 2, "true")
    one = nodes(1, kubeflow(nodes, 1), "--nproc-per-node", 1, "true")
    for each in (zero, one):
        assert "2 ranks for this node, whose own command has 1 slot" in each.finish().expect(2).messages


@pytest.fixture
def known_key(nodes, horarun):
    """known_key(k): the variable by which node `k` takes for a secret what all can know. HMAC fills keys with zeros."""
    version = subprocess.run([horarun.path, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]

    def give(k):
        nodes.hosts.execute(k + 1, "sh", "-c", f"{{ printf {version}; head -c 32 /dev/zero; }} > /tmp/known")
        return {"HORA_JOIN_TOKEN_FILE": "/tmp/known"}

    yield give
    for k in (1, 2):
        nodes.hosts.execute(k, "rm", "-f", "/tmp/known", "/tmp/ran")


def test_a_command_that_node_0_sends_without_a_secret_is_not_run(nodes, known_key):
    zero = nodes(0, {**kubeflow(nodes, 0), **known_key(0), "SENT": "sent"}, "sh", "-c", "touch /tmp/ran; echo $SENT")
    one = nodes(1, kubeflow(nodes, 1), "sh", "-c", "echo own$SENT; test -e /tmp/ran || echo alone")
    assert one.finish().expect(0).ranks() == {1: ["own", "alone"]}
    # The output of ranks stays on their node.
    assert zero.finish().expect(0).ranks() == {0: ["sent"]}


def test_node_0_sends_no_command_without_a_secret(nodes, known_key):
    zero = nodes(0, kubeflow(nodes, 0), "sh", "-c", "touch /tmp/ran")
    one = nodes(1, {**kubeflow(nodes, 1), **known_key(1)}, "sh", "-c", "true")
    assert [each.finish().code != 0 for each in (zero, one)] == [True, True]
    nodes.hosts.execute(2, "test", "!", "-e", "/tmp/ran")


def frame_to_join(token, name):
    payload = struct.pack("<II", 1, 1) + token + name
    return struct.pack("<IB", len(payload), 1) + payload


def test_unauthenticated_clients_do_not_get_in(nodes):
    zero = nodes(0, kubeflow(nodes, 0), "sh", "-c", "echo $HOROVOD_SIZE")
    zero.read_until(b"is missing")
    where = (nodes.addresses[0], 29500)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    held = []
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096)):
        held.append(socket.create_connection(where, timeout=30))
        held[-1].sendall(words)
    for words in (os.urandom(4096), frame_to_join(b"0" * 32, b"node1"), struct.pack("<IB", 1 << 30, 36)):
        held.append(context.wrap_socket(socket.create_connection(where, timeout=30)))
        held[-1].sendall(words)
    one = nodes(1, kubeflow(nodes, 1), "sh", "-c", "echo $HOROVOD_SIZE")
    assert zero.finish().expect(0).ranks() == {0: ["2"]}
    assert one.finish().expect(0).ranks() == {1: ["2"]}
    for each in held:
        each.close()


def test_without_a_secret_nodes_that_are_late_or_never_come(nodes):
    zero = nodes(0, kubeflow(nodes, 0), "--start-timeout", 2, "true")
    assert "node1 is missing" in zero.finish().expect(124).messages
    one = nodes(1, kubeflow(nodes, 1), "--start-timeout", 2, "true")
    assert f"waiting for node 0 at {nodes.addresses[0]}" in one.finish().expect(125).messages
    zero = nodes(0, kubeflow(nodes, 0), "true")
    zero.read_until(b"is missing")
    one = nodes(1, kubeflow(nodes, 1), "true")
    assert [each.finish().code for each in (zero, one)] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("k", [0, 1])
def test_without_a_secret_the_end_of_a_node_ends_the_job(nodes, own, k, number):
    both = own(kubeflow, "sh", "-c", "echo ready >&2; sleep 100")
    for each in both:
        each.read_until(b"ready")
    os.kill(nodes.hosts.processes(k + 1, "horarun\0sh")[-1], number)
    done = [each.finish() for each in both]
    assert done[k].code == (128 + number if number == signal.SIGTERM else -number), done
    # Node 0 has the exit code of the job.
    assert done[1 - k].code == (143 if (k, number) == (0, signal.SIGTERM) else 125), done


def test_without_a_secret_options_that_send_things_are_refused(nodes):
    for arguments in (["--ship", "/etc/passwd"], ["--output-filename", "/tmp/o"]):
        done = nodes(0, kubeflow(nodes, 0), *arguments, "true").finish().expect(2)
        assert f"{arguments[0]} cannot be used where the nodes share no secret" in done.messages


# --- platforms that call horovodrun on one node --------------------------------------------------


@pytest.fixture
def port_12350(hosts):
    """Two hosts, the second with the sshd that Determined starts in each container but the first."""
    two = hosts(2)
    sshd = ExtraSshd(two, 2)
    sshd.start(12350)
    yield two
    sshd.stop()


@pytest.mark.hosts
@pytest.mark.parametrize("more", [[], ["--verbose"]])
def test_the_call_of_determined(horarun, port_12350, more):
    """determined 0.38.1, launch.horovod: its arguments, and a wrapper around the script that reads HOROVOD_RANK."""
    hosts = f"localhost:2,{port_12350.address(2)}:2"
    call = ["-np", 4, "-p", 12350, "-H", hosts, "--start-timeout", 1200, "--gloo-timeout-seconds", 240]
    call += ["--fusion-threshold-mb", 64, "--cycle-time-ms", 5, "--cache-capacity", 1024]
    call += ["--no-hierarchical-allreduce", "--no-hierarchical-allgather", *more, "--"]
    show = "echo $HOROVOD_RANK of $HOROVOD_SIZE, $HOROVOD_LOCAL_RANK, $HOROVOD_CROSS_RANK ${SSH_CONNECTION##* }"
    variables = {"DET_CHIEF_IP": "10.0.0.1", "USE_HOROVOD": "1", "DET_RESOURCES_ID": "r"}
    done = horarun.run(*call, "sh", "-c", show, name="horovodrun", env=variables).expect(0)
    expected = {r: [f"{r} of 4, {r}, 0"] for r in (0, 1)} | {r: [f"{r} of 4, {r - 2}, 1 12350"] for r in (2, 3)}
    assert done.ranks() == expected, done
    failing = ["sh", "-c", "exit $((7 * (HOROVOD_RANK == 3)))"]
    horarun.run(*call, *failing, name="horovodrun", env=variables).expect(7)


@pytest.mark.hosts
@pytest.mark.parametrize("more", [[], ["--verbose"]])
def test_the_call_of_flyte(horarun, hosts, tmp_path, more):
    """flytekitplugins-kfmpi 1.16.31, HorovodJob: its arguments, and the hosts script of the MPI operator."""
    hosts(2)
    script = tmp_path / "discover_hosts.sh"
    script.write_text("#!/bin/sh\necho node1\necho node2\n")
    script.chmod(0o755)
    call = ["-np", 4, "--log-level", "INFO", "--network-interface", "eth0", "--min-np", 4, "--max-np", 4]
    call += ["--slots-per-host", 2, "--host-discovery-script", script, "--elastic-timeout", 1200, *more]
    program = "import hora.numpy as h, numpy; h.init(); print(h.rank(), h.allreduce(numpy.ones(2), op=h.Sum))"
    done = horarun.run(*call, PYTHON, "-c", program, name="horovodrun").expect(0)
    assert done.ranks() == {r: [f"{r} [4. 4.]"] for r in range(4)}, done
