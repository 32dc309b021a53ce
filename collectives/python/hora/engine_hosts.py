# SPDX-License-Identifier: Apache-2.0
"""The driver's side of elastic jobs whose ranks run in processes of an engine. Each of these processes (see
hora.engine_host) connects to the driver and is a host with one slot for horarun. The discovery command that horarun
runs prints these hosts; the command that it uses instead of ssh reaches them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shlex
import socket
import struct
import sys
import tempfile
import threading
import time

from hora import authenticated_server, engine_host, engine_host_shell, rank_proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hora import channel

# How long a host whose command was cancelled waits for the next one: an agent that arrived damaged is sent again.
_AGAIN_SECONDS = 5
_REQUEST_SECONDS = 30
_LOST = b"255 this process has ended"


class _Host:
    """A connected process, with its host name for horarun."""

    def __init__(self, name, link, connection):
        self.name, self.link, self.connection = name, link, connection
        self.sending = threading.Lock()
        self.call: _Call | None = None
        self.idle_since: float | None = None  # since it had a command

    def send(self, message):
        with self.sending, contextlib.suppress(OSError):  # talk() notices the loss
            self.link.send(message)


class _Call:
    """A command on a host, and the process of engine_host_shell that stands for it here, with its streams."""

    def __init__(self, shell, streams):
        self.shell, self.input = shell, streams[0]
        self._streams = streams
        self._writing = threading.Lock()

    def write(self, kind, data):
        with self._writing, contextlib.suppress(OSError):  # horarun reads no more
            while data and self._streams:
                stream = self._streams[1 if kind == engine_host.OUTPUT else 2]
                data = data[os.write(stream, data) :]

    def answer(self, text):
        with contextlib.suppress(OSError):  # horarun has cancelled it
            self.shell.send(text)

    def close(self):
        with self._writing:
            streams, self._streams = self._streams, []
        for stream in streams:
            os.close(stream)


class EngineHosts(authenticated_server.AuthenticatedServer):
    """The hosts that are connected, from the creation of this object until close()."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._hosts: dict[str, _Host] = {}
        self._count = 0
        with tempfile.TemporaryFile() as file:
            self._list = os.dup(file.fileno())
        self._shell_name = "hora-hosts-" + secrets.token_hex(16)
        self._shells = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._shells.bind("\0" + self._shell_name)
        self._shells.listen(128)
        self._answering = threading.Thread(target=self._answer, daemon=True)
        self._answering.start()
        super().__init__(everywhere=True)

    def options(self) -> list[str]:
        """The options that make horarun find and reach the hosts."""
        # By a descriptor of this process: the file has no name, so it never has to be removed.
        listing = f"exec /bin/cat /proc/{os.getpid()}/fd/{self._list}"
        python = f"{shlex.quote(sys.executable)} -IS {shlex.quote(os.path.abspath(engine_host_shell.__file__))}"
        return [
            "--host-discovery-script",
            listing,
            "--rsh",
            f"{python} {self._shell_name} {{host}} {{command}}",
        ]

    def count(self) -> int:
        """How many hosts are connected."""
        with self._changed:
            return len(self._hosts)

    def total(self) -> int:
        """How many have connected since the start."""
        with self._changed:
            return self._count

    def wait_for_change(self, seconds: float) -> None:
        """Blocks until a host connects or disconnects, at most this many seconds."""
        with self._changed:
            self._changed.wait(seconds)

    def retire_idle(self) -> None:
        """Disconnects hosts whose command has ended: horarun does not use a host again whose agent has ended."""
        now = time.monotonic()
        with self._changed:
            known = list(self._hosts.values())
        for each in known:
            if each.call is None and each.idle_since is not None and now - each.idle_since > _AGAIN_SECONDS:
                self._remove(each)

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        """Serves one host until it disconnects."""
        place = json.loads(link.receive())
        connection.settimeout(None)
        engine_host.watch_peer(connection)
        with self._changed:
            self._count += 1
            # A new name each time: horarun does not use a host again that has failed.
            joined = _Host(f"{place['node'].replace(':', '-')}-{self._count}", link, connection)
            self._hosts[joined.name] = joined
            self._write_list()
        try:
            while True:
                message = link.receive()
                kind, body = message[:1], message[1:]
                call = joined.call
                if call is None:
                    continue  # output of a command that was cancelled
                if kind == engine_host.ENDED:
                    self._remove(joined)
                    call.answer(body)
                else:
                    call.write(kind, body)
        finally:
            self._remove(joined)
            if joined.call is not None:
                joined.call.answer(_LOST)

    def _remove(self, leaving):
        with self._changed:
            if self._hosts.pop(leaving.name, None) is None:
                return
            self._write_list()
        with contextlib.suppress(OSError):
            leaving.connection.shutdown(socket.SHUT_RD)

    def _write_list(self):
        """Called with the lock held. Replaces the file, so that a reader sees the old list or the new one."""
        with tempfile.TemporaryFile() as file:
            file.write("".join(f"{name}:1\n" for name in self._hosts).encode())
            file.flush()
            os.dup2(file.fileno(), self._list)
        self._changed.notify_all()

    # --- horarun's side ---

    def _answer(self):
        while True:
            try:
                shell, _ = self._shells.accept()
            except OSError:
                return  # close() was called
            threading.Thread(target=self._serve_shell, args=(shell,), daemon=True).start()

    def _serve_shell(self, shell):
        with shell, contextlib.suppress(OSError):
            if not rank_proxy.is_own_user(shell):
                return
            shell.settimeout(_REQUEST_SECONDS)
            host, streams = _receive_request(shell)
            with contextlib.closing(_Call(shell, streams)) as call:
                self._serve_call(call, host)

    def _serve_call(self, call, host):
        line = b"".join(iter(lambda: call.shell.recv(65536), b""))
        with self._changed:
            chosen = self._hosts.get(host)
            if chosen is None or chosen.call is not None:
                return call.answer(f"255 {host} is not connected any more".encode())
            chosen.call = call
        try:
            chosen.send(engine_host.RUN + line)
            _pass_input(call, chosen)
        finally:
            with self._changed:
                chosen.call = None
                chosen.idle_since = time.monotonic()
            chosen.send(engine_host.CANCEL)

    def close(self) -> None:
        """Disconnects all hosts."""
        with contextlib.suppress(OSError):
            self._shells.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._answering.join()
        self._shells.close()
        super().close()
        os.close(self._list)


def _receive_request(shell):
    """(host, [input, output, errors])"""
    size = socket.CMSG_SPACE(struct.calcsize("3i"))
    host, ancillary, _, _ = shell.recvmsg(4096, size)
    streams = [stream for _, _, data in ancillary for stream in struct.unpack(f"{len(data) // 4}i", data)]
    if len(streams) != 3:
        for stream in streams:
            os.close(stream)
        raise OSError("a request without streams")
    return host.decode(), streams


def _pass_input(call, chosen):
    """Until the shell ends, because the command has ended or horarun has cancelled it."""
    poll = select.poll()
    poll.register(call.input, select.POLLIN)
    poll.register(call.shell, select.POLLHUP)
    while True:
        for stream, events in poll.poll():
            if stream == call.shell.fileno():
                return
            data = os.read(stream, 65536)
            chosen.send(engine_host.INPUT + data)
            if not data:
                poll.unregister(stream)
