# SPDX-License-Identifier: Apache-2.0
"""The checks on two test hosts with two ranks each, which have the frameworks and nothing of ours:
the launcher brings the packages and the library along."""

import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

from support import job
from support.check_jobs import CheckJob, names_in

HOSTS = job.ROOT / "tests" / "support" / "hosts"
FILES = [
    "numpy_ops.py",
    "process_sets.py",
    "torch_ops.py",
    "torch_gradients.py",
    "torch_optimizer.py",
    "torch_elastic.py",
]
RANKS = 4

# Started on the launcher's machine; its function and the module that it lies in travel.
CALLER = """
import os, socket
import hora

def work(scale):
    import hora.numpy as hvd

    hvd.init()
    total = float(hvd.allreduce([scale * (hvd.rank() + 1)], op=hvd.Sum)[0])
    return socket.gethostname(), hvd.rank(), hvd.cross_size(), total

if __name__ == "__main__":
    results = hora.run(work, args=(2.0,), np=4, hosts="node1:2,node2:2")
    assert [rank for _, rank, _, _ in results] == [0, 1, 2, 3], results
    assert len({name for name, _, _, _ in results}) == 2 == results[0][2], results
    assert {total for _, _, _, total in results} == {20.0}, results
    os.environ["HORARUN_HOSTS"] = "node2:1"  # as a batch system, or hora.yaml, names hosts
    (result,) = hora.run(work, args=(2.0,))
    assert result[0] == results[2][0], (result, results)
    del os.environ["HORARUN_HOSTS"]
    try:
        hora.run(lambda: os._exit(9), np=2, hosts="node1:1,node2:1")
    except RuntimeError as error:
        assert "exit code 9" in str(error), error
    else:
        raise AssertionError("a rank that left was not noticed")
    print("functions ran on both hosts", flush=True)
"""


class HostsJob(CheckJob):
    """Like CheckJob; the job has run already."""

    def __init__(self, finished, folder):
        self.finished = finished
        self.read(folder, RANKS)


@pytest.fixture(scope="module")
def hosts_job():
    """One job of all files, in a world with its own two hosts."""
    able = subprocess.run([HOSTS, "check"], capture_output=True, text=True)
    if able.returncode != 0:
        pytest.skip(f"no test hosts here: {able.stdout}{able.stderr}")
    # A folder that the hosts see under the same path, as on a shared file system.
    shared = pathlib.Path(tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp"))
    shared.chmod(0o755)
    try:
        for name in ("support", "checks"):
            shutil.copytree(job.ROOT / "tests" / "python" / name, shared / name)
        (shared / "out").mkdir()
        command = [
            job.launcher(),
            "-np",
            str(RANKS),
            "-H",
            "node1:2,node2:2",
            "/usr/bin/python3",
            shared / "support" / "run_checks.py",
            shared / "out",
            *(shared / "checks" / file for file in FILES),
        ]
        script = [
            f"{HOSTS} up 2 --hide {job.ROOT}",
            f"cd {shared}; timeout 600 {shlex.join(map(str, command))} 2>&1; echo == exit $?",
        ]
        (shared / "caller.py").write_text(CALLER)
        packages = job.bundle_dir() / "python"
        script.append(
            f"cd {shared}; PYTHONPATH={packages} HORARUN={job.launcher()} timeout 100 {sys.executable} caller.py 2>&1"
        )
        script.append(f"{HOSTS} down")
        finished = job.run_command(
            [HOSTS, "world", "--", "sh", "-c", "\n".join(script)], timeout=1200, HORA_LIBRARY="", PYTHONPATH=shared
        )
        yield HostsJob(finished, shared / "out")
    finally:
        shutil.rmtree(shared, ignore_errors=True)


@pytest.mark.parametrize("check", names_in(*FILES))
def test(hosts_job, check):
    hosts_job.verify(check)


def test_functions_run_on_other_hosts(hosts_job):
    finished = hosts_job.finished
    assert "functions ran on both hosts" in finished.out, str(finished)


def test_job_ends_well(hosts_job):
    finished = hosts_job.finished
    assert finished.code == 0 and "== exit 0" in finished.out, str(finished)
