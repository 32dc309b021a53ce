# SPDX-License-Identifier: Apache-2.0
"""Resource limits of the user apply to the ranks."""

import os
import re
import subprocess
import uuid

import pytest

PYTHON = "/usr/bin/python3"
# Answers how many processes it could have at one time, of 60 that it wants.
FORKS = """import os, signal
children = []
try:
    while len(children) < 60:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except BlockingIOError:
    pass
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print(len(children))
"""


@pytest.fixture
def few_processes():
    """A cgroup that may hold 40 processes."""
    parent = next((p for p in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") if os.path.exists(f"{p}/cgroup.procs")), None)
    path = f"{parent}/hora-limit-{uuid.uuid4().hex[:12]}"
    try:
        os.mkdir(path)
        with open(f"{path}/pids.max", "w") as file:
            file.write("40")
    except OSError as error:
        if os.path.isdir(path):
            os.rmdir(path)
        pytest.skip(f"no cgroup can be limited here: {error}")
    yield path
    os.rmdir(path)


def test_a_cgroups_limit_of_processes(horarun, few_processes):
    assert int(horarun.run("-np", 1, PYTHON, "-S", "-c", FORKS).expect(0).ranks()[0][0]) == 60

    def enter():
        with open(f"{few_processes}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))

    done = horarun.start("-np", 1, PYTHON, "-S", "-c", FORKS, preexec_fn=enter).finish().expect(0)
    assert 0 < int(done.ranks()[0][0]) < 40, done


@pytest.mark.parametrize(
    "words, expected",
    [
        (["-np", 1_000_000], "1000000 ranks are too many for one host"),
        (["-np", 1_000_000, "--min-np", 2], "1000000 ranks are too many for one host"),
        (["-np", 1_000_000, "-H", "localhost:60000"], "the hosts offer 60000 slots"),
        (["-np", 300], "300 ranks need 712 open files, and the limit is 400"),
    ],
)
def test_more_ranks_than_there_is_room_for(horarun, words, expected):
    script = 'ulimit -n 400; exec "$0" "$@" true'
    line = ["sh", "-c", script, horarun.path, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    assert expected in done.stderr, done


def test_more_ranks_than_a_cgroup_may_have(horarun, few_processes):
    def enter():
        with open(f"{few_processes}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))

    done = horarun.start("-np", 200, "true", preexec_fn=enter).finish().expect(2)
    assert re.search(r"200 ranks need as many processes, and the limit is \d+ \(.*pids.max\)", done.messages), done


def test_ulimits(horarun):
    script = "ulimit -n 300; ulimit -c 0; exec \"$0\" -np 1 sh -c 'ulimit -n; ulimit -Hn; ulimit -Hc'"
    done = subprocess.run(["sh", "-c", script, horarun.path], capture_output=True, text=True, timeout=60)
    assert [line.partition(":")[2] for line in done.stdout.splitlines()] == ["300", "300", "0"], done
