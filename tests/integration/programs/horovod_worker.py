# SPDX-License-Identifier: Apache-2.0
"""An elastic worker as Horovod's would be, by its contract alone: HTTP of Gloo's store and of the elastic
driver, and the notification service with its signed pickles. Nothing of Hora is used.

    horovod_worker.py STOP BROKEN       BROKEN: a file whose presence stands for a failed collective
"""

import base64
import enum
import hashlib
import hmac
import http.client
import io
import os
import pickle
import queue
import socket
import struct
import sys
import threading
import time

STOP, BROKEN = sys.argv[1:]
DEADLINE = time.monotonic() + 100
KEY = os.urandom(32)
notifications = queue.Queue()


class HostUpdateResult(enum.IntFlag):
    no_update, removed, added = 0, 1, 2
    mixed = removed | added


class Message:
    pass


class Reader(pickle.Unpickler):
    """Only what the contract names may be made."""

    KNOWN = {
        ("horovod.runner.elastic.worker", "HostsUpdatedRequest"): type("HostsUpdatedRequest", (Message,), {}),
        ("horovod.runner.elastic.worker", "HostUpdateResult"): HostUpdateResult,
        ("horovod.runner.common.util.network", "PingRequest"): type("PingRequest", (Message,), {}),
    }

    def find_class(self, module, name):
        return self.KNOWN[module, name]


def say(*words):
    print(*words, flush=True)


def request(method, path, body=None):
    connection = http.client.HTTPConnection(
        os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    )
    connection.request(method, path, body)
    answer = connection.getresponse()
    value = answer.read()
    connection.close()
    assert answer.status in (200, 404), f"{method} {path}: {answer.status}"
    return value if answer.status == 200 else None


def poll(path):
    while time.monotonic() < DEADLINE:
        value = request("GET", path)
        if value is not None:
            return value
        time.sleep(0.01)
    raise SystemExit(f"timed out waiting for {path}")


def meet(scope, index, size):
    """4.3: one full mesh, without its connections."""
    assert request("PUT", f"/{scope}/rank_{index}", socket.gethostname().encode()) is not None
    request("PUT", f"/{scope}/{index}", b"x" * 136 * (size - 1))
    for peer in range(size):
        if peer != index:
            assert len(poll(f"/{scope}/{peer}")) == 136 * (size - 1), f"{scope}/{peer} is of another round"
    # The barrier over the mesh: no worker says that it is done before all have read.
    request("PUT", f"/barrier_{scope}_{size}/{index}", b"1")
    for peer in range(size):
        poll(f"/barrier_{scope}_{size}/{peer}")


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            data = b""
            while len(data) < 36 or len(data) < 36 + struct.unpack("<i", data[32:36])[0]:
                chunk = connection.recv(4096)
                if not chunk:
                    break
                data += chunk
            digest, body = data[:32], data[36:]
            if not hmac.compare_digest(digest, hmac.new(KEY, body, hashlib.sha256).digest()):
                say("a wrong signature")
                continue
            message = Reader(io.BytesIO(body)).load()
            if type(message).__name__ == "HostsUpdatedRequest":
                assert isinstance(message.timestamp, int) and abs(message.timestamp - time.time()) < 100
                notifications.put(message.res)
            reply = pickle.dumps({"stands for": "AckResponse"}, 5)
            connection.sendall(hmac.new(KEY, reply, hashlib.sha256).digest() + struct.pack("<i", len(reply)) + reply)


def main():
    assert os.environ["HOROVOD_ELASTIC"] == "1" and "HORA_RENDEZVOUS_TOKEN" not in os.environ
    host = os.environ["HOROVOD_HOSTNAME"]
    rank, size, local_rank = (int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE", "LOCAL_RANK"))
    slot = f"{host}:{local_rank}"
    listener = socket.create_server(("", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    dead = socket.create_server(("127.0.0.1", 0))  # an interface that does not lead here
    addresses = {"eth7": [("127.0.0.1", dead.getsockname()[1])], "lo": [("127.0.0.1", listener.getsockname()[1])]}
    dead.close()
    request("PUT", f"/worker_addresses/{slot}", base64.b64encode(pickle.dumps((addresses, KEY), 5)))
    while True:
        meet("global", rank, size)
        say("worker", os.getpid(), "rank", rank, "of", size)
        while not os.path.exists(STOP):
            assert time.monotonic() < DEADLINE
            if rank == 0 and not notifications.empty():
                say("notification", notifications.get().name)
                request("PUT", "/gossip/leave", b"1")
            if request("GET", "/gossip/leave") or os.path.exists(BROKEN):
                break
            time.sleep(0.02)
        else:
            say("done", rank, "of", size)
            return
        # 4.7: blocks until the round is there; then the server has forgotten the one before.
        place = [int(number) for number in request("GET", f"/rank_and_size/{slot}").split(b",")]
        if place[0] < 0:
            say("removed", rank)
            os.abort()
        rank, size, local_rank = place[0], place[1], place[2]
        slot = f"{host}:{local_rank}"
        while not notifications.empty():
            notifications.get()


main()
