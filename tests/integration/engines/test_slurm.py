# SPDX-License-Identifier: Apache-2.0
"""Jobs inside allocations of a real Slurm on the test hosts (tests/support/engines/slurm.py)."""

import collections
import contextlib
import hashlib
import json
import os
import re
import signal
import time

import pytest
from slurm_jobs import expect_clean, start

import jobs
from test_signals import SAVES, by_name, expect_signal

HOSTS = 4


# Four processors a node: eight tasks on four nodes are as unequal as Slurm makes them.
SHAPES = {
    "2(x4)": ["-N4", "--ntasks-per-node=2"],
    "1(x2)": ["-N2", "-n2"],
    "4,2,1(x2)": ["-N4", "-n8"],
    "no tasks": ["-N3"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_are_where_srun_starts_tasks(horarun, allocation, shape):
    held = allocation(*SHAPES[shape])
    done = start(horarun, held, "sh", "-c", "hostname").finish().expect(0)
    by_host = collections.Counter(line for lines in done.ranks().values() for line in lines)
    assert by_host == collections.Counter(held.srun("hostname").split()), (done, held.variables)
    slots = sum(by_host.values())
    wanted = rf"horarun: Slurm job {held.job}: {slots} slots? on {len(by_host)} hosts \(.*\); agents start by srun\n"
    assert re.match(wanted, done.messages), done


def test_some_of_the_nodes_and_places_on_them(horarun, allocation, tmp_path):
    held = allocation("-w", "node1,node2,node3", "--ntasks-per-node=2")
    seen = ("sh", "-c", 'echo "$HOROVOD_HOSTNAME ${CUDA_VISIBLE_DEVICES-unset}"')
    done = start(horarun, held, "--include", "node3:1@node2", *seen).finish().expect(0)
    assert done.ranks() == {0: ["node2 unset"], 1: ["node2 unset"], 2: ["node3 1"]}, done
    (tmp_path / "ranks").write_text("rank 0=+n2\nrank 1=node2 slot=0\nrank 2=node3\n")
    done = start(horarun, held, "--rankfile", tmp_path / "ranks", *seen).finish().expect(0)
    assert done.ranks() == {0: ["node3 unset"], 1: ["node2 unset"], 2: ["node3 unset"]}, done


def test_a_collective_job(horarun, allocation):
    held = allocation("-N4", "--ntasks-per-node=2")
    done = start(horarun, held, "--smoke").finish().expect(0)
    assert "8 ranks" in done.text or "8 ranks" in done.messages, done


def test_mpirun_starts_the_ranks_and_the_allocation_is_named_once(horarun, allocation):
    """The launch that prepares the hosts for it names it."""
    held = allocation("-N2", "--ntasks-per-node=1")
    done = start(horarun, held, "--mpi", "--wdir", "/", "hostname").finish().expect(0)
    assert len(re.findall("node", done.text)) == 2, done
    assert done.messages.count("agents start by") == 1, done


def test_variables_of_the_step_stay_with_it(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=2")
    ranks = start(horarun, held, "sh", "-c", "env | grep ^SLURM").finish().expect(0).ranks()
    assert len(ranks) == 4
    for lines in ranks.values():
        seen = dict(line.split("=", 1) for line in lines)
        # What the allocation says; of the step that the agents run in, only what describes the job.
        differ = {name for name, value in seen.items() if held.variables.get(name) != value}
        assert not [name for name in differ if not name.startswith("SLURM_JOB_") or name in held.variables], seen
        assert seen["SLURM_NTASKS"] == "4" and seen["SLURM_JOB_ID"] == held.job and "SLURM_JOB_NODELIST" in seen
        assert not seen.keys() & {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID"}


@pytest.mark.parametrize("what", ["step", "job"])
def test_ranks_belong_to_one_step_and_end_with_it(horarun, allocation, cluster, what):
    held = allocation("-N2", "--ntasks-per-node=1")
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 2)
    steps = held.steps()
    assert len(steps) == 1
    cancelled = time.monotonic()
    cluster.run("scancel", steps[0] if what == "step" else held.job)
    done = job.finish(timeout=60).expect(125)
    # A step whose daemons are killed before they print is known by srun's exit status alone.
    ended = rf"((STEP {steps[0]}|JOB {held.job}) ON node\d CANCELLED AT|srun or what it ran was ended by signal)"
    assert re.search(rf"Slurm has ended the job: {ended}", done.messages), done
    assert "[E_ENGINE]" in done.messages, done
    expect_clean(job, held, since=cancelled)


def test_the_step_contains_the_ranks(horarun, allocation, cluster):
    if not cluster.contained:
        pytest.skip("Slurm contains nothing here: its cgroup/v1 needs a freezer that can be written to")
    held = allocation("-N2", "--ntasks-per-node=2")
    job = start(horarun, held, "sh", "-c", "echo up; sleep 1000 & exec setsid sleep 1000")
    job.read_until("up", 4)
    ranks = set()

    def are_all_there():  # a shell has to become a sleep first, after its word
        ranks.update(process.pid for process in job.survivors() if process.command == "sleep 1000")
        return len(ranks) == 8

    jobs.wait_until(are_all_there, "eight processes to sleep")
    (step,) = held.steps()
    inside = held.pids(step)
    assert ranks <= inside, (ranks, inside)
    job.send_signal(signal.SIGTERM)
    job.finish(timeout=60).expect(143)
    expect_clean(job, held, since=time.monotonic())


def test_ranks_that_ignore_the_cancellation_end_within_the_kill_wait(horarun, allocation, cluster):
    held = allocation("-N2", "--ntasks-per-node=1")
    deaf = "trap '' TERM; echo up; while :; do sleep 1000 & wait; done"
    job = start(horarun, held, "--grace", "60s", "sh", "-c", deaf)
    job.read_until("up", 2)
    cluster.run("scancel", held.steps()[0])
    # Slurm kills after its KillWait of 5 s: far less than the grace, which is not waited for.
    done = job.finish(timeout=40).expect(125)
    assert "[E_ENGINE]" in done.messages, done
    expect_clean(job, held, since=time.monotonic())


def helpers(cluster, k):
    """The pids of the processes that have dialled from host k."""
    named = cluster.hosts.processes(k, f"\0node{k}\0")
    return [pid for pid in cluster.hosts.processes(k, "/hora/agent-") if pid in named]


@pytest.mark.parametrize("who", ["horarun", "srun", "helper"])
def test_killed_by_force(horarun, allocation, cluster, who):
    held = allocation("-w", "node1,node2,node3", "--ntasks-per-node=1")
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 3)
    killed = time.monotonic()
    if who == "horarun":
        job.send_signal(signal.SIGKILL)
        job.process.wait(timeout=20)
    else:
        if who == "srun":
            # It has forked a guard of its own, which ends by itself.
            pid = min(p.pid for p in job.survivors() if re.match(r"srun\b.*--input=all", p.command))
        else:
            (pid,) = helpers(cluster, 2)
        os.kill(pid, signal.SIGKILL)
        done = job.finish(timeout=60).expect(125)
        if who == "srun":
            why = "Slurm has ended the job: srun or what it ran was ended by signal 9 [E_ENGINE]"
            assert why in done.messages, done
        else:
            assert "E_HOST_LOST" in done.messages and "host node2" in done.messages, done
            # A command to paste, which begins as the agents do where there is no step.
            advice = r"try: env .*srun .*--nodelist=node2' sh -c 'uptime; dmesg \| tail'\n"
            assert re.search(advice, done.messages), done
    expect_clean(job, held, since=killed)


def test_an_srun_that_hangs_does_not_outlive_a_killed_launcher(horarun, allocation):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    job = start(horarun, held, "--grace", "1s", "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 2)
    srun = min(p.pid for p in job.survivors() if re.match(r"srun\b.*--input=all", p.command))
    os.kill(srun, signal.SIGSTOP)
    killed = time.monotonic()
    job.send_signal(signal.SIGKILL)
    job.process.wait(timeout=20)
    expect_clean(job, held, since=killed)


def test_a_job_outlives_the_daemon_of_a_node(horarun, allocation, cluster):
    held = allocation("-N2", "--ntasks-per-node=1")
    program = "echo up; [ $HOROVOD_RANK = 1 ] || read line; exit $((7 - 7 * HOROVOD_RANK))"
    job = start(horarun, held, "sh", "-c", program, stdin=-1)
    job.read_until("up", 2)
    cluster.hosts.execute(2, "pkill", "-KILL", "-x", "slurmd")
    try:
        done = job.finish(b"on\n", timeout=60).expect(7)
        assert "E_" not in done.messages, done
        expect_clean(job, held, since=time.monotonic())
    finally:
        cluster.start_daemon(2)


@pytest.fixture
def cold(cluster):
    """Forgets what horarun keeps on the hosts."""
    for k in range(1, HOSTS + 1):
        cluster.hosts.execute(k, "sh", "-c", "rm -rf ~/.cache/hora /tmp/hora-* /dev/shm/hora-*")


def test_what_is_copied_is_kept_and_left_nowhere_else(horarun, allocation, cluster, cold):
    held = allocation("-N3", "--ntasks-per-node=1")
    # A node with a warm cache among cold ones.
    start(horarun, held, "-H", "node2:1", "--engine", "slurm", "true").finish().expect(0)
    for _ in range(2):
        done = start(horarun, held, "hostname").finish().expect(0)
        assert sorted(line for lines in done.ranks().values() for line in lines) == ["node1", "node2", "node3"]
        assert "not all hosts" not in done.messages, done
    for k in range(1, 4):
        kept = cluster.hosts.execute(k, "sh", "-c", "ls ~/.cache/hora").split()
        assert len([name for name in kept if name.startswith("agent-")]) == 2, kept
        assert not cluster.hosts.execute(k, "sh", "-c", "ls -d /tmp/.hora-* ~/.cache/hora/.ship-*", check=False)


def test_an_agent_that_left_the_cache_of_a_host_comes_again(horarun, allocation, cluster):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    start(horarun, held, "true").finish().expect(0)
    # hora-dial stays, which starts the agent next to it, or else runs the script that sends for one.
    gone = "cd ~/.cache/hora; for f in agent-*; do grep -q OpenSSL $f || rm $f; done; ls"
    left = cluster.hosts.execute(2, "sh", "-c", gone).split()
    assert len([name for name in left if name.startswith("agent-")]) == 1, left
    done = start(horarun, held, "hostname").finish().expect(0)
    assert sorted(line for lines in done.ranks().values() for line in lines) == ["node1", "node2"]
    assert "not all hosts" not in done.messages, done


def test_one_srun_for_each_host_where_files_cannot_be_copied(horarun, allocation, cluster, cold):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    cluster.hosts.execute(2, "mount", "-t", "tmpfs", "-o", "ro", "none", "/tmp")
    try:
        done = start(horarun, held, "hostname").finish().expect(0)
    finally:
        cluster.hosts.execute(2, "umount", "/tmp")
    assert sorted(line for lines in done.ranks().values() for line in lines) == ["node1", "node2"]
    reported = re.findall(r"not all hosts are reached by one step \((.*)\); the others by one each\n", done.messages)
    assert len(reported) == 1 and "sbcast" in reported[0], done
    jobs.wait_until(lambda: not held.steps(), "the steps to end")


@contextlib.contextmanager
def cannot_dial(cluster, k):
    """A firewall lets host k reach no port of the launcher's machine but those of Slurm."""
    first, last = cluster.srun_ports
    begins = f"tcp flags & (syn | ack) == syn tcp dport != {{ {first}-{last}, 6817, 6818 }}"
    rules = [f"{where} {begins} reject" for where in (f"ip daddr {cluster.address}", "meta nfproto ipv6")]
    chain = f"chain out {{ type filter hook output priority 0; {'; '.join(rules)}; }}"
    cluster.hosts.execute(k, "nft", f"table inet wall {{ {chain}; }}")
    try:
        yield
    finally:
        cluster.hosts.execute(k, "nft", "delete table inet wall")


def test_one_srun_for_each_host_that_cannot_dial(horarun, allocation, cluster):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    start(horarun, held, "true").finish().expect(0)
    with cannot_dial(cluster, 2):
        job = start(horarun, held, "sh", "-c", "hostname; echo up; exec sleep 1000")
        job.read_until("up", 2)
        assert len(held.steps()) == 2
        job.send_signal(signal.SIGTERM)
        done = job.finish(timeout=60).expect(143)
    assert "by one step (host node2: no launcher answers" in done.messages, done
    jobs.wait_until(lambda: not held.steps(), "the steps to end")


def test_no_secret_is_in_sight(horarun, allocation, cluster):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    secret = "a secret of the user"
    command = 'test "$MY_SECRET" = "$0" && echo up; exec sleep 1000'
    job = horarun.start("sh", "-c", command, secret, env={**held.variables, "MY_SECRET": secret})
    job.read_until("up", 2)
    for process in job.survivors():
        assert "hora://" not in process.command, process
    for k in (1, 2):
        (pid,) = helpers(cluster, k)
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        assert b"HOME=" in environment and not re.search(rb"hora://|MY_SECRET|HORA_", environment), environment
    job.send_signal(signal.SIGTERM)
    job.finish(timeout=60).expect(143)


@pytest.mark.parametrize("way", ["step", "srun"])
def test_what_a_rank_prints_and_reads_is_whole(horarun, allocation, cluster, way):
    held = allocation("-w", "node1", "--ntasks-per-node=1")
    data = os.urandom(32 << 20)
    program = "cat >/tmp/data; sha256sum </tmp/data; head -c 20000000 /tmp/data; rm /tmp/data; echo"
    with cannot_dial(cluster, 1) if way == "srun" else contextlib.nullcontext():
        job = start(horarun, held, "--no-prefix-output", "sh", "-c", program, stdin=-1)
        done = job.finish(data, timeout=120).expect(0)
    assert ("not all hosts are reached by one step" in done.messages) == (way == "srun"), done.messages
    digest, _, rest = done.out.partition(b"  -\n")
    assert digest.decode() == hashlib.sha256(data).hexdigest()
    assert hashlib.sha256(rest).digest() == hashlib.sha256(data[:20_000_000] + b"\n").digest(), len(rest)


def test_exit_code_and_signal(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    assert start(horarun, held, "sh", "-c", "exit $((7 * $HOROVOD_RANK))").finish().code == 7
    assert start(horarun, held, "sh", "-c", "kill -9 $$").finish().code == 137


@pytest.mark.parametrize("number", [*SAVES, signal.SIGQUIT], ids=by_name)
def test_signals_arrive_by_name(horarun, allocation, shared, number):
    held = allocation("-N2", "--ntasks-per-node=1")
    job = start(horarun, held, "/usr/bin/python3", "-S", f"{shared}/signals.py")
    job.read_until("ready", 2)
    since = time.monotonic()
    expect_signal(job, number)
    expect_clean(job, held, since)


def test_what_the_user_says_wins(horarun, allocation):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    shown = json.loads(start(horarun, held, "--dry-run", "--json", "true").finish().expect(0).text)
    assert (shown["engine"]["name"], shown["engine"]["job"]) == ("slurm", held.job) and "srun" in shown["rsh"]
    done = start(horarun, held, "--engine", "none", "-np", 2, "hostname").finish().expect(0)
    assert "Slurm" not in done.messages
    done = start(horarun, held, "-H", "node2:1", "--engine", "slurm", "hostname").finish().expect(0)
    assert done.ranks() == {0: ["node2"]}, done
    done = start(horarun, held, "--engine-args", "--no-such-option", "true").finish()
    assert done.code not in (0, 1) and "no-such-option" in done.messages, done


def test_reports_of_the_allocation(horarun, allocation, tmp_path):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=1")
    text = f"Slurm job {held.job}: 2 slots on 2 hosts (node1:1,node2:1); agents start by srun"
    expected = {"name": "slurm", "job": held.job, "text": text}
    examined = json.loads(start(horarun, held, "doctor", "--json").finish().text)
    assert examined["engine"] == expected and [host["name"] for host in examined["hosts"]] == ["node1", "node2"]
    assert text in start(horarun, held, "--show-config").finish().expect(0).text
    done = start(horarun, held, "--report", tmp_path / "report.json", "--json", "true").finish().expect(0)
    assert json.loads((tmp_path / "report.json").read_text())["engine"] == expected
    events = [json.loads(line) for line in done.messages.splitlines()]
    reported = next(event for event in events if event["event"] == "allocation")
    assert (reported["engine"], reported["job"], reported["text"]) == ("slurm", held.job, text)


@pytest.fixture
def batch(cluster, installed):
    """Submits a script in which $horarun runs on the first node; answers the job's id and its output file."""
    jobs_of_test = []

    def submit(options, script):
        output = os.path.join(cluster.folder, f"batch-{len(os.listdir(cluster.folder))}.txt")
        text = f"horarun={installed}/bin/horarun\n{script}"
        words = ["sbatch", "--parsable", "--output", output, "--chdir", cluster.folder, *options, f"--wrap={text}"]
        jobs_of_test.append(cluster.run(*words).strip())
        return jobs_of_test[-1], output

    yield submit
    for job in jobs_of_test:
        cluster.run("scancel", job, check=False)
        jobs.wait_until(lambda job=job: not cluster.run("squeue", "-h", "-j", job, check=False), "the job to end")


def test_a_batch_job(cluster, batch):
    job, output = batch(["-N3", "--ntasks-per-node=2"], '$horarun sh -c "hostname; exit 7"; echo code $?')
    jobs.wait_until(lambda: "code" in read(output), "the script's last line", 60)
    text = read(output)
    assert f"Slurm job {job}: 6 slots on 3 hosts" in text and "code 7" in text, text
    assert "not all hosts" not in text, text


@pytest.mark.parametrize("before", ["", "exec "])
def test_a_batch_job_that_is_cancelled(cluster, batch, before):
    job, output = batch(["-N3", "--ntasks-per-node=1"], before + '$horarun sh -c "echo up; exec sleep 1000"; exit')
    jobs.wait_until(lambda: read(output).count("up") == 3, "the ranks to start", 60)
    cancelled = time.monotonic()
    cluster.run("scancel", job)
    left = []

    def is_clean():
        left[:] = [*jobs.agents(), *cluster.cgroups(job)]
        return not left

    jobs.wait_until(is_clean, "everything to end", cancelled + 30 - time.monotonic())
    # A shell before horarun dies of the signal, and Slurm kills at once what it leaves.
    if before:
        jobs.wait_until(lambda: "[E_ENGINE]" in read(output), f"the last word in {output}", 5)


def read(path):
    with contextlib.suppress(FileNotFoundError), open(path, errors="replace") as file:
        return file.read()
    return ""


def test_slots_where_slurm_was_asked_for_no_tasks(horarun, allocation):
    held = allocation("-w", "node1,node2", "--exclusive")
    done = start(horarun, held, "--slots-per-host", 3, "hostname").finish().expect(0)
    assert collections.Counter(line for lines in done.ranks().values() for line in lines) == {"node1": 3, "node2": 3}
    assert "6 slots on 2 hosts (node1:3,node2:3)" in done.messages, done


def test_mistakes_are_one_error(horarun, allocation):
    held = allocation("-w", "node1,node2", "--ntasks-per-node=2")
    without = {**held.variables, "PATH": "/nowhere"}
    done = horarun.start("true", env=without).finish().expect(2)
    assert "the allocation of Slurm: $PATH has no srun; --transport ssh reaches" in done.messages, done
    done = start(horarun, held, "--engine-args", "--no-such-option", "true").finish().expect(125)
    assert "srun ended with status 255" in done.messages and "unrecognized option" in done.messages, done
    held.close()
    done = start(horarun, held, "true").finish().expect(125)
    assert re.search(rf"Slurm has ended the job: .*{held.job}.* \[E_ENGINE\]", done.messages), done
