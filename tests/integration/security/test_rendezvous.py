# SPDX-License-Identifier: Apache-2.0
"""Attacks on the rendezvous of a running job by clients without the token."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import threading
import time
import uuid

import pytest

import jobs

PYTHON = "/usr/bin/python3"
FLOOD = os.path.join(os.path.dirname(__file__), "flood.py")
# Meets, asks its peers' values again and again while it is attacked, and checks every answer.
RANK = """import http.client, os, ssl, sys, time
rank, size = int(os.environ['HOROVOD_RANK']), int(os.environ['HOROVOD_SIZE'])
where = os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], int(os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT'])
head = {'Authorization': 'Bearer ' + os.environ['HORA_RENDEZVOUS_TOKEN']}
tls = {'context': ssl._create_unverified_context()} if 'HORA_RENDEZVOUS_TLS' in os.environ else {}
connection = http.client.HTTPSConnection if tls else http.client.HTTPConnection
if rank == 0:
    with open(sys.argv[1] + '.new', 'w') as file:
        file.write('%s %d' % where)
    os.rename(sys.argv[1] + '.new', sys.argv[1])
deadline, slowest, rounds = time.monotonic() + float(sys.argv[2]), 0, 0
def ask(method, path, body=None):
    global slowest
    began = time.monotonic()
    while True:  # each by a new connection, as a new client has to
        try:
            link = connection(*where, timeout=60, **tls)
            link.request(method, path, body, head)
            reply = link.getresponse()
            data = reply.read()
            link.close()
            if reply.status != 503:
                break
        except (ConnectionError, http.client.HTTPException, ssl.SSLError):
            assert time.monotonic() < deadline
    slowest = max(slowest, time.monotonic() - began)
    return reply.status, data
while time.monotonic() < deadline:
    is_last = os.path.exists(sys.argv[1] + '.go')  # one more round then
    value = b'%d:%d' % (rank, rounds)
    assert ask('PUT', '/test/%d' % rank, value)[0] == 200
    status, data = ask('GET', '/test/%d' % rank)
    assert (status, data) == (200, value), (status, data, value)
    rounds += 1
    if is_last:
        break
print('rounds', rounds, 'slowest', round(slowest, 2), flush=True)
"""


class Attacked:
    """A job of two ranks that keeps meeting while the test attacks its rendezvous."""

    def __init__(self, horarun, shared, *options, seconds=90):
        self.place = os.path.join(shared, "attack-" + uuid.uuid4().hex)
        self.job = horarun.start("-np", 2, *options, PYTHON, "-S", "-c", RANK, self.place, seconds)
        jobs.wait_until(lambda: os.path.exists(self.place), "the job's rendezvous", 60)
        with open(self.place) as file:
            address, port = file.read().split()
        self.where = address, int(port)

    def connect(self, timeout=30):
        return socket.create_connection(self.where, timeout=timeout)

    def ask(self, request):
        with self.connect() as link:
            with contextlib.suppress(ConnectionError):
                link.sendall(request)
            data = b""
            with contextlib.suppress(ConnectionError):
                while chunk := link.recv(65536):
                    data += chunk
                    if b"\r\n\r\n" in data:
                        break
            return data

    def peak_kib(self):
        with open(f"/proc/{self.job.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    def end(self):
        open(self.place + ".go", "w").close()
        done = self.job.finish().expect(0)
        os.unlink(self.place)
        os.unlink(self.place + ".go")
        lines = [line for lines in done.ranks().values() for line in lines]
        assert len(lines) == 2, done
        assert all(int(line.split()[1]) > 0 for line in lines), f"a rank got nothing done\n{done}"
        return lines


@pytest.fixture
def attacked(horarun, shared):
    job = Attacked(horarun, shared)
    yield job
    if job.job.process.poll() is None:
        job.end()


def open_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 100)), hard))
    return min(count, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100)


def test_without_the_token_there_is_nothing_to_get(attacked):
    end = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    for line in (
        b"GET /test/0",
        b"PUT /test/0",
        b"DELETE /test/0",
        b"HEAD /test/0",
        b"GET /test?batch",
        b"PUT /test?batch",
        b"GET http://x/test/0",
        b"GET //test/0",
        b"GET /%74est/0",
        b"GET /test/0?wait=1",
        b"GET /metrics",
        b"GET /global/0",
    ):
        for proof in (
            b"",
            b"Authorization: Bearer\r\n",
            b"Authorization: Bearer \r\n",
            b"Authorization: Bearer 0\r\n",
            b"Authorization: Basic YTpi\r\n",
            b"Authorization: bearer " + b"0" * 32 + b"\r\n",
            b"X-Forwarded-For: 127.0.0.1\r\n",
            b"Authorization: Bearer 0\r\nAuthorization: Bearer 1\r\n",
        ):
            body = b"Content-Length: 4\r\n\r\nevil" if line.startswith(b"PUT") else b"\r\n"
            reply = attacked.ask(line + end + proof + body)
            assert reply.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")), (line, proof, reply)
    assert attacked.ask(b"GET /healthz" + end + b"\r\n").startswith(b"HTTP/1.1 200 ")
    attacked.end()


def test_malformed_and_oversized_requests_cost_nothing(attacked):
    before = attacked.peak_kib()
    floods = [
        b"GET /" + b"a" * (1 << 20),
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200_000,
        b"\r\n" * 500_000,
        b"PUT /s/k HTTP/1.1\r\nContent-Length: 4294967296\r\n\r\n" + b"x" * (1 << 20),
        b"PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + b"x" * 1000,
        b"PUT /s/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        os.urandom(100_000),
        b"GET /s/k HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        b"\0" * 100_000,
    ]
    for flood in floods * 20:
        reply = attacked.ask(flood)
        assert not reply.startswith(b"HTTP/1.1 2"), (flood[:60], reply)
    grown = attacked.peak_kib() - before
    assert grown < 64 * 1024, f"{grown} KiB more"
    attacked.end()


def test_a_thousand_who_drip_their_requests(attacked):
    """Slow-loris: each holds a request open, a byte at a time."""
    crowd = [attacked.connect() for _ in range(open_files(1000))]
    over = threading.Event()

    def drip():
        for word in b"GET /test/0 HTTP/1.1\r\nX-Header: aaaaaaaaaaaaaaaaaaaa":
            for link in crowd:
                with contextlib.suppress(OSError):
                    link.send(bytes([word]))
            if over.wait(0.05):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    dripping.join(2)
    attacked.end()
    over.set()
    dripping.join()
    for link in crowd:
        link.close()


def test_ten_thousand_connections(attacked):
    """Most of them have to wait in the backlog, or go when others come; the job goes on."""
    wanted = open_files(10_000)
    crowd = []
    began = time.monotonic()
    while len(crowd) < wanted and time.monotonic() < began + 30:
        link = socket.socket()
        link.setblocking(False)
        link.connect_ex(attacked.where)
        crowd.append(link)
        if len(crowd) % 500 == 0:
            time.sleep(0.02)  # the backlog of a listener is shorter than this crowd
    assert len(crowd) == wanted
    grown = attacked.peak_kib()
    attacked.end()
    assert grown < 400_000, f"{grown} KiB"
    for link in crowd:
        link.close()


class Flood:
    """Programs of another user's, where this one may become another, that attack for that long."""

    def __init__(self, where, programs, connections, seconds, *kinds):
        who = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
        self.seconds, self.programs = seconds, []
        for _ in range(programs):
            with open(FLOOD) as script:  # they may have no way to where it lies
                self.programs.append(
                    subprocess.Popen(
                        [PYTHON, "-", "{}:{}".format(*where), str(connections), str(seconds), *kinds],
                        stdin=script,
                        stdout=subprocess.PIPE,
                        cwd="/",
                        **who,
                    )
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
            program.communicate()

    def is_over(self):
        return all(program.poll() is not None for program in self.programs)

    def finish(self):
        """What came of it: a dictionary for each."""
        return [json.loads(program.communicate(timeout=self.seconds + 60)[0]) for program in self.programs]


# How many connections of each of two programs, for that long, of a job with these options.
FLOODS = [(800, 15, (), ())]
if "HORA_LONG_TESTS" in os.environ:
    FLOODS += [(8_192, 300, (), ()), (8_192, 120, ("--rendezvous-tls",), ("tls", "silent"))]


@pytest.mark.parametrize("connections, seconds, options, kinds", FLOODS)
def test_floods_of_outsiders_neither_end_a_job_nor_cost_it_memory(
    horarun, shared, connections, seconds, options, kinds
):
    """With a short lease: the launcher's heartbeats do not wait behind outsiders, however many ask however much."""
    attacked = Attacked(horarun, shared, "--lease", "3s", *options, seconds=seconds + 120)
    before = attacked.peak_kib()
    with Flood(attacked.where, 2, connections, seconds, *kinds) as flood:
        jobs.wait_until(
            lambda: flood.is_over() or attacked.job.process.poll() is not None, "the end of the attack", seconds + 60
        )
        assert attacked.job.process.poll() is None, attacked.job.finish()
        came = flood.finish()
    grown = attacked.peak_kib() - before
    lines = attacked.end()
    print(came, lines, f"{grown} KiB more")
    assert all(program["opened"] >= connections and program["sent_bytes"] > 0 for program in came), came
    assert grown < 64 * 1024, f"{grown} KiB more, {came}"
