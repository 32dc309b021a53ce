# SPDX-License-Identifier: Apache-2.0
"""--rankfile: the host and the cores of every rank."""

import os
import pathlib
import shutil
import subprocess

import pytest

import mpich

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "mpi_appnum.c"
PYTHON = "/usr/bin/python3"
PLACE = ("sh", "-c", 'echo "$HOROVOD_HOSTNAME $LOCAL_RANK $(sed -n "s/^Cpus_allowed_list:\\\\t//p" /proc/self/status)"')


@pytest.fixture
def rankfile(tmp_path):
    def write(text):
        (tmp_path / "ranks").write_text(text)
        return tmp_path / "ranks"

    return write


def cpus_of_first_core():
    with open("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list") as file:
        return file.read().strip()


def cpus_of_all():
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith("Cpus_allowed_list"))


def test_hosts_and_cores(horarun, hosts, rankfile):
    hosts(2)
    ranks = rankfile("rank 2=+n0\nrank 0=node2 slot=0:0   # comment\n\nrank 1=node1 slot=0\nrank 3=+n1 slot=*\n")
    done = horarun.run("-H", "node1:2,node2:2", "--rankfile", ranks, *PLACE).expect(0)
    one, every = cpus_of_first_core(), cpus_of_all()
    assert done.ranks() == {
        0: [f"node2 0 {one}"],
        1: [f"node1 0 {one}"],
        2: [f"node1 1 {every}"],
        3: [f"node2 1 {every}"],
    }, done
    # Without -H, the hosts are those of the file.
    done = horarun.run("-rf", rankfile("rank 1=node1\nrank 0=node2\n"), *PLACE).expect(0)
    assert done.ranks() == {0: [f"node2 0 {every}"], 1: [f"node1 0 {every}"]}, done


def test_collectives_and_programs(horarun, hosts, rankfile):
    pytest.importorskip("numpy", reason="the programs use hora.numpy")
    hosts(2)
    ranks = rankfile("rank 0=node2\nrank 1=node1\nrank 2=node1\nrank 3=node2\nrank 4=node1\n")
    script = (
        "import hora.numpy as hvd, numpy, sys; hvd.init(); "
        "print(sys.argv[1], hvd.allgather(numpy.array([hvd.rank()])).tolist(), "
        "hvd.allreduce(numpy.ones(1 << 16), op=hvd.Sum)[-1])"
    )
    program = (PYTHON, "-c", script)
    done = horarun.run("--rankfile", ranks, "-np", 2, *program, "a", ":", "-np", 3, *program, "b").expect(0)
    assert done.ranks() == {r: [f"{'a' if r < 2 else 'b'} [0, 1, 2, 3, 4] 5.0"] for r in range(5)}, done


@pytest.mark.parametrize(("pmi", "compiler"), [("pmix", "mpicc.openmpi"), ("pmi1", "mpicc.mpich")])
def test_mpi(horarun, hosts, build, shared, rankfile, pmi, compiler):
    hosts(2)
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    if not os.path.exists(os.path.join(build, f"share/hora/{os.uname().machine}/bundle/bin/hora-{pmi}")):
        pytest.skip(f"built without {pmi}")
    program = os.path.join(shared, f"mpi_appnum.{pmi}")
    subprocess.run([compiler, "-o", program, str(SOURCE)], check=True, timeout=120)
    ranks = rankfile("rank 0=node2\nrank 1=node1\nrank 2=node2\nrank 3=node1\n")
    words = ("--pmi", pmi, "--rankfile", ranks, program, "x")

    def check(done):
        assert done.ranks() == {r: [f"rank {r} of 4: program 0 x"] for r in range(4)}, done

    if pmi == "pmi1":
        mpich.run(horarun, check, *words)
    else:
        check(horarun.run(*words).expect(0))


def test_cores_that_are_not_there(horarun, rankfile):
    done = horarun.run("--rankfile", rankfile("rank 0=localhost slot=0:4000\n"), "true")
    assert done.code != 0
    assert "--rankfile: slot=0:4000: core 4000 is not there; this job may use" in done.messages, done
    assert "E_BIND" in done.messages, done


def test_mistakes_say_the_line(horarun, rankfile):
    ranks = rankfile("rank 0=localhost slot=0\nrank 1=localhost slot=zero\n")
    done = horarun.run("--rankfile", ranks, "true").expect(2)
    assert f"{ranks}:2:23: expected cores such as 0-3" in done.messages, done
