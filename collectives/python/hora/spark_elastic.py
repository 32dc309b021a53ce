# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs inside of Spark: each rank belongs to a task, and each task is a Spark job of its own, so that the
others do not wait for a task that is lost or has no slot yet."""

from __future__ import annotations

import functools
import secrets
import socket
import threading

from hora import elastic_job, spark_job, spark_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_END_SECONDS = 10


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls fn(*args, **kwargs) on ranks in tasks of Spark, whose number may change while the job runs.

    fn uses hvd.elastic.run. Returns the results by rank, of the ranks that there were at the end. Blocks until the job
    has ended.

    Args:
        num_proc: the number of ranks at the start. Default: Spark's default parallelism
        min_num_proc: the smallest number of ranks. Default: num_proc
        max_num_proc: the largest number of ranks. Default: the number of slots
        start_timeout: seconds for Spark to start num_proc tasks. Default: HOROVOD_SPARK_START_TIMEOUT, or 600
        elastic_timeout: seconds to find min_num_proc slots after a change. Default: HOROVOD_ELASTIC_TIMEOUT, or 600
        reset_limit: how often the ranks may change; one more change ends the job
        the others: see run()

    Raises what run() raises.
    """
    context = spark_job.need_context("run_elastic")
    count = context.defaultParallelism if num_proc is None else num_proc
    if num_proc is None:
        # What the caller has bounded, the default does not contradict.
        count = max(min_num_proc or 1, min(count, max_num_proc or count))
    limits = elastic_job.Limits(
        count, min_num_proc, max_num_proc, spark_job.start_seconds(start_timeout), elastic_timeout, reset_limit
    )
    options = ["--prefix-output-with-timestamp"] if prefix_output_with_timestamp else []
    if nics:
        options += ["--network-interfaces", sorted([nics] if isinstance(nics, str) else nics)[0]]
    address = context.getConf().get("spark.driver.host") or socket.gethostname()
    program = ["/bin/sh", "-c", f'exec "${elastic_job.PYTHON_VARIABLE}" -m hora.launch_worker']
    return elastic_job.run(
        _Tasks(context, executable), address, (fn, args, kwargs), program, limits, options, env, stdout, stderr
    )


class _Tasks(elastic_job.Engine):
    def __init__(self, context, executable):
        self._context, self._executable = context, executable
        self._group = "hora-" + secrets.token_hex(8)
        self._jobs: list[threading.Thread] = []
        self._error = ""

    def start(self, count: int, server: tuple[str, int, bytes]) -> None:
        for _ in range(count):
            job = threading.Thread(target=self._run, args=(server,), daemon=True)
            self._jobs.append(job)
            job.start()

    def _run(self, server):
        task = functools.partial(spark_task.run_host, server, self._executable)
        try:
            self._context.setJobGroup(self._group, "horovod.spark.run_elastic", interruptOnCancel=True)
            self._context.parallelize([0], 1).mapPartitions(task).collect()
        except Exception as error:  # usually because an executor was lost
            self._error = str(error)

    def alive(self) -> int:
        self._jobs = [job for job in self._jobs if job.is_alive()]
        return len(self._jobs)

    def capacity(self) -> int:
        return spark_job.slots(self._context)

    def status(self) -> str:
        text = f"Spark runs {self.capacity()} tasks at the same time (executors x cores / spark.task.cpus, or GPUs)"
        return f"{text}; the last one failed: {self._error}" if self._error else text

    def close(self) -> None:
        """Tasks return once the driver no longer serves them; those without a slot are cancelled."""
        self._context.cancelJobGroup(self._group)
        for job in self._jobs:
            job.join(_END_SECONDS)
