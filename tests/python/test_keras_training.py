# SPDX-License-Identifier: Apache-2.0
import pytest

from support import check_jobs
from support.frameworks import VARIABLES, has_module, needed_python

FILE = "keras_training.py"


def _job(backend, np):
    python = needed_python(backend)
    if not has_module(python, "keras"):
        pytest.skip(f"Keras is not installed with {backend}; scripts/ci.d/test-frameworks does that")
    return check_jobs.finished_job((FILE,), np, python, 400, **VARIABLES, KERAS_BACKEND=backend)


@pytest.mark.parametrize("check", check_jobs.names_in(FILE))
@pytest.mark.parametrize("backend,np", [("tensorflow", 1), ("tensorflow", 2), ("jax", 2), ("torch", 2)])
def test(backend, np, check):
    _job(backend, np).verify(check)


@pytest.mark.parametrize("backend,np", [("tensorflow", 2), ("jax", 2), ("torch", 2)])
def test_job_ends_well(backend, np):
    finished = _job(backend, np).finished
    assert finished.code == 0 and not finished.timed_out, str(finished)
