# SPDX-License-Identifier: Apache-2.0
"""No process of a job outlives it, whichever dies first and however the ranks hide."""

import contextlib
import os
import signal
import subprocess
import time
import uuid

import pytest

import jobs

PYTHON = "/usr/bin/python3"
# A rank that just waits; in a session of its own; double-forked; deaf to every signal that can be
# ignored; stopped; without environment, descriptors, parent; the same in a group of the rank's session; without its
# main thread; never the same process.
KINDS = ["plain", "session", "orphan", "deaf", "stopped", "nameless", "group", "threads", "chain"]
# The lease is longer than a busy machine keeps an agent waiting.
FAST = ["--grace", "1s", "--lease", "4s"]


def start_here(horarun, shared, kinds=KINDS):
    job = horarun.start("-np", len(kinds), *FAST, PYTHON, "-S", f"{shared}/stray.py", *kinds)
    job.read_until("ready", times=len(kinds))
    return job


def start_on(horarun, shared, two):
    job = horarun.start("-H", two.spec(len(KINDS)), *FAST, PYTHON, "-S", f"{shared}/stray.py", *KINDS)
    job.read_until("ready", times=2 * len(KINDS))
    assert len(job.survivors()) >= 2 * len(KINDS)
    return job


def kill(pids, number=signal.SIGKILL):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def parents_first(processes):
    """Of agent and shim the shim is the parent."""
    parent = {process.pid: parent_of(process.pid) for process in processes}
    return sorted((p.pid for p in processes), key=lambda pid: parent[pid] in parent)


