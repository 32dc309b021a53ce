# SPDX-License-Identifier: Apache-2.0
"""Ranks that an MPI launcher starts: a plain mpirun without horarun."""

import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest

import jobs
from test_leaders import LONG, OPERATIONS

PYTHON = "/usr/bin/python3"
DEADLINE_S = 90

pytestmark = pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI's mpirun")


class Mpirun:
    def __init__(self, build, shared):
        self.bundle = os.path.join(shared, "bundle")
        if not os.path.isdir(self.bundle):  # where all hosts see it
            shutil.copytree(os.path.join(build, "share", "hora", os.uname().machine, "bundle"), self.bundle)
        self.script = os.path.join(shared, "mpi_ranks.py")

    def run(self, *arguments, **variables):
        return subprocess.run(timeout=DEADLINE_S, text=True, **self.of(arguments, variables))

    def start(self, *arguments, **variables):
        of = self.of(arguments, variables)
        return jobs.Running(of.pop("args"), of.pop("env"), of.pop("cwd"), "", **of)

    def of(self, arguments, variables):
        environment = {
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PYTHONPATH": self.bundle + "/python",
            **variables,
        }
        return {
            "args": ["mpirun.openmpi", "--oversubscribe", *map(str, arguments)],
            "env": environment,
            "cwd": "/",
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }


@pytest.fixture
def mpirun(build, shared):
    return Mpirun(build, shared)


def test_script_under_plain_mpirun(mpirun):
    done = mpirun.run("-np", 3, PYTHON, mpirun.script)
    assert done.returncode == 0, done
    assert sorted(re.findall(r"place .*", done.stdout)) == [f"place {r} 3 {r} 3 0 1" for r in range(3)]
    assert done.stdout.count("sum 6.0") == 3, done


def test_mpi_moves_the_tensors_when_asked(mpirun):
    done = mpirun.run("-np", 2, PYTHON, mpirun.script, HOROVOD_CPU_OPERATIONS="MPI")
    assert done.returncode == 0, done
    assert done.stdout.count("sum 3.0 mpi\n") == 2, done


def test_program_of_libhora_under_plain_mpirun(mpirun):
    done = mpirun.run("-np", 2, mpirun.bundle + "/bin/hora-smoke", HORA_BACKENDS="mpi")
    assert done.returncode == 0, done


def test_one_process_is_a_world_of_one(mpirun):
    done = mpirun.run("-np", 1, PYTHON, mpirun.script)
    assert done.returncode == 0 and "sum 1.0 self" in done.stdout, done


@pytest.mark.parametrize("way, code", [("exit", 7), ("kill", 137)])
def test_a_lost_rank_ends_the_job(mpirun, way, code):
    done = mpirun.run("-np", 3, PYTHON, mpirun.script, way, HOROVOD_CPU_OPERATIONS="mpi")
    assert done.returncode == code, done


LOSING = """\
import os
import numpy as np
import hora.numpy as hvd
from hora.exceptions import HorovodInternalError
hvd.init()
def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())
large = np.ones(3_000_000, dtype=np.float32)
say('PID', hvd.rank(), os.getpid(), '.')
try:
    while True:
        {operation}
except HorovodInternalError as error:
    say('LOST', hvd.rank(), *str(error).split(), 'END')
"""
LOSSES = [
    pytest.param(way, operation, marks=[] if (way, operation) == ("KILL", "allreduce") else LONG)
    for way in ("KILL", "STOP")
    for operation, call in OPERATIONS.items()
    if "step(" not in call  # a function of the program there
]


