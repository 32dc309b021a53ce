# SPDX-License-Identifier: Apache-2.0
"""horovod.spark and HorovodRunner on a real Spark with two executors, which are processes of this machine."""

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from support import engines, job
from support.processes import TIMEOUT_S, is_alive, marked, processes_with, wait_until

pytest.importorskip("pyspark", reason="Spark is not installed: scripts/ci.d/test-frameworks spark")
pytest.importorskip("numpy")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java: apt-get install default-jre-headless", allow_module_level=True)
sys.path.insert(0, str(job.PACKAGES))

import pyspark

import horovod.spark
from hora import spark_job
from sparkdl import HorovodRunner


@pytest.fixture(scope="module")
def spark():
    """Two executors with two slots each."""
    with engines.spark_context(2, 2) as context:
        yield context


def place(tag=None):
    import hora.numpy as hvd

    hvd.init()
    total = float(hvd.allreduce([1.0], op=hvd.Sum)[0])
    return hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), total, tag


def test_three_runs_in_one_context(spark):
    # The executors share a machine, so the ranks share a host.
    for number in range(3):
        assert horovod.spark.run(place, args=(number,), num_proc=4) == [
            (rank, rank, 4, 0, 1, 4.0, number) for rank in range(4)
        ]
    assert [found[6] for found in horovod.spark.run(place, kwargs={"tag": "t"}, num_proc=2)] == ["t", "t"]


def test_as_many_ranks_as_the_default_parallelism(spark):
    assert len(horovod.spark.run(os.getpid)) == spark.defaultParallelism == 4


def test_each_run_has_processes_of_its_own(spark):
    first, second = (horovod.spark.run(lambda: (os.getpid(), os.getppid()), num_proc=2) for _ in range(2))
    pids = [pid for pid, _ in first + second]
    assert len(set(pids)) == 4 and not any(map(is_alive, pids))


