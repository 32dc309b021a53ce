# SPDX-License-Identifier: Apache-2.0
"""What the user types wins over what Slurm was asked for, and horarun runs where people start it: after salloc, in a
step, in the shell of salloc on a node, in a container without srun."""

import collections
import contextlib
import os
import pty
import re
import shlex
import subprocess

import pytest
from slurm_jobs import start

import jobs

HOSTS = 2
MORE = "LaunchParameters=use_interactive_step"  # of slurm.conf
SHOW = ("sh", "-c", 'echo "$(hostname) ${CUDA_VISIBLE_DEVICES-unset}"')


def hosts_of(done):
    return collections.Counter(line.split()[0] for lines in done.ranks().values() for line in lines)


@pytest.mark.parametrize(
    "asked, typed, expected",
    [
        # torchrun's own job script: one task on each node, for torchrun itself.
        ("-N2 --ntasks-per-node=1 --gpus-per-node=2", "--nproc-per-node 2", (2, 2)),
        ("-N2 --ntasks-per-node=1 --gpus-per-node=2", "--nproc-per-node gpu", (2, 2)),
        ("-N2 --ntasks-per-node=1 --gpus-per-node=2", "-np 4", (2, 2)),
        ("-N2 --ntasks-per-node=1", "-np 3", (2, 1)),
        ("-N2 --ntasks-per-node=1", "--nnodes 1 -np 3", (3,)),
        ("-N2 --ntasks-per-node=1", "--slots-per-host 3", (3, 3)),
        ("-N2 --ntasks-per-node=1", "", (1, 1)),
        ("-N2 --ntasks-per-node=3", "--nproc-per-node 2", (2, 2)),
        ("-N2 --ntasks-per-node=2", "--slots-per-host 4", (4, 4)),
        ("-N2", "-np 6", (3, 3)),
        ("-N2 --gpus-per-node=2", "-np 3", (2, 1)),
        ("-N2 --gpus-per-node=2", "--gpus-per-rank 2", (1, 1)),
        ("-N2 --gpus-per-node=2", "--gpus-per-rank 2 -np 2", (1, 1)),
        ("-N2 --ntasks-per-node=2 --gpus-per-node=2", "--nproc-per-node gpu --gpus-per-rank 2", (1, 1)),
    ],
)
def test_what_is_typed_wins(horarun, allocation, asked, typed, expected):
    held = allocation(*asked.split())
    done = start(horarun, held, *typed.split(), *SHOW).finish().expect(0)
    assert tuple(sorted(hosts_of(done).values(), reverse=True)) == expected, done