@pytest.mark.parametrize("way, operation", LOSSES)
def test_a_lost_rank_is_an_error_on_the_others_that_names_it(mpirun, tmp_path, way, operation):
    """Where mpirun lets them live: by itself it ends them within a second."""
    script = tmp_path / "losing.py"
    script.write_text(LOSING.replace("{operation}", OPERATIONS[operation]))
    job = mpirun.start(
        "--enable-recovery",
        "-np",
        3,
        PYTHON,
        script,
        HOROVOD_CPU_OPERATIONS="mpi",
        HOROVOD_STALL_CHECK_TIME_SECONDS="3",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="3",
    )
    victim = int(re.search(r"PID 2 (\d+) ", job.read_until(" .\n", 3))[1])
    try:
        os.kill(victim, signal.Signals["SIG" + way])
        seen = job.read_until("END", 2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        job.finish()
    reported = dict(re.findall(r"LOST (\d) (.*)", seen))
    assert sorted(reported) == ["0", "1"] and all("rank 2 (" in text for text in reported.values()), seen


def test_mpi_asked_for_without_a_launcher(mpirun):
    environment = {
        **os.environ,
        "PYTHONPATH": mpirun.bundle + "/python",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "2",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
    }
    done = subprocess.run([PYTHON, mpirun.script], env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode != 0
    assert "HOROVOD_CPU_OPERATIONS=mpi, but MPI cannot be used: no MPI launcher started this process" in done.stderr


def test_a_site_mpi_that_crashes_harms_no_job_without_mpi(horarun, mpirun, tmp_path):
    """It is loaded for jobs that want it, and for those only."""
    if not os.path.exists(mpirun.bundle + "/lib/libhora_mpi.so"):
        pytest.skip("built without MPI")
    source = tmp_path / "crash.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n")
    with open(mpirun.bundle + "/lib/libhora_mpi.so", "rb") as module:
        library = tmp_path / re.search(rb"\0(libmpi\.so\.\d+)\0", module.read())[1].decode()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    command = ["-np", 2, PYTHON, mpirun.script]
    done = horarun.run(*command, env={"LD_LIBRARY_PATH": str(tmp_path)}).expect(0)
    assert done.text.count("sum 3.0") == 2, done
    done = horarun.run("--cpu-operations", "mpi", *command, env={"LD_LIBRARY_PATH": str(tmp_path)}).expect(128 + 6)


def test_two_hosts_with_a_decoy_network(mpirun, hosts):
    """Rank 0's address on the network that leads nowhere is passed over."""
    two = hosts(2, nets=2, decoy=True)
    done = mpirun.run(
        "-H",
        two.spec(2),
        "-np",
        4,
        "--mca",
        "btl_tcp_if_include",
        two.address(1, 0) + "/24",
        "-x",
        "PYTHONPATH",
        PYTHON,
        mpirun.script,
    )
    assert done.returncode == 0, done
    assert sorted(re.findall(r"place .*", done.stdout)) == [
        "place 0 4 0 2 0 2",
        "place 1 4 1 2 0 2",
        "place 2 4 0 2 1 2",
        "place 3 4 1 2 1 2",
    ]
    assert done.stdout.count("sum 10.0") == 4, done


def test_horarun_mpi_here(horarun):
    """Output tagged by mpirun; the runtime found; variables and options travel."""
    script = (
        "import os, hora.numpy as hvd; hvd.init(); "
        "print(os.environ['ORIGIN'], os.environ['HOROVOD_CYCLE_TIME'], hvd.size())"
    )
    done = horarun.run(
        "-np",
        2,
        "--mpi",
        "--mpi-args=--oversubscribe",
        "--cycle-time-ms",
        "2.5",
        PYTHON,
        "-c",
        script,
        env={"ORIGIN": "a 'b' c"},
    ).expect(0)
    for rank in range(2):
        assert f"[1,{rank}]<stdout>:a 'b' c 2.5 2\n" in done.text, done


def test_horarun_mpi_ends_with_its_starter(horarun, tmp_path):
    script = tmp_path / "start.sh"
    script.write_text(
        f'{horarun.path} -np 2 --mpi --mpi-args=--oversubscribe --end-with $$ sh -c "echo ready; exec sleep 1000"; :\n'
    )
    horarun.path = "/bin/sh"
    job = horarun.start(script)
    job.read_until("ready", times=2)
    job.process.kill()
    job.process.wait()
    jobs.expect_nothing_left(job, 60)


def test_horarun_mpi_ends_with_its_parent_only(horarun):
    done = horarun.run("-np", 1, "--mpi", "--end-with", os.getppid(), "true").expect(2)
    assert "--end-with: with --mpi" in done.messages, done


def test_horarun_mpi_examines_the_hosts_first(horarun):
    done = horarun.run("-np", 1, "--mpi", "--check-hosts", "true").expect(0)
    assert "localhost" in done.messages and "CPU" in done.messages, done


def test_horarun_mpi_exit_code(horarun):
    horarun.run("-np", 2, "--mpi", "--mpi-args=--oversubscribe", "sh", "-c", "exit 5").expect(5)
    horarun.run("-np", 1, "--mpi", "no-such-program").expect(134)  # Open MPI's own code for it


def test_horarun_mpi_on_two_hosts(horarun, hosts, shared):
    """The runtime is shipped, and the network that leads nowhere is not used."""
    two = hosts(2, nets=2, decoy=True)
    done = horarun.run(
        "-np",
        4,
        "-H",
        two.spec(2),
        "--mpi",
        "--no-prefix-output",
        "--wdir",
        "/",
        PYTHON,
        os.path.join(shared, "mpi_ranks.py"),
        env={"HOROVOD_CPU_OPERATIONS": "mpi"},
    ).expect(0)
    assert sorted(re.findall(r"place .*", done.text)) == [
        "place 0 4 0 2 0 2",
        "place 1 4 1 2 0 2",
        "place 2 4 0 2 1 2",
        "place 3 4 1 2 1 2",
    ]
    assert done.text.count("sum 10.0 mpi\n") == 4, done


def test_horarun_mpi_says_what_failed_before_mpirun(horarun, hosts):
    hosts(1)
    done = horarun.run("-np", 2, "-H", "node1:1,nowhere.invalid:1", "--mpi", "true")
    assert done.code not in (0, None) and "nowhere.invalid" in done.messages, done


needs_hydra = pytest.mark.skipif(shutil.which("mpiexec.hydra") is None, reason="no MPICH's mpiexec.hydra")


@needs_hydra
def test_script_under_plain_hydra(mpirun):
    """MPICH's launcher, no MPICH library: the ranks meet by PMI-1."""
    environment = {**os.environ, "PYTHONPATH": mpirun.bundle + "/python"}
    done = subprocess.run(
        ["mpiexec.hydra", "-np", "3", PYTHON, mpirun.script],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done
    assert sorted(re.findall(r"place .*", done.stdout)) == [f"place {r} 3 {r} 3 0 1" for r in range(3)]
    assert done.stdout.count("sum 6.0") == 3, done


@needs_hydra
def test_horarun_mpi_by_mpich_on_two_hosts(horarun, hosts, shared):
    two = hosts(2)
    folder = os.path.join(shared, "mpich")
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/mpirun", "w") as script:  # a link would not do: Hydra looks for its parts next to itself
        script.write('#!/bin/sh\nexec mpiexec.hydra "$@"\n')
    os.chmod(script.name, 0o755)
    done = horarun.run(
        "-np",
        4,
        "-H",
        two.spec(2),
        "--mpi",
        "--no-prefix-output",
        "--wdir",
        "/",
        PYTHON,
        os.path.join(shared, "mpi_ranks.py"),
        env={"PATH": folder + ":/usr/bin:/bin"},
    ).expect(0)
    assert sorted(re.findall(r"place .*", done.text)) == [
        "place 0 4 0 2 0 2",
        "place 1 4 1 2 0 2",
        "place 2 4 0 2 1 2",
        "place 3 4 1 2 1 2",
    ]
    assert done.text.count("sum 10.0") == 4, done


@pytest.mark.parametrize("name", ["MPI", "NCCL"])
def test_check_build_says_whether_the_library_is_here(build, name):
    """The box, the reason, and the rest of the table, on a machine whose library is gone."""
    command = [os.path.join(build, "bin", "horarun"), "--check-build", "--verbose"]

    def tick(done):
        return re.search(rf"Operations:(?:\n.*)*?\n    \[(.)\] {name}", done.stdout)[1]

    here = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    row = re.search(rf"\n    {name} +yes +yes .* (/\S*\.so\S*)", here.stdout)
    if row is None:
        pytest.skip(f"this machine has no {name}")
    assert tick(here) == "X", here
    hidden = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"', row[1], *command]
    gone = subprocess.run(hidden, capture_output=True, text=True, timeout=DEADLINE_S)
    if gone.returncode != 0 and re.search("^(unshare|mount): ", gone.stderr, re.MULTILINE):
        pytest.skip("may not mount here: " + gone.stderr)
    assert tick(gone) == " ", gone
    assert re.search(rf"{name.lower()} +does not load .*lib{name.lower()}", gone.stdout), gone
    assert "[X] Gloo" in gone.stdout, gone


def test_mpirun_gets_user_signals(horarun, tmp_path):
    """horarun holds them for its own ranks; one that came before there was an mpirun is not for it."""
    fifo, mpirun = tmp_path / "hosts", tmp_path / "mpirun"
    os.mkfifo(fifo)
    mpirun.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.4"; exit; }\n'
        "exec grep SigBlk /proc/self/status\n"
    )
    mpirun.chmod(0o755)
    job = horarun.start("--mpi", "--hostfile", fifo, "true", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with open(fifo, "w") as hosts:
        job.send_signal(signal.SIGUSR1)
        hosts.write("localhost slots=1\n")
    done = job.finish().expect(0)
    assert done.text.split() == ["SigBlk:", "0" * 16], done
