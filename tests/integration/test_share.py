# SPDX-License-Identifier: Apache-2.0
"""The runtime goes from host to host: what leaves the launcher, and what happens when a host cannot serve."""

import json
import math
import signal
import subprocess

import jobs

COUNT = 12


def files_of(nodes, k):
    """What is in the caches of host k."""
    found = nodes.execute(k, "sh", "-c", "find /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0 2>/dev/null; :")
    return found.splitlines()


def forget(nodes):
    for k in range(1, len(nodes.names) + 1):
        nodes.execute(k, "sh", "-c", "rm -rf /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0")


def supplies(done):
    """host -> its event `runtime`."""
    events = [json.loads(line) for line in done.messages.splitlines() if line.startswith('{"schema":')]
    return {event["host"]: event for event in events if event["event"] == "runtime"}


def listeners(nodes, k):
    """TCP ports with a listener, but for sshd's."""
    return [line for line in nodes.execute(k, "ss", "-Htln").splitlines() if not line.split()[3].endswith(":22")]


def launch(horarun, nodes, *options, command=("/bin/true",)):
    return horarun.run("-H", nodes.spec(1), "--json", *options, *command)


def test_the_launcher_sends_to_few_and_they_to_the_others(horarun, hosts):
    nodes = hosts(COUNT)
    forget(nodes)
    shared = supplies(launch(horarun, nodes).expect(0))
    assert set(shared) == set(nodes.names)
    forget(nodes)
    alone = supplies(launch(horarun, nodes, "--ship-via", "launcher").expect(0))
    assert set(alone) == set(nodes.names)
    assert all(event["fetched_bytes"] == 0 and event["from"] == "" for event in alone.values())
    (each,) = {event["sent_bytes"] for event in alone.values()}
    for host, event in shared.items():
        assert event["sent_bytes"] + event["fetched_bytes"] == each, event
        assert bool(event["fetched_bytes"]) == bool(event["from"]), event
        assert set(event["from"].split(", ")) <= {"", *nodes.names} - {host}, event
    assert sum(event["sent_bytes"] for event in shared.values()) <= math.ceil(math.log2(COUNT)) * each
    # All have it now.
    assert supplies(launch(horarun, nodes).expect(0)) == {}


def test_a_launcher_that_is_killed_leaves_nothing_of_a_transfer(horarun, hosts):
    nodes = hosts(2)
    forget(nodes)
    for k in (1, 2):
        nodes.act("netem", k, "--rate", "4")  # 1 MB takes 2 s
    try:
        job = horarun.start("-H", nodes.spec(1), "/bin/true")

        def receiving():
            return [pid for k in (1, 2) for pid in nodes.processes(k, "head\0-c")]

        jobs.wait_until(receiving, "a host that receives the agent")
        job.send_signal(signal.SIGKILL)
        job.finish()

        def nothing_left():
            files = [name for k in (1, 2) for name in files_of(nodes, k) if "/.ship-" in name]
            return not files and not any(nodes.processes(k, "HORA-") for k in (1, 2)) and not receiving()

        jobs.wait_until(nothing_left, "the end of what received", 30)
    finally:
        for k in (1, 2):
            nodes.act("netem", k)


def test_what_was_fetched_works(horarun, hosts):
    nodes = hosts(COUNT)
    forget(nodes)
    done = horarun.run("-H", nodes.spec(1), "--verbose", "--smoke").expect(0)
    assert "bytes of runtime from node" in done.messages, done


def test_no_port_listens_while_ranks_run(horarun, hosts):
    nodes = hosts(2)
    forget(nodes)
    before = [listeners(nodes, k) for k in (1, 2)]
    job = horarun.start(
        *("-H", nodes.spec(1), "--ship-via", "hosts", "--stdin", "all", "sh", "-c", "echo runs; read line"),
        stdin=subprocess.PIPE,
    )
    job.read_until("runs", times=2)
    # Not the reserved port of an agent, which is bound only.
    assert [listeners(nodes, k) for k in (1, 2)] == before
    job.finish(b"go on\n").expect(0)


def test_hosts_that_cannot_reach_each_other_are_served_by_the_launcher(horarun, hosts):
    """By the doctor, who takes hosts without a common network, too."""
    nodes = hosts(4)
    forget(nodes)
    pairs = [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]
    for a, b in pairs:
        nodes.act("part", a, b)
    done = horarun.run("doctor", "-H", nodes.spec(1), "--ship-via", "hosts", "--verbose")
    reported = [line for line in done.messages.splitlines() if "could not fetch a part of the runtime from" in line]
    assert any("what no host can give, the launcher sends" in line for line in reported), done
    assert "bytes of runtime from node" not in done.messages, done
    for host in nodes.names:
        assert host in done.text, done
    assert "E_SHIP" not in str(done) and "E_HOST_LOST" not in str(done), done
