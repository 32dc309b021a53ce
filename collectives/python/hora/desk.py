# SPDX-License-Identifier: Apache-2.0
"""Where the processes of a job report to the process that started it: a thread for each. Nobody is
heard who does not prove first that he has the job's key."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time

from hora import channel

# How long a connection that was hung up may take to end.
_END_SECONDS = 30

# Connections that may stand before the desk at one time without having shown the job's key. The one
# that has stood there longest is sent away for the next: a rank shows it as soon as it is connected.
_MOST_STRANGERS = 256


class Desk:
    """Listens from the start until close(). Who derives from it says in `talk` what is said."""

    def __init__(self, everywhere: bool) -> None:
        self.key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("", 0) if everywhere else ("127.0.0.1", 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self._served: dict[socket.socket, threading.Thread] = {}
        self._strangers: dict[socket.socket, bool] = {}  # connections that have not shown the key, the oldest first
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        """The conversation with one that has the key; closes the connection by returning."""
        raise NotImplementedError

    def _accept(self):
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # The end; or no descriptor is left, and a stranger has to go.
                if not self._closing and not self._send_one_away():
                    time.sleep(0.1)
                continue
            with self._lock:
                crowded = len(self._strangers) >= _MOST_STRANGERS
                self._strangers[connection] = True
            if crowded:
                self._send_one_away()
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._served[connection] = thread
            thread.start()

    def _send_one_away(self):
        with self._lock:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return False
            del self._strangers[oldest]
            thread = self._served.get(oldest)
            _hang_up(oldest)
        if thread is not None:
            thread.join(_END_SECONDS)  # which closes it
        return True

    def _serve(self, connection):
        try:
            with connection, contextlib.suppress(OSError, channel.ChannelError):
                self._greet(connection)
        finally:
            with self._lock:
                self._served.pop(connection, None)
                self._strangers.pop(connection, None)

    def _greet(self, connection):
        link = channel.Channel(connection, self.key, is_server=True, timeout=30)
        with self._lock:
            if self._strangers.pop(connection, None) is None:
                return  # it was sent away in this moment
        self.talk(connection, link)

    def close(self) -> None:
        """Closes all connections: the job has ended."""
        self._closing = True
        _hang_up(self._listener)  # wakes accept(), which close() does not
        self._accepting.join()
        self._listener.close()
        with self._lock:
            served = dict(self._served)
            for connection in served:
                _hang_up(connection)
        for thread in served.values():
            thread.join(_END_SECONDS)


def _hang_up(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
