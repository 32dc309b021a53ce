# SPDX-License-Identifier: Apache-2.0
"""Messages between two processes that share a key: each proves that it has the key, and every
message carries a code that only the key's holders can make. Nothing is encrypted."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_LENGTH = struct.Struct("<Q")
_DIGEST = hashlib.sha256().digest_size
_NONCE = 32
_MAX_MESSAGE = 1 << 40


class ChannelError(ConnectionError):
    """The other end does not have the key, or the connection broke."""


class Channel:
    """Ordered messages over a connected socket."""

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool, timeout: float = 30) -> None:
        self._socket = connection
        connection.settimeout(timeout)
        ours, theirs = (b"server", b"worker") if is_server else (b"worker", b"server")
        nonce = secrets.token_bytes(_NONCE)
        connection.sendall(nonce)
        session = nonce, self._read(_NONCE)
        first, second = session if is_server else session[::-1]
        self._key = hmac.new(key, b"hora channel" + first + second, hashlib.sha256).digest()
        self._ours, self._theirs = ours, theirs
        self._sent = self._received = 0
        # The worker sends first, so that an unauthenticated client gets nothing but a nonce.
        if is_server:
            self.receive()
            self.send(b"hello")
        else:
            self.send(b"hello")
            self.receive()

    def _code(self, side, number, body):
        head = side + _LENGTH.pack(number) + _LENGTH.pack(len(body))
        return hmac.new(self._key, head + body, hashlib.sha256).digest()

    def send(self, body: bytes) -> None:
        """Sends one message. Blocks until the kernel has taken it; OSError if the connection broke."""
        self._socket.sendall(_LENGTH.pack(len(body)) + self._code(self._ours, self._sent, body))
        self._socket.sendall(body)
        self._sent += 1

    def receive(self) -> bytes:
        """Waits for the next message. ChannelError if the connection ends, the message is too long, or its code is
        wrong; TimeoutError after the timeout of the socket."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        limit = _MAX_MESSAGE if self._received else 64  # until the key was proven
        if length > limit:
            raise ChannelError(f"the peer announced a message of {length} bytes; the limit is {limit}")
        code = self._read(_DIGEST)
        body = self._read(length)
        if not hmac.compare_digest(code, self._code(self._theirs, self._received, body)):
            raise ChannelError("a message has no valid authentication code")
        self._received += 1
        return body

    def _read(self, size):
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = self._socket.recv_into(view[done:], min(size - done, 1 << 20))
            if got == 0:
                raise ChannelError("the connection was closed")
            done += got
        return bytes(data)
