# SPDX-License-Identifier: Apache-2.0
"""Python interpreters that have the frameworks whose checks are run.

HORA_TEST_VENV_TF, _TORCH and _MXNET name virtual environments (scripts/ci.d/test-frameworks makes them);
without one, the interpreter that runs the tests is asked. Where no interpreter has the
framework, the tests are skipped and say so.
"""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

from support import check_jobs, job

_VENV_OF = {
    "tensorflow": "HORA_TEST_VENV_TF",
    "keras": "HORA_TEST_VENV_TF",
    "tf_keras": "HORA_TEST_VENV_TF",
    "jax": "HORA_TEST_VENV_TF",
    "torch": "HORA_TEST_VENV_TORCH",
    "mxnet": "HORA_TEST_VENV_MXNET",
}

# Frameworks start many threads and print much; ranks share few cores here.
# Stacks are dumped shortly before the time-out only: dumping those of a rank that is at work may
# crash it.
VARIABLES = {
    "HORA_TEST_DUMP_AFTER": "385",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
}


@functools.lru_cache(maxsize=None)
def has_module(python, module):
    """Whether an interpreter can import a module; it is not imported for that."""
    return (
        subprocess.run(
            [python, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=job.environment(),
        ).returncode
        == 0
    )


def python_with(framework):
    """The path of an interpreter that has the framework; None when there is none."""
    venv = os.environ.get(_VENV_OF[framework])
    python = str(pathlib.Path(venv) / "bin" / "python") if venv else sys.executable
    return python if has_module(python, framework) else None


def needed_python(framework):
    """python_with(), or the test is skipped."""
    python = python_with(framework)
    if python is None:
        pytest.skip(
            f"{framework} is not installed; scripts/ci.d/test-frameworks installs it and sets {_VENV_OF[framework]}"
        )
    return python


def checks_with(framework, file, ranks=(1, 2, 4), timeout=400, **variables):
    """check_jobs.tests_of() with an interpreter that has the framework."""

    @pytest.mark.parametrize("check", check_jobs.names_in(file))
    @pytest.mark.parametrize("np", ranks)
    def test(np, check):
        _job(np).verify(check)

    @pytest.mark.parametrize("np", ranks)
    def test_job_ends_well(np):
        finished = _job(np).finished
        assert finished.code == 0 and not finished.timed_out, str(finished)

    def _job(np):
        return check_jobs.finished_job((file,), np, needed_python(framework), timeout, **{**VARIABLES, **variables})

    return test, test_job_ends_well
