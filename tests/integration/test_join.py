# SPDX-License-Identifier: Apache-2.0
"""--listen and --join: hosts that dial the launcher. No sshd is used."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess

import pytest

import jobs
from test_signals import SAVES, by_name, expect_signal

DATA = os.urandom(1 << 20) * 32


class Machine:
    """`horarun --join` on a test host."""

    def __init__(self, horarun, hosts, k, mark, arguments, url):
        self.hosts, self.k, self.mark = hosts, k, mark
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "HORA_TEST_MARK": mark}
        enter = ["nsenter", "-t", str(hosts._hosts.init_pid(k)), "-m", "-u", "-i", "-n", "-p", "--wd=/", "--"]
        self.process = subprocess.Popen(
            [*enter, horarun.path, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if url is not None:
            self.process.stdin.write(url.encode() + b"\n")
            self.process.stdin.flush()

    def pid(self):
        """As head sees it, and not nsenter's."""
        return jobs.wait_until(lambda: self.hosts.processes(self.k, "horarun\0--join"), f"--join on host {self.k}")[-1]

    def wait_until_joined(self):
        said = b""
        while b"joined the job" not in said:
            line = self.process.stderr.readline()
            assert line, said
            said += line
        return self

    def finish(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout)
        return jobs.Finished(self.process.args, self.process.returncode, out, err, 0)


class Listening:
    """A job that waits for machines, and those that were sent to it."""

    def __init__(self, horarun, hosts, folder, arguments, **options):
        self.horarun, self.hosts, self.file = horarun, hosts, str(folder / "join")
        self.job = horarun.start("--listen", "any", "--listen-file", self.file, *arguments, **options)
        self.url = jobs.wait_until(self.read_url, "the URL")
        self.machines = []

    def read_url(self):
        assert self.job.process.poll() is None, self.job.finish()
        with contextlib.suppress(FileNotFoundError), open(self.file) as file:
            return file.read().strip()

    def join(self, k, *arguments, url=None, source="-"):
        url = url or self.url
        given = url if source == "-" else None
        machine = Machine(self.horarun, self.hosts, k, self.job.mark, ["--join", source, *arguments], given)
        self.machines.append(machine)
        return machine

    def end(self):
        for machine in self.machines:
            machine.process.kill()
            machine.process.communicate()


@pytest.fixture
def two(hosts, build):
    return hosts(2, show=os.path.realpath(build))


