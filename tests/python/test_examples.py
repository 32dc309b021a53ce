# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/examples runs and prints the expected results."""

import re
import shutil
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


def checkpointed(path, epochs, *options):
    """What docs/examples/torch_checkpoint.py prints: the first epoch of each attempt, and the error at the end."""
    finished = job.run_python(
        2, EXAMPLES / "torch_checkpoint.py", "--checkpoint", path, *epochs, options=list(options), timeout=200
    )
    assert not finished.timed_out, str(finished)
    begins = [int(epoch) for epoch in re.findall(r"attempt \d+: begins with epoch (\d+)", finished.out)]
    return finished, begins, re.findall(r"epochs: the largest error of a weight is ([\d.]+)", finished.out)


def test_torch_checkpoint_continues(tmp_path):
    """With the same result as in one piece: in a later job, and when a rank is killed or asked to end."""
    needs("torch")
    finished, _, whole = checkpointed(tmp_path / "whole", ["--epochs", 8, "--seconds", 0])
    assert finished.code == 0 and len(whole) == 1 and 0.001 < float(whole[0]) < 0.5, str(finished)
    checkpointed(tmp_path / "begun", ["--epochs", 2, "--seconds", 0])
    for fault in ("kill", "term"):
        path = shutil.copy(tmp_path / "begun", tmp_path / fault)
        # The six epochs that are left take 3 s and more.
        options = ["--restarts", "1", "--chaos", f"{fault}:1@2s"]
        finished, begins, result = checkpointed(path, ["--epochs", 8, "--seconds", 0.5], *options)
        assert finished.code == 0 and result == whole, str(finished)
        assert begins[0] == 3 and "restart 1 of 1" in finished.err, str(finished)


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
