# SPDX-License-Identifier: Apache-2.0
"""Workers of the real Horovod find each other through our rendezvous server and train."""

import os
import shutil

import pytest


@pytest.fixture(scope="module")
def program(shared):
    return shutil.copy(os.path.join(os.path.dirname(__file__), "train.py"), shared)


def expect_trained(done, ranks):
    done.expect(0)
    lines = [line for lines in done.ranks().values() for line in lines if "learned" in line]
    assert len(lines) == ranks and all(f"of {ranks} " in line for line in lines), done
    assert all("site-packages/horovod" in line for line in lines), f"not the real one:\n{done}"


def test_here(horarun, python, program):
    expect_trained(horarun.run("--gloo", "-np", 4, "--runtime", "host", python, program), 4)


def test_on_two_hosts(horarun, hosts, python, program):
    hosts(2)
    expect_trained(horarun.run("--gloo", "-H", "node1:2,node2:2", "--runtime", "host", python, program), 4)


def test_a_rank_that_dies(horarun, hosts, python, program):
    """Horovod's own workers do not hang in a broken job: the launcher ends them."""
    hosts(2)
    script = (
        "import os, time, horovod.torch as hvd, torch; hvd.init(); hvd.rank() == 2 and os._exit(5); "
        "hvd.allreduce(torch.ones(4)); time.sleep(100)"
    )
    done = horarun.run("-H", "node1:2,node2:2", "--runtime", "host", python, "-c", script).expect(5)
    assert "rank 2 on node2" in done.messages, done
