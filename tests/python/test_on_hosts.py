"""The checks on two test hosts with two ranks each, which have the frameworks and nothing of ours:
the launcher brings the packages and the library along."""

import pathlib
import shlex
import shutil
import subprocess
import tempfile

import pytest

from support import job
from support.check_jobs import CheckJob, names_in

HOSTS = job.ROOT / "tests" / "support" / "hosts"
FILES = ["numpy_ops.py", "process_sets.py", "torch_ops.py", "torch_gradients.py",
         "torch_optimizer.py", "torch_elastic.py"]
RANKS = 4


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


def test_jobs_end_well(jobs):
    finished = next(iter(jobs.values())).finished
    assert finished.code == 0 and finished.out.count("== exit 0") == len(FILES), str(finished)
