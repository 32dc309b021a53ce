# SPDX-License-Identifier: Apache-2.0
"""Launches on hosts without Hora: shipping, caching, networks, other programs."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

import jobs
from extra_sshd import ExtraSshd

PYTHON = "/usr/bin/python3"
has_torch = pytest.mark.skipif(
    os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") != 0, reason="no torch for the system's Python"
)


def shipped(done):
    """host -> bytes of runtime that went there, as --verbose prints them."""
    return {host: int(count) for host, count in re.findall(r"(\S+): agent ready, shipped (\d+) bytes", done.messages)}


def test_smoke_here(horarun):
    horarun.run("-np", 4, "--smoke").expect(0)


def test_smoke_as_json(horarun):
    report = json.loads(horarun.run("-np", 2, "--smoke", "--json").expect(0).out)
    assert report, report


def test_smoke_checks_all_dtypes_at_once(horarun, tmp_path):
    """So that hosts which are far from each other answer the calls of eleven dtypes in one round trip."""
    horarun.run("-np", 2, "--timeline-filename", tmp_path / "trace.json", "--smoke").expect(0)
    events = json.loads((tmp_path / "trace.json").read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    open_at, most = dict.fromkeys(names, 0), 0
    for event in sorted((event for event in events if "ts" in event), key=lambda event: event["ts"]):
        if names[event["pid"]].startswith("smoke.allreduce"):
            open_at[event["pid"]] += {"B": 1, "E": -1}.get(event["ph"], 0)
            most = max(most, sum(depth > 0 for depth in open_at.values()))
    assert 1 < most <= 11, most


def test_smoke_on_bare_hosts_ships_once(horarun, hosts):
    """Shown by, 1."""
    four = hosts(4, without=["perl", "scp"])
    four.execute(1, "test", "!", "-e", horarun.path)
    first = horarun.run("-np", 8, "-H", four.spec(2), "--verbose", "--smoke").expect(0)
    assert set(shipped(first)) == set(four.names), first
    again = horarun.run("-np", 8, "-H", four.spec(2), "--verbose", "--smoke").expect(0)
    assert shipped(again) == dict.fromkeys(four.names, 0), again
    assert jobs.agents() == []


def test_a_job_ships_the_parts_that_it_needs(horarun, hosts):
    """Each job ships what no earlier one has brought; all parts of a job are in one directory."""
    two = hosts(2)
    for k in (1, 2):
        two.execute(k, "sh", "-c", "rm -rf /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0")
    listing = ["sh", "-c", 'ls "${LD_LIBRARY_PATH%%:*}" "${LD_LIBRARY_PATH%%:*}/../bin" 2>/dev/null; :']
    plain = horarun.run("-H", two.spec(1), "--verbose", *listing).expect(0)
    for lines in plain.ranks().values():
        found = " ".join(lines)
        assert "libhora.so" in found and "libhora_gloo.so" not in found, plain
        assert not re.search("tls|mpi|pmi|smoke|doctor", found), plain
    smoke = horarun.run("-H", two.spec(1), "--verbose", "--smoke").expect(0)
    secret = horarun.run("-H", two.spec(1), "--verbose", "--rendezvous-tls", "--smoke").expect(0)
    for host in two.names:
        assert 0 < shipped(smoke)[host] < shipped(plain)[host] / 4, (plain.messages, smoke.messages)
        assert shipped(smoke)[host] < shipped(secret)[host], (smoke.messages, secret.messages)
    for options in ([*listing], ["--smoke"], ["--rendezvous-tls", "--smoke"], ["--rendezvous-tls", *listing]):
        again = horarun.run("-H", two.spec(1), "--verbose", *options).expect(0)
        assert shipped(again) == dict.fromkeys(two.names, 0), again


def test_a_part_that_was_not_shipped_is_named(horarun, hosts):
    """The program asks for what horarun could not know of: the job fails and says what would help."""
    two = hosts(2)
    command = ["env", "HOROVOD_CPU_OPERATIONS=mpi", "hora-smoke"]
    done = horarun.run("-H", two.spec(1), *command).expect(1)
    assert "libhora_mpi.so is not in /root/.cache/hora/" in done.messages, done
    assert "HORA_BACKENDS in the environment of horarun can ask for mpi" in done.messages, done


def test_hosts_without_python(horarun, hosts):
    bare = hosts(2, without=["python3", "perl", "gzip", "sha256sum", "curl"])
    horarun.run("-np", 4, "-H", bare.spec(2), "--smoke").expect(0)


@has_torch
@pytest.mark.parametrize("where", ["-np 4", "-H node1:2,node2:2"], ids=["here", "on two hosts"])
def test_plain_pytorch_ddp(horarun, hosts, shared, where):
    """Shown by, 2."""
    if "node" in where:
        hosts(4)
    # PyTorch of Debian 13 is built without libuv, and asks for it unless USE_LIBUV is 0.
    done = horarun.run(*where.split(), "-x", "USE_LIBUV=0", PYTHON, f"{shared}/ddp_train.py").expect(0)
    assert done.text.count("learned") == 4 and "of 4" in done.text, done


def test_ranks_are_spread(horarun, hosts):
    four = hosts(4)
    done = horarun.run("-np", 6, "-H", four.spec(2), "hostname").expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node1"], 2: ["node2"], 3: ["node2"], 4: ["node3"], 5: ["node3"]}, done


def test_head_and_hosts_in_one_job(horarun, hosts):
    hosts(4)
    done = horarun.run("-H", "localhost:1,node1:1", "--smoke")
    done.expect(0)


def test_host_listed_twice(horarun, hosts):
    hosts(4)
    done = horarun.run("-H", "node1:1,node2:1,node1:1", "sh", "-c", "hostname; echo $HOROVOD_LOCAL_SIZE").expect(0)
    assert sorted(map(tuple, done.ranks().values())) == [("node1", "2"), ("node1", "2"), ("node2", "1")], done


def test_hostfile(horarun, hosts, tmp_path):
    hosts(4)
    (tmp_path / "hosts").write_bytes(b"# my machines\r\n\r\nnode1 slots=2\r\nroot@node2:1   # second\r\nnode3\r\n")
    done = horarun.run("--hostfile", tmp_path / "hosts", "hostname").expect(0)
    assert [done.ranks()[rank][0] for rank in range(4)] == ["node1", "node1", "node2", "node3"], done


def test_numeric_and_ipv6_addresses(horarun, hosts):
    four = hosts(4)
    done = horarun.run("-H", f"{four.address(1)}:1,[fd79:79:0::2]:1", "hostname").expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"]}, done


def test_two_networks_and_a_decoy(horarun, hosts):
    """docker0 has one address on all hosts, and head is not on the second network."""
    four = hosts(4, nets=2, decoy=True, nic_names=True)
    done = horarun.run("-np", 8, "-H", four.spec(2), "--verbose", "--smoke").expect(0)
    assert "docker0" not in re.sub(r".*(skip|not|ignor).*", "", done.messages) or "en1p0" in done.messages, done
    done = horarun.run(
        "-np",
        4,
        "-H",
        four.spec(1),
        "--network-interfaces",
        "10.79.1.0/24",
        "sh",
        "-c",
        "echo $HOROVOD_GLOO_IFACE $MASTER_ADDR",
    ).expect(0)
    assert done.ranks() == {rank: [f"en{rank + 1}p1 10.79.1.1"] for rank in range(4)}, done


def test_network_that_is_not_there(horarun, hosts):
    hosts(4)
    done = horarun.run("-H", "node1:1,node2:1", "--network-interfaces", "10.200.0.0/16", "true").expect(125)
    assert "E_NETWORK" in done.messages and "10.200.0.0/16" in done.messages, done


def test_runtime_of_the_host(horarun, hosts):
    two = hosts(2)
    done = horarun.run(
        "-H", two.spec(1), "--runtime", "host", "--verbose", "sh", "-c", "echo ${PYTHONPATH-unset}"
    ).expect(0)
    assert shipped(done) == {"node1": 0, "node2": 0}, done
    assert all("hora" not in line for lines in done.ranks().values() for line in lines), done


def test_shipped_runtime_is_on_the_paths(horarun, hosts):
    script = "import hora, horovod.common.util, sys; print(hora.__file__)"
    done = horarun.run("-H", hosts(2).spec(1), PYTHON, "-c", script).expect(0)
    assert all("/hora/" in lines[0] for lines in done.ranks().values()), done


@has_torch
def test_python_package_end_to_end(horarun, hosts):
    script = (
        "import numpy, horovod.torch as hvd, torch; hvd.init(); "
        "print(hvd.allreduce(torch.arange(4.0) + hvd.rank(), op=hvd.Sum).tolist())"
    )
    done = horarun.run("-H", hosts(2).spec(2), PYTHON, "-c", script).expect(0)
    assert done.ranks() == {rank: ["[6.0, 10.0, 14.0, 18.0]"] for rank in range(4)}, done


def test_read_only_home_falls_back(horarun, hosts):
    two = hosts(2)
    two.execute(1, "sh", "-c", "rm -rf /root/.cache; mount -o remount,ro /root")
    try:
        horarun.run("-H", "node1:2", "--smoke").expect(0)
    finally:
        two.execute(1, "mount", "-o", "remount,rw", "/root")


def test_noexec_home_falls_back(horarun, hosts):
    two = hosts(2)
    two.execute(1, "sh", "-c", "rm -rf /root/.cache; mount -o remount,noexec /root")
    try:
        horarun.run("-H", "node1:2", "--smoke").expect(0)
    finally:
        two.execute(1, "mount", "-o", "remount,exec", "/root")


def test_a_shipped_program_runs_where_tmp_is_noexec(horarun, hosts, tmp_path):
    one = hosts(2)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    one.execute(1, "mount", "-t", "tmpfs", "-o", "noexec,mode=1777", "tmpfs", "/tmp")
    try:
        done = horarun.run("-H", "node1:1", "--ship", program, "./program").expect(0)
        assert done.ranks()[0][0].startswith("/var/tmp/hora-job-"), done
        assert "hora-job" not in one.execute(1, "ls", "/var/tmp", "/tmp", "/dev/shm")
    finally:
        one.execute(1, "umount", "-l", "/tmp")


def test_damaged_cache_entry_is_replaced(horarun, hosts):
    two = hosts(2)
    horarun.run("-H", "node1:1", "true").expect(0)
    two.execute(
        1, "sh", "-c", "for f in $(find /root/.cache/hora -type f -name '*.so*' | head -3); do echo broken >$f; done"
    )
    done = horarun.run("-np", 2, "-H", "node1:2", "--smoke")
    done.expect(0)


def test_an_agent_with_one_bit_changed_is_replaced(horarun, hosts):
    """In a text that it would not have printed: it would start and run the job all the same."""
    two = hosts(2)
    two.execute(1, "sh", "-c", "rm -rf /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0")  # where another test made it go
    horarun.run("-H", "node1:1", "true").expect(0)
    script = """if True:
        import glob, os
        path, = glob.glob('/root/.cache/hora/agent-*')
        data = bytearray(open(path, 'rb').read())
        data[data.index(b'usage: hora-agent')] ^= 1
        os.unlink(path)  # a running one cannot be written to
        open(path, 'wb').write(data)
        os.chmod(path, 0o700)
    """
    two.execute(1, PYTHON, "-c", script)
    for _ in range(2):
        assert horarun.run("-H", "node1:1", "echo", "hello").expect(0).ranks() == {0: ["hello"]}
        two.execute(
            1, "sh", "-c", "set -- /root/.cache/hora/agent-*; [ $# = 1 ] && echo ${1##*/agent-} $1 | sha256sum -c -"
        )


def test_racing_launchers_share_the_cache(horarun, hosts):
    two = hosts(2)
    two.execute(1, "rm", "-rf", "/root/.cache")
    running = [horarun.start("-H", "node1:1", PYTHON, "-c", "import hora") for _ in range(4)]
    for job in running:
        job.finish().expect(0)
    assert "tmp" not in two.execute(1, "sh", "-c", "ls -R /root/.cache/hora | grep -i tmp || true")


def test_banner_of_the_remote_shell(horarun, hosts):
    two = hosts(2)
    two.execute(1, "sh", "-c", "echo 'echo Welcome to this machine; echo again >&2' >/root/.bashrc")
    try:
        assert horarun.run("-H", "node1:1", "echo", "hello").expect(0).ranks() == {0: ["hello"]}
    finally:
        two.execute(1, "rm", "/root/.bashrc")


def test_command_transport(horarun, hosts):
    two = hosts(2)
    done = horarun.run("-H", two.spec(1), "--transport", "command", "--rsh", "ssh -q", "hostname").expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node2"]}, done
    # A container's exec is a command that enters namespaces.
    pid = two._hosts.init_pid(1)
    wrapper = f"sh -c 'shift; exec nsenter -t {pid} -a -- sh -c \"$*\"' --"
    assert horarun.run("-H", "node1:1", "--transport", "command", "--rsh", wrapper, "hostname").code in (0, 125)


FORGETFUL = """
import os, subprocess, sys, threading, time
child = subprocess.Popen(["sh", "-c", " ".join(sys.argv[2:])], stdout=subprocess.PIPE)
def pass_on():
    while text := os.read(child.stdout.fileno(), 65536):
        time.sleep(0.05)  # on its way
        os.write(1, text)
