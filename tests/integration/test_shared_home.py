# SPDX-License-Identifier: Apache-2.0
"""Hosts that share one home directory, and home directories that are nearly full."""

import json
import os
import shutil
import subprocess
import tempfile
import time

import pytest

import jobs

PYTHON = "/usr/bin/python3"
CACHES = "/root/.cache /tmp/hora-0 /dev/shm/hora-0"


class SharedCache:
    """One folder of head's is /root/.cache on hosts."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="hora-home.", dir="/var/tmp")
        self.mounted = []

    def mount(self, hosts, *command):
        for k in range(1, len(hosts.names) + 1):
            hosts.execute(k, "sh", "-c", f"umount -l /root/.cache 2>/dev/null; rm -rf {CACHES}; mkdir -p /root/.cache")
            hosts.execute(k, *command, self.folder, "/root/.cache")
            self.mounted.append((hosts, k))

    def names(self, prefix=""):
        folder = f"{self.folder}/hora"
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix)) if os.path.isdir(folder) else []

    def empty(self):
        shutil.rmtree(f"{self.folder}/hora", ignore_errors=True)

    def close(self):
        for hosts, k in self.mounted:
            hosts.execute(k, "umount", "-l", "/root/.cache", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def shared_cache(hosts):
    cache = SharedCache()
    yield cache
    cache.close()


@pytest.fixture(params=["bind", "bindfs"])
def apart(request, hosts, shared_cache):
    """apart(n): hosts; with bindfs each has a file system of its own on the folder, and sees no locks of the others."""

    def up(count):
        some = hosts(count)
        if request.param == "bind":
            shared_cache.mount(some, "mount", "--bind")
            return some
        if not shutil.which("bindfs") or not os.path.exists("/dev/fuse"):
            pytest.skip("no bindfs (scripts/setup --tests), or no /dev/fuse")
        shared_cache.mount(some, "bindfs")
        both = [lock_on(some, k) for k in (1, 2)]
        said = [lock.stdout.readline() for lock in both]
        for lock in both:
            lock.communicate(timeout=20)
        assert said == [b"locked\n"] * 2, "locks reach from one host to the other"
        return some

    up.enough = 6 if request.param == "bind" else 3  # bindfs costs so much that a busy machine misses probes
    return up


def lock_on(hosts, k):
    """A process of host k that holds a lock on the shared folder until its stdin is closed."""
    command = "exec 9</root/.cache; flock -n 9 || exit 1; echo locked; cat"
    return subprocess.Popen(
        ["nsenter", "-t", str(hosts._hosts.init_pid(k)), "-m", "sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_first_launch_of_shells_with_equal_numbers(horarun, apart, shared_cache):
    """As in containers or pods: each has its own process numbers, and in all of them they are the same."""
    some = apart(apart.enough)
    for round in range(4):
        shared_cache.empty()
        for k in range(1, apart.enough + 1):
            some.execute(k, "sh", "-c", f"echo {20_000 + 1000 * round} >/proc/sys/kernel/ns_last_pid")
        done = horarun.run("-H", some.spec(1), PYTHON, "-c", "import hora; print(hora.__file__)").expect(0)
        assert all("/root/.cache/hora/" in lines[0] for lines in done.ranks().values()), done
        # An agent, a bundle; and a note, when the agent was looked at a moment after it came.
        names = shared_cache.names()
        assert len([name for name in names if name.startswith("agent-")]) == 1, names
        assert len([name for name in names if not name.startswith((".verified-", "agent-"))]) == 1, names


def test_a_second_launch_leaves_the_first_ones_transfer_alone(horarun, apart, shared_cache):
    three = apart(3)
    # The agent is there, and the bundle would take minutes: it does not end before the second launch does.
    horarun.run("-H", "node1:1", "--runtime", "host", "true").expect(0)
    three.act("netem", 1, "--rate", "0.2")
    try:
        first = horarun.start("-H", "node1:1", "--start-timeout", "120s", PYTHON, "-c", "import hora; print('first')")
        jobs.wait_until(
            lambda: shared_cache.names(".incoming-") or first.process.poll() is not None,
            "the first bundle is being unpacked",
            60,
        )
        horarun.run("-H", "node2:1", PYTHON, "-c", "import hora; print('second')").expect(0)
        assert len(shared_cache.names(".incoming-")) == 1, shared_cache.names()
    finally:
        three.act("netem", 1)
    assert first.finish().expect(0).ranks() == {0: ["first"]}
    jobs.wait_until(lambda: not shared_cache.names(".incoming-") + shared_cache.names(".used-"), "nothing is left")


def test_cleaning_keeps_what_a_job_on_another_host_uses(horarun, apart, shared_cache):
    apart(3)
    script = (
        f"echo up; until [ -e {shared_cache.folder}/go ]; do sleep 0.05; done; "
        f"exec {PYTHON} -c 'import hora; print(hora.size)'"
    )
    job = horarun.start("-H", "node1:1,node2:1", "sh", "-c", script)
    job.read_until("up", 2)
    done = horarun.run("cache", "clean", "-H", "node1:1,node3:1").expect(0)
    kept = shared_cache.names()
    assert len([name for name in kept if not name.startswith(".")]) == 2, done
    for name in kept:
        assert name.startswith(".") or f"kept /root/.cache/hora/{name}: in use on node" in done.text, done
    with open(f"{shared_cache.folder}/go", "w"):
        pass
    job.finish().expect(0)
    jobs.wait_until(lambda: not shared_cache.names(".used-"), "the marks of use go")
    # Three that run from one file: none takes it away from the others.
    done = horarun.run("cache", "clean", "-H", "node1:1,node2:1,node3:1").expect(0)
    others = [name for name in shared_cache.names() if not name.startswith((".", "agent-"))]
    assert "kept" not in done.text and not others, done
    done = horarun.run("cache", "clean", "-H", "node1:1").expect(0)
    assert done.text.startswith("removed 1 entry of /root/.cache/hora: "), done
    # A FUSE mount keeps what is unlinked and still open by another name, for a moment.
    jobs.wait_until(
        lambda: not [name for name in shared_cache.names() if not name.startswith(".fuse_hidden")], "nothing is left"
    )


@pytest.mark.parametrize("dead", [("nowhere.invalid",), ("nowhere.invalid", "missing.invalid")])
def test_hosts_next_to_a_missing_one(horarun, hosts, dead):
    hosts(2)
    listed = horarun.run("cache", "ls", "-H", ",".join(("node1", *dead, "node2"))).expect(125)
    named = {line.split(":")[0] for line in listed.text.splitlines()}
    assert named == {"node1", "node2"}, listed
    assert all(f"host {name} (" in listed.messages for name in dead), listed
    assert listed.messages.count("E_RESOLVE") == len(dead), listed
    alone = horarun.run("cache", "ls", "-H", dead[0]).expect(125)
    assert not alone.text and "E_RESOLVE" in alone.messages, alone


def test_the_cache_as_json(horarun, hosts):
    two = hosts(2)
    horarun.run("-H", two.spec(1), PYTHON, "-c", "import hora").expect(0)
    listed = horarun.run("cache", "ls", "--json", "-H", two.spec(1)).expect(0)
    entries = [json.loads(line) for line in listed.text.splitlines()]
    assert {entry["host"] for entry in entries} == {"node1", "node2"}, listed
    assert all(entry["path"].startswith("/root/.cache/hora/") and entry["bytes"] > 0 for entry in entries), listed
    reported = horarun.run("cache", "clean", "--dry-run", "--json", "-H", two.spec(1)).expect(0)
    assert all("would remove" in json.loads(line)["message"] for line in reported.text.splitlines()), reported


def test_hosts_that_are_not_there_are_asked_once(horarun, tmp_path):
    """All at once: each could cost the whole of --start-timeout."""
    asked = tmp_path / "asked"
    rsh = tmp_path / "rsh"
    rsh.write_text(f'#!/bin/sh\necho "$1" >> {asked}\nexit 255\n')
    rsh.chmod(0o755)
    done = horarun.run("cache", "ls", "-H", "a,b,c", "--transport", "command", "--rsh", str(rsh)).expect(125)
    assert sorted(asked.read_text().split()) == ["a", "b", "c"], done
    assert all(f"host {name}: " in done.messages for name in "abc"), done
    assert done.messages.count("E_RSH") == 3, done


def test_cleaning_takes_all_there_is(horarun, hosts):
    two = hosts(2)
    for k in (1, 2):
        two.execute(k, "sh", "-c", f"rm -rf {CACHES}")
    horarun.run("-H", two.spec(1), PYTHON, "-c", "import hora").expect(0)
    listed = horarun.run("cache", "ls", "-H", two.spec(1)).expect(0)
    assert listed.text.count("/root/.cache/hora/agent-") == 2, listed
    two.execute(1, "mkdir", "-m", "700", "/tmp/hora-0", "/tmp/hora-0/" + "a" * 64)
    done = horarun.run("cache", "clean", "-H", two.spec(1)).expect(0)
    assert sorted(line.split(":")[0] for line in done.text.splitlines()) == ["node1", "node1", "node2"], done
    assert done.text.count("removed ") == 3, done
    listed = horarun.run("cache", "ls", "-H", two.spec(1)).expect(0)
    assert listed.text.count("agent-") == 2, listed
    horarun.run("cache", "clean", "-H", two.spec(1)).expect(0)
    for k in (1, 2):
        assert two.execute(k, "sh", "-c", f"ls -A {CACHES} 2>/dev/null; :").replace("/root/.cache:\n", "") == "", done


def make_older(path, days):
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_a_job_that_keeps_limits_takes_what_is_old_and_nothing_in_use(horarun, apart, shared_cache):
    apart(2)
    # With TLS: another bundle than that of the second job.
    script = (
        f"echo up; until [ -e {shared_cache.folder}/go ]; do sleep 0.05; done; "
        f"exec {PYTHON} -c 'import hora; print(hora.size)'"
    )
    job = horarun.start("-H", "node1:1", "--rendezvous-tls", "sh", "-c", script)
    job.read_until("up", 1)
    in_use = [name for name in shared_cache.names() if not name.startswith(".")]
    assert len(in_use) == 2, in_use
    forgotten = "a" * 64
    os.mkdir(f"{shared_cache.folder}/hora/{forgotten}", 0o700)
    for name in shared_cache.names():
        if not name.startswith((".used-", "agent-")):  # another time would make an agent look changed
            make_older(f"{shared_cache.folder}/hora/{name}", 40)
    shown = horarun.run("cache", "clean", "--older-than", "30d", "--dry-run", "-H", "node2:1").expect(0)
    assert f"would remove /root/.cache/hora/{forgotten}: 0, used 40 days ago" in shown.text, shown
    assert "in use on node1" in shown.text and forgotten in shared_cache.names(), shown
    horarun.run("-H", "node2:1", "--cache-max-size", "1", PYTHON, "-c", "import hora").expect(0)
    assert forgotten not in shared_cache.names(), shared_cache.names()
    assert set(in_use) <= set(shared_cache.names()), shared_cache.names()
    with open(f"{shared_cache.folder}/go", "w"):
        pass
    job.finish().expect(0)


def test_jobs_that_limit_a_shared_cache_at_once(horarun, apart, shared_cache):
    """Each of them would leave nothing; none loses what it runs from, and all is whole at the end."""
    apart(2)
    for _ in range(4):
        jobs_at_once = [
            horarun.start("-H", f"node{k}:1", *more, "--cache-max-size", "1", PYTHON, "-c", "import hora; print('ran')")
            for k, more in ((1, []), (2, ["--rendezvous-tls"]))
        ]
        for job in jobs_at_once:
            assert job.finish().expect(0).ranks() == {0: ["ran"]}
    jobs.wait_until(lambda: not shared_cache.names((".used-", ".incoming-")), "nothing is left but entries")
    horarun.run("-H", "node1:1", PYTHON, "-c", "import hora").expect(0)


def test_the_cache_is_shown_and_limited_by_age(horarun, hosts):
    two = hosts(2)
    for k in (1, 2):
        two.execute(k, "sh", "-c", f"rm -rf {CACHES}")
    horarun.run("-H", two.spec(1), PYTHON, "-c", "import hora").expect(0)
    old = "/root/.cache/hora/" + "a" * 64
    two.execute(1, "sh", "-c", f"mkdir -m 700 {old}; touch -d '40 days ago' {old}")
    listed = horarun.run("cache", "ls", "-H", two.spec(1)).expect(0)
    assert listed.text.count(" 0 min ago ") == 4 and listed.text.count(" total ") == 2, listed
    assert f"0  40 days ago       {old}" in listed.text, listed
    there = two.execute(1, "ls", "-A", "/root/.cache/hora").split()
    horarun.run("-H", two.spec(1), "--cache-max-age", "0", "true").expect(0)
    assert "a" * 64 in two.execute(1, "ls", "/root/.cache/hora"), "0 means without a limit"
    # The defaults.
    horarun.run("-H", two.spec(1), "true").expect(0)
    left = two.execute(1, "ls", "-A", "/root/.cache/hora").split()
    assert {name for name in there if not name.startswith(".")} - set(left) == {"a" * 64}, left


@pytest.fixture
def nearly_full(hosts):
    """nearly_full("/root", ...): there is room for an agent, and none for a bundle."""
    two = hosts(2)
    mounted = []

    def fill(*folders):
        for folder in folders:
            two.execute(1, "mount", "-t", "tmpfs", "-o", "size=3m,mode=1777", "tmpfs", folder)
            mounted.append(folder)

    two.execute(1, "sh", "-c", f"rm -rf {CACHES}")
    yield fill
    for folder in mounted:
        two.execute(1, "umount", "-l", folder)


def test_nearly_full_home(horarun, hosts, nearly_full):
    nearly_full("/root")
    for agent_is_there in (False, True):
        done = horarun.run("-H", "node1:2", "--verbose", PYTHON, "-c", "import hora; print(hora.__file__)").expect(0)
        assert all(line.startswith("/tmp/hora-0/") for lines in done.ranks().values() for line in lines), done
        assert ("shipped 0 bytes" in done.messages) == agent_is_there, done
        left = hosts(2).execute(1, "ls", "-A", "/root/.cache/hora").split()
        assert [name for name in left if not name.startswith((".verified-", "agent-"))] == [], left


def test_nearly_full_everywhere(horarun, hosts, nearly_full):
    nearly_full("/root", "/tmp", "/dev/shm")
    done = horarun.run("-H", "node1:1", PYTHON, "-c", "import hora").expect(125)
    assert "E_DISK_FULL" in done.messages, done
    for place in CACHES.split():
        assert place in done.messages, done

    def nothing_unfinished():
        left = hosts(2).execute(1, "sh", "-c", f"ls -A {CACHES}").split()
        return not [name for name in left if name.startswith((".incoming-", ".used-", ".ship-"))]

    # The agent removes its mark when it leaves, which is after the failure that it reports.
    jobs.wait_until(nothing_unfinished, "the agent leaves no unfinished file and no mark")
