# SPDX-License-Identifier: Apache-2.0
"""Functions on ranks of test hosts, however the ranks are started, and on this machine next to them."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from support import job

HOSTS = job.ROOT / "tests" / "support" / "hosts"

# Started on the launcher's machine; the hosts have Python, and mpirun where this machine does.
CALLER = """
import os, socket, sys
import hora, horovod

def work(scale):
    import hora.numpy as hvd

    hvd.init()
    return socket.gethostname(), hvd.rank(), float(hvd.allreduce([scale], op=hvd.Sum)[0])

def fail():
    import hora.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("rank 1 is wrong")
    hvd.allreduce([1.0])

def check(run, hosts):
    results = run(work, args=(2.0,), hosts=hosts)
    assert [rank for _, rank, _ in results] == [0, 1], results
    assert [total for _, _, total in results] == [4.0] * 2, results
    assert len({name for name, _, _ in results}) == 2, results
    try:
        run(fail, hosts=hosts)
    except RuntimeError as error:
        assert "rank 1 is wrong" in str(error), error
    else:
        raise AssertionError("the failure of a rank was not reported")

if __name__ == "__main__":
    runs = {
        "gloo": lambda f, **more: horovod.run(f, num_proc=2, use_gloo=True, **more),
        "mpi": lambda f, **more: horovod.run(f, num_proc=2, use_mpi=True, **more),
        "pmix": lambda f, **more: hora.run(f, np=2, options=["--pmi", "pmix"], **more),
    }
    for hosts in ("node1:1,node2:1", "localhost:1,node2:1"):
        check(runs[sys.argv[1]], hosts)
        print("well on", hosts, flush=True)
"""


@pytest.mark.parametrize("starter", ["gloo", "mpi", "pmix"])
def test_functions_on_hosts(starter):
    able = subprocess.run([HOSTS, "check"], capture_output=True, text=True)
    if able.returncode != 0:
        pytest.skip(f"no test hosts here: {able.stdout}{able.stderr}")
    if starter == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    shared = pathlib.Path(tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp"))
    shared.chmod(0o755)
    try:
        (shared / "caller.py").write_text(CALLER)
        packages = job.bundle_dir() / "python"
        script = "\n".join(
            [
                f"{HOSTS} up 2 --hide {job.ROOT}",
                f"cd {shared}; PYTHONPATH={packages} HORARUN={job.launcher()} timeout 200 "
                f"{sys.executable} caller.py {starter} 2>&1; echo == exit $?",
                f"{HOSTS} down",
            ]
        )
        finished = job.run_command([HOSTS, "world", "--", "sh", "-c", script], timeout=300, HORA_LIBRARY="")
        assert "well on node1:1,node2:1" in finished.out, str(finished)
        assert "well on localhost:1,node2:1" in finished.out and "== exit 0" in finished.out, str(finished)
    finally:
        shutil.rmtree(shared, ignore_errors=True)
