# SPDX-License-Identifier: Apache-2.0
"""A server that the processes of a job report to, with a thread for each connection. A client has to prove that it
has the key of the job before anything that it sends is read."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time

from hora import channel

# How long the thread of a closed connection may take to end.
_END_SECONDS = 30

# How many connections may be open without having proved the key. Above that the oldest is closed for each new one: a
# rank proves the key as soon as it is connected.
_MAX_UNAUTHENTICATED = 256


class AuthenticatedServer:
    """Listens from its creation until close(). Subclasses define `talk`."""

    def __init__(self, everywhere: bool) -> None:
        self.key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("", 0) if everywhere else ("127.0.0.1", 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self._served: dict[socket.socket, threading.Thread] = {}
        self._unauthenticated: dict[socket.socket, bool] = {}  # have not proved the key, oldest first
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        """Serves an authenticated client. The connection is closed when this returns."""
        raise NotImplementedError

    def _accept(self):
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # close() was called; or no descriptor is left, and an unauthenticated client has to go.
                if not self._closing and not self._close_oldest():
                    time.sleep(0.1)
                continue
            with self._lock:
                crowded = len(self._unauthenticated) >= _MAX_UNAUTHENTICATED
                self._unauthenticated[connection] = True
            if crowded:
                self._close_oldest()
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._served[connection] = thread
            thread.start()

    def _close_oldest(self):
        with self._lock:
            oldest = next(iter(self._unauthenticated), None)
            if oldest is None:
                return False
            del self._unauthenticated[oldest]
            thread = self._served.get(oldest)
            _shut_down(oldest)
        if thread is not None:
            thread.join(_END_SECONDS)  # which closes it
        return True

    def _serve(self, connection):
        try:
            with connection, contextlib.suppress(OSError, channel.ChannelError):
                self._authenticate(connection)
        finally:
            with self._lock:
                self._served.pop(connection, None)
                self._unauthenticated.pop(connection, None)

    def _authenticate(self, connection):
        link = channel.Channel(connection, self.key, is_server=True, timeout=30)
        with self._lock:
            if self._unauthenticated.pop(connection, None) is None:
                return  # _close_oldest() has just chosen it
        self.talk(connection, link)

    def close(self) -> None:
        """Closes all connections: the job has ended."""
        self._closing = True
        _shut_down(self._listener)  # wakes accept(), which close() does not
        self._accepting.join()
        self._listener.close()
        with self._lock:
            served = dict(self._served)
            for connection in served:
                _shut_down(connection)
        for thread in served.values():
            thread.join(_END_SECONDS)


def _shut_down(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
