# SPDX-License-Identifier: Apache-2.0
"""Agent and runtime go from host to host: what leaves the launcher, and what happens when a host cannot serve."""

import json
import math
import os
import signal
import subprocess

import jobs

COUNT = 12
PER_HOST = 60_000  # bytes that every host gets from the launcher: ssh, orders, heartbeats


def sent_bytes():
    """What this machine's bridge has sent to the hosts."""
    (bridge,) = [name for name in os.listdir("/sys/class/net") if os.path.isdir(f"/sys/class/net/{name}/bridge")]
    with open(f"/sys/class/net/{bridge}/statistics/tx_bytes") as file:
        return int(file.read())


def packed_agent(build):
    return os.path.getsize(os.path.join(build, "share/hora", os.uname().machine, "agent/hora-agent.gz"))


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
    """TCP ports that somebody listens on, but for sshd's."""
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


def test_the_agent_goes_from_host_to_host(horarun, hosts, build):
    """By the bytes that leave the launcher. A second launch brings nobody anything."""
    nodes = hosts(COUNT)
    forget(nodes)
    before = sent_bytes()
    done = launch(horarun, nodes).expect(0)
    sent = sent_bytes() - before - sum(event["sent_bytes"] for event in supplies(done).values())
    agent = packed_agent(build)
    assert sent <= math.ceil(math.log2(COUNT)) * agent + COUNT * PER_HOST, done
    forget(nodes)
    before = sent_bytes()
    done = launch(horarun, nodes, "--ship-via", "launcher").expect(0)
    sent = sent_bytes() - before - sum(event["sent_bytes"] for event in supplies(done).values())
    assert sent >= COUNT * agent, done
    before = sent_bytes()
    launch(horarun, nodes).expect(0)
    assert sent_bytes() - before <= COUNT * PER_HOST


def test_hosts_that_lack_programs_are_sent_the_agent(horarun, hosts, build):
    """Without sha256sum nothing that others serve can be trusted."""
    nodes = hosts(COUNT)
    forget(nodes)
    without = range(1, COUNT + 1, 2)
    for k in without:
        nodes.execute(k, "mount", "--bind", "/dev/null", nodes.execute(k, "which", "sha256sum").strip())
    before = sent_bytes()
    done = launch(horarun, nodes).expect(0)
    sent = sent_bytes() - before - sum(event["sent_bytes"] for event in supplies(done).values())
    for k in without:
        nodes.execute(k, "umount", nodes.execute(k, "which", "sha256sum", check=False).strip() or "/usr/bin/sha256sum")
    most = len(without) + math.ceil(math.log2(COUNT))
    assert len(without) * packed_agent(build) <= sent <= most * packed_agent(build) + COUNT * PER_HOST, done


def test_a_launcher_that_is_killed_leaves_nothing_of_a_fetch(horarun, hosts):
    nodes = hosts(2)
    forget(nodes)
    for k in (1, 2):
        nodes.act("netem", k, "--rate", "4")  # 1 MB from the launcher takes 2 s, 2 MB from a host 4 s
    try:
        job = horarun.start("-H", nodes.spec(1), "--ship-via", "hosts", "/bin/true")

        def fetching():
            return [pid for k in (1, 2) for pid in nodes.processes(k, "head\0-c")]

        jobs.wait_until(fetching, "a host that fetches the agent")
        job.send_signal(signal.SIGKILL)
        job.finish()

        def nothing_left():
            files = [name for k in (1, 2) for name in files_of(nodes, k) if "/.ship-" in name]
            return not files and not any(nodes.processes(k, "HORA-") for k in (1, 2)) and not fetching()

        jobs.wait_until(nothing_left, "the end of what fetched", 30)
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
    for what in ("the agent", "a part of the runtime"):
        told = [line for line in done.messages.splitlines() if f"could not fetch {what} from" in line]
        assert any("what no host can give, the launcher sends" in line for line in told), done
    assert "bytes of runtime from node" not in done.messages, done
    for host in nodes.names:
        assert host in done.text, done
    assert "E_SHIP" not in str(done) and "E_HOST_LOST" not in str(done), done
