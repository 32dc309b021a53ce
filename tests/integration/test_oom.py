# SPDX-License-Identifier: Apache-2.0
"""The kernel's out-of-memory killer, in a memory cgroup of the test's own: it ends a rank, or the launcher."""

import os
import signal
import uuid

import pytest

import jobs

PYTHON = "/usr/bin/python3"
LIMIT = 200 << 20
# Waits until it is asked to take more than there is.
GREEDY = """import os, sys, time
print('ready', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
taken = [bytearray(20 << 20) for _ in range(100)]
"""


class Cgroup:
    def __init__(self):
        name = f"hora-test-oom-{uuid.uuid4().hex[:8]}"
        for root, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            self.path = f"{root}/{name}"
            if not os.path.exists(f"{root}/cgroup.procs"):
                continue  # no cgroup at all
            try:
                os.mkdir(self.path)
                with open(f"{self.path}/{limit}", "r+", encoding="utf-8") as file:
                    file.write(str(LIMIT))
                return
            except OSError:
                if os.path.exists(self.path):
                    os.rmdir(self.path)
        pytest.skip("no memory cgroup can be made here")

    def join(self):
        with open(f"{self.path}/cgroup.procs", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    def remove(self):
        def empty():
            with open(f"{self.path}/cgroup.procs", encoding="utf-8") as file:
                return not file.read()

        jobs.wait_until(empty, "the cgroup to be empty")
        os.rmdir(self.path)


@pytest.mark.parametrize("victim", ["rank", "launcher"])
def test_out_of_memory(horarun, shared, victim):
    cgroup = Cgroup()
    greed = f"{shared}/greed.{uuid.uuid4().hex[:8]}"
    job = horarun.start(
        "-np", 1, "--lease", "6s", "--grace", "1s", PYTHON, "-S", "-c", GREEDY, greed, preexec_fn=cgroup.join
    )
    job.read_until("ready")
    if victim == "launcher":
        with open(f"/proc/{job.pid}/oom_score_adj", "w", encoding="utf-8") as file:
            file.write("1000")
    with open(greed, "w", encoding="utf-8"):
        pass
    finished = job.finish()
    if victim == "rank":
        assert finished.code == 137 and "out-of-memory killer" in finished.messages, str(finished)
    else:
        assert finished.code == -signal.SIGKILL, str(finished)
    jobs.expect_nothing_left(job, 30)
    cgroup.remove()
