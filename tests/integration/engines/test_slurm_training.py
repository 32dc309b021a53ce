# SPDX-License-Identifier: Apache-2.0
"""Training in allocations of a real Slurm: ranks of srun, functions on ranks, jobs that lose a node."""

import os
import re
import shutil
import subprocess
import uuid

import pytest
from slurm_jobs import start

HOSTS = 4
PYTHON = "/usr/bin/python3"


def has(module):
    return os.system(f"{PYTHON} -c 'import {module}' 2>/dev/null") == 0


@pytest.fixture
def packages(build, shared):
    """A folder with Hora's packages, where all hosts see it."""
    bundle = os.path.join(shared, "bundle")
    if not os.path.isdir(bundle):
        shutil.copytree(os.path.join(build, "share", "hora", os.uname().machine, "bundle"), bundle)
    return f"{bundle}/python"


@pytest.mark.skipif(not has("numpy"), reason="no NumPy for the system's Python")
def test_tasks_of_srun_are_one_world(allocation, shared, packages):
    held = allocation("-N4", "-n8")
    assert held.variables["SLURM_TASKS_PER_NODE"] == "4,2,1(x2)"
    out = held.srun(PYTHON, f"{shared}/mpi_ranks.py", PYTHONPATH=packages, OMP_NUM_THREADS="1")
    places = [tuple(map(int, place)) for place in re.findall(r"place (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", out)]
    nodes = [(0, size, node) for node, size in enumerate((4, 2, 1, 1))]
    expected = [(local, size, node) for _, size, node in nodes for local in range(size)]
    assert [(rank, size) for rank, size, *_ in sorted(places)] == [(rank, 8) for rank in range(8)], out
    assert [(place[2], place[3], place[4]) for place in sorted(places)] == expected, out
    assert out.count("sum 36.0 ") == 8, out


CALLER = """
import sys
import hora

def place():
    import socket
    import hora.numpy as hvd

    hvd.init()
    return socket.gethostname(), int(hvd.allreduce([1.0], op=hvd.Sum)[0])

if __name__ == "__main__":
    print(hora.run(place, np=eval(sys.argv[1])))
"""


@pytest.mark.skipif(not has("cloudpickle, numpy"), reason="no cloudpickle or NumPy for the system's Python")
@pytest.mark.parametrize("np", ["4", "None"])
def test_a_function_on_the_ranks_of_an_allocation(allocation, cluster, build, packages, tmp_path, np):
    held = allocation("-N4", "-n8")
    (tmp_path / "caller.py").write_text(CALLER)
    horarun = os.path.join(build, "bin", "horarun")
    environment = {**cluster.environment, **held.variables, "PYTHONPATH": packages, "HORARUN": horarun}
    command = [PYTHON, str(tmp_path / "caller.py"), np]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = ["node1"] * 4 + ["node2"] * 2 + ["node3", "node4"]
    count = 8 if np == "None" else 4
    assert done.stdout.strip() == str([(name, count) for name in expected[:count]]), done


needs_torch = pytest.mark.skipif(not has("torch"), reason="no torch for the system's Python")


@needs_torch
def test_an_elastic_job_goes_on_without_a_node(horarun, allocation, cluster, shared):
    held = allocation("-w", "node1,node2,node3", "--ntasks-per-node=1")
    stop = f"{shared}/stop.{uuid.uuid4().hex[:8]}"
    timeout = ("--elastic-timeout", 100, "--gloo-timeout-seconds", 100)
    job = start(horarun, held, "--min-np", 2, *timeout, PYTHON, f"{shared}/elastic_torch.py", stop)
    job.read_until("goes on with 3", 3, timeout=100)
    cluster.hosts.act("kill", 2)
    job.read_until("goes on with 2", 2, timeout=100)
    with open(stop, "w"):
        pass
    done = job.finish().expect(0)
    assert done.text.count("the same") == 2, done
    assert re.search(r"host node2: .*\[E_HOST_LOST\]; it takes no further part", done.messages), done


def test_a_job_is_started_again_without_a_node(horarun, allocation, cluster):
    held = allocation("-w", "node1,node2,node3", "--ntasks-per-node=1")
    program = 'echo "up $HORA_RESTART $(hostname)"; [ $HORA_RESTART = 1 ] || exec sleep 1000'
    job = start(horarun, held, "-np", 2, "--restarts", 1, "sh", "-c", program)
    job.read_until("up 0", 2)
    cluster.hosts.act("kill", 2)
    done = job.finish().expect(0)
    assert "restart 1 of 1" in done.messages, done
    assert done.ranks() == {0: ["up 1 node1"], 1: ["up 1 node3"]}, done