@pytest.fixture
def listening(horarun, two, tmp_path):
    made = []

    def make(*arguments, **options):
        made.append(Listening(horarun, two, tmp_path, arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def expect_clean(job):
    jobs.expect_nothing_left(job, also=jobs.agents)


def test_hosts_join_run_and_leave(listening):
    wait = listening("-np", 4, "sh", "-c", "echo $HOROVOD_RANK on $(hostname)")
    assert os.stat(wait.file).st_mode & 0o777 == 0o600
    first = wait.join(1, "--slots", "2")
    second = wait.join(2, "--slots", "2")
    done = wait.job.finish().expect(0)
    lines = sorted(line for each in done.ranks().values() for line in each)
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"], done
    assert sorted(line.split()[2] for line in lines) == ["node1", "node1", "node2", "node2"], done
    assert "4 slots on 2 hosts" in done.messages
    for machine in (first, second):
        ended = machine.finish().expect(0)
        assert "the job has ended with exit code 0" in ended.messages
    assert not os.path.exists(wait.file)
    expect_clean(wait.job)


def test_collectives_between_joined_hosts(listening):
    wait = listening("-H", "node2:1,node1:1", "--smoke")
    machines = [wait.join(1), wait.join(2)]
    done = wait.job.finish().expect(0)
    assert "node2" in done.messages + done.text
    assert [machine.finish().code for machine in machines] == [0, 0]
    expect_clean(wait.job)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize("days", [-400, 4000])
def test_the_clocks_of_launcher_and_machine_may_differ(listening, tmp_path, days):
    wait = listening("-np", 1, "echo", "ran", env=jobs.with_other_clock(tmp_path, days * 86_400))
    machine = wait.join(1)
    assert wait.job.finish().expect(0).ranks() == {0: ["ran"]}
    machine.finish().expect(0)


def test_the_exit_code_reaches_the_machines(listening):
    wait = listening("-np", 1, "sh", "-c", "exit 7")
    machine = wait.join(1)
    wait.job.finish().expect(7)
    machine.finish().expect(7)


def test_the_line_that_is_printed(horarun, two):
    job = horarun.start("--listen", "any", "-np", 1, "echo", "done")
    seen = b""
    while b"--join -\n" not in seen:
        line = job.process.stderr.readline()
        assert line, seen
        seen += line
    typed = next(line for line in seen.decode().splitlines() if "--join" in line).strip()
    assert typed.startswith("echo 'hora://") and typed.endswith("| horarun --join -")
    two.execute(1, "sh", "-c", typed.replace("horarun", horarun.path))
    assert job.finish().expect(0).ranks() == {0: ["done"]}


@pytest.mark.parametrize("number", [*SAVES, signal.SIGQUIT], ids=by_name)
def test_signals_arrive_by_name(listening, shared, number):
    wait = listening("-np", 2, "/usr/bin/python3", "-S", f"{shared}/signals.py")
    machines = [wait.join(1), wait.join(2)]
    wait.job.read_until("ready", 2)
    done = expect_signal(wait.job, number)
    assert [machine.finish().code for machine in machines] == [done.code] * 2
    expect_clean(wait.job)


def test_input_and_output_arrive_whole(listening):
    both_ways = "sha256sum; head -c 20000000 /dev/zero | tr '\\0' x"
    wait = listening("-np", 1, "--no-prefix-output", "sh", "-c", both_ways, stdin=subprocess.PIPE)
    wait.join(2)
    done = wait.job.finish(input=DATA).expect(0)
    digest, _, rest = done.out.partition(b"\n")
    assert digest.split()[0].decode() == hashlib.sha256(DATA).hexdigest()
    assert rest == b"x" * 20_000_000


def changed(text, at):
    """With another digit there."""
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]


def test_the_wrong_secret_is_refused_at_once(listening):
    wait = listening("-np", 1, "true")
    fingerprint, token = len("hora://"), len("hora://") + 64
    other = wait.join(1, url=changed(wait.url, token)).finish()
    assert other.code == 125 and "the token is not this job's" in other.messages, other
    forged = wait.join(1, url=changed(wait.url, fingerprint)).finish()
    assert forged.code == 125 and "its certificate is another one" in forged.messages, forged
    for each in (other, forged):
        assert len(each.messages.splitlines()) == 1 and wait.url[7:40] not in each.messages, each
    right = wait.join(1)
    wait.job.finish().expect(0)
    right.finish().expect(0)


def test_outsiders_do_not_matter(listening):
    wait = listening("-np", 1, "true")
    port = int(wait.url.rpartition(":")[2])
    outsiders = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(80)]
    for outsider in outsiders[:20]:
        outsider.sendall(b"GET / HTTP/1.1\r\n\r\n")
    for outsider in outsiders[:20]:
        with contextlib.suppress(ConnectionResetError):  # it was closed before its request was read
            assert outsider.recv(100)[:1] in (b"", b"\x15")  # the end, or an alert
    machine = wait.join(1)
    wait.job.finish().expect(0)
    machine.finish().expect(0)
    for outsider in outsiders:
        outsider.close()


def test_who_is_missing_is_named(listening):
    wait = listening("-H", "node1,node2", "--start-timeout", "4s", "true")
    machine = wait.join(1)
    done = wait.job.finish()
    assert done.code == 124 and "1 of 2 hosts; node2 is missing [E_START_TIMEOUT]" in done.messages, done
    machine.finish().expect(124)
    expect_clean(wait.job)


def test_a_machine_that_is_not_asked_for(listening):
    wait = listening("-H", "node1", "true")
    other = wait.join(2).finish()
    assert other.code == 125 and "is one of the job's hosts" in other.messages, other
    wait.join(1)
    wait.job.finish().expect(0)


def test_one_that_leaves_is_waited_for_again(listening):
    wait = listening("-np", 2, "true")
    leaver = wait.join(1).wait_until_joined()
    os.kill(leaver.pid(), signal.SIGKILL)
    jobs.wait_until(lambda: not wait.hosts.processes(1, "--join"), "its end")
    machines = [wait.join(1), wait.join(2)]
    done = wait.job.finish().expect(0)
    assert "node1 has left" in done.messages
    assert [machine.finish().code for machine in machines] == [0, 0]


