# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run_elastic on a real Spark with two executors, which are processes of this machine."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from support import engines, job
from support.elastic_training import fail, kill_rank_1, once, place, place_on_machine, train
from support.processes import marked, wait_until

pytest.importorskip("pyspark", reason="Spark is not installed: scripts/ci.d/test-frameworks spark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java: apt-get install default-jre-headless", allow_module_level=True)
sys.path.insert(0, str(job.PACKAGES))

import horovod.spark


@pytest.fixture(scope="module")
def spark():
    """Two executors with two slots each."""
    with engines.spark_context(2, 2) as context:
        yield context


def test_results_by_rank(spark):
    for count in (3, 2):
        expected = [(rank, count, list(range(count))) for rank in range(count)]
        assert horovod.spark.run_elastic(place, num_proc=count, max_num_proc=count) == expected


def test_as_many_ranks_as_there_are_slots(spark):
    assert [found[:2] for found in horovod.spark.run_elastic(place)] == [(rank, 4) for rank in range(4)]


def test_local_places_are_those_on_the_machine(spark):
    found = horovod.spark.run_elastic(place_on_machine, num_proc=2, max_num_proc=2)
    assert found == [(rank, 2, 0, 1, str(rank)) for rank in range(2)]


def test_output_comes_with_the_rank(spark):
    def speak():
        print("out", os.environ["HOROVOD_RANK"], os.environ["COLOUR"])

    out = io.StringIO()
    horovod.spark.run_elastic(speak, num_proc=2, max_num_proc=2, stdout=out, env={"COLOUR": "red"})
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:out 0 red", "[1]<stdout>:out 1 red"]


def test_a_killed_rank_is_replaced(spark, tmp_path):
    found = horovod.spark.run_elastic(
        train, (str(tmp_path), [3, 2, 3], kill_rank_1), num_proc=3, min_num_proc=2, max_num_proc=3
    )
    assert found == [(rank, [3, 2, 3]) for rank in range(3)]


def kill_executor_of_rank_1(folder):
    """The Java process above the task."""
    import hora

    if hora.rank() == 1 and once(folder, "killed"):
        pid = os.getpid()
        while "java" not in os.readlink(f"/proc/{pid}/exe"):
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        os.kill(pid, signal.SIGKILL)
        time.sleep(60)


def test_a_killed_executor_is_replaced(spark, tmp_path):
    """Spark starts another one, and its tasks come back. Both ranks of an executor are lost with it."""
    found = horovod.spark.run_elastic(
        train, (str(tmp_path), [4, 2, 4], kill_executor_of_rank_1), num_proc=4, min_num_proc=2, max_num_proc=4
    )
    assert found == [(rank, [4, 2, 4]) for rank in range(4)]


def test_a_rank_that_raises_is_reported_with_its_traceback(spark):
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 failed:.*in fail.*ValueError: bad luck"):
        horovod.spark.run_elastic(fail, (1,), num_proc=2, max_num_proc=2)
    assert len(horovod.spark.run_elastic(place, num_proc=2, max_num_proc=2)) == 2


def test_reset_limit(spark, tmp_path):
    with pytest.raises(RuntimeError, match="reset-limit"):
        horovod.spark.run_elastic(
            train, (str(tmp_path), [2, 1], kill_rank_1), num_proc=2, min_num_proc=1, max_num_proc=2, reset_limit=0
        )


def test_too_few_slots(spark):
    with pytest.raises(TimeoutError, match=r"[0-4] of 5 processes .* within 5 s: Spark runs 4 tasks at the same time"):
        horovod.spark.run_elastic(place, num_proc=5, start_timeout=5)
    # Nothing waits for a slot any more.
    assert len(horovod.spark.run(os.getpid, num_proc=4)) == 4


DRIVER = """
import sys
from support import engines
from support.elastic_training import sleep_long
import horovod.spark
with engines.spark_context(1, 2):
    horovod.spark.run_elastic(sleep_long, (sys.argv[1],), num_proc=2, max_num_proc=2)
"""


def test_nothing_is_left_of_a_killed_driver(tmp_path):
    environment = job.environment(HORA_TEST_MARK=tmp_path, **engines.spark_variables())
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], env=environment)
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "both ranks run")
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not marked(tmp_path), "nothing is left")
