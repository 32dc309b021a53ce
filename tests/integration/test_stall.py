# SPDX-License-Identifier: Apache-2.0
"""Stall reports: ranks that wait for others name them, and can end the job."""

import os
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

HEAD = """\
import sys
import numpy as np
import hora.numpy as hvd
from hora.exceptions import HorovodInternalError
hvd.init()
hvd.allreduce(np.ones(4), name='before')
"""


@pytest.fixture
def start(horarun, tmp_path):
    def run(body, *options, ranks=2, **more):
        program = tmp_path / "program.py"
        program.write_text(HEAD + body)
        return horarun.start("-np", ranks, *options, sys.executable, str(program), **more)

    return run


def test_a_stall_is_reported_and_the_job_goes_on(start):
    # Rank 1 comes when it reads a line, which is after the report.
    job = start(
        "if hvd.rank() == 1: sys.stdin.readline()\nhvd.allreduce(np.ones(4), name='late')\n",
        "--stdin",
        "all",
        "--stall-check-warning-time-seconds",
        1,
        stdin=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = job.read_until("it last submitted")
    assert re.search(r"rank 1 is missing in allreduce '\S*late' for \d+ s; it last submitted", text), text
    job.finish(input=b"\n").expect(0)


def test_a_rank_that_is_stopped_is_missing_in_what_all_did_before(start):
    done = (
        start(
            "import os, signal\n"
            "for _ in range(5): hvd.allreduce(np.ones(4), name='again')\n"
            "if hvd.rank() == 1: os.kill(os.getpid(), signal.SIGSTOP)\n"
            "try:\n"
            "    hvd.allreduce(np.ones(4), name='again')\n"
            "except HorovodInternalError:\n"
            "    sys.exit(4)\n",
            "--stall-check-warning-time-seconds",
            1,
            "--stall-check-shutdown-time-seconds",
            2,
        )
        .finish()
        .expect(4)
    )
    assert re.search(r"rank 1 is missing in allreduce '\S*again'", done.messages), done


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped_in_the_middle_of_an_operation(start, tmp_path, victim):
    """By default it is reported by name, and when it goes on, so does the job. The others report rank 0."""
    job = start(
        f"import os\n"
        f"many = np.ones(4 << 20, np.float32)\n"
        f"print('pid', hvd.rank(), os.getpid(), flush=True)\n"
        f"n = 0\n"
        f"while True:\n"
        f"    many[0] = os.path.exists('{tmp_path}/end')\n"
        f"    got = hvd.allreduce(many, name='large', op=hvd.Sum)\n"
        f"    assert got[-1] == hvd.size()\n"
        f"    n += 1\n"
        f"    if n % 10 == 3: print('at it', flush=True)\n"
        f"    if got[0] > 0: break\n",
        "--stall-check-warning-time-seconds",
        2,
        stderr=subprocess.STDOUT,
        ranks=3,
    )
    text = job.read_until("at it", times=3, timeout=120)
    assert "stall" not in text, text
    pid = int(re.search(rf"pid {victim} (\d+)", text)[1])
    reported = None
    for _ in range(10):  # it may happen to be between two operations
        os.kill(pid, signal.SIGSTOP)
        try:
            text = job.read_until(f"rank {victim} ", timeout=120) + job.read_until("\n")
        finally:
            os.kill(pid, signal.SIGCONT)
        reported = reported or re.search(rf"rank {victim} .*missing .*allreduce '\S*large'", text)
        if reported:
            break
        # Until it has run again, the next stop finds it where it was.
        text = job.read_until("at it", timeout=120)
    (tmp_path / "end").touch()
    job.finish().expect(0)
    assert reported, text


HELD_UP = """\
import os, signal, time
for _ in range(3): hvd.allreduce(np.ones(4), name='small')
pids = hvd.allgather(np.array([os.getpid()]), name='pids')
def is_stopped(pid):
    with open(f'/proc/{pid}/stat') as stat: return stat.read().rsplit(')', 1)[1].split()[0] == 'T'
try:
    if hvd.rank() == 0:
        while not is_stopped(pids[2]): time.sleep(0.01)
    else:
        late = hvd.allreduce_async(np.ones(4), name='another')
        small = hvd.allreduce_async(np.ones(4), name='small')  # not the only one: rank 0 is asked
        if hvd.rank() == 2:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGSTOP)
        hvd.synchronize(small)
    hvd.allreduce(np.ones(4), name='small')  # on rank 0 the only one, so the others are asked
except HorovodInternalError:
    sys.exit(4)
"""


def test_rank_0_is_not_missing_while_a_stopped_rank_holds_it_up(start):
    """That one has asked for all that rank 0 is waited for in, and does not answer now where rank 0 asks."""
    limits = ("--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 3)
    done = start(HELD_UP, *limits, ranks=3).finish().expect(4)
    assert re.search(r"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3:\n.* {2}rank 2 .*does not answer", done.messages), done


def test_a_stall_ends_the_job_when_asked_to(start):
    # Each waits for the other, for good.
    done = (
        start(
            "try:\n"
            "    hvd.allreduce(np.ones(4), name=f'of.{hvd.rank()}')\n"
            "except HorovodInternalError as failure:\n"
            "    print('FAILED', failure, flush=True)\n"
            "    sys.exit(4)\n",
            "--stall-check-warning-time-seconds",
            1,
            "--stall-check-shutdown-time-seconds",
            2,
        )
        .finish()
        .expect(4)
    )
    for rank in (0, 1):
        assert re.search(
            r"FAILED .*stalled for \d+ s, the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2",
            "\n".join(done.ranks()[rank]),
        ), done
    assert re.search(r"rank 0 is missing in allreduce '\S*of\.1'", done.messages), done
    assert re.search(r"rank 1 is missing in allreduce '\S*of\.0'", done.messages), done
