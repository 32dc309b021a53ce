# SPDX-License-Identifier: Apache-2.0
"""hora.elastic_job: elastic jobs in processes that something else owns, here the test itself."""

import os
import signal
import subprocess
import sys
import time

import pytest

from support import job, processes
from support.elastic_training import fail, kill_rank_1, once, place, place_on_machine, raise_on_rank_1, train
from support.processes import wait_until

sys.path.insert(0, str(job.PACKAGES))

from hora import elastic_job

PROCESS = """
import os, sys
from hora import engine_host
port, key, node = sys.stdin.readline().split()
environment = {**os.environ, "HORA_ENGINE_PYTHON": sys.executable, "HORA_TEST_MEMBER": str(os.getpid())}
engine_host.serve("127.0.0.1", int(port), bytes.fromhex(key), {"node": node}, environment)
"""
PROGRAM = ["/bin/sh", "-c", 'exec "$HORA_ENGINE_PYTHON" -m hora.launch_worker']


class Processes(elastic_job.Engine):
    """An engine that has room for that many processes."""

    def __init__(self, room):
        self.free, self.processes, self.begun = room, [], 0
        self.waiting = []

    def start(self, count, server):
        self.waiting += [server] * count

    def alive(self):
        running = sum(process.poll() is None for process in self.processes)
        while self.waiting and running < self.capacity():
            _, port, key = self.waiting.pop()
            self.begun += 1
            running += 1
            process = subprocess.Popen([sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, env=job.environment())
            process.stdin.write(f"{port} {key.hex()} node{self.begun}\n".encode())
            process.stdin.close()
            self.processes.append(process)
        return running + len(self.waiting)

    def capacity(self):
        return self.free

    def status(self):
        return f"room for {self.free}"

    def close(self):
        for process in self.processes:
            try:
                process.wait(30)
            finally:
                process.kill()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in job.environment().items():
        monkeypatch.setenv(name, value)


def run(engine, function, *args, np=2, env=None, **limits):
    limits = elastic_job.Limits(np, elastic_timeout=60, start_timeout=60, **limits)
    return elastic_job.run(engine, "127.0.0.1", (function, args, {}), PROGRAM, limits, env=env)


def test_results_by_rank():
    assert run(Processes(3), place, np=3) == [(rank, 3, [0, 1, 2]) for rank in range(3)]


def test_local_places_are_those_on_the_machine():
    assert run(Processes(2), place_on_machine) == [(rank, 2, 0, 1, str(rank)) for rank in range(2)]


def test_processes_with_devices_of_their_own_count_from_0():
    engine = Processes(2)
    engine.shares_devices = False
    assert run(engine, place_on_machine) == [(0, 1, rank, 2, "0") for rank in range(2)]


def test_local_places_after_a_change(tmp_path):
    def both(folder, what):
        return train(folder, [3, 2, 3], what), place_on_machine()

    found = run(Processes(3), both, str(tmp_path), kill_rank_1, np=3, min_np=2)
    assert [place for _, place in found] == [(rank, 3, 0, 1, str(rank)) for rank in range(3)]


def test_a_killed_rank_is_replaced(tmp_path):
    engine = Processes(3)
    found = run(engine, train, str(tmp_path), [3, 2, 3], kill_rank_1, np=3, min_np=2)
    assert found == [(rank, [3, 2, 3]) for rank in range(3)]
    assert engine.begun == 4


def test_a_killed_member_is_replaced(tmp_path):
    def kill_member(folder):
        import hora

        if hora.rank() == 1 and once(folder, "killed"):
            os.kill(int(os.environ["HORA_TEST_MEMBER"]), signal.SIGKILL)
            time.sleep(60)

    found = run(Processes(2), train, str(tmp_path), [2, 1, 2], kill_member, min_np=1)
    assert found == [(rank, [2, 1, 2]) for rank in range(2)]


def test_more_room_is_used_up_to_max_np(tmp_path):
    def make_room(folder):
        once(folder, "more")

    class Growing(Processes):
        def capacity(self):
            return 5 if os.path.exists(tmp_path / "more") else 2

    engine = Growing(2)
    assert run(engine, train, str(tmp_path), [2, 4], make_room, max_np=4) == [(rank, [2, 4]) for rank in range(4)]
    assert engine.begun == 4


def test_a_rank_that_raises_is_reported_at_once_where_the_rest_is_too_few(tmp_path):
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 failed:.*in fail.*ValueError: bad luck"):
        run(Processes(2), fail, 1)
    assert time.monotonic() - begun < 20


def test_a_rank_that_raises_is_not_replaced_where_the_rest_suffices(tmp_path):
    engine = Processes(3)
    found = run(engine, train, str(tmp_path), [3, 2], raise_on_rank_1, np=3, min_np=2, max_np=3)
    assert found == [(rank, [3, 2]) for rank in range(2)]
    assert engine.begun == 3


def test_reset_limit(tmp_path):
    with pytest.raises(RuntimeError, match="reset-limit"):
        run(Processes(2), train, str(tmp_path), [2, 1], kill_rank_1, min_np=1, reset_limit=0)


def test_too_few_processes():
    limits = elastic_job.Limits(2, start_timeout=10)  # one process has to start within it
    with pytest.raises(TimeoutError, match=r"1 of 2 processes of the job have started within 10 s: room for 1"):
        elastic_job.run(Processes(1), "127.0.0.1", (place, (), {}), PROGRAM, limits)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"np": 0}, "np=0: expected a number"),
        ({"np": 2, "min_np": 3}, "expected min_np <= np <= max_np"),
        ({"np": 2, "max_np": 1}, "expected min_np <= np <= max_np"),
        ({"np": 2, "reset_limit": -1}, "reset_limit=-1"),
    ],
)
def test_limits(limits, text):
    with pytest.raises(ValueError, match=text):
        elastic_job.Limits(**limits)


DRIVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import test_elastic_job as tests
from support import elastic_training
from hora import elastic_job
limits = elastic_job.Limits(2)
call = (elastic_training.sleep_long, (sys.argv[2],), {})
elastic_job.run(tests.Processes(2), "127.0.0.1", call, tests.PROGRAM, limits)
"""


def test_nothing_is_left_of_a_killed_driver(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, here, str(tmp_path)], env=job.environment(HORA_TEST_MARK=tmp_path)
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "both ranks run")
        pids = processes.marked(tmp_path)
        assert len(pids) > 6
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not processes.marked(tmp_path), "nothing is left")
