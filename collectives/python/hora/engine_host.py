# SPDX-License-Identifier: Apache-2.0
"""A process of an engine (an actor of Ray, a task of Spark) as one host of an elastic job: it connects to the driver,
and runs the commands that the job has for its host. See hora.engine_hosts."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading

from hora import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# First byte of a message from the driver: a command line, its input (empty: end of input), or its cancellation.
RUN, INPUT, CANCEL = b"R", b"I", b"C"
# First byte of a message to the driver: what the command wrote, or its exit status.
OUTPUT, ERRORS, ENDED = b"1", b"2", b"X"

# How long a command whose input has ended may take to clean up before it is killed.
_END_SECONDS = 20
_CONNECT_SECONDS = 30


def serve(address: str, port: int, key: bytes, place: dict[str, Any], environment: dict[str, str]) -> None:
    """Runs commands until the driver needs this process no more, or has ended. `place` describes the process to the
    driver; the commands run with `environment`."""
    with socket.create_connection((address, port), timeout=_CONNECT_SECONDS) as connection:
        watch_peer(connection)
        link = channel.Channel(connection, key, is_server=False)
        link.send(json.dumps(place).encode())
        connection.settimeout(None)
        with contextlib.suppress(OSError):  # the driver has ended
            _follow(link, environment)


def watch_peer(connection: socket.socket) -> None:
    """Makes a connection fail within 30 seconds after the other machine is lost (TCP keepalive)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _follow(link, environment):
    command = None
    try:
        while True:
            message = link.receive()
            kind, body = message[:1], message[1:]
            if kind == RUN:
                if command is not None:
                    command.end()
                command = _Command(link, body, environment)
            elif command is not None and kind == INPUT:
                command.take(body)
            elif command is not None and kind == CANCEL:
                command.end()
                command = None
    finally:
        if command is not None:
            command.end()


class _Command:
    """A command line in a process group of its own."""

    def __init__(self, link, line, environment):
        self._link = link
        self._sending = threading.Lock()
        self._input: queue.Queue[bytes] = queue.Queue()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pipes = ((OUTPUT, self._process.stdout), (ERRORS, self._process.stderr))
        self._readers = [threading.Thread(target=self._forward, args=each, daemon=True) for each in pipes]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._feed, daemon=True).start()
        threading.Thread(target=self._report_end, daemon=True).start()

    def take(self, data):
        self._input.put(data)

    def _feed(self):
        with contextlib.suppress(
            OSError
        ), self._process.stdin as pipe:  # the command reads no more; its exit status will say why
            while True:
                data = self._input.get()
                if not data:
                    return
                pipe.write(data)
                pipe.flush()

    def end(self):
        """An agent whose input has ended ends its ranks, and then itself."""
        self.take(b"")
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _send(self, message):
        with self._sending, contextlib.suppress(OSError):
            self._link.send(message)

    def _forward(self, kind, pipe):
        with pipe:
            while True:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    return
                self._send(kind + data)

    def _report_end(self):
        status = self._process.wait()
        for reader in self._readers:
            reader.join(_END_SECONDS)  # others may hold its pipes open
        self._send(ENDED + str(status if status >= 0 else 128 - status).encode())
