# SPDX-License-Identifier: Apache-2.0
"""--pmi pmi1: MPICH programs, and others that speak PMI-1, without mpiexec."""

import os
import pathlib
import shutil
import subprocess

import pytest

import mpich

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "mpi_sum.c"
PYTHON = "/usr/bin/python3"


@pytest.fixture
def program(shared):
    """Where all hosts see it."""
    if shutil.which("mpicc.mpich") is None:
        pytest.skip("no compiler of MPICH (libmpich-dev)")
    built = os.path.join(shared, "mpi_sum.mpich")
    if not os.path.exists(built):
        done = subprocess.run(["mpicc.mpich", "-o", built, str(SOURCE)], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            pytest.skip(f"the compiler of MPICH does not work (libmpich-dev): {done.stderr[-200:]}")
    return built


def lines(done):
    return sorted(line for rank in done.ranks().values() for line in rank)


def test_a_program_of_mpich_here(horarun, program):
    done = horarun.run("-np", 3, "--pmi", "pmi1", program).expect(0)
    assert lines(done) == [f"rank {rank} of 3, 3 here: sum 6" for rank in range(3)], done


def test_a_program_of_mpich_on_two_hosts(horarun, hosts, program):
    def check(done):
        assert lines(done) == [f"rank {rank} of 4, 2 here: sum 10" for rank in range(4)], done

    mpich.run(horarun, check, "-np", 4, "-H", hosts(2).spec(2), "--pmi", "pmi1", "--wdir", "/", program)


@pytest.mark.parametrize("way", ["exit", "abort"])
def test_a_failing_rank_ends_the_job_with_its_code(horarun, program, way):
    horarun.run("-np", 3, "--pmi", "pmi1", program, way).expect(7)


# The runtime's own client of PMI-1: as under another launcher, once Horovod's variables are gone.
SCRIPT = """\
import os
for name in [name for name in os.environ if name.startswith(("HOROVOD_", "HORA_RENDEZVOUS"))]:
    del os.environ[name]
import numpy as np
import hora.numpy as hvd
hvd.init()
total = hvd.allreduce(np.full(10, hvd.rank() + 1.0), op=hvd.Sum)
print("rank", hvd.rank(), "of", hvd.size(), "sum", total[9], flush=True)
"""


def test_ranks_of_the_runtime_meet_by_it(horarun, hosts, shared):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    two = hosts(2)
    pathlib.Path(shared, "pmi1.py").write_text(SCRIPT)
    done = horarun.run(
        "-np", 4, "-H", two.spec(2), "--pmi", "pmi1", "--wdir", "/", PYTHON, os.path.join(shared, "pmi1.py")
    ).expect(0)
    assert lines(done) == [f"rank {rank} of 4 sum 10.0" for rank in range(4)], done
