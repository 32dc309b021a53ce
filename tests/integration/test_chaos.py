# SPDX-License-Identifier: Apache-2.0
"""--chaos kills and stops ranks, and the messages say so."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

import jobs

WAIT = 'until [ -e "$0" ]; do sleep 0.02; done'


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_rank_is_killed(horarun, tmp_path):
    path = tmp_path / "report.json"
    done = horarun.run(
        "-H", "localhost:1,127.0.0.1:1", "--chaos", "kill:127.0.0.1@0,term:1@1h", "--report", path, "sleep", 60
    ).expect(137)
    assert re.search(r"^horarun: chaos: rank 1 on 127\.0\.0\.1: SIGKILL \(\d+\.\d s\)$", done.messages, re.M), done
    assert "rank 1 on 127.0.0.1 was killed by SIGKILL\n  --chaos sent it that signal\n" in done.messages, done
    assert "out-of-memory" not in done.messages, done
    report = json.loads(path.read_text())
    assert report["cause"]["rank"] == 1 and "--chaos sent it" in report["text"]
    (act,) = report["chaos"]
    assert (act["rank"], act["host"], act["signal"], act["sent"]) == (1, "127.0.0.1", 9, True)
    assert [event["at_ms"] for event in report["events"] if event["event"] == "chaos"] == [act["at_ms"]]


def test_a_rank_is_told_to_end(horarun):
    done = horarun.run("-np", 2, "--chaos", "term:0@0", "sleep", 60).expect(143)
    assert "rank 0 on localhost was killed by SIGTERM\n  --chaos sent it that signal\n" in done.messages, done


def test_a_rank_is_stopped_and_goes_on(horarun, tmp_path):
    job = horarun.start(
        "-np", 2, "--chaos", "stop:1@0+300ms", "sh", "-c", WAIT, tmp_path / "go", stderr=subprocess.STDOUT
    )
    text = job.read_until("SIGCONT (")
    assert "horarun: chaos: rank 1 on localhost: SIGSTOP (" in text
    (tmp_path / "go").touch()
    assert "chaos" not in job.finish().expect(0).text


def test_a_rank_that_stays_stopped_ends_with_its_job(horarun):
    job = horarun.start("-np", 2, "--json", "--chaos", "stop:1@0", "sleep", 60, stderr=subprocess.STDOUT)
    text = job.read_until('"event":"chaos"')
    events = [json.loads(line) for line in text.splitlines() if line.startswith('{"schema"') and line.endswith("}")]
    (pid,) = [event["pid"] for event in events if event["event"] == "rank_start" and event["rank"] == 1]
    jobs.wait_until(lambda: state_of(pid) == "T", "rank 1 to be stopped")
    job.process.terminate()
    done = job.finish().expect(143)
    assert "what --chaos had done by then" in done.text and "rank 1 on localhost: SIGSTOP" in done.text, done
    jobs.expect_nothing_left(job)


def test_what_the_job_does_not_have(horarun):
    for target in ("2", "node9"):
        done = horarun.run("-np", 2, "--chaos", f"kill:{target}@1s", "sh", "-c", "echo started").expect(2)
        assert done.messages.startswith("horarun: error: --chaos: column 6: ") and not done.out, done


# --- cuts: as root, on test hosts ---------------------------------------------------------------------------------
def hears(hosts, k, address):
    """Whether host k (0: head) gets through to an sshd, at once: a busy machine may not."""
    command = ["bash", "-c", f"timeout 0.3 bash -c 'exec 3<>/dev/tcp/{address}/22' && echo through || echo cut"]
    text = (
        hosts.execute(k, *command) if k else subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    )
    return text.strip() == "through"


def tables(hosts, k):
    return hosts.execute(k, "nft", "list", "tables")


def agent_and_shim(hosts, k):
    """Of the one job on host k: shim first, it is the parent."""
    pids = hosts.processes(k, "hora/agent-")
    parents = {}
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            parents[pid] = int(file.read().rpartition(")")[2].split()[1])
    (agent,) = [pid for pid in pids if parents[pid] in pids]
    return agent, parents[agent]


def start_cut(horarun, up, pair, times, *options):
    job = horarun.start(
        "-H",
        "node1:1,node2:1,node3:1",
        "--lease",
        "6s",
        "--grace",
        "1s",
        *options,
        "--chaos",
        f"cut:{pair}@{times}",
        "sh",
        "-c",
        WAIT,
        "/run/go",
        stderr=subprocess.STDOUT,
    )
    return job, job.read_until("do not hear each other")


@pytest.fixture
def cutting(hosts):
    up = hosts(3)
    for k in (1, 2, 3):
        up.execute(k, "rm", "-f", "/run/go")
    jobs.wait_until(lambda: hears(up, 1, up.address(2)), "the test hosts to hear each other")
    return up


@pytest.mark.parametrize("victim", ["nobody", "agent", "agent and shim", "launcher"])
def test_two_hosts_are_cut_off_until_their_job_ends_however_that_is(horarun, cutting, victim):
    up = cutting
    job, text = start_cut(horarun, up, "node1/node2", "0")
    assert "horarun: chaos: node1 and node2 do not hear each other (" in text
    jobs.wait_until(lambda: not hears(up, 1, up.address(2)), "node1 not to hear node2")
    assert not hears(up, 2, up.address(1)) and not hears(up, 2, up._hosts.address6(1))
    jobs.wait_until(lambda: hears(up, 1, up.address(3)) and hears(up, 2, up.address(3)), "both to hear node3")
    assert "hora-cut-" in tables(up, 1)
    assert job.process.poll() is None
    if victim == "nobody":
        for k in (1, 2, 3):
            up.execute(k, "touch", "/run/go")
        job.finish().expect(0)
    elif victim == "launcher":
        job.process.kill()
        job.finish()
    else:
        agent, shim = agent_and_shim(up, 1)
        for pid in [agent, shim] if victim == "agent and shim" else [agent]:
            with contextlib.suppress(ProcessLookupError):  # the one ends when the other has
                os.kill(pid, signal.SIGKILL)
        assert "what --chaos had done by then" in job.finish().expect(125).text
    jobs.wait_until(lambda: hears(up, 1, up.address(2)), "node1 to hear node2 again")
    jobs.wait_until(lambda: "hora-" not in tables(up, 1), "no table of the job's")
    jobs.expect_nothing_left(job, 30)


def test_a_cut_heals_after_its_time(horarun, cutting, tmp_path):
    up, path = cutting, tmp_path / "report.json"
    job, _ = start_cut(horarun, up, "node2/node1", "0+300ms", "--report", path)
    job.read_until("hear each other again")
    jobs.wait_until(lambda: hears(up, 1, up.address(2)), "node1 to hear node2 again")
    assert "hora-" not in tables(up, 2)
    for k in (1, 2, 3):
        up.execute(k, "touch", "/run/go")
    job.finish().expect(0)
    report = json.loads(path.read_text())
    assert [(act["host"], act["peer"], act["cut"], act["sent"]) for act in report["chaos"]] == [
        ("node2", "node1", True, True),
        ("node2", "node1", False, True),
    ]
    assert [event["cut"] for event in report["events"] if event["event"] == "chaos_cut"] == [True, False]


def test_the_launcher_keeps_its_own_connections_through_a_cut(horarun, cutting):
    """It runs on one of the two hosts: nothing but its ssh connection and the rendezvous passes."""
    up = cutting
    job = horarun.start(
        "-H",
        "localhost:1,node2:1",
        "--lease",
        "6s",
        "--chaos",
        "cut:localhost/node2@0",
        "bash",
        "-c",
        WAIT + "; exec 3<>/dev/tcp/$HOROVOD_GLOO_RENDEZVOUS_ADDR/$HOROVOD_GLOO_RENDEZVOUS_PORT && echo met",
        "/run/go",
        stderr=subprocess.STDOUT,
    )
    job.read_until("do not hear each other")
    try:
        jobs.wait_until(lambda: not hears(up, 0, up.address(2)), "head not to hear node2")
        up.execute(2, "touch", "/run/go")
        job.read_until("[1]<stdout>:met")
        assert not hears(up, 0, up.address(2))
        open("/run/go", "w").close()
        job.finish().expect(0)
    finally:
        if os.path.exists("/run/go"):
            os.unlink("/run/go")
    jobs.wait_until(lambda: hears(up, 0, up.address(2)), "head to hear node2 again")


def test_a_cut_without_the_rights_starts_nothing(horarun, cutting):
    done = subprocess.run(
        [
            "setpriv",
            "--bounding-set",
            "-net_admin",
            horarun.path,
            "-H",
            "localhost:1,node2:1",
            "--chaos",
            "cut:localhost/node2@1s",
            "echo",
            "started",
        ],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 125 and "[E_CHAOS]" in done.stderr and "Operation not permitted" in done.stderr, done
    assert "started" not in done.stdout, done


def test_one_machine_cannot_be_cut(horarun):
    done = horarun.run(
        "-H", "localhost:1,127.0.0.1:1", "--chaos", "cut:localhost/127.0.0.1@1s", "echo", "started"
    ).expect(125)
    assert "are one machine" in done.messages and "[E_CHAOS]" in done.messages and not done.out, done
