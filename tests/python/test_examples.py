# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/examples runs and prints the expected results."""

import subprocess
import sys

import pytest

from support import job
from support.expect import number_in

EXAMPLES = job.ROOT / "docs" / "examples"


def needs(*modules):
    for module in modules:
        pytest.importorskip(module)


def output_of(np, script, *arguments):
    finished = job.run_python(np, EXAMPLES / script, *arguments)
    assert finished.code == 0 and not finished.timed_out, str(finished)
    return finished.out


@pytest.mark.parametrize("np", [1, 2])
def test_torch_digits(np):
    needs("torch")
    out = output_of(np, "torch_digits.py", "--epochs", 3)
    assert number_in(r"epoch 3: ([\d.]+) % right", out) > 90, out


def test_torch_digits_with_compression():
    needs("torch")
    out = output_of(2, "torch_digits.py", "--epochs", 2, "--fp16-allreduce")
    assert number_in(r"epoch 2: ([\d.]+) % right", out) > 80, out


def test_torch_synthetic_benchmark():
    needs("torch")
    out = output_of(2, "torch_synthetic_benchmark.py", "--depth", 1, "--width", 8, "--num-iters", 1)
    assert number_in(r"([\d.]+) samples/s on each", out) > 0


def test_torch_ddp():
    needs("torch")
    assert number_in(r"weight is ([\d.]+)", output_of(2, "torch_ddp.py")) < 1e-3


def test_torch_elastic():
    needs("torch")
    out = output_of(2, "torch_elastic.py")
    assert "4 epochs" in out
    assert number_in(r"weight is ([\d.]+)", out) < 0.05


def test_torch_elastic_that_loses_a_rank():
    needs("torch")
    finished = job.run_python(
        2, EXAMPLES / "torch_elastic.py", "--lose", options=["--min-np", "1", "-H", "localhost:1,127.0.0.1:1"]
    )
    assert finished.code == 0 and not finished.timed_out, str(finished)
    assert "going on with 1 rank(s)" in finished.out and "4 epochs" in finished.out
    assert number_in(r"weight is ([\d.]+)", finished.out) < 0.05


def test_numpy_pi():
    needs("numpy")
    assert abs(number_in(r"about ([\d.]+)", output_of(2, "numpy_pi.py")) - 3.1416) < 0.02


def test_run_function():
    needs("numpy", "cloudpickle")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "run_function.py"],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "[60.0, 60.0, 60.0, 60.0]" in done.stdout
