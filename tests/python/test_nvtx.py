# SPDX-License-Identifier: Apache-2.0
import pytest

from support import job
from support.check_jobs import finished_job, names_in

FILE = "nvtx.py"
TOOL = job.build_dir() / "tests" / "gpu_double" / "libnvtx.so.1"


def _job(off):
    if not TOOL.exists():
        pytest.skip(f"no {TOOL}: built without the headers of NVTX, which come with CUDA")
    return finished_job(
        (FILE,), 2, NVTX_INJECTION64_PATH=TOOL, HOROVOD_DISABLE_NVTX_RANGES=off, HOROVOD_TIMELINE="DYNAMIC"
    )


@pytest.mark.parametrize("check", names_in(FILE))
@pytest.mark.parametrize("off", [0, 1])
def test(off, check):
    _job(off).verify(check)


@pytest.mark.parametrize("off", [0, 1])
def test_job_ends_well(off):
    finished = _job(off).finished
    assert finished.code == 0 and not finished.timed_out, str(finished)
