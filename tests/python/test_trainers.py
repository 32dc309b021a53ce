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


def test_deepspeed_zero():
    """With its own launcher's variables, and its optimizer divided among the ranks. It compiles an extension first."""
    python = python_with("deepspeed")
    trained(job.run_python(2, PROGRAMS / "deepspeed_zero.py", python=python, timeout=600, **VARIABLES), 2)


def test_torchft():
    """Each rank is a replica group of its own; they meet by MASTER_ADDR and MASTER_PORT."""
    python = python_with("torchft")
    trained(job.run_python(2, PROGRAMS / "torchft_ddp.py", python=python, timeout=300, **VARIABLES), 2)


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


@pytest.mark.parametrize(("np", "options"), [(1, ()), (2, ()), (4, ()), (2, ("--rendezvous-tls",))])
def test_jax_distributed(np, options):
    """jax.distributed.initialize() without arguments; a GPU each where there are several ranks on a host."""
    python = needed_python("jax")
    program = PROGRAMS / "jax_distributed.py"
    finished = job.run_python(np, program, python=python, options=options, timeout=300, **VARIABLES)
    trained(finished, np)
    gpus = dict(re.findall(r"rank (\d+) of .* GPUs (\S+)", finished.out))
    assert gpus == ({"0": "all"} if np == 1 else {str(rank): str(rank) for rank in range(np)}), str(finished)


def test_jax_takes_the_gpus_of_gpus_per_rank():
    """Each rank sees two, so they are 0 and 1 for both; old releases take all."""
    program = PROGRAMS / "jax_distributed.py"
    variables = {**VARIABLES, "CUDA_VISIBLE_DEVICES": "3,4,5,6"}
    options = ("--gpus-per-rank", 2)
    finished = job.run_python(2, program, python=needed_python("jax"), options=options, timeout=300, **variables)
    trained(finished, 2)
    found = dict(re.findall(r"rank (\d+) of .* GPUs (\S+)", finished.out))
    assert found in ({"0": "0,1", "1": "0,1"}, {"0": "all", "1": "all"}), str(finished)


def test_jax_distributed_in_ranks_of_an_engine():
    command = [needed_python("jax"), PROGRAMS / "jax_on_engine.py"]
    finished = job.run_command(command, timeout=300, **VARIABLES)
    assert finished.code == 0, str(finished)
    assert finished.out == "rank 0 of 2, 2 devices\nrank 1 of 2, 2 devices\n", str(finished)


def test_jax_finds_no_world_in_an_elastic_job():
    program = PROGRAMS / "jax_distributed.py"
    finished = job.run_python(
        1, program, python=needed_python("jax"), options=("--min-np", 1), timeout=100, **VARIABLES
    )
    assert finished.code == 1 and "coordinator_address should be defined" in finished.err, str(finished)


def test_jax_without_rank_0():
    finished = job.run_python(
        2, PROGRAMS / "jax_distributed.py", 0, python=needed_python("jax"), timeout=100, **VARIABLES
    )
    assert finished.code == 1 and not finished.timed_out, str(finished)
    assert "rank 1: rank 0 has not called jax.distributed.initialize() within 2 s" in finished.err, str(finished)


def test_keras_distribution_on_jax():
    python_with("keras", "jax")
    program = PROGRAMS / "keras_distribution.py"
    trained(job.run_python(2, program, python=needed_python("jax"), timeout=300, **VARIABLES), 2)


@pytest.mark.parametrize(("kind", "tasks"), [("worker", ["worker 0", "worker 1"]), ("chief", ["chief 0", "worker 0"])])
def test_tensorflow_strategy(kind, tasks):
    """MultiWorkerMirroredStrategy, with the TF_CONFIG that --tf-config makes."""
    python, options = needed_python("tensorflow"), ("--tf-config", kind)
    finished = job.run_python(
        2, PROGRAMS / "tensorflow_strategy.py", python=python, options=options, timeout=300, **VARIABLES
    )
    trained(finished, 2)
    assert sorted(re.findall(r" as (\w+ \d)", finished.out)) == tasks, str(finished)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_mpi4py(np):
    """The wheel of mpi4py with the MPI library of the machine, without mpirun."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: scripts/ci.d/test-frameworks mpi4py")
    finished = job.run_python(np, PROGRAMS / "mpi4py_sum.py", options=("--pmix",), timeout=100, **VARIABLES)
    assert finished.code == 0 and not finished.timed_out, str(finished)
    total = float(sum(range(1, np + 1)))
    for rank in range(np):
        gathered = list(range(np)) if rank == 0 else None
        assert f"rank {rank} of {np} sums {[total] * 4} {gathered}" in finished.out, str(finished)
