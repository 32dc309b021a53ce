# SPDX-License-Identifier: Apache-2.0
"""--cpu-operations ccl, with the real oneCCL: its wheels in build/oneccl (HORA_ONECCL names another environment)."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PLACE = pathlib.Path(os.environ.get("HORA_ONECCL", REPOSITORY / "build" / "oneccl"))
CCL = ["--cpu-operations", "ccl"]


@pytest.fixture
def oneccl(shared):
    """A folder of all hosts with its libraries."""
    if not (PLACE / "lib" / "libccl.so.2").exists():
        pytest.skip(f"no oneCCL in {PLACE} (scripts/setup --interop)")
    try:
        ctypes.CDLL("libfabric.so.1")
    except OSError as missing:
        pytest.skip(f"oneCCL needs libfabric: {missing} (scripts/setup --interop)")
    folder = os.path.join(shared, "oneccl")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        for name in ("libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so"):
            shutil.copy(PLACE / "lib" / name, folder)
    return {"LD_LIBRARY_PATH": folder}


@pytest.fixture
def write(shared):
    def write_program(text):
        pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")
        path = os.path.join(shared, "ccl_program.py")
        pathlib.Path(path).write_text(HEAD + text)
        return path

    return write_program


HEAD = """\
import os, signal, sys
import numpy as np
import hora
import hora.numpy as hvd
from hora.exceptions import HorovodInternalError
hvd.init()
rank, size = hvd.rank(), hvd.size()
"""

SEVERAL = """\
even = hvd.add_process_set([0, 2])
for step in range(3):
    total = hvd.allreduce(np.full(300000, rank + 1.0), op=hvd.Sum, name="sum")
    assert (total == size * (size + 1) / 2).all(), total
    gathered = hvd.allgather(np.full((rank, 2), rank, np.int16), name="gathered")
    assert gathered[:, 0].tolist() == [each for each in range(size) for _ in range(each)], gathered
    counts = hvd.allreduce(np.full(5, 2 ** rank, np.int16), op=hvd.Sum, name="counts")
    assert (counts == 2 ** size - 1).all(), counts
    if rank in (0, 2):
        pair = hvd.allreduce(np.full(70000, rank + 1, np.float32), op=hvd.Average, name="pair", process_set=even)
        assert (pair == 2).all(), pair
hvd.barrier()
backends = {each["id"]: each for each in hora.describe()["backends"]}
print("ccl", backends["ccl"]["enabled"], backends["ccl"]["version"], hvd.ccl_built())
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective(horarun, build, oneccl, ranks):
    program = os.path.join(build, "bin", "collectives_conformance_test")
    if not os.path.exists(program):
        pytest.skip("built without tests")
    environment = {**oneccl, "HORA_TEST_BACKEND": "ccl,shm", "HORA_MODULE_PATH": os.path.join(build, "lib")}
    done = horarun.run("-np", ranks, *CCL, program, "~[long]", env=environment, timeout=600).expect(0)
    assert done.text.count("All tests passed") == ranks, done


def test_hosts_and_process_sets(horarun, hosts, oneccl, write):
    two = hosts(2, nets=2, decoy=True)
    command = ["python3", write(SEVERAL)]
    done = horarun.run("-np", 4, "-H", two.spec(2), *CCL, "--wdir", "/", *command, env=oneccl).expect(0)
    said = {line for lines in done.ranks().values() for line in lines if line.startswith("ccl ")}
    assert len(said) == 1 and said.pop().startswith("ccl True 2022."), done


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_lost_rank_is_named(horarun, oneccl, write, how):
    """oneCCL would wait for ever."""
    program = write(
        f"import threading\n"
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, as soon as rank 1 is gone\n"
        f"tensor = np.ones(1 << 22)\n"
        f"hvd.allreduce(tensor, name='again')\n"
        f"if rank == 1: threading.Timer(1, os.kill, (os.getpid(), signal.{how})).start()\n"
        f"try:\n"
        f"    while True: hvd.allreduce(tensor, name='again')\n"
        f"except HorovodInternalError as error:\n"
        f"    print('seen:', error)\n"
        f"    sys.exit(4)\n"
    )
    limit = ["--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 3]
    done = horarun.run("-np", 3, *CCL, *limit, "--grace", 20, sys.executable, program, env=oneccl)
    assert done.code != 0 and "rank 1" in done.messages, done
    assert all("rank 1" in "\n".join(done.ranks()[rank]) for rank in (0, 2)), done


def test_a_library_that_is_missing_or_not_whole(horarun, tmp_path, write):
    program = write("")
    missing = horarun.run("-np", 2, *CCL, sys.executable, program, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert missing.code != 0, missing
    assert "=ccl, but oneCCL cannot be used: libccl.so.2: cannot open" in missing.messages, missing
    # One that is not whole.
    (tmp_path / "empty.c").touch()
    subprocess.run(["cc", "-shared", "-o", tmp_path / "libccl.so.2", tmp_path / "empty.c"], check=True)
    broken = horarun.run("-np", 2, *CCL, sys.executable, program, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert broken.code != 0, broken
    assert "undefined symbol: onecclGetVersion" in broken.messages, broken


def test_check_build_says_whether_it_is_here(horarun, oneccl, tmp_path):
    def box(environment):
        done = horarun.run("--check-build", "--json", env=environment).expect(0)
        return json.loads(done.text)["tensor_operations"]["CCL"]

    assert box(oneccl) is True
    assert box({"LD_LIBRARY_PATH": str(tmp_path)}) is False
