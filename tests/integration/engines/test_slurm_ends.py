# SPDX-License-Identifier: Apache-2.0
"""How Slurm itself ends a job: its words are printed, and nothing of the job is left."""

import os
import re
import time

import pytest
from slurm_jobs import expect_clean, start

import jobs

HOSTS = 4


def begin(horarun, held, ranks):
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", ranks)
    return job


def expect_words(job, held, words, since):
    done = job.finish(timeout=90).expect(125)
    assert re.search(rf"Slurm has ended the job: (STEP|JOB) {held.job}\S* ON node\d {words}", done.messages), done
    assert "[E_ENGINE]" in done.messages, done
    expect_clean(job, held, since)


def test_a_node_that_goes_down(horarun, allocation, cluster):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    job = begin(horarun, held, 2)
    down = time.monotonic()
    cluster.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    try:
        expect_words(job, held, r"CANCELLED AT \S+ DUE TO NODE FAILURE", since=down)
    finally:
        # It may have come back by itself (ReturnToService).
        cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME", check=False)
        jobs.wait_until(lambda: cluster.states() == {"idle"}, "the node to come back", 60)


def test_a_job_that_has_to_make_room(horarun, allocation, cluster):
    held = allocation("-N4", "--ntasks-per-node=4")
    job = begin(horarun, held, 16)
    preempted = time.monotonic()
    other = allocation("-p", "urgent", "-N2", "--ntasks-per-node=4")
    expect_words(job, held, r"CANCELLED AT \S+ DUE TO PREEMPTION", since=preempted)
    assert other.srun("hostname").split()


@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="a minute is the least: scripts/ci slurm")
def test_a_job_whose_time_is_up(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1", "--time=1")
    expect_words(begin(horarun, held, 2), held, r"CANCELLED AT \S+ DUE TO TIME LIMIT", since=time.monotonic() + 150)
