# SPDX-License-Identifier: Apache-2.0
"""Where the processes of a data service, and the trainings that use it, find its dispatchers and learn
of its end: an HTTP server in rank 0 of the service's job. Every request carries the service's key."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import http.server
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# One question waits at most so long; then the asker asks again.
_PATIENCE_S = 10
_LONGEST_ADDRESS = 512


class Registry:
    """The server. Serves until close()."""

    def __init__(self, dispatchers: int, key: str) -> None:
        self.dispatchers: dict[int, str] = {}
        self.ended = False
        self.changed = threading.Condition()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 2 * _PATIENCE_S

            def log_message(self, *words: Any) -> None:
                pass

            def answer(self, status, text=""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def may(self):
                if hmac.compare_digest(self.headers.get("Authorization", "").encode(), b"Bearer " + key.encode()):
                    return True
                self.answer(403)
                return False

            def do_GET(self):
                if not self.may():
                    return
                what = self.path.strip("/")
                found = registry.wait_for(int(what) if what.isdigit() else None)
                self.answer(410 if found is None else 200 if found else 404, found or "")

            def do_POST(self):
                if not self.may():
                    return
                what = self.path.strip("/")
                length = int(self.headers.get("Content-Length", 0))
                with registry.changed:
                    if what == "end":
                        registry.ended = True
                    elif what.isdigit() and int(what) < dispatchers and length <= _LONGEST_ADDRESS:
                        registry.dispatchers[int(what)] = self.rfile.read(length).decode()
                    else:
                        self.answer(400)
                        return
                    registry.changed.notify_all()
                self.answer(200)

        self._server = http.server.ThreadingHTTPServer(("", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="data-service", daemon=True)
        self._thread.start()

    def wait_for(self, index: int | None) -> str | None:
        """A dispatcher's address, "" if there is none for a while; None at the end of the service."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or index in self.dispatchers, timeout=_PATIENCE_S)
            return None if self.ended else self.dispatchers.get(index, "") if index is not None else ""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class RegistryClient:
    """address is host:port of the registry; timeout bounds each wait for a dispatcher."""

    def __init__(self, address: str, key: str, timeout: float) -> None:
        self.address, self._key, self.timeout = address, key, timeout

    def register_dispatcher(self, index: int, address: str) -> None:
        self._ask("POST", f"/{index}", address)

    def wait_for_dispatcher(self, index: int, end_with_service: bool = False) -> str:
        """Its address. "" when the service has ended meanwhile and that is no error; it then waits without a
        limit, because a training may come late."""
        deadline = time.monotonic() + self.timeout
        while True:
            status, text = self._ask("GET", f"/{index}")
            if status == 200:
                return text
            if status == 410 and end_with_service:
                return ""
            if status == 410:
                raise RuntimeError(f"the data service at {self.address} has ended")
            if not end_with_service and time.monotonic() > deadline:
                raise TimeoutError(
                    f"dispatcher {index} of the data service at {self.address} did not start in {self.timeout:g} s"
                )

    def wait_for_shutdown(self) -> None:
        """Without a limit: a service runs until somebody ends it."""
        while self._ask("GET", "/end")[0] != 410:
            pass

    def shutdown(self) -> None:
        """Ends the service. It may have ended already."""
        with contextlib.suppress(ConnectionError):
            self._ask("POST", "/end")

    def _ask(self, method, path, body=""):
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=3 * _PATIENCE_S)
        try:
            connection.request(method, path, body.encode(), {"Authorization": f"Bearer {self._key}"})
            reply = connection.getresponse()
            text = reply.read().decode()
        except OSError as error:
            raise ConnectionError(f"the data service at {self.address} does not answer: {error}") from None
        finally:
            connection.close()
        if reply.status in (400, 403):
            raise PermissionError(
                f"the data service at {self.address} refused {method} {path}: is this its config file?"
            )
        return reply.status, text
