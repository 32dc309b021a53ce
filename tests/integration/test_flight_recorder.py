# SPDX-License-Identifier: Apache-2.0
"""The launcher reports what a rank did last, even if the rank was killed."""

import json
import re
import sys

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

HEAD = """\
import os, signal, sys
import numpy as np
import hora.numpy as hvd
hvd.init()
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(horarun, tmp_path):
    def start(body, *options):
        program = tmp_path / "program.py"
        program.write_text(HEAD + body)
        return horarun.run("-np", 2, *options, sys.executable, str(program))

    return start


def test_a_rank_that_waited_for_others(run):
    # Rank 0 learns of the barrier only after rank 1 has asked for something that the others do not request.
    done = run(
        "if hvd.rank() == 1:\n"
        "    handle = hvd.allreduce_async(np.ones(4), name='only.mine')\n"
        "hvd.barrier()\n"
        "if hvd.rank() == 1: die()\n"
        "hvd.barrier()\n"
    ).expect(137)
    assert re.search(r"rank 1 on \S+ was killed by SIGKILL\n", done.messages), done
    assert re.search(r"it had waited for other ranks in allreduce '\S*only\.mine' for \d+\.\d+ s\n", done.messages), (
        done
    )


def test_the_rank_that_left_first_is_named(horarun, tmp_path):
    """Its interpreter tidies up until the other, which fails because of it, has ended."""
    program = tmp_path / "program.py"
    program.write_text(
        "import atexit, os, sys, time\n"
        "def tidy_up():\n"
        "    while hvd_rank == 1 and os.path.exists(f'/proc/{other}'): time.sleep(0.01)\n"
        "atexit.register(tidy_up)\n"
        "import hora.numpy as hvd\n"
        "hvd.init()\n"
        "hvd_rank = hvd.rank()\n"
        "other = int(hvd.allgather([os.getpid()])[0])\n"
        "if hvd_rank == 1: sys.exit(3)\n"
        "hvd.barrier()\n"
    )
    done = horarun.run("-np", 2, sys.executable, str(program)).expect(3)
    assert re.search(r"rank 1 on \S+ exited with code 3\n", done.messages), done
    assert "exit code 3: rank 1; rank 0 failed because of it" in done.messages, done


def test_a_rank_that_left_and_goes_on_is_ended_with_the_others(run):
    done = run(
        "if hvd.rank() == 1:\n"
        "    hvd.shutdown()\n"
        "    signal.pause()\n"
        "try: hvd.barrier()\n"
        "except hvd.HorovodInternalError: os._exit(7)\n"
    ).expect(7)
    assert re.search(r"rank 0 on \S+ exited with code 7\n", done.messages), done
    assert "1 rank was terminated" in done.messages, done


def test_a_rank_between_collectives(run):
    done = run(
        "hvd.allreduce(np.ones(4), name='the.last')\n"
        "if hvd.rank() == 1: sys.exit(3)\n"
        "try: hvd.barrier()\n"
        "except hvd.HorovodInternalError: signal.pause()\n"
    ).expect(3)  # else either may end first
    # The interpreter's end has left the world in good order: there is nothing to report.
    assert "the.last" not in done.messages, done
    done = run(
        "hvd.allreduce(np.ones(4), name='the.last')\nif hvd.rank() == 1: die()\nhvd.barrier()\n", "--json"
    ).expect(137)
    events = [json.loads(line) for line in done.messages.splitlines() if line.startswith("{")]
    reported = {event["rank"]: event["last_operation"] for event in events if event["event"] == "rank_exit"}
    assert re.fullmatch(
        r"was in no collective; its last, allreduce '\S*the\.last', had ended \d+\.\d+ s before", reported[1]
    ), done


def test_a_rank_that_never_joined(run, horarun):
    done = horarun.run("-np", 1, "sh", "-c", "kill -9 $$").expect(137)
    assert "collective" not in done.messages and "\n  it was" not in done.messages, done
