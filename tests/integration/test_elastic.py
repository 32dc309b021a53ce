# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs from outside: hosts and ranks that come, go and fail while a PyTorch script trains. The
result must equal that of one process (see programs/elastic_torch.py)."""

import os
import pathlib
import re
import signal
import subprocess
import uuid

import pytest

import jobs
from elastic_training import PYTHON, Training

pytestmark = pytest.mark.skipif(
    os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") != 0, reason="no torch for the system's Python"
)


FEW_DESCRIPTORS = """\
import os, resource
import numpy as np
import hora.numpy as hvd
from hora import elastic

@elastic.run
def train(state):
    hvd.allreduce(np.ones(100_000), name='work')
    print('trained with', hvd.size(), flush=True)

# Enough to listen, and not to connect as well.
if os.environ['HOROVOD_HOSTNAME'] == 'node3':
    resource.setrlimit(resource.RLIMIT_NOFILE, (15, 15))
hvd.init()
train(elastic.SimpleState(step=0))
"""


def on_discovered(horarun, shared, *options):
    training = Training(horarun, shared)
    training.options = [
        *options,
        "--host-discovery-script",
        f"printf x >> {training.hosts_file}.runs; cat {training.hosts_file}",
    ]
    return training


def test_a_killed_rank(horarun, shared):
    """Its host, here another name of this machine, is left out; the others go on as they are."""
    training = Training(horarun, shared, "-np", 4, "--min-np", 2, "-H", "localhost:2,127.0.0.1:2").start()
    training.wait_for("goes on with 4", 4)
    os.kill(training.pid_of(3), signal.SIGKILL)
    training.wait_for("goes on with 2", 2)
    finished = training.finish()
    assert training.workers() == [0, 1, 2, 3], "a survivor was started again"
    assert training.text.count("the same") == 2
    assert "host 127.0.0.1: rank 3 was killed by SIGKILL" in finished.messages
    assert "epoch 2: 2 ranks: localhost:2" in finished.messages


@pytest.mark.hosts
def test_hosts_come_and_go(horarun, shared, hosts):
    """A host that comes is used; one that goes, the first of all, is left; a script that fails changes nothing."""
    hosts(3)
    training = on_discovered(horarun, shared, "-np", 2, "--min-np", 1)
    training.list("node1:2")
    training.start()
    training.wait_for("goes on with 2", 2)
    training.list("node1:2", "node2")
    training.wait_for("goes on with 3", 3)
    training.list("node2", "this is not a host")
    training.wait_for_discovery()
    training.list("node2")
    training.wait_for("goes on with 1")
    training.list("node2", "node3:2")
    training.wait_for("goes on with 3", 3)
    finished = training.finish()
    assert training.workers() == [0, 1, 2, 3, 4]
    assert training.text.count("the same") == 3
    assert finished.messages.count("invalid host in its output: line 2") == 1
    assert "epoch 4: 3 ranks: node2:1, node3:2" in finished.messages


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_a_host_that_dies(horarun, shared, hosts):
    two = hosts(2)
    training = Training(horarun, shared, "-np", 4, "--min-np", 2, "--lease", "8s", "-H", two.spec(2)).start()
    training.wait_for("goes on with 4", 4)
    two.act("crash", 2)
    training.wait_for("goes on with 2", 2)
    finished = training.finish()
    assert training.text.count("the same") == 2
    assert "[E_HOST_LOST]" in finished.messages


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_cut_and_healed(horarun, shared, hosts):
    """A host behind a cut cable is lost, and used again some time after the cable is fixed."""
    three = hosts(3)
    training = on_discovered(
        horarun,
        shared,
        "-np",
        3,
        "--min-np",
        1,
        "--lease",
        "6s",
        "--start-timeout",
        "15s",
        "--blacklist-cooldown-range",
        2,
        6,
    )
    training.list("node1", "node2", "node3")
    training.start()
    training.wait_for("goes on with 3", 3)
    three.act("cut", 3)
    training.wait_for("goes on with 2", 2)
    three.act("heal", 3)
    training.wait_for("goes on with 3", 3)
    training.finish()
    assert training.text.count("the same") == 3


@pytest.mark.hosts
def test_ranks_that_do_not_meet_say_who_is_missing(horarun, hosts):
    """They ask for the next epoch without an end, so the error has to name the missing ranks."""
    two = hosts(2)
    two.act("part", 1, 2)
    job = horarun.start(
        *("-np", 2, "--min-np", 2, "-H", two.spec(1), "--gloo-timeout-seconds", 5, PYTHON, "-c"),
        "import hora; hora.init(); print('met', hora.size())",
        stderr=subprocess.STDOUT,
    )
    job.read_until("warn elastic: timed out waiting for rank 1 to ")
    two.act("join", 1, 2)
    assert job.finish().expect(0).text.count("met 2") == 2


@pytest.mark.hosts
def test_a_host_without_descriptors_is_left_out(horarun, shared, hosts):
    """The others wait without result for its rank, which cannot connect to them, and are not left out."""
    three = hosts(3)
    pathlib.Path(shared, "few.py").write_text(FEW_DESCRIPTORS)
    job = ("-np", 3, "--min-np", 1, "-H", three.spec(1), "--gloo-timeout-seconds", 10, PYTHON, f"{shared}/few.py")
    done = horarun.run(*job).expect(0)
    assert "host node3: rank 2 exited with code 1" in done.messages, done
    assert "tcp was left out: rank 2: connecting the ranks over" in done.messages
    assert done.text.count("trained with 2") == 2


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("descriptors", [6, 8, 10])
def test_ranks_without_descriptors_end(horarun, shared, least, descriptors):
    """No epoch gives them any: they do not ask for the next one."""
    (program := pathlib.Path(shared, "some.py")).write_text("import hora.numpy as hvd\nhvd.init()\n")
    line = f"ulimit -n {descriptors}; exec {PYTHON} {program}"
    done = horarun.run("-np", 2, "--min-np", least, "sh", "-c", line)
    assert done.code != 0 and re.search("Too many open files|needs a descriptor for each", done.text + done.messages)
    assert re.search(r"host localhost: rank \d exited with code 1", done.messages), done
    assert "elastic epoch 4:" not in done.messages, done


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_two_hosts_that_cannot_reach_each_other(horarun, shared, hosts):
    """Rank 0 reaches both, so their ranks meet, and cannot be connected: the job goes on without one of them."""
    three = hosts(3)
    training = on_discovered(horarun, shared, "-np", 1, "--min-np", 1)
    training.timeout = ("--elastic-timeout", 100, "--gloo-timeout-seconds", 20)
    training.list("node1")
    training.start()
    training.wait_for("goes on with 1")
    three.act("part", 2, 3)
    training.list("node1", "node2", "node3")
    training.wait_for("goes on with 2", 2)
    finished = training.finish()
    assert training.text.count("the same") == 2
    assert "host node2: rank 1 exited with code 1" in finished.messages
    assert "no connection to rank 2 within 20 s" in finished.messages


CUT_OFF = """\
import numpy as np
import hora.numpy as hvd
from hora import elastic

