# SPDX-License-Identifier: Apache-2.0
"""--rendezvous-tls: what is readable on the network, which clients are admitted, and which server is trusted."""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid

import pytest

import jobs

PYTHON = "/usr/bin/python3"
# Rank 0 writes what it knows of the rendezvous to a file that only the test reads; all then wait to go on.
RANK = """import json, os, sys, time
rank = os.environ['HOROVOD_RANK']
if rank == '0':
    names = dict(address='HOROVOD_GLOO_RENDEZVOUS_ADDR', port='HOROVOD_GLOO_RENDEZVOUS_PORT',
                 token='HORA_RENDEZVOUS_TOKEN', tls='HORA_RENDEZVOUS_TLS')
    with open(sys.argv[1] + '.new', 'w') as file:
        json.dump({key: os.environ.get(name) for key, name in names.items()}, file)
    os.rename(sys.argv[1] + '.new', sys.argv[1])
deadline = time.monotonic() + 90
while not os.path.exists(sys.argv[1] + '.go') and time.monotonic() < deadline:
    time.sleep(0.01)
print('rank', rank, 'ends', flush=True)
"""
# Sums by the runtime, so that its own client of the rendezvous is at work.
SUM = """import numpy as np
import hora.numpy as hvd
hvd.init()
total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum)
print("sum", total[3], flush=True)
hvd.shutdown()
"""


@pytest.fixture(autouse=True)
def built_with_openssl(horarun):
    done = horarun.run("--check-build", "--json").expect(0)
    row = next(row for row in json.loads(done.text)["features"] if row["name"] == "TLS")
    if not row["built"]:
        pytest.skip("built without OpenSSL")
    assert row["loads"] and row["version_found"], row


@contextlib.contextmanager
def waiting_job(horarun, shared, *arguments):
    """What rank 0 knows of the rendezvous of a job that runs meanwhile."""
    place = os.path.join(shared, "tls-" + uuid.uuid4().hex)
    job = horarun.start(*arguments, PYTHON, "-S", "-c", RANK, place)
    try:
        jobs.wait_until(lambda: os.path.exists(place), "what rank 0 knows", 60)
        with open(place) as file:
            yield json.load(file), job
    finally:
        open(place + ".go", "w").close()
    done = job.finish().expect(0)
    assert sorted(line for lines in done.ranks().values() for line in lines)[0] == "rank 0 ends", done
    os.unlink(place)
    os.unlink(place + ".go")


def any_cert():
    """Takes every certificate, as the test looks at it itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask(known, head, context=None):
    link = http.client.HTTPSConnection(known["address"], int(known["port"]), timeout=30, context=context or any_cert())
    try:
        link.request("GET", "/tls-test/none", headers=head)
        return link.getresponse().status
    finally:
        link.close()


def test_the_wire_is_tls_with_the_certificate_that_ranks_get(horarun, shared):
    with waiting_job(horarun, shared, "-np", 2, "--rendezvous-tls") as (known, job):
        where = f"{known['address']}:{known['port']}"
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", where],
            input="",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "TLSv1.3" in shown.stdout and "CN = hora " in shown.stdout, shown
        pem = shown.stdout[shown.stdout.index("-----BEGIN") : shown.stdout.index("-----END CERTIFICATE-----") + 26]
        assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() == known["tls"]

        assert ask(known, {"Authorization": "Bearer " + known["token"]}) == 404  # let in: there is no such key
        assert ask(known, {}) == 401  # TLS alone lets no client in
        old = any_cert()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(known, {}, old)
        with socket.create_connection((known["address"], int(known["port"])), timeout=30) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert plain.recv(100) == b""
        assert job.process.poll() is None


def test_without_the_option_nothing_has_changed(horarun, shared):
    with waiting_job(horarun, shared, "-np", 1) as (known, job):
        assert known["tls"] is None
        mapped = maps_of(job.pid)
        assert "libhora_tls" not in mapped, "loaded without being asked for"
        link = http.client.HTTPConnection(known["address"], int(known["port"]), timeout=30)
        link.request("GET", "/healthz")
        assert link.getresponse().status == 200
        link.close()


def maps_of(pid):
    with open(f"/proc/{pid}/maps") as maps:
        return maps.read()


class Tap:
    """All that goes over this machine's interfaces while it is open."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.settimeout(0.1)
        self.over = threading.Event()
        self.frames = []
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        while True:
            try:
                self.frames.append(self.socket.recv(65536))
            except TimeoutError:
                if self.over.is_set():
                    return

    def close(self):
        self.over.set()
        self.thread.join()
        self.socket.close()
        return b"".join(self.frames)


