# SPDX-License-Identifier: Apache-2.0
"""Jobs inside allocations of a real Grid Engine on the test hosts (tests/support/engines/gridengine.py)."""

import collections
import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import jobs

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
import gridengine

ENGINE = gridengine
HOSTS = 4
CLEAN_S = 30


@pytest.fixture
def allocation(cluster):
    """allocation("fill", 7): a job with that many slots, and the variables that its script has."""
    held = []

    def allocate(shape, slots):
        held.append(gridengine.Allocation(cluster, shape, slots))
        return held[-1]

    yield allocate
    for one in held:
        one.close()


def start(horarun, held, *arguments, **options):
    return horarun.start(*arguments, env=held.environment, **options)


@pytest.mark.parametrize("shape, slots", [("fill", 7), ("two", 8), ("one", 3)])
def test_ranks_are_where_the_slots_are(horarun, allocation, shape, slots):
    held = allocation(shape, slots)
    done = start(horarun, held, "hostname").finish().expect(0)
    by_host = collections.Counter(line for lines in done.ranks().values() for line in lines)
    assert by_host == held.slots() and sum(by_host.values()) == slots, (done, held.slots())
    expected_text = rf"horarun: Grid Engine job {held.job}: {slots} slots on {len(by_host)} hosts \(.*\); "
    assert re.match(expected_text + r"agents start by qrsh -inherit\n", done.messages), done


def test_a_collective_job(horarun, allocation):
    done = start(horarun, allocation("two", 8), "--smoke").finish().expect(0)
    assert "all ok" in done.text, done


def test_exit_code_and_signal_leave_the_job_in_order(horarun, allocation):
    """One slot on each host: a task that stayed would be one too many for the next agents."""
    held = allocation("one", 4)
    third = "[ $HOROVOD_RANK = 3 ] || exec sleep 1000; "
    assert start(horarun, held, "sh", "-c", third + "exit 7").finish().code == 7
    assert start(horarun, held, "sh", "-c", third + "kill -9 $$").finish().code == 137
    start(horarun, held, "true").finish().expect(0)


def test_what_a_rank_prints_and_reads_is_whole(horarun, allocation):
    """32 MiB in, 20 MB out, through the connection of qrsh."""
    data = os.urandom(32 << 20)
    program = "sha256sum; head -c 20000000 /dev/zero; echo"
    held = allocation("two", 4)
    job = start(horarun, held, "--no-prefix-output", "-np", 1, "sh", "-c", program, stdin=subprocess.PIPE)
    out = job.finish(data).expect(0).out
    assert out == hashlib.sha256(data).hexdigest().encode() + b"  -\n" + bytes(20_000_000) + b"\n"


def test_a_job_that_is_deleted(horarun, allocation, cluster):
    held = allocation("two", 8)
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 8)
    cluster.run("qdel", held.job)
    done = job.finish().expect(125)
    assert re.search(rf"Grid Engine has ended the job: job {held.job} is .*E_ENGINE", done.messages, re.S), done
    jobs.expect_nothing_left(job, CLEAN_S, also=jobs.agents)


def test_a_launcher_that_is_killed_leaves_nothing(horarun, allocation):
    job = start(horarun, allocation("two", 8), "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 8)
    job.send_signal(signal.SIGKILL)
    job.finish()
    jobs.expect_nothing_left(job, CLEAN_S, also=jobs.agents)


@pytest.fixture
def installed(cluster, build):
    """horarun, where the hosts see it."""
    folder = os.path.join(cluster.folder, "hora")
    if not os.path.isdir(folder):
        command = ["cmake", "--install", build, "--prefix", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return os.path.join(folder, "bin", "horarun")


def test_in_the_script_of_a_job(cluster, installed):
    job = cluster.submit(f'{installed} sh -c "hostname; exit 7"; echo code $?', "-pe", "fill", 6)
    jobs.wait_until(lambda: "code" in cluster.output(job), "the script's last line", 60)
    text = cluster.output(job)
    assert f"Grid Engine job {job}: 6 slots on 2 hosts" in text and "code 7" in text, text
    cluster.wait_for_end(job)


def test_by_qrsh(cluster, installed):
    said = cluster.run("qrsh", "-now", "no", "-cwd", "-v", "PATH,HOME", "-pe", "two", "4", installed, "hostname")
    ranks = collections.Counter(re.findall(r"^\[\d\]<stdout>:(node\d)\r?$", said, re.M))
    assert sorted(ranks.values()) == [2, 2], said


def test_a_script_whose_job_is_deleted(cluster, installed):
    job = cluster.submit(f'{installed} sh -c "echo up; exec sleep 1000"', "-pe", "two", 8)
    jobs.wait_until(lambda: cluster.output(job).count("up") == 8, "the ranks to start", 60)
    cluster.run("qdel", job)
    expect_no_agents(CLEAN_S)
    cluster.wait_for_end(job)


def expect_no_agents(seconds):
    left = []

    def is_clean():
        left[:] = jobs.agents()
        return not left

    with contextlib.suppress(AssertionError):
        jobs.wait_until(is_clean, "every agent to end", seconds)
    assert not left, f"left after {seconds} s: {left}"


def test_a_script_whose_time_is_up(cluster, installed):
    job = cluster.submit(f'{installed} sh -c "echo up; exec sleep 1000"', "-pe", "two", 8, "-l", "h_rt=20")
    jobs.wait_until(lambda: cluster.output(job).count("up") == 8, "the ranks to start", 60)
    cluster.wait_for_end(job)
    expect_no_agents(CLEAN_S)


@pytest.mark.parametrize("lease, code", [("4s", 125), ("60s", 0)])
def test_a_job_that_is_suspended_goes_on_within_the_lease(cluster, installed, lease, code):
    """Grid Engine stops horarun, from which agents expect a word."""
    go = f"{cluster.folder}/go"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(go)
    program = f"echo up; while [ ! -e {go} ]; do sleep 0.2; done; echo done"
    job = cluster.submit(f"{installed} --lease {lease} sh -c '{program}'; echo code $?", "-pe", "two", 4)
    jobs.wait_until(lambda: cluster.output(job).count("up") == 4, "the ranks to start", 60)
    cluster.run("qmod", "-sj", job)
    jobs.wait_until(lambda: cluster.state(job) == "s", "the job to be suspended", 30)
    time.sleep(12)  # the suspension is what is tested
    cluster.run("qmod", "-usj", job)
    with open(go, "w"):
        pass
    jobs.wait_until(lambda: "code" in cluster.output(job), "the script's last line", 60)
    text = cluster.output(job)
    assert f"code {code}" in text and (text.count("done") == 4) == (code == 0), text
    cluster.wait_for_end(job)
