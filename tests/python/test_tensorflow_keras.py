# SPDX-License-Identifier: Apache-2.0
import pytest

from support import check_jobs
from support.frameworks import VARIABLES, needed_python

FILE = "tensorflow_keras.py"
GENERATIONS = {"keras3": ("keras", "0"), "keras2": ("tf_keras", "1")}


def _job(generation, np):
    needed_python("tensorflow")
    package, legacy = GENERATIONS[generation]
    return check_jobs.finished_job((FILE,), np, needed_python(package), 400, **VARIABLES, TF_USE_LEGACY_KERAS=legacy)


@pytest.mark.parametrize("check", check_jobs.names_in(FILE))
@pytest.mark.parametrize("np", (1, 2))
@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test(generation, np, check):
    _job(generation, np).verify(check)


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_job_ends_well(generation):
    finished = _job(generation, 2).finished
    assert finished.code == 0 and not finished.timed_out, str(finished)
