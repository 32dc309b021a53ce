# SPDX-License-Identifier: Apache-2.0
"""In a large job control messages go by the leaders of the hosts. HORA_STAR_RANKS=0: in any job of several hosts."""

import pathlib
import re

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

HEAD = """\
import os, signal, sys
import numpy as np
import hora
import hora.numpy as hvd
from hora.exceptions import HorovodInternalError
hvd.init()
rank, size = hvd.rank(), hvd.size()

def is_node():
    for each in os.listdir('/proc/self/task'):
        try:
            with open(f'/proc/self/task/{each}/comm') as comm:
                if comm.read().strip() == 'hora-tree': return True
        except OSError:
            pass  # a thread that has ended meanwhile
    return False

"""

OPERATIONS = """\
odd = hvd.add_process_set([each for each in range(size) if each % 2])
for turn in range(20):
    large = np.full(100_000, rank + turn, dtype=np.float32)
    total = hvd.allreduce(large, op=hvd.Sum, name='large')
    assert (total == sum(each + turn for each in range(size))).all(), total
    if rank % 2:
        count = hvd.allreduce(np.ones(9000), op=hvd.Sum, name='odd', process_set=odd)
        assert (count == size // 2).all(), count
    rows = hvd.allgather(np.full((rank + 1, 9000), rank, dtype=np.int32), name='rows')
    assert rows[:, 0].tolist() == [each for each in range(size) for _ in range(each + 1)]
    got, _ = hvd.alltoall(np.arange(size * 9000), splits=[9000] * size, name='exchange')
    assert len(got) == size * 9000
try:
    hvd.allreduce(np.ones(3 if rank == 5 else 4), name='mismatch')
except Exception as error:
    print('MISMATCH', error, flush=True)
hvd.barrier()
print('NODE' if is_node() else 'LEAF', rank, flush=True)
"""


@pytest.fixture
def start(horarun, shared):
    def run(spec, body, *options):
        pathlib.Path(shared, "tree.py").write_text(HEAD + body)
        command = ["--wdir", shared, "python3", "tree.py"]
        return horarun.start("-H", spec, *options, *command, env={"HORA_STAR_RANKS": "0"})

    return run


def test_operations_sets_and_mismatches(hosts, start):
    hosts(4)
    # Of different numbers of ranks, so that their places among the hosts differ, too.
    done = start("node1:2,node2:3,node3:1,node4:2", OPERATIONS).finish(timeout=120).expect(0)
    assert sorted(re.findall(r"NODE (\d)", done.text)) == ["0", "2", "6"], done
    assert sorted(re.findall(r"LEAF (\d)", done.text)) == ["1", "3", "4", "5", "7"], done
    mismatches = re.findall(r"MISMATCH (.*)", done.text)
    assert len(mismatches) == 8 and all("rank 5" in each for each in mismatches), done


def test_a_stall_names_the_missing_rank(hosts, start):
    hosts(2)
    body = """\
hvd.allreduce(np.ones(9000), name='before')
try:
    if rank != 3: hvd.allreduce(np.ones(9000), name='late')
    else: signal.pause()
except HorovodInternalError:
    sys.exit(4)
"""
    options = ["--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 3]
    done = start("node1:2,node2:2", body, *options).finish(timeout=60)
    assert re.search(r"rank 3 .*is missing in allreduce '\S*late'", done.messages), done


@pytest.mark.parametrize("way", ["crash", "kill a leader", "kill a rank"])
def test_who_is_lost_is_named_everywhere(hosts, start, way):
    """Rank 2 leads node2."""
    three = hosts(3)
    body = """\
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher may see it as soon
print('PID', rank, os.getpid(), flush=True)
try:
    while True: hvd.allreduce(np.ones(100_000), name='work')
except HorovodInternalError as error:
    print('LOST', rank, error, flush=True)
"""
    job = start(three.spec(2), body, "--grace", "30s")
    begun = job.read_until("PID", 6)
    if way == "crash":
        three.act("crash", 2)
    else:
        victim = 2 if way == "kill a leader" else 3
        three.execute(2, "kill", "-9", re.search(rf"PID {victim} (\d+)", begun)[1])
    done = job.finish(timeout=60)
    reported = re.findall(r"LOST ([0145]) (.*)", done.text)
    named = {"crash": r"rank [23]\b", "kill a leader": r"rank 2\b", "kill a rank": r"rank 3\b"}[way]
    assert len(reported) == 4 and all(re.search(named, text) for _, text in reported), done


@pytest.mark.parametrize("victim", [2, 3])
def test_a_stopped_rank_is_named_be_it_a_leader_or_not(hosts, start, victim):
    """Rank 2 leads node2, and reports rank 3 to rank 0."""
    two = hosts(2)
    body = """\
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('PID', rank, os.getpid(), flush=True)
try:
    while True: hvd.allreduce(np.ones(1_000_000), name='work')
except HorovodInternalError as error:
    print('MISSED', rank, error, flush=True)
    sys.exit(4)
"""
    options = ["--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 3, "--grace", "10s"]
    job = start(two.spec(2), body, *options)
    begun = job.read_until("PID", 4)
    two.execute(2, "kill", "-STOP", re.search(rf"PID {victim} (\d+)", begun)[1])
    done = job.finish(timeout=60)
    reported = dict(re.findall(r"MISSED ([0-3]) (.*(?:\n.*  rank.*)?)", done.text))
    reported.pop(str(victim), None)  # it goes on when the job ends
    assert len(reported) == 3 and all(re.search(rf"rank {victim}\b", text) for text in reported.values()), done
