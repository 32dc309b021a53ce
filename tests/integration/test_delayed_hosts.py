# SPDX-License-Identifier: Apache-2.0
"""Hosts that are far from each other or on a bad cable (tests/support/hosts netem K --delay MS --mangle PERCENT)."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import jobs

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

DELAY_MS = 5
ROUND_TRIP_MS = 4 * DELAY_MS  # between two hosts: out of the one and into the other, and back

# Large sums pass round the ring, in several pieces; 3,000 numbers are asked of rank 0 and doubled; 7 go by the leaders.
PROGRAM = """\
import time
import numpy as np
import hora
import hora.numpy as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
for count in (7, 3000, 1_000_000):
    for turn in range(3):
        values = np.arange(count, dtype=np.float64) % 1000 + rank + turn
        total = hvd.allreduce(values, op=hvd.Sum, name=f'sum of {count}')
        assert (total == size * (np.arange(count) % 1000 + turn) + size * (size - 1) // 2).all(), total
rows = hvd.allgather(np.full((rank + 1, 50_000), rank, dtype=np.int32), name='rows')
assert rows[:, 0].tolist() == [each for each in range(size) for _ in range(each + 1)], rows
parts = hvd.alltoall(np.repeat(np.arange(size, dtype=np.int64), 10_000), name='parts')
assert (parts == rank).all() and len(parts) == size * 10_000, parts
hvd.barrier()
began = time.monotonic()
hvd.barrier()
print('BARRIER', (time.monotonic() - began) * 1000, flush=True)
print('MEASURED', hora.describe()['round_trip_us'] / 1000, flush=True)
"""

CONNECT = """\
import socket, sys, time
began = time.monotonic()
socket.create_connection((sys.argv[1], 22)).close()
print((time.monotonic() - began) * 1000)
"""


@pytest.fixture
def far(hosts):
    if not shutil.which("cc") or not os.path.exists("/dev/net/tun"):
        pytest.skip("no C compiler or no /dev/net/tun")

    def far(count):
        up = hosts(count)
        for k in range(1, count + 1):
            up.act("netem", k, "--delay", DELAY_MS)
        return up

    return far


def connect_ms(hosts, k, to):
    return float(hosts.execute(k, "python3", "-c", CONNECT, to))


def delay_lines():
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            found += [entry] if entry.isdigit() and "delay_line" in os.readlink(f"/proc/{entry}/exe") else []
    return found


def skip_where_a_cable_may_stand_still():
    """A frame that waits for a processor waits in the link, as far as a job can see: on a busy machine, a job would
    take the other host for lost. So these tests need delay lines that run ahead of all else."""
    if any(os.sched_getscheduler(int(pid)) != os.SCHED_FIFO for pid in delay_lines()):
        pytest.skip("delay lines cannot run in real time here")


def far_ends():
    return [device for device in os.listdir("/sys/class/net") if device.endswith("-far")]


def test_a_job_runs_and_is_right(horarun, far, shared):
    two = far(2)
    skip_where_a_cable_may_stand_still()
    pathlib.Path(shared, "delayed.py").write_text(PROGRAM)
    done = horarun.run("-H", two.spec(2), "--wdir", shared, "python3", "delayed.py").expect(0)
    barriers = [float(each) for each in re.findall(r"BARRIER (\S+)", done.text)]
    # No rank leaves a barrier before the other host's message has come.
    assert len(barriers) == 4 and max(barriers) >= ROUND_TRIP_MS / 2, done
    # All ranks know the same of it: the border between two algorithms depends on that.
    measured = [float(each) for each in re.findall(r"MEASURED (\S+)", done.text)]
    assert len(measured) == 4 and len(set(measured)) == 1 and measured[0] >= ROUND_TRIP_MS, done


def test_a_ring_of_hosts_is_right(horarun, far, shared):
    three = far(3)
    skip_where_a_cable_may_stand_still()
    pathlib.Path(shared, "delayed.py").write_text(PROGRAM)
    done = horarun.run("-H", three.spec(1), "--wdir", shared, "python3", "delayed.py").expect(0)
    assert done.text.count("BARRIER") == 3, done


def count(hosts, k, protocol, name):
    """A counter of host k's kernel."""
    text = hosts.execute(k, "cat", "/proc/net/snmp", "/proc/net/netstat")
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith(protocol + ":"))
    return int(dict(zip(names, values))[name])


def test_frames_that_come_twice_late_or_altered(horarun, hosts, shared):
    if not shutil.which("cc") or not os.path.exists("/dev/net/tun"):
        pytest.skip("no C compiler or no /dev/net/tun")
    two = hosts(2)
    for k in (1, 2):
        two.act("netem", k, "--mangle", 2)
    pathlib.Path(shared, "mangled.py").write_text(PROGRAM)
    job = ("-H", two.spec(2), "--wdir", shared, "python3", "mangled.py")
    for options in ((), ("--rendezvous-tls",)):  # the first one also sends the runtime
        done = horarun.run(*options, *job).expect(0)
        assert done.text.count("BARRIER") == 4, done
    assert sum(count(two, k, "Tcp", "InCsumErrors") for k in (1, 2)) > 0
    assert sum(count(two, k, "TcpExt", "TCPDSACKRecv") for k in (1, 2)) > 0


def test_frames_take_at_least_the_time_that_was_asked_for(far):
    two = far(2)
    assert connect_ms(two, 1, "node2") >= ROUND_TRIP_MS
    assert connect_ms(two, 2, "node1") >= ROUND_TRIP_MS
    two.act("netem", 2)  # the other one's cable is as long as before
    assert connect_ms(two, 1, "node2") >= ROUND_TRIP_MS / 2


def test_a_cable_that_is_unplugged_stays_long(far):
    two = far(2)
    two.act("cut", 1)
    two.act("heal", 1)
    assert connect_ms(two, 1, "node2") >= ROUND_TRIP_MS


def test_nothing_is_left_of_a_delay(far, hosts):
    two = far(2)
    assert len(delay_lines()) == len(far_ends()) == 2
    two.act("netem", 1, "--delay", 1)  # in place of the other
    assert len(delay_lines()) == len(far_ends()) == 2
    two.act("netem", 1)
    assert len(delay_lines()) == len(far_ends()) == 1
    connect_ms(two, 1, "node2")
    hosts.down()
    assert not delay_lines() and not far_ends()


def test_a_delay_ends_with_its_cable(far, hosts):
    """As when another program removes the hosts' devices and knows nothing of delays."""
    far(2)
    for k in (1, 2):
        subprocess.run(["ip", "link", "del", f"hh-{k}-0"], check=True)
    jobs.wait_until(lambda: not delay_lines() and not far_ends(), "the delay lines to end", seconds=120)
    hosts.down()
