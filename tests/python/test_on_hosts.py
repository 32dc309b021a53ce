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
FILES = ["numpy_ops.py", "process_sets.py", "torch_ops.py", "torch_gradients.py",
         "torch_optimizer.py", "torch_elastic.py"]
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
def jobs():
    """file -> its job. All run in one world with its own two hosts."""
    able = subprocess.run([HOSTS, "check"], capture_output=True, text=True)
    if able.returncode != 0:
        pytest.skip(f"no test hosts here: {able.stdout}{able.stderr}")
    # A folder that the hosts see under the same path, as on a shared file system.
    shared = pathlib.Path(tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp"))
    shared.chmod(0o755)
    try:
        for name in ("support", "checks"):
            shutil.copytree(job.ROOT / "tests" / "python" / name, shared / name)
        script = [f"{HOSTS} up 2 --hide {job.ROOT}"]
        for file in FILES:
            (shared / "out" / file).mkdir(parents=True)
            command = [job.launcher(), "-np", str(RANKS), "-H", "node1:2,node2:2",
                       "/usr/bin/python3", shared / "support" / "run_checks.py",
                       shared / "checks" / file, shared / "out" / file]
            script.append("echo == %s; cd %s; timeout 200 %s 2>&1; echo == exit $?" % (
                file, shared, shlex.join(map(str, command))))
        (shared / "caller.py").write_text(CALLER)
        packages = job.build_dir() / "share" / "hora" / "bundle" / "python"
        script.append(f"cd {shared}; PYTHONPATH={packages} HORARUN={job.launcher()} "
                      f"timeout 100 {sys.executable} caller.py 2>&1")
        script.append(f"{HOSTS} down")
        finished = job.run_command([HOSTS, "world", "--", "sh", "-c", "\n".join(script)],
                                   timeout=1200, HORA_LIBRARY="", PYTHONPATH=shared)
        yield {file: HostsJob(finished, shared / "out" / file) for file in FILES}
    finally:
        shutil.rmtree(shared, ignore_errors=True)


@pytest.mark.parametrize("file, check", [(file, check) for file in FILES
                                         for check in names_in(file)])
def test(jobs, file, check):
    jobs[file].verify(check)


def test_functions_run_on_other_hosts(jobs):
    finished = next(iter(jobs.values())).finished
    assert "functions ran on both hosts" in finished.out, str(finished)


def test_jobs_end_well(jobs):
    finished = next(iter(jobs.values())).finished
    assert finished.code == 0 and finished.out.count("== exit 0") == len(FILES), str(finished)
