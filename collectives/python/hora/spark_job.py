# SPDX-License-Identifier: Apache-2.0
"""Jobs inside of Spark: a barrier stage whose tasks each run a rank, and the driver's part of it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time

from hora import (
    authenticated_server,
    channel,
    elastic_job,
    launch,
    rank_error,
    rank_process,
    rendezvous,
    serialization,
    spark_task,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_log = logging.getLogger(__name__)

# How long the tasks may take to return when the job is over.
_END_SECONDS = 10
# How long a cluster may have too few slots before a warning.
_WARN_AFTER_SECONDS = 10


def active_context() -> Any:
    """The SparkContext of this process, or None. Does not import pyspark."""
    pyspark = sys.modules.get("pyspark")
    return getattr(pyspark, "SparkContext", None) and pyspark.SparkContext._active_spark_context  # type: ignore[union-attr]


def need_context(caller: str) -> Any:
    """The SparkContext of this process, for horovod.spark.<caller>."""
    context = active_context()
    if context is None:
        raise RuntimeError(
            f"horovod.spark.{caller} needs a SparkContext in this process: create a SparkSession first. "
            "Spark Connect has none; there, run the program in the cluster with spark-submit"
        )
    return context


def start_seconds(given: float | None) -> float:
    """How long Spark has to start the tasks."""
    return float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT", "") or 600) if given is None else given


def slots(context: Any) -> int:
    """How many tasks Spark runs at the same time."""
    java = context._jsc.sc()
    return java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls fn(*args, **kwargs) on ranks in tasks of a barrier stage of Spark; returns the results by rank.

    Blocks until all ranks have returned.

    Args:
        num_proc: the number of ranks. Default: Spark's default parallelism
        start_timeout: seconds for Spark to start all tasks. Default: HOROVOD_SPARK_START_TIMEOUT, or 600
        env: variables for the ranks
        stdout, stderr: files for what the ranks print. Default: those of this process
        nics: network interfaces for the traffic between ranks; the first in alphabetical order is used
        prefix_output_with_timestamp: begin each line of output with the time
        executable: the Python that runs the ranks. Default: that of the task
        use_gloo, verbose: accepted

    Raises:
        RuntimeError: there is no SparkContext, a rank failed (with its traceback) or was lost, or Spark failed
        TimeoutError: the tasks did not start within start_timeout
        ValueError: an argument is wrong, MPI was asked for, Spark has too few slots, or allocates executors
            dynamically
    """
    if use_mpi or extra_mpi_args:
        raise ValueError("horovod.spark.run(use_mpi, extra_mpi_args): ranks in Spark meet without MPI")
    context = need_context("run")
    count = context.defaultParallelism if num_proc is None else num_proc
    payload = launch.encode_call(fn, args, kwargs, count, "num_proc")
    env = launch.checked_environment(env)
    start_timeout = start_seconds(start_timeout)
    deadline = time.monotonic() + start_timeout
    _wait_for_slots(context, count, deadline, start_timeout)
    variables = {name: value for name, value in os.environ.items() if name.startswith(elastic_job.PASSED_ON)}
    if nics:
        variables["HOROVOD_GLOO_IFACE"] = sorted([nics] if isinstance(nics, str) else nics)[0]
    address = context.getConf().get("spark.driver.host") or socket.gethostname()
    with rendezvous.Rendezvous(address) as met:
        orders = {"variables": {**variables, **env, **met.shared_environment()}, "executable": executable}
        output = _Output(stdout, stderr, prefix_output_with_timestamp)
        with contextlib.closing(_Ranks(count, orders, payload, output)) as ranks:
            stage = _Stage(context, count, functools.partial(spark_task.run_rank, address, ranks.port, ranks.key))
            try:
                return ranks.wait(stage, deadline, start_timeout)
            finally:
                ranks.end()
                stage.end(ranks.lost)


def _wait_for_slots(context, count, deadline, start_timeout):
    """Spark itself looks every 15 s, and gives up after ten minutes."""
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ValueError(
            "spark.dynamicAllocation.enabled=true: all ranks have to run at the same time, for which Spark's barrier "
            "stages need a fixed number of executors: --conf spark.dynamicAllocation.enabled=false --num-executors N"
        )
    most = _most_slots(context.master, int(conf.get("spark.task.cpus", "1")))
    warn_at = time.monotonic() + _WARN_AFTER_SECONDS
    while True:
        free = slots(context)
        if free >= count:
            return
        text = (
            f"num_proc={count}, but Spark runs {free} tasks at the same time "
            "(executors x cores / spark.task.cpus, or GPUs)"
        )
        if most is not None and free >= most:
            raise ValueError(f"{text}: lower num_proc, or give the application more executors or cores")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text}, still after {start_timeout:g} s (start_timeout)")
        if time.monotonic() > warn_at:
            _log.warning("%s: waiting for more executors", text)
            warn_at = deadline
        time.sleep(0.1)


