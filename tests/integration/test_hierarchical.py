# SPDX-License-Identifier: Apache-2.0
"""Ranks on several hosts: how much data crosses the network, and which algorithm moves it."""

import json
import pathlib
import re

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

PROGRAM = """\
import os
import numpy as np
import hora.numpy as hvd

def sent():
    # Of this host: /proc/net/dev is of the network namespace.
    with open('/proc/net/dev') as file:
        rows = [line.replace(':', ' ').split() for line in file.readlines()[2:]]
    return sum(int(row[9]) for row in rows if row[0] != 'lo')

hvd.init()
size = 4 << 20
mine = np.full(size // 4, hvd.rank() + 1, dtype=np.float32)
hvd.allreduce(mine, op=hvd.Sum, name='first')
hvd.barrier()
before = sent()
for turn in range(4):
    result = hvd.allreduce(mine, op=hvd.Sum, name=f'turn.{turn}')
    assert (result == sum(range(1, hvd.size() + 1))).all()
hvd.barrier()
if hvd.local_rank() == 0:
    print('SENT', (sent() - before) / (4 * size), flush=True)
rows = hvd.allgather(np.full((1000 + hvd.rank(), 8), hvd.rank(), dtype=np.int32), name='rows')
expected = np.concatenate([np.full((1000 + rank, 8), rank, dtype=np.int32) for rank in range(hvd.size())])
assert (rows == expected).all()
hvd.barrier()
"""


@pytest.fixture
def run(horarun, hosts, shared):
    hosts(2)

    def start(*options):
        pathlib.Path(shared, "hierarchical.py").write_text(PROGRAM)
        done = horarun.run(
            "-np",
            4,
            "-H",
            "node1:2,node2:2",
            "--wdir",
            shared,
            *options,
            "sh",
            "-c",
            "HOROVOD_TIMELINE=/var/tmp/hora-hier.json python3 hierarchical.py || exit; "
            "[ $HOROVOD_RANK != 0 ] || { cat /var/tmp/hora-hier.json >hier.json; rm /var/tmp/hora-hier.json; }",
        ).expect(0)
        names = {event.get("name") for event in json.loads(pathlib.Path(shared, "hier.json").read_text())}
        return [float(each) for each in re.findall(r"SENT (\S+)", done.text)], names, done

    return start


def test_each_byte_leaves_a_host_once(run):
    sent, names, done = run()
    # 2 (H - 1) / H of the data for two hosts, and the headers.
    assert len(sent) == 2 and all(0.95 < each < 1.15 for each in sent), done
    assert {"HIERARCHICAL_ALLREDUCE", "LOCAL_REDUCESCATTER", "CROSS_ALLREDUCE", "HIERARCHICAL_ALLGATHER"} <= names, (
        names
    )


def test_it_can_be_switched_off(run):
    _, names, done = run("--no-hierarchical-allreduce", "--no-hierarchical-allgather")
    assert {"TCP_ALLREDUCE", "TCP_ALLGATHER"} <= names and not any("HIERARCHICAL" in str(name) for name in names), done
