# SPDX-License-Identifier: Apache-2.0
"""The registry of a data service, a server in rank 0 of its job: processes of the service and the trainings that use
it find the dispatchers there, and are informed when the service ends. Both sides prove that they have the key of the
service, which itself does not cross the network, and every message carries a code made with it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

from hora import authenticated_server, channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# How long a request may wait for its answer; the client repeats it then.
_REQUEST_SECONDS = 10
_LONGEST_ADDRESS = 512


class Registry(authenticated_server.AuthenticatedServer):
    """The server; runs until close(). Each connection carries one request, {"ask": WORD, ...}, and its reply:
    {"address": TEXT}, {"ended": true}, {"refused": WHY}, or {} if there is no answer yet."""

    def __init__(self, dispatchers: int) -> None:
        self.dispatchers: dict[int, str] = {}
        self.ended = False
        self._count = dispatchers
        self._changed = threading.Condition()
        super().__init__(everywhere=True)

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        """Answers one request of a client."""
        question = json.loads(link.receive())
        link.send(json.dumps(self._answer(question)).encode())

    def _answer(self, question):
        word, index = question["ask"], question.get("index")
        if word == "wait":
            return self._wait_for(index)
        with self._changed:
            if word == "end":
                self.ended = True
            elif word == "register" and index in range(self._count) and len(question["address"]) <= _LONGEST_ADDRESS:
                self.dispatchers[index] = question["address"]
            else:
                return {"refused": f"there are the dispatchers 0 to {self._count - 1}"}
            self._changed.notify_all()
        return {}

    def _wait_for(self, index):
        with self._changed:
            self._changed.wait_for(lambda: self.ended or index in self.dispatchers, timeout=_REQUEST_SECONDS)
            if self.ended:
                return {"ended": True}
            return {"address": self.dispatchers[index]} if index in self.dispatchers else {}


class RegistryClient:
    """address is host:port of the registry, key in hexadecimal; timeout bounds each wait for a dispatcher."""

    def __init__(self, address: str, key: str, timeout: float) -> None:
        self.address, self._key, self.timeout = address, bytes.fromhex(key), timeout

    def register_dispatcher(self, index: int, address: str) -> None:
        """Makes the address of a dispatcher known to the clients."""
        self._ask(ask="register", index=index, address=address)

    def wait_for_dispatcher(self, index: int, end_with_service: bool = False) -> str:
        """The address of a dispatcher. With end_with_service it waits without a limit, because a training may start
        late, and returns "" once the service has ended; otherwise RuntimeError is raised then, and TimeoutError
        after the timeout.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._ask(ask="wait", index=index)
            if "address" in answer:
                return answer["address"]
            if "ended" in answer and end_with_service:
                return ""
            if "ended" in answer:
                raise RuntimeError(f"the data service at {self.address} has ended")
            if not end_with_service and time.monotonic() > deadline:
                raise TimeoutError(
                    f"dispatcher {index} of the data service at {self.address} did not start in {self.timeout:g} s"
                )

    def wait_for_shutdown(self) -> None:
        """Waits without a limit until the service is ended."""
        while "ended" not in self._ask(ask="wait", index=None):
            pass

    def shutdown(self) -> None:
        """Ends the service. It may have ended already."""
        with contextlib.suppress(ConnectionError):
            self._ask(ask="end")

    def _ask(self, **question: Any) -> dict[str, Any]:
        host, _, port = self.address.rpartition(":")
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=3 * _REQUEST_SECONDS)
        except OSError as error:
            raise ConnectionError(f"the data service at {self.address} does not answer: {error}") from None
        with connection:
            try:
                link = channel.Channel(connection, self._key, is_server=False, timeout=3 * _REQUEST_SECONDS)
            except channel.ChannelError:
                raise PermissionError(
                    f"the data service at {self.address} refused this key: is this its config file?"
                ) from None
            try:
                link.send(json.dumps(question).encode())
                answer = json.loads(link.receive())
            except OSError as error:
                raise ConnectionError(f"the data service at {self.address} does not answer: {error}") from None
        if "refused" in answer:
            raise ValueError(f"the data service at {self.address} refused {question}: {answer['refused']}")
        return answer
