# SPDX-License-Identifier: Apache-2.0
"""Programs of mpi4py that give init() a part of MPI's world, and communicators to process sets."""

import re
import shutil
import subprocess

import pytest

from test_mpi import PYTHON, Mpirun

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI's mpirun"),
    pytest.mark.skipif(
        subprocess.run([PYTHON, "-c", "import mpi4py, numpy"], capture_output=True).returncode != 0,
        reason="the distribution's Python has no mpi4py (scripts/setup --interop)",
    ),
]


@pytest.fixture(params=["mpirun", "--mpi", "--pmix"])
def launch(request, build, shared, horarun):
    """launch(np, *words): the program's output."""
    program = f"{shared}/mpi_worlds.py"

    def run(np, *words, **variables):
        if request.param == "mpirun":
            done = Mpirun(build, shared).run("-np", np, PYTHON, program, *words, **variables)
            assert done.returncode == 0, done
            return done.stdout
        return (
            horarun.run("-np", np, "-H", f"localhost:{np}", request.param, PYTHON, program, *words, env=dict(variables))
            .expect(0)
            .text
        )

    return run


def lines_of(output, first):
    return sorted(re.findall(rf"{first} .*", output))


# Of rank r, 10**r: the sum shows who took part.
EVEN, ODD, ALL = 101, 1010, 1111


def test_halves_by_communicator(launch):
    assert lines_of(launch(4, "by_communicator"), "world") == [
        f"world 0 is 1 of 2 here 2 sum {EVEN}",
        f"world 1 is 1 of 2 here 2 sum {ODD}",
        f"world 2 is 0 of 2 here 2 sum {EVEN}",
        f"world 3 is 0 of 2 here 2 sum {ODD}",
    ]


def test_halves_by_ranks(launch):
    assert lines_of(launch(4, "by_ranks"), "world") == [
        f"world 0 is 0 of 2 here 2 sum {EVEN}",
        f"world 1 is 0 of 2 here 2 sum {ODD}",
        f"world 2 is 1 of 2 here 2 sum {EVEN}",
        f"world 3 is 1 of 2 here 2 sum {ODD}",
    ]


def test_one_of_them_alone(launch):
    assert lines_of(launch(2, "alone"), "world") == ["world 1 is 0 of 1 sum 10"]


@pytest.mark.parametrize("way", ["by_set", "added"])
def test_process_sets_of_a_split(launch, way):
    sets = [f"set {r} is {r // 2} of 2 sum {ODD if r % 2 else EVEN} all {ALL}" for r in range(4)]
    assert lines_of(launch(4, way), "set") == sets


def test_a_process_set_within_a_part(launch):
    assert lines_of(launch(4, "within"), "set") == [
        f"set 0 [0] False sum {EVEN}",
        f"set 1 [0] False sum {ODD}",
        f"set 2 [0] True sum {EVEN}",
        f"set 3 [0] True sum {ODD}",
    ]


def test_one_world_after_another(launch):
    assert lines_of(launch(2, "again"), "sums") == ["sums 0 1 11 1", "sums 1 10 11 10"]


def test_mpi_is_enabled(launch):
    assert lines_of(launch(2, "enabled"), "mpi") == ["mpi True threads True"] * 2


def test_mistakes_are_refused(launch):
    refused = lines_of(launch(2, "mistakes"), "refused")
    assert len(refused) == 10, refused
    assert any("init(comm=[99]): MPI's world has 2 ranks" in line for line in refused), refused
    assert any("init(comm=[1]): this process is rank 0, which the list leaves out" in line for line in refused)


def test_mpi_is_not_enabled_without_it(horarun):
    program = "import hora.numpy as hvd; hvd.init(); print('mpi', hvd.mpi_enabled())"
    done = horarun.run("-np", 2, PYTHON, "-c", program).expect(0)
    assert lines_of(done.text, "mpi") == ["mpi False"] * 2


def test_without_mpi_a_part_is_refused(horarun):
    program = "import hora.numpy as hvd; hvd.init(comm=[1])"
    done = horarun.run("-np", 2, PYTHON, "-c", program)
    assert done.code != 0 and "horarun --mpi or --pmix" in done.messages, done


def test_halves_on_two_hosts(horarun, hosts, shared):
    two = hosts(2)
    done = horarun.run(
        "-np", 4, "-H", two.spec(2), "--pmix", "--wdir", "/", PYTHON, f"{shared}/mpi_worlds.py", "by_communicator"
    ).expect(0)
    assert lines_of(done.text, "world") == [
        f"world 0 is 1 of 2 here 1 sum {EVEN}",
        f"world 1 is 1 of 2 here 1 sum {ODD}",
        f"world 2 is 0 of 2 here 1 sum {EVEN}",
        f"world 3 is 0 of 2 here 1 sum {ODD}",
    ]


def test_a_member_that_does_not_come_is_an_error_in_time(build, shared):
    program = (
        "import sys; from mpi4py import MPI; import hora.numpy as hvd\n"
        "comm = MPI.COMM_WORLD.Split(0, 0)\n"
        "part = comm.Create(comm.Get_group().Incl([0, 1]))\n"
        "if comm.Get_rank() == 0:\n"
        "    try: hvd.init(part)\n"
        "    except Exception as error: print('failed', error, flush=True)\n"
        "comm.Barrier()\n"
    )
    done = Mpirun(build, shared).run("-np", 3, PYTHON, "-c", program, HOROVOD_GLOO_TIMEOUT_SECONDS="2")
    assert "not all of the 2 processes of the communicator have called init in time" in done.stdout, done


def test_a_process_set_that_not_all_make_is_an_error_in_time(build, shared):
    program = (
        "from mpi4py import MPI; import hora.numpy as hvd\n"
        "comm = MPI.COMM_WORLD\n"
        "if comm.Get_rank() == 0:\n"
        "    try: hvd.init(comm, process_sets=[hvd.ProcessSet(comm)])\n"
        "    except Exception as error: print('failed', error, flush=True)\n"
        "comm.Barrier()\n"
    )
    done = Mpirun(build, shared).run("-np", 2, PYTHON, "-c", program, HOROVOD_GLOO_TIMEOUT_SECONDS="2")
    assert "not all of the 2 processes of the communicator's world have made their process sets" in done.stdout, done
