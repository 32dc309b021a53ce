# SPDX-License-Identifier: Apache-2.0
"""A process of an engine (an actor of Ray, a task of Spark) as one host of an elastic job: it tells the
driver that it is there, and runs the commands that the job has for its host. See hora.members."""

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

# First bytes of what the driver says: a command line, its input (empty: the end of it), that it is not wanted
# any more.
RUN, INPUT, CANCEL = b"R", b"I", b"C"
# And of what the member says: what the command wrote, and the status with which it ended.
OUTPUT, ERRORS, ENDED = b"1", b"2", b"X"

# How long a command whose input has ended may take to clean up before it is killed.
_END_SECONDS = 20
_CONNECT_SECONDS = 30


def serve(address: str, port: int, key: bytes, place: dict[str, Any], environment: dict[str, str]) -> None:
    """Runs commands until the driver has no more for this process, or is gone. `place` is what the driver
    is to know of it, `environment` that of the commands."""
    with socket.create_connection((address, port), timeout=_CONNECT_SECONDS) as connection:
        watch_peer(connection)
        link = channel.Channel(connection, key, is_server=False)
        link.send(json.dumps(place).encode())
        connection.settimeout(None)
        with contextlib.suppress(OSError):  # the driver has gone
            _follow(link, environment)


def watch_peer(connection: socket.socket) -> None:
    """Makes a connection end when the other machine is gone without a word."""
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
        self._speaking = threading.Lock()
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
        self._listeners = [threading.Thread(target=self._hand_on, args=each, daemon=True) for each in pipes]
        for listener in self._listeners:
            listener.start()
        threading.Thread(target=self._feed, daemon=True).start()
        threading.Thread(target=self._tell_end, daemon=True).start()

    def take(self, data):
        self._input.put(data)

    def _feed(self):
        with contextlib.suppress(OSError), self._process.stdin as pipe:  # it reads no more: its end will say why
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

    def _say(self, message):
        with self._speaking, contextlib.suppress(OSError):
            self._link.send(message)

    def _hand_on(self, kind, pipe):
        with pipe:
            while True:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    return
                self._say(kind + data)

    def _tell_end(self):
        status = self._process.wait()
        for listener in self._listeners:
            listener.join(_END_SECONDS)  # others may hold its pipes open
        self._say(ENDED + str(status if status >= 0 else 128 - status).encode())
