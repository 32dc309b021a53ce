# SPDX-License-Identifier: Apache-2.0
"""What each task of Spark does for its rank: asks the driver for the function, runs it in a process of
its own, hands on what that prints, and tells the driver how it ended.

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

from hora import channel, elastic_job, meeting, member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

GPU_VARIABLE = "HORA_SPARK_GPUS"

# First bytes of what a task says. OUTPUT and ERRORS are followed by what the rank printed, OUTCOME by what
# hora.rank_process wrote, ENDED by the exit status.
OUTPUT, ERRORS, OUTCOME, ENDED = b"1", b"2", b"O", b"X"

# How long to wait for what other processes, which a rank started and left behind, may still print.
_LAST_WORDS_SECONDS = 5


def run_rank(address: str, port: int, key: bytes, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a barrier task. Nothing is returned by way of Spark, and a rank that fails is no
    failed task: Spark would start all of them again. (When it does, because it lost an executor, the
    driver does not talk to them.)"""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    hosts = [info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()]
    places = meeting.assign_places(hosts)
    place = places[context.partitionId()]
    first = next(each for each in places if each.rank == 0)
    gpu = context.resources().get("gpu")
    with socket.create_connection((address, port), timeout=30) as connection:
        link = channel.Channel(connection, key, is_server=False)
        link.send(json.dumps({**vars(place), "pid": os.getpid(), "free_port": meeting.free_port()}).encode())
        connection.settimeout(None)
        orders = json.loads(link.receive())
        variables = {**place.environment(), "MASTER_ADDR": first.host, **orders["variables"]}
        if gpu is not None:
            variables[GPU_VARIABLE] = ",".join(gpu.addresses)
        _Rank(link, variables, orders["executable"] or sys.executable).run(link.receive())
    return iter(())


def run_member(desk: tuple[str, int, bytes], executable: str | None, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a task of an elastic job: a place where horarun starts ranks."""
    from pyspark import TaskContext

    variables = {**_own_variables(), elastic_job.PYTHON_VARIABLE: executable or sys.executable}
    gpu = TaskContext.get().resources().get("gpu")
    if gpu is not None:
        variables[GPU_VARIABLE] = ",".join(gpu.addresses)
    member.serve(*desk, {"node": socket.gethostname()}, variables)
    return iter(())


def _own_variables():
    # Spark puts files that the user sends along on the module path of its workers only.
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}


class _Rank:
    def __init__(self, link, variables, executable):
        self._link = link
        self._speaking = threading.Lock()
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
                start_new_session=True,  # whatever it starts ends with it
            )
            try:
                threading.Thread(target=self._end_on_order, args=(process,), daemon=True).start()
                listeners = [
                    threading.Thread(target=self._hand_on, args=(kind, pipe), daemon=True)
                    for kind, pipe in ((OUTPUT, process.stdout), (ERRORS, process.stderr))
                ]
                for listener in listeners:
                    listener.start()
                status = process.wait()
            finally:
                _kill_group(process)
                process.wait()
            for listener in listeners:
                listener.join(_LAST_WORDS_SECONDS)
            outcome.seek(0)
            with contextlib.suppress(OSError):  # the driver has gone
                self._say(OUTCOME, outcome.read())
                self._say(ENDED, str(status).encode())

    def _say(self, kind, body):
        with self._speaking:
            self._link.send(kind + body)

    def _hand_on(self, kind, pipe):
        with pipe, contextlib.suppress(OSError):
            while True:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    return
                self._say(kind, data)

    def _end_on_order(self, process):
        """The driver says one more thing at most: that it is over. Its end says the same."""
        with contextlib.suppress(OSError):
            self._link.receive()
        _kill_group(process)


def _kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
