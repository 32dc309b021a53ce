# SPDX-License-Identifier: Apache-2.0
"""The real Horovod's elastic workers under our launcher: they are notified of added and removed hosts, and continue
after a rank has died. The jobs and their expected results are those of tests/integration/test_elastic.py."""

import os
import signal

import pytest

import test_elastic as elastic  # of tests/integration, which conftest.py puts on the path


@pytest.fixture(autouse=True)
def real_workers(monkeypatch, python):
    monkeypatch.setattr(elastic, "PYTHON", python)
    # Horovod's own ranks wait this long for one that is gone before they notice.
    monkeypatch.setattr(elastic.Training, "timeout", ("--elastic-timeout", 100, "--gloo-timeout-seconds", 20))


def test_a_killed_rank(horarun, shared):
    training = elastic.Training(
        horarun, shared, "--runtime", "host", "-np", 4, "--min-np", 2, "-H", "localhost:2,127.0.0.1:2"
    ).start()
    training.wait_for("goes on with 4", 4)
    os.kill(training.pid_of(3), signal.SIGKILL)
    training.wait_for("goes on with 2", 2)
    training.finish()
    assert training.workers() == [0, 1, 2, 3], "a survivor was started again"
    assert training.text.count("the same") == 2


def test_hosts_come_and_go(horarun, shared, hosts):
    """Horovod's workers do not look by themselves: only the launcher's message to rank 0 makes them meet again."""
    hosts(3)
    training = elastic.on_discovered(horarun, shared, "--runtime", "host", "-np", 2, "--min-np", 1)
    training.list("node1:2")
    training.start()
    training.wait_for("goes on with 2", 2)
    training.list("node1:2", "node2")
    training.wait_for("goes on with 3", 3)
    training.list("node2")
    training.wait_for("goes on with 1")
    training.list("node2", "node3:2")
    training.wait_for("goes on with 3", 3)
    training.finish()
    assert training.text.count("the same") == 3
