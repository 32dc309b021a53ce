# SPDX-License-Identifier: Apache-2.0
"""The driver's side of elastic jobs whose ranks run in processes of an engine: each of these processes (a
member, see hora.member) connects to the driver, and is a host with one slot for horarun. The discovery
command that horarun runs prints the members; the command that it uses instead of ssh reaches them."""

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

from hora import desk, member, member_shell, stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hora import channel

# How long a member whose command was cancelled waits for the next one: an agent that arrived damaged is
# sent once more.
_AGAIN_SECONDS = 5
_REQUEST_SECONDS = 30
_LOST = b"255 this process has ended"


class _Member:
    """One of them, by the name under which horarun knows it."""

    def __init__(self, name, link, connection):
        self.name, self.link, self.connection = name, link, connection
        self.speaking = threading.Lock()
        self.call: _Call | None = None
        self.idle_since: float | None = None  # since it had a command

    def say(self, message):
        with self.speaking, contextlib.suppress(OSError):  # talk() learns that it is gone
            self.link.send(message)


class _Call:
    """A command on a member, and the process of member_shell that stands for it here with its streams."""

    def __init__(self, shell, streams):
        self.shell, self.input = shell, streams[0]
        self._streams = streams
        self._writing = threading.Lock()

    def write(self, kind, data):
        with self._writing, contextlib.suppress(OSError):  # horarun listens no more
            while data and self._streams:
                stream = self._streams[1 if kind == member.OUTPUT else 2]
                data = data[os.write(stream, data) :]

    def answer(self, text):
        with contextlib.suppress(OSError):  # horarun has given it up
            self.shell.send(text)

    def close(self):
        with self._writing:
            streams, self._streams = self._streams, []
        for stream in streams:
            os.close(stream)


class Members(desk.Desk):
    """The members that are there, from the start until close()."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._members: dict[str, _Member] = {}
        self._count = 0
        with tempfile.TemporaryFile() as file:
            self._list = os.dup(file.fileno())
        self._shell_name = "hora-members-" + secrets.token_hex(16)
        self._shells = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._shells.bind("\0" + self._shell_name)
        self._shells.listen(128)
        self._answering = threading.Thread(target=self._answer, daemon=True)
        self._answering.start()
        super().__init__(everywhere=True)

    def options(self) -> list[str]:
        """The words that make horarun find and reach the members."""
        # Through this process's own descriptor: the file has no name, so nothing is left of it.
        listing = f"exec /bin/cat /proc/{os.getpid()}/fd/{self._list}"
        python = f"{shlex.quote(sys.executable)} -IS {shlex.quote(os.path.abspath(member_shell.__file__))}"
        return [
            "--host-discovery-script",
            listing,
            "--rsh",
            f"{python} {self._shell_name} {{host}} {{command}}",
        ]

    def count(self) -> int:
        """How many members are connected."""
        with self._changed:
            return len(self._members)

    def total(self) -> int:
        """How many have come since the start."""
        with self._changed:
            return self._count

    def wait_for_change(self, seconds: float) -> None:
        """Blocks until a member comes or goes, at most this many seconds."""
        with self._changed:
            self._changed.wait(seconds)

    def retire_idle(self) -> None:
        """Lets those go that have run a command: horarun calls a host whose agent has ended no more."""
        now = time.monotonic()
        with self._changed:
            known = list(self._members.values())
        for each in known:
            if each.call is None and each.idle_since is not None and now - each.idle_since > _AGAIN_SECONDS:
                self._remove(each)

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        """Serves one member until it disconnects."""
        place = json.loads(link.receive())
        connection.settimeout(None)
        member.watch_peer(connection)
        with self._changed:
            self._count += 1
            # A name that is never used again: horarun does not go back to a host that has failed.
            joined = _Member(f"{place['node'].replace(':', '-')}-{self._count}", link, connection)
            self._members[joined.name] = joined
            self._write_list()
        try:
            while True:
                message = link.receive()
                kind, body = message[:1], message[1:]
                call = joined.call
                if call is None:
                    continue  # the last words of a command that was cancelled
                if kind == member.ENDED:
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
            if self._members.pop(leaving.name, None) is None:
                return
            self._write_list()
        with contextlib.suppress(OSError):
            leaving.connection.shutdown(socket.SHUT_RD)

    def _write_list(self):
        """Called with the lock. A new file in the old one's place: a reader sees either."""
        with tempfile.TemporaryFile() as file:
            file.write("".join(f"{name}:1\n" for name in self._members).encode())
            file.flush()
            os.dup2(file.fileno(), self._list)
        self._changed.notify_all()

    # --- horarun's side ---

    def _answer(self):
        while True:
            try:
                shell, _ = self._shells.accept()
            except OSError:
                return  # the end
            threading.Thread(target=self._serve_shell, args=(shell,), daemon=True).start()

    def _serve_shell(self, shell):
        with shell, contextlib.suppress(OSError):
            if not stand_in.is_own_user(shell):
                return
            shell.settimeout(_REQUEST_SECONDS)
            host, streams = _receive_request(shell)
            with contextlib.closing(_Call(shell, streams)) as call:
                self._serve_call(call, host)

    def _serve_call(self, call, host):
        line = b"".join(iter(lambda: call.shell.recv(65536), b""))
        with self._changed:
            chosen = self._members.get(host)
            if chosen is None or chosen.call is not None:
                return call.answer(f"255 {host} is not there any more".encode())
            chosen.call = call
        try:
            chosen.say(member.RUN + line)
            _pass_input(call, chosen)
        finally:
            with self._changed:
                chosen.call = None
                chosen.idle_since = time.monotonic()
            chosen.say(member.CANCEL)

    def close(self) -> None:
        """Lets all members go."""
        with contextlib.suppress(OSError):
            self._shells.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._answering.join()
        self._shells.close()
        super().close()
        os.close(self._list)


def _receive_request(shell):
    """(host, [input, output, errors])"""
    room = socket.CMSG_SPACE(struct.calcsize("3i"))
    host, ancillary, _, _ = shell.recvmsg(4096, room)
    streams = [stream for _, _, data in ancillary for stream in struct.unpack(f"{len(data) // 4}i", data)]
    if len(streams) != 3:
        for stream in streams:
            os.close(stream)
        raise OSError("a request without streams")
    return host.decode(), streams


def _pass_input(call, chosen):
    """Until the shell ends: because the command has, or because horarun gave it up."""
    poll = select.poll()
    poll.register(call.input, select.POLLIN)
    poll.register(call.shell, select.POLLHUP)
    while True:
        for stream, events in poll.poll():
            if stream == call.shell.fileno():
                return
            data = os.read(stream, 65536)
            chosen.say(member.INPUT + data)
            if not data:
                poll.unregister(stream)