threading.Thread(target=pass_on, daemon=True).start()
os._exit(child.wait())
"""


def test_a_command_that_drops_what_is_under_way_when_the_agent_ends(horarun, tmp_path):
    """As srun does where input comes at that moment."""
    relay = tmp_path / "relay.py"
    relay.write_text(FORGETFUL)
    options = ("-H", "far:1", "--rsh", f"/usr/bin/python3 {relay}", "--runtime", "host")
    done = horarun.run(*options, "sh", "-c", "echo first; head -c 300000 /dev/zero; echo last; exit 3").expect(3)
    assert done.ranks()[0][-1].endswith("last") and "[E_" not in done.messages, done.messages


def test_a_command_that_ends_in_the_middle_of_a_message_is_quoted(horarun, tmp_path):
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift; sh -c "$*" | stdbuf -o0 head -c 200000\necho the line is cut >&2; exit 5\n')
    rsh.chmod(0o755)
    options = ("-H", "far:1", "--rsh", rsh, "--runtime", "host")
    done = horarun.run(*options, "head", "-c", 3_000_000, "/dev/zero").expect(125)
    gone = "host far: the agent is gone: it exited with status 5; it said: 'the line is cut'"
    assert gone in done.messages and "closed before the job was over [E_HOST_LOST]" in done.messages, done.messages


def test_secrets_are_not_on_command_lines(horarun, hosts):
    two = hosts(2)
    job = horarun.start("-H", two.spec(1), "sleep", "30", env={"MY_SECRET": "hunter2hunter2"})
    jobs.wait_until(lambda: two.processes(1, "sleep"), "the rank on node1")
    for k in (1, 2):
        assert "hunter2" not in two.execute(k, "ps", "axww", "-o", "args")
    with open(f"/proc/{job.pid}/cmdline") as file:
        assert "hunter2" not in file.read()
    job.send_signal(15)
    job.finish()


def test_horovodrun_spelling(horarun):
    """By its name, which lies next to horarun: ranks get no standard input, and the version is Horovod's."""
    options = ("--gloo", "-np", 2, "-H", "localhost:2", "--start-timeout", 30, "--cycle-time-ms", 2.5)
    program = ("sh", "-c", 'echo "$HOROVOD_CYCLE_TIME"; cat')
    done = horarun.run(*options, *program, name="horovodrun", input=b"not for the ranks\n").expect(0)
    assert done.ranks() == {0: ["2.5"], 1: ["2.5"]}, done
    assert horarun.run("--version", name="horovodrun").expect(0).text.strip() == "0.28.1"


