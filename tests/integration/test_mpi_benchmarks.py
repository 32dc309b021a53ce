# SPDX-License-Identifier: Apache-2.0
"""MPI's own benchmarks, as they come from the distribution and from PyPI, without mpirun: those of mpi4py, NetPIPE and
the HPC Challenge. docs/reference/mpi.md has the table."""

import glob
import os
import re
import shutil
import subprocess

import pytest

import mpich

PYTHON = "/usr/bin/python3"
REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HPCC_INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
FOUR = 4


def has_mpi4py():
    return subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True).returncode == 0


class Mpi4py:
    """mpi4py over one kind of MPI."""

    def __init__(self, option, library, environment, newest):
        self.option, self.library, self.environment, self.newest = option, library, environment, newest

    def bench(self, horarun, check, two, np, *words):
        command = [PYTHON, "-m", "mpi4py.bench", *words]
        words = ("-np", np, "-H", two.spec(np // 2), *self.option, "--wdir", "/", *command)
        if self.library == "MPICH":
            mpich.run(horarun, check, *words, env=self.environment)
        else:
            check(horarun.run(*words, env=self.environment).expect(0))


@pytest.fixture(params=["distribution", "openmpi", "mpich"])
def mpi4py(request, shared):
    if request.param == "distribution":
        if not has_mpi4py():
            pytest.skip("no python3-mpi4py (scripts/setup --interop)")
        return Mpi4py(["--pmix"], "Open MPI", {}, newest=False)
    # A wheel of mpi4py 4 has no MPI in it: it opens the one that MPI4PY_MPIABI names, so it can use MPICH, too.
    wheel = os.path.join(REPOSITORY, "build", "mpi4py")
    if not os.path.isdir(wheel):
        pytest.skip("no mpi4py 4 in build/mpi4py (scripts/setup --interop)")
    packages = os.path.join(shared, "mpi4py-wheel")
    if not os.path.isdir(packages):
        shutil.copytree(wheel, packages)
    environment = {"PYTHONPATH": packages, "MPI4PY_MPIABI": request.param}
    if request.param == "openmpi":
        return Mpi4py(["--pmix"], "Open MPI", environment, newest=True)
    found = glob.glob("/usr/lib/*/libmpich.so.12")
    if not found:
        pytest.skip("no MPICH (libmpich12)")
    # Debian calls it libmpich.so.12, all others libmpi.so.12.
    link = os.path.join(packages, "mpich", "libmpi.so.12")
    if not os.path.islink(link):
        os.makedirs(os.path.dirname(link))
        os.symlink(found[0], link)
    environment["LD_LIBRARY_PATH"] = os.path.dirname(link)
    return Mpi4py(["--pmi", "pmi1"], "MPICH", environment, newest=True)


def test_hello_world(horarun, hosts, mpi4py):
    def check(done):
        said = sorted(re.findall(r"Hello, World! I am process (\d) of (\d) on (\S+)\.", done.text))
        assert said == [(str(rank), "4", f"node{rank // 2 + 1}") for rank in range(FOUR)], done

    mpi4py.bench(horarun, check, hosts(2), FOUR, "helloworld")


def test_ring(horarun, hosts, mpi4py):
    def check(done):
        assert re.search(r"= [\d.e-]+ seconds \(4 processes, 1000 bytes\)", done.text), done

    mpi4py.bench(horarun, check, hosts(2), FOUR, "ringtest", "-n", "1000")


def test_ping_pong(horarun, hosts, mpi4py):
    if not mpi4py.newest:
        pytest.skip("mpi4py 3 has no pingpong")

    def check(done):
        sizes = [int(size) for size in re.findall(r"^\[0\]<stdout>: *(\d+) +[\d.]+ \|", done.text, re.M)]
        assert sizes[-1] == 65536 and len(sizes) > 10, done

    mpi4py.bench(horarun, check, hosts(2), 2, "pingpong", "-n", "65536", "-s", "1", "-l", "20")


@pytest.mark.skipif(shutil.which("NPmpich2") is None, reason="no NetPIPE (netpipe-mpich2, by scripts/setup --interop)")
def test_netpipe(horarun, hosts, shared):
    """Messages of all sizes up to 48 KiB between two hosts; with -i, it checks what arrives."""

    def check(done):
        sizes = [int(size) for size in re.findall(r"(\d+) bytes +\d+ times --> +Integrity check passed", done.messages)]
        assert sizes == sorted(sizes) and len(sizes) > 20 and sizes[-1] > 48_000, done

    words = ("NPmpich2", "-i", "-n", 3, "-u", 65536, "-o", os.path.join(shared, "netpipe.out"))
    mpich.run(horarun, check, "-np", 2, "-H", hosts(2).spec(1), "--pmi", "pmi1", "--wdir", "/", *words)


@pytest.mark.skipif(shutil.which("hpcc") is None, reason="no HPC Challenge (hpcc, by scripts/setup --interop)")
def test_hpc_challenge(horarun, hosts, shared):
    """It checks its own results: linear equations, transposition, random access, FFT, latency and bandwidth."""
    two = hosts(2)
    folder = os.path.join(shared, "hpcc")
    os.mkdir(folder)
    with open(HPCC_INPUT) as file:
        text = re.sub(r"^\d+( +Ns)$", r"100\1", file.read(), flags=re.M)
    with open(os.path.join(folder, "hpccinf.txt"), "w") as file:
        file.write(text)
    horarun.run("-np", FOUR, "-H", two.spec(2), "--pmix", "--wdir", folder, "hpcc", timeout=600).expect(0)
    with open(os.path.join(folder, "hpccoutf.txt")) as file:
        results = file.read()
    assert re.search(r"^Success=1$", results, re.M), results
    assert re.search(r"^CommWorldProcs=4$", results, re.M), results
