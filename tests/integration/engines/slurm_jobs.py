# SPDX-License-Identifier: Apache-2.0
"""Jobs inside an allocation of Slurm."""

import time

import jobs

# Slurm keeps a step for some seconds when its srun was killed. How long on an idle machine, the part `leaving` of
# tests/benchmark/engines/run measures.
CLEAN_S = 30


def expect_clean(job, held, since):
    """No process, step or cgroup of the job is left some time after its end began."""
    left = []

    def is_clean():
        left[:] = [*job.survivors(), *jobs.agents(), *held.steps(), *held.cgroups()]
        return not left

    try:
        jobs.wait_until(is_clean, "everything of the job to end", since + CLEAN_S - time.monotonic())
    except AssertionError:
        raise AssertionError(f"left after {CLEAN_S} s: {left}") from None


def start(horarun, allocation, *arguments, **options):
    return horarun.start(*arguments, env=allocation.variables, **options)