@pytest.mark.parametrize("encrypted", [True, False])
def test_ranks_of_two_hosts_meet_and_a_listener_learns_no_token(horarun, hosts, encrypted):
    """Without the option it does: the tap can read the connection."""
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    two = hosts(2)
    tap = Tap()
    try:
        done = horarun.run(
            "-np",
            4,
            "-H",
            two.spec(2),
            "--wdir",
            "/",
            *(["--rendezvous-tls"] if encrypted else []),
            PYTHON,
            "-c",
            SUM + "import os\nprint('token', os.environ['HORA_RENDEZVOUS_TOKEN'])\n",
        ).expect(0)
    finally:
        captured = tap.close()
    lines = [line for rank in done.ranks().values() for line in rank]
    assert lines.count("sum 10.0") == 4, done
    token = next(line for line in lines if line.startswith("token ")).split()[1]
    assert (b"Bearer " + token.encode() in captured) != encrypted


def test_pmi_servers_and_elastic_ranks_meet_by_it_too(horarun, hosts, shared):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    two = hosts(2)
    for more in (["--pmi", "pmi1"], ["--min-np", 2]):
        done = horarun.run(
            "-np", 2, "-H", two.spec(1), "--wdir", "/", "--rendezvous-tls", *more, PYTHON, "-c", SUM
        ).expect(0)
        assert [line for rank in done.ranks().values() for line in rank].count("sum 3.0") == 2, done


def test_another_certificate_is_refused_by_name(horarun):
    wrong = "ab" * 32
    done = horarun.run("-np", 2, "--rendezvous-tls", "env", "HORA_RENDEZVOUS_TLS=" + wrong, "hora-smoke")
    assert done.code != 0
    said = done.text + done.messages
    assert wrong in said and "this is not the job's rendezvous" in said, done


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize("days", [-400, -1, 1, 4000])
def test_dates_of_certificates_do_not_matter(horarun, shared, days):
    """The launcher's clock differs from that of its ranks: to them its certificate is not valid yet, or has expired."""
    done = horarun.run(
        *("-np", 2, "--rendezvous-tls", "sh", "-c", "date +%s; unset HORA_CLOCK_AHEAD; date +%s; exec hora-smoke"),
        env=jobs.with_other_clock(shared, days * 86_400),
    ).expect(0)
    theirs, own = (int(line) for line in done.ranks()[0][:2])
    assert abs(theirs - own - days * 86_400) < 3600, done


def test_a_rank_without_tls_and_a_rendezvous_with_it_refuse_each_other(horarun):
    """No downgrade: neither side falls back to what the other speaks."""
    plain = horarun.run("-np", 2, "--rendezvous-tls", "env", "-u", "HORA_RENDEZVOUS_TLS", "hora-smoke")
    assert plain.code == 1 and "the connection ended" in plain.text + plain.messages, plain
    secured = horarun.run("-np", 2, "env", "HORA_RENDEZVOUS_TLS=" + "ab" * 32, "hora-smoke")
    assert secured.code == 1 and "TLS: the other side does not speak TLS" in secured.text + secured.messages, secured


def test_a_rank_without_the_module_says_so(horarun, shared):
    """As where a user's own libhora, built without OpenSSL, is loaded in place of the shipped one."""
    done = horarun.run(
        "-np",
        2,
        "--rendezvous-tls",
        "sh",
        "-c",
        'd=$(mktemp -d) && trap "rm -rf $d" EXIT && home=$(dirname "$(command -v hora-smoke)")/.. && '
        "mkdir $d/bin $d/lib && cp $home/bin/hora-smoke $d/bin && cp $home/lib/libhora.so $d/lib && "
        "LD_LIBRARY_PATH= $d/bin/hora-smoke",
    )
    assert done.code != 0
    assert "libhora_tls.so" in done.text + done.messages, done


def test_dawdlers_and_garbage_do_not_keep_ranks_from_meeting(horarun, shared):
    with waiting_job(horarun, shared, "-np", 1, "--rendezvous-tls") as (known, job):
        where = known["address"], int(known["port"])
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            any_cert().wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
        hello = hello.read()
        crowd = []
        for i in range(600):
            link = socket.create_connection(where, timeout=30)
            with contextlib.suppress(OSError):
                link.sendall((hello, hello[:7], os.urandom(2000), b"\x16\x03\x01\xff\xff")[i % 4])
            crowd.append(link)
        began = time.monotonic()
        assert ask(known, {"Authorization": "Bearer " + known["token"]}) == 404
        assert time.monotonic() < began + 30
        with open(f"/proc/{job.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        assert peak < 200_000, f"{peak} KiB"
        for link in crowd:
            link.close()