def test_the_advice_works(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=2")
    done = start(horarun, held, "-np", 7, *SHOW).finish().expect(2)
    advice = re.search(r"\(--slots-per-host (\d+)\)", done.messages)
    assert advice and "Slurm has 4 slots on 2 hosts" in done.messages, done
    start(horarun, held, "-np", 7, "--slots-per-host", advice[1], *SHOW).finish().expect(0)


def test_the_components_of_a_heterogeneous_job(horarun, allocation):
    held = allocation("-N1", "-n1", ":", "-N1", "-n2", "--gpus-per-node=2")
    done = start(horarun, held, "--smoke").finish().expect(0)
    assert "3 slots on 2 hosts" in done.messages and "3 ranks on 2 hosts" in done.text, done
    where = [held.srun(f"--het-group={group}", "-N1", "-n1", "hostname").strip() for group in (0, 1)]
    done = start(horarun, held, *SHOW).finish().expect(0)
    ranks = [lines[0].split()[0] for _, lines in sorted(done.ranks().items())]
    assert ranks == [where[0], where[1], where[1]], done


@pytest.fixture
def on_a_node(cluster, installed):
    """Runs a line of the shell by a command of Slurm's, with $horarun; answers what is printed."""

    def run(*command, terminal=False):
        environment = {**cluster.environment, "horarun": f"{installed}/bin/horarun"}
        if not terminal:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
            return done.stdout + done.stderr
        mine, theirs = pty.openpty()
        try:
            child = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
            said = b""
            with contextlib.suppress(OSError):  # that is how a terminal without a user ends
                while more := os.read(mine, 4096):
                    said += more
            child.wait(timeout=60)
        finally:
            os.close(mine)
        return said.decode()

    return run


@pytest.mark.parametrize("terminal", [False, True])
def test_in_a_step_on_one_node(on_a_node, terminal):
    line = f'"$horarun" -np 2 --gpus-per-rank 1 {shlex.join(SHOW)}; echo "code $?"'
    words = ["srun", "-N1", "-c4", "--gres=gpu:2", *(["--pty"] if terminal else []), "sh", "-c", line]
    said = on_a_node(*words, terminal=terminal)
    assert "code 0" in said and {"node1 0", "node1 1"} <= set(re.findall(r"node1 \d", said)), said
    assert re.search(r"Slurm job \d+: 2 slots on 1 host \(node1:2\), on this machine", said), said


def test_in_a_step_on_one_of_the_jobs_nodes(on_a_node):
    line = f'"$horarun" --nproc-per-node 2 {shlex.join(SHOW)}; echo code $?'
    words = ["salloc", "--quiet", "-N2", "--ntasks-per-node=1", "srun", "-N1", "-n1", "-w", "node2", "sh", "-c", line]
    said = on_a_node(*words)
    assert "code 0" in said and said.count("node2 unset") == 2 and "node1" not in said, said


def test_a_horarun_for_each_task_is_refused(on_a_node):
    said = on_a_node("srun", "-N2", "-n2", "sh", "-c", '"$horarun" true; echo code $?')
    assert said.count("code 2") == 2 and "srun has started 2 of this horarun" in said, said


# What SkyPilot 0.14.1 runs on each node of an allocation: its executor sets and unsets these for a task's script.
SKYPILOT = """
export SKYPILOT_NODE_RANK=$SLURM_PROCID SKYPILOT_NUM_NODES=$SLURM_NNODES SKYPILOT_NUM_GPUS_PER_NODE=0
export SKYPILOT_NODE_IPS="$(for host in node1 node2; do getent ahostsv4 $host | awk 'NR == 1 { print $1 }'; done)"
export SKYPILOT_TASK_ID=sky-task
unset "${!SLURM_STEP_@}" "${!SLURM_CPU_BIND@}" "${!SLURM_MEM_BIND@}" SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK \
  SLURM_CPUS_ON_NODE SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_DISTRIBUTION \
  SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_LAUNCH_NODE_IPADDR SLURM_TASK_PID SLURM_PROCID SLURM_LOCALID \
  SLURM_NODEID SLURM_GTIDS SLURM_STEPID
"$horarun" sh -c "$SHELL_LINE"
code=$?
echo "node $SKYPILOT_NODE_RANK of job $SLURM_JOB_ID ended with $code"
exit $code
"""


@pytest.fixture(params=["key", "no secret"])
def sky_pilot(request, cluster, on_a_node, monkeypatch):
    """Runs a line of the shell in the ranks of what SkyPilot starts; answers what is printed."""
    key = "mkdir -p ~/.ssh && head -c 99 /proc/sys/kernel/random/boot_id >~/.ssh/sky-cluster-key"
    for k in (1, 2):
        if request.param == "key":
            cluster.hosts.execute(k, "sh", "-c", key)

    def run(line):
        srun = "srun --quiet --unbuffered --kill-on-bad-exit --ntasks-per-node=1 --nodes=2 --cpus-per-task=2"
        step = [*srun.split(), "--mem=0", "--exclusive", "/bin/bash", "-c", SKYPILOT]
        said = on_a_node("salloc", "--quiet", "-N2", "--ntasks-per-node=1", "-c2", "env", f"SHELL_LINE={line}", *step)
        assert ("share no secret" in said) == (request.param != "key"), said
        return said

    yield run
    for k in (1, 2):
        cluster.hosts.execute(k, "rm", "-f", "/root/.ssh/sky-cluster-key")


def test_skypilot_on_slurm(sky_pilot):
    said = sky_pilot("echo rank $HOROVOD_RANK of $HOROVOD_SIZE on $(hostname)")
    ranks = re.findall(r"rank \d of \d on \w+", said)
    assert sorted(ranks) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"], said
    assert len(re.findall(r"node [01] of job \d+ ended with 0", said)) == 2, said


def test_skypilot_on_slurm_has_the_exit_code_of_the_rank_that_failed(sky_pilot):
    said = sky_pilot("exit $((7 * HOROVOD_RANK))")
    assert re.search(r"rank 1 on \S+ exited with code 7", said), said
    # srun kills what is still there when one of the two has ended, and may drop the last line of that one.
    codes = re.findall(r"(?:ended with|Exited with exit code) (\d+)", said)
    assert codes and set(codes) == {"7"}, said


def test_in_the_shell_that_salloc_starts_on_a_node(on_a_node):
    """Which is a step on one node; the ranks go to all of them."""
    line = f'"$horarun" {shlex.join(SHOW)}; echo "code $?"'
    step = ["srun", "--interactive", "--preserve-env", "sh", "-c", line]
    said = on_a_node("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *step)
    assert "code 0" in said and len(re.findall(r"node[12] unset", said)) == 4, said
    assert "4 slots on 2 hosts" in said, said


def test_in_a_container_without_srun(on_a_node):
    without = "PATH=/nowhere; export PATH; exec"
    show = shlex.join(["/bin/sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE"])
    script = f'horarun=$horarun; {without} "$horarun" {show}'
    said = on_a_node(
        "salloc", "--quiet", "-N1", "-n2", "srun", "-n1", "--interactive", "--preserve-env", "sh", "-c", script
    )
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(re.findall(r"rank \d of \d", said)), said


def test_a_container_without_srun_that_has_a_name_of_its_own(horarun):
    variables = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node7",
        "SLURM_NTASKS": "2",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURMD_NODENAME": "node7",
        "PATH": "/nowhere",
    }
    done = horarun.start("/bin/sh", "-c", "echo here", env=variables).finish().expect(0)
    assert done.ranks() == {0: ["here"], 1: ["here"]} and "on this machine" in done.messages, done
    done = horarun.start("true", env={**variables, "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_TASKS_PER_NODE": "1(x2)"})
    assert "$PATH has no srun; --transport ssh reaches its hosts by ssh" in done.finish().expect(2).messages


def test_words_of_srun_when_it_refuses_the_step(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    done = start(horarun, held, "--engine-args", "--gres=gpu:1", "true").finish().expect(125)
    assert "Invalid generic resource (gres) specification" in done.messages, done
    assert "--rsh" not in done.messages, done


def test_a_job_that_was_over_before(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    held.close()
    done = start(horarun, held, "true").finish().expect(125)
    assert "[E_ENGINE]" in done.messages and "--engine none ignores" in done.messages, done
    start(horarun, held, "--engine", "none", "-np", 2, "true").finish().expect(0)


@pytest.fixture
def dead_daemon(cluster):
    cluster.hosts.execute(2, "pkill", "-KILL", "-x", "slurmd")
    yield
    cluster.start_daemon(2)
    cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME", check=False)
    jobs.wait_until(lambda: cluster.states() <= {"idle", "mixed", "allocated"}, "the node to come back", 60)


@pytest.mark.parametrize("warm", [True, False])
def test_a_node_whose_daemon_is_dead(request, horarun, allocation, cluster, warm):
    held = allocation("-N2", "--ntasks-per-node=1")
    for k in (1, 2):
        cluster.hosts.execute(k, "sh", "-c", "rm -rf ~/.cache/hora")
    if warm:
        start(horarun, held, "true").finish().expect(0)
    request.getfixturevalue("dead_daemon")
    done = start(horarun, held, "--start-timeout", 90, "true").finish(timeout=120).expect(125)
    assert re.search(r"host node2: .*node2.*Communication connection failure", done.messages), done
    assert "E_ENGINE" not in done.messages, done
    done = start(horarun, held, "--start-timeout", 90, "--restarts", 1, *SHOW).finish(timeout=180).expect(0)
    assert hosts_of(done) == {"node1": 1} and "without host node2" in done.messages, done
