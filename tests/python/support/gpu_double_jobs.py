# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks run on the doubles of CUDA and NCCL (tests/support/gpu_double)."""

import sys

import pytest

from support import job
from support.check_jobs import finished_job, names_in, rank_python
from support.frameworks import has_module

_DOUBLES = job.build_dir() / "tests" / "gpu_double"
_PLACES = pytest.mark.parametrize("np, devices", [(1, 1), (2, 1), (2, 2)])


def checks_on_doubles(file, framework=None):
    """A parametrised test function over all checks of the file, and one for the end of the job. Needs a Python with the
    framework, if one is named, and without CUDA: the libraries of another come before the doubles."""

    @pytest.mark.parametrize("check", names_in(file))
    @_PLACES
    def test(np, devices, check):
        _job(np, devices).verify(check)

    @_PLACES
    def test_job_ends_well(np, devices):
        finished = _job(np, devices).finished
        assert finished.code == 0 and not finished.timed_out, str(finished)

    def _job(np, devices):
        if not (_DOUBLES / "libcuda.so.1").exists():
            pytest.skip(f"no doubles of CUDA and NCCL in {_DOUBLES}: the nccl backend was not built")
        python = rank_python() or sys.executable
        if (framework and not has_module(python, framework)) or has_module(python, "nvidia"):
            pytest.skip(f"needs a {framework or 'Python'} without CUDA: its libraries come before the doubles")
        return finished_job((file,), np, LD_LIBRARY_PATH=_DOUBLES, HORA_DOUBLE_DEVICES=devices)

    return test, test_job_ends_well