def test_dry_run_starts_nothing(horarun, tmp_path):
    done = horarun.run("-np", 3, "-H", "node1:2,node2:2", "--dry-run", "touch", tmp_path / "x").expect(0)
    assert "node1" in done.text and "node2" in done.text and not (tmp_path / "x").exists(), done
    plan = json.loads(horarun.run("-np", 3, "-H", "node1:2,node2:2", "--dry-run", "--json", "true").expect(0).out)
    assert "node2" in json.dumps(plan), plan


def test_version_and_build(horarun):
    assert re.match(r".*\d+\.\d+\.\d+", horarun.run("--version").expect(0).text)
    text = horarun.run("--check-build").expect(0).text
    assert "Available Controllers:" in text and "    [X] Gloo" in text, text
    assert len(horarun.run("--check-build", "--verbose").expect(0).text) > len(text)


def test_unknown_host(horarun):
    done = horarun.run("-H", "no-such-host.invalid:1", "true").expect(125)
    assert "no-such-host.invalid" in done.messages and "E_RESOLVE" in done.messages, done


def test_all_wrong_hosts_are_named(horarun, hosts):
    """In the order of the list, in one run."""
    four = hosts(4)
    four.act("kill", 2)
    done = horarun.run("-H", "node1:1,node2:1,no-such-host.invalid:1,no-such-user@node4:1", "true").expect(125)
    places = [done.messages.find(text) for text in ("host node2", "host no-such-host.invalid", "host node4")]
    assert -1 not in places and places == sorted(places), done
    here = ("-H", "node1:1,node3:2,node4:1")
    done = horarun.run(*here, "--wdir", "/no/such/folder", "true").expect(125)
    places = [done.messages.find(f"host {name}: ") for name in ("node1", "node3", "node4")]
    assert -1 not in places and places == sorted(places) and done.messages.count("E_CWD") == 3, done
    assert done.messages.count("create it there") == 1, done
    done = horarun.run(*here, "no-such-program").expect(127)
    assert "rank 0 on node1 " in done.messages and "  the same: hosts node3, node4\n" in done.messages, done


