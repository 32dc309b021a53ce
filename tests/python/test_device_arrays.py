# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from support import job
from support.check_jobs import finished_job, names_in, rank_python
from support.frameworks import has_module

FILE = "device_arrays_on_gpu_double.py"
DOUBLES = job.build_dir() / "tests" / "gpu_double"


def _job(np, devices):
    if not (DOUBLES / "libcuda.so.1").exists():
        pytest.skip(f"no doubles of CUDA and NCCL in {DOUBLES}: the nccl backend was not built")
    if has_module(rank_python() or sys.executable, "nvidia"):
        pytest.skip("needs a Python without CUDA: the libraries of another come before the doubles")
    return finished_job((FILE,), np, LD_LIBRARY_PATH=DOUBLES, HORA_DOUBLE_DEVICES=devices)


@pytest.mark.parametrize("check", names_in(FILE))
@pytest.mark.parametrize("np, devices", [(1, 1), (2, 1), (2, 2)])
def test(np, devices, check):
    _job(np, devices).verify(check)


@pytest.mark.parametrize("np, devices", [(1, 1), (2, 1), (2, 2)])
def test_job_ends_well(np, devices):
    finished = _job(np, devices).finished
    assert finished.code == 0 and not finished.timed_out, str(finished)
