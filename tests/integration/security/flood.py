# SPDX-License-Identifier: Apache-2.0
"""Attacks a rendezvous as a client on its network without a token can.

    flood.py [ADDRESS:]PORT CONNECTIONS SECONDS [KIND...]

Keeps that many connections for that long, each of one KIND, in turn (all of them when none is named):

  greedy    asks in line, as fast as it is let, and reads the answers
  slow      asks in line, and reads so little that there is always something left to send
  deaf      asks in line, and reads nothing
  polite    asks again as soon as it has been answered
  refused   asks in line for what takes the token
  dripping  sends a head that never ends, a byte now and then
  bulky     sends all of a head but its end
  silent    says nothing
  tls       begins handshakes (--rendezvous-tls), and does not end them

One that is closed is opened again at once. What came of it is one line of JSON at the end:
{"opened": ..., "closed": ..., "received_bytes": ..., "sent_bytes": ..., "no_port": ...}.

Needs no package, no privilege, and as many descriptors as connections: it raises its own limit.
"""

import contextlib
import json
import resource
import select
import socket
import ssl
import struct
import sys
import time

ASK = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
WITHOUT = b"GET /test/0 HTTP/1.1\r\nHost: a\r\n\r\n"
LINE = 64 * 1024  # bytes of requests that are handed to the kernel at a time
DRIP = b"GET /test/0 HTTP/1.1\r\nX: " + b"a" * 8_000
NOW, SOON, NEVER = 0.0, 0.2, float("inf")


def first_message():
    hello = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    return hello.read()


# What is said (all of it again and again, where `endless`), when more of it, and how much is read of
# what comes, how often.
class Kind:
    def __init__(self, words, endless=True, pause=NOW, piece=LINE, read=65536, read_pause=NOW):
        self.words, self.endless, self.pause, self.piece, self.read, self.read_pause = (
            words,
            endless,
            pause,
            piece,
            read,
            read_pause,
        )


KINDS = {
    "greedy": Kind(ASK * (LINE // len(ASK))),
    "slow": Kind(ASK * (LINE // len(ASK)), read=512, read_pause=SOON),
    "deaf": Kind(ASK * (LINE // len(ASK)), read_pause=NEVER),
    "polite": Kind(ASK, pause=NEVER),  # until it is answered
    "refused": Kind(WITHOUT * (LINE // len(WITHOUT))),
    "dripping": Kind(DRIP, endless=False, pause=SOON, piece=1),
    "bulky": Kind(DRIP, endless=False),
    "silent": Kind(b"", endless=False),
    "tls": Kind(b"", endless=False),
}


class Link:
    def __init__(self, kind, where):
        self.kind, self.at = kind, 0
        self.socket = socket.socket(socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves no port behind
        if kind.read_pause:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect_ex(where)
        self.say_at = self.receive_at = NOW

    def events(self, now):
        says = self.at < len(self.kind.words) and now >= self.say_at
        receives = now >= self.receive_at
        return (select.EPOLLOUT if says else 0) | (select.EPOLLIN if receives else 0)

    def say(self, now):
        sent = self.socket.send(self.kind.words[self.at : self.at + self.kind.piece])
        self.at += sent
        if self.at == len(self.kind.words) and self.kind.endless:
            self.at = 0
        self.say_at = now + self.kind.pause
        return sent

    def receive(self, now):
        """None: it was closed."""
        data = self.socket.recv(self.kind.read)
        if self.kind.pause == NEVER:
            self.say_at = NOW
        self.receive_at = now + self.kind.read_pause
        return len(data) or None


def flood(where, connections, seconds, kinds):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else connections + 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, connections + 64), hard))
    connections = min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 32)
    if "tls" in kinds:
        KINDS["tls"].words = first_message()
    done = {"opened": 0, "closed": 0, "received_bytes": 0, "sent_bytes": 0, "no_port": 0}
    links, asked = {}, {}
    poll = select.epoll()
    turn, until, looked = 0, time.monotonic() + seconds, 0.0

    def open_one():
        nonlocal turn
        link = Link(KINDS[kinds[turn % len(kinds)]], where)
        turn += 1
        done["opened"] += 1
        links[link.socket.fileno()] = link
        asked[link.socket.fileno()] = link.events(0.0)
        poll.register(link.socket.fileno(), asked[link.socket.fileno()])

    def close(fd):
        poll.unregister(fd)
        links.pop(fd).socket.close()
        asked.pop(fd)
        done["closed"] += 1

    def settle(fd, now):
        wanted = links[fd].events(now)
        if wanted != asked[fd]:
            poll.modify(fd, wanted)
            asked[fd] = wanted

    while (now := time.monotonic()) < until:
        for _ in range(min(256, connections - len(links))):
            try:
                open_one()
            except OSError:  # no port, or no descriptor: others are about to be free
                done["no_port"] += 1
                break
        for fd, events in poll.poll(0.02, 256):
            link = links[fd]
            try:
                if events & (select.EPOLLERR | select.EPOLLHUP):
                    close(fd)
                    continue
                if events & select.EPOLLOUT:
                    done["sent_bytes"] += link.say(now)
                if events & select.EPOLLIN:
                    received = link.receive(now)
                    if received is None:
                        close(fd)
                        continue
                    done["received_bytes"] += received
            except BlockingIOError:
                pass
            except OSError:
                close(fd)
                continue
            settle(fd, now)
        if now >= looked + SOON:  # those that paused
            looked = now
            for fd in links:
                settle(fd, now)
    for link in links.values():
        link.socket.close()
    print(json.dumps(done))


def main():
    words = sys.argv[1:]
    kinds = words[3:] or [kind for kind in KINDS if kind != "tls"]
    if len(words) < 3 or not words[1].isdigit() or not set(kinds) <= set(KINDS):
        sys.exit(__doc__)
    address, _, port = words[0].rpartition(":")
    flood((address.strip("[]") or "127.0.0.1", int(port)), int(words[1]), float(words[2]), kinds)


if __name__ == "__main__":
    main()
