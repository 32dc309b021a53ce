# SPDX-License-Identifier: Apache-2.0
"""The bytes between supervisor and agent, and the end of the stream."""

import json
import os
import signal
import time

import pytest

WAYS = [
    pytest.param(["--transport", "ssh"], id="ssh"),
    pytest.param(["--transport", "command", "--rsh", "ssh", "--rsh", "-q"], id="command"),
]


@pytest.mark.parametrize("way", WAYS)
def test_100_megabytes_each_way(probe, two, way):
    outcome = probe(["node1", "node2"], *way, "--echo", 100_000_000, arguments=["--echo"])
    for name in ("node1", "node2"):
        assert outcome.results[name]["result"] == "echo" and outcome.results[name]["equal"], str(outcome)


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_reader_is_not_buffered_for(probe, two, way):
    outcome = probe("node1", *way, "--drain", 150_000_000, "--idle-ms", 1500, arguments=["--flood", "150000000"])
    result = outcome.results["node1"]
    assert result["result"] == "drained" and result["goodbye"] and result["over"], str(outcome)
    assert result["idle_kib"] * 1024 < 150_000_000 / 2, "the flood was kept in memory"


def finish(process):
    """What a holding probe says in the end; its stdin stays open, or it would let go."""
    out = process.stdout.read()
    process.wait(timeout=60)
    return json.loads([line for line in out.splitlines() if '"host"' in line and '"result"' in line][-1])


def wait_for_none(hosts, k, pattern):
    deadline = time.monotonic() + 15
    while hosts.processes(k, pattern):
        assert time.monotonic() < deadline, f"still there: {hosts.processes(k, pattern)}"
        time.sleep(0.05)


@pytest.mark.parametrize("way", WAYS)
def test_closing_the_stream_ends_the_agent(probe, two, way):
    process = probe.hold("node1", *way)
    assert two.processes(1, "agent-" + probe.sha)
    process.stdin.close()
    assert finish(process)["result"] == "released"
    wait_for_none(two, 1, "agent-" + probe.sha)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_launcher_ends_the_agent(probe, two, way):
    process = probe.hold("node1", *way)
    assert two.processes(1, "agent-" + probe.sha)
    process.kill()
    process.communicate()
    wait_for_none(two, 1, "agent-" + probe.sha)


def test_sshd_is_killed_in_mid_stream(probe, two):
    process = probe.hold("node1")
    for pid in two.processes(1, "sshd: root"):
        os.kill(pid, signal.SIGKILL)
    result = finish(process)
    assert result["result"] == "failure" and result["code"] == "E_HOST_LOST", result
    assert "connection broke" in result["message"]
    wait_for_none(two, 1, "agent-" + probe.sha)


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_that_dies_says_how(probe, two, way):
    process = probe.hold("node1", *way, arguments=["--die", "11"])
    result = finish(process)
    assert result["result"] == "failure" and result["code"] == "E_HOST_LOST", result
    assert "SEGV" in result["message"] or "status 139" in result["message"] or "255" in result["message"]


# --- any command -----------------------------------------------------------------------------------
def rsh(*words):
    return [part for word in words for part in ("--rsh", word)]


def test_a_command_with_an_argv(probe, two):
    """As `docker exec -i` or `kubectl exec -i` are used: no shell on the way."""
    pid = two._hosts.init_pid(1)
    way = [
        "--transport",
        "command",
        *rsh(
            "nsenter",
            "-t",
            str(pid),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "--",
            "env",
            "HOME=/root",
            "sh",
            "-c",
            "{command}",
            "{host}",
        ),
    ]
    first = probe("node1", *way)
    first.hello()
    assert first.shipped() == ["/root/.cache/hora"]
    second = probe("node1", *way)
    second.hello()
    assert not second.shipped()


@pytest.mark.parametrize(
    "words,expected,code",
    [
        (["false"], "status 1", "E_RSH"),
        (["/no/such/program"], "/no/such/program", "E_RSH"),
        (["ssh", "-o", "ConnectTimeout=3", "-p", "1"], "Connection refused", "E_CONNECT_REFUSED"),
        (["ssh", "-q", "-o", "ConnectTimeout=3", "-p", "1"], "leave -q out", "E_RSH"),
        (["ssh", "-o", "HostKeyAlias=other", "-o", "BatchMode=yes"], "Host key verification", "E_HOST_KEY_UNKNOWN"),
        (["sh", "-c", "echo nope >&2; exit 4"], "nope", "E_RSH"),
    ],
)
def test_a_command_that_fails(probe, two, words, expected, code):
    message = probe("node1", "--transport", "command", *rsh(*words)).failure(code)
    assert expected in message


def test_a_command_that_says_nothing(probe, two):
    message = probe(
        "node1", "--transport", "command", *rsh("sh", "-c", "echo hm >&2; exec sleep 1000"), "--deadline-ms", 2000
    ).failure("E_RSH")
    assert "in time" in message and "hm" in message
