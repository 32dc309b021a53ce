# SPDX-License-Identifier: Apache-2.0
"""--pmix: unmodified Open MPI programs without mpirun."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "mpi_sum.c"
# What Open MPI, PMIx and the job's own folder are called.
OURS = re.compile(r"pmix|ompi|vader_segment|hora-job", re.I)

pytestmark = pytest.mark.skipif(
    shutil.which("mpicc.openmpi") is None, reason="no compiler of Open MPI (libopenmpi-dev)"
)


@pytest.fixture
def program(build, shared):
    """Where all hosts see it."""
    if not os.path.exists(os.path.join(build, f"share/hora/{os.uname().machine}/bundle/bin/hora-pmix")):
        pytest.skip("built without PMIx")
    built = os.path.join(shared, "mpi_sum")
    if not os.path.exists(built):
        subprocess.run(["mpicc.openmpi", "-o", built, str(SOURCE)], check=True, timeout=120)
    return built


def files(names):
    return sorted(name for name in names if OURS.search(name))


def files_here():
    return files([*os.listdir("/tmp"), *os.listdir("/dev/shm")])


def files_on(two, number):
    return files(two.execute(number, "ls", "/tmp", "/dev/shm").split())


def lines(done):
    return sorted(line for rank in done.ranks().values() for line in rank)


def test_here(horarun, program):
    before = files_here()
    done = horarun.run("-np", 3, "--pmix", program).expect(0)
    assert lines(done) == [f"rank {rank} of 3, 3 here: sum 6" for rank in range(3)], done
    assert files_here() == before


UNEVEN = """\
import ctypes, os
single, multiple = 0, 3
level = single if os.environ['HOROVOD_RANK'] == '1' else multiple
ctypes.CDLL('libmpi.so.40', ctypes.RTLD_GLOBAL).MPI_Init_thread(None, None, level, ctypes.byref(ctypes.c_int()))
import numpy, hora
import hora.numpy as hvd
hvd.init()
total = hvd.allreduce(numpy.full(10, hvd.rank() + 1.0), op=hvd.Sum)
used = [each['id'] for each in hora.basics.describe()['backends'] if each['enabled']]
os.write(1, f'sum {total[9]} by {used}\\n'.encode())
"""


def test_mpi_that_one_rank_cannot_use_is_left_out_on_all(horarun, program, tmp_path):
    """The others do not wait for it within MPI."""
    script = tmp_path / "uneven.py"
    script.write_text(UNEVEN)
    done = horarun.run("-np", 3, "--pmix", "/usr/bin/python3", script, env={"HORA_BACKENDS": "mpi,gloo"}).expect(0)
    assert lines(done) == ["sum 6.0 by ['gloo']"] * 3, done
    alone = horarun.run("-np", 3, "--pmix", "/usr/bin/python3", script, env={"HORA_BACKENDS": "mpi"}).expect(1)
    for rank in range(3):
        reported = "\n".join(alone.ranks("stderr")[rank])
        assert "no backend in use can run allreduce of float64" in reported, alone
        assert "mpi was left out: rank 1: " in reported, alone


def test_two_hosts_with_a_decoy_network(horarun, hosts, program):
    """The network that leads nowhere, on which Open MPI hangs by itself, is not used."""
    two = hosts(2, nets=2, decoy=True)
    done = horarun.run("-np", 4, "-H", two.spec(2), "--pmix", "--wdir", "/", program).expect(0)
    assert lines(done) == [f"rank {rank} of 4, 2 here: sum 10" for rank in range(4)], done
    assert [files_on(two, 1), files_on(two, 2)] == [[], []]


@pytest.mark.parametrize("way", ["exit", "abort"])
def test_a_failing_rank_ends_the_job_with_its_code(horarun, program, way):
    before = files_here()
    done = horarun.run("-np", 3, "--pmix", program, way).expect(7)
    assert "rank 1 on localhost exited with code 7" in done.messages, done
    assert files_here() == before


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s until {what}"
        time.sleep(0.05)


def test_nothing_is_left_when_the_launcher_is_killed(horarun, hosts, program):
    two = hosts(2, nets=2, decoy=True)
    job = horarun.start("-np", 4, "-H", two.spec(2), "--pmix", "--wdir", "/", program, "wait")
    job.read_until("sum 10", times=4)
    assert len(two.processes(1, "hora-pmix")) == 1
    job.send_signal(signal.SIGKILL)
    job.finish()
    for number in (1, 2):
        wait_until(
            lambda: not files_on(two, number) and not two.processes(number, "hora-pmix"),
            f"host {number} is clean: {files_on(two, number)}",
        )


def test_a_server_that_is_killed_ends_the_job(horarun, hosts, program):
    two = hosts(2, nets=2, decoy=True)
    job = horarun.start("-np", 4, "-H", two.spec(2), "--pmix", "--wdir", "/", program, "wait")
    job.read_until("sum 10", times=4)
    for pid in two.processes(2, "hora-pmix"):
        os.kill(pid, signal.SIGKILL)
    done = job.finish().expect(125)
    assert re.search(
        r"host node2: hora-pmix, which serves PMI to the ranks: it was killed by signal 9 \[E_PMI\]", done.messages
    ), done
    for number in (1, 2):
        # Open MPI's shared memory is the server's to remove.
        wait_until(
            lambda: not [name for name in files_on(two, number) if "vader_segment" not in name or number == 1],
            f"host {number} is clean",
        )
    two.execute(2, "sh", "-c", "rm -f /dev/shm/vader_segment.*")


def test_a_host_without_the_library(horarun, hosts, program):
    two = hosts(2, nets=2, decoy=True)
    library = next(
        line.split(" => ")[1]
        for line in subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if "libpmix.so.2 " in line
    )
    folder = os.path.dirname(os.path.realpath(library))
    if folder == os.path.dirname(os.path.realpath(shutil.which("true"))) or os.path.exists(folder + "/libc.so.6"):
        pytest.skip("the library cannot be hidden without others")
    two.execute(2, "mount", "-t", "tmpfs", "none", folder)  # of this host alone
    try:
        done = horarun.run(
            "-np", 2, "-H", two.spec(1), "--pmix", "--wdir", "/", program, env={"HORA_MPI": "site"}
        ).expect(125)
        sent = horarun.run("-np", 2, "-H", two.spec(1), "--pmix", "--wdir", "/", program).expect(0)
    finally:
        two.execute(2, "umount", folder)
    assert len(re.findall(r"E_LIBRARY\b", done.messages)) == 1 and "host node2" in done.messages, done
    assert "libpmix.so.2" in done.messages and "libpmix2" in done.messages, done
    assert lines(sent) == [f"rank {rank} of 2, 1 here: sum 3" for rank in range(2)], sent
    assert [files_on(two, 1), files_on(two, 2)] == [[], []]


@pytest.fixture
def spawning(program, shared):
    built = os.path.join(shared, "mpi_spawn")
    if not os.path.exists(built):
        subprocess.run(["mpicc.openmpi", "-o", built, str(SOURCE.with_name("mpi_spawn.c"))], check=True, timeout=120)
    return built


ADVICE = r"rank 0 asked for /bin/true to be started \(MPI_Comm_spawn\), which --pmix does not serve: .*horarun --mpi"


def test_spawning_is_refused_and_a_single_rank_may_go_on(horarun, spawning):
    done = horarun.run("-np", 1, "--pmix", spawning, "return").expect(0)
    assert lines(done) == ["refused: MPI_ERR_SPAWN: could not spawn processes"], done
    assert len(re.findall(ADVICE, done.messages)) == 1, done


@pytest.mark.parametrize("way", ["return", "end"])
def test_spawning_ends_a_job_whose_other_ranks_would_wait_for_ever(horarun, spawning, way):
    before = files_here()
    done = horarun.run("-np", 3, "--pmix", spawning, way).expect(50)
    assert len(re.findall(ADVICE, done.messages)) == 1, done
    assert "rank 0 on localhost exited with code 50" in done.messages, done
    assert files_here() == before


def test_the_name_of_a_program_to_be_started_may_be_long(horarun, spawning):
    done = horarun.run("-np", 1, "--pmix", spawning, "return", "/" + "x" * 3000).expect(0)
    assert lines(done) == ["refused: MPI_ERR_SPAWN: could not spawn processes"], done
    assert "rank 0 asked for /" + "x" * 199 + "... to be started (MPI_Comm_spawn)" in done.messages, done


PYTHON_RANK = """\
import numpy as np, hora, hora.numpy as hvd
hvd.init()
total = hvd.allreduce(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum)
used = [backend["id"] for backend in hora.basics.describe()["backends"] if backend["enabled"]]
print("sum", total[999], *used, flush=True)
"""


def test_mpi_moves_our_own_tensors(horarun, program, tmp_path):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "rank.py").write_text(PYTHON_RANK)
    done = horarun.run("-np", 2, "--pmix", "--cpu-operations", "mpi", sys.executable, str(tmp_path / "rank.py")).expect(
        0
    )
    assert lines(done) == ["sum 3.0 mpi"] * 2, done


def test_what_excludes_it(horarun, program):
    done = horarun.run("-np", 2, "--pmix", "--mpi", program).expect(2)
    assert "cannot be used together" in done.messages
    done = horarun.run("-np", 2, "--pmix", "--runtime", "host", program).expect(2)
    assert "--runtime host does not bring" in done.messages
