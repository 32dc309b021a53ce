# SPDX-License-Identifier: Apache-2.0
"""horarun is killed while its srun has just been started, by a stand-in for srun whose first act that is."""

import os

import pytest

import jobs

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n2", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_NTASKS": "2"}
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
KILLS = """\
#!/bin/sh
# The parent is the guard, whose parent is horarun.
while read -r key value; do [ "$key" != PPid: ] || kill -9 "$value"; done <"/proc/$PPID/status"
echo killed >"$STAND_IN_WORDS"
"""
WAYS = {
    "ends with its input": "exec cat",
    "hangs": "exec sleep 1000",
    "hangs, and ignores SIGTERM": "trap '' TERM; while :; do sleep 1000; done",
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left(horarun, tmp_path, way):
    (tmp_path / "srun").write_text(KILLS + WAYS[way])
    os.chmod(tmp_path / "srun", 0o755)
    words = tmp_path / "words"
    environment = {**ALLOCATION, "PATH": f"{tmp_path}:{PATH}", "STAND_IN_WORDS": str(words)}
    for _ in range(10 if way.startswith("ends") else 1):
        words.unlink(missing_ok=True)
        job = horarun.start("--grace", "0s", "true", env=environment)
        assert job.process.wait(timeout=60) == -9
        jobs.wait_until(words.exists, "the stand-in to have killed")
        # Five seconds to end by itself, eight after SIGTERM.
        jobs.wait_until(lambda job=job: not job.survivors(), "everything of the job to end", 60)
