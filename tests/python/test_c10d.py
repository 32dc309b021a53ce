# SPDX-License-Identifier: Apache-2.0
"""The backend "hora" of torch.distributed. Programs that do not import hora find it under horarun."""

import os
import subprocess
import sys

import pytest

from support import job
from support.check_jobs import checks_as_tests, rank_python

PYTHON = rank_python() or sys.executable


def release():
    """PyTorch's, of the Python that runs the ranks; empty without it."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False)
    return tuple(int(part) for part in found.stdout.split("+")[0].split(".")[:2]) if found.returncode == 0 else ()


RELEASE = release() if os.path.exists(PYTHON) else ()
needs_2_1 = pytest.mark.skipif(RELEASE < (2, 1), reason="needs PyTorch 2.1 or later")

test_c10d, test_c10d_job_ends_well = map(needs_2_1, checks_as_tests("torch_c10d.py", ranks=(1, 2, 4), timeout=400))


def run(code, tmp_path, *options):
    script = tmp_path / "script.py"
    script.write_text(code)
    return job.run_python(2, script, python=PYTHON, options=options)


@needs_2_1
def test_c10d_in_a_program_that_says_gloo(tmp_path):
    code = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(2)
dist.all_reduce(tensor)
print(dist.get_backend(), tensor.tolist())
"""
    finished = run(code, tmp_path)
    assert finished.code == 0 and finished.out.count("gloo [2.0, 2.0]") == 2, str(finished)
    finished = run(code, tmp_path, "--torch-backend", "hora")
    assert finished.code == 0 and finished.out.count("hora [2.0, 2.0]") == 2, str(finished)


@pytest.mark.skipif(not () < RELEASE < (2, 0), reason="needs PyTorch before 2.0")
def test_c10d_of_releases_that_are_too_old(tmp_path):
    finished = run('import torch.distributed as dist\ndist.init_process_group("hora")\n', tmp_path)
    assert finished.code == 1 and 'the backend "hora" needs PyTorch 2.1 or later; this is 1.' in finished.err, str(
        finished
    )
