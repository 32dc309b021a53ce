# SPDX-License-Identifier: Apache-2.0
"""A process that stands for a rank. horarun starts it where the rank has to run in a process that exists already, such
as an actor of Ray. The proxy sends its environment to that process, lives as long as the rank does, and exits with
its code. If the proxy is killed, that process ends."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import struct
import sys
import threading
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The variable that names the socket of the process.
VARIABLE = "HORA_RANK_PROXY"

_LENGTH = struct.Struct("<Q")
_CONNECT_SECONDS = 30
_LONGEST = 64 << 20
# The process keeps its own values of these: it has loaded what they name.
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "HORA_LIBRARY")


def main() -> None:
    """Gives this process's environment to the process that runs the rank, and exits with its code."""
    with socket.socket(socket.AF_UNIX) as process:
        process.settimeout(_CONNECT_SECONDS)
        process.connect("\0" + os.environ[VARIABLE])
        environment = json.dumps(dict(os.environ)).encode()
        process.sendall(_LENGTH.pack(len(environment)) + environment)
        process.settimeout(None)
        code = process.recv(16)
    if not code:
        sys.exit("the process of this rank has ended")
    sys.exit(int(code))


class ProxyListener:
    """The end in the process of the rank: waits for a proxy."""

    def __init__(self) -> None:
        self._name = "hora-rank-" + secrets.token_hex(16)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self._name)
        self._listener.listen(1)
        self._ended, self._end = os.pipe()

    def variables(self) -> dict[str, str]:
        """The environment with which a proxy finds this listener."""
        return {VARIABLE: self._name}

    def end(self) -> None:
        """Ends serve(): no proxy will connect any more. Call it once, from any thread."""
        os.close(self._end)

    def serve(self, work: Callable[[], str | int]) -> None:
        """Calls work() in this thread with the environment of the first proxy, which exits with the code that work()
        returns. Later proxies are refused: the runtime of this process belongs to the first rank."""
        has_run = False
        while True:
            ready, _, _ = select.select([self._listener.fileno(), self._ended], [], [])
            if self._ended in ready:
                return
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                if not has_run and is_own_user(connection):
                    has_run = True
                    _run(connection, work)

    def close(self) -> None:
        """Closes the socket."""
        self._listener.close()
        os.close(self._ended)


def is_own_user(connection: socket.socket) -> bool:
    """Whether the process at the other end of a local socket belongs to this one's user."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user == os.getuid()


def _run(connection, work):
    connection.settimeout(_CONNECT_SECONDS)
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    given = json.loads(_read(connection, min(length, _LONGEST)))
    connection.settimeout(None)
    os.environ.update({name: value for name, value in given.items() if name not in _KEPT})
    done = threading.Event()
    threading.Thread(target=_end_with, args=(connection, done), daemon=True).start()
    try:
        code = work()
    except SystemExit as left:  # the job continues without this rank
        code = left.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    done.set()
    connection.sendall(str(code if isinstance(code, int) else 1).encode())


def _read(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("a rank proxy has ended")
        data += part
    return data


def _end_with(connection, done):
    with contextlib.suppress(OSError):
        connection.recv(1)
    if not done.is_set():
        os._exit(1)  # the rank may be anywhere


if __name__ == "__main__":
    main()
