# SPDX-License-Identifier: Apache-2.0
"""The part of a rank in its Spark task: gets the function from the driver, runs it in a process of its own, forwards
the output of that process, and reports its outcome to the driver.

The process belongs to this rank alone: nothing of one run is left in Spark's workers for the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from hora import channel, elastic_job, engine_host, rendezvous

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

GPU_VARIABLE = "HORA_SPARK_GPUS"

# First byte of a message to the driver. Output of the rank follows OUTPUT and ERRORS, the file that hora.rank_process
# wrote follows OUTCOME, the exit status follows ENDED.
OUTPUT, ERRORS, OUTCOME, ENDED = b"1", b"2", b"O", b"X"

# How long to wait for the output of processes that the rank has started and that still run.
_LAST_OUTPUT_SECONDS = 5


def run_rank(address: str, port: int, key: bytes, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a barrier task. It returns nothing to Spark, and does not fail where its rank fails: Spark would
    start all tasks again. (Where Spark does so because it lost an executor, the driver ignores the new tasks.)"""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    hosts = [info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()]
    places = rendezvous.assign_ranks(hosts)
    place = places[context.partitionId()]
    first = next(each for each in places if each.rank == 0)
    gpu = context.resources().get("gpu")
    with socket.create_connection((address, port), timeout=30) as connection:
        link = channel.Channel(connection, key, is_server=False)
        link.send(json.dumps({**vars(place), "pid": os.getpid(), "free_port": rendezvous.free_port()}).encode())
        connection.settimeout(None)
        orders = json.loads(link.receive())
        variables = {**place.environment(), "MASTER_ADDR": first.host, **orders["variables"]}
        if gpu is not None:
            variables[GPU_VARIABLE] = ",".join(gpu.addresses)
        _Rank(link, variables, orders["executable"] or sys.executable).run(link.receive())
    return iter(())


def run_host(server: tuple[str, int, bytes], executable: str | None, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a task of an elastic job: a host on which horarun starts ranks."""
    from pyspark import TaskContext

    variables = {**_own_variables(), elastic_job.PYTHON_VARIABLE: executable or sys.executable}
    gpu = TaskContext.get().resources().get("gpu")
    if gpu is not None:
        variables[GPU_VARIABLE] = ",".join(gpu.addresses)
    engine_host.serve(*server, {"node": socket.gethostname()}, variables)
    return iter(())


def _own_variables():
    # Spark puts files that the user sends along on the module path of its workers only.
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}


class _Rank:
    def __init__(self, link, variables, executable):
        self._link = link
        self._sending = threading.Lock()
        self._variables = {**_own_variables(), **variables}
        self._executable = executable

    def run(self, function):
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as outcome:
            given.write(function)
            given.seek(0)
            numbers = [given.fileno(), outcome.fileno()]
            process = subprocess.Popen(
                [self._executable, "-m", "hora.rank_process", str(os.getpid()), *map(str, numbers)],
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=numbers,
                start_new_session=True,  # what it starts ends with it
            )
            try:
                threading.Thread(target=self._end_on_order, args=(process,), daemon=True).start()
                readers = [
                    threading.Thread(target=self._forward, args=(kind, pipe), daemon=True)
                    for kind, pipe in ((OUTPUT, process.stdout), (ERRORS, process.stderr))
                ]
                for reader in readers:
                    reader.start()
                status = process.wait()
            finally:
                _kill_group(process)
                process.wait()
            for reader in readers:
                reader.join(_LAST_OUTPUT_SECONDS)
            outcome.seek(0)
            with contextlib.suppress(OSError):  # the driver has ended
                self._send(OUTCOME, outcome.read())
                self._send(ENDED, str(status).encode())

    def _send(self, kind, body):
        with self._sending:
            self._link.send(kind + body)

    def _forward(self, kind, pipe):
        with pipe, contextlib.suppress(OSError):
            while True:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    return
                self._send(kind, data)

    def _end_on_order(self, process):
        """Waits for the last message of the driver, which ends the rank; so does the end of the driver."""
        with contextlib.suppress(OSError):
            self._link.receive()
        _kill_group(process)


def _kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