def meet_at_the_master():
    """What PyTorch's env:// does: rank 0 listens, the others connect."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        with socket.create_server(("", address[1])) as listener:
            listener.settimeout(60)
            clients = [listener.accept()[0] for _ in range(size - 1)]
            return address, sorted(int(client.recv(8)) for client in clients)
    client = socket.socket()
    wait_until(lambda: client.connect_ex(address) == 0, "rank 0 listens")
    with client:
        client.sendall(str(rank).encode())
    return address, [rank]


def test_ranks_find_the_master(spark):
    found = horovod.spark.run(meet_at_the_master, num_proc=3)
    assert [ranks for _, ranks in found] == [[1, 2], [1], [2]] and len({address for address, _ in found}) == 1
    env = {"MASTER_ADDR": "elsewhere", "MASTER_PORT": "7"}

    def master():
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    assert horovod.spark.run(master, num_proc=2, env=env) == [("elsewhere", "7")] * 2


def test_output_comes_with_the_rank(spark):
    def speak():
        print("out", os.environ["HOROVOD_RANK"], os.environ["COLOUR"])
        print("no end", end="", file=sys.stderr)

    out, err = io.StringIO(), io.StringIO()
    assert horovod.spark.run(speak, num_proc=2, stdout=out, stderr=err, env={"COLOUR": "red"}) == [None, None]
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:out 0 red", "[1]<stdout>:out 1 red"]
    assert {"[0]<stderr>:no end", "[1]<stderr>:no end"} <= set(err.getvalue().splitlines())
    out = io.StringIO()
    horovod.spark.run(speak, num_proc=1, stdout=out, env={"COLOUR": "red"}, prefix_output_with_timestamp=True)
    assert time.strptime(out.getvalue().split("[")[0], "%a %b %d %H:%M:%S %Y")


def test_large_arguments_and_results(spark):
    data = os.urandom(3_000_000)
    assert horovod.spark.run(lambda given: given[::-1], args=(data,), num_proc=2) == [data[::-1]] * 2


def misbehave(rank, how, mark):
    import hora.numpy as hvd

    hvd.init()
    if hvd.rank() == rank:
        if how == "raise":
            raise ValueError("bad luck")
        if how == "exit":
            sys.exit(7)
        if how == "task":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    subprocess.Popen(["sleep", "600"])  # what a rank leaves behind ends with it
    hvd.allreduce([1.0], name="never")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("raise", r"(?s)rank 1 failed:.*in misbehave.*ValueError: bad luck"),
        ("exit", r"(?s)rank 1 failed:.*SystemExit: 7"),
        ("kill", r"rank 1 on .* was killed by SIGKILL"),
        ("task", r"rank 1 on .* was lost: its Spark task ended without a result"),
    ],
)
def test_a_rank_that_fails_is_reported_and_the_next_run_works(spark, tmp_path, how, text):
    with pytest.raises(RuntimeError, match=text) as caught:
        horovod.spark.run(misbehave, args=(1, how, None), num_proc=3, env={"HORA_TEST_MARK": str(tmp_path)})
    cause = {"raise": ValueError, "exit": SystemExit}.get(how, type(None))
    assert caught.value.rank == 1 and type(caught.value.__cause__) is cause
    wait_until(lambda: not marked(tmp_path), "all ranks end")
    assert [found[0] for found in horovod.spark.run(place, num_proc=4)] == [0, 1, 2, 3]


def test_ranks_that_compute_end_with_the_one_that_failed(spark, tmp_path):
    def one_fails():
        if os.environ["HOROVOD_RANK"] == "0":
            raise KeyError("first")
        time.sleep(600)

    with pytest.raises(RuntimeError, match="KeyError: 'first'"):
        horovod.spark.run(one_fails, num_proc=2, env={"HORA_TEST_MARK": str(tmp_path)})
    wait_until(lambda: not marked(tmp_path), "all ranks end")


def test_what_cannot_be_sent(spark):
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be sent"):
        horovod.spark.run(lambda: lock, num_proc=2)
    with pytest.raises(RuntimeError, match=r"(?s)rank 0 failed:.*the result of .* cannot be sent"):
        horovod.spark.run(lambda: __import__("threading").Lock(), num_proc=1)


def test_too_few_slots(spark):
    with pytest.raises(ValueError, match="num_proc=5, but Spark runs 4 tasks at the same time"):
        horovod.spark.run(place, num_proc=5)


def test_slots_that_there_will_be():
    assert spark_job._most_slots("local-cluster[2,4,1024]", 1) == 8
    assert spark_job._most_slots("local-cluster[2, 5, 1024]", 2) == 4
    assert spark_job._most_slots("local[*]", 1) == 0
    assert spark_job._most_slots("yarn", 1) is None


def test_arguments(spark, monkeypatch):
    with pytest.raises(ValueError, match="num_proc=0: expected a number of ranks"):
        horovod.spark.run(place, num_proc=0)
    with pytest.raises(TypeError, match="is not callable"):
        horovod.spark.run("place", num_proc=1)
    with pytest.raises(ValueError, match="without MPI"):
        horovod.spark.run(place, use_mpi=True)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match="create a SparkSession first"):
        horovod.spark.run(place)


class Conf:
    def get(self, name, default=None):
        return "true" if name == "spark.dynamicAllocation.enabled" else default


def test_dynamic_allocation_is_refused(spark, monkeypatch):
    monkeypatch.setattr(pyspark.SparkContext, "getConf", lambda self: Conf())
    with pytest.raises(ValueError, match=r"--conf spark.dynamicAllocation.enabled=false"):
        horovod.spark.run(place, num_proc=2)


def test_horovod_runner(spark):
    assert HorovodRunner(np=3).run(place, tag="x") == (0, 0, 3, 0, 1, 3.0, "x")
    # Ranks on the driver's machine, without Spark's tasks.
    assert HorovodRunner(np=-2).run(lambda: "PYSPARK_PYTHON" in os.environ and os.getppid() != 1) is True


def test_example_of_the_documentation(spark):
    """Horovod's documentation describes it: a function with a magic number, and the ranks as results."""
    pytest.importorskip("torch")

    def fn(magic_number):
        import horovod.torch as hvd

        hvd.init()
        print(
            f"Hello, rank = {hvd.rank()}, local_rank = {hvd.local_rank()}, size = {hvd.size()}, "
            f"local_size = {hvd.local_size()}, magic_number = {magic_number}"
        )
        return hvd.rank()

    out = io.StringIO()
    assert horovod.spark.run(fn, args=(42,), num_proc=2, stdout=out) == [0, 1]
    assert "[1]<stdout>:Hello, rank = 1, local_rank = 1, size = 2, local_size = 2, magic_number = 42" in out.getvalue()


DRIVER = """
import os, sys, time
from pyspark.sql import SparkSession
import pyspark

import horovod.spark
session = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "512m").getOrCreate())
def rank():
    print("runs", flush=True)
    time.sleep(600)
horovod.spark.run(rank, num_proc=2, env={"HORA_TEST_MARK": sys.argv[1]})
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_driver_that_ends(tmp_path, number):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=job.environment(**engines.spark_variables()),
        start_new_session=True,
    )
    try:
        assert {driver.stdout.readline(), driver.stdout.readline()} == {"[0]<stdout>:runs\n", "[1]<stdout>:runs\n"}
        assert len(marked(tmp_path)) == 2
        driver.send_signal(number)
        driver.wait(TIMEOUT_S)
        wait_until(lambda: not marked(tmp_path), "all ranks end")
        wait_until(lambda: not servers_of(driver.pid), "the rendezvous server ends")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()


def servers_of(pid):
    return processes_with("cmdline", f"\0--end-with\0{pid}\0".encode())


def test_gpus_of_a_task(monkeypatch):
    from horovod.spark.task import get_available_devices

    assert get_available_devices() == []
    monkeypatch.setenv("HORA_SPARK_GPUS", "2,3")
    assert get_available_devices() == ["2", "3"]
    monkeypatch.setenv("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "1")
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    assert get_available_devices() == ["1"]


def test_no_context_is_seen_without_spark(monkeypatch):
    monkeypatch.delitem(sys.modules, "pyspark")
    assert spark_job.active_context() is None
