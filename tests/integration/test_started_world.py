# SPDX-License-Identifier: Apache-2.0
"""Ranks that torchrun, srun, jsrun or a foreign mpirun starts: they meet by what is in their environment, or say why
they cannot. The variables of Slurm and JSM are set here; torchrun and mpirun are the real ones."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest

PYTHON = "/usr/bin/python3"
DEADLINE_S = 90
# PyTorch 1.13 on Python 3.11: torchrun fails on its own defaults of these two.
TORCHRUN = ["torchrun", "-r", "9:1", "-t", "9:1"]

needs_torchrun = pytest.mark.skipif(shutil.which("torchrun") is None, reason="no torchrun")


class Script:
    """mpi_ranks.py with the bundle, where all hosts see both, under any starter."""

    def __init__(self, build, shared):
        self.bundle = os.path.join(shared, "bundle")
        if not os.path.isdir(self.bundle):
            shutil.copytree(os.path.join(build, "share", "hora", os.uname().machine, "bundle"), self.bundle)
        self.path = os.path.join(shared, "mpi_ranks.py")

    def start(self, command, host=None, bundle=None, **variables):
        words = [f"{name}={value}" for name, value in variables.items()]
        words += [f"PYTHONPATH={bundle or self.bundle}/python", "OMP_NUM_THREADS=1", *map(str, command), self.path]
        reach = ["ssh", "-n", host, "env"] if host else ["env"]
        return subprocess.Popen(
            reach + words, cwd="/", text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


@pytest.fixture
def script(build, shared):
    return Script(build, shared)


def ends(processes):
    """(exit code, stdout, stderr) of each; none outlives the test."""
    try:
        return [(process.wait(DEADLINE_S), *process.communicate(timeout=10)) for process in processes]
    finally:
        for process in processes:
            process.kill()


def places(ended):
    assert all(code == 0 for code, _, _ in ended), ended
    return sorted(re.findall("place .*", "".join(out for _, out, _ in ended)))


def step(rank, size, nodes=1, **more):
    """What srun sets for a task of a step."""
    return {
        "SLURM_JOB_ID": 17,
        "SLURM_STEP_ID": 2,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_NODELIST": f"node[1-{nodes}]",
        "SLURM_PROCID": rank,
        **more,
    }


ON_TWO_HOSTS = ["place 0 4 0 2 0 2", "place 1 4 1 2 0 2", "place 2 4 0 2 1 2", "place 3 4 1 2 1 2"]


def test_a_step_of_slurm_on_two_hosts(script, hosts):
    hosts(2)
    started = [script.start([PYTHON], f"node{rank // 2 + 1}", **step(rank, 4, 2)) for rank in range(4)]
    assert places(ends(started)) == ON_TWO_HOSTS


@needs_torchrun
def test_torchrun_on_two_hosts(script, hosts):
    hosts(2)
    words = ["--nnodes", 2, "--nproc_per_node", 2, "--master_addr", "node1", "--master_port", 29533]
    started = [script.start([*TORCHRUN, *words, "--node_rank", node], f"node{node + 1}") for node in range(2)]
    assert places(ends(started)) == ON_TWO_HOSTS


@needs_torchrun
def test_torchrun_here(script):
    words = ["--standalone", "--nproc_per_node", 3]
    assert places(ends([script.start([*TORCHRUN, *words])])) == [f"place {rank} 3 {rank} 3 0 1" for rank in range(3)]


@needs_torchrun
def test_torchrun_of_one_inside_of_a_step(script):
    """torchrun's word counts: it is the inner one."""
    words = ["--standalone", "--nproc_per_node", 1]
    assert places(ends([script.start([*TORCHRUN, *words], **step(3, 4))])) == ["place 0 1 0 1 0 1"]


def test_mpirun_without_the_module_for_its_library(script, tmp_path):
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("no Open MPI's mpirun")
    bundle = tmp_path / "bundle"
    shutil.copytree(script.bundle, bundle, ignore=shutil.ignore_patterns("libhora_mpi.so"))
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", 2, PYTHON]
    assert places(ends([script.start(command, bundle=bundle)])) == ["place 0 2 0 2 0 1", "place 1 2 1 2 0 1"]


def test_two_worlds_at_the_same_ports_do_not_mix(script):
    """And another program, which takes connections and never answers, has the first port."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as second:
        with socket.create_server(("127.0.0.1", 0)) as third:
            ports = ",".join(str(each.getsockname()[1]) for each in (taken, second, third))
        second.close()
        started = [
            script.start([PYTHON], **step(rank, 2, SLURM_STEP_ID=number, SLURM_STEP_RESV_PORTS=ports))
            for rank in (1, 0)
            for number in (5, 6)
        ]
        assert places(ends(started)) == ["place 0 2 0 2 0 1"] * 2 + ["place 1 2 1 2 0 1"] * 2


def fails(script, **variables):
    ((code, out, err),) = ends([script.start([PYTHON], **variables)])
    assert code == 1 and "place" not in out, (code, out, err)
    return err


def test_a_world_that_cannot_be_joined_is_an_error(script):
    said = fails(script, JSM_NAMESPACE_SIZE=4, JSM_NAMESPACE_RANK=1)
    assert "jsrun started this process as rank 1 of 4, but nothing says where rank 0 is" in said
    assert "Start the program with horarun, or set MASTER_ADDR" in said
    said = fails(script, **step(0, 3), HOROVOD_GLOO_TIMEOUT_SECONDS=1)
    assert "but ranks 1, 2 have not called init" in said
    said = fails(script, **step(1, 3), HOROVOD_GLOO_TIMEOUT_SECONDS=1)
    assert "srun started this process as rank 1 of 3, but rank 0 cannot be reached at 127.0.0.1" in said


@pytest.mark.parametrize("last", [0, 3])
def test_all_that_come_learn_which_do_not(script, last):
    """In any order: rank 0 decides, and stays until the others have its decision."""
    ranks = [rank for rank in (0, 1, 3) if rank != last] + [last]
    started = []
    for rank in ranks:
        started.append(script.start([PYTHON], **step(rank, 5, HOROVOD_GLOO_TIMEOUT_SECONDS=4)))
        if rank == ranks[1]:
            time.sleep(1)
    for code, out, err in ends(started):
        assert code == 1 and "but ranks 2, 4 have not called init. " in err, (code, out, err)


def test_one_of_its_own_on_request(script):
    assert places(ends([script.start([PYTHON], **step(1, 3), HOROVOD_SIZE=1)])) == ["place 0 1 0 1 0 1"]