def test_one_machine_under_two_names_is_refused(horarun, hosts):
    """Its ranks would take the same GPUs."""
    name = socket.gethostname()
    for others in ([name], ["127.0.0.1"], ["[::1]"], [name, "127.0.0.1"]):
        done = horarun.run("-H", ",".join(f"{host}:1" for host in ["localhost", *others]), "echo", "ran").expect(2)
        assert "are one machine" in done.messages and not done.text, done
        assert all(host.strip("[]") in done.messages for host in others), done
    # An elastic job may be tried on one machine, as long as its ranks take no GPUs from each other.
    elastic = ("-np", 2, "--min-np", 1, "-H", f"localhost:1,{name}:1", "--elastic-timeout", "3s")
    done = horarun.run(*elastic, "echo", "ran").expect(0)
    assert re.search("host .* is the same machine as host ", done.messages), done
    done = horarun.run(*elastic, "--gpus-per-rank", 1, "echo", "ran", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert "would take the same GPUs" in done.messages, done
    hosts(2)
    address = socket.gethostbyname("node1")
    done = horarun.run("-H", f"node1:1,node2:1,{address}:1", "echo", "ran").expect(2)
    assert f"hosts node1, {address} are one machine" in done.messages and not done.text, done
    # Hosts of their own, on one machine.
    assert horarun.run("-H", "localhost:1,node1:1,node2:1", "echo", "ran").expect(0).text.count("ran") == 3


def test_host_that_is_down(horarun, hosts):
    two = hosts(2)
    two.act("kill", 2)
    done = horarun.run("-H", two.spec(1), "true").expect(125)
    assert "node2" in done.messages and "E_CONNECT" in done.messages, done


def test_host_that_is_silent(horarun, hosts):
    two = hosts(2)
    two.act("cut", 2)
    done = horarun.run("-H", two.spec(1), "--start-timeout", "3s", "true")
    assert done.code in (124, 125) and "node2" in done.messages, done


def test_host_that_is_frozen(horarun, hosts):
    two = hosts(2)
    two.act("freeze", 2)
    done = horarun.run("-H", two.spec(1), "--start-timeout", "3s", "true")
    assert done.code in (124, 125) and "node2" in done.messages, done


def test_two_jobs_at_once(horarun, hosts):
    two = hosts(2)
    running = [horarun.start("-H", two.spec(1), "sh", "-c", f"sleep 0.5; echo job {i}") for i in range(3)]
    for i, job in enumerate(running):
        assert job.finish().expect(0).ranks() == {0: [f"job {i}"], 1: [f"job {i}"]}


def test_few_descriptors(horarun):
    import resource

    def limit():
        return resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    done = horarun.run("-np", 64, "true", preexec_fn=limit, timeout=60)
    assert done.code in (0, 2, 125), done
    assert done.code == 0 or re.search(r"open files|descriptor", done.messages, re.I), done


@pytest.fixture
def starter():
    """A process whose end is another's."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


ENDS_WITH = pytest.mark.parametrize(
    "command, times, code",
    [
        (["rendezvous", "--address", "localhost", "--end-with", "PID"], 1, 0),
        (["--end-with", "PID", "-np", "2", "--grace", "1s", "sh", "-c", "echo listening; exec sleep 1000"], 2, 143),
    ],
)


@ENDS_WITH
def test_end_with_a_process(horarun, starter, command, times, code):
    """It need not be the parent, and need not have been reaped."""
    job = horarun.start(*[word.replace("PID", str(starter.pid)) for word in command])
    job.read_until("listening", times)
    starter.kill()
    done = job.finish(timeout=60).expect(code)
    assert code == 0 or f"process {starter.pid} has ended (--end-with)" in done.messages, done
    jobs.expect_nothing_left(job)


@ENDS_WITH
def test_end_with_a_process_that_has_ended(horarun, starter, command, times, code):
    starter.kill()
    starter.wait()
    horarun.run(*[word.replace("PID", str(starter.pid)) for word in command], timeout=60).expect(code)


def test_rendezvous_alone(horarun):
    import urllib.request

    job = horarun.start("rendezvous", "--port", "0")
    line = job.read_until("\n") if job.process.stdout else ""
    port = re.search(r":(\d+)", line)[1]
    put = urllib.request.Request(f"http://127.0.0.1:{port}/scope/key", data=b"value", method="PUT")
    assert urllib.request.urlopen(put, timeout=10).status == 200
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/scope/key", timeout=10).read() == b"value"
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10).status == 200
    assert os.path.exists(f"/proc/{job.pid}")
    job.send_signal(15)
    job.finish()


@pytest.fixture
def on_port_2222(hosts):
    """A host whose sshd listens there alone, for those who come by its port."""
    one = hosts(2)
    sshd = ExtraSshd(one, 1)
    sshd.start(2222)
    yield one
    sshd.stop()


@pytest.mark.parametrize("way", ["list", "hostfile", "rsh"])
def test_a_port_of_one_host(horarun, on_port_2222, tmp_path, way):
    """The other one, by the same options, is reached at the usual port."""
    (tmp_path / "hosts").write_text("node1 slots=1 port=2222\nnode2\n")
    places = {"list": ["-H", "ssh://root@node1:2222:1,node2"], "hostfile": ["--hostfile", tmp_path / "hosts"]}
    places["rsh"] = ["--rsh", "ssh -p {port} {host}", *places["hostfile"]]
    script = "echo $(hostname) ${SSH_CONNECTION##* }"
    done = horarun.run(*places[way], "--wdir", "/", "sh", "-c", script).expect(0)
    assert done.ranks() == {0: ["node1 2222"], 1: ["node2 22"]}, done
    done = horarun.run("-H", "ssh://node1:2223", "--wdir", "/", "true").expect(125)
    assert "node1" in done.messages and "ssh -p 2223 " in done.messages, done


class Installed:
    """A copy of the build, as a package installs it."""

    def __init__(self, build, folder):
        self.share = os.path.join(folder, "share", "hora", os.uname().machine)
        self.horarun = os.path.join(folder, "bin", "horarun")
        os.makedirs(os.path.dirname(self.horarun))
        shutil.copy2(os.path.join(build, "bin", "horarun"), self.horarun)
        shutil.copytree(os.path.join(build, "share", "hora", os.uname().machine), self.share)

    def replace(self, path, text):
        with open(path + ".new", "wb") as file:
            file.write(text)
        shutil.copymode(path, path + ".new")
        os.rename(path + ".new", path)

    def upgrade(self):
        """Another agent and another runtime take the place of these, file by file, by renames."""
        agent, first = f"{self.share}/agent/hora-agent", f"{self.share}/bundle/python/hora/__init__.py"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(agent + ".gz")
        for path in (agent, first):
            with open(path, "rb") as file:
                self.replace(path, file.read() + b"# of another version\n")


GROWS = """\
import os, sys, time
import numpy as np
import hora.numpy as hvd
from hora import elastic

@elastic.run
def train(state):
    while not os.path.exists(sys.argv[1]):
        hvd.allreduce(np.ones(10), name='work')
        print('trained with', hvd.size(), flush=True)
        state.commit()
        time.sleep(0.1)

hvd.init()
train(elastic.SimpleState(step=0))
"""


def test_an_upgrade_under_a_running_job(horarun, build, hosts, shared, tmp_path):
    """A host that comes later and has agent and runtime of the job joins it. One that lacks either would get that of
    another version: it is left out, and the message says why."""
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    installed = Installed(build, tmp_path / "prefix")
    horarun.path = installed.horarun
    four = hosts(4)
    for k in range(1, 5):
        four.execute(k, "sh", "-c", "rm -rf /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0")
    # So the job reads nothing before the upgrade.
    horarun.run("-H", "node2:1,node3:1,node4:1", "true").expect(0)
    four.execute(4, "sh", "-c", "cd /root/.cache/hora; mv agent-* ..; rm -r *; mv ../agent-* .")
    program, listed, stop = (f"{shared}/{name}" for name in ("grows.py", "listed", "stop"))
    for path, text in ((program, GROWS), (listed, "node3:1\n")):
        with open(path, "w") as file:
            file.write(text)
    job = horarun.start(
        *("-np", 1, "--min-np", 1, "--host-discovery-script", f"cat {listed}", PYTHON, program, stop),
        stderr=subprocess.STDOUT,
    )
    seen = job.read_until("trained with 1\n")
    installed.upgrade()
    with open(listed + ".new", "w") as file:
        file.write("".join(f"{name}:1\n" for name in four.names))
    os.rename(listed + ".new", listed)
    seen += job.read_until("it takes no further part", 2) + job.read_until("trained with 2\n", 3)
    open(stop, "w").close()
    job.finish().expect(0)
    replaced = f"{installed.share}/agent/hora-agent is not what it was when this job began"
    assert re.search(f"host node1: the agent cannot be sent: {replaced}", seen), seen
    assert re.search(r"host node4: .*__init__.py is not as it was built, or when this job began", seen), seen
    assert "trained with 3" not in seen, seen
