# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs in allocations that shrink, lose nodes and grow, as a real Slurm lists them."""

import os
import re
import time

import pytest
from slurm_jobs import expect_clean, start

import jobs
from elastic_training import PYTHON, Training

HOSTS = 4

needs_torch = pytest.mark.skipif(
    os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") != 0, reason="no torch for the system's Python"
)


@needs_torch
def test_a_job_shrinks_loses_a_node_and_gets_it_back(horarun, shared, allocation, cluster):
    held = allocation("-N3", "--ntasks-per-node=1", "--no-kill")
    training = Training(horarun, shared, "--min-np", 1, "--max-np", 3)
    training.environment = held.variables
    training.start().wait_for("goes on with 3", 3)
    cluster.run("scontrol", "update", f"JobId={held.job}", "NumNodes=2")
    training.wait_for("goes on with 2", 2)
    cluster.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    training.wait_for("goes on with 1")
    # It may have come back by itself (ReturnToService).
    cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME", check=False)
    jobs.wait_until(lambda: cluster.states() == {"idle", "mixed"}, "the node to come back", 60)
    more = allocation(f"--dependency=expand:{held.job}", "-w", "node2,node3", "--ntasks-per-node=1")
    cluster.run("scontrol", "update", f"JobId={more.job}", "NumNodes=0")
    training.wait_for("goes on with 3", 3)
    done = training.finish()
    assert training.text.count("the same") == 3, done
    named = re.findall(rf"Slurm job {held.job} has \d slots? on \d hosts? now \((.*)\)\n", done.messages)
    assert named == ["node1:1,node2:1", "node1:1", "node1:1,node2:1,node3:1"], done
    assert "; hosts come and go as squeue says\n" in done.messages, done
    assert "epoch 4: 3 ranks: node1:1, node2:1, node3:1" in done.messages and "E_ENGINE" not in done.messages, done
    expect_clean(training.job, held, since=time.monotonic())


def test_a_job_that_waits_for_nodes_ends_with_its_allocation(horarun, allocation, cluster):
    """No rank could have begun: Slurm says that no node will come."""
    held = allocation("-N2", "--ntasks-per-node=1")
    job = start(horarun, held, "--min-np", 3, "sh", "-c", "exec sleep 1000")
    jobs.wait_until(held.steps, "the step to begin")
    cluster.run("scancel", held.job)
    done = job.finish(timeout=60).expect(125)
    # Whichever of srun's words and squeue's comes first.
    ended = rf"Slurm has ended the job: (JOB|STEP|Slurm job|job) {held.job}\b.*\[E_ENGINE\]"
    assert re.search(ended, done.messages), done
    expect_clean(job, held, since=time.monotonic())


def test_hosts_that_the_user_has_chosen_stay(horarun, allocation):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    done = start(horarun, held, "--min-np", 1, "--include", "node2", "hostname").finish().expect(0)
    assert done.ranks() == {0: ["node2"]} and "come and go" not in done.messages, done


def test_a_controller_that_does_not_answer_changes_nothing(horarun, allocation, tmp_path):
    """The hosts of the start serve."""
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    refusing = tmp_path / "squeue"
    refusing.write_text("#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    refusing.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = horarun.start("--min-np", 2, "hostname", env={**held.variables, "PATH": path}).finish().expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"]}, done
    wanted = "squeue: it ended with code 1; it said: Unable to contact slurm controller; the hosts that are known"
    assert done.messages.count(wanted) == 1, done
