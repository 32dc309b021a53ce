# SPDX-License-Identifier: Apache-2.0
"""Shipping the agent: once, completely or not at all, into the first usable directory."""

import contextlib
import os
import subprocess
import time

import pytest


def received(hosts, k):
    return int(hosts.execute(k, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))


def cached(hosts, k, folder, probe):
    return f"{folder}/agent-{probe.sha}"


def sha_of(hosts, k, path):
    return hosts.execute(k, "sha256sum", path).split()[0]


def wait_for_none(find):
    deadline = time.monotonic() + 20
    while pids := [str(pid) for pid in find()]:
        assert time.monotonic() < deadline, subprocess.run(
            ["ps", "-o", "pid,ppid,lstart,stat,wchan,args", *pids], capture_output=True, text=True
        ).stdout
        time.sleep(0.05)


def agents(hosts, k, probe):
    """Without a shell that is to start one."""
    for pid in hosts.processes(k, probe.sha):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe").endswith(f"/agent-{probe.sha}"):
                yield pid


def test_second_run_ships_nothing(probe, two):
    size = os.path.getsize(probe.agent)
    before = received(two, 1)
    first = probe(["node1", "node2"])
    assert first.hello("node1")["sha"] == first.hello("node2")["sha"] == probe.sha
    assert len(first.shipped()) == 2
    assert received(two, 1) - before > size / 8
    assert sha_of(two, 1, cached(two, 1, "/root/.cache/hora", probe)) == probe.sha
    assert two.execute(1, "stat", "-c", "%a %n", "/root/.cache/hora").split()[0] == "700"

    before = received(two, 1)
    second = probe(["node1", "node2"])
    second.hello("node1"), second.hello("node2")
    assert not second.shipped()
    assert received(two, 1) - before < 64 * 1024, "more than a handshake went over the wire"
    assert two.execute(1, "ls", "/root/.cache/hora").split() == [f"agent-{probe.sha}"]


@pytest.mark.parametrize(
    "damage",
    ["empty", "half", "garbage", "another program", "a script", "broken header", "not executable", "a dangling link"],
)
def test_a_broken_entry_is_replaced(probe, two, damage):
    probe("node1").hello()
    path = cached(two, 1, "/root/.cache/hora", probe)
    script = {
        "empty": f": >{path}",
        "half": f"truncate -s {os.path.getsize(probe.agent) // 2} {path}",
        "garbage": f"head -c 900000 /dev/urandom >{path}",
        "another program": f"cat /bin/true >{path}",
        "a script": f"echo 'echo hello; exit 3' >{path}",
        "broken header": f"printf 'XXXXXXXXXXXXXXXXXXXXXXXX' | dd of={path} bs=1 seek=16 conv=notrunc status=none",
        "not executable": f"chmod 600 {path}",
        "a dangling link": f"ln -sf /nowhere {path}",
    }[damage]
    # A program that runs cannot be written to, and an ending one is off the process table a little earlier.
    wait_for_none(lambda: agents(two, 1, probe))
    two.execute(1, "timeout", "20", "sh", "-c", f"until sh -c ': >>{path}'; do sleep 0.02; done")
    two.execute(1, "sh", "-c", script)
    outcome = probe("node1")
    outcome.hello()
    assert outcome.shipped("node1") == ["/root/.cache/hora"]
    assert sha_of(two, 1, path) == probe.sha
    again = probe("node1")
    again.hello()
    assert not again.shipped()


def test_an_agent_that_is_not_what_was_sent_is_refused(probe, two):
    message = probe("node1", arguments=["--lie"]).failure("E_AGENT")
    assert "corrupted on the way" in message


@pytest.mark.parametrize("home", ["ro", "size=64k", "noexec"])
def test_a_home_that_is_not_fit(probe, two, mounts, home):
    mounts.tmpfs(1, "/root", home)
    outcome = probe("node1")
    assert outcome.hello()["cache"] == "/tmp/hora-0"
    assert outcome.shipped("node1")[-1] == "/tmp/hora-0"
    assert two.execute(1, "find", "/root", "-type", "f").split() == [], "left-overs in the home that was full"
    again = probe("node1")
    assert again.hello()["cache"] == "/tmp/hora-0" and not again.shipped()


