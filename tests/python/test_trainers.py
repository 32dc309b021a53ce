# SPDX-License-Identifier: Apache-2.0
"""Scripts for trainers that start ranks by themselves, or find themselves started: horarun starts them as they are."""

import pathlib
import re

import pytest

from support import job
from support.frameworks import VARIABLES, has_module, needed_python

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def python_with(module, framework="torch"):
    python = needed_python(framework)
    if not has_module(python, module):
        pytest.skip(f"{module} is not installed; scripts/ci.d/test-frameworks {module}")
    return python


def trained(finished, ranks, is_line=True):
    """Every rank found the same weights: those of the line, where it looked for that."""
    assert finished.code == 0 and not finished.timed_out, str(finished)
    lines = re.findall(r"rank (\d+) of (\d+) found (\S+) loss (\S+)", finished.out)
    assert sorted(int(rank) for rank, _, _, _ in lines) == list(range(ranks)), str(finished)
    assert {int(size) for _, size, _, _ in lines} == {ranks}
    assert len({found for _, _, found, _ in lines}) == 1, str(finished)
    if not is_line:
        return
    assert [round(float(value), 2) for value in lines[0][2].split(",")] == [1, -2, 0.5, 3]
    assert float(lines[0][3]) < 1e-4


@pytest.mark.parametrize("np", [1, 2, 4])
def test_lightning_ddp(np, tmp_path):
    finished = job.run_python(
        np,
        PROGRAMS / "lightning_ddp.py",
        tmp_path,
        np,
        1,
        python=python_with("lightning"),
        timeout=300,
        **VARIABLES,
    )
    trained(finished, np)
    assert (tmp_path / "line.ckpt").stat().st_size > 0


def test_lightning_notices_another_number_of_ranks(tmp_path):
    """At once, by its own message, from a rank that horarun then names; it does not wait for a third rank."""
    finished = job.run_python(
        2, PROGRAMS / "lightning_ddp.py", tmp_path, 3, 1, python=python_with("lightning"), timeout=300, **VARIABLES
    )
    assert finished.code == 1 and not finished.timed_out, str(finished)
    assert "horarun: rank " in finished.err and "does not match the world size (2)" in finished.err, str(finished)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_accelerate_loop(np):
    finished = job.run_python(
        np, PROGRAMS / "accelerate_loop.py", python=python_with("accelerate"), timeout=300, **VARIABLES
    )
    trained(finished, np)


@pytest.mark.parametrize("np", [1, 2])
def test_ignite(np):
    python = python_with("ignite")
    python_with("torchmetrics")
    trained(job.run_python(np, PROGRAMS / "ignite_horovod.py", python=python, timeout=300, **VARIABLES), np)


def test_tensorpack():
    python = python_with("tensorpack", "tensorflow")
    trained(job.run_python(2, PROGRAMS / "tensorpack_horovod.py", python=python, timeout=300, **VARIABLES), 2)


def test_merlin():
    python = python_with("merlin", "tensorflow")
    finished = job.run_python(2, PROGRAMS / "merlin_horovod.py", python=python, timeout=400, **VARIABLES)
    trained(finished, 2, is_line=False)


def test_lightning_1():
    python = python_with("pytorch_lightning.strategies.horovod")
    trained(job.run_python(2, PROGRAMS / "lightning_horovod.py", python=python, timeout=300, **VARIABLES), 2)


@pytest.mark.parametrize("module", ["deepmd", "opennmt", "returnn"])
def test_programs_of_tensorflow(module, tmp_path):
    """They are started as they are; what each rank found comes from the end of their training."""
    python = python_with(module, "tensorflow")
    program = PROGRAMS / f"{module}_horovod.py"
    trained(job.run_python(2, program, tmp_path, python=python, timeout=400, **VARIABLES), 2, is_line=False)
