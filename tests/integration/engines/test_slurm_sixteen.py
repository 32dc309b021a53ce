# SPDX-License-Identifier: Apache-2.0
"""What grows with the number of nodes: sixteen of them, all on this machine."""

import signal
import time

from slurm_jobs import expect_clean, start

HOSTS = 16


def test_one_step_for_sixteen_nodes(horarun, allocation):
    held = allocation("-N16", "--ntasks-per-node=2")
    for _ in range(2):  # the first one copies what the nodes lack
        done = start(horarun, held, "hostname").finish().expect(0)
        ranks = done.ranks()
        assert [ranks[rank] for rank in range(32)] == [[f"node{1 + rank // 2}"] for rank in range(32)], done
        assert "not all hosts" not in done.messages, done
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 32)
    assert len(held.steps()) == 1
    killed = time.monotonic()
    job.send_signal(signal.SIGKILL)
    job.process.wait(timeout=20)
    expect_clean(job, held, since=killed)


def test_a_collective_job_on_sixteen_nodes(horarun, allocation):
    held = allocation("-N16", "--ntasks-per-node=1")
    done = start(horarun, held, "--smoke").finish().expect(0)
    assert "16 ranks" in done.text + done.messages, done
