# SPDX-License-Identifier: Apache-2.0
"""hora.rendezvous: ranks that something else than horarun starts, here the test itself."""

import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

from hora import launch, rendezvous


@pytest.fixture(autouse=True)
def launcher(monkeypatch):
    monkeypatch.setenv("HORARUN", job.launcher())


def places(hosts):
    return [
        (each.rank, each.local_rank, each.local_size, each.cross_rank, each.cross_size, each.host_index)
        for each in rendezvous.assign_ranks(hosts)
    ]


def test_workers_of_a_host_follow_one_another():
    assert places(["a", "b", "a"]) == [(0, 0, 2, 0, 2, 0), (2, 0, 1, 1, 2, 1), (1, 1, 2, 0, 1, 0)]


def test_hosts_with_unequal_numbers_of_workers():
    # Local rank 1 exists on b and c only, so these two are its cross ranks 0 and 1.
    assert places(["a", "b", "b", "c", "c"]) == [
        (0, 0, 1, 0, 3, 0),
        (1, 0, 2, 1, 3, 1),
        (2, 1, 2, 0, 2, 1),
        (3, 0, 2, 2, 3, 2),
        (4, 1, 2, 1, 2, 2),
    ]


RANK = """
import sys, os
import hora
for run in range(int(sys.argv[1])):
    hora.init()
    print(hora.rank(), hora.size(), hora.local_rank(), flush=True)
    hora.shutdown()
"""


def test_ranks_meet_and_meet_again():
    with rendezvous.Rendezvous("127.0.0.1") as server:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, "3"],
                env=job.environment(**server.environment(place)),
                stdout=subprocess.PIPE,
                text=True,
            )
            for place in rendezvous.assign_ranks(["here"] * 2)
        ]
        printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert printed == ["0 2 0\n" * 3, "1 2 1\n" * 3]


JOINS = """
import os, sys
import hora
size = os.environ["HOROVOD_SIZE"]
if sys.argv[1] == "alone":
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "1"
    try:
        hora.init()
    except ValueError as error:
        print("alone", flush=True)
    os.environ.update(dict(zip(*[iter(sys.stdin.readline().split())] * 2)))
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "30"
hora.init()
print(hora.rank(), flush=True)
"""


def test_a_process_that_failed_to_join_one_job_joins_the_next():
    """Its ranks have tried to join another number of times, which must not keep them apart."""
    first, second = rendezvous.assign_ranks(["here"] * 2)

    def start(word, variables):
        return subprocess.Popen(
            [sys.executable, "-c", JOINS, word],
            env=job.environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with rendezvous.Rendezvous("127.0.0.1") as one, rendezvous.Rendezvous("127.0.0.1") as two:
        old = start("alone", one.environment(first))
        new = start("fresh", two.environment(second))
        line = " ".join(word for pair in two.environment(first).items() for word in pair)
        assert old.communicate(line + "\n", timeout=120)[0] == "alone\n0\n"
        assert new.communicate(timeout=120)[0] == "1\n"


def test_outsiders_are_refused_and_learn_no_token():
    with rendezvous.Rendezvous("127.0.0.1") as server:
        variables = server.environment(rendezvous.assign_ranks(["here"])[0])
        token = variables["HORA_RENDEZVOUS_TOKEN"].encode()
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/scope?batch", timeout=30)
        assert refusal.value.code == 401
        process = pathlib.Path("/proc", str(server._process.pid))
        assert token not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()


STARTER = """
import sys, time
from hora import rendezvous
server = rendezvous.Rendezvous("127.0.0.1")
print(server._process.pid, flush=True)
sys.stdin.readline()
"""


def test_the_server_ends_with_its_starter():
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=job.environment(),
    )
    server = pathlib.Path("/proc", starter.stdout.readline().strip(), "stat")
    try:
        assert server.exists()
    finally:
        starter.kill()
        starter.communicate()
    deadline = time.monotonic() + 60
    while server.exists() and server.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < deadline, "the server outlives its starter"
        time.sleep(0.05)


def test_a_server_that_cannot_start_says_why(monkeypatch):
    with pytest.raises(RuntimeError, match=r"did not start to listen .*: .*-address"):
        monkeypatch.setattr(rendezvous, "_listen_address", lambda address: "nowhere")
        rendezvous.Rendezvous("127.0.0.1")


def test_addresses_that_lead_here_only_from_elsewhere(monkeypatch):
    assert rendezvous._listen_address("127.0.0.1") == "127.0.0.1"
    monkeypatch.setattr(launch, "local_addresses", lambda: ["10.1.2.3"])
    assert rendezvous._listen_address("10.1.2.3") == "10.1.2.3"
    assert rendezvous._listen_address("10.9.9.9") == "0.0.0.0"


def test_no_host_is_not_this_host():
    assert launch._are_local(["localhost"]) and not launch._are_local(["localhost", "other"])
    assert not launch._are_local([])