@elastic.run
def train(state):
    for count in (1, 100_000, 4_000_000):  # ranks have to do with others than their neighbours
        hvd.allreduce(np.ones(count, dtype=np.float32), name=f'work {count}')
    hvd.alltoall(np.ones(100_000 * hvd.size()), name='exchange')
    print('trained with', hvd.size(), flush=True)

hvd.init()
train(elastic.SimpleState(step=0))
"""


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
@pytest.mark.parametrize("count, apart, left_out", [(3, (1, 3), "node3"), (4, (2, 4), "node4")])
def test_hosts_that_are_cut_from_each_other_for_good(horarun, shared, hosts, count, apart, left_out):
    """Rank 0 and another one; two that are not neighbours, and connect only in an operation."""
    some = hosts(count)
    some.act("part", *apart)
    pathlib.Path(shared, "cut_off.py").write_text(CUT_OFF)
    job = ("-np", count, "--min-np", 1, "-H", some.spec(1), "--gloo-timeout-seconds", 3, PYTHON, f"{shared}/cut_off.py")
    done = horarun.run(*job, timeout=170).expect(0)
    other = f"node{apart[0]}"
    assert f"host {left_out}: no connection between it and {other} in 3 meetings in a row" in done.messages, done
    assert done.text.count(f"trained with {count - 1}") == count - 1


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_one_fault_after_the_other(horarun, shared, hosts):
    """Ranks killed on host after host, each of which returns."""
    three = hosts(3)
    training = on_discovered(horarun, shared, "-np", 6, "--min-np", 2, "--blacklist-cooldown-range", 1, 4)
    training.list(*(f"{name}:2" for name in three.names))
    training.start()
    training.wait_for("goes on with 6", 6)
    for victim in (1, 7, 3):
        jobs.wait_until(lambda: f"worker {victim} pid" in training.text, f"worker {victim}")
        pid = training.pid_of(victim)
        node = re.search(rf"worker {victim} pid \d+ host node(\d)", training.text)[1]
        three.execute(int(node), "kill", "-9", str(pid))
        training.wait_for("goes on with 4", 4)
        training.wait_for("goes on with 6", 6)
    training.finish()
    assert training.text.count("the same") == 6


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_too_few_hosts_are_left(horarun, shared, hosts):
    one = hosts(2)
    training = Training(horarun, shared, "-np", 2, "--min-np", 2, "-H", one.spec(1)).start()
    training.wait_for("goes on with 2", 2)
    pid = training.pid_of(1)
    one.execute(2, "kill", "-9", str(pid))
    finished = training.job.finish().expect(137)
    assert "rank 1 on node2 was killed by SIGKILL" in finished.messages


def test_discovery_that_never_worked(horarun):
    finished = horarun.run("-np", 1, "--host-discovery-script", "echo no luck >&2; exit 3", "true").expect(125)
    assert "E_DISCOVERY" in finished.messages and "no luck" in finished.messages
    finished = horarun.run("-np", 1, "--host-discovery-script", "exec sleep 1000", "--elastic-timeout", 1, "true")
    assert "did not end within 500ms" in finished.expect(125).messages


def test_what_a_discovery_script_leaves_in_the_background_ends_with_it(horarun, shared):
    """One such program each second would be many in the end."""
    runs = f"{shared}/runs.{uuid.uuid4().hex[:8]}"
    job = horarun.start(
        "-np",
        1,
        "--host-discovery-script",
        f"sleep 1000 & echo $! >> {runs}; setsid sleep 1000 & echo $! >> {runs}; echo localhost slots=1",
        "cat",
        stdin=subprocess.PIPE,
    )
    jobs.wait_until(
        lambda: os.path.exists(runs) and len(open(runs, encoding="utf-8").readlines()) >= 6,
        "the script to run three times",
    )
    with open(runs, encoding="utf-8") as file:
        earlier = [int(line) for line in file][:4]
    assert not {process.pid for process in job.survivors()} & set(earlier)
    job.finish(b"").expect(0)
    jobs.expect_nothing_left(job)


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_agents_of_hosts_that_come_and_go_are_not_kept(horarun, shared):
    """Another name of this machine is listed at every second run only."""
    runs = f"{shared}/runs.{uuid.uuid4().hex[:8]}"
    script = f"echo x >> {runs}; echo localhost; [ $(($(wc -l < {runs}) % 2)) = 1 ] || echo 127.0.0.1"
    job = horarun.start("-np", 1, "--host-discovery-script", script, "cat", stdin=subprocess.PIPE)
    jobs.wait_until(lambda: os.path.exists(runs) and os.path.getsize(runs) >= 2 * 9, "the script to run nine times")
    assert [state_of(child) for child in children_of(job.pid)].count("Z") <= 2
    job.finish(b"").expect(0)


def test_what_a_discovery_script_started_ends_with_a_killed_launcher(horarun, shared):
    started = f"{shared}/started.{uuid.uuid4().hex[:8]}"
    script = f"sleep 1000 & setsid sleep 1000 & touch {started}; wait"
    job = horarun.start("-np", 1, "--host-discovery-script", script, "true")
    jobs.wait_until(lambda: os.path.exists(started), "the script to start two programs")
    job.send_signal(signal.SIGKILL)
    job.finish()
    jobs.expect_nothing_left(job)


def test_plain_programs_under_an_elastic_job(horarun, shared):
    """A program that knows nothing of Hora: exit codes as ever."""
    job = ("-np", 2, "--min-np", 1, "-H", "localhost:1,127.0.0.1:1", "/bin/sh", "-c")
    assert sorted(horarun.run(*job, "echo $HOROVOD_RANK of $HOROVOD_SIZE").expect(0).text.split("\n"))[1:] == [
        "[0]<stdout>:0 of 2",
        "[1]<stdout>:1 of 2",
    ]
    horarun.run(*job, "exit 5").expect(5)
    folder = f"{shared}/output.{uuid.uuid4().hex[:8]}"
    horarun.run("--output-filename", folder, *job, "echo $HOROVOD_RANK").expect(0)
    for rank in (0, 1):
        with open(f"{folder}/rank.{rank}/stdout", encoding="utf-8") as file:
            assert file.read() == f"[{rank}]<stdout>:{rank}\n"
    horarun.run("-np", 3, *job[2:], "true", timeout=60).expect(125)


@pytest.mark.hosts
@pytest.mark.skipif("HORA_LONG_TESTS" not in os.environ, reason="scripts/ci elastic runs it")
def test_a_new_rank_that_never_meets(horarun, shared, hosts):
    """It dies before the others have met it: they meet without it, and do not wait out the time limit."""
    hosts(2)
    training = on_discovered(horarun, shared, "-np", 2, "--min-np", 1)
    training.list("node1:2")
    training.start("node2")
    training.wait_for("goes on with 2", 2)
    training.list("node1:2", "node2")
    training.wait_for("goes on with 2", 2)
    finished = training.finish()
    assert "epoch 3: 2 ranks: node1:2" in finished.messages
    assert training.workers() == [0, 1]