def _most_slots(master, cpus_per_task):
    """How many slots there will be once all executors have started, where the name of the master says so."""
    cluster = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    if cluster:
        return int(cluster[1]) * (int(cluster[2]) // cpus_per_task)
    return 0 if master.startswith("local") else None  # within this process: all are there from the start


class _Stage:
    """The Spark job of the ranks, in a thread of its own."""

    def __init__(self, context, count, task):
        self._context = context
        self._group = "hora-" + secrets.token_hex(8)
        self.error: Exception | None = None
        self._rdd = context.parallelize(range(count), count).barrier().mapPartitions(task)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._context.setJobGroup(self._group, "horovod.spark.run", interruptOnCancel=True)
            self._rdd.collect()
        except Exception as error:
            self.error = error

    def is_over(self):
        return not self._thread.is_alive()

    def end(self, at_once):
        """Tasks return when their ranks have ended. Spark would start a stage again that has lost a task."""
        if not at_once:
            self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self._thread.join(_END_SECONDS)


class _Ranks(authenticated_server.AuthenticatedServer):
    """Receives the messages of the tasks about their ranks."""

    def __init__(self, count, orders, payload, output):
        self._count, self._payload, self._output = count, payload, output
        self._orders = orders
        self._changed = threading.Condition()
        self._places: dict[int, dict[str, Any]] = {}
        self._links: dict[int, channel.Channel] = {}
        self._results: dict[int, bytes] = {}
        self._failures: list[tuple[bool, rank_error.JobFailed]] = []  # whether it is a consequence, error
        self._is_over = False
        self.lost = False
        super().__init__(everywhere=True)

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        place = json.loads(link.receive())
        rank = place["rank"]
        with self._changed:
            if self._is_over or rank in self._places:
                return
            self._places[rank] = place
            self._changed.notify_all()
            # All ranks get a port that is free where rank 0 is.
            while 0 not in self._places and not self._is_over:
                self._changed.wait()
            if self._is_over:
                return
            port = {"MASTER_PORT": str(self._places[0]["free_port"])}
        orders = {**self._orders, "variables": {**port, **self._orders["variables"]}}
        outcome = b""
        status = None
        connection.settimeout(None)  # the function may be large, and its call may take any time
        with contextlib.suppress(OSError):
            link.send(json.dumps(orders).encode())
            link.send(self._payload)
            with self._changed:
                self._links[rank] = link
            while status is None:
                message = link.receive()
                kind, body = message[:1], message[1:]
                if kind == spark_task.OUTCOME:
                    outcome = body
                elif kind == spark_task.ENDED:
                    status = int(body)
                else:
                    self._output.write(rank, kind == spark_task.ERRORS, body)
        self._output.finish(rank)
        self._record(rank, place["host"], outcome, status)

    def _record(self, rank, host, outcome, status):
        kind, body = outcome[:1], outcome[1:]
        with self._changed:
            if kind == rank_process.RESULT:
                self._results[rank] = body
            elif kind:
                self._failures.append((kind == rank_process.CONSEQUENCE, rank_error.decode(rank, body)))
            elif status is None:
                self.lost = self.lost or not self._is_over
                text = f"rank {rank} on {host} was lost: its Spark task ended without a result (executor killed?)"
                self._failures.append((False, rank_error.JobFailed(text, rank)))
            else:
                text = f"rank {rank} on {host} {_status_text(status)}"
                self._failures.append((False, rank_error.JobFailed(text, rank)))
            self._changed.notify_all()

    def wait(self, stage: _Stage, deadline: float, start_timeout: float) -> list[Any]:
        """Waits for the results of all ranks, and returns them by rank."""
        give_up_at = None
        while True:
            with self._changed:
                self._changed.wait(0.1)
                cause = next((error for consequence, error in self._failures if not consequence), None)
                failed, missing = bool(self._failures), self._count - len(self._places)
                done = len(self._results) == self._count
            if cause:
                raise cause
            if failed:
                give_up_at = give_up_at or time.monotonic() + rendezvous.CAUSE_SECONDS
                if time.monotonic() > give_up_at:
                    raise self._failures[0][1]
            elif done:
                return [
                    serialization.loads(self._results[rank], f"the result of rank {rank}")
                    for rank in range(self._count)
                ]
            elif stage.is_over() and stage.error is not None:
                raise RuntimeError(f"Spark could not run the ranks: {stage.error}") from stage.error
            elif missing and time.monotonic() > deadline:
                raise TimeoutError(
                    f"{missing} of {self._count} tasks did not start within {start_timeout:g} s (start_timeout): "
                    "other jobs may have their slots, or the executors cannot reach the driver"
                )

    def end(self) -> None:
        """Ends the ranks that still run."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            links = list(self._links.values())
        for link in links:
            with contextlib.suppress(OSError):
                link.send(b"end")


def _status_text(status):
    if status >= 0:
        return f"ended with exit code {status} before the function returned"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class _Output:
    """Prints the output of the ranks in whole lines with the tag of the rank, as horarun does."""

    def __init__(self, stdout, stderr, with_time):
        self._files = stdout, stderr
        self._with_time = with_time
        self._lock = threading.Lock()
        self._rest = {}  # (rank, whether stderr) -> an incomplete line

    def write(self, rank, is_error, data):
        *lines, rest = (self._rest.get((rank, is_error), b"") + data).split(b"\n")
        self._rest[rank, is_error] = rest
        for line in lines:
            self._print(rank, is_error, line)

    def finish(self, rank):
        for is_error in (False, True):
            rest = self._rest.pop((rank, is_error), b"")
            if rest:
                self._print(rank, is_error, rest)

    def _print(self, rank, is_error, line):
        file = self._files[is_error] or (sys.stderr if is_error else sys.stdout)
        stamp = time.strftime("%a %b %d %H:%M:%S %Y") if self._with_time else ""
        name = "stderr" if is_error else "stdout"
        with self._lock:
            file.write(f"{stamp}[{rank}]<{name}>:{line.decode(errors='replace')}\n")
            file.flush()
