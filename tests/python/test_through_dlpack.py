# SPDX-License-Identifier: Apache-2.0
"""The checks of TensorFlow and JAX on the way that tensors in GPU memory take."""

import pytest

from support import check_jobs
from support.frameworks import VARIABLES, needed_python

FILES = {
    "tensorflow": ("tensorflow_through_dlpack.py", "tensorflow_ops.py", "tensorflow_gradients.py"),
    "jax": ("jax_through_dlpack.py", "jax_face.py"),
}


def _job(framework, np):
    return check_jobs.finished_job(FILES[framework], np, needed_python(framework), 400, **VARIABLES)


@pytest.mark.parametrize(
    "framework, check", [(each, name) for each in FILES for name in check_jobs.names_in(*FILES[each])]
)
@pytest.mark.parametrize("np", [1, 2])
def test(np, framework, check):
    _job(framework, np).verify(check)


@pytest.mark.parametrize("framework", FILES)
@pytest.mark.parametrize("np", [1, 2])
def test_job_ends_well(np, framework):
    finished = _job(framework, np).finished
    assert finished.code == 0 and not finished.timed_out, str(finished)