@pytest.mark.parametrize(
    "trap",
    [
        "mkdir /tmp/hora-0; chown 12345 /tmp/hora-0",
        "mkdir /tmp/h; ln -s /tmp/h /tmp/hora-0",
        "echo >/tmp/hora-0",
        "mkdir -m 777 /tmp/h; chown 12345 /tmp/h; ln -s /tmp/h /tmp/hora-0",
    ],
)
def test_a_directory_that_another_user_made(probe, two, mounts, trap):
    mounts.tmpfs(1, "/root", "ro")
    two.execute(1, "sh", "-c", "rm -rf /tmp/h; " + trap)
    outcome = probe("node1")
    assert outcome.hello()["cache"] == "/dev/shm/hora-0"
    assert two.execute(1, "sh", "-c", "find /tmp/h* -follow -type f -size +1k 2>/dev/null || :") == ""


def test_no_directory_at_all(probe, two, mounts):
    for folder, options in (("/root", "ro"), ("/tmp", "noexec,mode=1777"), ("/dev/shm", "size=64k,mode=1777")):
        mounts.tmpfs(1, folder, options)
    message = probe(["node1", "node2"]).failure("E_CACHE", "node1")
    assert "/root/.cache/hora cannot be created" in message
    assert "/tmp/hora-0 does not let programs run (noexec)" in message
    assert "/dev/shm/hora-0 is full, or the transfer broke off" in message
    assert two.execute(1, "sh", "-c", "find /tmp /dev/shm -type f") == ""


def test_full_disks(probe, two, mounts):
    for folder in ("/root", "/tmp", "/dev/shm"):
        mounts.tmpfs(1, folder, "size=64k,mode=1777")
        two.execute(1, "sh", "-c", f"mkdir -p {folder}/.cache/hora; cat /dev/zero >{folder}/filler 2>/dev/null; true")
    message = probe(["node1", "node2"]).failure("E_DISK_FULL", "node1")
    assert "is full" in message


def test_a_limit_of_file_size_is_not_a_full_disk(probe, two, mounts):
    mounts.file(1, "/root/.bashrc", "ulimit -f 100\n")
    assert "(ulimit -f)" in probe("node1").failure("E_CACHE")


def test_without_gzip_the_agent_comes_as_it_is(probe, hosts):
    up = hosts(1, without=["gzip", "tar"])
    up.execute(1, "rm", "-rf", "/root/.cache")
    outcome = probe("node1")
    outcome.hello()
    assert outcome.shipped()
    assert sha_of(up, 1, cached(up, 1, "/root/.cache/hora", probe)) == probe.sha


def test_a_cut_transfer_leaves_nothing(probe, two):
    two.act("netem", 1, "--rate", "1")  # seconds for all of it, in which even a busy machine looks once
    launcher = subprocess.Popen(probe.argv("node1"), stdout=subprocess.PIPE, text=True)
    try:
        for line in launcher.stdout:
            if '"ship"' in line:
                break
        deadline = time.monotonic() + 20
        while not two.execute(1, "find", "/root/.cache", "-name", ".ship-*"):
            assert time.monotonic() < deadline, "nothing of the agent arrives"
            time.sleep(0.02)
    finally:
        launcher.kill()
        launcher.communicate()
        two.act("netem", 1)
    wait_for_none(lambda: two.processes(1, probe.sha))
    # What the kernel had taken from the launcher still leaves: that may have been all of it.
    for path in two.execute(1, "find", "/root/.cache", "-type", "f").split():
        assert sha_of(two, 1, path) == probe.sha
    probe("node1").hello()


def test_many_launchers_at_once(probe, two):
    running = [subprocess.Popen(probe.argv("node1"), stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for process in running:
        out, _ = process.communicate(timeout=60)
        assert '"result":"hello"' in out, out
    path = cached(two, 1, "/root/.cache/hora", probe)
    assert sha_of(two, 1, path) == probe.sha
    wait_for_none(lambda: two.processes(1, probe.sha))  # as long as an agent lives its mark is there
    left = two.execute(1, "ls", "-A", "/root/.cache/hora").split()
    assert [name for name in left if not name.startswith(".verified-")] == [os.path.basename(path)]


def test_another_machine_type(probe, two, mounts):
    mounts.file(1, "/usr/bin/uname", "#!/bin/sh\necho aarch64\n")
    two.execute(1, "chmod", "755", "/usr/bin/uname")
    message = probe("node1").failure("E_PROCESSOR")
    assert "aarch64" in message