def shims():
    ours = jobs.agents()
    return list(parents_first(ours))[: len(ours) // 2]


def the_agents():
    ours = jobs.agents()
    return parents_first(ours)[len(ours) // 2 :]


def expect_clean(job, seconds=15):
    jobs.expect_nothing_left(job, seconds, also=jobs.agents)


ENDINGS = {
    "SIGKILL of the launcher": lambda job: kill([job.pid]),
    "SIGKILL of the agent": lambda job: kill(the_agents()[:1]),
    "SIGKILL of the shim": lambda job: kill(shims()[:1]),
    "SIGKILL of agent and launcher": lambda job: kill([*the_agents()[:1], job.pid]),
    "SIGKILL of the agent, whose shim is stopped": lambda job: (
        kill(shims()[:1], signal.SIGSTOP),
        kill(the_agents()[:1]),
    ),
    "SIGKILL of the launcher, shims and agents being stopped": lambda job: (
        kill(shims() + the_agents(), signal.SIGSTOP),
        kill([job.pid]),
    ),
    "SIGTERM": lambda job: job.send_signal(signal.SIGTERM),
    "SIGINT": lambda job: job.send_signal(signal.SIGINT),
    "SIGHUP": lambda job: job.send_signal(signal.SIGHUP),
    "death of a rank": lambda job: kill([p.pid for p in job.survivors() if "/stray.py " in p.command][:1]),
}


# Ranks share a session where they are more than the CPUs; two are not.
@pytest.mark.parametrize("kinds", [KINDS, ["nameless", "chain"]], ids=["many", "two"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_here(horarun, shared, ending, kinds):
    job = start_here(horarun, shared, kinds)
    ENDINGS[ending](job)
    code = job.finish(timeout=30).code
    assert code != 0
    expect_clean(job)


@pytest.mark.parametrize("ending", ENDINGS)
def test_on_hosts(horarun, shared, hosts, ending):
    job = start_on(horarun, shared, hosts(2))
    ENDINGS[ending](job)
    assert job.finish(timeout=30).code != 0
    expect_clean(job)


def test_sshd_of_one_connection_dies(horarun, shared, hosts):
    two = hosts(2)
    job = start_on(horarun, shared, two)
    kill(two.processes(1, "sshd: root"))
    done = job.finish(timeout=30).expect(125)
    assert "node1" in done.messages and "E_HOST_LOST" in done.messages, done
    expect_clean(job)


def test_cut_link(horarun, shared, hosts):
    two = hosts(2)
    job = start_on(horarun, shared, two)
    two.act("cut", 1)
    done = job.finish(timeout=40).expect(125)
    assert "node1" in done.messages and "E_HOST_LOST" in done.messages, done
    expect_clean(job)


def test_cut_link_and_killed_launcher(horarun, shared, hosts):
    """The hosts' leases are all that is left."""
    two = hosts(2)
    job = start_on(horarun, shared, two)
    two.act("cut", 1)
    two.act("cut", 2)
    kill([job.pid])
    job.finish()
    expect_clean(job)


def test_cut_link_and_killed_launcher_of_a_command(horarun, shared, hosts):
    """Only the kernel can end the commands that carry the bytes (--rsh)."""
    two = hosts(2)
    job = horarun.start(
        "-H", two.spec(1), *FAST, "--transport", "command", "--rsh", "ssh -q", "sh", "-c", "echo ready; sleep 1000"
    )
    job.read_until("ready", times=2)
    two.act("cut", 1)
    two.act("cut", 2)
    kill([job.pid])
    job.finish()
    expect_clean(job)


def test_host_dies(horarun, shared, hosts):
    two = hosts(2)
    job = start_on(horarun, shared, two)
    two.act("kill", 2)
    done = job.finish(timeout=40).expect(125)
    assert "node2" in done.messages, done
    expect_clean(job)


def test_host_loses_power(horarun, shared, hosts):
    two = hosts(2)
    job = start_on(horarun, shared, two)
    two.act("crash", 2)
    assert "node2" in job.finish(timeout=40).expect(125).messages
    expect_clean(job)


def test_host_freezes(horarun, shared, hosts):
    two = hosts(2)
    job = start_on(horarun, shared, two)
    two.act("freeze", 2)
    done = job.finish(timeout=40).expect(125)
    assert "node2" in done.messages and "E_HOST_LOST" in done.messages, done
    two.act("thaw", 2)
    expect_clean(job)


def test_stopped_launcher(horarun, shared, hosts):
    """A launcher that stands still (SIGSTOP, not Ctrl-Z) is as good as dead once the lease is over."""
    two = hosts(2)
    job = start_on(horarun, shared, two)
    kill([job.pid], signal.SIGSTOP)
    expect_clean(job, seconds=20)
    kill([job.pid], signal.SIGCONT)
    assert job.finish(timeout=30).code != 0


class Freezer:
    """A cgroup whose processes get no time, as on a machine that has none for them; no signal stops them."""

    PLACES = [
        ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
        ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
    ]

    def __init__(self, pid):
        self.pid = pid
        for root, name, frozen, thawed in self.PLACES:
            self.root, self.thawed = root, thawed
            self.path = f"{self.root}/hora-test-freezer-{uuid.uuid4().hex[:8]}"
            self.switch = f"{self.path}/{name}"
            with contextlib.suppress(OSError):
                os.mkdir(self.path)
                if os.path.exists(self.switch):
                    self.write(f"{self.path}/cgroup.procs", str(pid))
                    self.write(self.switch, frozen)
                    return
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
        pytest.skip("no cgroup that freezes can be made here")

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.write(self.switch, self.thawed)
        with contextlib.suppress(ProcessLookupError):
            self.write(f"{self.root}/cgroup.procs", str(self.pid))
        jobs.wait_until(self.is_removed, "the cgroup to be empty")

    def is_removed(self):
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
        return not os.path.isdir(self.path)


def agent_of(job):
    """The local agent: the child of the shim, the launcher's child."""
    pid = job.pid
    for _ in range(2):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
            (pid,) = map(int, children.read().split())
    return pid


HERE = [
    "-np",
    2,
    "--lease",
    "1s",
    "--grace",
    "1s",
    "sh",
    "-c",
    "echo ready; until [ -e $0 ]; do sleep 0.1; done; echo lived",
]


def test_busy_machine_ends_no_local_job(horarun, tmp_path):
    """The agent gets no time for longer than the lease: its stream is open, and it is alive and not stopped."""
    messages = tmp_path / "messages"
    with open(messages, "wb") as errors:
        job = horarun.start(*HERE, tmp_path / "go", stderr=errors)
    job.read_until("ready", times=2)
    with Freezer(agent_of(job)):
        jobs.wait_until(lambda: "The job goes on" in messages.read_text(), "the launcher to miss its agent", 60)
    (tmp_path / "go").touch()
    done = job.finish(timeout=60).expect(0)
    assert done.text.count("lived") == 2, done


def test_launcher_without_time_ends_no_local_job(horarun, tmp_path):
    job = horarun.start(*HERE, tmp_path / "go")
    job.read_until("ready", times=2)
    with Freezer(job.pid):
        time.sleep(3)  # three leases
    (tmp_path / "go").touch()
    done = job.finish(timeout=60).expect(0)
    assert done.text.count("lived") == 2, done


def test_machine_that_sleeps_ends_no_job(horarun, tmp_path):
    """Launcher and agent get no time for longer than the lease, as in a virtual machine that is paused. The first
    to wake does not take the other for lost."""
    job = horarun.start(*HERE[:2], "--lease", "6s", *HERE[4:], tmp_path / "go")
    job.read_until("ready", times=2)
    agent = agent_of(job)
    kill([job.pid, agent], signal.SIGSTOP)
    time.sleep(8)
    kill([job.pid], signal.SIGCONT)
    time.sleep(0.5)  # it looks, and finds an agent that is stopped and has said nothing for 8 s
    kill([agent], signal.SIGCONT)
    (tmp_path / "go").touch()
    done = job.finish(timeout=60).expect(0)
    assert done.text.count("lived") == 2, done


def test_stopped_local_agent_is_given_up(horarun, tmp_path):
    """It may never go on."""
    job = horarun.start(*HERE, tmp_path / "go")
    job.read_until("ready", times=2)
    agent = agent_of(job)
    kill([agent], signal.SIGSTOP)
    done = job.finish(timeout=60).expect(125)
    assert "no sign of life" in done.messages and "E_HOST_LOST" in done.messages, done
    assert f"its agent (process {agent}) has been stopped for" in done.messages, done
    kill([agent], signal.SIGCONT)
    expect_clean(job)


def test_shim_and_agent_killed_at_once(horarun, tmp_path):
    """As docs/flows/life-and-death.md says: the ranks end, and what they started does not. The marks in the cache keep
    nothing from being removed."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    there = ("--rsh", shell, "-H", "elsewhere:2")
    script = "sleep 997 & echo ready; wait"
    job = horarun.start(*there, "--wdir", "/", "--network-interfaces", "lo", "sh", "-c", script, env=cache)
    job.read_until("ready", times=2)
    shim, agent = parents_first(jobs.agents())
    ranks = {process.pid for process in job.survivors() if parent_of(process.pid) == agent}
    with Freezer(shim) as freezer:  # so that neither sees the other's end
        freezer.write(f"{freezer.path}/cgroup.procs", str(agent))
        kill([shim, agent])
    done = job.finish(timeout=60).expect(125)
    assert "E_HOST_LOST" in done.messages, done
    jobs.wait_until(lambda: not ranks & {process.pid for process in job.survivors()}, "the ranks to end")
    left = job.survivors()
    assert len(left) == 2, left
    kill(process.pid for process in left)
    assert list((tmp_path / "hora").glob(".used-*"))
    assert horarun.run("cache", "clean", *there, env=cache).expect(0).text.startswith("removed ")
    assert not (tmp_path / "hora").exists()


def test_killed_while_starting(horarun, shared, hosts):
    """At any moment of the launch."""
    two = hosts(2)
    for delay_ms in (0, 5, 10, 20, 30, 40, 60, 80, 120, 200):
        job = horarun.start("-H", two.spec(3), *FAST, PYTHON, "-S", f"{shared}/stray.py", *KINDS)
        with contextlib.suppress(Exception):
            job.process.wait(timeout=delay_ms / 1000)
        kill([job.pid])
        job.finish()
        expect_clean(job)


def test_what_ranks_leave_behind_ends_with_the_job(horarun):
    """All ranks succeed; a daemon that one of them started does not stay."""
    job = horarun.start(
        "-np", 2, "--grace", "1s", "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1000' >/dev/null 2>&1 & exit 0"
    )
    assert job.finish(timeout=30).code == 0
    expect_clean(job)


def test_term_comes_before_kill(horarun):
    script = "trap 'echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 2, "--grace", "20s", "sh", "-c", script)
    job.read_until("ready", times=2)
    job.send_signal(signal.SIGTERM)
    done = job.finish(timeout=30).expect(143)
    assert done.text.count("tidy") == 2 and done.seconds < 15, done


def pending(pid, number):
    with open(f"/proc/{pid}/status") as status:
        masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_second_signal_kills_at_once(horarun):
    script = "trap 'echo no' TERM INT; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 2, "--grace", "60s", "sh", "-c", script)
    job.read_until("ready", times=2)
    job.send_signal(signal.SIGINT)
    job.read_until("no", times=2)
    time.sleep(0.6)  # sooner, it would be taken for another part of the first request
    job.send_signal(signal.SIGINT)
    job.finish(timeout=20).expect(130)
    expect_clean(job)


def test_one_request_that_comes_as_two_signals_is_one(horarun):
    """As timeout(1) sends them, and a batch system that signals a script and all that it has started."""
    script = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 2, "--grace", "60s", "sh", "-c", script)
    job.read_until("ready", times=2)
    job.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 10
    # The second one is to come after the first was taken, not to be one with it in the kernel.
    while pending(job.pid, signal.SIGTERM):
        assert time.monotonic() < deadline, "horarun takes no signal"
    job.send_signal(signal.SIGTERM)
    done = job.finish(timeout=30).expect(143)
    assert done.text.count("saved") == 2, done


@pytest.mark.parametrize(
    "number",
    [signal.SIGXCPU, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGPWR, signal.SIGABRT, signal.SIGSEGV,
     signal.SIGRTMAX],
    ids=lambda number: signal.Signals(number).name,
)  # fmt: skip
def test_every_signal_that_ends_a_process_ends_the_job(horarun, number):
    """As a batch system sends them at a limit, or alarm(2) in what has started horarun."""
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 2, "--grace", "60s", "bash", "-c", script)
    job.read_until("ready", times=2)
    job.send_signal(number)
    done = job.finish(timeout=30).expect(128 + number)
    assert done.text.count("saved") == 2 and "ended by" in done.messages, done
    expect_clean(job)


def test_a_limit_of_cpu_time_asks_once(horarun):
    """The kernel sends SIGXCPU every second from then on."""
    script = "trap 'sleep 3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 1, "--grace", "60s", "bash", "-c", script)
    job.read_until("ready")
    for _ in range(3):
        job.send_signal(signal.SIGXCPU)
        time.sleep(0.6)  # further apart than what counts as one request
    done = job.finish(timeout=30).expect(152)
    assert "saved" in done.text and "a limit of CPU time" in done.messages, done


def test_one_request_that_ends_the_starter_too(horarun):
    """As a batch system signals a script that says --end-with $$, and what it has started."""
    starter = subprocess.Popen(["sleep", "1000"])
    script = "trap 'echo term; sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = horarun.start("-np", 2, "--grace", "60s", "--end-with", starter.pid, "sh", "-c", script)
    job.read_until("ready", times=2)
    job.send_signal(signal.SIGTERM)
    job.read_until("term", times=2)
    starter.kill()
    starter.wait()
    done = job.finish(timeout=30).expect(143)
    assert done.text.count("saved") == 2 and "--end-with" in done.messages, done


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGTERM])
def test_continued_before_it_has_stopped(horarun, tmp_path, number):
    """A batch system that takes back its wish. horarun stops the ranks first, which takes a moment: what comes in it is
    not followed by another signal that continues."""
    script = f"trap 'echo term; exit 0' TERM; echo ready; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo went"
    job = horarun.start("-np", 2, "sh", "-c", script)
    job.read_until("ready", times=2)
    agent = agent_of(job)
    kill([agent], signal.SIGSTOP)  # does not answer yet
    for each in (signal.SIGTSTP, number):
        job.send_signal(each)
        jobs.wait_until(lambda each=each: not pending(job.pid, each), "horarun to take the signal")
    kill([agent], signal.SIGCONT)
    if number == signal.SIGCONT:
        (tmp_path / "go").touch()
    done = job.finish(timeout=30).expect(0 if number == signal.SIGCONT else 143)
    assert done.text.count("went" if number == signal.SIGCONT else "term") == 2, done


def test_user_signals_reach_ranks(horarun, hosts):
    script = "trap 'echo got usr1' USR1; trap 'echo got usr2; exit 0' USR2; echo ready; while :; do sleep 0.05; done"
    job = horarun.start("-H", hosts(2).spec(2), "bash", "-c", script)
    job.read_until("ready", times=4)
    job.send_signal(signal.SIGUSR1)
    job.read_until("got usr1", times=4)
    job.send_signal(signal.SIGUSR2)
    done = job.finish(timeout=30).expect(0)
    assert done.text.count("got usr2") == 4, done


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_at_the_end_change_nothing(horarun, number):
    """They come without a pause until horarun is gone, as a batch system may send one just then."""
    script = "trap '' USR1 USR2; echo ready; read line; exit 0"
    for _ in range(10):
        job = horarun.start("-np", 2, "--stdin", "all", "bash", "-c", script, stdin=subprocess.PIPE)
        job.read_until("ready", times=2)
        job.process.stdin.close()
        job.process.stdin = None
        deadline = time.monotonic() + 30
        # Not yet waited for, a process that has ended still takes signals.
        while os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            assert time.monotonic() < deadline, "horarun does not end"
            os.kill(job.pid, number)
        job.finish(timeout=30).expect(0)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_before_there_are_ranks_change_nothing(horarun, tmp_path, number):
    fifo = tmp_path / "hosts"
    os.mkfifo(fifo)
    job = horarun.start("--hostfile", fifo, "echo", "ran")
    with open(fifo, "w") as hosts:  # horarun reads it now
        job.send_signal(number)
        hosts.write("localhost slots=2\n")
    assert job.finish(timeout=30).expect(0).text.count("ran") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_job_end_it_before_there_are_ranks(horarun, tmp_path, number):
    fifo = tmp_path / "hosts"
    os.mkfifo(fifo)
    job = horarun.start("--hostfile", fifo, "echo", "ran")
    with open(fifo, "w"):
        job.send_signal(number)
        done = job.finish(timeout=30)
    assert done.code in (-number, 128 + number) and done.text == "", done  # a shell takes both for the latter


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_job_while_its_files_are_on_their_way(horarun, tmp_path, number):
    """The host has stopped taking them, as behind a slow link: the end does not wait for them."""
    (tmp_path / "large").write_bytes(os.urandom(32 << 20))
    taken = tmp_path / "taken"
    # Without a buffer of its own, in which the end of the agent would wait for more.
    takes_some = f'shift; {{ stdbuf -o0 head -c 4000000; : >{taken}; exec sleep 1000; }} | sh -c "$*"'
    rsh = tmp_path / "rsh"
    rsh.write_text(f"#!/bin/sh\n{takes_some}\n")
    rsh.chmod(0o755)
    job = horarun.start(
        *("--rsh", rsh, "-H", "far:1", "--runtime", "host", "--grace", 300, "--ship", tmp_path / "large", "echo", "ran")
    )
    jobs.wait_until(taken.exists, "the host to take no more")
    job.send_signal(number)
    # With the job's 300 s of grace, in which the end cannot be confirmed, this would not end in time.
    done = job.finish(timeout=60).expect(128 + number)
    assert not done.text and "did not confirm" not in done.messages, done


def test_signal_storm(horarun):
    script = "trap 'n=$((n+1))' USR1; trap 'exit 0' USR2; echo ready; while :; do sleep 0.05; done"
    job = horarun.start("-np", 2, "bash", "-c", script)
    job.read_until("ready", times=2)
    for _ in range(1000):
        job.send_signal(signal.SIGUSR1)
    job.send_signal(signal.SIGUSR2)
    job.finish(timeout=30).expect(0)


def test_many_jobs_leave_no_agent_and_no_file(horarun, hosts):
    two = hosts(2)
    before = {k: two.execute(k, "sh", "-c", "ls -A /tmp /dev/shm /run | sort") for k in (1, 2)}
    for code in (0, 1, 0, 3):
        horarun.run("-H", two.spec(2), "sh", "-c", f"exit {code}").expect(code)
    assert {k: two.execute(k, "sh", "-c", "ls -A /tmp /dev/shm /run | sort") for k in (1, 2)} == before
    assert jobs.agents() == []
