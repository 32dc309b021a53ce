# SPDX-License-Identifier: Apache-2.0
"""Workers that know Horovod's elastic protocol and nothing of Hora, under --runtime host
(programs/horovod_worker.py, written from the protocol)."""

import os
import re
import signal
import uuid


def test_horovods_elastic_workers(horarun, shared):
    word = uuid.uuid4().hex[:8]
    stop, broken, listed = (f"{shared}/{name}.{word}" for name in ("stop", "broken", "listed"))

    def list_hosts(*hosts):
        with open(listed + ".new", "w", encoding="utf-8") as file:
            file.write("".join(f"{host}\n" for host in hosts))
        os.rename(listed + ".new", listed)

    list_hosts("localhost:2")
    job = horarun.start(
        "-np",
        2,
        "--min-np",
        1,
        "--runtime",
        "host",
        "--elastic-timeout",
        100,
        "--host-discovery-script",
        f"cat {listed}",
        "/usr/bin/python3",
        f"{shared}/horovod_worker.py",
        stop,
        broken,
    )
    text = job.read_until(" of 2", 2)
    # A host comes: rank 0 is notified, and the three meet.
    list_hosts("localhost:2", "127.0.0.1:1")
    text += job.read_until(" of 3", 3)
    assert "notification added" in text
    # The first host goes: its workers are sent away, who was third is rank 0.
    list_hosts("127.0.0.1:1")
    more = job.read_until("rank 0 of 1")
    assert "notification removed" in more
    text += more
    list_hosts("127.0.0.1:1", "localhost:1")
    text += job.read_until(" of 2", 2)
    # A worker dies: its host is left out; the other one goes on when its collective fails.
    pid = int(re.findall(r"worker (\d+) rank 1 of 2", text)[-1])
    os.kill(pid, signal.SIGKILL)
    with open(broken, "w", encoding="utf-8"):
        pass
    text += job.read_until("rank 0 of 1")
    os.unlink(broken)
    with open(stop, "w", encoding="utf-8"):
        pass
    finished = job.finish().expect(0)
    assert "done 0 of 1" in finished.text
    assert "was killed by SIGKILL" in finished.messages