RUNS = ["sh", "-c", "echo running; sleep 300 & wait"]


def test_a_killed_machine(listening):
    wait = listening("-np", 2, *RUNS)
    first, second = wait.join(1), wait.join(2)
    wait.job.read_until("running", 2)
    os.kill(second.pid(), signal.SIGKILL)
    done = wait.job.finish()
    assert done.code == 125 and "E_HOST_LOST" in done.messages and "node2" in done.messages, done
    first.finish().expect(125)
    expect_clean(wait.job)


def test_a_killed_launcher(listening):
    wait = listening("-np", 2, *RUNS)
    machines = [wait.join(1), wait.join(2)]
    wait.job.read_until("running", 2)
    wait.job.send_signal(signal.SIGKILL)
    wait.job.finish()
    for machine in machines:
        done = machine.finish()
        assert done.code == 125 and "was lost" in done.messages, done
    expect_clean(wait.job)


def test_a_machine_is_asked_to_leave(listening):
    wait = listening("-np", 2, *RUNS)
    first, second = wait.join(1), wait.join(2)
    wait.job.read_until("running", 2)
    os.kill(second.pid(), signal.SIGTERM)
    done = wait.job.finish()
    assert done.code != 0 and "node2" in done.messages, done
    second.finish().expect(128 + signal.SIGTERM)
    first.finish().expect(done.code)
    expect_clean(wait.job)


def test_a_cut_network(listening, two):
    wait = listening("-np", 2, "--lease", "2s", *RUNS)
    wait.join(1), wait.join(2)
    wait.job.read_until("running", 2)
    two.act("cut", 2)
    done = wait.job.finish()
    assert done.code == 125 and "E_HOST_LOST" in done.messages and "node2" in done.messages, done
    # The ranks behind the cut end with their lease, --join when the kernel gives the connection up.
    jobs.expect_nothing_left(wait.job, 90, jobs.agents)


def test_ctrl_c_while_waiting(listening):
    wait = listening("-np", 2, "true")
    machine = wait.join(1).wait_until_joined()
    wait.job.send_signal(signal.SIGINT)
    done = wait.job.finish()
    assert done.code == 130 and "1 of 2 slots (node1:1)" in done.messages, done
    machine.finish().expect(130)
    expect_clean(wait.job)


def test_the_secret_is_in_no_command_line_and_in_no_rank(listening, two):
    wait = listening("-np", 2, *RUNS)
    secret = wait.url.partition("@")[0][7:].encode()
    wait.join(1)
    wait.join(2, source=wait.url)  # typed all the same: it is taken out
    wait.job.read_until("running", 2)
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        for what in ("cmdline", "environ"):
            if secret[:64] in jobs.shown_by(entry, what) or secret[64:] in jobs.shown_by(entry, what):
                found.append((entry, what, jobs.shown_by(entry, "cmdline")))
    assert [each for each in found if b"nsenter" not in each[2]] == []
    wait.job.send_signal(signal.SIGTERM)
    wait.job.finish().expect(143)


def test_a_file_that_others_can_read_is_refused(horarun, tmp_path):
    file = tmp_path / "join"
    file.write_text("hora://" + "a" * 96 + "@127.0.0.1:1\n")
    file.chmod(0o644)
    done = horarun.run("--join", file).expect(2)
    assert "chmod 600" in done.messages
    file.chmod(0o600)
    done = horarun.run("--join", file).expect(125)
    assert "no launcher answers" in done.messages and "a" * 32 not in done.messages


def test_what_listen_has_not_made_stays(horarun, tmp_path):
    """Of a pipe, a device and a link only the secret goes."""
    pipe, link, behind = tmp_path / "pipe", tmp_path / "link", tmp_path / "behind"
    waiting = ("-np", 1, "--listen", "127.0.0.1", "--start-timeout", "1s", "--listen-file")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    horarun.run(*waiting, pipe, "true").expect(124)
    assert os.read(reader, 4096).startswith(b"hora://")
    os.close(reader)
    assert pipe.is_fifo()
    behind.write_text("old\n")
    link.symlink_to(behind)
    horarun.run(*waiting, link, "true").expect(124)
    assert link.is_symlink() and not behind.exists()
